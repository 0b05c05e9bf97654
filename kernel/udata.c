// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a process sends along with a command, and the memory of its queues.
 *
 * A process lays out its queue as it likes: one buffer, and offsets into it.
 * We check that each part lies inside and is aligned as the device wants it,
 * pin the buffer and hand the device its pages.  What the process then writes
 * there is between it and the device; the kernel never looks at it again.
 */

#include "verbs.h"

/*
 * Larger than the largest queue that the contract allows (an SQ of 1 << 20
 * blocks with an RQ, or a CQ of 1 << 22 entries), and small enough that no sum
 * of an offset and the offset of the first byte in a large page overflows.
 */
#define KH_UQUEUE_MAX_LEN	(512u << 20)

int kh_udata_get(struct ib_udata *udata, void *req, size_t size)
{
	if (udata->inlen < size)
		return -EINVAL;
	if (udata->inlen > size &&
	    !ib_is_udata_cleared(udata, size, udata->inlen - size))
		return -EOPNOTSUPP;
	return ib_copy_from_udata(req, udata, size);
}

int kh_udata_none(struct ib_udata *udata)
{
	if (udata && udata->inlen &&
	    !ib_is_udata_cleared(udata, 0, udata->inlen))
		return -EOPNOTSUPP;
	return 0;
}

int kh_udata_put(struct ib_udata *udata, const void *resp, size_t size)
{
	return ib_copy_to_udata(udata, (void *)resp,
				min_t(size_t, size, udata->outlen));
}

bool kh_in_queue(u32 len, u32 offset, u64 size, u32 align)
{
	return IS_ALIGNED(offset, align) && offset <= len &&
	       size <= len - offset;
}

int kh_uqueue_pin(struct kh_dev *dev, u64 addr, u32 len, struct kh_uqueue *uq)
{
	int ret;

	memset(uq, 0, sizeof(*uq));
	if (!PAGE_ALIGNED(addr) || !PAGE_ALIGNED(len) || !len ||
	    len > KH_UQUEUE_MAX_LEN || addr != (unsigned long)addr) {
		ibdev_dbg(&dev->ibdev,
			  "queue buffer %#llx + %#x: not whole pages, or over %u bytes\n",
			  addr, len, KH_UQUEUE_MAX_LEN);
		return -EINVAL;
	}

	uq->umem = ib_umem_get_va(&dev->ibdev, addr, len, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(uq->umem)) {
		ret = PTR_ERR(uq->umem);
		uq->umem = NULL;
		ibdev_dbg(&dev->ibdev, "queue buffer %#llx + %#x: pinning: %d\n",
			  addr, len, ret);
		return ret;
	}

	ret = kh_pages_from_umem_exact(dev, uq->umem, &uq->list);
	if (ret) {
		ib_umem_release(uq->umem);
		uq->umem = NULL;
		return ret;
	}
	uq->len = len;
	return 0;
}

void kh_uqueue_done(struct kh_dev *dev, struct kh_uqueue *uq)
{
	kh_pages_free(dev, &uq->list);
	ib_umem_release(uq->umem);
	uq->umem = NULL;
}
