// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The verbs that ask the kernel, with the signatures of struct verbs_context_ops. Those that make
// an object return null and set errno; the others return 0 or an errno value. When one fails,
// nothing of what it began is left.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "rdma_core.h"

#include "keyholedv.h"

namespace keyhole {

// device.cc
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t attr_size);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// domain.cc
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// memory.cc
ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t hca_va, int access);
int rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access);
int dereg_mr(verbs_mr* mr);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

// ah.cc
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);

// cq.cc
ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int resize_cq(ibv_cq* cq, int cqe);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int destroy_cq(ibv_cq* cq);

// srq.cc
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);

// qp.cc
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_qp* create_qp_dv(ibv_context* context, ibv_qp_init_attr_ex* attr,
                     const keyholedv_qp_init_attr& dv_attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr);
int destroy_qp(ibv_qp* qp);

inline std::nullptr_t fail(int err) {
  errno = err;
  return nullptr;
}

}  // namespace keyhole
