// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Addresses and QP attributes: what is refused, and what reaches the device.
 */
#include "fake_device.h"

/* There is no queue here that could be cleaned. */
#define kh_kqp_clean	fake_kqp_clean

#include "../ah.c"
#include "../qp_attr.c"

/* What the QP code asks of the rest of the driver. */

enum ib_mtu kh_active_mtu(struct kh_dev *dev)
{
	return IB_MTU_2048;
}

static unsigned int cleaned;

void kh_kqp_clean(struct kh_qp *qp)
{
	cleaned++;
}

#define GIDS		16
#define MAX_RD_ATOMIC	16

struct world {
	struct fake_device fake;
	struct ib_gid_attr sgid;
	struct rdma_ah_attr attr;	/* a good one */
	struct kh_qp qp;
};

static int ah_test_init(struct kunit *test)
{
	struct world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);
	static const u8 mac[ETH_ALEN] = { 0x52, 0x54, 0, 1, 2, 3 };

	KUNIT_ASSERT_NOT_NULL(test, w);
	fake_device_init(test, &w->fake);
	w->fake.dev.attr.gid_table_len = GIDS;
	w->fake.dev.attr.max_rd_atomic = MAX_RD_ATOMIC;
	w->sgid.gid_type = IB_GID_TYPE_ROCE_UDP_ENCAP;
	w->attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	w->attr.port_num = 1;
	w->attr.sl = 3;
	w->attr.ah_flags = IB_AH_GRH;
	w->attr.grh.sgid_attr = &w->sgid;
	w->attr.grh.sgid_index = 7;
	w->attr.grh.hop_limit = 64;
	w->attr.grh.traffic_class = 0xa5;
	w->attr.grh.flow_label = 0xabcde;
	w->attr.grh.dgid.raw[0] = 0xfe;
	w->attr.grh.dgid.raw[1] = 0x80;
	w->attr.grh.dgid.raw[15] = 0x42;
	ether_addr_copy(w->attr.roce.dmac, mac);
	w->qp.ibqp.device = &w->fake.dev.ibdev;
	w->qp.ibqp.qp_type = IB_QPT_RC;
	w->qp.qpn = 0x1234;
	mutex_init(&w->qp.mutex);
	cleaned = 0;
	test->priv = w;
	return 0;
}

static void ah_test_exit(struct kunit *test)
{
	struct world *w = test->priv;

	if (w)
		fake_device_free(&w->fake);
}

static void an_address_is_in_the_vector_as_it_was_given(struct kunit *test)
{
	struct world *w = test->priv;
	struct rdma_ah_attr back;
	struct kh_av av;

	KUNIT_ASSERT_EQ(test, kh_av_from_attr(&w->fake.dev, &w->attr, &av), 0);
	KUNIT_EXPECT_EQ(test, memcmp(av.dgid, w->attr.grh.dgid.raw, 16), 0);
	KUNIT_EXPECT_EQ(test, memcmp(av.dmac, w->attr.roce.dmac, ETH_ALEN), 0);
	KUNIT_EXPECT_EQ(test, av.sgid_index, 7);
	KUNIT_EXPECT_EQ(test, av.hop_limit, 64);
	KUNIT_EXPECT_EQ(test, av.traffic_class, 0xa5);
	KUNIT_EXPECT_EQ(test, av.sl, 3);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(av.flow_label), 0xabcde);
	/* RoCE v2's annex: the dynamic ports, and the same port for the same flow. */
	KUNIT_EXPECT_GE(test, le16_to_cpu(av.udp_sport), 0xc000);

	kh_av_to_attr(&w->fake.dev, &av, IB_RATE_10_GBPS, &back);
	KUNIT_EXPECT_EQ(test, back.type, RDMA_AH_ATTR_TYPE_ROCE);
	KUNIT_EXPECT_EQ(test, back.port_num, 1);
	KUNIT_EXPECT_EQ(test, back.sl, 3);
	KUNIT_EXPECT_EQ(test, back.static_rate, IB_RATE_10_GBPS);
	KUNIT_EXPECT_EQ(test, back.ah_flags, IB_AH_GRH);
	KUNIT_EXPECT_EQ(test, back.grh.sgid_index, 7);
	KUNIT_EXPECT_EQ(test, back.grh.hop_limit, 64);
	KUNIT_EXPECT_EQ(test, back.grh.traffic_class, 0xa5);
	KUNIT_EXPECT_EQ(test, back.grh.flow_label, 0xabcde);
	KUNIT_EXPECT_EQ(test, memcmp(&back.grh.dgid, &w->attr.grh.dgid, 16), 0);
	KUNIT_EXPECT_EQ(test, memcmp(back.roce.dmac, w->attr.roce.dmac, ETH_ALEN), 0);
}

static void without_a_flow_label_the_device_chooses_the_port(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_av av;

	w->attr.grh.flow_label = 0;
	KUNIT_ASSERT_EQ(test, kh_av_from_attr(&w->fake.dev, &w->attr, &av), 0);
	KUNIT_EXPECT_EQ(test, le16_to_cpu(av.udp_sport), 0);
}

static void a_group_has_the_mac_of_its_address(struct kunit *test)
{
	static const struct { u8 gid[16]; u8 mac[ETH_ALEN]; } cases[] = {
		/* ::ffff:239.129.2.3, ff0e::1:2 */
		{ { [10] = 0xff, 0xff, 239, 129, 2, 3 }, { 1, 0, 0x5e, 1, 2, 3 } },
		{ { 0xff, 0x0e, [13] = 1, 0, 2 }, { 0x33, 0x33, 0, 1, 0, 2 } },
	};
	struct world *w = test->priv;
	struct kh_av av;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		memcpy(w->attr.grh.dgid.raw, cases[i].gid, 16);
		/* Whatever stands there: it does not come from who asks. */
		memset(w->attr.roce.dmac, 0xee, ETH_ALEN);
		KUNIT_ASSERT_EQ(test, kh_av_from_attr(&w->fake.dev, &w->attr, &av), 0);
		KUNIT_EXPECT_EQ_MSG(test, memcmp(av.dmac, cases[i].mac, ETH_ALEN), 0,
				    "case %d: %pM", i, av.dmac);
	}
}

#define BAD_ADDRESS(change)						\
do {									\
	struct rdma_ah_attr *a = &w->attr;				\
	struct rdma_ah_attr saved = *a;					\
	struct ib_gid_attr sgid = w->sgid;				\
									\
	KUNIT_EXPECT_EQ(test, kh_av_from_attr(&w->fake.dev, a, &av), 0);	\
	change;								\
	KUNIT_EXPECT_EQ_MSG(test, kh_av_from_attr(&w->fake.dev, a, &av),	\
			    -EINVAL, #change);				\
	*a = saved;							\
	w->sgid = sgid;							\
} while (0)

static void an_address_that_cannot_be_is_refused(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_av av;

	BAD_ADDRESS(a->type = RDMA_AH_ATTR_TYPE_IB);
	BAD_ADDRESS(a->port_num = 0);
	BAD_ADDRESS(a->port_num = 2);
	BAD_ADDRESS(a->ah_flags = 0);
	BAD_ADDRESS(a->static_rate = 1);
	BAD_ADDRESS(a->static_rate = 255);
	BAD_ADDRESS(a->sl = 16);
	BAD_ADDRESS(a->grh.flow_label = 0x100000);
	BAD_ADDRESS(a->grh.sgid_attr = NULL);
	BAD_ADDRESS(a->grh.sgid_index = GIDS);
	BAD_ADDRESS(w->sgid.gid_type = IB_GID_TYPE_ROCE);
	BAD_ADDRESS(memset(&a->grh.dgid, 0, 16));
	BAD_ADDRESS(memset(a->roce.dmac, 0, ETH_ALEN));
	BAD_ADDRESS(memset(a->roce.dmac, 0xff, ETH_ALEN));
	KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
}

/* ------------------------------------------------------------------------ */

#define TO_INIT_MASK	(IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | \
			 IB_QP_ACCESS_FLAGS)
#define TO_RTR_MASK	(IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | \
			 IB_QP_DEST_QPN | IB_QP_RQ_PSN | \
			 IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER)
#define TO_RTS_MASK	(IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | \
			 IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC)

struct transition {
	enum ib_qp_type type;
	enum ib_qp_state from, to;
	int must;	/* IB specification, table of MODIFY QP's attributes */
};

static const struct transition transitions[] = {
	{ IB_QPT_RC, IB_QPS_RESET, IB_QPS_INIT, TO_INIT_MASK },
	{ IB_QPT_RC, IB_QPS_INIT, IB_QPS_RTR, TO_RTR_MASK },
	{ IB_QPT_RC, IB_QPS_RTR, IB_QPS_RTS, TO_RTS_MASK },
	{ IB_QPT_UC, IB_QPS_RESET, IB_QPS_INIT, TO_INIT_MASK },
	{ IB_QPT_UC, IB_QPS_INIT, IB_QPS_RTR, TO_RTR_MASK &
	  ~(IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER) },
	{ IB_QPT_UC, IB_QPS_RTR, IB_QPS_RTS, IB_QP_STATE | IB_QP_SQ_PSN },
	{ IB_QPT_UD, IB_QPS_RESET, IB_QPS_INIT,
	  IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY },
	{ IB_QPT_UD, IB_QPS_INIT, IB_QPS_RTR, IB_QP_STATE },
	{ IB_QPT_UD, IB_QPS_RTR, IB_QPS_RTS, IB_QP_STATE | IB_QP_SQ_PSN },
};

/* Good values for every attribute. */
static struct ib_qp_attr good_attr(struct world *w)
{
	return (struct ib_qp_attr) {
		.path_mtu = IB_MTU_1024,
		.port_num = 1,
		.qkey = 0x11111111,
		.rq_psn = 0x222222,
		.sq_psn = 0x333333,
		.dest_qp_num = 0x444444,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 5,
		.min_rnr_timer = 12,
		.max_rd_atomic = 3,
		.max_dest_rd_atomic = 4,
		.ah_attr = w->attr,
	};
}

static int modify(struct world *w, const struct transition *t,
		  const struct ib_qp_attr *with, int mask)
{
	struct ib_qp_attr attr = *with;

	w->qp.ibqp.qp_type = t->type;
	w->qp.state = t->from;
	attr.qp_state = t->to;
	return kh_modify_qp(&w->qp.ibqp, &attr, mask, NULL);
}

static void a_transition_needs_all_of_its_attributes(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	const struct transition *t;
	u32 taken;
	int bit;

	for (t = transitions; t < transitions + ARRAY_SIZE(transitions); t++) {
		KUNIT_EXPECT_EQ_MSG(test, modify(w, t, &attr, t->must), 0,
				    "transition %zu", t - transitions);
		KUNIT_EXPECT_EQ(test, w->qp.state, t->to);
		KUNIT_EXPECT_EQ(test, w->fake.cmd.hdr.opcode, KH_ADM_MODIFY_QP);
		KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.modify_qp.mask),
				t->must);

		taken = w->fake.taken;
		for (bit = 1; bit < 1 << 26; bit <<= 1) {
			if (!(t->must & bit) || bit == IB_QP_STATE)
				continue;
			KUNIT_EXPECT_EQ_MSG(test, modify(w, t, &attr, t->must & ~bit),
					    -EINVAL, "transition %zu without %#x",
					    t - transitions, bit);
			KUNIT_EXPECT_EQ(test, w->qp.state, t->from);
		}
		KUNIT_EXPECT_EQ(test, w->fake.taken, taken);
	}
}

static void attributes_that_the_device_has_not_are_refused(struct kunit *test)
{
	static const int bits[] = {
		IB_QP_ALT_PATH, IB_QP_PATH_MIG_STATE, IB_QP_CAP, IB_QP_RATE_LIMIT,
		1 << 21, 1 << 30,
	};
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	int i;

	for (i = 0; i < ARRAY_SIZE(bits); i++)
		KUNIT_EXPECT_EQ_MSG(test,
				    modify(w, &transitions[1], &attr, TO_RTR_MASK | bits[i]),
				    -EOPNOTSUPP, "%#x", bits[i]);
	KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
}

static void states_that_do_not_follow_are_refused(struct kunit *test)
{
	static const struct transition bad[] = {
		{ IB_QPT_RC, IB_QPS_RESET, IB_QPS_RTR, TO_RTR_MASK },
		{ IB_QPT_RC, IB_QPS_RESET, IB_QPS_RTS, TO_RTS_MASK },
		{ IB_QPT_RC, IB_QPS_RTS, IB_QPS_INIT, TO_INIT_MASK },
		{ IB_QPT_RC, IB_QPS_ERR, IB_QPS_RTS, IB_QP_STATE },
		{ IB_QPT_RC, IB_QPS_RTS, IB_QPS_ERR + 1, IB_QP_STATE },
		{ IB_QPT_RC, IB_QPS_RTS, 255, IB_QP_STATE },
	};
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_EQ_MSG(test, modify(w, &bad[i], &attr, bad[i].must),
				    -EINVAL, "case %d", i);
	attr.cur_qp_state = IB_QPS_ERR + 1;
	KUNIT_EXPECT_EQ(test, modify(w, &transitions[2], &attr,
				     TO_RTS_MASK | IB_QP_CUR_STATE), -EINVAL);
	KUNIT_EXPECT_EQ(test, w->fake.taken, 0);
}

static void set_attr(struct ib_qp_attr *attr, int bit, u32 value)
{
	switch (bit) {
	case IB_QP_PORT:
		attr->port_num = value;
		break;
	case IB_QP_PKEY_INDEX:
		attr->pkey_index = value;
		break;
	case IB_QP_ACCESS_FLAGS:
		attr->qp_access_flags = value;
		break;
	case IB_QP_PATH_MTU:
		attr->path_mtu = value;
		break;
	case IB_QP_DEST_QPN:
		attr->dest_qp_num = value;
		break;
	case IB_QP_MIN_RNR_TIMER:
		attr->min_rnr_timer = value;
		break;
	case IB_QP_MAX_DEST_RD_ATOMIC:
		attr->max_dest_rd_atomic = value;
		break;
	case IB_QP_TIMEOUT:
		attr->timeout = value;
		break;
	case IB_QP_RETRY_CNT:
		attr->retry_cnt = value;
		break;
	case IB_QP_RNR_RETRY:
		attr->rnr_retry = value;
		break;
	case IB_QP_MAX_QP_RD_ATOMIC:
		attr->max_rd_atomic = value;
		break;
	}
}

static void attributes_have_their_ranges(struct kunit *test)
{
	static const struct {
		int transition;
		int bit;
		u32 least, most;
	} rows[] = {
		{ 0, IB_QP_PORT, 1, 1 },
		{ 0, IB_QP_PKEY_INDEX, 0, 0 },
		{ 0, IB_QP_ACCESS_FLAGS, 0, IB_ACCESS_SUPPORTED },
		{ 1, IB_QP_PATH_MTU, IB_MTU_256, IB_MTU_2048 },
		{ 1, IB_QP_DEST_QPN, 0, 0xffffff },
		{ 1, IB_QP_MIN_RNR_TIMER, 0, 31 },
		{ 1, IB_QP_MAX_DEST_RD_ATOMIC, 0, MAX_RD_ATOMIC },
		{ 2, IB_QP_TIMEOUT, 0, 31 },
		{ 2, IB_QP_RETRY_CNT, 0, 7 },
		{ 2, IB_QP_RNR_RETRY, 0, 7 },
		{ 2, IB_QP_MAX_QP_RD_ATOMIC, 0, MAX_RD_ATOMIC },
	};
	struct world *w = test->priv;
	int i, which;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct transition *t = &transitions[rows[i].transition];
		/* Inside at both ends, and outside of them; 0 has nothing below. */
		const u32 values[] = { rows[i].least, rows[i].most, rows[i].most + 1,
				       rows[i].least - 1 };

		for (which = 0; which < (rows[i].least ? 4 : 3); which++) {
			struct ib_qp_attr attr = good_attr(w);

			set_attr(&attr, rows[i].bit, values[which]);
			KUNIT_EXPECT_EQ_MSG(test, modify(w, t, &attr, t->must),
					    which < 2 ? 0 : -EINVAL,
					    "attribute %#x of %u", rows[i].bit,
					    values[which]);
		}
	}
}

/* What the mask does not name is not looked at, whatever stands there. */
static void only_what_the_mask_names_reaches_the_device(struct kunit *test)
{
	struct world *w = test->priv;
	const struct transition *t = &transitions[4];	/* UC to RTR */
	struct kh_qp_attr want = {
		.mask = cpu_to_le32(t->must),
		.state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.rq_psn = cpu_to_le32(0x222222),
		.dest_qpn = cpu_to_le32(0x444444),
	};
	struct ib_qp_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	attr.path_mtu = IB_MTU_1024;
	attr.rq_psn = 0x222222;
	attr.dest_qp_num = 0x444444;
	attr.ah_attr = w->attr;
	KUNIT_ASSERT_EQ(test, kh_av_from_attr(&w->fake.dev, &w->attr, &want.av), 0);
	want.av.udp_sport = cpu_to_le16(rdma_get_udp_sport(0xabcde, w->qp.qpn, 0x444444));
	KUNIT_ASSERT_EQ(test, modify(w, t, &attr, t->must), 0);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(w->fake.cmd.hdr.handle), 0x1234);
	KUNIT_EXPECT_EQ(test, memcmp(&w->fake.cmd.modify_qp, &want, sizeof(want)), 0);
}

static void what_the_device_refuses_changes_nothing_here(struct kunit *test)
{
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	struct kh_qp_db db;

	w->qp.db = &db;		/* a kernel consumer's */
	w->qp.static_rate = 9;
	w->fake.status = KH_ST_NOMEM;
	KUNIT_EXPECT_EQ(test, modify(w, &transitions[1], &attr, TO_RTR_MASK), -ENOMEM);
	KUNIT_EXPECT_EQ(test, w->qp.state, IB_QPS_INIT);
	KUNIT_EXPECT_EQ(test, w->qp.static_rate, 9);
	attr.ah_attr.sl = 16;
	w->fake.status = KH_ST_OK;
	KUNIT_EXPECT_EQ(test, modify(w, &transitions[1], &attr, TO_RTR_MASK), -EINVAL);
	KUNIT_EXPECT_EQ(test, w->qp.state, IB_QPS_INIT);
	KUNIT_EXPECT_EQ(test, cleaned, 0);
}

static void a_reset_cleans_the_queues_of_a_kernel_consumer(struct kunit *test)
{
	static const struct transition reset = { IB_QPT_RC, IB_QPS_RTS, IB_QPS_RESET, 0 };
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	struct kh_qp_db db;

	KUNIT_EXPECT_EQ(test, modify(w, &reset, &attr, IB_QP_STATE), 0);
	KUNIT_EXPECT_EQ(test, cleaned, 0);
	w->qp.db = &db;
	KUNIT_EXPECT_EQ(test, modify(w, &reset, &attr, IB_QP_STATE), 0);
	KUNIT_EXPECT_EQ(test, cleaned, 1);
}

/* Who drains a QP of a lost device must get to its end. */
static void on_a_lost_device_a_kernel_qp_can_still_go_to_error(struct kunit *test)
{
	static const struct transition error = { IB_QPT_RC, IB_QPS_RTS, IB_QPS_ERR, 0 };
	struct world *w = test->priv;
	struct ib_qp_attr attr = good_attr(w);
	struct kh_qp_db db;

	WRITE_ONCE(w->fake.dev.state, KH_DEV_DEAD);
	kh_admin_abort(&w->fake.dev.admin);
	KUNIT_EXPECT_EQ(test, modify(w, &error, &attr, IB_QP_STATE), -EIO);
	w->qp.db = &db;
	KUNIT_EXPECT_EQ(test, modify(w, &error, &attr, IB_QP_STATE), 0);
	KUNIT_EXPECT_EQ(test, w->qp.state, IB_QPS_ERR);
	KUNIT_EXPECT_EQ(test, modify(w, &transitions[2], &attr, TO_RTS_MASK), -EIO);
}

static void a_query_tells_what_the_device_says(struct kunit *test)
{
	struct world *w = test->priv;
	struct kh_qp_attr hw = {
		.state = IB_QPS_SQD, .sq_draining = 1, .path_mtu = IB_MTU_512,
		.qkey = cpu_to_le32(0x51), .rq_psn = cpu_to_le32(0x52),
		.sq_psn = cpu_to_le32(0x53), .dest_qpn = cpu_to_le32(0x54),
		.access = IB_ACCESS_REMOTE_WRITE, .max_rd_atomic = 5,
		.max_dest_rd_atomic = 6, .min_rnr_timer = 7, .port = 1,
		.timeout = 8, .retry_cnt = 2, .rnr_retry = 3,
	};
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	KUNIT_ASSERT_EQ(test, kh_av_from_attr(&w->fake.dev, &w->attr, &hw.av), 0);
	memcpy(w->fake.out, &hw, sizeof(hw));
	w->qp.cap.max_send_wr = 77;
	w->qp.static_rate = IB_RATE_40_GBPS;
	KUNIT_ASSERT_EQ(test, kh_query_qp(&w->qp.ibqp, &attr, 0, &init), 0);
	KUNIT_EXPECT_EQ(test, attr.qp_state, IB_QPS_SQD);
	KUNIT_EXPECT_EQ(test, attr.sq_draining, 1);
	KUNIT_EXPECT_EQ(test, attr.path_mtu, IB_MTU_512);
	KUNIT_EXPECT_EQ(test, attr.qkey, 0x51);
	KUNIT_EXPECT_EQ(test, attr.rq_psn, 0x52);
	KUNIT_EXPECT_EQ(test, attr.sq_psn, 0x53);
	KUNIT_EXPECT_EQ(test, attr.dest_qp_num, 0x54);
	KUNIT_EXPECT_EQ(test, attr.qp_access_flags, IB_ACCESS_REMOTE_WRITE);
	KUNIT_EXPECT_EQ(test, attr.max_rd_atomic, 5);
	KUNIT_EXPECT_EQ(test, attr.max_dest_rd_atomic, 6);
	KUNIT_EXPECT_EQ(test, attr.min_rnr_timer, 7);
	KUNIT_EXPECT_EQ(test, attr.timeout, 8);
	KUNIT_EXPECT_EQ(test, attr.retry_cnt, 2);
	KUNIT_EXPECT_EQ(test, attr.rnr_retry, 3);
	KUNIT_EXPECT_EQ(test, attr.cap.max_send_wr, 77);
	KUNIT_EXPECT_EQ(test, attr.ah_attr.static_rate, IB_RATE_40_GBPS);
	KUNIT_EXPECT_EQ(test, attr.ah_attr.grh.sgid_index, 7);
	KUNIT_EXPECT_EQ(test, init.qp_type, IB_QPT_RC);

	w->fake.status = KH_ST_NOENT;
	KUNIT_EXPECT_EQ(test, kh_query_qp(&w->qp.ibqp, &attr, 0, &init), -ENOENT);
}

static struct kunit_case ah_test_cases[] = {
	KUNIT_CASE(an_address_is_in_the_vector_as_it_was_given),
	KUNIT_CASE(without_a_flow_label_the_device_chooses_the_port),
	KUNIT_CASE(a_group_has_the_mac_of_its_address),
	KUNIT_CASE(an_address_that_cannot_be_is_refused),
	KUNIT_CASE(a_transition_needs_all_of_its_attributes),
	KUNIT_CASE(attributes_that_the_device_has_not_are_refused),
	KUNIT_CASE(states_that_do_not_follow_are_refused),
	KUNIT_CASE(attributes_have_their_ranges),
	KUNIT_CASE(only_what_the_mask_names_reaches_the_device),
	KUNIT_CASE(what_the_device_refuses_changes_nothing_here),
	KUNIT_CASE(a_reset_cleans_the_queues_of_a_kernel_consumer),
	KUNIT_CASE(on_a_lost_device_a_kernel_qp_can_still_go_to_error),
	KUNIT_CASE(a_query_tells_what_the_device_says),
	{}
};

static struct kunit_suite ah_test_suite = {
	.name		= "keyhole_ah",
	.init		= ah_test_init,
	.exit		= ah_test_exit,
	.test_cases	= ah_test_cases,
};

kunit_test_suite(ah_test_suite);
