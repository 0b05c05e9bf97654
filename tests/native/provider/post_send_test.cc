// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_post_send: every opcode's bytes, wrapping, overflow, and what is refused.

#include <gtest/gtest.h>

#include "rig.h"

namespace keyhole::verbs {
namespace {

ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id = 1) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.wr_id = wr_id;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

kh_wqe_ctrl ctrl_of(const QpRig& qp, std::uint32_t index) {
  return part<kh_wqe_ctrl>(qp.wqe(index), 0);
}

TEST(PostSend, write_puts_address_key_and_sges_into_the_wqe) {
  QpTest t;
  ibv_sge sges[2] = {{0x1111222233334444, 100, 0xaa01}, {0x5555666677778888, 7, 0xbb02}};
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 0xdeadbeefcafe);
  wr.sg_list = sges;
  wr.num_sge = 2;
  wr.imm_data = 0x12345678;  // not of this opcode: must not leak into the WQE
  wr.wr.rdma = {0x9999aaaabbbbcccc, 0xcc03};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);

  const auto wqe = t.qp.wqe(0);
  const auto ctrl = part<kh_wqe_ctrl>(wqe, 0);
  EXPECT_EQ(ctrl.opcode, KH_OP_WRITE);
  EXPECT_EQ(ctrl.flags, KH_WQE_SIGNALED);
  EXPECT_EQ(ctrl.nblocks, 1);
  EXPECT_EQ(ctrl.num_sge, 2);
  EXPECT_EQ(ctrl.imm, 0u);
  EXPECT_EQ(ctrl.wr_id, 0xdeadbeefcafeu);
  const auto rdma = part<kh_wqe_rdma>(wqe, 16);
  EXPECT_EQ(rdma.remote_addr, 0x9999aaaabbbbcccc);
  EXPECT_EQ(rdma.rkey, 0xcc03u);
  EXPECT_EQ(rdma.inline_len, 0u);
  EXPECT_EQ(std::memcmp(wqe.data() + 32, sges, sizeof(sges)), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 1u);
  EXPECT_TRUE(t.qp.rung());
  EXPECT_EQ(bad, nullptr);
}

struct MessageOpcode {
  ibv_wr_opcode verbs;
  kh_wqe_opcode device;
  bool imm;
  bool remote;
};

class MessageOpcodes : public testing::TestWithParam<MessageOpcode> {};

TEST_P(MessageOpcodes, has_its_number_its_immediate_and_its_remote_address) {
  const auto& p = GetParam();
  QpTest t;
  ibv_sge sge{4096, 64, 0x100};
  ibv_send_wr wr = request(p.verbs);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.imm_data = 0x01020304;
  wr.wr.rdma = {0x1234, 0x5600};
  wr.send_flags = IBV_SEND_FENCE | IBV_SEND_SOLICITED;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  const auto wqe = t.qp.wqe(0);
  const auto ctrl = part<kh_wqe_ctrl>(wqe, 0);
  EXPECT_EQ(ctrl.opcode, p.device);
  EXPECT_EQ(ctrl.flags, KH_WQE_FENCE | KH_WQE_SOLICITED);
  EXPECT_EQ(ctrl.num_sge, 1);
  EXPECT_EQ(ctrl.imm, p.imm ? 0x01020304u : 0u);
  EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).remote_addr, p.remote ? 0x1234u : 0u);
  EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).rkey, p.remote ? 0x5600u : 0u);
  EXPECT_EQ(part<kh_sge>(wqe, 32).addr, 4096u);
}

INSTANTIATE_TEST_SUITE_P(
    PostSend, MessageOpcodes,
    testing::Values(MessageOpcode{IBV_WR_SEND, KH_OP_SEND, false, false},
                    MessageOpcode{IBV_WR_SEND_WITH_IMM, KH_OP_SEND_IMM, true, false},
                    MessageOpcode{IBV_WR_SEND_WITH_INV, KH_OP_SEND_INV, true, false},
                    MessageOpcode{IBV_WR_RDMA_WRITE, KH_OP_WRITE, false, true},
                    MessageOpcode{IBV_WR_RDMA_WRITE_WITH_IMM, KH_OP_WRITE_IMM, true, true},
                    MessageOpcode{IBV_WR_RDMA_READ, KH_OP_READ, false, true}));

TEST(PostSend, atomics_carry_both_operands_and_one_sge_in_one_block) {
  QpTest t;
  ibv_sge sge{0x8000, 8, 0x900};
  ibv_send_wr swap = request(IBV_WR_ATOMIC_CMP_AND_SWP);
  swap.sg_list = &sge;
  swap.num_sge = 1;
  swap.wr.atomic = {.remote_addr = 0x100, .compare_add = 11, .swap = 22, .rkey = 0x700};
  ibv_send_wr add = swap;
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  swap.next = &add;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &swap, &bad), 0);

  const auto first = t.qp.wqe(0);
  EXPECT_EQ(part<kh_wqe_ctrl>(first, 0).opcode, KH_OP_CMP_SWAP);
  EXPECT_EQ(part<kh_wqe_ctrl>(first, 0).nblocks, 1);
  EXPECT_EQ(part<kh_wqe_ctrl>(first, 0).num_sge, 1);
  EXPECT_EQ(part<kh_wqe_rdma>(first, 16).rkey, 0x700u);
  EXPECT_EQ(part<kh_wqe_rdma>(first, 16).remote_addr, 0x100u);
  EXPECT_EQ(part<kh_wqe_atomic>(first, 32).compare, 11u);
  EXPECT_EQ(part<kh_wqe_atomic>(first, 32).swap_add, 22u);
  EXPECT_EQ(part<kh_sge>(first, 48).addr, 0x8000u);
  const auto second = t.qp.wqe(1);
  EXPECT_EQ(part<kh_wqe_ctrl>(second, 0).opcode, KH_OP_FETCH_ADD);
  EXPECT_EQ(part<kh_wqe_atomic>(second, 32).swap_add, 11u);
  EXPECT_EQ(part<kh_wqe_atomic>(second, 32).compare, 0u);
}

TEST(PostSend, atomics_take_exactly_one_sge) {
  QpTest t;
  ibv_sge sges[2] = {{0x8000, 4, 1}, {0x9000, 4, 1}};
  for (int count : {0, 2, -1}) {
    ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD);
    wr.sg_list = sges;
    wr.num_sge = count;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), EINVAL) << count;
    EXPECT_EQ(bad, &wr);
  }
}

TEST(PostSend, local_invalidate_is_a_bare_wqe_with_the_key) {
  QpTest t;
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV);
  wr.invalidate_rkey = 0xabcd01;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(ctrl_of(t.qp, 0).opcode, KH_OP_LOCAL_INV);
  EXPECT_EQ(ctrl_of(t.qp, 0).imm, 0xabcd01u);
  EXPECT_EQ(ctrl_of(t.qp, 0).nblocks, 1);
  EXPECT_EQ(ctrl_of(t.qp, 0).num_sge, 0);
}

TEST(PostSend, ud_send_carries_the_address_vector_and_data_from_the_second_block) {
  QpTest t({.type = IBV_QPT_UD});
  Ah ah;
  for (unsigned i = 0; i < sizeof(ah.av); i++)
    reinterpret_cast<std::uint8_t*>(&ah.av)[i] = static_cast<std::uint8_t>(i + 1);
  ibv_sge sge{0x4000, 33, 0x600};
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.imm_data = 0x99;
  wr.wr.ud = {&ah.ibv, 0x123456, 0x11111111};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  const auto wqe = t.qp.wqe(0);
  ASSERT_EQ(wqe.size(), 128u);
  const auto ud = part<kh_wqe_ud>(wqe, 16);
  EXPECT_EQ(std::memcmp(&ud.av, &ah.av, sizeof(ah.av)), 0);
  EXPECT_EQ(ud.dest_qpn, 0x123456u);
  EXPECT_EQ(ud.qkey, 0x11111111u);
  EXPECT_EQ(ud.inline_len, 0u);
  EXPECT_EQ(ud.rsvd, 0u);
  EXPECT_EQ(part<kh_sge>(wqe, 64).addr, 0x4000u);
  EXPECT_EQ(part<kh_wqe_ctrl>(wqe, 0).imm, 0x99u);
}

TEST(PostSend, ud_inline_data_starts_in_the_second_block) {
  QpTest t({.type = IBV_QPT_UD});
  Ah ah;
  const auto data = pattern(100);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(data.data()), 100, 0};
  ibv_send_wr wr = request(IBV_WR_SEND);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.ud = {&ah.ibv, 2, 3};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  const auto wqe = t.qp.wqe(0);
  ASSERT_EQ(wqe.size(), 192u);
  EXPECT_EQ(part<kh_wqe_ud>(wqe, 16).inline_len, 100u);
  EXPECT_EQ(std::memcmp(wqe.data() + 64, data.data(), 100), 0);
}

TEST(PostSend, ud_without_an_address_handle_is_refused) {
  QpTest t({.type = IBV_QPT_UD});
  ibv_send_wr wr = request(IBV_WR_SEND);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_FALSE(t.qp.rung());
}

TEST(PostSend, inline_data_of_every_length_arrives_whole_and_leaves_the_next_block_alone) {
  for (std::uint32_t len = 0; len <= 256; len++) {
    QpTest t;
    const auto data = pattern(len, len);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(data.data()), len, 0};
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_INLINE;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
    const auto wqe = t.qp.wqe(0);
    ASSERT_EQ(wqe.size(), (32u + len + 63) / 64 * 64) << len;
    EXPECT_EQ(part<kh_wqe_ctrl>(wqe, 0).flags, KH_WQE_SIGNALED | KH_WQE_INLINE);
    EXPECT_EQ(part<kh_wqe_ctrl>(wqe, 0).num_sge, 0);
    EXPECT_EQ(part<kh_wqe_rdma>(wqe, 16).inline_len, len);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), wqe.begin() + 32)) << len;
    for (std::size_t i = wqe.size(); i < wqe.size() + 64; i++)
      ASSERT_EQ(t.qp.sq_ring[i], std::byte{0xee}) << len << " at " << i;
  }
}

// Pieces of odd sizes, at every possible place of the ring's end.
TEST(PostSend, inline_pieces_wrap_at_the_end_of_the_ring_wherever_it_falls) {
  for (std::uint32_t start = 0; start < 16; start++) {
    QpTest t;
    t.qp.qp.sq.pi = t.qp.qp.sq.ci = start;
    const auto data = pattern(251, start);
    std::array<ibv_sge, 5> sges{};
    const std::array<std::uint32_t, 5> sizes = {1, 70, 0, 33, 147};
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); i++) {
      sges[i] = {reinterpret_cast<std::uintptr_t>(data.data()) + at, sizes[i], 0};
      at += sizes[i];
    }
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
    wr.sg_list = sges.data();
    wr.num_sge = 5;
    wr.send_flags |= IBV_SEND_INLINE;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
    const auto wqe = t.qp.wqe(start);
    ASSERT_EQ(wqe.size(), 5u * 64);
    EXPECT_EQ(std::memcmp(wqe.data() + 32, data.data(), 251), 0) << start;
    EXPECT_EQ(t.qp.db.sq_pi, start + 5);
  }
}

TEST(PostSend, sges_wrap_at_the_end_of_the_ring_wherever_it_falls) {
  for (std::uint32_t start = 0; start < 16; start++) {
    QpTest t;
    t.qp.qp.sq.pi = t.qp.qp.sq.ci = 0xfffffff0u + start;  // and the index itself wraps
    std::array<ibv_sge, 8> sges{};
    for (unsigned i = 0; i < 8; i++)
      sges[i] = {0x1000ull * (i + 1), i + 1, 0x100 + i};
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.sg_list = sges.data();
    wr.num_sge = 8;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
    const auto wqe = t.qp.wqe(0xfffffff0u + start);
    ASSERT_EQ(wqe.size(), 3u * 64);
    EXPECT_EQ(std::memcmp(wqe.data() + 32, sges.data(), sizeof(sges)), 0) << start;
  }
}

TEST(PostSend, a_full_ring_gives_enomem_and_what_fit_stands) {
  QpTest t;
  std::array<ibv_send_wr, 20> chain{};
  for (unsigned i = 0; i < chain.size(); i++) {
    chain[i] = request(IBV_WR_SEND, i);
    chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[16]);
  EXPECT_EQ(t.qp.db.sq_pi, 16u);
  EXPECT_TRUE(t.qp.rung());
  for (unsigned i = 0; i < 16; i++)
    EXPECT_EQ(ctrl_of(t.qp, i).wr_id, i);

  // Nothing more until a completion is polled; then as much as it says.
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &chain[16], &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[16]);
  EXPECT_FALSE(t.qp.rung());
  t.send_cq.put(t.qp.send_cqe(3, 2));
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(t.send_cq.ibv(), 1, &wc), 1);
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &chain[16], &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[19]);
  EXPECT_EQ(t.qp.db.sq_pi, 19u);
  for (unsigned i = 3; i < 19; i++)
    EXPECT_EQ(ctrl_of(t.qp, i).wr_id, i);
}

TEST(PostSend, a_wqe_of_several_blocks_needs_all_of_them_free) {
  QpTest t;
  std::array<ibv_sge, 8> sges{};
  ibv_send_wr wr = request(IBV_WR_SEND);
  wr.sg_list = sges.data();
  wr.num_sge = 8;  // three blocks
  ibv_send_wr* bad = nullptr;
  for (int i = 0; i < 5; i++)
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), ENOMEM);
  wr.num_sge = 2;  // but one is left
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), ENOMEM);
}

TEST(PostSend, sq_sig_all_signals_everything) {
  QpTest t({.sq_sig_all = true});
  ibv_send_wr wr = request(IBV_WR_SEND);
  wr.send_flags = 0;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(ctrl_of(t.qp, 0).flags, KH_WQE_SIGNALED);
}

struct Refusal {
  const char* name;
  QpOptions options;
  std::uint32_t opcode;  // enum ibv_wr_opcode, or no value of it
  int num_sge = 0;
  unsigned flags = 0;
  std::uint32_t length = 1;
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, einval_at_the_right_request_while_those_before_it_are_posted) {
  const auto& p = GetParam();
  QpTest t(p.options);
  std::array<std::byte, 4096> buffer{};
  std::array<ibv_sge, 16> sges{};
  for (auto& sge : sges)
    sge = {reinterpret_cast<std::uintptr_t>(buffer.data()), p.length, 0};
  Ah ah;
  const bool opens = p.options.state == IBV_QPS_RTS;

  ibv_send_wr good = request(IBV_WR_SEND);
  ibv_send_wr refused = request(IBV_WR_SEND, 2);
  std::memcpy(&refused.opcode, &p.opcode, sizeof(p.opcode));
  good.wr.ud.ah = &ah.ibv;
  good.next = opens ? &refused : nullptr;
  ibv_send_wr* first = opens ? &good : &refused;
  refused.sg_list = sges.data();
  refused.num_sge = p.num_sge;
  refused.send_flags = p.flags;
  refused.wr.ud.ah = &ah.ibv;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), first, &bad), EINVAL);
  EXPECT_EQ(bad, &refused);
  EXPECT_EQ(t.qp.db.sq_pi, opens ? 1u : 0u);
  EXPECT_EQ(t.qp.rung(), opens);
}

constexpr std::uint32_t kNoSuchOpcode = 4711;
constexpr std::uint32_t kNegativeOpcode = 0xffffffff;

INSTANTIATE_TEST_SUITE_P(
    PostSend, Refusals,
    testing::Values(
        Refusal{"too_many_sges", {}, IBV_WR_SEND, 9}, Refusal{"negative_sges", {}, IBV_WR_SEND, -1},
        Refusal{"inline_too_long", {}, IBV_WR_SEND, 2, IBV_SEND_INLINE, 129},
        Refusal{"inline_sum_overflows", {}, IBV_WR_SEND, 2, IBV_SEND_INLINE, 0x80000000u},
        Refusal{"inline_read", {}, IBV_WR_RDMA_READ, 1, IBV_SEND_INLINE},
        Refusal{"inline_atomic", {}, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, IBV_SEND_INLINE, 8},
        Refusal{"inline_invalidate", {}, IBV_WR_LOCAL_INV, 0, IBV_SEND_INLINE},
        Refusal{"unknown_flag", {}, IBV_WR_SEND, 0, 1u << 30},
        Refusal{"checksum_offload", {}, IBV_WR_SEND, 0, IBV_SEND_IP_CSUM},
        Refusal{"tso", {}, IBV_WR_TSO}, Refusal{"driver_opcode", {}, IBV_WR_DRIVER1},
        Refusal{"opcode_out_of_range", {}, kNoSuchOpcode},
        Refusal{"opcode_negative", {}, kNegativeOpcode},
        Refusal{"uc_read", {.type = IBV_QPT_UC}, IBV_WR_RDMA_READ, 1},
        Refusal{"uc_atomic", {.type = IBV_QPT_UC}, IBV_WR_ATOMIC_CMP_AND_SWP, 1},
        Refusal{"ud_write", {.type = IBV_QPT_UD}, IBV_WR_RDMA_WRITE},
        Refusal{"ud_send_with_invalidate", {.type = IBV_QPT_UD}, IBV_WR_SEND_WITH_INV},
        Refusal{"ud_local_invalidate", {.type = IBV_QPT_UD}, IBV_WR_LOCAL_INV},
        Refusal{"ud_bind", {.type = IBV_QPT_UD}, IBV_WR_BIND_MW},
        Refusal{"bind_without_a_window", {}, IBV_WR_BIND_MW},
        Refusal{"in_reset", {.state = IBV_QPS_RESET}, IBV_WR_SEND},
        Refusal{"in_init", {.state = IBV_QPS_INIT}, IBV_WR_SEND},
        Refusal{"in_rtr", {.state = IBV_QPS_RTR}, IBV_WR_SEND}),
    [](const auto& test) { return test.param.name; });

TEST(PostSend, the_error_states_take_requests_so_that_they_are_flushed) {
  for (ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_SQE, IBV_QPS_SQD}) {
    QpTest t({.state = state});
    ibv_send_wr wr = request(IBV_WR_SEND);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0) << state;
    EXPECT_TRUE(t.qp.rung());
  }
}

TEST(Doorbell, a_sleeping_device_is_woken_and_an_awake_one_is_not) {
  QpTest t;
  ibv_send_wr wr = request(IBV_WR_SEND);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(t.qp.pages.wake[0], 0u);
  t.qp.pages.status.sleeping = 1;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_NE(t.qp.pages.wake[0], 0u);
}

TEST(Doorbell, a_chain_rings_once_after_its_last_request) {
  QpTest t;
  std::array<ibv_send_wr, 3> chain{};
  for (unsigned i = 0; i < 3; i++) {
    chain[i] = request(IBV_WR_SEND, i);
    chain[i].next = i < 2 ? &chain[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), chain.data(), &bad), 0);
  EXPECT_EQ(t.qp.db.sq_pi, 3u);
}

TEST(SendQueueSize, blocks_for_the_largest_request_of_each_type) {
  EXPECT_EQ(sq_wqe_blocks(IBV_QPT_RC, 2, 0), 1u);
  EXPECT_EQ(sq_wqe_blocks(IBV_QPT_RC, 3, 0), 2u);
  EXPECT_EQ(sq_wqe_blocks(IBV_QPT_RC, 1, 33), 2u);
  EXPECT_EQ(sq_wqe_blocks(IBV_QPT_UD, 1, 0), 2u);
  EXPECT_EQ(sq_wqe_blocks(IBV_QPT_UD, KH_MAX_SGE, KH_MAX_INLINE), 17u);
  EXPECT_LE(sq_wqe_blocks(IBV_QPT_RC, KH_MAX_SGE, KH_MAX_INLINE), unsigned{KH_MAX_WQE_BLOCKS});
}

}  // namespace
}  // namespace keyhole::verbs
