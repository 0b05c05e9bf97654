/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory as commands describe it (struct kh_pages): a contiguous piece, or a
 * tree of up to three levels of lists of page addresses.
 *
 * A list lives for as long as the command that names it; free it when the
 * command has returned, whatever it returned.  Only a region that REG_MR fills
 * keeps its list.
 */
#ifndef KH_PAGES_H
#define KH_PAGES_H

#include <linux/types.h>

#include "keyhole.h"

struct ib_umem;

struct kh_list {
	__le64 *va;
	dma_addr_t dma;
};

struct kh_page_list {
	struct kh_pages desc;	/* goes into the command */
	u64 offset;		/* of the first byte within the first page */
	u32 max_pages;
	u32 num_lists;		/* leaves, then the lists above them */
	struct kh_list *lists;
	struct kh_list one;	/* lists points here when there is just one */
};

/*
 * All of umem, in pages as large as its addresses allow.  Works for any start
 * address: desc and offset together name the first byte.  -ENOMEM, -EINVAL.
 */
int kh_pages_from_umem(struct kh_dev *dev, struct ib_umem *umem,
		       struct kh_page_list *list);

/*
 * For a queue, whose start address is page aligned: pages of 4 KiB and nothing
 * but umem, so that the device holds the offsets that a process gave against
 * the memory that it gave.  offset is 0.
 */
int kh_pages_from_umem_exact(struct kh_dev *dev, struct ib_umem *umem,
			     struct kh_page_list *list);

/* A list of up to max_pages addresses, to be filled by kh_pages_set(). */
int kh_pages_alloc(struct kh_dev *dev, u32 max_pages, struct kh_page_list *list);
/* Entry i; any context. */
void kh_pages_set(struct kh_page_list *list, u32 i, u64 addr);
/* desc for the first npages entries, pages of 1 << page_shift; any context. */
void kh_pages_finish(struct kh_page_list *list, u32 npages, u8 page_shift);
void kh_pages_free(struct kh_dev *dev, struct kh_page_list *list);

/* Coherent memory for a queue of the kernel's own.  size is rounded up to pages. */
int kh_buf_alloc(struct kh_dev *dev, size_t size, struct kh_buf *buf);
void kh_buf_free(struct kh_dev *dev, struct kh_buf *buf);
/* desc for all of it: levels 0. */
struct kh_pages kh_buf_pages(const struct kh_buf *buf);

#endif /* KH_PAGES_H */
