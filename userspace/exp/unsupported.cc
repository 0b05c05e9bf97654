// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The calls of verbs_exp_unsupported.h and peer_ops.h: ENOSYS, without a look at the arguments,
// which a program that only probes may leave empty.

#include "exp.h"
#include <infiniband/peer_ops.h>

using keyhole::exp::fail;
using keyhole::exp::fail_int;

namespace {
int not_served() { return fail_int(ENOSYS); }
int no_count() { return -fail_int(ENOSYS); }
}  // namespace

extern "C" {

ibv_exp_dct* ibv_exp_create_dct(ibv_context*, ibv_exp_dct_init_attr*) { return fail(ENOSYS); }
int ibv_exp_destroy_dct(ibv_exp_dct*) { return not_served(); }
int ibv_exp_query_dct(ibv_exp_dct*, ibv_exp_dct_attr*) { return not_served(); }
int ibv_exp_arm_dct(ibv_exp_dct*, ibv_exp_arm_attr*) { return not_served(); }
int ibv_exp_poll_dc_info(ibv_context*, ibv_exp_dc_info_ent*, int, int) { return no_count(); }

ibv_exp_flow* ibv_exp_create_flow(ibv_qp*, ibv_exp_flow_attr*) { return fail(ENOSYS); }
int ibv_exp_destroy_flow(ibv_exp_flow*) { return not_served(); }

ibv_exp_wq* ibv_exp_create_wq(ibv_context*, ibv_exp_wq_init_attr*) { return fail(ENOSYS); }
int ibv_exp_modify_wq(ibv_exp_wq*, ibv_exp_wq_attr*) { return not_served(); }
int ibv_exp_destroy_wq(ibv_exp_wq*) { return not_served(); }
ibv_exp_rwq_ind_table* ibv_exp_create_rwq_ind_table(ibv_context*,
                                                    ibv_exp_rwq_ind_table_init_attr*) {
  return fail(ENOSYS);
}
int ibv_exp_destroy_rwq_ind_table(ibv_exp_rwq_ind_table*) { return not_served(); }

void* ibv_exp_query_intf(ibv_context*, ibv_exp_query_intf_params*,
                         ibv_exp_query_intf_status* status) {
  if (status) *status = IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED;
  return fail(ENOSYS);
}
int ibv_exp_release_intf(ibv_context*, void*, ibv_exp_release_intf_params*) { return not_served(); }

ibv_exp_dm* ibv_exp_alloc_dm(ibv_context*, ibv_exp_alloc_dm_attr*) { return fail(ENOSYS); }
int ibv_exp_free_dm(ibv_exp_dm*) { return not_served(); }
int ibv_exp_memcpy_dm(ibv_exp_dm*, ibv_exp_memcpy_dm_attr*) { return not_served(); }
ibv_mr* ibv_exp_reg_shared_mr(ibv_exp_reg_shared_mr_in*) { return fail(ENOSYS); }
int ibv_exp_prefetch_mr(ibv_mr*, ibv_exp_prefetch_attr*) { return not_served(); }

int ibv_exp_post_task(ibv_context*, ibv_exp_task* task, ibv_exp_task** bad_task) {
  if (bad_task) *bad_task = task;
  return not_served();
}
int ibv_exp_post_srq_ops(ibv_srq*, ibv_exp_ops_wr* op, ibv_exp_ops_wr** bad_op) {
  if (bad_op) *bad_op = op;
  return not_served();
}
int ibv_exp_use_priv_env(ibv_context*) {
  errno = ENOSYS;
  return -1;
}

ibv_exp_ec_calc* ibv_exp_alloc_ec_calc(ibv_pd*, ibv_exp_ec_calc_init_attr*) { return fail(ENOSYS); }
void ibv_exp_dealloc_ec_calc(ibv_exp_ec_calc*) { errno = ENOSYS; }
int ibv_exp_ec_encode_async(ibv_exp_ec_calc*, ibv_exp_ec_mem*, ibv_exp_ec_comp*) {
  return not_served();
}
int ibv_exp_ec_encode_sync(ibv_exp_ec_calc*, ibv_exp_ec_mem*) { return not_served(); }
int ibv_exp_ec_decode_async(ibv_exp_ec_calc*, ibv_exp_ec_mem*, uint8_t*, uint8_t*,
                            ibv_exp_ec_comp*) {
  return not_served();
}
int ibv_exp_ec_decode_sync(ibv_exp_ec_calc*, ibv_exp_ec_mem*, uint8_t*, uint8_t*) {
  return not_served();
}
int ibv_exp_ec_update_async(ibv_exp_ec_calc*, ibv_exp_ec_mem*, uint8_t*, uint8_t*,
                            ibv_exp_ec_comp*) {
  return not_served();
}
int ibv_exp_ec_update_sync(ibv_exp_ec_calc*, ibv_exp_ec_mem*, uint8_t*, uint8_t*) {
  return not_served();
}
int ibv_exp_ec_poll(ibv_exp_ec_calc*, int) { return no_count(); }
int ibv_exp_ec_encode_send(ibv_exp_ec_calc*, ibv_exp_ec_mem*, ibv_exp_ec_stripe*,
                           ibv_exp_ec_stripe*) {
  return not_served();
}

int ibv_exp_peer_commit_qp(ibv_qp*, ibv_exp_peer_commit*) { return not_served(); }
int ibv_exp_rollback_qp(ibv_qp*, ibv_exp_rollback_ctx*) { return not_served(); }
int ibv_exp_peer_peek_cq(ibv_cq*, ibv_exp_peer_peek*) { return not_served(); }
int ibv_exp_peer_abort_peek_cq(ibv_cq*, ibv_exp_peer_abort_peek*) { return not_served(); }

ibv_xrc_domain* ibv_open_xrc_domain(ibv_context*, int, int) { return fail(ENOSYS); }
int ibv_close_xrc_domain(ibv_xrc_domain*) { return not_served(); }
ibv_srq* ibv_create_xrc_srq(ibv_pd*, ibv_xrc_domain*, ibv_cq*, ibv_srq_init_attr*) {
  return fail(ENOSYS);
}
int ibv_create_xrc_rcv_qp(ibv_qp_init_attr*, uint32_t*) { return no_count(); }  // negative, it alone
int ibv_modify_xrc_rcv_qp(ibv_xrc_domain*, uint32_t, ibv_qp_attr*, int) { return not_served(); }
int ibv_query_xrc_rcv_qp(ibv_xrc_domain*, uint32_t, ibv_qp_attr*, int, ibv_qp_init_attr*) {
  return not_served();
}
int ibv_reg_xrc_rcv_qp(ibv_xrc_domain*, uint32_t) { return not_served(); }
int ibv_unreg_xrc_rcv_qp(ibv_xrc_domain*, uint32_t) { return not_served(); }

}  // extern "C"
