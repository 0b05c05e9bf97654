// SPDX-License-Identifier: BSD-2-Clause
//
// keyholedv_post_send against the ring: the bytes of each request, wherever the ring ends, and what
// is refused without a trace.

#include <gtest/gtest.h>

#include <functional>

#include "dv_rig.h"

namespace keyhole::verbs {
namespace {

std::vector<std::byte> first(const std::vector<std::byte>& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

template <class List>
void expect_inline_fill(const keyholedv_send_wr& wr, const List& list, unsigned log_sq_blocks,
                        std::uint32_t start) {
  QpTest t({.log_sq_blocks = log_sq_blocks});
  t.qp.qp.sq.pi = t.qp.qp.sq.ci = start;
  keyholedv_send_wr request = wr;
  ASSERT_EQ(t.qp.post_dv(request), 0);

  const auto entries = device_bytes(list);
  const unsigned nblocks = 1 + static_cast<unsigned>((entries.size() + 63) / 64);
  auto expected = fill_block(wr, nblocks);
  expected.insert(expected.end(), entries.begin(), entries.end());
  const auto wqe = t.qp.wqe(start);
  ASSERT_EQ(wqe.size(), nblocks * 64u);
  EXPECT_EQ(first(wqe, expected.size()), expected);
  EXPECT_EQ(t.qp.db.sq_pi, start + nblocks);
  EXPECT_TRUE(t.qp.rung());
  // Nobody else's block was touched.
  for (unsigned i = nblocks; i < (1u << log_sq_blocks); i++)
    for (unsigned byte = 0; byte < 64; byte++)
      ASSERT_EQ(t.qp.sq_ring[(start + i) % (1u << log_sq_blocks) * 64 + byte], std::byte{0xee});
}

TEST(PostFill, klms_of_every_number_follow_the_first_block) {
  for (unsigned count = 1; count <= KH_MAX_INLINE_ENTRIES; count++) {
    SCOPED_TRACE(count);
    const auto list = klms(count);
    expect_inline_fill(fill_request(list), list, 6, 3);
  }
}

TEST(PostFill, klms_wrap_wherever_the_ring_ends) {
  const auto list = klms(23);
  for (std::uint32_t start = 0; start < 16; start++) {
    SCOPED_TRACE(start);
    expect_inline_fill(fill_request(list), list, 4, start);
  }
  expect_inline_fill(fill_request(list), list, 4, 0xfffffffd);  // and wherever the index does
}

TEST(PostFill, strided_entries_of_every_number_follow_the_first_block) {
  for (unsigned count = 1; count <= KH_MAX_INLINE_ENTRIES; count++) {
    SCOPED_TRACE(count);
    const auto list = strides(count);
    expect_inline_fill(fill_request(list, 1000000), list, 6, 3);
  }
}

TEST(PostFill, a_strided_entry_may_lie_across_the_end_of_the_ring) {
  const auto list = strides(23);
  for (std::uint32_t start = 0; start < 16; start++) {
    SCOPED_TRACE(start);
    expect_inline_fill(fill_request(list, 5), list, 4, start);
  }
}

TEST(PostFill, flags_are_carried_and_sq_sig_all_signals) {
  const auto list = klms(1);
  const auto wr = fill_request(
      list, IBV_SEND_INLINE | IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  expect_inline_fill(wr, list, 4, 0);
  QpTest t({.sq_sig_all = true});
  auto quiet = fill_request(list);
  ASSERT_EQ(t.qp.post_dv(quiet), 0);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(0), 0).flags, KH_WQE_SIGNALED | KH_WQE_INLINE);
}

TEST(PostFill, zero_based_makes_start_zero_and_hints_are_dropped) {
  QpTest t;
  const auto list = klms(1);
  auto wr = fill_request(list);
  wr.fill.access = kReadWrite | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND |
                   IBV_ACCESS_RELAXED_ORDERING;
  ASSERT_EQ(t.qp.post_dv(wr), 0);
  const auto umr = part<kh_wqe_umr>(t.qp.wqe(0), 16);
  EXPECT_EQ(umr.start, 0u);
  EXPECT_EQ(umr.access, kReadWrite | KH_ACCESS_ZERO_BASED | KH_ACCESS_MW_BIND);
}

TEST(PostFill, from_a_list_is_one_block_and_its_entries_are_in_the_list) {
  QpTest t;
  ListRig list(300);
  const auto entries = klms(200);
  auto wr = fill_request(entries, IBV_SEND_SIGNALED);
  wr.fill.klm_list = &list.list;
  wr.fill.klm_offset = 72;
  ASSERT_EQ(t.qp.post_dv(wr), 0);
  EXPECT_EQ(t.qp.wqe(0), fill_block(wr, 1, 0xfeed02, 72));
  EXPECT_EQ(t.qp.db.sq_pi, 1u);

  std::vector<std::byte> expected(300 * 24, std::byte{0xdd});
  const auto bytes = device_bytes(entries);
  std::copy(bytes.begin(), bytes.end(), expected.begin() + 72);
  EXPECT_EQ(list.memory, expected);
}

TEST(PostFill, a_list_holds_its_number_of_either_kind_to_the_last_byte) {
  QpTest t;
  ListRig list(10);
  const auto blocks = strides(10);
  auto wr = fill_request(blocks, 3, 0);
  wr.fill.klm_list = &list.list;
  ASSERT_EQ(t.qp.post_dv(wr), 0);
  EXPECT_EQ(list.memory, device_bytes(blocks));

  const auto entries = klms(10);
  wr = fill_request(entries, 0);
  wr.fill.klm_list = &list.list;
  wr.fill.klm_offset = 80;
  ASSERT_EQ(t.qp.post_dv(wr), 0);
  EXPECT_EQ(std::vector(list.memory.begin() + 80, list.memory.end()), device_bytes(entries));
}

TEST(PostFill, entries_may_be_put_together_in_the_list_itself) {
  QpTest t;
  ListRig list(20);
  const auto entries = klms(20);
  std::memcpy(list.memory.data(), entries.data(), 320);
  auto wr = fill_request(entries, 0);
  wr.fill.list = reinterpret_cast<const ibv_sge*>(list.memory.data());
  wr.fill.klm_list = &list.list;
  wr.fill.klm_offset = 8;  // overlapping, too
  ASSERT_EQ(t.qp.post_dv(wr), 0);
  EXPECT_EQ(std::vector(list.memory.begin() + 8, list.memory.begin() + 328),
            device_bytes(entries));
}

TEST(PostDv, invalidate_and_nop_are_bare_blocks) {
  QpTest t;
  auto inv = plain_request(KEYHOLEDV_WR_INVALIDATE, IBV_SEND_FENCE | IBV_SEND_SIGNALED);
  auto nop = plain_request(KEYHOLEDV_WR_NOP);
  inv.next = &nop;
  ASSERT_EQ(t.qp.post_dv(inv), 0);
  auto ctrl = part<kh_wqe_ctrl>(t.qp.wqe(0), 0);
  EXPECT_EQ(ctrl.opcode, KH_OP_UMR_INV);
  EXPECT_EQ(ctrl.flags, KH_WQE_FENCE | KH_WQE_SIGNALED);
  EXPECT_EQ(ctrl.nblocks, 1);
  EXPECT_EQ(ctrl.num_sge, 0);
  EXPECT_EQ(ctrl.imm, 0xabcd01u);
  EXPECT_EQ(ctrl.wr_id, 0x77u);
  ctrl = part<kh_wqe_ctrl>(t.qp.wqe(1), 0);
  EXPECT_EQ(ctrl.opcode, KH_OP_NOP);
  EXPECT_EQ(ctrl.flags, 0);
  EXPECT_EQ(ctrl.nblocks, 1);
  EXPECT_EQ(ctrl.imm, 0u);
  EXPECT_EQ(t.qp.db.sq_pi, 2u);
}

TEST(PostDv, masked_atomics_have_both_masks_and_their_sge_in_the_next_block) {
  for (const std::uint32_t start : {0u, 15u}) {
    for (const auto opcode : {KEYHOLEDV_WR_MASKED_CMP_SWAP, KEYHOLEDV_WR_MASKED_FETCH_ADD}) {
      QpTest t;
      t.qp.qp.sq.pi = t.qp.qp.sq.ci = start;
      auto wr = plain_request(opcode, IBV_SEND_SIGNALED);
      ASSERT_EQ(t.qp.post_dv(wr), 0);
      const auto wqe = t.qp.wqe(start);
      const auto ctrl = part<kh_wqe_ctrl>(wqe, 0);
      EXPECT_EQ(ctrl.opcode, opcode == KEYHOLEDV_WR_MASKED_CMP_SWAP ? KH_OP_MASKED_CMP_SWAP
                                                                    : KH_OP_MASKED_FETCH_ADD);
      EXPECT_EQ(ctrl.nblocks, 2);
      EXPECT_EQ(ctrl.num_sge, 1);
      EXPECT_EQ(ctrl.flags, KH_WQE_SIGNALED);
      const auto rdma = part<kh_wqe_rdma>(wqe, 16);
      EXPECT_EQ(rdma.remote_addr, 0x10008u);
      EXPECT_EQ(rdma.rkey, 0x99u);
      EXPECT_EQ(rdma.inline_len, 0u);
      const auto atomic = part<kh_wqe_masked_atomic>(wqe, 32);
      EXPECT_EQ(atomic.swap_add, wr.atomic.swap_add);
      EXPECT_EQ(atomic.compare, wr.atomic.compare);
      EXPECT_EQ(atomic.swap_mask, wr.atomic.swap_mask);
      EXPECT_EQ(atomic.compare_mask, wr.atomic.compare_mask);
      const auto sge = part<kh_sge>(wqe, 64);
      EXPECT_EQ(sge.addr, 0x5000u);
      EXPECT_EQ(sge.length, 8u);
      EXPECT_EQ(sge.lkey, 0x55u);
    }
  }
}

TEST(PostDv, a_nop_is_for_every_type_and_state_that_sends) {
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    QpTest t({.type = type, .dv = {}});  // and for a device that has nothing else
    auto wr = plain_request(KEYHOLEDV_WR_NOP);
    EXPECT_EQ(t.qp.post_dv(wr), 0);
    for (const auto state : {IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
      set_qp_state(t.qp.qp, state);
      EXPECT_EQ(t.qp.post_dv(wr), 0);
    }
  }
}

TEST(PostDv, it_mixes_with_ibv_post_send_in_one_queue) {
  QpTest t;
  auto nop = plain_request(KEYHOLEDV_WR_NOP);
  ibv_send_wr inv{};
  inv.opcode = IBV_WR_LOCAL_INV;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(t.qp.post_dv(nop), 0);
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &inv, &bad), 0);
  ASSERT_EQ(t.qp.post_dv(nop), 0);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(1), 0).opcode, KH_OP_LOCAL_INV);
  EXPECT_EQ(part<kh_wqe_ctrl>(t.qp.wqe(2), 0).opcode, KH_OP_NOP);
  EXPECT_EQ(t.qp.db.sq_pi, 3u);
}

TEST(PostDv, a_full_ring_gives_enomem_and_writes_neither_ring_nor_list) {
  QpTest t;  // 16 blocks
  const auto entries = klms(20);
  auto big = fill_request(entries);  // 6 blocks
  ASSERT_EQ(t.qp.post_dv(big), 0);
  ASSERT_EQ(t.qp.post_dv(big), 0);
  (void)t.qp.rung();
  const auto ring = t.qp.sq_ring;
  keyholedv_send_wr* bad = nullptr;
  EXPECT_EQ(t.qp.post_dv(big, &bad), ENOMEM);
  EXPECT_EQ(bad, &big);
  EXPECT_EQ(t.qp.sq_ring, ring);
  EXPECT_EQ(t.qp.db.sq_pi, 12u);
  EXPECT_FALSE(t.qp.rung());

  auto nop = plain_request(KEYHOLEDV_WR_NOP);
  for (int i = 0; i < 3; i++)
    ASSERT_EQ(t.qp.post_dv(nop), 0);
  auto atomic = plain_request(KEYHOLEDV_WR_MASKED_FETCH_ADD);
  EXPECT_EQ(t.qp.post_dv(atomic), ENOMEM);  // two blocks where one is free
  ASSERT_EQ(t.qp.post_dv(nop), 0);
  ListRig list(20);
  auto wr = fill_request(entries, 0);
  wr.fill.klm_list = &list.list;
  for (keyholedv_send_wr* each : {&nop, &atomic, &wr})
    EXPECT_EQ(t.qp.post_dv(*each), ENOMEM);
  auto inv = plain_request(KEYHOLEDV_WR_INVALIDATE);
  EXPECT_EQ(t.qp.post_dv(inv), ENOMEM);
  EXPECT_EQ(list.memory, std::vector(480, std::byte{0xdd}));
  EXPECT_EQ(t.qp.db.sq_pi, 16u);
}

// ---- refusals ----------------------------------------------------------------------------------

struct Refusal {
  const char* name;
  std::function<void(keyholedv_send_wr&)> spoil;  // a good inline fill of 3 KLMs
  QpOptions options = {};
};

ListRig& shared_list() {
  static ListRig list(8);
  return list;
}

// From a list, which is good as it is.
void from_list(keyholedv_send_wr& wr) {
  wr.send_flags = 0;
  wr.fill.klm_list = &shared_list().list;
}

void become(keyholedv_send_wr& wr, keyholedv_wr_opcode opcode) { wr = plain_request(opcode); }

class DvRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(DvRefusals, einval_at_the_right_request_while_those_before_it_are_posted) {
  QpTest t(GetParam().options);
  // A NOP goes before and after it wherever the QP can send at all.
  keyholedv_send_wr before = plain_request(KEYHOLEDV_WR_NOP), after = before;
  const auto list = klms(3);
  keyholedv_send_wr bad_one = fill_request(list);
  GetParam().spoil(bad_one);
  const auto ring = t.qp.sq_ring;
  keyholedv_send_wr* bad = nullptr;

  bad_one.next = &after;
  EXPECT_EQ(t.qp.post_dv(bad_one, &bad), EINVAL);
  EXPECT_EQ(bad, &bad_one);
  EXPECT_EQ(t.qp.post_dv(bad_one, nullptr), EINVAL);
  EXPECT_EQ(t.qp.sq_ring, ring);
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_FALSE(t.qp.rung());
  EXPECT_EQ(shared_list().memory, std::vector(8 * 24, std::byte{0xdd}));

  if (t.qp.qp.state != IBV_QPS_RTS) return;
  before.next = &bad_one;
  EXPECT_EQ(t.qp.post_dv(before, &bad), EINVAL);
  EXPECT_EQ(bad, &bad_one);
  EXPECT_EQ(t.qp.db.sq_pi, 1u);
  EXPECT_TRUE(t.qp.rung());
}

INSTANTIATE_TEST_SUITE_P(
    PostDv, DvRefusals,
    testing::Values(
        Refusal{"no_entries", [](auto& wr) { wr.fill.num_entries = 0; }},
        Refusal{"no_list", [](auto& wr) { wr.fill.list = nullptr; }},
        Refusal{"more_inline_entries_than_the_device_takes",
                [](auto& wr) { wr.fill.num_entries = KH_MAX_INLINE_ENTRIES + 1; },
                {.log_sq_blocks = 6}},
        Refusal{"an_absurd_count", [](auto& wr) { wr.fill.num_entries = 0xffffffff; }},
        Refusal{"a_count_whose_bytes_wrap", [](auto& wr) { wr.fill.num_entries = 0x10000001; }},
        Refusal{"more_blocks_than_the_ring_has", [](auto&) {}, {.log_sq_blocks = 0}},
        Refusal{"unknown_access", [](auto& wr) { wr.fill.access |= 1u << 6; }},
        Refusal{"huge_tlb_access", [](auto& wr) { wr.fill.access |= IBV_ACCESS_HUGETLB; }},
        Refusal{"flush_access", [](auto& wr) { wr.fill.access |= KH_ACCESS_FLUSH_GLOBAL; }},
        Refusal{"remote_write_without_local_write",
                [](auto& wr) { wr.fill.access = IBV_ACCESS_REMOTE_WRITE; }},
        Refusal{"remote_atomic_without_local_write",
                [](auto& wr) { wr.fill.access = IBV_ACCESS_REMOTE_ATOMIC; }},
        Refusal{"neither_inline_nor_a_list", [](auto& wr) { wr.send_flags = 0; }},
        Refusal{"an_offset_that_is_not_aligned",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.klm_offset = 4;
                }},
        Refusal{"a_list_too_short",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.num_entries = 13;
                }},
        Refusal{"a_list_too_short_from_there_on",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.klm_offset = 8 * 24 - 40;
                }},
        Refusal{"an_offset_beyond_the_list",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.klm_offset = 8 * 25;
                }},
        Refusal{"an_offset_that_wraps",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.klm_offset = ~std::uint64_t{7};
                }},
        Refusal{"strided_entries_where_klms_would_fit",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.num_entries = 9;
                  wr.fill.repeat_count = 1;
                }},
        Refusal{"more_entries_than_any_mkey_has",
                [](auto& wr) {
                  from_list(wr);
                  wr.fill.num_entries = 3;
                },
                {.dv = {.indirect = true, .max_inline_entries = 64, .max_entries = 2}}},
        Refusal{"an_unknown_flag", [](auto& wr) { wr.send_flags |= IBV_SEND_IP_CSUM; }},
        Refusal{"an_unknown_opcode",
                [](auto& wr) {
                  const std::uint32_t number = KEYHOLEDV_WR_NOP + 1;
                  std::memcpy(&wr.opcode, &number, sizeof(number));
                }},
        Refusal{"an_absurd_opcode",
                [](auto& wr) {
                  const std::uint32_t number = 0x80000000;
                  std::memcpy(&wr.opcode, &number, sizeof(number));
                }},
        Refusal{"an_inline_invalidate",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_INVALIDATE);
                  wr.send_flags = IBV_SEND_INLINE;
                }},
        Refusal{"an_inline_nop",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_NOP);
                  wr.send_flags = IBV_SEND_INLINE;
                }},
        Refusal{"an_inline_atomic",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_MASKED_CMP_SWAP);
                  wr.send_flags = IBV_SEND_INLINE;
                }},
        Refusal{"an_atomic_of_4_bytes",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_MASKED_CMP_SWAP);
                  wr.atomic.sge.length = 4;
                }},
        Refusal{"an_atomic_that_is_not_aligned",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_MASKED_FETCH_ADD);
                  wr.atomic.remote_addr += 4;
                }},
        Refusal{"a_fetch_add_that_compares",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_MASKED_FETCH_ADD);
                  wr.atomic.compare = 1;
                }},
        Refusal{"a_fetch_add_with_a_compare_mask",
                [](auto& wr) {
                  become(wr, KEYHOLEDV_WR_MASKED_FETCH_ADD);
                  wr.atomic.compare_mask = 1;
                }},
        Refusal{"an_atomic_on_a_qp_without_sges",
                [](auto& wr) { become(wr, KEYHOLEDV_WR_MASKED_FETCH_ADD); },
                {.max_send_sge = 0}},
        Refusal{"an_atomic_in_a_ring_of_one_block",
                [](auto& wr) { become(wr, KEYHOLEDV_WR_MASKED_FETCH_ADD); },
                {.log_sq_blocks = 0}},
        Refusal{"a_fill_on_uc", [](auto&) {}, {.type = IBV_QPT_UC}},
        Refusal{"a_fill_on_ud", [](auto&) {}, {.type = IBV_QPT_UD}},
        Refusal{"an_invalidate_on_uc", [](auto& wr) { become(wr, KEYHOLEDV_WR_INVALIDATE); },
                {.type = IBV_QPT_UC}},
        Refusal{"an_atomic_on_uc", [](auto& wr) { become(wr, KEYHOLEDV_WR_MASKED_CMP_SWAP); },
                {.type = IBV_QPT_UC}},
        Refusal{"a_fill_on_a_device_without", [](auto&) {}, {.dv = {.masked_atomic = true}}},
        Refusal{"an_atomic_on_a_device_without",
                [](auto& wr) { become(wr, KEYHOLEDV_WR_MASKED_CMP_SWAP); },
                {.dv = {.indirect = true, .max_inline_entries = 64, .max_entries = 64}}},
        Refusal{"anything_in_reset", [](auto&) {}, {.state = IBV_QPS_RESET}},
        Refusal{"anything_in_init", [](auto& wr) { become(wr, KEYHOLEDV_WR_NOP); },
                {.state = IBV_QPS_INIT}},
        Refusal{"anything_in_rtr", [](auto& wr) { become(wr, KEYHOLEDV_WR_INVALIDATE); },
                {.state = IBV_QPS_RTR}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace keyhole::verbs
