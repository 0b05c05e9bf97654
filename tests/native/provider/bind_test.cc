// SPDX-License-Identifier: BSD-2-Clause
//
// Binds of both window types as they reach the device.

#include <gtest/gtest.h>

#include "rig.h"

namespace keyhole::verbs {
namespace {

struct BindTest : QpTest {
  ibv_pd pd{}, other_pd{};
  ibv_mr mr{};
  ibv_mw mw{};
  ibv_mw_bind bind{};

  explicit BindTest(ibv_mw_type type = IBV_MW_TYPE_1, QpOptions options = {}) : QpTest(options) {
    mr.pd = &pd;
    mr.lkey = 0x1234;
    mw.context = test_context();
    mw.pd = &pd;
    mw.rkey = 0x00abcdfe;
    mw.type = type;
    bind.wr_id = 77;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {&mr, 0x7000, 0x800, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  }

  ibv_send_wr type2(std::uint32_t rkey) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.wr_id = 5;
    wr.bind_mw.mw = &mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = bind.bind_info;
    return wr;
  }
};

TEST(BindType1, moves_the_variant_on_and_names_old_and_new_key) {
  BindTest t;
  ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
  EXPECT_EQ(t.mw.rkey, 0x00abcdffu);
  const auto wqe = t.qp.wqe(0);
  const auto ctrl = part<kh_wqe_ctrl>(wqe, 0);
  EXPECT_EQ(ctrl.opcode, KH_OP_BIND_MW);
  EXPECT_EQ(ctrl.flags, KH_WQE_SIGNALED);
  EXPECT_EQ(ctrl.nblocks, 1);
  EXPECT_EQ(ctrl.wr_id, 77u);
  const auto body = part<kh_wqe_bind>(wqe, 16);
  EXPECT_EQ(body.mw_key, 0x00abcdfeu);
  EXPECT_EQ(body.new_key, 0x00abcdffu);
  EXPECT_EQ(body.mr_key, 0x1234u);
  EXPECT_EQ(body.access, KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(body.addr, 0x7000u);
  EXPECT_EQ(body.length, 0x800u);
  EXPECT_TRUE(t.qp.rung());
}

TEST(BindType1, pipelined_binds_form_a_chain_of_keys_and_the_variant_wraps_within_its_byte) {
  BindTest t;
  std::uint32_t key = t.mw.rkey;
  for (unsigned i = 0; i < 4; i++) {
    ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
    const auto body = part<kh_wqe_bind>(t.qp.wqe(i), 16);
    EXPECT_EQ(body.mw_key, key);
    EXPECT_EQ(body.new_key, t.mw.rkey);
    EXPECT_EQ(body.new_key >> 8, key >> 8);
    EXPECT_EQ(body.new_key & 0xff, (key + 1) & 0xff);
    key = t.mw.rkey;
  }
  EXPECT_EQ(key, 0x00abcd02u);
}

TEST(BindType1, a_length_of_zero_unbinds_and_names_no_region) {
  BindTest t;
  t.bind.bind_info = {nullptr, 0, 0, 0};
  ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
  t.bind.bind_info = {&t.mr, 0x7000, 0, IBV_ACCESS_REMOTE_READ};
  ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
  for (unsigned i = 0; i < 2; i++) {
    const auto body = part<kh_wqe_bind>(t.qp.wqe(i), 16);
    EXPECT_EQ(body.mr_key, 0u);
    EXPECT_EQ(body.length, 0u);
  }
}

TEST(BindType1, local_write_is_accepted_and_dropped_and_zero_based_kept) {
  BindTest t;
  t.bind.bind_info.mw_access_flags =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
  ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
  EXPECT_EQ(part<kh_wqe_bind>(t.qp.wqe(0), 16).access,
            KH_ACCESS_REMOTE_ATOMIC | KH_ACCESS_ZERO_BASED);
}

TEST(BindType1, what_is_refused_leaves_the_key_and_the_ring_as_they_were) {
  BindTest t;
  const auto refused = [&](int error) {
    // Not through the inline function of verbs.h, which has checks of its own.
    EXPECT_EQ(bind_mw(t.qp.ibv(), &t.mw, &t.bind), error);
    EXPECT_EQ(t.mw.rkey, 0x00abcdfeu);
    EXPECT_EQ(t.qp.db.sq_pi, 0u);
    EXPECT_FALSE(t.qp.rung());
  };
  const ibv_mw_bind good = t.bind;
  t.mw.type = IBV_MW_TYPE_2;
  refused(EINVAL);
  t.mw.type = IBV_MW_TYPE_1;
  t.bind.bind_info.mw_access_flags = IBV_ACCESS_MW_BIND;
  refused(EINVAL);
  t.bind.bind_info.mw_access_flags = 1 << 15;
  refused(EINVAL);
  t.bind = good;
  t.bind.bind_info.mr = nullptr;
  refused(EINVAL);
  t.bind = good;
  t.bind.send_flags = IBV_SEND_INLINE;
  refused(EINVAL);
  t.bind = good;
  t.mr.pd = &t.other_pd;
  refused(EPERM);
  t.mr.pd = &t.pd;
  set_qp_state(t.qp.qp, IBV_QPS_INIT);
  refused(EINVAL);
  set_qp_state(t.qp.qp, IBV_QPS_RTS);
  EXPECT_EQ(bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
}

TEST(BindType1, is_not_for_ud) {
  BindTest t(IBV_MW_TYPE_1, {.type = IBV_QPT_UD});
  EXPECT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), EINVAL);
}

TEST(BindType1, a_full_ring_gives_enomem_and_keeps_the_key) {
  BindTest t;
  for (int i = 0; i < 16; i++)
    ASSERT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), 0);
  const std::uint32_t key = t.mw.rkey;
  EXPECT_EQ(ibv_bind_mw(t.qp.ibv(), &t.mw, &t.bind), ENOMEM);
  EXPECT_EQ(t.mw.rkey, key);
}

TEST(BindType2, carries_the_consumers_key_and_leaves_mw_rkey_to_the_consumer) {
  BindTest t(IBV_MW_TYPE_2);
  ibv_send_wr wr = t.type2(0x00abcd42);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  const auto body = part<kh_wqe_bind>(t.qp.wqe(0), 16);
  EXPECT_EQ(body.mw_key, 0x00abcdfeu);
  EXPECT_EQ(body.new_key, 0x00abcd42u);
  EXPECT_EQ(body.mr_key, 0x1234u);
  EXPECT_EQ(body.length, 0x800u);
  EXPECT_EQ(t.mw.rkey, 0x00abcdfeu);
}

TEST(BindType2, a_type_1_window_or_a_foreign_region_is_refused) {
  BindTest t(IBV_MW_TYPE_1);
  ibv_send_wr wr = t.type2(0x00abcd42);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  t.mw.type = IBV_MW_TYPE_2;
  t.mr.pd = &t.other_pd;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), EPERM);
}

}  // namespace
}  // namespace keyhole::verbs
