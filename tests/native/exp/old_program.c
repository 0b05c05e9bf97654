/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program as they were written for the old stack: it includes no header of the
 * experimental verbs, and uses them.  headers_compile.cmake compiles it as C and C++
 * of several years.
 */
#ifdef ONLY_RDMA_CMA
#include <rdma/rdma_cma.h>
#else
#include <infiniband/verbs.h>
#endif

static int (*dereg)(struct ibv_mr *mr) = ibv_dereg_mr;

static int fill(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_exp_create_mr_in in;
	struct ibv_exp_mem_region piece;
	struct ibv_exp_send_wr wr, *bad;
	struct ibv_mr *mkey;
	int err;

	memset(&in, 0, sizeof(in));
	in.pd = pd;
	in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
	in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
	in.attr.max_klm_list_size = 1;
	mkey = ibv_exp_create_mr(&in);
	if (!mkey)
		return errno;
	piece.base_addr = (uintptr_t)mr->addr;
	piece.mr = mr;
	piece.length = mr->length;
	memset(&wr, 0, sizeof(wr));
	wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
	wr.exp_send_flags = IBV_EXP_SEND_INLINE;
	wr.exp_send_flags |= IBV_EXP_SEND_SIGNALED;
	wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
	wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
	wr.ext_op.umr.modified_mr = mkey;
	wr.ext_op.umr.num_mrs = 1;
	wr.ext_op.umr.mem_list.mem_reg_list = &piece;
	err = ibv_exp_post_send(qp, &wr, &bad);
	mkey->length = piece.length;
	return err ? err : dereg(mkey);
}

static struct ibv_qp *make_qp(struct ibv_context *context, struct ibv_pd *pd,
			      struct ibv_cq *cq)
{
	struct ibv_exp_qp_init_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.send_cq = attr.recv_cq = cq;
	attr.qp_type = IBV_QPT_RC;
	attr.pd = pd;
	attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
	attr.exp_create_flags |= IBV_EXP_QP_CREATE_UMR;
	attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS |
			  IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
	return ibv_exp_create_qp(context, &attr);
}

int main(void)
{
	struct ibv_device **list = ibv_exp_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_exp_device_attr device;
	struct ibv_exp_wc wc;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	static char buffer[4096];

	if (!list || !list[0])
		return 77;
	context = ibv_open_device(list[0]);
	if (!context)
		return 1;
	memset(&device, 0, sizeof(device));
	device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR |
			   IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
	if (ibv_exp_query_device(context, &device) ||
	    !(device.exp_device_cap_flags & IBV_EXP_DEVICE_UMR))
		return 77;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	qp = make_qp(context, pd, cq);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	if (!mr || !qp || qp->qp_type == IBV_EXP_QPT_DC_INI)
		return 1;
	if (fill(pd, qp, mr) || ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)) < 0)
		return 1;
	printf("%d\n", (int)wc.exp_opcode);
	return ibv_dereg_mr(mr) || ibv_destroy_qp(qp) || ibv_destroy_cq(cq);
}
