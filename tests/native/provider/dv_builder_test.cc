// SPDX-License-Identifier: BSD-2-Clause
//
// The builder calls of keyholedv.h. What they build must be what keyholedv_post_send builds, byte
// for byte; they share batches with the calls of verbs.h; a batch is posted whole or not at all.

#include <gtest/gtest.h>

#include <functional>

#include "dv_rig.h"

namespace keyhole::verbs {
namespace {

keyholedv_mkey mkey{.lkey = 0xabcd01, .rkey = 0xabcd01};

// Builds on one QP, posts on another, and compares all that they wrote, from several places of the
// ring.
void expect_same(const std::function<void(keyholedv_qp_ex*)>& build, const keyholedv_send_wr& wr,
                 unsigned wr_flags) {
  for (const std::uint32_t start : {0u, 14u, 15u}) {
    SCOPED_TRACE(start);
    QpTest by_builder, by_post;
    for (QpTest* t : {&by_builder, &by_post})
      t->qp.qp.sq.pi = t->qp.qp.sq.ci = start;
    ibv_qp_ex* ex = by_builder.qp.ex();
    ibv_wr_start(ex);
    ex->wr_id = wr.wr_id;
    ex->wr_flags = wr_flags;
    build(by_builder.qp.dv());
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    keyholedv_send_wr request = wr;
    ASSERT_EQ(by_post.qp.post_dv(request), 0);
    EXPECT_EQ(by_builder.qp.sq_ring, by_post.qp.sq_ring);
    EXPECT_EQ(by_builder.qp.db.sq_pi, by_post.qp.db.sq_pi);
    EXPECT_TRUE(by_builder.qp.rung());
  }
}

TEST(DvBuilder, mr_list_is_an_inline_fill_from_address_0_with_or_without_the_flag) {
  const auto list = klms(30);
  auto wr = fill_request(list, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  wr.fill.start = 0;
  for (const unsigned flag : {0u, unsigned{IBV_SEND_INLINE}})
    expect_same(
        [&](keyholedv_qp_ex* dv) {
          keyholedv_wr_mr_list(dv, &mkey, kReadWrite, 30, list.data());
        },
        wr, IBV_SEND_SIGNALED | flag);
}

TEST(DvBuilder, mr_interleaved_likewise) {
  const auto list = strides(20);
  auto wr = fill_request(list, 77, IBV_SEND_FENCE | IBV_SEND_INLINE);
  wr.fill.start = 0;
  for (const unsigned flag : {0u, unsigned{IBV_SEND_INLINE}})
    expect_same(
        [&](keyholedv_qp_ex* dv) {
          keyholedv_wr_mr_interleaved(dv, &mkey, kReadWrite, 77, 20, list.data());
        },
        wr, IBV_SEND_FENCE | flag);
}

TEST(DvBuilder, fill_is_inline_or_from_a_list_as_the_flag_says) {
  const auto entries = klms(5);
  ListRig list(20);
  auto wr = fill_request(entries, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  wr.fill.klm_list = &list.list;
  wr.fill.klm_offset = 16;
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_fill(dv, &wr.fill); }, wr, wr.send_flags);
  EXPECT_EQ(list.memory, std::vector(480, std::byte{0xdd}));
  wr.send_flags = IBV_SEND_SIGNALED;
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_fill(dv, &wr.fill); }, wr, wr.send_flags);
  EXPECT_EQ(std::vector(list.memory.begin() + 16, list.memory.begin() + 96),
            device_bytes(entries));
}

TEST(DvBuilder, invalidate_atomics_and_nop_are_the_same_as_posted) {
  auto wr = plain_request(KEYHOLEDV_WR_INVALIDATE, IBV_SEND_SIGNALED);
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_invalidate(dv, 0xabcd01); }, wr,
              IBV_SEND_SIGNALED);
  wr = plain_request(KEYHOLEDV_WR_MASKED_CMP_SWAP, IBV_SEND_SIGNALED);
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_masked_cmp_swap(dv, &wr.atomic); }, wr,
              IBV_SEND_SIGNALED);
  wr = plain_request(KEYHOLEDV_WR_MASKED_FETCH_ADD);
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_masked_fetch_add(dv, &wr.atomic); }, wr, 0);
  wr = plain_request(KEYHOLEDV_WR_NOP, IBV_SEND_SOLICITED);
  expect_same([&](keyholedv_qp_ex* dv) { keyholedv_wr_nop(dv); }, wr, IBV_SEND_SOLICITED);
}

TEST(DvBuilder, a_batch_mixes_both_headers_calls_and_is_published_at_its_end) {
  QpTest t;
  const auto list = klms(4);
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  ex->wr_flags = 0;
  keyholedv_wr_mr_list(t.qp.dv(), &mkey, kReadWrite, 4, list.data());
  ibv_wr_rdma_write(ex, 0x99, 0x1000);
  ibv_wr_set_sge(ex, mkey.lkey, 0, 64);
  keyholedv_wr_invalidate(t.qp.dv(), mkey.lkey);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 4u);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(0), 0).opcode, KH_OP_UMR_FILL);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(2), 0).opcode, KH_OP_WRITE);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(3), 0).opcode, KH_OP_UMR_INV);
}

TEST(DvBuilder, an_aborted_batch_leaves_nothing_behind) {
  QpTest t;
  const auto list = klms(4);
  ibv_wr_start(t.qp.ex());
  keyholedv_wr_mr_list(t.qp.dv(), &mkey, kReadWrite, 4, list.data());
  ibv_wr_abort(t.qp.ex());
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());
  ibv_wr_start(t.qp.ex());
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
}

TEST(DvBuilder, overflow_fails_the_whole_batch_and_overwrites_nothing) {
  QpTest t;
  auto nop = plain_request(KEYHOLEDV_WR_NOP);
  for (int i = 0; i < 14; i++)
    ASSERT_EQ(t.qp.post_dv(nop), 0);
  (void)t.qp.rung();
  const std::vector before(t.qp.sq_ring.begin(), t.qp.sq_ring.begin() + 14 * 64);
  const auto list = klms(8);  // three blocks
  ListRig klm_list(8);
  ibv_wr_start(t.qp.ex());
  t.qp.ex()->wr_flags = 0;
  keyholedv_wr_nop(t.qp.dv());
  keyholedv_wr_mr_list(t.qp.dv(), &mkey, kReadWrite, 8, list.data());
  auto late = fill_request(list, 0);  // would fit, but the batch is lost
  late.fill.klm_list = &klm_list.list;
  keyholedv_wr_fill(t.qp.dv(), &late.fill);
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), ENOMEM);
  EXPECT_EQ(std::vector(t.qp.sq_ring.begin(), t.qp.sq_ring.begin() + 14 * 64), before);
  EXPECT_EQ(klm_list.memory, std::vector(8 * 24, std::byte{0xdd}));
  EXPECT_EQ(t.qp.db.sq_pi, 14u);
  EXPECT_FALSE(t.qp.rung());
  ibv_wr_start(t.qp.ex());
  keyholedv_wr_nop(t.qp.dv());
  keyholedv_wr_nop(t.qp.dv());
  EXPECT_EQ(ibv_wr_complete(t.qp.ex()), 0);
}

struct BadBatch {
  const char* name;
  std::function<void(QpRig&)> build;
  QpOptions options = {};
};

const std::vector<ibv_sge> kThree = klms(3);
const std::vector<keyholedv_mr_interleaved> kBlocks = strides(3);

class BadDvBatches : public testing::TestWithParam<BadBatch> {};

TEST_P(BadDvBatches, complete_gives_einval_and_posts_nothing_and_the_next_batch_works) {
  QpTest t(GetParam().options);
  ibv_qp_ex* ex = t.qp.ex();
  ibv_wr_start(ex);
  ex->wr_flags = 0;
  keyholedv_wr_nop(t.qp.dv());
  GetParam().build(t.qp);
  ex->wr_flags = 0;
  keyholedv_wr_nop(t.qp.dv());
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());

  set_qp_state(t.qp.qp, IBV_QPS_RTS);
  ibv_wr_start(ex);
  keyholedv_wr_nop(t.qp.dv());
  EXPECT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    DvBuilder, BadDvBatches,
    testing::Values(
        BadBatch{"no_fill", [](QpRig& qp) { keyholedv_wr_fill(qp.dv(), nullptr); }},
        BadBatch{"no_mkey",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), nullptr, kReadWrite, 3, kThree.data());
                 }},
        BadBatch{"no_mkey_interleaved",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_interleaved(qp.dv(), nullptr, kReadWrite, 2, 3, kBlocks.data());
                 }},
        BadBatch{"no_sges",
                 [](QpRig& qp) { keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 3, nullptr); }},
        BadBatch{"a_count_of_0",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 0, kThree.data());
                 }},
        BadBatch{"too_many",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 65, kThree.data());
                 },
                 {.log_sq_blocks = 6}},
        BadBatch{"a_repeat_count_of_0",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_interleaved(qp.dv(), &mkey, kReadWrite, 0, 3, kBlocks.data());
                 }},
        BadBatch{"remote_write_alone",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), &mkey, IBV_ACCESS_REMOTE_WRITE, 3, kThree.data());
                 }},
        BadBatch{"an_unknown_flag",
                 [](QpRig& qp) {
                   qp.ex()->wr_flags = IBV_SEND_IP_CSUM;
                   keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 3, kThree.data());
                 }},
        BadBatch{"neither_inline_nor_a_list",
                 [](QpRig& qp) {
                   const auto wr = fill_request(kThree);
                   keyholedv_wr_fill(qp.dv(), &wr.fill);
                 }},
        BadBatch{"an_inline_nop",
                 [](QpRig& qp) {
                   qp.ex()->wr_flags = IBV_SEND_INLINE;
                   keyholedv_wr_nop(qp.dv());
                 }},
        BadBatch{"an_inline_atomic",
                 [](QpRig& qp) {
                   qp.ex()->wr_flags = IBV_SEND_INLINE;
                   const auto wr = plain_request(KEYHOLEDV_WR_MASKED_CMP_SWAP);
                   keyholedv_wr_masked_cmp_swap(qp.dv(), &wr.atomic);
                 }},
        BadBatch{"no_atomic", [](QpRig& qp) { keyholedv_wr_masked_cmp_swap(qp.dv(), nullptr); }},
        BadBatch{"an_atomic_of_16_bytes",
                 [](QpRig& qp) {
                   auto wr = plain_request(KEYHOLEDV_WR_MASKED_FETCH_ADD);
                   wr.atomic.sge.length = 16;
                   keyholedv_wr_masked_fetch_add(qp.dv(), &wr.atomic);
                 }},
        BadBatch{"a_setter_after_a_fill",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 3, kThree.data());
                   ibv_wr_set_sge(qp.ex(), 1, 2, 3);
                 }},
        BadBatch{"inline_data_after_an_atomic",
                 [](QpRig& qp) {
                   const auto wr = plain_request(KEYHOLEDV_WR_MASKED_CMP_SWAP);
                   keyholedv_wr_masked_cmp_swap(qp.dv(), &wr.atomic);
                   int data = 0;
                   ibv_wr_set_inline_data(qp.ex(), &data, sizeof(data));
                 }},
        BadBatch{"a_fill_on_uc",
                 [](QpRig& qp) {
                   keyholedv_wr_mr_list(qp.dv(), &mkey, kReadWrite, 3, kThree.data());
                 },
                 {.type = IBV_QPT_UC}},
        BadBatch{"an_invalidate_on_ud", [](QpRig& qp) { keyholedv_wr_invalidate(qp.dv(), 1); },
                 {.type = IBV_QPT_UD}},
        BadBatch{"an_atomic_on_a_device_without",
                 [](QpRig& qp) {
                   const auto wr = plain_request(KEYHOLEDV_WR_MASKED_CMP_SWAP);
                   keyholedv_wr_masked_cmp_swap(qp.dv(), &wr.atomic);
                 },
                 {.dv = {.indirect = true, .max_inline_entries = 64, .max_entries = 64}}},
        BadBatch{"a_state_that_does_not_send", [](QpRig&) {}, {.state = IBV_QPS_RTR}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DvBuilder, operations_that_type_or_device_lack_are_refused_at_creation) {
  QpTest rc, uc({.type = IBV_QPT_UC}), old({.dv = {}});
  constexpr std::uint64_t all =
      KEYHOLEDV_QP_EX_WITH_MR_LIST | KEYHOLEDV_QP_EX_WITH_MR_INTERLEAVED |
      KEYHOLEDV_QP_EX_WITH_INVALIDATE | KEYHOLEDV_QP_EX_WITH_MASKED_ATOMIC |
      KEYHOLEDV_QP_EX_WITH_NOP;
  EXPECT_EQ(set_dv_ops(rc.qp.qp, all), 0);
  EXPECT_EQ(set_dv_ops(rc.qp.qp, all << 1), EOPNOTSUPP);
  for (unsigned i = 0; i < 4; i++) {
    EXPECT_EQ(set_dv_ops(uc.qp.qp, 1 << i), EOPNOTSUPP);
    EXPECT_EQ(set_dv_ops(old.qp.qp, 1 << i), EOPNOTSUPP);
  }
  EXPECT_EQ(set_dv_ops(uc.qp.qp, KEYHOLEDV_QP_EX_WITH_NOP), 0);
  EXPECT_EQ(set_dv_ops(old.qp.qp, KEYHOLEDV_QP_EX_WITH_NOP), 0);
}

}  // namespace
}  // namespace keyhole::verbs
