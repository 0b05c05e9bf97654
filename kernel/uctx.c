// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * User contexts: one device context for each process that opens the device,
 * and its three pages in the process's address space.
 *
 * The device knows who rings or wakes it by the page that was written, so the
 * pages are all the authority that a process has over the device.  The status
 * page is the device's to write: a process maps it read-only and cannot change
 * its mind later.  The core holds a context for as long as a mapping of it
 * exists, or takes the mappings away first, so that a context number that is
 * free again is in nobody's address space.
 *
 * Protection domains are here too: they are a number and nothing else.
 */

#include <linux/slab.h>

#include "../uapi/rdma/keyhole-abi.h"
#include "verbs.h"

static struct rdma_user_mmap_entry *
kh_mmap_entry_add(struct kh_ucontext *uctx, phys_addr_t base, bool writable,
		  bool cached, __u64 *offset)
{
	struct kh_mmap_entry *entry;

	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return NULL;
	entry->addr = base + (phys_addr_t)uctx->ctx * KH_PAGE_SIZE;
	entry->writable = writable;
	entry->cached = cached;
	if (rdma_user_mmap_entry_insert(&uctx->ibucontext, &entry->rdma_entry,
					PAGE_SIZE)) {
		kfree(entry);
		return NULL;
	}
	*offset = rdma_user_mmap_get_offset(&entry->rdma_entry);
	return &entry->rdma_entry;
}

static void kh_mmap_entries_remove(struct kh_ucontext *uctx)
{
	rdma_user_mmap_entry_remove(uctx->db_mmap);
	rdma_user_mmap_entry_remove(uctx->status_mmap);
	rdma_user_mmap_entry_remove(uctx->wake_mmap);
}

int kh_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata)
{
	struct kh_ucontext *uctx = to_kh_ucontext(ibuctx);
	struct kh_dev *dev = to_kh_dev(ibuctx->device);
	struct keyhole_alloc_ucontext_resp resp = {};
	int ret;

	/* A page of the device's is one page of ours, or the process would be
	 * given its neighbours' doorbells along with its own.
	 */
	BUILD_BUG_ON(PAGE_SIZE != KH_PAGE_SIZE);

	ret = kh_udata_none(udata);
	if (ret)
		return ret;

	ret = kh_context_alloc(dev);
	if (ret < 0)
		return ret;
	uctx->ctx = ret;
	kh_slots_init(&uctx->slots);

	ret = kh_cmd_create_context(dev, uctx->ctx);
	if (ret)
		goto err_free;

	ret = -ENOMEM;
	uctx->db_mmap = kh_mmap_entry_add(uctx, dev->db_base, true, true,
					  &resp.db_mmap);
	uctx->status_mmap = kh_mmap_entry_add(uctx, dev->status_base, false,
					      true, &resp.status_mmap);
	uctx->wake_mmap = kh_mmap_entry_add(uctx, dev->wake_base, true, false,
					    &resp.wake_mmap);
	if (!uctx->db_mmap || !uctx->status_mmap || !uctx->wake_mmap)
		goto err_mmap;

	resp.hw_version = dev->hw_version;
	resp.max_send_sge = dev->attr.max_sge;
	resp.max_recv_sge = dev->attr.max_sge;
	resp.max_inline = dev->attr.max_inline;
	resp.max_send_blocks = 1u << KH_MAX_LOG_SQ_BLOCKS;
	resp.max_recv_wr = dev->attr.max_qp_wr;
	resp.clock_khz = dev->attr.clock_khz;
	resp.caps = dev->attr.caps;
	if (dev->attr.caps & KH_CAP_INDIRECT) {
		resp.max_indirect = dev->attr.max_indirect;
		resp.max_klm_list = kh_max_klm_list(dev);
		resp.max_inline_entries = dev->attr.max_inline_entries;
		resp.max_depth = dev->attr.max_depth;
	}
	ret = kh_udata_put(udata, &resp, sizeof(resp));
	if (ret)
		goto err_mmap;
	return 0;

err_mmap:
	kh_mmap_entries_remove(uctx);
	if (kh_cmd_destroy_context(dev, uctx->ctx))
		return ret;	/* the number stays taken, as the device has it */
err_free:
	kh_context_free(dev, uctx->ctx);
	return ret;
}

void kh_dealloc_ucontext(struct ib_ucontext *ibuctx)
{
	struct kh_ucontext *uctx = to_kh_ucontext(ibuctx);
	struct kh_dev *dev = to_kh_dev(ibuctx->device);
	int ret;

	kh_mmap_entries_remove(uctx);
	ret = kh_cmd_destroy_context(dev, uctx->ctx);
	if (ret) {
		/* The number is lost until the device is reset; better than
		 * that two processes share it.
		 */
		ibdev_err(&dev->ibdev, "context %u: destroy: %d\n", uctx->ctx,
			  ret);
		return;
	}
	kh_context_free(dev, uctx->ctx);
}

/*
 * Nothing to do: the core replaces the mappings, and destroys the objects.  But
 * without this function it would wait for the processes to close them.
 */
void kh_disassociate_ucontext(struct ib_ucontext *ibuctx)
{
}

int kh_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *rdma_entry;
	struct kh_mmap_entry *entry;
	pgprot_t prot;
	int ret;

	rdma_entry = rdma_user_mmap_entry_get(ibuctx, vma);
	if (!rdma_entry)
		return -EINVAL;
	entry = container_of(rdma_entry, struct kh_mmap_entry, rdma_entry);

	if (!entry->writable) {
		if (vma->vm_flags & VM_WRITE) {
			ret = -EPERM;
			goto out;
		}
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	/*
	 * The pages speak for the process that opened the device, and its queues
	 * are not its child's: that has copies of them which the device never
	 * sees.  Nor could the core take them away from a child without a risk:
	 * for a mapping that is copied it takes its disassociation lock inside the
	 * mmap lock, and the mmap lock inside that one when the device goes.
	 */
	vm_flags_set(vma, VM_DONTCOPY);
	prot = vma->vm_page_prot;
	if (!entry->cached)
		prot = pgprot_noncached(prot);
	ret = rdma_user_mmap_io(ibuctx, vma, PHYS_PFN(entry->addr), PAGE_SIZE,
				prot, rdma_entry);
out:
	rdma_user_mmap_entry_put(rdma_entry);
	return ret;
}

void kh_mmap_free(struct rdma_user_mmap_entry *rdma_entry)
{
	kfree(container_of(rdma_entry, struct kh_mmap_entry, rdma_entry));
}

int kh_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibpd->device);
	struct keyhole_alloc_pd_resp resp = {};
	struct kh_pd *pd = to_kh_pd(ibpd);
	int ret;

	ret = kh_udata_none(udata);
	if (ret)
		return ret;
	ret = kh_cmd_create_pd(dev, &pd->pdn);
	if (ret)
		return ret;
	if (udata) {
		resp.pdn = pd->pdn;
		ret = kh_udata_put(udata, &resp, sizeof(resp));
		if (ret)
			kh_cmd_destroy_pd(dev, pd->pdn);
	}
	return ret;
}

int kh_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	return kh_cmd_destroy_pd(to_kh_dev(ibpd->device), to_kh_pd(ibpd)->pdn);
}
