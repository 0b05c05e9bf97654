// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Indirect mkeys, as objects of uverbs' ioctl interface.
 *
 * The kernel allocates an mkey's entry in the device's table and frees it; what
 * the mkey names comes from work requests, which the kernel does not see.  So
 * there is nothing here to keep in step: the answer to a query is the device's,
 * and whether the mkey may go is for the device to say, which knows the windows
 * that are bound to it.  It refuses, and nothing has changed; or it agrees, and
 * only then are the PD and the object let go.
 *
 * A device without indirect mkeys has the objects all the same, and refuses to
 * create any: "not supported" is then told from "no such call".
 */

#include <linux/slab.h>
#include <rdma/uverbs_types.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define UVERBS_MODULE_NAME kh
#include <rdma/uverbs_named_ioctl.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

struct kh_mkey {
	struct ib_pd *ibpd;
	u32 key;
};

/*
 * Rights that the device takes at creation.  Addresses are the fill's to say,
 * so that there is nothing yet which could be based at zero.
 */
static int kh_mkey_access(struct kh_dev *dev, u32 flags, u32 *access)
{
	int ret;

	ret = ib_check_mr_access(&dev->ibdev, flags);
	if (ret)
		return ret;
	flags &= ~IB_ACCESS_OPTIONAL;
	if (flags & ~KH_ACCESS_MASK) {
		ibdev_dbg(&dev->ibdev, "mkey: access %#x not supported\n", flags);
		return -EOPNOTSUPP;
	}
	if (flags & IB_ZERO_BASED) {
		ibdev_dbg(&dev->ibdev, "mkey: zero based when created\n");
		return -EINVAL;
	}
	*access = flags;
	return 0;
}

static struct kh_mkey *kh_mkey_create(struct kh_pd *pd, u32 max_entries, u32 flags)
{
	struct kh_dev *dev = to_kh_dev(pd->ibpd.device);
	struct kh_create_mkey_params params = {
		.kind = KH_MKEY_INDIRECT,
		.pdn = pd->pdn,
		.max_entries = max_entries,
	};
	struct kh_mkey *mkey;
	int ret;

	if (!(dev->attr.caps & KH_CAP_INDIRECT))
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_entries || max_entries > dev->attr.max_indirect) {
		ibdev_dbg(&dev->ibdev, "mkey: %u entries, of 1 to %u\n", max_entries,
			  dev->attr.max_indirect);
		return ERR_PTR(-EINVAL);
	}
	ret = kh_mkey_access(dev, flags, &params.access);
	if (ret)
		return ERR_PTR(ret);

	mkey = kzalloc(sizeof(*mkey), GFP_KERNEL);
	if (!mkey)
		return ERR_PTR(-ENOMEM);
	ret = kh_cmd_create_mkey(dev, &params, &mkey->key);
	if (ret) {
		kfree(mkey);
		return ERR_PTR(ret);
	}
	mkey->ibpd = &pd->ibpd;
	atomic_inc(&pd->ibpd.usecnt);
	return mkey;
}

static int kh_mkey_query(struct kh_mkey *mkey, struct keyhole_mkey_attr *attr)
{
	struct kh_mkey_attr hw;
	int ret;

	ret = kh_cmd_query_mkey(to_kh_dev(mkey->ibpd->device), mkey->key, &hw);
	if (ret)
		return ret;

	memset(attr, 0, sizeof(*attr));
	attr->key = le32_to_cpu(hw.key);
	attr->access = le32_to_cpu(hw.access);
	attr->max_entries = le32_to_cpu(hw.max_entries);
	attr->windows = le32_to_cpu(hw.windows);
	if (!hw.valid)
		return 0;
	attr->valid = 1;
	attr->start = le64_to_cpu(hw.start);
	attr->length = le64_to_cpu(hw.length);
	attr->num_entries = le32_to_cpu(hw.num_entries);
	attr->repeat_count = le32_to_cpu(hw.repeat_count);
	attr->depth = hw.depth;
	return 0;
}

/* -EBUSY, and mkey is as it was; or 0, and it is gone. */
static int kh_mkey_destroy(struct kh_mkey *mkey)
{
	int ret;

	ret = kh_cmd_destroy_mkey(to_kh_dev(mkey->ibpd->device), mkey->key);
	if (ret)
		return ret;
	atomic_dec(&mkey->ibpd->usecnt);
	kfree(mkey);
	return 0;
}

static int UVERBS_HANDLER(KEYHOLE_METHOD_MKEY_CREATE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj =
		uverbs_attr_get_uobject(attrs, KEYHOLE_ATTR_MKEY_CREATE_HANDLE);
	struct ib_pd *ibpd =
		uverbs_attr_get_obj(attrs, KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE);
	struct kh_mkey *mkey;
	u32 max_entries;
	u32 access;
	int ret;

	ret = uverbs_copy_from(&max_entries, attrs,
			       KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES);
	if (ret)
		return ret;
	/* No flags when it is absent; which are known is for us to say. */
	ret = uverbs_get_flags32(&access, attrs, KEYHOLE_ATTR_MKEY_CREATE_ACCESS,
				 U32_MAX);
	if (ret)
		return ret;

	mkey = kh_mkey_create(to_kh_pd(ibpd), max_entries, access);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);
	uobj->object = mkey;
	/* From here on a failure makes the core call kh_mkey_cleanup(). */
	uverbs_finalize_uobj_create(attrs, KEYHOLE_ATTR_MKEY_CREATE_HANDLE);
	return uverbs_copy_to(attrs, KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY, &mkey->key,
			      sizeof(mkey->key));
}

static int UVERBS_HANDLER(KEYHOLE_METHOD_MKEY_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct kh_mkey *mkey =
		uverbs_attr_get_obj(attrs, KEYHOLE_ATTR_MKEY_QUERY_HANDLE);
	struct keyhole_mkey_attr attr;
	int ret;

	ret = kh_mkey_query(mkey, &attr);
	if (ret)
		return ret;
	return uverbs_copy_to_struct_or_zero(attrs, KEYHOLE_ATTR_MKEY_QUERY_RESP,
					     &attr, sizeof(attr));
}

/*
 * When a process ends the core asks for its objects in turn, and again for those
 * that were busy: the windows go first, whatever the order was.
 */
static int kh_mkey_cleanup(struct ib_uobject *uobj, enum rdma_remove_reason why,
			   struct uverbs_attr_bundle *attrs)
{
	return kh_mkey_destroy(uobj->object);
}

DECLARE_UVERBS_NAMED_METHOD(KEYHOLE_METHOD_MKEY_CREATE,
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_MKEY_CREATE_HANDLE,
					    KEYHOLE_OBJECT_MKEY,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE,
					    UVERBS_OBJECT_PD,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES,
					       UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(KEYHOLE_ATTR_MKEY_CREATE_ACCESS,
					       UVERBS_ATTR_TYPE(u32), UA_OPTIONAL),
			    UVERBS_ATTR_PTR_OUT(KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY,
						UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(KEYHOLE_METHOD_MKEY_QUERY,
			    UVERBS_ATTR_IDR(KEYHOLE_ATTR_MKEY_QUERY_HANDLE,
					    KEYHOLE_OBJECT_MKEY,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(KEYHOLE_ATTR_MKEY_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct keyhole_mkey_attr,
								   reserved),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(KEYHOLE_METHOD_MKEY_DESTROY,
				    UVERBS_ATTR_IDR(KEYHOLE_ATTR_MKEY_DESTROY_HANDLE,
						    KEYHOLE_OBJECT_MKEY,
						    UVERBS_ACCESS_DESTROY,
						    UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(KEYHOLE_OBJECT_MKEY,
			    UVERBS_TYPE_ALLOC_IDR(kh_mkey_cleanup),
			    &UVERBS_METHOD(KEYHOLE_METHOD_MKEY_CREATE),
			    &UVERBS_METHOD(KEYHOLE_METHOD_MKEY_QUERY),
			    &UVERBS_METHOD(KEYHOLE_METHOD_MKEY_DESTROY));

const struct uapi_definition kh_mkey_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(KEYHOLE_OBJECT_MKEY),
	{}
};
