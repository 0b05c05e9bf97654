// SPDX-License-Identifier: BSD-2-Clause
//
// What nothing here serves answers ENOSYS to whoever probes for it, with whatever arguments.

#include <gtest/gtest.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs.h>

namespace {

struct Probe {
  const char* name;
  // The errno that it says: by its value, by errno with a null pointer, or negated.
  int (*says)();
};

#define POINTER(call) {#call, [] { errno = 0; return (call) ? 0 : errno; }}
#define VALUE(call) {#call, []() -> int { return call; }}
#define NEGATED(call) {#call, []() -> int { return -(call); }}
#define BY_ERRNO(call) {#call, []() -> int { errno = 0; return (call) == -1 ? errno : 0; }}

const Probe kProbes[] = {
    POINTER(ibv_exp_create_dct(nullptr, nullptr)),
    VALUE(ibv_exp_destroy_dct(nullptr)),
    VALUE(ibv_exp_query_dct(nullptr, nullptr)),
    VALUE(ibv_exp_arm_dct(nullptr, nullptr)),
    NEGATED(ibv_exp_poll_dc_info(nullptr, nullptr, 1, 1)),
    POINTER(ibv_exp_create_flow(nullptr, nullptr)),
    VALUE(ibv_exp_destroy_flow(nullptr)),
    POINTER(ibv_exp_create_wq(nullptr, nullptr)),
    VALUE(ibv_exp_modify_wq(nullptr, nullptr)),
    VALUE(ibv_exp_destroy_wq(nullptr)),
    POINTER(ibv_exp_create_rwq_ind_table(nullptr, nullptr)),
    VALUE(ibv_exp_destroy_rwq_ind_table(nullptr)),
    POINTER(ibv_exp_query_intf(nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_release_intf(nullptr, nullptr, nullptr)),
    POINTER(ibv_exp_alloc_dm(nullptr, nullptr)),
    VALUE(ibv_exp_free_dm(nullptr)),
    VALUE(ibv_exp_memcpy_dm(nullptr, nullptr)),
    POINTER(ibv_exp_reg_shared_mr(nullptr)),
    VALUE(ibv_exp_prefetch_mr(nullptr, nullptr)),
    VALUE(ibv_exp_post_task(nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_post_srq_ops(nullptr, nullptr, nullptr)),
    BY_ERRNO(ibv_exp_use_priv_env(nullptr)),
    POINTER(ibv_exp_alloc_ec_calc(nullptr, nullptr)),
    VALUE(ibv_exp_ec_encode_async(nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_ec_encode_sync(nullptr, nullptr)),
    VALUE(ibv_exp_ec_decode_async(nullptr, nullptr, nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_ec_decode_sync(nullptr, nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_ec_update_async(nullptr, nullptr, nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_ec_update_sync(nullptr, nullptr, nullptr, nullptr)),
    NEGATED(ibv_exp_ec_poll(nullptr, 1)),
    VALUE(ibv_exp_ec_encode_send(nullptr, nullptr, nullptr, nullptr)),
    VALUE(ibv_exp_peer_commit_qp(nullptr, nullptr)),
    VALUE(ibv_exp_rollback_qp(nullptr, nullptr)),
    VALUE(ibv_exp_peer_peek_cq(nullptr, nullptr)),
    VALUE(ibv_exp_peer_abort_peek_cq(nullptr, nullptr)),
    POINTER(ibv_open_xrc_domain(nullptr, -1, 0)),
    VALUE(ibv_close_xrc_domain(nullptr)),
    POINTER(ibv_create_xrc_srq(nullptr, nullptr, nullptr, nullptr)),
    NEGATED(ibv_create_xrc_rcv_qp(nullptr, nullptr)),
    VALUE(ibv_modify_xrc_rcv_qp(nullptr, 0, nullptr, 0)),
    VALUE(ibv_query_xrc_rcv_qp(nullptr, 0, nullptr, 0, nullptr)),
    VALUE(ibv_reg_xrc_rcv_qp(nullptr, 0)),
    VALUE(ibv_unreg_xrc_rcv_qp(nullptr, 0)),
};

TEST(Unsupported, EachCallAnswersEnosys) {
  for (const Probe& probe : kProbes) EXPECT_EQ(probe.says(), ENOSYS) << probe.name;
}

TEST(Unsupported, TheBadOneIsNamed) {
  ibv_exp_task task{}, *bad_task = nullptr;
  EXPECT_EQ(ibv_exp_post_task(nullptr, &task, &bad_task), ENOSYS);
  EXPECT_EQ(bad_task, &task);
  ibv_exp_ops_wr op{}, *bad_op = nullptr;
  EXPECT_EQ(ibv_exp_post_srq_ops(nullptr, &op, &bad_op), ENOSYS);
  EXPECT_EQ(bad_op, &op);
}

TEST(Unsupported, AnInterfaceSaysItsStatus) {
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
  EXPECT_EQ(ibv_exp_query_intf(nullptr, nullptr, &status), nullptr);
  EXPECT_EQ(status, IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  errno = 0;
  ibv_exp_dealloc_ec_calc(nullptr);
  EXPECT_EQ(errno, ENOSYS);
}

}  // namespace
