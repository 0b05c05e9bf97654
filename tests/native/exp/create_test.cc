// SPDX-License-Identifier: BSD-2-Clause
//
// Making and modifying queues by experimental verbs: what reaches the provider, what is granted.

#include <gtest/gtest.h>

#include "fake_verbs.h"

namespace {

class Create : public ::testing::Test {
 protected:
  Create() {
    qp_attr.send_cq = qp_attr.recv_cq = &cq;
    qp_attr.qp_type = IBV_QPT_RC;
    qp_attr.cap = {.max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1,
                   .max_inline_data = 0};
    qp_attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    qp_attr.pd = &world.pd;
    cq.context = world.context();
  }
  ibv_exp_res_domain* domain(ibv_exp_thread_model threads) {
    ibv_exp_res_domain_init_attr attr{};
    attr.comp_mask = IBV_EXP_RES_DOMAIN_RESERVED - 1;
    attr.thread_model = threads;
    attr.msg_model = IBV_EXP_MSG_LOW_LATENCY;
    return ibv_exp_create_res_domain(world.context(), &attr);
  }
  fake::World world;
  ibv_cq cq{};
  ibv_exp_qp_init_attr qp_attr{};
};

TEST_F(Create, AQpIsMadeAndItsCapacitiesReported) {
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(world.last_qp.qp_type, IBV_QPT_RC);
  EXPECT_EQ(world.last_qp.pd, &world.pd);
  EXPECT_FALSE(world.qp_by_direct_verbs);
  EXPECT_EQ(qp_attr.cap.max_send_wr, 20u);
}

TEST_F(Create, AMaskOfAllButTheReservedBitsIsAcceptedWithFieldsAtZero) {
  for (uint32_t mask : {uint32_t{IBV_EXP_QP_INIT_ATTR_RESERVED} - 1,
                        uint32_t{IBV_EXP_QP_INIT_ATTR_RESERVED1} - 1}) {
    qp_attr.comp_mask = mask;
    EXPECT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr) << mask;
    world.keyhole = false;
    EXPECT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr) << mask;
    world.keyhole = true;
  }
}

TEST_F(Create, RoomForInlineFillsIsAskedOfDirectVerbs) {
  qp_attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  qp_attr.max_inl_send_klms = 64;
  qp_attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_TRUE(world.qp_by_direct_verbs);
  EXPECT_EQ(world.last_own_qp.max_inline_entries, 64u);
  EXPECT_EQ(world.last_own_qp.send_ops_flags, 0u);
  EXPECT_EQ(world.last_qp.comp_mask, uint32_t{IBV_QP_INIT_ATTR_PD});
}

TEST_F(Create, FillsAndMaskedAtomicsThatAreAnnouncedHaveRoomToo) {
  qp_attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  qp_attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_TRUE(world.qp_by_direct_verbs);
  EXPECT_EQ(world.last_own_qp.max_inline_entries, 1u);

  qp_attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
  qp_attr.max_atomic_arg = 8;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_TRUE(world.qp_by_direct_verbs);
  world.keyhole = false;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_FALSE(world.qp_by_direct_verbs);
}

TEST_F(Create, AFieldThatTheMaskDoesNotNameIsNotRead) {
  qp_attr.max_inl_send_klms = 1000000;
  qp_attr.exp_create_flags = ~0u;
  qp_attr.rx_hash_conf = reinterpret_cast<ibv_exp_rx_hash_conf*>(8);
  qp_attr.max_inl_recv = 7;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_FALSE(world.qp_by_direct_verbs);
  EXPECT_EQ(qp_attr.max_inl_recv, 7u);
}

TEST_F(Create, InlineReceiveIsGrantedUpToTheCapability) {
  qp_attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_INL_RECV;
  qp_attr.max_inl_recv = 64;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(qp_attr.max_inl_recv, 64u);

  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ;
  ASSERT_EQ(ibv_exp_query_device(world.context(), &device), 0);
  qp_attr.max_inl_recv = 1000000;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(qp_attr.max_inl_recv, static_cast<uint32_t>(device.inline_recv_sz));

  world.keyhole = false;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(qp_attr.max_inl_recv, 0u);
}

TEST_F(Create, StandardCreationFlagsReachTheProvider) {
  qp_attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  qp_attr.exp_create_flags = IBV_EXP_QP_CREATE_SCATTER_FCS;
  ASSERT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_TRUE(world.last_qp.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS);
  EXPECT_EQ(world.last_qp.create_flags, uint32_t{IBV_QP_CREATE_SCATTER_FCS});
}

TEST_F(Create, WhatTheProviderRefusesIsReportedAsItSaid) {
  world.provider_fails = true;
  EXPECT_EQ(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Create, AQpIsModifiedByTheStandardMask) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.dest_qp_num = 5;
  attr.rq_psn = 6;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = 1;
  attr.comp_mask = IBV_EXP_QP_ATTR_RESERVED - 1;
  ASSERT_EQ(ibv_exp_modify_qp(&world.qp, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                                  IBV_EXP_QP_AV | IBV_EXP_QP_MIN_RNR_TIMER),
            0);
  EXPECT_EQ(world.last_modify_mask, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_AV |
                                        IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(world.last_modify.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(world.last_modify.dest_qp_num, 5u);
  EXPECT_EQ(world.last_modify.rq_psn, 6u);
  EXPECT_EQ(world.last_modify.min_rnr_timer, 12u);
  EXPECT_EQ(world.last_modify.ah_attr.port_num, 1u);
}

TEST_F(Create, ACqForASingleThreadTakesNoLock) {
  ibv_exp_res_domain* single = domain(IBV_EXP_THREAD_SINGLE);
  ASSERT_NE(single, nullptr);
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_RESERVED1 - 1;
  attr.res_domain = single;
  ibv_cq* made = ibv_exp_create_cq(world.context(), 16, nullptr, nullptr, 0, &attr);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(world.last_cq.flags, uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED});
  EXPECT_EQ(ibv_destroy_cq(made), 0);

  // A hint only: a provider without such CQs makes another.
  world.cq_ex_works = false;
  made = ibv_exp_create_cq(world.context(), 16, nullptr, nullptr, 0, &attr);
  EXPECT_NE(made, nullptr);
  EXPECT_EQ(ibv_destroy_cq(made), 0);

  qp_attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_RES_DOMAIN;
  qp_attr.res_domain = single;
  EXPECT_NE(ibv_exp_create_qp(world.context(), &qp_attr), nullptr);
  EXPECT_EQ(ibv_exp_destroy_res_domain(world.context(), single, nullptr), 0);
  EXPECT_EQ(world.cqs, 0);
}

TEST_F(Create, ACqOfADomainForAllThreadsIsAPlainOne) {
  ibv_exp_res_domain* safe = domain(IBV_EXP_THREAD_SAFE);
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN;
  attr.res_domain = safe;
  world.cq_ex_works = false;
  ibv_cq* made = ibv_exp_create_cq(world.context(), 16, &world, nullptr, 0, &attr);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->cq_context, &world);
  EXPECT_EQ(ibv_destroy_cq(made), 0);
  EXPECT_EQ(ibv_exp_destroy_res_domain(world.context(), safe, nullptr), 0);
}

TEST_F(Create, TimestampsThatTheProviderLacksAreLacking) {
  world.cq_ex_works = false;
  ibv_exp_cq_init_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = IBV_EXP_CQ_TIMESTAMP;
  EXPECT_EQ(ibv_exp_create_cq(world.context(), 16, nullptr, nullptr, 0, &attr), nullptr);
  EXPECT_EQ(errno, ENOSYS);
}

TEST_F(Create, ModerationReachesTheProvider) {
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_RESERVED - 1;
  attr.moderation = {.cq_count = 8, .cq_period = 20};
  ASSERT_EQ(ibv_exp_modify_cq(&cq, &attr, IBV_EXP_CQ_MODERATION | IBV_EXP_CQ_CAP_FLAGS), 0);
  EXPECT_EQ(world.last_moderation.moderate.cq_count, 8);
  EXPECT_EQ(world.last_moderation.moderate.cq_period, 20);
}

TEST_F(Create, SharedReceiveQueuesOfBothKinds) {
  ibv_exp_create_srq_attr attr{};
  attr.pd = &world.pd;
  attr.base.attr.max_wr = 10;
  attr.comp_mask = IBV_EXP_CREATE_SRQ_RESERVED - 1;
  EXPECT_NE(ibv_exp_create_srq(world.context(), &attr), nullptr);
  EXPECT_EQ(attr.base.attr.max_wr, 20u);

  ibv_xrcd xrcd{};
  attr.srq_type = IBV_EXP_SRQT_XRC;
  attr.xrcd = &xrcd;
  attr.cq = &cq;
  EXPECT_NE(ibv_exp_create_srq(world.context(), &attr), nullptr);
  EXPECT_EQ(attr.base.attr.max_wr, 40u);
}

}  // namespace
