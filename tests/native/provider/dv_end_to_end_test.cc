// SPDX-License-Identifier: BSD-2-Clause
//
// Direct verbs, provider and engine together: mkeys are filled, used on both sides and refilled,
// and what the device refuses comes back with its reason.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "pair.h"

namespace keyhole::verbs {
namespace {

constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

keyholedv_send_wr dv_request(keyholedv_wr_opcode opcode, unsigned flags = 0) {
  keyholedv_send_wr wr{};
  wr.wr_id = 5;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  return wr;
}

keyholedv_send_wr fill_of(const EngineMkey& mkey, std::span<const ibv_sge> list,
                          std::uint64_t start = 0) {
  auto wr = dv_request(KEYHOLEDV_WR_FILL, IBV_SEND_INLINE);
  wr.fill.mkey = mkey.dv.lkey;
  wr.fill.access = kRights;
  wr.fill.start = start;
  wr.fill.num_entries = static_cast<std::uint32_t>(list.size());
  wr.fill.list = list.data();
  return wr;
}

// The bytes that a list names, one after the other.
std::vector<std::byte> gathered(std::span<const ibv_sge> list) {
  std::vector<std::byte> bytes;
  for (const ibv_sge& sge : list) {
    const auto* from = reinterpret_cast<const std::byte*>(sge.addr);
    bytes.insert(bytes.end(), from, from + sge.length);
  }
  return bytes;
}

struct DvTest : Pair {
  explicit DvTest(EngineQpOptions o = {.log_sq_blocks = 7}) : Pair(o) {}

  // The completion of a request that a posts.
  ibv_wc post(keyholedv_send_wr wr) {
    EXPECT_EQ(qp_a.post_dv(wr), 0);
    return one(cq_a);
  }
  // WRITEs what a local mkey names to b.
  ibv_wc write_from(const EngineMkey& mkey, std::uint64_t start, std::uint32_t length,
                    std::size_t to) {
    ibv_sge sge{.addr = start, .length = length, .lkey = mkey.dv.lkey};
    auto wr = request(IBV_WR_RDMA_WRITE, 1, &sge);
    wr.wr.rdma = {mr_b.addr(to), mr_b.mr.rkey};
    EXPECT_EQ(qp_a.post_send(wr), 0);
    return one(cq_a);
  }
  bool arrived(const std::vector<std::byte>& bytes, std::size_t at) {
    return std::memcmp(mr_b.data() + at, bytes.data(), bytes.size()) == 0;
  }
};

TEST(DvEndToEnd, an_inline_fill_gathers_pieces_of_odd_sizes_in_one_write) {
  DvTest t;
  EngineMkey mkey(t.a, 8);
  const std::vector<ibv_sge> list = {t.mr_a.sge(5000, 7), t.mr_a.sge(0, 0), t.mr_a.sge(9, 1000),
                                     t.mr_a.sge(8191, 2), t.mr_a.sge(100, 64)};
  const ibv_wc wc = t.post(fill_of(mkey, list, 0x123450000007));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(int{wc.opcode}, int{KEYHOLEDV_WC_UMR});
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(t.write_from(mkey, 0x123450000007, 1073, 64).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(t.arrived(gathered(list), 64));
}

TEST(DvEndToEnd, a_fill_and_the_write_that_needs_it_go_in_one_batch) {
  DvTest t;
  EngineMkey mkey(t.a, 4);
  const std::vector<ibv_sge> list = {t.mr_a.sge(64, 64), t.mr_a.sge(256, 64), t.mr_a.sge(0, 64),
                                     t.mr_a.sge(1024, 64)};
  ibv_qp_ex* ex = t.qp_a.ex();
  ibv_wr_start(ex);
  ex->wr_flags = 0;
  keyholedv_wr_mr_list(t.qp_a.dv(), &mkey.dv, kRights, 4, list.data());
  ex->wr_flags = 0;
  ibv_wr_rdma_write(ex, t.mr_b.mr.rkey, t.mr_b.addr(300));
  ibv_wr_set_sge(ex, mkey.dv.lkey, 0, 256);
  ex->wr_flags = IBV_SEND_SIGNALED;
  keyholedv_wr_invalidate(t.qp_a.dv(), mkey.dv.lkey);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const ibv_wc wc = t.one(t.cq_a);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(int{wc.opcode}, int{KEYHOLEDV_WC_UMR});
  EXPECT_TRUE(t.arrived(gathered(list), 300));
  // And now it is empty.
  EXPECT_EQ(t.write_from(mkey, 0, 8, 0).status, IBV_WC_LOC_PROT_ERR);
}

TEST(DvEndToEnd, fills_of_every_size_wrap_and_mean_what_they_say) {
  DvTest t({.log_sq_blocks = 5});
  EngineMkey mkey(t.a, KH_MAX_INLINE_ENTRIES);
  for (unsigned count = 1; count <= KH_MAX_INLINE_ENTRIES; count++) {
    SCOPED_TRACE(count);
    std::vector<ibv_sge> list;
    std::uint32_t total = 0;
    for (unsigned i = 0; i < count; i++) {
      list.push_back(t.mr_a.sge((i * 37 + count) % 8000, 1 + (i * 7 + count) % 60));
      total += list.back().length;
    }
    ASSERT_EQ(t.post(fill_of(mkey, list)).status, IBV_WC_SUCCESS);
    ASSERT_EQ(t.write_from(mkey, 0, total, 16).status, IBV_WC_SUCCESS);
    ASSERT_TRUE(t.arrived(gathered(list), 16));
  }
}

TEST(DvEndToEnd, a_strided_column_is_gathered_wherever_the_ring_ends) {
  DvTest t({.log_sq_blocks = 5});
  EngineMkey mkey(t.a, 20);
  for (unsigned turn = 0; turn < 40; turn++) {
    SCOPED_TRACE(turn);
    std::vector<keyholedv_mr_interleaved> blocks;
    for (unsigned i = 0; i < 20; i++)
      blocks.push_back({.addr = t.mr_a.addr(i * 50 + turn),
                        .bytes_count = 1 + (i + turn) % 5,
                        .lkey = t.mr_a.mr.lkey,
                        .stride = 1000 + i});
    std::vector<ibv_sge> same;
    std::uint32_t total = 0;
    for (unsigned round = 0; round < 12; round++)
      for (const auto& block : blocks) {
        same.push_back({.addr = block.addr + round * block.stride,
                        .length = block.bytes_count,
                        .lkey = block.lkey});
        total += block.bytes_count;
      }
    ibv_qp_ex* ex = t.qp_a.ex();
    ibv_wr_start(ex);
    ex->wr_flags = 0;
    keyholedv_wr_mr_interleaved(t.qp_a.dv(), &mkey.dv, kRights, 12, 20, blocks.data());
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    ASSERT_EQ(t.write_from(mkey, 0, total, 8).status, IBV_WC_SUCCESS);
    ASSERT_TRUE(t.arrived(gathered(same), 8));
  }
}

TEST(DvEndToEnd, a_fill_from_a_list_takes_a_thousand_entries_from_an_offset) {
  DvTest t;
  EngineMkey mkey(t.a, 1024);
  EngineKlmList klm_list(t.a, 1100);
  std::vector<ibv_sge> list;
  for (unsigned i = 0; i < 1024; i++)
    list.push_back(t.mr_a.sge((i * 131) % 16000, 1 + i % 13));
  auto wr = fill_of(mkey, list);
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.fill.klm_list = &klm_list.dv;
  wr.fill.klm_offset = 1800;
  EXPECT_EQ(t.post(wr).status, IBV_WC_SUCCESS);
  const auto bytes = gathered(list);
  EXPECT_EQ(t.write_from(mkey, 0, static_cast<std::uint32_t>(bytes.size()), 0).status,
            IBV_WC_SUCCESS);
  EXPECT_TRUE(t.arrived(bytes, 0));
}

TEST(DvEndToEnd, the_peer_reads_and_writes_through_an_rkey) {
  DvTest t;
  EngineMkey mkey(t.a, 4);
  const std::vector<ibv_sge> list = {t.mr_a.sge(1000, 10), t.mr_a.sge(3000, 20),
                                     t.mr_a.sge(2000, 30)};
  ASSERT_EQ(t.post(fill_of(mkey, list, 0x4000)).status, IBV_WC_SUCCESS);
  ibv_sge sge = t.mr_b.sge(0, 60);
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    if (opcode == IBV_WR_RDMA_READ) std::memset(t.mr_b.data() + 100, 0, 60);
    auto wr = request(opcode, 1, &sge);
    if (opcode == IBV_WR_RDMA_READ) sge = t.mr_b.sge(100, 60);
    wr.wr.rdma = {0x4000, mkey.dv.rkey};
    ASSERT_EQ(t.qp_b.post_send(wr), 0);
    EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);
    EXPECT_TRUE(t.arrived(gathered(list), 0));
  }
  EXPECT_TRUE(t.arrived(gathered(list), 100));
}

TEST(DvEndToEnd, masked_atomics_by_post_and_by_builder) {
  DvTest t;
  auto* target = reinterpret_cast<std::uint64_t*>(t.mr_b.data() + 512);
  auto* before = reinterpret_cast<std::uint64_t*>(t.mr_a.data());
  *target = 0x00000000ffffffff;
  auto wr = dv_request(KEYHOLEDV_WR_MASKED_FETCH_ADD);
  wr.atomic = {.remote_addr = t.mr_b.addr(512),
               .rkey = t.mr_b.mr.rkey,
               .reserved = 0,
               .swap_add = 0x0000000100000001,
               .compare = 0,
               .swap_mask = 0x0000000080000000,  // two fields of 32 bits
               .compare_mask = 0,
               .sge = t.mr_a.sge(0, 8)};
  ibv_wc wc = t.post(wr);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(int{wc.opcode}, int{KEYHOLEDV_WC_MASKED_FETCH_ADD});
  EXPECT_EQ(*before, 0x00000000ffffffffu);
  EXPECT_EQ(*target, 0x0000000100000000u);

  keyholedv_masked_atomic swap = wr.atomic;
  swap.compare = 0xdead000100000000;  // the mask spares the upper bits
  swap.compare_mask = 0x0000ffffffffffff;
  swap.swap_add = ~0ull;
  swap.swap_mask = 0xff;
  ibv_qp_ex* ex = t.qp_a.ex();
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  keyholedv_wr_masked_cmp_swap(t.qp_a.dv(), &swap);
  swap.sge = t.mr_a.sge(8, 8);  // a second time it no longer holds
  keyholedv_wr_masked_cmp_swap(t.qp_a.dv(), &swap);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  t.rig.run();
  const auto wcs = t.cq_a.poll();
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(int{wcs[0].opcode}, int{KEYHOLEDV_WC_MASKED_CMP_SWAP});
  EXPECT_EQ(wcs[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(wcs[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(before[0], 0x0000000100000000u);
  EXPECT_EQ(before[1], 0x00000001000000ffu);
  EXPECT_EQ(*target, 0x00000001000000ffu);
}

TEST(DvEndToEnd, a_nop_completes_on_every_type) {
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    DvTest t({.type = type});
    const ibv_wc wc = t.post(dv_request(KEYHOLEDV_WR_NOP));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(int{wc.opcode}, int{KEYHOLEDV_WC_NOP});
  }
}

TEST(DvEndToEnd, a_window_on_an_mkey_opens_its_bytes_and_keeps_it_as_it_is) {
  DvTest t;
  EngineMkey mkey(t.a, 4, KH_ACCESS_MW_BIND);
  const std::vector<ibv_sge> list = {t.mr_a.sge(1000, 10), t.mr_a.sge(3000, 20)};
  ASSERT_EQ(t.post(fill_of(mkey, list, 0x4000)).status, IBV_WC_SUCCESS);
  EngineMw mw(t.a, IBV_MW_TYPE_1);
  ibv_mr as_region{};
  as_region.pd = t.a.pd();
  as_region.lkey = mkey.dv.lkey;
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {&as_region, 0x4005, 15, IBV_ACCESS_REMOTE_READ}};
  ASSERT_EQ(ibv_bind_mw(t.qp_a.ibv(), &mw.mw, &bind), 0);
  ASSERT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  ibv_sge sge = t.mr_b.sge(0, 15);
  auto wr = request(IBV_WR_RDMA_READ, 1, &sge);
  wr.wr.rdma = {0x4005, mw.mw.rkey};
  ASSERT_EQ(t.qp_b.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);
  const auto bytes = gathered(list);
  EXPECT_TRUE(t.arrived({bytes.begin() + 5, bytes.begin() + 20}, 0));
  // With a window bound it is neither refilled nor emptied.
  const ibv_wc wc = t.post(fill_of(mkey, list));
  EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(KH_SYN_CODE(wc.vendor_err), unsigned{KH_SYN_UMR_BUSY});
}

// ---- what the device refuses -------------------------------------------------------------------

struct Refused {
  const char* name;
  unsigned syndrome;
  std::function<void(DvTest&, keyholedv_send_wr&)> spoil;  // a good fill of 3 entries
};

class DvDeviceRefusals : public testing::TestWithParam<Refused> {};

TEST_P(DvDeviceRefusals, complete_with_the_reason_and_the_mkey_keeps_what_it_had) {
  DvTest t;
  EngineMkey mkey(t.a, 4);
  std::vector<ibv_sge> list = {t.mr_a.sge(0, 64), t.mr_a.sge(100, 64), t.mr_a.sge(200, 64)};
  ASSERT_EQ(t.post(fill_of(mkey, list, 0x4000)).status, IBV_WC_SUCCESS);

  std::vector<ibv_sge> other = {t.mr_a.sge(8000, 9), t.mr_a.sge(7000, 9), t.mr_a.sge(6000, 9)};
  auto wr = fill_of(mkey, other);
  wr.fill.list = other.data();
  GetParam().spoil(t, wr);
  const ibv_wc wc = t.post(wr);
  EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(int{wc.opcode}, int{KEYHOLEDV_WC_UMR});
  EXPECT_EQ(wc.vendor_err, GetParam().syndrome) << std::hex << wc.vendor_err;

  t.qp_a.modify(IBV_QPS_RESET);
  t.qp_b.modify(IBV_QPS_RESET);
  t.qp_a.connect(t.qp_b);
  t.qp_b.connect(t.qp_a);
  EXPECT_EQ(t.write_from(mkey, 0x4000, 192, 0).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(t.arrived(gathered(list), 0));
}

ibv_sge* entries(keyholedv_send_wr& wr) { return const_cast<ibv_sge*>(wr.fill.list); }
constexpr unsigned entry_syndrome(unsigned entry, unsigned reason) {
  return entry << 16 | KH_SYN_UMR_ENTRY | reason;
}

INSTANTIATE_TEST_SUITE_P(
    DvEndToEnd, DvDeviceRefusals,
    testing::Values(
        Refused{"no_such_mkey", KH_SYN_UMR_KEY,
                [](DvTest&, auto& wr) { wr.fill.mkey = 0x77777700; }},
        Refused{"a_stale_mkey", KH_SYN_UMR_KEY, [](DvTest&, auto& wr) { wr.fill.mkey ^= 1; }},
        Refused{"a_region_for_an_mkey", KH_SYN_UMR_KIND,
                [](DvTest& t, auto& wr) { wr.fill.mkey = t.mr_a.mr.lkey; }},
        Refused{"an_entry_of_no_key", entry_syndrome(1, KH_SYN_KEY_NONE),
                [](DvTest&, auto& wr) { entries(wr)[1].lkey = 0x77777700; }},
        Refused{"an_entry_outside_its_region", entry_syndrome(2, KH_SYN_KEY_RANGE),
                [](DvTest&, auto& wr) { entries(wr)[2].length = 1 << 20; }},
        Refused{"an_entry_of_a_window", entry_syndrome(0, KH_SYN_KEY_KIND),
                [](DvTest& t, auto& wr) {
                  entries(wr)[0].lkey = EngineMw(t.a, IBV_MW_TYPE_1).mw.rkey;
                }},
        Refused{"rights_that_no_mkey_was_given", KH_SYN_UMR_ACCESS,
                [](DvTest&, auto& wr) { wr.fill.access |= IBV_ACCESS_MW_BIND; }},
        Refused{"addresses_that_wrap", KH_SYN_UMR_RANGE,
                [](DvTest&, auto& wr) { wr.fill.start = ~0ull; }},
        Refused{"more_entries_than_it_was_created_for", KH_SYN_UMR_COUNT,
                [](DvTest& t, auto& wr) {
                  static std::vector<ibv_sge> five;
                  five.assign(5, t.mr_a.sge(0, 1));
                  wr.fill.list = five.data();
                  wr.fill.num_entries = 5;
                }},
        Refused{"a_list_that_is_none", KH_SYN_UMR_LIST,
                [](DvTest& t, auto& wr) {
                  static keyholedv_klm_list none;
                  none = {.addr = t.mr_a.data(),
                          .length = 4096,
                          .max_entries = 170,
                          .key = t.mr_a.mr.lkey};
                  wr.send_flags = IBV_SEND_SIGNALED;
                  wr.fill.klm_list = &none;
                }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace keyhole::verbs
