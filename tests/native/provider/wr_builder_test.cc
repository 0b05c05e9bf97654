// SPDX-License-Identifier: BSD-2-Clause
//
// The ibv_wr_* builder. What it builds must be what ibv_post_send builds, byte for byte; a batch is
// posted whole or not at all.

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "rig.h"

namespace keyhole::verbs {
namespace {

// Posts by the builder on one QP, by ibv_post_send on another, and compares all that they wrote.
void expect_same(QpOptions options, const std::function<void(ibv_qp_ex*)>& build, ibv_send_wr wr,
                 std::uint32_t start = 0) {
  QpTest by_builder(options), by_post(options);
  for (QpTest* t : {&by_builder, &by_post})
    t->qp.qp.sq.pi = t->qp.qp.sq.ci = start;
  ibv_qp_ex* ex = by_builder.qp.ex();
  ibv_wr_start(ex);
  ex->wr_id = wr.wr_id;
  ex->wr_flags = wr.send_flags & ~IBV_SEND_INLINE;
  build(ex);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(by_post.qp.ibv(), &wr, &bad), 0);

  EXPECT_EQ(by_builder.qp.wqe(start), by_post.qp.wqe(start));
  EXPECT_EQ(by_builder.qp.db.sq_pi, by_post.qp.db.sq_pi);
  EXPECT_EQ(by_builder.qp.sq_ring, by_post.qp.sq_ring);
  EXPECT_TRUE(by_builder.qp.rung());
}

ibv_send_wr request(ibv_wr_opcode opcode, std::span<ibv_sge> sges = {}) {
  ibv_send_wr wr{};
  wr.wr_id = 0x123456789;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  return wr;
}

TEST(WrBuilder, write_is_the_same_as_posted) {
  ibv_sge sge{0x1000, 64, 0x55};
  auto wr = request(IBV_WR_RDMA_WRITE, {&sge, 1});
  wr.wr.rdma = {0x777700, 0x99};
  expect_same(
      {},
      [&](ibv_qp_ex* ex) {
        ibv_wr_rdma_write(ex, 0x99, 0x777700);
        ibv_wr_set_sge(ex, 0x55, 0x1000, 64);
      },
      wr);
}

TEST(WrBuilder, write_with_immediate_read_and_sge_list_are_the_same_as_posted) {
  std::array<ibv_sge, 7> sges{};
  for (unsigned i = 0; i < 7; i++)
    sges[i] = {i * 64ull, i, i + 1};
  auto wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, sges);
  wr.imm_data = 0xabcd;
  wr.wr.rdma = {0x777700, 0x99};
  for (std::uint32_t start = 0; start < 16; start++)
    expect_same(
        {},
        [&](ibv_qp_ex* ex) {
          ibv_wr_rdma_write_imm(ex, 0x99, 0x777700, 0xabcd);
          ibv_wr_set_sge_list(ex, 7, sges.data());
        },
        wr, start);
  wr = request(IBV_WR_RDMA_READ, sges);
  wr.wr.rdma = {0x777700, 0x99};
  expect_same(
      {},
      [&](ibv_qp_ex* ex) {
        ibv_wr_rdma_read(ex, 0x99, 0x777700);
        ibv_wr_set_sge_list(ex, 7, sges.data());
      },
      wr);
}

TEST(WrBuilder, sends_are_the_same_as_posted) {
  ibv_sge sge{0x1000, 64, 0x55};
  const auto set = [](ibv_qp_ex* ex) { ibv_wr_set_sge(ex, 0x55, 0x1000, 64); };
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_send(ex), set(ex); }, request(IBV_WR_SEND, {&sge, 1}));
  auto wr = request(IBV_WR_SEND_WITH_IMM, {&sge, 1});
  wr.imm_data = 0x11;
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_send_imm(ex, 0x11), set(ex); }, wr);
  wr = request(IBV_WR_SEND_WITH_INV, {&sge, 1});
  wr.invalidate_rkey = 0x22;
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_send_inv(ex, 0x22), set(ex); }, wr);
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_send(ex); }, request(IBV_WR_SEND));
  expect_same(
      {.sq_sig_all = true}, [&](ibv_qp_ex* ex) { ibv_wr_send(ex); }, request(IBV_WR_SEND));
}

TEST(WrBuilder, atomics_are_the_same_as_posted) {
  ibv_sge sge{0x1000, 8, 0x55};
  auto wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, {&sge, 1});
  wr.wr.atomic = {.remote_addr = 0x100, .compare_add = 1, .swap = 2, .rkey = 3};
  expect_same(
      {},
      [&](ibv_qp_ex* ex) {
        ibv_wr_atomic_cmp_swp(ex, 3, 0x100, 1, 2);
        ibv_wr_set_sge(ex, 0x55, 0x1000, 8);
      },
      wr);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  expect_same(
      {},
      [&](ibv_qp_ex* ex) {
        ibv_wr_atomic_fetch_add(ex, 3, 0x100, 1);
        ibv_wr_set_sge_list(ex, 1, &sge);
      },
      wr);
}

TEST(WrBuilder, bind_and_invalidate_are_the_same_as_posted) {
  auto wr = request(IBV_WR_LOCAL_INV);
  wr.invalidate_rkey = 0x4567;
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_local_inv(ex, 0x4567); }, wr);

  ibv_pd pd{};
  ibv_mr mr{};
  ibv_mw mw{};
  mr.pd = mw.pd = &pd;
  mr.lkey = 0x808;
  mw.type = IBV_MW_TYPE_2;
  mw.rkey = 0x1200;
  const ibv_mw_bind_info info{&mr, 0x100, 0x200, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE};
  wr = request(IBV_WR_BIND_MW);
  wr.bind_mw = {&mw, 0x1234, info};
  expect_same(
      {}, [&](ibv_qp_ex* ex) { ibv_wr_bind_mw(ex, &mw, 0x1234, &info); }, wr);
}

TEST(WrBuilder, inline_data_of_any_length_is_the_same_as_posted) {
  for (std::uint32_t len : {0u, 1u, 31u, 32u, 33u, 96u, 97u, 255u, 256u}) {
    auto data = pattern(len);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(data.data()), len, 0};
    auto wr = request(IBV_WR_SEND, {&sge, 1});
    wr.send_flags |= IBV_SEND_INLINE;
    expect_same(
        {},
        [&](ibv_qp_ex* ex) {
          ibv_wr_send(ex);
          ibv_wr_set_inline_data(ex, data.data(), len);
        },
        wr, 14);
  }
}

TEST(WrBuilder, an_inline_list_is_the_same_as_posted_wherever_the_ring_ends) {
  auto data = pattern(180);
  const std::array<ibv_data_buf, 4> bufs = {ibv_data_buf{data.data(), 5},
                                            {data.data() + 5, 100},
                                            {data.data() + 105, 0},
                                            {data.data() + 105, 75}};
  std::array<ibv_sge, 4> sges{};
  for (unsigned i = 0; i < 4; i++)
    sges[i] = {reinterpret_cast<std::uintptr_t>(bufs[i].addr),
               static_cast<std::uint32_t>(bufs[i].length), 0};
  auto wr = request(IBV_WR_RDMA_WRITE, sges);
  wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma = {8, 9};
  for (std::uint32_t start = 0; start < 16; start++)
    expect_same(
        {},
        [&](ibv_qp_ex* ex) {
          ibv_wr_rdma_write(ex, 9, 8);
          ibv_wr_set_inline_data_list(ex, 4, bufs.data());
        },
        wr, start);
}

TEST(WrBuilder, ud_sends_are_the_same_as_posted_in_either_order_of_the_setters) {
  Ah ah;
  std::memset(&ah.av, 0x5a, sizeof(ah.av));
  ibv_sge sge{0x1000, 64, 0x55};
  auto wr = request(IBV_WR_SEND, {&sge, 1});
  wr.wr.ud = {&ah.ibv, 0x42, 0x43};
  const QpOptions ud{.type = IBV_QPT_UD};
  expect_same(
      ud,
      [&](ibv_qp_ex* ex) {
        ibv_wr_send(ex);
        ibv_wr_set_ud_addr(ex, &ah.ibv, 0x42, 0x43);
        ibv_wr_set_sge(ex, 0x55, 0x1000, 64);
      },
      wr, 15);
  expect_same(
      ud,
      [&](ibv_qp_ex* ex) {
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, 0x55, 0x1000, 64);
        ibv_wr_set_ud_addr(ex, &ah.ibv, 0x42, 0x43);
      },
      wr);

  auto data = pattern(70);
  sge = {reinterpret_cast<std::uintptr_t>(data.data()), 70, 0};
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 7;
  wr.send_flags |= IBV_SEND_INLINE;
  expect_same(
      ud,
      [&](ibv_qp_ex* ex) {
        ibv_wr_send_imm(ex, 7);
        ibv_wr_set_inline_data(ex, data.data(), 70);
        ibv_wr_set_ud_addr(ex, &ah.ibv, 0x42, 0x43);
      },
      wr, 14);
}

TEST(WrBuilder, an_atomic_write_carries_its_eight_bytes) {
  QpTest t;
  ibv_qp_ex* ex = t.qp.ex();
  const std::uint64_t value = 0x0102030405060708;
  ibv_wr_start(ex);
  ex->wr_id = 5;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(ex, 0x99, 0x7000, &value);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const auto wqe = t.qp.wqe(0);
  const auto ctrl = part<kh_wqe_ctrl>(wqe, 0);
  EXPECT_EQ(ctrl.opcode, KH_OP_ATOMIC_WRITE);
  EXPECT_EQ(ctrl.flags, KH_WQE_SIGNALED | KH_WQE_INLINE);
  EXPECT_EQ(ctrl.nblocks, 1);
  EXPECT_EQ(ctrl.num_sge, 0);
  EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).remote_addr, 0x7000u);
  EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).rkey, 0x99u);
  EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).inline_len, 8u);
  EXPECT_EQ(part<std::uint64_t>(wqe, 32), value);
}

// As a template, so that it compiles with headers that do not know FLUSH.
template <class QpEx>
void flush_carries_its_range_type_and_level(QpEx* ex, QpTest& t) {
  if constexpr (requires { ex->wr_flush; }) {
    ibv_wr_start(ex);
    ex->wr_id = 5;
    ex->wr_flags = 0;
    ex->wr_flush(ex, 0x99, 0x7000, 4096, KH_FLUSH_GLOBAL, KH_FLUSH_RANGE);
    ex->wr_flush(ex, 0x99, 0x7000, std::size_t{1} << 40, KH_FLUSH_PERSISTENT, KH_FLUSH_MR);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(0), 0).opcode, KH_OP_FLUSH);
    EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(0), 0).num_sge, 0);
    EXPECT_EQ(part<kh_wqe_rdma>(t.qp.wqe(0), 16).remote_addr, 0x7000u);
    EXPECT_EQ(part<kh_wqe_rdma>(t.qp.wqe(0), 16).inline_len, 4096u);
    EXPECT_EQ(part<kh_wqe_flush>(t.qp.wqe(0), 32).type, KH_FLUSH_GLOBAL);
    EXPECT_EQ(part<kh_wqe_flush>(t.qp.wqe(0), 32).level, unsigned{KH_FLUSH_RANGE});
    EXPECT_EQ(part<kh_wqe_rdma>(t.qp.wqe(1), 16).inline_len, 0u);
    EXPECT_EQ(part<kh_wqe_flush>(t.qp.wqe(1), 32).type, KH_FLUSH_PERSISTENT);
    EXPECT_EQ(part<kh_wqe_flush>(t.qp.wqe(1), 32).level, unsigned{KH_FLUSH_MR});

    struct Bad {
      std::size_t length;
      std::uint8_t type, level;
    };
    for (const Bad bad : {Bad{8, 0, 0}, {8, 4, 0}, {8, 1, 2}, {std::size_t{1} << 32, 1, 0}}) {
      ibv_wr_start(ex);
      ex->wr_flush(ex, 0x99, 0x7000, bad.length, bad.type, bad.level);
      EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    }
  } else {
    GTEST_SKIP() << "this verbs.h has no ibv_wr_flush";
  }
}

TEST(WrBuilder, flush_carries_its_range_type_and_level) {
  QpTest t;
  flush_carries_its_range_type_and_level(t.qp.ex(), t);
}

TEST(WrBuilder, a_batch_is_published_whole_at_complete_and_not_before) {
  QpTest t;
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  for (unsigned i = 0; i < 5; i++) {
    ex->wr_id = i;
    ibv_wr_rdma_write(ex, 1, 2);
    ibv_wr_set_sge(ex, 1, 2, 3);
  }
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 5u);
  EXPECT_TRUE(t.qp.rung());
  for (unsigned i = 0; i < 5; i++)
    EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(i), 0).wr_id, i);
}

TEST(WrBuilder, an_aborted_batch_leaves_nothing_behind) {
  QpTest t;
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  for (unsigned i = 0; i < 16; i++)
    ibv_wr_send(ex);
  ibv_wr_abort(ex);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());
  // The room is there again, and the two ways of posting mix.
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 1u);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(0), 0).opcode, KH_OP_LOCAL_INV);
}

TEST(WrBuilder, an_empty_batch_is_fine_and_does_not_ring) {
  QpTest t;
  ibv_wr_start(t.qp.ex());
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), 0);
  EXPECT_FALSE(t.qp.rung());
}

TEST(WrBuilder, overflow_fails_the_whole_batch_and_overwrites_nothing) {
  QpTest t;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  ibv_send_wr* bad = nullptr;
  for (int i = 0; i < 14; i++)
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  (void)t.qp.rung();
  const auto before = t.qp.sq_ring;
  const auto first_14_same = [&] {
    return std::equal(before.begin(), before.begin() + 14 * 64, t.qp.sq_ring.begin());
  };
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  for (int i = 0; i < 3; i++) {
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, 1, 2, 3);
  }
  EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
  EXPECT_TRUE(first_14_same());
  std::array<ibv_sge, 8> sges{};  // three blocks where two are free
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_sge_list(ex, 8, sges.data());
  EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
  EXPECT_TRUE(first_14_same());
  EXPECT_EQ(t.qp.db.sq_pi, 14u);
  EXPECT_FALSE(t.qp.rung());
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_send(ex);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
}

struct BadBatch {
  const char* name;
  QpOptions options;
  std::function<void(ibv_qp_ex*)> build;
};

class BadBatches : public testing::TestWithParam<BadBatch> {};

TEST_P(BadBatches, complete_gives_einval_and_posts_nothing_and_the_next_batch_works) {
  QpTest t(GetParam().options);
  Ah ah;
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  ex->wr_flags = 0;
  ibv_wr_send(ex);
  if (GetParam().options.type == IBV_QPT_UD) ibv_wr_set_ud_addr(ex, &ah.ibv, 1, 2);
  GetParam().build(ex);
  ex->wr_flags = 0;
  ibv_wr_send(ex);
  if (GetParam().options.type == IBV_QPT_UD) ibv_wr_set_ud_addr(ex, &ah.ibv, 1, 2);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());

  set_qp_state(t.qp.qp, IBV_QPS_RTS);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  if (GetParam().options.type == IBV_QPT_UD) ibv_wr_set_ud_addr(ex, &ah.ibv, 1, 2);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_TRUE(t.qp.rung());
}

std::array<std::byte, 512> bytes;
std::array<ibv_sge, 16> many_sges;
ibv_mw type1_window{
    .context = nullptr, .pd = nullptr, .rkey = 0, .handle = 0, .type = IBV_MW_TYPE_1};

INSTANTIATE_TEST_SUITE_P(
    WrBuilder, BadBatches,
    testing::Values(
        BadBatch{"too_many_sges",
                 {},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_send(ex);
                   ibv_wr_set_sge_list(ex, 9, many_sges.data());
                 }},
        BadBatch{"inline_too_long",
                 {},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_send(ex);
                   ibv_wr_set_inline_data(ex, bytes.data(), 257);
                 }},
        BadBatch{"inline_list_too_long",
                 {},
                 [](ibv_qp_ex* ex) {
                   const std::array<ibv_data_buf, 2> bufs = {ibv_data_buf{bytes.data(), 200},
                                                             {bytes.data(), 57}};
                   ibv_wr_send(ex);
                   ibv_wr_set_inline_data_list(ex, 2, bufs.data());
                 }},
        BadBatch{"inline_list_sum_wraps",
                 {},
                 [](ibv_qp_ex* ex) {
                   const std::array<ibv_data_buf, 2> bufs = {ibv_data_buf{bytes.data(), SIZE_MAX},
                                                             {bytes.data(), 2}};
                   ibv_wr_send(ex);
                   ibv_wr_set_inline_data_list(ex, 2, bufs.data());
                 }},
        BadBatch{"inline_read",
                 {},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_rdma_read(ex, 1, 2);
                   ibv_wr_set_inline_data(ex, bytes.data(), 8);
                 }},
        BadBatch{"atomic_with_two_sges",
                 {},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_atomic_fetch_add(ex, 1, 8, 1);
                   ibv_wr_set_sge_list(ex, 2, many_sges.data());
                 }},
        BadBatch{"data_for_an_invalidate",
                 {},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_local_inv(ex, 1);
                   ibv_wr_set_sge(ex, 1, 2, 3);
                 }},
        BadBatch{"unknown_flag",
                 {},
                 [](ibv_qp_ex* ex) {
                   ex->wr_flags = IBV_SEND_IP_CSUM;
                   ibv_wr_send(ex);
                 }},
        BadBatch{"bind_of_a_type_1_window",
                 {},
                 [](ibv_qp_ex* ex) {
                   const ibv_mw_bind_info info{};
                   ibv_wr_bind_mw(ex, &type1_window, 1, &info);
                 }},
        BadBatch{"tso", {}, [](ibv_qp_ex* ex) { ibv_wr_send_tso(ex, bytes.data(), 14, 100); }},
        BadBatch{
            "uc_read", {.type = IBV_QPT_UC}, [](ibv_qp_ex* ex) { ibv_wr_rdma_read(ex, 1, 2); }},
        BadBatch{
            "ud_write", {.type = IBV_QPT_UD}, [](ibv_qp_ex* ex) { ibv_wr_rdma_write(ex, 1, 2); }},
        BadBatch{
            "ud_without_address", {.type = IBV_QPT_UD}, [](ibv_qp_ex* ex) { ibv_wr_send(ex); }},
        BadBatch{"ud_null_address",
                 {.type = IBV_QPT_UD},
                 [](ibv_qp_ex* ex) {
                   ibv_wr_send(ex);
                   ibv_wr_set_ud_addr(ex, nullptr, 1, 2);
                 }},
        BadBatch{"address_on_rc", {}, [](ibv_qp_ex* ex) { ibv_wr_set_ud_addr(ex, nullptr, 1, 2); }},
        BadBatch{
            "not_ready_to_send", {.state = IBV_QPS_INIT}, [](ibv_qp_ex* ex) { ibv_wr_send(ex); }}),
    [](const auto& test) { return test.param.name; });

TEST(WrBuilder, a_setter_before_any_request_fails_the_batch) {
  QpTest t;
  ibv_wr_start(t.qp.ex());
  ibv_wr_send(t.qp.ex());
  ASSERT_EQ(ibv_wr_complete(t.qp.ex()), 0);
  ibv_wr_start(t.qp.ex());
  ibv_wr_set_sge(t.qp.ex(), 1, 2, 3);
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), EINVAL);
}

TEST(WrBuilder, the_last_ud_request_needs_its_address_too) {
  QpTest t({.type = IBV_QPT_UD});
  ibv_wr_start(t.qp.ex());
  ibv_wr_send(t.qp.ex());
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), EINVAL);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
}

TEST(WrBuilder, operations_that_the_type_lacks_are_refused_at_creation) {
  Qp qp;
  EXPECT_EQ(set_wr_ops(qp, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_BIND_MW), 0);
  EXPECT_EQ(set_wr_ops(qp, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ), EOPNOTSUPP);
  EXPECT_EQ(set_wr_ops(qp, IBV_QPT_UD, IBV_QP_EX_WITH_LOCAL_INV), EOPNOTSUPP);
  EXPECT_EQ(set_wr_ops(qp, IBV_QPT_RC, IBV_QP_EX_WITH_TSO), EOPNOTSUPP);
  EXPECT_EQ(set_wr_ops(qp, IBV_QPT_RAW_PACKET, IBV_QP_EX_WITH_SEND), EOPNOTSUPP);
}

}  // namespace
}  // namespace keyhole::verbs
