// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What "rdma resource show" adds to the core's view: the device's numbers, as
 * they stand in keyholed's log.
 */

#include <net/netlink.h>
#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

#include "verbs.h"

struct kh_res_row {
	const char *name;
	u32 value;
};

static int kh_res_put_rows(struct sk_buff *msg, const struct kh_res_row *rows,
			   int num)
{
	struct nlattr *table;
	int i;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	for (i = 0; i < num; i++)
		if (rdma_nl_put_driver_u32(msg, rows[i].name, rows[i].value)) {
			nla_nest_cancel(msg, table);
			return -EMSGSIZE;
		}
	nla_nest_end(msg, table);
	return 0;
}

int kh_fill_res_mr_entry(struct sk_buff *msg, struct ib_mr *ibmr)
{
	const struct kh_res_row rows[] = {
		{ "access", to_kh_mr(ibmr)->access },
	};

	return kh_res_put_rows(msg, rows, ARRAY_SIZE(rows));
}

int kh_fill_res_cq_entry(struct sk_buff *msg, struct ib_cq *ibcq)
{
	const struct kh_res_row rows[] = {
		{ "cqn", to_kh_cq(ibcq)->cqn },
		{ "vector", to_kh_cq(ibcq)->comp_vector },
	};

	return kh_res_put_rows(msg, rows, ARRAY_SIZE(rows));
}

int kh_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp)
{
	const struct kh_res_row rows[] = {
		{ "slot", to_kh_qp(ibqp)->slot },
	};

	return kh_res_put_rows(msg, rows, ARRAY_SIZE(rows));
}

int kh_fill_res_srq_entry(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	const struct kh_res_row rows[] = {
		{ "srqn", to_kh_srq(ibsrq)->srqn },
	};

	return kh_res_put_rows(msg, rows, ARRAY_SIZE(rows));
}
