// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * KLM lists, as objects of uverbs' ioctl interface: memory of a process from
 * which the device takes the entries of an indirect mkey.
 *
 * The device reads that memory at any time while the list exists, and writes it
 * never: pages are pinned for reading, before the device hears of them, and
 * unpinned after it has let go.  What stands in them is checked by the device,
 * entry by entry, as it reads; the kernel does not look.  Pinning is accounted
 * to the process, as that of its regions is.
 */

#include <linux/slab.h>
#include <rdma/uverbs_types.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define UVERBS_MODULE_NAME kh
#include <rdma/uverbs_named_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

#define KH_KLM_LIST_ALIGN	8

struct kh_klm_list {
	struct ib_pd *ibpd;
	struct ib_umem *umem;
	u32 key;
};

/* All entries that one fill can take, be they of the longer kind. */
u64 kh_max_klm_list(const struct kh_dev *dev)
{
	if (!(dev->attr.caps & KH_CAP_INDIRECT))
		return 0;
	return (u64)dev->attr.max_indirect * sizeof(struct kh_stride);
}

static int kh_klm_list_range(struct kh_dev *dev, u64 addr, u64 length)
{
	u64 max = kh_max_klm_list(dev);

	if (!(dev->attr.caps & KH_CAP_INDIRECT))
		return -EOPNOTSUPP;
	if (!length || length > max || !IS_ALIGNED(length, KH_KLM_LIST_ALIGN) ||
	    !IS_ALIGNED(addr, KH_KLM_LIST_ALIGN) || addr != (unsigned long)addr) {
		ibdev_dbg(&dev->ibdev, "KLM list %#llx + %#llx: not multiples of %u, or not 1 to %#llx bytes\n",
			  addr, length, KH_KLM_LIST_ALIGN, max);
		return -EINVAL;
	}
	return 0;
}

static struct kh_klm_list *kh_klm_list_create(struct kh_pd *pd, u64 addr, u64 length)
{
	struct kh_dev *dev = to_kh_dev(pd->ibpd.device);
	/* Requests name entries by their offset in the list: it starts at 0. */
	struct kh_create_mkey_params params = {
		.kind = KH_MKEY_KLM_LIST,
		.pdn = pd->pdn,
		.length = length,
	};
	struct kh_klm_list *klms;
	struct kh_page_list list;
	int ret;

	ret = kh_klm_list_range(dev, addr, length);
	if (ret)
		return ERR_PTR(ret);
	klms = kzalloc(sizeof(*klms), GFP_KERNEL);
	if (!klms)
		return ERR_PTR(-ENOMEM);
	klms->umem = ib_umem_get_va(&dev->ibdev, addr, length, 0);
	if (IS_ERR(klms->umem)) {
		ret = PTR_ERR(klms->umem);
		ibdev_dbg(&dev->ibdev, "KLM list %#llx + %#llx: pinning: %d\n", addr,
			  length, ret);
		goto err_free;
	}
	ret = kh_pages_from_umem(dev, klms->umem, &list);
	if (ret)
		goto err_umem;
	params.pages = &list.desc;
	params.offset = list.offset;
	ret = kh_cmd_create_mkey(dev, &params, &klms->key);
	kh_pages_free(dev, &list);
	if (ret)
		goto err_umem;

	klms->ibpd = &pd->ibpd;
	atomic_inc(&pd->ibpd.usecnt);
	return klms;

err_umem:
	ib_umem_release(klms->umem);
err_free:
	kfree(klms);
	return ERR_PTR(ret);
}

static int UVERBS_HANDLER(KEYHOLE_METHOD_KLM_LIST_CREATE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj =
		uverbs_attr_get_uobject(attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE);
	struct ib_pd *ibpd =
		uverbs_attr_get_obj(attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE);
	struct kh_klm_list *klms;
	u64 length;
	u64 addr;
	int ret;

	ret = uverbs_copy_from(&addr, attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR);
	if (ret)
		return ret;
	ret = uverbs_copy_from(&length, attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH);
	if (ret)
		return ret;

	klms = kh_klm_list_create(to_kh_pd(ibpd), addr, length);
	if (IS_ERR(klms))
		return PTR_ERR(klms);
	uobj->object = klms;
	/* From here on a failure makes the core call kh_klm_list_cleanup(). */
	uverbs_finalize_uobj_create(attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE);
	return uverbs_copy_to(attrs, KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY,
			      &klms->key, sizeof(klms->key));
}

/* Nothing of a list changes while it lives: the device need not be asked. */
static int UVERBS_HANDLER(KEYHOLE_METHOD_KLM_LIST_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct kh_klm_list *klms =
		uverbs_attr_get_obj(attrs, KEYHOLE_ATTR_KLM_LIST_QUERY_HANDLE);
	struct keyhole_klm_list_attr attr = {
		.length = klms->umem->length,
		.max_length = kh_max_klm_list(to_kh_dev(klms->ibpd->device)),
		.key = klms->key,
	};

	return uverbs_copy_to_struct_or_zero(attrs, KEYHOLE_ATTR_KLM_LIST_QUERY_RESP,
					     &attr, sizeof(attr));
}

static int kh_klm_list_cleanup(struct ib_uobject *uobj, enum rdma_remove_reason why,
			       struct uverbs_attr_bundle *attrs)
{
	struct kh_klm_list *klms = uobj->object;
	int ret;

	ret = kh_cmd_destroy_mkey(to_kh_dev(klms->ibpd->device), klms->key);
	if (ret)
		return ret;
	ib_umem_release(klms->umem);
	atomic_dec(&klms->ibpd->usecnt);
	kfree(klms);
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(KEYHOLE_METHOD_KLM_LIST_CREATE,
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE,
					    KEYHOLE_OBJECT_KLM_LIST,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE,
					    UVERBS_OBJECT_PD,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR,
					       UVERBS_ATTR_TYPE(u64), UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH,
					       UVERBS_ATTR_TYPE(u64), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY,
						UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(KEYHOLE_METHOD_KLM_LIST_QUERY,
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_KLM_LIST_QUERY_HANDLE,
					    KEYHOLE_OBJECT_KLM_LIST,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(KEYHOLE_ATTR_KLM_LIST_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct keyhole_klm_list_attr,
								   reserved),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(KEYHOLE_METHOD_KLM_LIST_DESTROY,
				    UVERBS_ATTR_IDR(KEYHOLE_ATTR_KLM_LIST_DESTROY_HANDLE,
						    KEYHOLE_OBJECT_KLM_LIST,
						    UVERBS_ACCESS_DESTROY,
						    UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(KEYHOLE_OBJECT_KLM_LIST,
			    UVERBS_TYPE_ALLOC_IDR(kh_klm_list_cleanup),
			    &UVERBS_METHOD(KEYHOLE_METHOD_KLM_LIST_CREATE),
			    &UVERBS_METHOD(KEYHOLE_METHOD_KLM_LIST_QUERY),
			    &UVERBS_METHOD(KEYHOLE_METHOD_KLM_LIST_DESTROY));

const struct uapi_definition kh_klm_list_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(KEYHOLE_OBJECT_KLM_LIST),
	{}
};
