// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Lists of pages, read back as the device reads them: from the address and the
 * number of levels in struct kh_pages, and nothing else.
 */
#include "fake_device.h"
#include "../pages.c"

static int pages_test_init(struct kunit *test)
{
	struct kh_dev *dev = kunit_kzalloc(test, sizeof(*dev), GFP_KERNEL);
	struct pci_dev *pdev = kunit_kzalloc(test, sizeof(*pdev), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, dev);
	KUNIT_ASSERT_NOT_NULL(test, pdev);
	/* As much of a PCI device as the DMA functions look at. */
	pdev->dev.init_name = "keyhole-test";
	pdev->dev.dma_mask = &pdev->dma_mask;
	KUNIT_ASSERT_EQ(test, dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64)), 0);
	dev->pdev = pdev;
	test->priv = dev;
	return 0;
}

/* What is DMA-able here is mapped one to one. */
static __le64 *at(u64 dma)
{
	return phys_to_virt(dma);
}

static u64 read_entry(const struct kh_pages *desc, u32 i)
{
	u64 list = le64_to_cpu(desc->addr);
	u8 level;

	for (level = desc->levels; level > 1; level--) {
		u32 below = i >> (9 * (level - 1));

		list = le64_to_cpu(at(list)[below % KH_PAGES_PER_LIST]);
	}
	return le64_to_cpu(at(list)[i % KH_PAGES_PER_LIST]);
}

static u64 entry(u32 i)
{
	return 0x100000000ull + ((u64)i << KH_PAGE_SHIFT);
}

static void check_list(struct kunit *test, struct kh_page_list *list, u32 npages,
		       u8 levels)
{
	u32 i, wrong = 0;

	kh_pages_finish(list, npages, 21);
	KUNIT_EXPECT_EQ(test, list->desc.levels, levels);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(list->desc.npages), npages);
	KUNIT_EXPECT_EQ(test, list->desc.page_shift, 21);
	KUNIT_EXPECT_EQ(test, le16_to_cpu(list->desc.rsvd), 0);
	for (i = 0; i < npages; i++)
		wrong += read_entry(&list->desc, i) != entry(i);
	KUNIT_EXPECT_EQ(test, wrong, 0);
}

static void every_entry_is_where_the_device_looks(struct kunit *test)
{
	static const struct { u32 npages; u8 levels; } cases[] = {
		{ 1, 1 }, { 511, 1 }, { 512, 1 }, { 513, 2 }, { 5000, 2 },
		{ 512 * 512, 2 }, { 512 * 512 + 1, 3 }, { 512 * 512 * 2 + 3, 3 },
	};
	struct kh_dev *dev = test->priv;
	struct kh_page_list list;
	int n;
	u32 i;

	for (n = 0; n < ARRAY_SIZE(cases); n++) {
		KUNIT_ASSERT_EQ(test, kh_pages_alloc(dev, cases[n].npages, &list), 0);
		for (i = 0; i < cases[n].npages; i++)
			kh_pages_set(&list, i, entry(i));
		check_list(test, &list, cases[n].npages, cases[n].levels);
		kh_pages_free(dev, &list);
	}
}

/* A region that REG_MR fills is given fewer pages than it has room for. */
static void a_list_that_is_not_full_has_the_levels_it_needs(struct kunit *test)
{
	struct kh_dev *dev = test->priv;
	struct kh_page_list list;
	u32 i;

	KUNIT_ASSERT_EQ(test, kh_pages_alloc(dev, 512 * 512 + 1, &list), 0);
	for (i = 0; i < 2000; i++)
		kh_pages_set(&list, i, entry(i));
	check_list(test, &list, 2000, 2);
	check_list(test, &list, 512, 1);
	check_list(test, &list, 1, 1);
	check_list(test, &list, 513, 2);
	kh_pages_free(dev, &list);
}

static void sizes_that_cannot_be_are_refused(struct kunit *test)
{
	struct kh_dev *dev = test->priv;
	struct kh_page_list list;

	KUNIT_EXPECT_EQ(test, kh_pages_alloc(dev, 0, &list), -EINVAL);
	kh_pages_free(dev, &list);
	KUNIT_EXPECT_EQ(test, kh_pages_alloc(dev, KH_MAX_PAGES + 1, &list), -EINVAL);
	kh_pages_free(dev, &list);
}

static void a_buffer_is_whole_pages(struct kunit *test)
{
	struct kh_dev *dev = test->priv;
	struct kh_pages desc;
	struct kh_buf buf;

	KUNIT_ASSERT_EQ(test, kh_buf_alloc(dev, 5000, &buf), 0);
	desc = kh_buf_pages(&buf);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(desc.npages), 2);
	KUNIT_EXPECT_EQ(test, desc.levels, 0);
	KUNIT_EXPECT_EQ(test, le64_to_cpu(desc.addr), buf.dma);
	KUNIT_EXPECT_TRUE(test, IS_ALIGNED(buf.dma, KH_PAGE_SIZE));
	KUNIT_EXPECT_TRUE(test, !memchr_inv(buf.va, 0, buf.size));
	kh_buf_free(dev, &buf);
	KUNIT_EXPECT_NULL(test, buf.va);
}

/* 513 pages: an array of lists, two leaves and the list above them. */
static void a_list_that_cannot_be_whole_is_none(struct kunit *test)
{
	struct kh_dev *dev = test->priv;
	struct kh_page_list list;
	bool injected;
	int err, n;

	for (n = 1; n < 200; n++) {
		err = WITH_FAILING_ALLOCATION(n, injected,
					      kh_pages_alloc(dev, 513, &list));
		if (!injected)
			break;
		if (err) {
			KUNIT_EXPECT_EQ(test, err, -ENOMEM);
			KUNIT_EXPECT_NULL(test, list.lists);
		}
		/* Harmless after a failure: so callers can have one way out. */
		kh_pages_free(dev, &list);
	}
	KUNIT_EXPECT_GT(test, n, 4);
	KUNIT_ASSERT_EQ(test, err, 0);
	kh_pages_free(dev, &list);
}

static void a_buffer_that_cannot_be_is_none(struct kunit *test)
{
	struct kh_dev *dev = test->priv;
	struct kh_buf buf;
	bool injected;
	int err;

	err = WITH_FAILING_ALLOCATION(1, injected, kh_buf_alloc(dev, 5000, &buf));
	KUNIT_EXPECT_TRUE(test, injected);
	KUNIT_EXPECT_EQ(test, err, -ENOMEM);
	kh_buf_free(dev, &buf);
}

static struct kunit_case pages_test_cases[] = {
	KUNIT_CASE(every_entry_is_where_the_device_looks),
	KUNIT_CASE(a_list_that_is_not_full_has_the_levels_it_needs),
	KUNIT_CASE(sizes_that_cannot_be_are_refused),
	KUNIT_CASE(a_buffer_is_whole_pages),
	KUNIT_CASE(a_list_that_cannot_be_whole_is_none),
	KUNIT_CASE(a_buffer_that_cannot_be_is_none),
	{}
};

static struct kunit_suite pages_test_suite = {
	.name		= "keyhole_pages",
	.init		= pages_test_init,
	.test_cases	= pages_test_cases,
};

kunit_test_suite(pages_test_suite);
