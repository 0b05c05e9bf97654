// SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB)
/*
 * Command marshalling: core structure first, this driver's part behind it, in
 * one piece of memory; that is how uverbs tells the two apart.  See cmd.h.
 */
#include "cmd.h"

#include <assert.h>
#include <string.h>

#include <infiniband/driver.h>
#include <infiniband/cmd_ioctl.h>

/*
 * A request or response with a driver's part.  The asserts below are the rule:
 * no padding between the two parts, none at the end.
 */
#define KH_WIRE(name, core_type, driver_type)                              \
	struct name {                                                      \
		core_type core;                                            \
		struct driver_type drv;                                    \
	};                                                                 \
	static_assert(sizeof(struct name) ==                               \
			      sizeof(core_type) + sizeof(struct driver_type), \
		      "padding in " #name);                                \
	static_assert(offsetof(struct name, drv) == sizeof(core_type),     \
		      "padding before the driver's part of " #name)

KH_WIRE(get_context_resp, struct ib_uverbs_get_context_resp,
	keyhole_alloc_ucontext_resp);
KH_WIRE(query_device_resp, struct ib_uverbs_ex_query_device_resp,
	keyhole_query_device_resp);
KH_WIRE(alloc_pd_resp, struct ib_uverbs_alloc_pd_resp, keyhole_alloc_pd_resp);
KH_WIRE(create_cq_cmd, struct ibv_create_cq_ex, keyhole_create_cq_req);
KH_WIRE(create_cq_resp, struct ib_uverbs_ex_create_cq_resp,
	keyhole_create_cq_resp);
KH_WIRE(resize_cq_cmd, struct ibv_resize_cq, keyhole_resize_cq_req);
KH_WIRE(create_srq_cmd, struct ibv_create_srq, keyhole_create_srq_req);
KH_WIRE(create_srq_resp, struct ib_uverbs_create_srq_resp,
	keyhole_create_srq_resp);
KH_WIRE(resize_srq_cmd, struct ibv_modify_srq, keyhole_modify_srq_req);
KH_WIRE(create_qp_cmd, struct ibv_create_qp_ex, keyhole_create_qp_req);
KH_WIRE(create_qp_resp, struct ib_uverbs_ex_create_qp_resp,
	keyhole_create_qp_resp);
KH_WIRE(create_ah_resp, struct ib_uverbs_create_ah_resp,
	keyhole_create_ah_resp);

int kh_cmd_get_context(struct verbs_context *ctx,
		       struct keyhole_alloc_ucontext_resp *out)
{
	struct ibv_get_context cmd = {};
	struct get_context_resp resp = {};
	int err = ibv_cmd_get_context(ctx, &cmd, sizeof(cmd), &resp.core,
				      sizeof(resp));

	if (err)
		return err;
	*out = resp.drv;
	return 0;
}

int kh_cmd_query_device(struct ibv_context *ctx,
			const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size,
			uint64_t *fw_version,
			struct keyhole_query_device_resp *out)
{
	struct query_device_resp resp = {};
	size_t resp_size = sizeof(resp);
	int err = ibv_cmd_query_device_any(ctx, input, attr, attr_size,
					   &resp.core, &resp_size);

	if (err)
		return err;
	*fw_version = resp.core.base.fw_ver;
	*out = resp.drv;
	return 0;
}

int kh_cmd_query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd = {};

	return ibv_cmd_query_port(ctx, port, attr, &cmd, sizeof(cmd));
}

int kh_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd, uint32_t *pdn)
{
	struct ibv_alloc_pd cmd = {};
	struct alloc_pd_resp resp = {};
	int err = ibv_cmd_alloc_pd(ctx, pd, &cmd, sizeof(cmd), &resp.core,
				   sizeof(resp));

	if (err)
		return err;
	*pdn = resp.drv.pdn;
	return 0;
}

int kh_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
		  uint64_t hca_va, int access, struct verbs_mr *mr)
{
	struct ibv_reg_mr cmd = {};
	struct ib_uverbs_reg_mr_resp resp = {};

	return ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, &cmd,
			      sizeof(cmd), &resp, sizeof(resp));
}

int kh_cmd_rereg_mr(struct verbs_mr *mr, uint32_t flags, struct ibv_pd *pd,
		    void *addr, size_t length, int access)
{
	struct ibv_rereg_mr cmd = {};
	struct ib_uverbs_rereg_mr_resp resp = {};

	return ibv_cmd_rereg_mr(mr, flags, addr, length, (uintptr_t)addr,
				access, pd, &cmd, sizeof(cmd), &resp,
				sizeof(resp));
}

int kh_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw)
{
	struct ibv_alloc_mw cmd = {};
	struct ib_uverbs_alloc_mw_resp resp = {};

	return ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp,
				sizeof(resp));
}

int kh_cmd_create_cq(struct ibv_context *ctx,
		     const struct ibv_cq_init_attr_ex *attr,
		     struct verbs_cq *cq,
		     const struct keyhole_create_cq_req *req, uint32_t *cqn)
{
	struct create_cq_cmd cmd = { .drv = *req };
	struct create_cq_resp resp = {};
	int err = ibv_cmd_create_cq_ex(ctx, attr, cq, &cmd.core, sizeof(cmd),
				       &resp.core, sizeof(resp), 0);

	if (err)
		return err;
	*cqn = resp.drv.cqn;
	return 0;
}

int kh_cmd_resize_cq(struct ibv_cq *cq, int cqe,
		     const struct keyhole_resize_cq_req *req)
{
	struct resize_cq_cmd cmd = { .drv = *req };
	struct ib_uverbs_resize_cq_resp resp = {};

	return ibv_cmd_resize_cq(cq, cqe, &cmd.core, sizeof(cmd), &resp,
				 sizeof(resp));
}

int kh_cmd_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd = {};

	return ibv_cmd_modify_cq(cq, attr, &cmd, sizeof(cmd));
}

int kh_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq,
		      struct ibv_srq_init_attr *attr,
		      const struct keyhole_create_srq_req *req, uint32_t *srqn)
{
	struct create_srq_cmd cmd = { .drv = *req };
	struct create_srq_resp resp = {};
	int err = ibv_cmd_create_srq(pd, srq, attr, &cmd.core, sizeof(cmd),
				     &resp.core, sizeof(resp));

	if (err)
		return err;
	*srqn = resp.drv.srqn;
	return 0;
}

int kh_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd = {};

	return ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd));
}

int kh_cmd_resize_srq(struct ibv_srq *srq, uint32_t max_wr,
		      const struct keyhole_modify_srq_req *req)
{
	struct resize_srq_cmd cmd = { .drv = *req };
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_cmd_modify_srq(srq, &attr, IBV_SRQ_MAX_WR, &cmd.core,
				  sizeof(cmd));
}

int kh_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));
}

int kh_cmd_create_qp(struct ibv_context *ctx, struct verbs_qp *qp,
		     struct ibv_qp_init_attr_ex *attr,
		     const struct keyhole_create_qp_req *req,
		     uint16_t *db_slot)
{
	struct create_qp_cmd cmd = { .drv = *req };
	struct create_qp_resp resp = {};
	int err = ibv_cmd_create_qp_ex2(ctx, qp, attr, &cmd.core, sizeof(cmd),
					&resp.core, sizeof(resp));

	if (err)
		return err;
	*db_slot = resp.drv.db_slot;
	return 0;
}

int kh_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_modify_qp cmd = {};

	return ibv_cmd_modify_qp(qp, attr, mask, &cmd, sizeof(cmd));
}

int kh_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd = {};

	return ibv_cmd_query_qp(qp, attr, mask, init_attr, &cmd, sizeof(cmd));
}

int kh_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah,
		     struct ibv_ah_attr *attr, void *av)
{
	struct create_ah_resp resp = {};
	int err = ibv_cmd_create_ah(pd, ah, attr, &resp.core, sizeof(resp));

	if (err)
		return err;
	memcpy(av, resp.drv.av, sizeof(resp.drv.av));
	return 0;
}

/*
 * Objects that only this driver has.  uverbs knows no older form of these
 * commands; a kernel without them is told by its capabilities, before.
 */
int kh_cmd_create_mkey(struct ibv_pd *pd, uint32_t max_entries, uint32_t access,
		       uint32_t *handle, uint32_t *key)
{
	DECLARE_COMMAND_BUFFER(cmd, KEYHOLE_OBJECT_MKEY,
			       KEYHOLE_METHOD_MKEY_CREATE, 5);
	struct ib_uverbs_attr *object =
		fill_attr_out_obj(cmd, KEYHOLE_ATTR_MKEY_CREATE_HANDLE);
	int err = 0;

	fill_attr_in_obj(cmd, KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE, pd->handle);
	fill_attr_in_uint32(cmd, KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES,
			    max_entries);
	fill_attr_in_uint32(cmd, KEYHOLE_ATTR_MKEY_CREATE_ACCESS, access);
	fill_attr_out_ptr(cmd, KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY, key);

	err = execute_ioctl(pd->context, cmd);
	if (err)
		return err;
	*handle = read_attr_obj(KEYHOLE_ATTR_MKEY_CREATE_HANDLE, object);
	return 0;
}

int kh_cmd_query_mkey(struct ibv_context *ctx, uint32_t handle,
		      struct keyhole_mkey_attr *attr)
{
	DECLARE_COMMAND_BUFFER(cmd, KEYHOLE_OBJECT_MKEY,
			       KEYHOLE_METHOD_MKEY_QUERY, 2);

	memset(attr, 0, sizeof(*attr));
	fill_attr_in_obj(cmd, KEYHOLE_ATTR_MKEY_QUERY_HANDLE, handle);
	fill_attr_out_ptr(cmd, KEYHOLE_ATTR_MKEY_QUERY_RESP, attr);
	return execute_ioctl(ctx, cmd);
}

int kh_cmd_destroy_mkey(struct ibv_context *ctx, uint32_t handle)
{
	DECLARE_COMMAND_BUFFER(cmd, KEYHOLE_OBJECT_MKEY,
			       KEYHOLE_METHOD_MKEY_DESTROY, 1);

	fill_attr_in_obj(cmd, KEYHOLE_ATTR_MKEY_DESTROY_HANDLE, handle);
	return execute_ioctl(ctx, cmd);
}

int kh_cmd_create_klm_list(struct ibv_pd *pd, void *addr, uint64_t length,
			   uint32_t *handle, uint32_t *key)
{
	DECLARE_COMMAND_BUFFER(cmd, KEYHOLE_OBJECT_KLM_LIST,
			       KEYHOLE_METHOD_KLM_LIST_CREATE, 5);
	struct ib_uverbs_attr *object =
		fill_attr_out_obj(cmd, KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE);
	int err = 0;

	fill_attr_in_obj(cmd, KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE,
			 pd->handle);
	fill_attr_in_uint64(cmd, KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR,
			    (uintptr_t)addr);
	fill_attr_in_uint64(cmd, KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH, length);
	fill_attr_out_ptr(cmd, KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY, key);

	err = execute_ioctl(pd->context, cmd);
	if (err)
		return err;
	*handle = read_attr_obj(KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE, object);
	return 0;
}

int kh_cmd_destroy_klm_list(struct ibv_context *ctx, uint32_t handle)
{
	DECLARE_COMMAND_BUFFER(cmd, KEYHOLE_OBJECT_KLM_LIST,
			       KEYHOLE_METHOD_KLM_LIST_DESTROY, 1);

	fill_attr_in_obj(cmd, KEYHOLE_ATTR_KLM_LIST_DESTROY_HANDLE, handle);
	return execute_ioctl(ctx, cmd);
}
