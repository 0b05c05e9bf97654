// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions: pinned memory and the key that opens it.
 *
 * The order is what matters here.  Memory is pinned before the device hears of
 * it and unpinned after the device has said that it has let go: deregistering
 * fails, and changes nothing, while windows are bound to the region.
 * Reregistering pins the new memory, asks the device, and releases what lost:
 * the old memory if the device agreed, the new if it did not.  So a region that
 * could not be changed is as it was, and one that was changed never loses sight
 * of its memory in between.
 */

#include <linux/log2.h>
#include <linux/slab.h>

#include "verbs.h"

#define KH_IB_ACCESS	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
			 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC | \
			 IB_ACCESS_MW_BIND | IB_ZERO_BASED)

/* The rights that count, from what a process asks for; optional ones do not. */
static int kh_mr_access(struct kh_dev *dev, int flags, int *access)
{
	int known = KH_IB_ACCESS;
	int ret;

	BUILD_BUG_ON(KH_IB_ACCESS != KH_ACCESS_MASK);
	BUILD_BUG_ON(IB_ACCESS_FLUSH_GLOBAL &&
		     IB_ACCESS_FLUSH_GLOBAL != KH_ACCESS_FLUSH_GLOBAL);

	ret = ib_check_mr_access(&dev->ibdev, flags);
	if (ret)
		return ret;
	/* A hint on the memory, which is found out anyway. */
	flags &= ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB);
	if (dev->attr.caps & KH_CAP_FLUSH)
		known |= IB_ACCESS_FLUSH_GLOBAL;
	if (flags & ~known) {
		ibdev_dbg(&dev->ibdev, "access %#x not supported\n", flags);
		return -EOPNOTSUPP;
	}
	*access = flags;
	return 0;
}

static int kh_mr_range(struct kh_dev *dev, u64 iova, u64 length)
{
	if (!length || length > dev->attr.max_mr_size ||
	    iova + length - 1 < iova) {
		ibdev_dbg(&dev->ibdev, "region %#llx + %#llx: empty, wraps, or over %#llx\n",
			  iova, length, dev->attr.max_mr_size);
		return -EINVAL;
	}
	return 0;
}

struct ib_mr *kh_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			     u64 virt_addr, int flags, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibpd->device);
	struct kh_create_mkey_params params = {
		.kind = KH_MKEY_DIRECT,
		.pdn = to_kh_pd(ibpd)->pdn,
		.length = length,
	};
	struct kh_page_list list;
	struct kh_mr *mr;
	u32 key;
	int ret;

	ret = kh_udata_none(udata);
	if (ret)
		return ERR_PTR(ret);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	ret = kh_mr_access(dev, flags, &mr->access);
	if (ret)
		goto err_free;
	ret = kh_mr_range(dev, virt_addr, length);
	if (ret)
		goto err_free;

	mr->umem = ib_umem_get_va(&dev->ibdev, start, length, mr->access);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		goto err_free;
	}
	ret = kh_pages_from_umem(dev, mr->umem, &list);
	if (ret)
		goto err_umem;

	params.access = mr->access;
	params.start = mr->access & IB_ZERO_BASED ? 0 : virt_addr;
	params.pages = &list.desc;
	params.offset = list.offset;
	ret = kh_cmd_create_mkey(dev, &params, &key);
	kh_pages_free(dev, &list);
	if (ret)
		goto err_umem;

	mr->iova = virt_addr;
	mr->ibmr.lkey = key;
	mr->ibmr.rkey = key;
	return &mr->ibmr;

err_umem:
	ib_umem_release(mr->umem);
err_free:
	kfree(mr);
	return ERR_PTR(ret);
}

/*
 * The memory that the region is to have, pinned, or NULL if it keeps what it
 * has.  It is new if the process says so, and also if the process asks for
 * rights to write to what was pinned for reading only.
 */
static struct ib_umem *kh_rereg_umem(struct kh_dev *dev, struct kh_mr *mr,
				     int flags, u64 start, u64 length, int access)
{
	if (flags & IB_MR_REREG_TRANS)
		return ib_umem_get_va(&dev->ibdev, start, length, access);
	if (!ib_access_writable(access) || mr->umem->writable)
		return NULL;
	/* The same address means the same memory only where it was pinned. */
	if (mr->umem->owning_mm != current->mm)
		return ERR_PTR(-EPERM);
	return ib_umem_get_va(&dev->ibdev, mr->umem->address, mr->umem->length,
			   access);
}

struct ib_mr *kh_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
			       u64 length, u64 virt_addr, int new_access,
			       struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibmr->device);
	struct kh_modify_mkey_params params = {};
	struct kh_mr *mr = to_kh_mr(ibmr);
	struct kh_page_list list = {};
	struct ib_umem *umem, *keep;
	int access = mr->access;
	u64 iova = mr->iova;
	u32 key;
	int ret;

	if (!mr->umem)
		return ERR_PTR(-EINVAL);
	ret = kh_udata_none(udata);
	if (ret)
		return ERR_PTR(ret);

	if (flags & IB_MR_REREG_ACCESS) {
		ret = kh_mr_access(dev, new_access, &access);
		if (ret)
			return ERR_PTR(ret);
		params.mask |= KH_MKEY_MOD_ACCESS;
		params.access = access;
	}
	if (flags & IB_MR_REREG_PD) {
		params.mask |= KH_MKEY_MOD_PD;
		params.pdn = to_kh_pd(ibpd)->pdn;
	}
	if (flags & IB_MR_REREG_TRANS) {
		ret = kh_mr_range(dev, virt_addr, length);
		if (ret)
			return ERR_PTR(ret);
		iova = virt_addr;
	}

	umem = kh_rereg_umem(dev, mr, flags, start, length, access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	/* Where addresses start is part of the translation. */
	if (umem || (access ^ mr->access) & IB_ZERO_BASED) {
		keep = umem ?: mr->umem;
		ret = kh_pages_from_umem(dev, keep, &list);
		if (ret)
			goto err_umem;
		params.mask |= KH_MKEY_MOD_TRANSLATION;
		params.start = access & IB_ZERO_BASED ? 0 : iova;
		params.length = keep->length;
		params.pages = &list.desc;
		params.offset = list.offset;
	}

	if (params.mask) {
		ret = kh_cmd_modify_mkey(dev, ibmr->lkey, &params, &key);
		if (params.pages)
			kh_pages_free(dev, &list);
		if (ret)
			goto err_umem;
		ibmr->lkey = key;
		ibmr->rkey = key;
	}

	if (umem) {
		ib_umem_release(mr->umem);
		mr->umem = umem;
	}
	mr->access = access;
	mr->iova = iova;
	return NULL;	/* the same region, changed */

err_umem:
	ib_umem_release(umem);
	return ERR_PTR(ret);
}

struct ib_mr *kh_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct kh_dev *dev = to_kh_dev(ibpd->device);
	struct kh_create_mkey_params params = {
		.kind = KH_MKEY_PHYS,
		.pdn = to_kh_pd(ibpd)->pdn,
		.access = access & KH_ACCESS_MASK & ~KH_ACCESS_ZERO_BASED,
	};
	struct kh_mr *mr;
	u32 key;
	int ret;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	ret = kh_cmd_create_mkey(dev, &params, &key);
	if (ret) {
		kfree(mr);
		return ERR_PTR(ret);
	}
	mr->access = params.access;
	mr->ibmr.lkey = key;
	mr->ibmr.rkey = key;
	return &mr->ibmr;
}

/*
 * A region for kernel consumers, filled by a work request: the list of its
 * pages lives as long as it does, since the device reads it when it executes
 * that request.
 */
struct ib_mr *kh_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_sg)
{
	struct kh_dev *dev = to_kh_dev(ibpd->device);
	struct kh_create_mkey_params params = {
		.kind = KH_MKEY_FREE,
		.pdn = to_kh_pd(ibpd)->pdn,
		.max_entries = max_sg,
	};
	struct kh_mr *mr;
	u32 key;
	int ret;

	if (type != IB_MR_TYPE_MEM_REG || !(dev->attr.caps & KH_CAP_REG_MR))
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_sg || max_sg > dev->attr.max_fast_reg_pages)
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	ret = kh_pages_alloc(dev, max_sg, &mr->list);
	if (ret)
		goto err_free;
	ret = kh_cmd_create_mkey(dev, &params, &key);
	if (ret)
		goto err_list;
	mr->ibmr.lkey = key;
	mr->ibmr.rkey = key;
	return &mr->ibmr;

err_list:
	kh_pages_free(dev, &mr->list);
err_free:
	kfree(mr);
	return ERR_PTR(ret);
}

static int kh_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct kh_mr *mr = to_kh_mr(ibmr);

	if (mr->npages == mr->list.max_pages)
		return -ENOMEM;
	kh_pages_set(&mr->list, mr->npages++, addr);
	return 0;
}

int kh_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		 unsigned int *offset)
{
	struct kh_mr *mr = to_kh_mr(ibmr);
	int ret;

	if (!is_power_of_2(ibmr->page_size) ||
	    ilog2(ibmr->page_size) < KH_PAGE_SHIFT_MIN ||
	    ilog2(ibmr->page_size) > KH_PAGE_SHIFT_MAX)
		return -EINVAL;

	mr->npages = 0;
	ret = ib_sg_to_pages(ibmr, sg, nents, offset, kh_set_page);
	if (mr->npages) {
		kh_pages_finish(&mr->list, mr->npages, ilog2(ibmr->page_size));
		mr->list.offset = ibmr->iova & (ibmr->page_size - 1);
	}
	return ret;
}

int kh_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibmr->device);
	struct kh_mr *mr = to_kh_mr(ibmr);
	int ret;

	ret = kh_cmd_destroy_mkey(dev, ibmr->lkey);
	if (ret)
		return ret;
	ib_umem_release(mr->umem);
	if (mr->list.max_pages)
		kh_pages_free(dev, &mr->list);
	kfree(mr);
	return 0;
}
