// SPDX-License-Identifier: BSD-2-Clause
//
// Provider and engine together: what the fast path writes, the device executes, and what the device
// reports, the fast path delivers. Two HCAs, connected.

#include <gtest/gtest.h>

#include "pair.h"

namespace keyhole::verbs {
namespace {

TEST(EndToEnd, send_and_receive) {
  Pair t;
  ASSERT_EQ(t.qp_b.post_recv(7, t.mr_b.sge(100, 4096)), 0);
  ibv_sge sge = t.mr_a.sge(3, 1000);
  auto wr = request(IBV_WR_SEND_WITH_IMM, 9, &sge);
  wr.imm_data = 0x11223344;
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  const ibv_wc sent = t.one(t.cq_a);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 9u);
  const ibv_wc received = t.one(t.cq_b);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.byte_len, 1000u);
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(received.imm_data, 0x11223344u);
  EXPECT_EQ(received.qp_num, t.qp_b.ibv()->qp_num);
  EXPECT_TRUE(t.same(3, 100, 1000));
}

TEST(EndToEnd, writes_gathered_inline_and_with_immediate) {
  Pair t;
  std::array<ibv_sge, 3> sges = {t.mr_a.sge(0, 10), t.mr_a.sge(100, 200), t.mr_a.sge(1000, 1)};
  auto wr = request(IBV_WR_RDMA_WRITE, 1, sges.data(), 3);
  wr.wr.rdma = {t.mr_b.addr(64), t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(t.same(0, 64, 10));
  EXPECT_TRUE(t.same(100, 74, 200));
  EXPECT_TRUE(t.same(1000, 274, 1));

  const auto data = pattern(200, 9);
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(data.data()), 200, 0};  // no key: inline
  wr = request(IBV_WR_RDMA_WRITE, 2, &sge);
  wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma = {t.mr_b.addr(2000), t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(t.mr_b.data() + 2000, data.data(), 200), 0);

  ASSERT_EQ(t.qp_b.post_recv(5, t.mr_b.sge(0, 0)), 0);
  sge = t.mr_a.sge(500, 33);
  wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, 3, &sge);
  wr.imm_data = 0x77;
  wr.wr.rdma = {t.mr_b.addr(9000), t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).opcode, IBV_WC_RDMA_WRITE);
  const ibv_wc received = t.one(t.cq_b);
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, 0x77u);
  EXPECT_EQ(received.byte_len, 33u);
  EXPECT_TRUE(t.same(500, 9000, 33));
}

// Who owns the engine tells by it whether there was work, also when none is left.
TEST(EndToEnd, turns_are_counted_when_there_was_work_and_only_then) {
  Pair t;
  t.rig.run();
  const std::uint64_t before = t.rig.turns();
  EXPECT_FALSE(t.rig.turn());
  EXPECT_EQ(t.rig.turns(), before);

  ibv_sge sge = t.mr_a.sge(0, 8);
  auto wr = request(IBV_WR_RDMA_WRITE, 1, &sge);
  wr.wr.rdma = {t.mr_b.addr(0), t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_GT(t.rig.turns(), before);
}

TEST(EndToEnd, read_scatters_what_it_fetched) {
  Pair t;
  std::array<ibv_sge, 2> sges = {t.mr_a.sge(8000, 100), t.mr_a.sge(9000, 50)};
  auto wr = request(IBV_WR_RDMA_READ, 1, sges.data(), 2);
  wr.wr.rdma = {t.mr_b.addr(300), t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  const ibv_wc wc = t.one(t.cq_a);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 150u);
  EXPECT_TRUE(t.same(8000, 300, 100));
  EXPECT_TRUE(t.same(9000, 400, 50));
}

TEST(EndToEnd, atomics_by_post_and_by_builder) {
  Pair t;
  auto* target = reinterpret_cast<std::uint64_t*>(t.mr_b.data() + 512);
  auto* before = reinterpret_cast<std::uint64_t*>(t.mr_a.data());
  *target = 40;
  ibv_sge sge = t.mr_a.sge(0, 8);
  auto wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &sge);
  wr.wr.atomic = {
      .remote_addr = t.mr_b.addr(512), .compare_add = 2, .swap = 0, .rkey = t.mr_b.mr.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(*before, 40u);
  EXPECT_EQ(*target, 42u);

  ibv_qp_ex* ex = t.qp_a.ex();
  ibv_wr_start(ex);
  ex->wr_id = 2;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_cmp_swp(ex, t.mr_b.mr.rkey, t.mr_b.addr(512), 42, 99);
  ibv_wr_set_sge(ex, t.mr_a.mr.lkey, t.mr_a.addr(), 8);
  ibv_wr_atomic_cmp_swp(ex, t.mr_b.mr.rkey, t.mr_b.addr(512), 42, 1);  // no longer 42
  ibv_wr_set_sge(ex, t.mr_a.mr.lkey, t.mr_a.addr(8), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  t.rig.run();
  const auto wcs = t.cq_a.poll();
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(wcs[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(before[0], 42u);
  EXPECT_EQ(before[1], 99u);
  EXPECT_EQ(*target, 99u);
}

// Each turn of the SQ has WQEs of another size at its end.
TEST(EndToEnd, many_turns_of_the_ring_with_requests_of_all_sizes) {
  Pair t({.log_sq_blocks = 4});
  std::size_t posted = 0, done = 0;
  std::uint64_t expect = 0;
  for (unsigned round = 0; round < 300; round++) {
    const std::uint32_t length = 1 + round * 7 % 256;
    const auto data = pattern(length, round);
    ibv_qp_ex* ex = t.qp_a.ex();
    ibv_wr_start(ex);
    ex->wr_id = posted;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, t.mr_b.mr.rkey, t.mr_b.addr(round % 1000));
    if (round % 2)
      ibv_wr_set_inline_data(ex, const_cast<std::byte*>(data.data()), length);
    else {
      std::memcpy(t.mr_a.data(), data.data(), length);
      std::array<ibv_sge, 8> sges{};
      for (unsigned i = 0; i < 8; i++) {
        const unsigned from = length * i / 8, to = length * (i + 1) / 8;
        sges[i] = t.mr_a.sge(from, to - from);
      }
      ibv_wr_set_sge_list(ex, 8, sges.data());
    }
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    posted++;
    t.rig.run();
    ASSERT_EQ(std::memcmp(t.mr_b.data() + round % 1000, data.data(), length), 0) << round;
    for (const auto& wc : t.cq_a.poll()) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, expect++);
      done++;
    }
  }
  EXPECT_EQ(done, posted);
}

TEST(EndToEnd, unsignaled_requests_free_their_blocks_and_overflow_loses_nothing) {
  Pair t({.log_sq_blocks = 4});
  const auto word = reinterpret_cast<std::uint64_t*>(t.mr_b.data());
  *word = 0;
  ibv_sge sge = t.mr_a.sge(0, 8);
  std::uint64_t posted = 0, refused = 0;
  for (unsigned i = 0; i < 1000; i++) {
    auto wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, &sge);
    wr.wr.atomic = {
        .remote_addr = t.mr_b.addr(), .compare_add = 1, .swap = 0, .rkey = t.mr_b.mr.rkey};
    wr.send_flags = i % 5 == 4 ? IBV_SEND_SIGNALED : 0;
    const int error = t.qp_a.post_send(wr);
    ASSERT_TRUE(error == 0 || error == ENOMEM);
    error ? refused++ : posted++;
    if (i % 37 == 36) {
      t.rig.run();
      t.cq_a.poll();
    }
  }
  t.rig.run();
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(*word, posted);
}

TEST(EndToEnd, type_1_window_bound_used_narrowed_and_revoked) {
  Pair t;
  EngineMw mw(t.b, IBV_MW_TYPE_1);
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {&t.mr_b.mr, t.mr_b.addr(4096), 4096,
                                 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}};
  const std::uint32_t unbound = mw.mw.rkey;
  ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  const std::uint32_t wide = mw.mw.rkey;
  EXPECT_NE(wide, unbound);
  const ibv_wc bound = t.one(t.cq_b);
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);

  ibv_sge sge = t.mr_a.sge(0, 64);
  auto wr = request(IBV_WR_RDMA_WRITE, 2, &sge);
  wr.wr.rdma = {t.mr_b.addr(8192 - 64), wide};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(t.same(0, 8192 - 64, 64));

  // Three binds in flight at once: the last one counts.
  for (unsigned length : {512u, 256u, 128u}) {
    bind.bind_info.length = length;
    ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  }
  t.rig.run();
  const auto wcs = t.cq_b.poll();
  ASSERT_EQ(wcs.size(), 3u);
  for (const auto& wc : wcs)
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  wr.wr.rdma = {t.mr_b.addr(4096 + 64), mw.mw.rkey};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);

  bind.bind_info = {nullptr, 0, 0, 0};
  const std::uint32_t narrow = mw.mw.rkey;
  ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);
  wr.wr.rdma = {t.mr_b.addr(4096), narrow};
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(EndToEnd, a_bind_outside_its_region_completes_with_a_bind_error_and_flushes_the_rest) {
  Pair t;
  EngineMw mw(t.b, IBV_MW_TYPE_1);
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = 0,
                   .bind_info = {&t.mr_b.mr, t.mr_b.addr(16384 - 10), 11, IBV_ACCESS_REMOTE_READ}};
  ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  bind.wr_id = 2;
  ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  t.rig.run();
  const auto wcs = t.cq_b.poll();
  ASSERT_EQ(wcs.size(), 2u);
  EXPECT_EQ(wcs[0].status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(wcs[0].vendor_err, unsigned{KH_SYN_BIND_RANGE});
  EXPECT_EQ(wcs[0].wr_id, 1u);
  EXPECT_EQ(wcs[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST(EndToEnd, type_2_window_by_post_and_builder_invalidated_here_and_by_the_peer) {
  Pair t;
  EngineMw mw(t.b, IBV_MW_TYPE_2);
  const ibv_mw_bind_info info{&t.mr_b.mr, t.mr_b.addr(0), 1024, IBV_ACCESS_REMOTE_WRITE};
  auto wr = request(IBV_WR_BIND_MW, 1, nullptr, 0);
  wr.bind_mw = {&mw.mw, ibv_inc_rkey(mw.mw.rkey), info};
  ASSERT_EQ(t.qp_b.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);
  mw.mw.rkey = wr.bind_mw.rkey;

  ibv_sge sge = t.mr_a.sge(10, 64);
  auto write = request(IBV_WR_RDMA_WRITE, 2, &sge);
  write.wr.rdma = {t.mr_b.addr(0), mw.mw.rkey};
  ASSERT_EQ(t.qp_a.post_send(write), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);

  auto inv = request(IBV_WR_LOCAL_INV, 3, nullptr, 0);
  inv.invalidate_rkey = mw.mw.rkey;
  ASSERT_EQ(t.qp_b.post_send(inv), 0);
  const ibv_wc invalidated = t.one(t.cq_b);
  EXPECT_EQ(invalidated.status, IBV_WC_SUCCESS);
  EXPECT_EQ(invalidated.opcode, IBV_WC_LOCAL_INV);

  ibv_qp_ex* ex = t.qp_b.ex();
  ibv_wr_start(ex);
  ex->wr_id = 4;
  ex->wr_flags = IBV_SEND_SIGNALED;
  const std::uint32_t key = ibv_inc_rkey(mw.mw.rkey);
  ibv_wr_bind_mw(ex, &mw.mw, key, &info);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);

  ASSERT_EQ(t.qp_b.post_recv(5, t.mr_b.sge(2000, 64)), 0);
  auto send = request(IBV_WR_SEND_WITH_INV, 6, &sge);
  send.invalidate_rkey = key;
  ASSERT_EQ(t.qp_a.post_send(send), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  const ibv_wc received = t.one(t.cq_b);
  EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(received.invalidated_rkey, key);

  write.wr.rdma.rkey = key;
  ASSERT_EQ(t.qp_a.post_send(write), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(EndToEnd, an_error_flushes_in_order_and_receives_posted_later_too) {
  Pair t;
  ASSERT_EQ(t.qp_a.post_recv(100, t.mr_a.sge(0, 10)), 0);
  ibv_sge sge = t.mr_a.sge(0, 8);
  auto wr = request(IBV_WR_RDMA_WRITE, 0, &sge);
  wr.send_flags = 0;
  wr.wr.rdma = {t.mr_b.addr(0), t.mr_b.mr.rkey ^ 1};  // a stale key
  for (unsigned i = 0; i < 5; i++) {
    wr.wr_id = i;
    ASSERT_EQ(t.qp_a.post_send(wr), 0);
  }
  t.rig.run();
  auto wcs = t.cq_a.poll();
  ASSERT_EQ(wcs.size(), 6u);
  EXPECT_EQ(wcs[0].status, IBV_WC_REM_ACCESS_ERR);
  for (unsigned i = 0; i < 5; i++)
    EXPECT_EQ(wcs[i].wr_id, i);
  for (unsigned i = 1; i < 6; i++)
    EXPECT_EQ(wcs[i].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wcs[5].wr_id, 100u);
  EXPECT_EQ(wcs[5].opcode, IBV_WC_RECV);

  ASSERT_EQ(t.qp_a.post_recv(101, t.mr_a.sge(0, 10)), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(t.qp_a.post_send(wr), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_WR_FLUSH_ERR);
}

TEST(EndToEnd, a_qp_that_was_reset_starts_anew_without_its_old_completions) {
  Pair t;
  ibv_sge sge = t.mr_a.sge(0, 8);
  auto wr = request(IBV_WR_RDMA_WRITE, 1, &sge);
  wr.wr.rdma = {t.mr_b.addr(0), t.mr_b.mr.rkey};
  for (int i = 0; i < 40; i++)
    ASSERT_EQ(t.qp_a.post_send(wr), 0);
  t.rig.run();  // 40 unread
  for (EngineQp* qp : {&t.qp_a, &t.qp_b})
    qp->modify(IBV_QPS_RESET);
  EXPECT_TRUE(t.cq_a.poll().empty());
  EXPECT_EQ(t.qp_a.post_send(wr), EINVAL);
  t.qp_a.connect(t.qp_b);
  t.qp_b.connect(t.qp_a);
  wr.wr_id = 2;
  for (int i = 0; i < 64; i++)
    ASSERT_EQ(t.qp_a.post_send(wr), 0);
  ASSERT_EQ(t.qp_a.post_send(wr), ENOMEM);
  t.rig.run();
  const auto wcs = t.cq_a.poll();
  ASSERT_EQ(wcs.size(), 64u);
  for (const auto& wc : wcs) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 2u);
  }
}

TEST(EndToEnd, a_destroyed_qps_completions_are_gone_and_its_neighbours_are_not) {
  Pair t;
  ibv_sge sge = t.mr_a.sge(0, 8);
  auto wr = request(IBV_WR_RDMA_WRITE, 1, &sge);
  wr.wr.rdma = {t.mr_b.addr(0), t.mr_b.mr.rkey};
  {
    EngineQp dies(t.a, t.cq_a, t.cq_a), peer(t.b, t.cq_b, t.cq_b);
    dies.connect(peer);
    peer.connect(dies);
    for (int i = 0; i < 3; i++) {
      ASSERT_EQ(dies.post_send(wr), 0);
      ASSERT_EQ(t.qp_a.post_send(wr), 0);
    }
    t.rig.run();
    dies.destroy();
    peer.destroy();
  }
  const auto wcs = t.cq_a.poll();
  ASSERT_EQ(wcs.size(), 3u);
  for (const auto& wc : wcs)
    EXPECT_EQ(wc.qp_num, t.qp_a.ibv()->qp_num);
}

TEST(EndToEnd, uc_sends_writes_and_binds) {
  Pair t({.type = IBV_QPT_UC});
  ASSERT_EQ(t.qp_b.post_recv(7, t.mr_b.sge(0, 4096)), 0);
  ibv_sge sge = t.mr_a.sge(0, 3000);
  ASSERT_EQ(t.qp_a.post_send(request(IBV_WR_SEND, 1, &sge)), 0);
  EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
  EXPECT_EQ(t.one(t.cq_b).byte_len, 3000u);
  EXPECT_TRUE(t.same(0, 0, 3000));
  EngineMw mw(t.b, IBV_MW_TYPE_1);
  ibv_mw_bind bind{.wr_id = 2,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {&t.mr_b.mr, t.mr_b.addr(0), 100, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(ibv_bind_mw(t.qp_b.ibv(), &mw.mw, &bind), 0);
  EXPECT_EQ(t.one(t.cq_b).status, IBV_WC_SUCCESS);
}

TEST(EndToEnd, ud_sends_to_an_address_and_tells_the_receiver_from_whom) {
  Pair t({.type = IBV_QPT_UD});
  Ah ah;
  ah.av = t.a.driver().path_to(t.b.driver());
  for (const bool inline_data : {false, true}) {
    ASSERT_EQ(t.qp_b.post_recv(7, t.mr_b.sge(0, 1000)), 0);
    ibv_sge sge = t.mr_a.sge(0, 200);
    auto wr = request(IBV_WR_SEND_WITH_IMM, 1, &sge);
    if (inline_data) wr.send_flags |= IBV_SEND_INLINE;
    wr.imm_data = 5;
    wr.wr.ud = {&ah.ibv, t.qp_b.ibv()->qp_num, 0x1234};
    ASSERT_EQ(t.qp_a.post_send(wr), 0);
    EXPECT_EQ(t.one(t.cq_a).status, IBV_WC_SUCCESS);
    const ibv_wc wc = t.one(t.cq_b);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 240u);
    EXPECT_EQ(wc.src_qp, t.qp_a.ibv()->qp_num);
    EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
    EXPECT_TRUE(t.same(0, 40, 200));
    std::memset(t.mr_b.data(), 0, 1000);
  }
}

TEST(EndToEnd, an_srq_feeds_two_qps) {
  EngineRig rig;
  Station &a = rig.at(0), &b = rig.at(1);
  EngineCq cq_a(a, 7), cq_b(b, 7);
  EngineSrq srq(b, 3);
  EngineQp a0(a, cq_a, cq_a), a1(a, cq_a, cq_a);
  EngineQp b0(b, cq_b, cq_b, {}, &srq), b1(b, cq_b, cq_b, {}, &srq);
  EngineMr mr_a(a, 4096, kAllAccess, 1), mr_b(b, 4096, kAllAccess, 2);
  a0.connect(b0), b0.connect(a0), a1.connect(b1), b1.connect(a1);
  const auto post = [&](std::uint64_t wr_id) {
    ibv_sge sge = mr_b.sge(wr_id % 8 * 64, 64);
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(&srq.srq.ibv, &wr, &bad);
  };
  std::uint64_t posted = 0, received = 0;
  while (post(posted) == 0)
    posted++;
  EXPECT_EQ(posted, 8u);
  for (unsigned i = 0; i < 200; i++) {
    ibv_sge sge = mr_a.sge(i, 64);
    ASSERT_EQ((i % 3 ? a0 : a1).post_send(request(IBV_WR_SEND, i, &sge)), 0);
    rig.run();
    for (const auto& wc : cq_b.poll()) {
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, received);
      ASSERT_EQ(wc.qp_num, (i % 3 ? b0 : b1).ibv()->qp_num);
      ASSERT_EQ(std::memcmp(mr_b.data() + received % 8 * 64, mr_a.data() + i, 64), 0);
      received++;
    }
    cq_a.poll();
    ASSERT_EQ(post(posted), 0);
    posted++;
    ASSERT_EQ(post(posted), ENOMEM);
  }
  EXPECT_EQ(received, 200u);
}

TEST(EndToEnd, extended_polling_gives_device_timestamps_that_move_forward) {
  EngineRig rig;
  Station &a = rig.at(0), &b = rig.at(1);
  EngineCq cq_a(a, 7, KH_CQ_TIMESTAMP), cq_b(b, 7);
  EngineQp qp_a(a, cq_a, cq_a), qp_b(b, cq_b, cq_b);
  EngineMr mr_a(a, 4096, kAllAccess, 1), mr_b(b, 4096, kAllAccess, 2);
  qp_a.connect(qp_b), qp_b.connect(qp_a);
  std::uint64_t last = 0;
  for (unsigned i = 0; i < 3; i++) {
    ibv_sge sge = mr_a.sge(0, 64);
    auto wr = request(IBV_WR_RDMA_WRITE, i, &sge);
    wr.wr.rdma = {mr_b.addr(), mr_b.mr.rkey};
    ASSERT_EQ(qp_a.post_send(wr), 0);
    rig.run_for(1000);
    ibv_poll_cq_attr attr{};
    ASSERT_EQ(ibv_start_poll(&cq_a.cq.ex, &attr), 0);
    EXPECT_EQ(cq_a.cq.ex.wr_id, i);
    EXPECT_EQ(cq_a.cq.ex.status, IBV_WC_SUCCESS);
    EXPECT_GT(ibv_wc_read_completion_ts(&cq_a.cq.ex), last);
    last = ibv_wc_read_completion_ts(&cq_a.cq.ex);
    ibv_end_poll(&cq_a.cq.ex);
  }
}

TEST(EndToEnd, an_armed_cq_fires_once_and_a_solicited_one_only_for_what_is_solicited) {
  Pair t;
  const auto events = [&] {
    t.b.driver().completion_eq.arm();
    t.rig.run();
    int count = 0;
    for (kh_eqe eqe{}; t.b.driver().completion_eq.poll(eqe);)
      count += eqe.type == KH_EV_COMPLETION && eqe.id == t.cq_b.hw.cqn;
    return count;
  };
  const auto send = [&](unsigned flags) {
    ASSERT_EQ(t.qp_b.post_recv(1, t.mr_b.sge(0, 64)), 0);
    ibv_sge sge = t.mr_a.sge(0, 8);
    auto wr = request(IBV_WR_SEND, 1, &sge);
    wr.send_flags |= flags;
    ASSERT_EQ(t.qp_a.post_send(wr), 0);
  };
  send(0);
  EXPECT_EQ(events(), 0) << "not armed";
  ASSERT_EQ(ibv_req_notify_cq(t.cq_b.ibv(), 0), 0);
  send(0);
  send(0);
  EXPECT_EQ(events(), 1);
  cq_event(t.cq_b.ibv());
  ASSERT_EQ(ibv_req_notify_cq(t.cq_b.ibv(), 1), 0);
  send(0);
  EXPECT_EQ(events(), 0);
  send(IBV_SEND_SOLICITED);
  EXPECT_EQ(events(), 1);
}

// The program and the device at the same time, on shared queues: what the doorbell protocol is for.
TEST(EndToEnd, threads_post_and_poll_while_the_engine_runs) {
  test::Rig::Options options;
  options.host.real_clock = true;
  options.hca.idle_ns = 0;  // asleep as often as can be
  EngineRig rig(options);
  Station &a = rig.at(0), &b = rig.at(1);
  EngineCq cq_a(a, 8), cq_b(b, 8);
  EngineQp qp_a(a, cq_a, cq_a), qp_b(b, cq_b, cq_b);
  EngineMr mr_a(a, 4096, kAllAccess, 1), mr_b(b, 4096, kAllAccess, 2);
  qp_a.connect(qp_b), qp_b.connect(qp_a);
  const auto word = reinterpret_cast<std::uint64_t*>(mr_b.data());
  *word = 0;
  constexpr unsigned each = 2000, posters = 2;
  std::atomic<unsigned> done = 0, failed = 0;
  {
    const EngineThread engine(rig);
    std::vector<std::thread> threads;
    for (unsigned p = 0; p < posters; p++)
      threads.emplace_back([&] {
        for (unsigned i = 0; i < each; i++) {
          ibv_sge sge = mr_a.sge(8, 8);
          auto wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, &sge);
          wr.wr.atomic = {
              .remote_addr = mr_b.addr(), .compare_add = 1, .swap = 0, .rkey = mr_b.mr.rkey};
          while (qp_a.post_send(wr) == ENOMEM)
            std::this_thread::yield();
        }
      });
    threads.emplace_back([&] {
      while (done < posters * each) {
        const auto wcs = cq_a.poll();
        for (const auto& wc : wcs)
          failed += wc.status != IBV_WC_SUCCESS;
        done += wcs.size();
        if (wcs.empty()) std::this_thread::yield();
      }
    });
    for (auto& thread : threads)
      thread.join();
  }
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(*word, posters * each);
}

}  // namespace
}  // namespace keyhole::verbs
