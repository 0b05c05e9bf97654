// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a process sends along with a command, and the memory of its queues: from
 * an address space that the test has for itself.
 */
#include <linux/mman.h>

#include "fake_device.h"
#include "../udata.c"

#define MEMORY		(16 * PAGE_SIZE)

struct request {
	u64 a;
	u32 b;
	u32 c;
};

struct world {
	struct fake_device fake;
	unsigned long memory;
};

static int udata_test_init(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	fake_device_init(test, &w->fake);
	w->fake.dev.ibdev.dma_device = w->fake.dma;
	w->fake.dev.attr.page_size_cap = GENMASK_ULL(KH_PAGE_SHIFT_MAX, KH_PAGE_SHIFT_MIN);
	w->memory = kunit_vm_mmap(test, NULL, 0, MEMORY, PROT_READ | PROT_WRITE,
				  MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_NE(test, w->memory, 0);
	KUNIT_ASSERT_LT(test, w->memory, TASK_SIZE);
	KUNIT_ASSERT_EQ(test, clear_user((void __user *)w->memory, MEMORY), 0);
	test->priv = w;
	return 0;
}

static void udata_test_exit(struct kunit *test)
{
	struct world *w = test->priv;

	if (w)
		fake_device_free(&w->fake);
}

static struct ib_udata sent(struct world *w, size_t in, size_t out)
{
	return (struct ib_udata) {
		.inbuf = (void __user *)w->memory,
		.outbuf = (void __user *)w->memory,
		.inlen = in,
		.outlen = out,
	};
}

static void a_request_is_whole_and_its_tail_is_zero(struct kunit *test)
{
	static const struct request good = { 1, 2, 3 };
	struct world *w = test->priv;
	struct ib_udata udata;
	struct request req;
	size_t len;

	KUNIT_ASSERT_EQ(test, copy_to_user((void __user *)w->memory, &good, sizeof(good)), 0);
	for (len = 0; len < sizeof(good); len++) {
		udata = sent(w, len, 0);
		KUNIT_EXPECT_EQ(test, kh_udata_get(&udata, &req, sizeof(req)), -EINVAL);
	}
	for (; len < sizeof(good) + 32; len++) {
		memset(&req, 0xee, sizeof(req));
		udata = sent(w, len, 0);
		KUNIT_EXPECT_EQ(test, kh_udata_get(&udata, &req, sizeof(req)), 0);
		KUNIT_EXPECT_EQ(test, memcmp(&req, &good, sizeof(req)), 0);
	}
	/* A field that we do not know may change what the others mean. */
	KUNIT_ASSERT_EQ(test, put_user((u8)1, (u8 __user *)w->memory + sizeof(good) + 8), 0);
	udata = sent(w, sizeof(good) + 8, 0);
	KUNIT_EXPECT_EQ(test, kh_udata_get(&udata, &req, sizeof(req)), 0);
	udata = sent(w, sizeof(good) + 9, 0);
	KUNIT_EXPECT_EQ(test, kh_udata_get(&udata, &req, sizeof(req)), -EOPNOTSUPP);
}

static void where_nothing_is_mapped_nothing_is_read_or_written(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_udata udata = sent(w, sizeof(struct request), sizeof(struct request));
	struct request req = {};

	udata.inbuf = (void __user *)(w->memory + MEMORY - 8);
	udata.outbuf = (void __user *)(w->memory + MEMORY - 8);
	KUNIT_ASSERT_EQ(test, vm_munmap(w->memory + MEMORY - PAGE_SIZE, PAGE_SIZE), 0);
	KUNIT_EXPECT_EQ(test, kh_udata_get(&udata, &req, sizeof(req)), -EFAULT);
	KUNIT_EXPECT_EQ(test, kh_udata_put(&udata, &req, sizeof(req)), -EFAULT);
	KUNIT_EXPECT_NE(test, kh_udata_none(&udata), 0);
}

static void a_command_without_a_request_takes_zeroes_only(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_udata udata = sent(w, 0, 0);

	KUNIT_EXPECT_EQ(test, kh_udata_none(NULL), 0);
	KUNIT_EXPECT_EQ(test, kh_udata_none(&udata), 0);
	udata.inlen = 64;
	KUNIT_EXPECT_EQ(test, kh_udata_none(&udata), 0);
	KUNIT_ASSERT_EQ(test, put_user((u8)1, (u8 __user *)w->memory + 63), 0);
	KUNIT_EXPECT_EQ(test, kh_udata_none(&udata), -EOPNOTSUPP);
	udata.inlen = 63;
	KUNIT_EXPECT_EQ(test, kh_udata_none(&udata), 0);
}

/* An old provider has room for less than we say, and gets no byte more. */
static void an_answer_is_cut_to_the_room_there_is(struct kunit *test)
{
	struct world *w = test->priv;
	u8 answer[16], got[24];
	struct ib_udata udata;
	size_t room, i;

	memset(answer, 0xab, sizeof(answer));
	for (room = 0; room <= 24; room += 8) {
		KUNIT_ASSERT_EQ(test, clear_user((void __user *)w->memory, 24), 0);
		udata = sent(w, 0, room);
		KUNIT_EXPECT_EQ(test, kh_udata_put(&udata, answer, sizeof(answer)), 0);
		KUNIT_ASSERT_EQ(test, copy_from_user(got, (void __user *)w->memory, 24), 0);
		for (i = 0; i < sizeof(got); i++)
			KUNIT_EXPECT_EQ(test, got[i],
					i < min(room, sizeof(answer)) ? 0xab : 0);
	}
}

static void a_part_of_a_queue_lies_in_it(struct kunit *test)
{
	static const struct { u32 len, offset; u64 size; u32 align; bool in; } cases[] = {
		{ 8192, 0, 8192, 64, true },	{ 8192, 0, 8193, 64, false },
		{ 8192, 8192, 0, 64, true },	{ 8192, 8128, 64, 64, true },
		{ 8192, 8128, 65, 64, false },	{ 8192, 8256, 0, 64, false },
		{ 8192, 32, 64, 64, false },	{ 8192, 32, 64, 32, true },
		{ 8192, 0xffffffc0, 64, 64, false },
		{ 8192, 64, U64_MAX, 64, false }, { 8192, 64, U64_MAX - 63, 64, false },
		{ 0, 0, 0, 64, true },		{ 0, 0, 1, 64, false },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test, kh_in_queue(cases[i].len, cases[i].offset,
						      cases[i].size, cases[i].align),
				    cases[i].in, "case %d", i);
}

static void a_queue_is_whole_pages_of_the_process(struct kunit *test)
{
	struct world *w = test->priv;
	const struct { u64 addr; u32 len; int err; } cases[] = {
		{ w->memory, 0, -EINVAL },
		{ w->memory, 100, -EINVAL },
		{ w->memory + 8, PAGE_SIZE, -EINVAL },
		{ w->memory, KH_UQUEUE_MAX_LEN + PAGE_SIZE, -EINVAL },
		{ w->memory, 0xfffff000, -EINVAL },
		{ w->memory + 8 * PAGE_SIZE, PAGE_SIZE, -EFAULT },
		{ 0xffff888000000000ull, PAGE_SIZE, -EFAULT },
	};
	struct kh_uqueue uq;
	int i;

	KUNIT_ASSERT_EQ(test, vm_munmap(w->memory + 8 * PAGE_SIZE, 8 * PAGE_SIZE), 0);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(&uq, 0xee, sizeof(uq));
		KUNIT_EXPECT_EQ_MSG(test, kh_uqueue_pin(&w->fake.dev, cases[i].addr,
							cases[i].len, &uq),
				    cases[i].err, "case %d", i);
		KUNIT_EXPECT_NULL(test, uq.umem);
		kh_uqueue_done(&w->fake.dev, &uq);
	}
}

static void a_pinned_queue_names_the_pages_that_the_process_sees(struct kunit *test)
{
	struct world *w = test->priv;
	u64 locked = atomic64_read(&current->mm->pinned_vm);
	struct kh_uqueue uq;
	__le64 *list;
	u32 i, n = 7;

	for (i = 0; i < n; i++)
		KUNIT_ASSERT_EQ(test, put_user((u32)(0x1000 + i),
					       (u32 __user *)(w->memory + i * PAGE_SIZE)), 0);
	KUNIT_ASSERT_EQ(test, kh_uqueue_pin(&w->fake.dev, w->memory, n * PAGE_SIZE, &uq), 0);
	KUNIT_EXPECT_EQ(test, uq.len, n * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, uq.list.offset, 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(uq.list.desc.npages), n);
	KUNIT_EXPECT_EQ(test, uq.list.desc.page_shift, KH_PAGE_SHIFT);
	KUNIT_EXPECT_EQ(test, atomic64_read(&current->mm->pinned_vm), locked + n);
	list = phys_to_virt(le64_to_cpu(uq.list.desc.addr));
	for (i = 0; i < n; i++) {
		u64 page = le64_to_cpu(uq.list.desc.addr) + i * PAGE_SIZE;

		/* What is DMA-able here is mapped one to one. */
		if (uq.list.desc.levels)
			page = le64_to_cpu(list[i]);
		KUNIT_EXPECT_EQ(test, *(u32 *)phys_to_virt(page), 0x1000 + i);
	}
	kh_uqueue_done(&w->fake.dev, &uq);
	KUNIT_EXPECT_EQ(test, atomic64_read(&current->mm->pinned_vm), locked);
}

static void a_queue_that_cannot_be_pinned_is_given_up(struct kunit *test)
{
	struct world *w = test->priv;
	u64 locked = atomic64_read(&current->mm->pinned_vm);
	struct kh_uqueue uq;
	bool injected;
	int err, n;

	for (n = 1; n < 200; n++) {
		err = WITH_FAILING_ALLOCATION(n, injected,
					      kh_uqueue_pin(&w->fake.dev, w->memory,
							    MEMORY, &uq));
		if (!injected)
			break;
		if (err) {
			KUNIT_EXPECT_EQ(test, err, -ENOMEM);
			KUNIT_EXPECT_NULL(test, uq.umem);
			KUNIT_EXPECT_EQ(test, atomic64_read(&current->mm->pinned_vm), locked);
		}
		kh_uqueue_done(&w->fake.dev, &uq);
	}
	KUNIT_EXPECT_GT(test, n, 2);
	KUNIT_ASSERT_EQ(test, err, 0);
	kh_uqueue_done(&w->fake.dev, &uq);
	KUNIT_EXPECT_EQ(test, atomic64_read(&current->mm->pinned_vm), locked);
}

static struct kunit_case udata_test_cases[] = {
	KUNIT_CASE(a_request_is_whole_and_its_tail_is_zero),
	KUNIT_CASE(where_nothing_is_mapped_nothing_is_read_or_written),
	KUNIT_CASE(a_command_without_a_request_takes_zeroes_only),
	KUNIT_CASE(an_answer_is_cut_to_the_room_there_is),
	KUNIT_CASE(a_part_of_a_queue_lies_in_it),
	KUNIT_CASE(a_queue_is_whole_pages_of_the_process),
	KUNIT_CASE(a_pinned_queue_names_the_pages_that_the_process_sees),
	KUNIT_CASE(a_queue_that_cannot_be_pinned_is_given_up),
	{}
};

static struct kunit_suite udata_test_suite = {
	.name		= "keyhole_udata",
	.init		= udata_test_init,
	.exit		= udata_test_exit,
	.test_cases	= udata_test_cases,
};

kunit_test_suite(udata_test_suite);
