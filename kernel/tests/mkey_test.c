// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Commands, mkeys and KLM lists against the device of fake_device.h.
 */
#include "fake_device.h"
#include "../cmd.c"
#include "../mkey.c"
#include "../klm_list.c"

#define MAX_ENTRIES	1000
#define A_KEY		0x00012345

struct world {
	struct fake_device fake;
	struct kh_pd pd;
};

static int mkey_test_init(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	fake_device_init(test, &w->fake);
	w->fake.result = A_KEY;
	w->fake.dev.attr.caps = KH_CAP_INDIRECT;
	w->fake.dev.attr.max_indirect = MAX_ENTRIES;
	w->pd.ibpd.device = &w->fake.dev.ibdev;
	w->pd.pdn = 0x77;
	test->priv = w;
	return 0;
}

static void mkey_test_exit(struct kunit *test)
{
	struct world *w = test->priv;

	if (w)
		fake_device_free(&w->fake);
}

static int busy(struct world *w)
{
	return atomic_read(&w->pd.ibpd.usecnt);
}

static void what_a_process_asks_for_is_in_the_command(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_cmd_create_mkey want = {
		.kind = KH_MKEY_INDIRECT,
		.pdn = cpu_to_le32(0x77),
		.access = cpu_to_le32(KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_WRITE |
				      KH_ACCESS_MW_BIND),
		.max_entries = cpu_to_le32(MAX_ENTRIES),
	};
	struct kh_mkey *mkey;

	/* Optional rights are those that may be ignored. */
	mkey = kh_mkey_create(&w->pd, MAX_ENTRIES,
			      IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			      IB_ACCESS_MW_BIND | IB_ACCESS_RELAXED_ORDERING);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mkey));
	KUNIT_EXPECT_EQ(test, w->fake.cmd.hdr.opcode, KH_ADM_CREATE_MKEY);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.hdr.handle), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&w->fake.cmd.create_mkey, &want, sizeof(want)), 0);
	KUNIT_EXPECT_EQ(test, mkey->key, A_KEY);
	KUNIT_EXPECT_EQ(test, busy(w), 1);

	KUNIT_EXPECT_EQ(test, kh_mkey_destroy(mkey), 0);
	KUNIT_EXPECT_EQ(test, w->fake.cmd.hdr.opcode, KH_ADM_DESTROY_MKEY);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.hdr.handle), A_KEY);
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

static void what_cannot_be_is_refused_without_asking_the_device(struct kunit *test)
{
	static const struct { u32 max_entries, access; int err; } cases[] = {
		{ 0, 0, -EINVAL },
		{ MAX_ENTRIES + 1, 0, -EINVAL },
		{ U32_MAX, 0, -EINVAL },
		{ 1, IB_ZERO_BASED, -EINVAL },
		{ 1, IB_ACCESS_REMOTE_WRITE, -EINVAL },
		{ 1, IB_ACCESS_REMOTE_ATOMIC, -EINVAL },
		{ 1, 1u << 12, -EINVAL },
		{ 1, 1u << 31, -EINVAL },
		{ 1, IB_ACCESS_ON_DEMAND, -EOPNOTSUPP },
		{ 1, IB_ACCESS_HUGETLB, -EOPNOTSUPP },
		{ 1, IB_ACCESS_FLUSH_GLOBAL, -EOPNOTSUPP },
	};
	struct world *w = test->priv;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test,
				    PTR_ERR(kh_mkey_create(&w->pd, cases[i].max_entries,
							   cases[i].access)),
				    cases[i].err, "case %d", i);
	KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

static void a_device_without_indirect_mkeys_has_none(struct kunit *test)
{
	struct world *w = test->priv;

	w->fake.dev.attr.caps = ~(u64)KH_CAP_INDIRECT;
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_mkey_create(&w->pd, 1, 0)), -EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_klm_list_create(&w->pd, 4096, 64)),
			-EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, kh_max_klm_list(&w->fake.dev), 0);
	KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
}

static void what_the_device_refuses_leaves_nothing(struct kunit *test)
{
	static const struct { u8 status; int err; } cases[] = {
		{ KH_ST_INVAL, -EINVAL },	{ KH_ST_NOMEM, -ENOMEM },
		{ KH_ST_NOSUPP, -EOPNOTSUPP },	{ 255, -EPROTO },
	};
	struct world *w = test->priv;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		w->fake.status = cases[i].status;
		KUNIT_EXPECT_EQ(test, PTR_ERR(kh_mkey_create(&w->pd, 1, 0)),
				cases[i].err);
	}
	KUNIT_EXPECT_EQ(test, w->fake.taken, ARRAY_SIZE(cases));
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

static void a_query_tells_what_the_device_says(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_mkey_attr hw = {
		.kind = KH_MKEY_INDIRECT,
		.valid = 1,
		.key = cpu_to_le32(0xabcd01),
		.access = cpu_to_le32(KH_ACCESS_REMOTE_READ),
		.start = cpu_to_le64(0x123456789abcull),
		.length = cpu_to_le64(0x100000001ull),
		.max_entries = cpu_to_le32(64),
		.windows = cpu_to_le32(3),
		.num_entries = cpu_to_le32(5),
		.repeat_count = cpu_to_le32(7),
		.depth = 2,
	};
	const struct keyhole_mkey_attr want = {
		.start = 0x123456789abcull, .length = 0x100000001ull, .key = 0xabcd01,
		.access = IB_ACCESS_REMOTE_READ, .max_entries = 64, .num_entries = 5,
		.repeat_count = 7, .windows = 3, .valid = 1, .depth = 2,
	};
	/* Of an empty one the rest means nothing, whatever stands there. */
	const struct keyhole_mkey_attr empty = {
		.key = 0xabcd01, .access = IB_ACCESS_REMOTE_READ, .max_entries = 64,
		.windows = 3,
	};
	struct keyhole_mkey_attr attr;
	struct kh_mkey *mkey = kh_mkey_create(&w->pd, 64, 0);

	KUNIT_ASSERT_FALSE(test, IS_ERR(mkey));
	memset(&attr, 0xee, sizeof(attr));
	memcpy(w->fake.out, &hw, sizeof(hw));
	KUNIT_ASSERT_EQ(test, kh_mkey_query(mkey, &attr), 0);
	KUNIT_EXPECT_EQ(test, w->fake.cmd.hdr.opcode, KH_ADM_QUERY_MKEY);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.hdr.handle), A_KEY);
	KUNIT_EXPECT_EQ(test, memcmp(&attr, &want, sizeof(want)), 0);

	hw.valid = 0;
	memset(&attr, 0xee, sizeof(attr));
	memcpy(w->fake.out, &hw, sizeof(hw));
	KUNIT_ASSERT_EQ(test, kh_mkey_query(mkey, &attr), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&attr, &empty, sizeof(empty)), 0);

	w->fake.status = KH_ST_NOENT;
	KUNIT_EXPECT_EQ(test, kh_mkey_query(mkey, &attr), -ENOENT);
	w->fake.status = KH_ST_OK;
	KUNIT_EXPECT_EQ(test, kh_mkey_destroy(mkey), 0);
}

static void a_busy_mkey_stays_whole(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_mkey *mkey = kh_mkey_create(&w->pd, 1, IB_ACCESS_MW_BIND);
	struct ib_uobject uobj = { .object = mkey };

	KUNIT_ASSERT_FALSE(test, IS_ERR(mkey));
	w->fake.status = KH_ST_BUSY;
	KUNIT_EXPECT_EQ(test, kh_mkey_cleanup(&uobj, RDMA_REMOVE_DESTROY, NULL), -EBUSY);
	KUNIT_EXPECT_EQ(test, kh_mkey_cleanup(&uobj, RDMA_REMOVE_CLOSE, NULL), -EBUSY);
	KUNIT_EXPECT_EQ(test, busy(w), 1);
	KUNIT_EXPECT_EQ(test, mkey->key, A_KEY);
	w->fake.status = KH_ST_OK;
	KUNIT_EXPECT_EQ(test, kh_mkey_cleanup(&uobj, RDMA_REMOVE_CLOSE, NULL), 0);
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

/* The queue is aborted when the device is off: then all that it had is gone. */
static void of_a_lost_device_all_can_be_destroyed_and_nothing_created(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_mkey *mkey = kh_mkey_create(&w->pd, 1, 0);
	struct keyhole_mkey_attr attr;
	struct ib_uobject uobj = { .object = mkey };

	KUNIT_ASSERT_FALSE(test, IS_ERR(mkey));
	WRITE_ONCE(w->fake.dev.state, KH_DEV_DEAD);
	kh_admin_abort(&w->fake.dev.admin);
	complete_all(&w->fake.dev.dead);
	KUNIT_EXPECT_EQ(test, kh_mkey_query(mkey, &attr), -EIO);
	KUNIT_EXPECT_EQ(test, kh_mkey_cleanup(&uobj, RDMA_REMOVE_DRIVER_REMOVE, NULL), 0);
	KUNIT_EXPECT_EQ(test, PTR_ERR(kh_mkey_create(&w->pd, 1, 0)), -EIO);
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

static void a_list_is_whole_words_and_no_longer_than_a_fill_can_use(struct kunit *test)
{
	const u64 max = MAX_ENTRIES * sizeof(struct kh_stride);
	const struct { u64 addr, length; int err; } cases[] = {
		{ 4096, 8, 0 }, { 4104, max, 0 }, { 0, 8, 0 },
		{ 4096, 0, -EINVAL }, { 4096, 4, -EINVAL }, { 4096, 12, -EINVAL },
		{ 4100, 8, -EINVAL }, { 4097, 8, -EINVAL },
		{ 4096, max + 8, -EINVAL }, { 4096, U64_MAX - 7, -EINVAL },
	};
	struct world *w = test->priv;
	int i;

	KUNIT_EXPECT_EQ(test, kh_max_klm_list(&w->fake.dev), max);
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		KUNIT_EXPECT_EQ_MSG(test,
				    kh_klm_list_range(&w->fake.dev, cases[i].addr,
						      cases[i].length),
				    cases[i].err, "case %d", i);
}

/* There is no process here that would have memory to pin: umem is NULL. */
static void a_list_that_the_device_holds_on_to_is_kept(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_klm_list *klms = kzalloc(sizeof(*klms), GFP_KERNEL);
	struct ib_uobject uobj = { .object = klms };

	KUNIT_ASSERT_NOT_NULL(test, klms);
	klms->ibpd = &w->pd.ibpd;
	klms->key = 0x4242;
	atomic_inc(&w->pd.ibpd.usecnt);

	w->fake.status = KH_ST_BUSY;
	KUNIT_EXPECT_EQ(test, kh_klm_list_cleanup(&uobj, RDMA_REMOVE_DESTROY, NULL),
			-EBUSY);
	KUNIT_EXPECT_EQ(test, busy(w), 1);
	w->fake.status = KH_ST_OK;
	KUNIT_EXPECT_EQ(test, kh_klm_list_cleanup(&uobj, RDMA_REMOVE_DESTROY, NULL), 0);
	KUNIT_EXPECT_EQ(test, w->fake.cmd.hdr.opcode, KH_ADM_DESTROY_MKEY);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.hdr.handle), 0x4242);
	KUNIT_EXPECT_EQ(test, busy(w), 0);
}

static void an_allocation_that_fails_leaves_nothing(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_mkey *mkey;
	bool injected;
	int n;

	for (n = 1; n < 100; n++) {
		mkey = WITH_FAILING_ALLOCATION(n, injected, kh_mkey_create(&w->pd, 1, 0));
		if (!injected)
			break;
		if (!IS_ERR(mkey))
			continue;
		KUNIT_EXPECT_EQ(test, PTR_ERR(mkey), -ENOMEM);
		KUNIT_EXPECT_EQ(test, busy(w), 0);
		KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
	}
	KUNIT_EXPECT_GT(test, n, 1);
	KUNIT_ASSERT_FALSE(test, IS_ERR(mkey));
	KUNIT_EXPECT_EQ(test, kh_mkey_destroy(mkey), 0);
}

/*
 * Of a destruction that cannot be: the device does not know the object, and so
 * does not touch it; or it will not let it go, and is taken for lost.
 */
static void a_destruction_that_is_refused_ends_the_object_or_the_device(struct kunit *test)
{
	struct world *w = test->priv;

	w->fake.status = KH_ST_NOENT;
	KUNIT_EXPECT_EQ(test, kh_cmd_destroy_pd(&w->fake.dev, 5), 0);
	KUNIT_EXPECT_NULL(test, kh_test_fatal_reason);
	w->fake.status = KH_ST_BUSY;
	KUNIT_EXPECT_EQ(test, kh_cmd_destroy_pd(&w->fake.dev, 5), -EBUSY);
	KUNIT_EXPECT_NULL(test, kh_test_fatal_reason);

	/* A QP that is in a group by two LIDs leaves it twice. */
	w->fake.status = KH_ST_NOENT;
	KUNIT_EXPECT_EQ(test, kh_cmd_detach_mcast(&w->fake.dev, 5, w->fake.out), 0);

	complete_all(&w->fake.dev.dead);
	w->fake.status = KH_ST_INVAL;
	KUNIT_EXPECT_EQ(test, kh_cmd_destroy_pd(&w->fake.dev, 5), 0);
	KUNIT_EXPECT_NOT_NULL(test, kh_test_fatal_reason);
	/* Known to be lost: nobody needs to be told again. */
	kh_test_fatal_reason = NULL;
	WRITE_ONCE(w->fake.dev.state, KH_DEV_DEAD);
	KUNIT_EXPECT_EQ(test, kh_cmd_destroy_pd(&w->fake.dev, 5), 0);
	KUNIT_EXPECT_NULL(test, kh_test_fatal_reason);
}

static struct kunit_case mkey_test_cases[] = {
	KUNIT_CASE(what_a_process_asks_for_is_in_the_command),
	KUNIT_CASE(what_cannot_be_is_refused_without_asking_the_device),
	KUNIT_CASE(a_device_without_indirect_mkeys_has_none),
	KUNIT_CASE(what_the_device_refuses_leaves_nothing),
	KUNIT_CASE(a_query_tells_what_the_device_says),
	KUNIT_CASE(a_busy_mkey_stays_whole),
	KUNIT_CASE(of_a_lost_device_all_can_be_destroyed_and_nothing_created),
	KUNIT_CASE(a_list_is_whole_words_and_no_longer_than_a_fill_can_use),
	KUNIT_CASE(a_list_that_the_device_holds_on_to_is_kept),
	KUNIT_CASE(an_allocation_that_fails_leaves_nothing),
	KUNIT_CASE(a_destruction_that_is_refused_ends_the_object_or_the_device),
	{}
};

static struct kunit_suite mkey_test_suite = {
	.name		= "keyhole_mkey",
	.init		= mkey_test_init,
	.exit		= mkey_test_exit,
	.test_cases	= mkey_test_cases,
};

kunit_test_suite(mkey_test_suite);
