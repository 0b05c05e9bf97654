/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) */
/*
 * The uverbs commands that the control path sends, one function for each.
 *
 * rdma-core's command structures are C (kern-abi.h has empty structures, whose
 * size differs in C++), so that cmd.c alone includes them; what crosses this
 * header are verbs types and keyhole-abi.h's plain structures.  Every function
 * returns 0 or an errno value.
 */
#ifndef KEYHOLE_CMD_H
#define KEYHOLE_CMD_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/keyhole-abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbs_context;
struct verbs_cq;
struct verbs_mr;
struct verbs_qp;

int kh_cmd_get_context(struct verbs_context *ctx,
		       struct keyhole_alloc_ucontext_resp *out);

/* fw_version: as the device gives it, major << 32 | minor << 16 | patch. */
int kh_cmd_query_device(struct ibv_context *ctx,
			const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size,
			uint64_t *fw_version,
			struct keyhole_query_device_resp *out);
int kh_cmd_query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr);

int kh_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd, uint32_t *pdn);

int kh_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
		  uint64_t hca_va, int access, struct verbs_mr *mr);
int kh_cmd_rereg_mr(struct verbs_mr *mr, uint32_t flags, struct ibv_pd *pd,
		    void *addr, size_t length, int access);
int kh_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type,
		    struct ibv_mw *mw);

int kh_cmd_create_cq(struct ibv_context *ctx,
		     const struct ibv_cq_init_attr_ex *attr,
		     struct verbs_cq *cq,
		     const struct keyhole_create_cq_req *req, uint32_t *cqn);
int kh_cmd_resize_cq(struct ibv_cq *cq, int cqe,
		     const struct keyhole_resize_cq_req *req);
int kh_cmd_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);

int kh_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq,
		      struct ibv_srq_init_attr *attr,
		      const struct keyhole_create_srq_req *req, uint32_t *srqn);
int kh_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
/* max_wr: what the new ring of the request holds. */
int kh_cmd_resize_srq(struct ibv_srq *srq, uint32_t max_wr,
		      const struct keyhole_modify_srq_req *req);
int kh_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);

int kh_cmd_create_qp(struct ibv_context *ctx, struct verbs_qp *qp,
		     struct ibv_qp_init_attr_ex *attr,
		     const struct keyhole_create_qp_req *req,
		     uint16_t *db_slot);
int kh_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int kh_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init_attr);

/* handle: names the object to the kernel; key: lkey and rkey. */
int kh_cmd_create_mkey(struct ibv_pd *pd, uint32_t max_entries, uint32_t access,
		       uint32_t *handle, uint32_t *key);
int kh_cmd_query_mkey(struct ibv_context *ctx, uint32_t handle,
		      struct keyhole_mkey_attr *attr);
int kh_cmd_destroy_mkey(struct ibv_context *ctx, uint32_t handle);

/* addr: a multiple of 8; length: bytes, a multiple of 8. */
int kh_cmd_create_klm_list(struct ibv_pd *pd, void *addr, uint64_t length,
			   uint32_t *handle, uint32_t *key);
int kh_cmd_destroy_klm_list(struct ibv_context *ctx, uint32_t handle);

/* av: 32 bytes, a struct kh_av as the kernel resolved it. */
int kh_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah,
		     struct ibv_ah_attr *attr, void *av);

#ifdef __cplusplus
}
#endif

#endif /* KEYHOLE_CMD_H */
