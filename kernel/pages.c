// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Lists of pages.
 *
 * The lists of all levels are one array, leaves first: entry i of the whole
 * lies in lists[i / 512], and the list above the leaves holds the addresses of
 * lists[0], lists[1] and so on; the one above that continues likewise.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include <rdma/ib_umem.h>

#include "pages.h"

#define KH_MAX_PAGES	(KH_PAGES_PER_LIST * KH_PAGES_PER_LIST * KH_PAGES_PER_LIST)

int kh_pages_alloc(struct kh_dev *dev, u32 max_pages, struct kh_page_list *list)
{
	u32 above[KH_PAGES_MAX_LEVELS];
	u32 levels, first, i, j;
	u32 count;

	memset(list, 0, sizeof(*list));
	if (!max_pages || max_pages > KH_MAX_PAGES)
		return -EINVAL;

	/* How many lists each level has, up to the one with a single list. */
	count = max_pages;
	levels = 0;
	do {
		count = DIV_ROUND_UP(count, KH_PAGES_PER_LIST);
		above[levels++] = count;
		list->num_lists += count;
	} while (count > 1);

	list->max_pages = max_pages;
	list->desc.levels = levels;
	list->lists = &list->one;
	if (list->num_lists > 1) {
		list->lists = kvcalloc(list->num_lists, sizeof(*list->lists),
				       GFP_KERNEL);
		if (!list->lists)
			return -ENOMEM;
	}
	for (i = 0; i < list->num_lists; i++) {
		list->lists[i].va = dma_alloc_coherent(&dev->pdev->dev, KH_PAGE_SIZE,
						       &list->lists[i].dma, GFP_KERNEL);
		if (!list->lists[i].va) {
			kh_pages_free(dev, list);
			return -ENOMEM;
		}
		if (need_resched())
			cond_resched();
	}

	first = 0;
	for (i = 1; i < levels; i++) {
		struct kh_list *upper = &list->lists[first + above[i - 1]];

		for (j = 0; j < above[i - 1]; j++)
			upper[j / KH_PAGES_PER_LIST].va[j % KH_PAGES_PER_LIST] =
				cpu_to_le64(list->lists[first + j].dma);
		first += above[i - 1];
	}
	list->desc.addr = cpu_to_le64(list->lists[list->num_lists - 1].dma);
	return 0;
}

void kh_pages_free(struct kh_dev *dev, struct kh_page_list *list)
{
	u32 i;

	if (!list->lists)
		return;
	for (i = 0; i < list->num_lists && list->lists[i].va; i++)
		dma_free_coherent(&dev->pdev->dev, KH_PAGE_SIZE, list->lists[i].va,
				  list->lists[i].dma);
	if (list->lists != &list->one)
		kvfree(list->lists);
	memset(list, 0, sizeof(*list));
}

void kh_pages_set(struct kh_page_list *list, u32 i, u64 addr)
{
	list->lists[i / KH_PAGES_PER_LIST].va[i % KH_PAGES_PER_LIST] =
		cpu_to_le64(addr);
}

/*
 * Fewer pages than the list has room for may need fewer levels, and the device
 * takes no more than it needs: the tree is entered further down.
 */
void kh_pages_finish(struct kh_page_list *list, u32 npages, u8 page_shift)
{
	u32 count = DIV_ROUND_UP(list->max_pages, KH_PAGES_PER_LIST);
	u32 need = DIV_ROUND_UP(npages, KH_PAGES_PER_LIST);
	u32 first = 0;
	u8 levels = 1;

	while (need > 1) {
		first += count;
		count = DIV_ROUND_UP(count, KH_PAGES_PER_LIST);
		need = DIV_ROUND_UP(need, KH_PAGES_PER_LIST);
		levels++;
	}
	list->desc.addr = cpu_to_le64(list->lists[first].dma);
	list->desc.levels = levels;
	list->desc.npages = cpu_to_le32(npages);
	list->desc.page_shift = page_shift;
}

/* The address of the first page if the pages follow each other, else 0 in *contiguous. */
static u64 kh_umem_start(struct ib_umem *umem, unsigned long page_size,
			 bool *contiguous)
{
	struct ib_block_iter iter;
	u64 start = 0;
	u64 next = 0;
	bool first = true;

	*contiguous = true;
	rdma_umem_for_each_dma_block(umem, &iter, page_size) {
		u64 addr = rdma_block_iter_dma_address(&iter);

		if (first) {
			start = addr;
			first = false;
		} else if (addr != next) {
			*contiguous = false;
			break;
		}
		next = addr + page_size;
	}
	return start;
}

static int kh_pages_build(struct kh_dev *dev, struct ib_umem *umem,
			  unsigned long page_size, struct kh_page_list *list)
{
	size_t npages = ib_umem_num_dma_blocks(umem, page_size);
	u8 shift = __ffs(page_size);
	struct ib_block_iter iter;
	bool contiguous;
	u64 start;
	u32 i = 0;
	int err;

	if (!npages || npages > KH_MAX_PAGES)
		return -EINVAL;

	start = kh_umem_start(umem, page_size, &contiguous);
	if (contiguous) {
		list->desc.addr = cpu_to_le64(start);
		list->desc.npages = cpu_to_le32(npages);
		list->desc.page_shift = shift;
	} else {
		err = kh_pages_alloc(dev, npages, list);
		if (err)
			return err;
		rdma_umem_for_each_dma_block(umem, &iter, page_size)
			kh_pages_set(list, i++, rdma_block_iter_dma_address(&iter));
		kh_pages_finish(list, npages, shift);
	}
	list->offset = umem->address & (page_size - 1);
	return 0;
}

int kh_pages_from_umem(struct kh_dev *dev, struct ib_umem *umem,
		       struct kh_page_list *list)
{
	u64 sizes = dev->attr.page_size_cap &
		    GENMASK_ULL(KH_PAGE_SHIFT_MAX, KH_PAGE_SHIFT_MIN);
	unsigned long page_size;

	memset(list, 0, sizeof(*list));
	/*
	 * Keys have an address and an offset of their own, so that the choice
	 * rests on where the memory is, not on how a process calls it.
	 */
	page_size = ib_umem_find_best_pgsz(umem, sizes, umem->address);
	if (!page_size)
		return -EINVAL;
	return kh_pages_build(dev, umem, page_size, list);
}

int kh_pages_from_umem_exact(struct kh_dev *dev, struct ib_umem *umem,
			     struct kh_page_list *list)
{
	memset(list, 0, sizeof(*list));
	if (!IS_ALIGNED(umem->address, KH_PAGE_SIZE))
		return -EINVAL;
	if (!ib_umem_find_best_pgsz(umem, KH_PAGE_SIZE, umem->address))
		return -EINVAL;
	return kh_pages_build(dev, umem, KH_PAGE_SIZE, list);
}

int kh_buf_alloc(struct kh_dev *dev, size_t size, struct kh_buf *buf)
{
	buf->size = PAGE_ALIGN(size);
	buf->va = dma_alloc_coherent(&dev->pdev->dev, buf->size, &buf->dma, GFP_KERNEL);
	return buf->va ? 0 : -ENOMEM;
}

void kh_buf_free(struct kh_dev *dev, struct kh_buf *buf)
{
	if (buf->va)
		dma_free_coherent(&dev->pdev->dev, buf->size, buf->va, buf->dma);
	memset(buf, 0, sizeof(*buf));
}

struct kh_pages kh_buf_pages(const struct kh_buf *buf)
{
	return (struct kh_pages) {
		.addr = cpu_to_le64(buf->dma),
		.npages = cpu_to_le32(buf->size >> KH_PAGE_SHIFT),
		.page_shift = KH_PAGE_SHIFT,
	};
}
