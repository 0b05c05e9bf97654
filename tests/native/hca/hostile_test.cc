// SPDX-License-Identifier: BSD-2-Clause
//
// A driver that sends nonsense: random commands about random objects with random fields, in memory
// that comes and goes, with marks and wakes at any time. The device may refuse all of it. It may
// not crash, reach beyond its memory (this runs under the sanitizers too), lose count of what
// exists, or stop serving another HCA.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "harness.h"
#include "hca/guest_access.h"

namespace keyhole::test {
namespace {

class Nonsense {
 public:
  Nonsense(Rig& rig, uint32_t seed) : rig_(rig), random_(seed) {
    pool_ = host().allocate(pool_size);
    lists_ = host().allocate(64 * KH_PAGE_SIZE);
    // Lists of pages that mostly exist.
    for (size_t i = 0; i < 64 * 512; ++i) {
      uint64_t page = host().iova(pool_ + (i % (pool_size / KH_PAGE_SIZE)) * KH_PAGE_SIZE);
      std::memcpy(lists_ + i * 8, &page, 8);
    }
  }

  void step() {
    switch (pick(12)) {
      case 0:
        ring();
        break;
      case 1:
        flip_memory();
        break;
      case 2:
        rig_.host(0).advance(pick(1000) * 1000);
        break;
      case 3:
        scribble();
        break;
      default:
        command();
    }
  }

  uint32_t accepted = 0;
  uint32_t refused = 0;
  uint32_t queue_pairs = 0;

 private:
  static constexpr size_t pool_size = 64 * KH_PAGE_SIZE;

  FakeHost& host() { return rig_.host(0); }
  uint32_t pick(uint32_t below) { return random_() % below; }

  void ring() {
    uint32_t context = pick(4);
    std::memset(host().doorbell_page(context) + pick(KH_DB_SLOTS - 8),
                static_cast<int>(1 + pick(255)), pick(8));
    if (pick(2)) rig_.hca(0).wake(pick(20));
    rig_.run();
  }

  void flip_memory() {
    std::byte* at = pool_ + size_t{pick(64)} * KH_PAGE_SIZE;
    switch (pick(4)) {
      case 0:
        host().unmap(at, KH_PAGE_SIZE);
        break;
      case 1:
        host().write_protect(at, KH_PAGE_SIZE);
        break;
      default:
        host().map(pool_, pool_size);
    }
  }

  // Rings and records are somewhere in the pool.
  void scribble() {
    size_t at = pick(pool_size - 64) & ~7u;
    for (size_t i = 0; i < 8; ++i) {
      auto value = static_cast<uint32_t>(pick(3) ? pick(64) : random_());
      store_relaxed(pool_ + at + i * 4, value);
    }
  }

  enum Kind { pd, mkey, eq, cq, srq, qp, kinds };

  // Usually one that has been handed out; it may be gone by now.
  uint32_t number(Kind kind) {
    const auto& known = known_[kind];
    if (!known.empty() && pick(8)) return known[pick(known.size())];
    return pick(3) ? pick(8) : random_();
  }

  static Kind kind_of(kh_admin_op opcode) {
    switch (opcode & ~7) {
      case KH_ADM_CREATE_EQ:
        return opcode >= KH_ADM_CREATE_PD ? pd : eq;
      case KH_ADM_CREATE_MKEY:
        return mkey;
      case KH_ADM_CREATE_CQ:
        return cq;
      case KH_ADM_CREATE_SRQ:
        return srq;
      default:
        return qp;
    }
  }

  uint64_t address() {
    switch (pick(8)) {
      case 0:
        return random_();
      case 1:
        return ~uint64_t{0} - pick(8192);
      default:
        return host().iova(pool_ + size_t{pick(64)} * KH_PAGE_SIZE) + (pick(8) ? 0 : pick(4096));
    }
  }

  kh_pages pages() {
    // Often the whole pool, so that what follows has a chance.
    if (pick(2)) return host().pages(pool_, pool_size, 0);
    kh_pages pages{};
    pages.levels = pick(2) ? 0 : pick(5);
    pages.addr = address();
    if (pages.levels > 0 && pick(8))
      pages.addr = host().iova(lists_ + size_t{pick(64)} * KH_PAGE_SIZE);
    pages.npages = pick(8) ? 1 + pick(64) : random_();
    pages.page_shift = pick(8) ? 12 : pick(64);
    pages.rsvd = pick(50) ? 0 : 1;
    return pages;
  }

  uint32_t offset() { return pick(16) ? pick(64) * 1024 : pick(2) ? pick(4096) : random_(); }

  void command() {
    static constexpr kh_admin_op opcodes[] = {
        KH_ADM_NOP,         KH_ADM_QUERY_DEVICE,    KH_ADM_QUERY_STATS,  KH_ADM_SET_PORT,
        KH_ADM_SET_GID,     KH_ADM_CREATE_EQ,       KH_ADM_DESTROY_EQ,   KH_ADM_CREATE_CONTEXT,
        KH_ADM_CREATE_PD,   KH_ADM_DESTROY_CONTEXT, KH_ADM_DESTROY_PD,   KH_ADM_CREATE_MKEY,
        KH_ADM_CREATE_MKEY, KH_ADM_DESTROY_MKEY,    KH_ADM_MODIFY_MKEY,  KH_ADM_QUERY_MKEY,
        KH_ADM_CREATE_CQ,   KH_ADM_CREATE_CQ,       KH_ADM_DESTROY_CQ,   KH_ADM_RESIZE_CQ,
        KH_ADM_MODIFY_CQ,   KH_ADM_CREATE_SRQ,      KH_ADM_DESTROY_SRQ,  KH_ADM_MODIFY_SRQ,
        KH_ADM_QUERY_SRQ,   KH_ADM_RESIZE_SRQ,      KH_ADM_CREATE_QP,    KH_ADM_CREATE_QP,
        KH_ADM_CREATE_QP,   KH_ADM_DESTROY_QP,      KH_ADM_MODIFY_QP,    KH_ADM_MODIFY_QP,
        KH_ADM_QUERY_QP,    KH_ADM_ATTACH_MCAST,    KH_ADM_DETACH_MCAST, KH_ADM_CREATE_NIC,
        KH_ADM_DESTROY_NIC,
    };
    kh_admin_op opcode = opcodes[pick(std::size(opcodes))];
    bool creates = false;
    kh_admin_cmd c = FakeDriver::make(opcode);
    switch (opcode) {
      case KH_ADM_NOP:
      case KH_ADM_DESTROY_NIC:
        break;
      case KH_ADM_CREATE_PD:
        creates = true;
        break;
      case KH_ADM_SET_PORT:
        c.set_port.flags = pick(9);
        c.set_port.mac[0] = 2 + pick(2) * pick(2);
        c.set_port.mac[5] = pick(3);
        c.set_port.mtu = pick(12000);
        break;
      case KH_ADM_SET_GID:
        c.set_gid.index = pick(140);
        c.set_gid.gid[15] = pick(4);
        c.set_gid.valid = pick(3);
        c.set_gid.vlan = pick(5000);
        break;
      case KH_ADM_CREATE_EQ:
        creates = true;
        c.create_eq.pages = pages();
        c.create_eq.ring_offset = offset();
        c.create_eq.db_offset = offset();
        c.create_eq.log_size = pick(8);
        c.create_eq.type = pick(3);
        c.create_eq.vector = pick(20);
        break;
      case KH_ADM_CREATE_MKEY:
        creates = true;
        c.create_mkey.kind = pick(7);
        c.create_mkey.pdn = number(pd);
        if (pick(2)) c.create_mkey.access = pick(64);
        if (c.create_mkey.kind == KH_MKEY_FREE) c.create_mkey.max_entries = pick(100);
        if (c.create_mkey.kind == KH_MKEY_DIRECT || !pick(4)) {
          c.create_mkey.start = pick(4) ? address() : 0;
          c.create_mkey.length = pick(8) ? pick(100000) : ~uint64_t{0} - pick(100);
          c.create_mkey.pages = pages();
          c.create_mkey.offset = pick(4096);
        }
        break;
      case KH_ADM_MODIFY_MKEY:
        c.modify_mkey.mask = pick(9);
        if (c.modify_mkey.mask & KH_MKEY_MOD_PD) c.modify_mkey.pdn = number(pd);
        if (c.modify_mkey.mask & KH_MKEY_MOD_ACCESS) c.modify_mkey.access = pick(70);
        if (c.modify_mkey.mask & KH_MKEY_MOD_TRANSLATION) {
          c.modify_mkey.start = address();
          c.modify_mkey.length = pick(10000);
          c.modify_mkey.pages = pages();
        }
        break;
      case KH_ADM_CREATE_CQ:
      case KH_ADM_RESIZE_CQ:
        creates = opcode == KH_ADM_CREATE_CQ;
        c.create_cq.pages = pages();
        c.create_cq.ring_offset = offset();
        c.create_cq.db_offset = offset();
        c.create_cq.log_size = pick(8) ? pick(6) : pick(256);
        if (creates) {
          c.create_cq.eqn = pick(4) ? rig_.driver(0).completion_eq.eqn : number(eq);
          c.create_cq.ctx = pick(4);
          c.create_cq.flags = pick(5);
        }
        break;
      case KH_ADM_MODIFY_CQ:
        c.modify_cq.count = pick(4);
        c.modify_cq.period = pick(200);
        break;
      case KH_ADM_CREATE_SRQ:
      case KH_ADM_RESIZE_SRQ:
        creates = opcode == KH_ADM_CREATE_SRQ;
        c.create_srq.pages = pages();
        c.create_srq.ring_offset = offset();
        c.create_srq.db_offset = offset();
        c.create_srq.log_size = pick(8) ? pick(6) : pick(256);
        c.create_srq.log_stride = 4 + pick(8);
        if (creates) {
          c.create_srq.pdn = number(pd);
          c.create_srq.ctx = pick(4);
        }
        break;
      case KH_ADM_MODIFY_SRQ:
        c.modify_srq.limit = pick(40);
        break;
      case KH_ADM_CREATE_QP: {
        creates = true;
        kh_cmd_create_qp& q = c.create_qp;
        q.pages = pages();
        q.sq_offset = offset();
        q.rq_offset = offset();
        q.db_offset = offset();
        q.pdn = number(pd);
        q.send_cqn = number(cq);
        q.recv_cqn = number(cq);
        q.srqn = pick(3) ? KH_NO_SRQ : number(srq);
        q.ctx = pick(8) ? pick(3) : pick(20);
        q.db_slot = pick(8) ? pick(64) : pick(5000);
        q.type = pick(5);
        q.log_sq_blocks = pick(6);
        q.log_rq_size = pick(5);
        q.log_rq_stride = pick(8) ? 7 : 4 + pick(8);
        q.has_sq = pick(10) ? 1 : pick(3);
        q.has_rq = q.srqn == KH_NO_SRQ;
        q.max_send_sge = pick(8) ? 4 : pick(40);
        q.max_recv_sge = pick(4);
        break;
      }
      case KH_ADM_MODIFY_QP: {
        static constexpr uint32_t masks[] = {
            KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_ACCESS_FLAGS,
            KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_QKEY,
            KH_QP_STATE | KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN |
                KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_MIN_RNR_TIMER,
            KH_QP_STATE | KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN,
            KH_QP_STATE | KH_QP_SQ_PSN | KH_QP_TIMEOUT | KH_QP_RETRY_CNT | KH_QP_RNR_RETRY |
                KH_QP_MAX_QP_RD_ATOMIC,
            KH_QP_STATE | KH_QP_SQ_PSN,
            KH_QP_STATE,
        };
        kh_qp_attr& a = c.modify_qp;
        a.mask = pick(8) ? masks[pick(std::size(masks))] : random_();
        a.state = pick(8);
        a.path_mtu = pick(7);
        a.access = pick(16);
        a.dest_qpn = number(qp);
        a.port = pick(8) ? 1 : pick(3);
        a.timeout = pick(33);
        a.retry_cnt = pick(9);
        a.rnr_retry = pick(9);
        a.max_rd_atomic = pick(18);
        a.av = rig_.driver(0).path_to(rig_.driver(pick(2)));
        break;
      }
      case KH_ADM_ATTACH_MCAST:
      case KH_ADM_DETACH_MCAST:
        c.mcast.mgid[0] = 0xfe + pick(2);
        break;
      case KH_ADM_CREATE_NIC:
        c.create_nic.pages = pages();
        c.create_nic.tx_offset = offset();
        c.create_nic.rx_offset = offset();
        c.create_nic.rxc_offset = offset();
        c.create_nic.db_offset = offset();
        c.create_nic.log_tx_size = pick(8);
        c.create_nic.log_rx_size = pick(8);
        c.create_nic.db_slot = pick(64);
        break;
      default:
        break;
    }
    bool handle = !creates && opcode >= KH_ADM_CREATE_EQ && opcode < KH_ADM_CREATE_NIC;
    if (handle) c.hdr.handle = number(kind_of(opcode));
    // Without the driver's own event queue there would be no more completion queues.
    if (opcode == KH_ADM_DESTROY_EQ && c.hdr.handle == rig_.driver(0).completion_eq.eqn) return;
    if (opcode == KH_ADM_CREATE_CONTEXT) c.hdr.handle = pick(5);
    if (opcode == KH_ADM_DESTROY_CONTEXT) c.hdr.handle = pick(16) ? 3 + pick(2) : pick(20);
    if (opcode == KH_ADM_QUERY_DEVICE || opcode == KH_ADM_QUERY_STATS ||
        opcode == KH_ADM_QUERY_QP || opcode == KH_ADM_QUERY_MKEY)
      c.hdr.out_addr = address();
    if (!pick(20)) reinterpret_cast<std::byte*>(&c)[pick(128)] = std::byte(random_());

    kh_admin_cqe cqe = rig_.driver(0).command(c);
    cqe.status == KH_ST_OK ? ++accepted : ++refused;
    bool destroys = handle && (opcode & 7) == 1 && opcode != KH_ADM_DETACH_MCAST;
    destroys |= opcode == KH_ADM_DESTROY_PD;
    if (destroys && cqe.status == KH_ST_OK && pick(16))
      std::erase(known_[kind_of(opcode)], uint32_t{c.hdr.handle});
    if (creates && cqe.status == KH_ST_OK) {
      auto& known = known_[kind_of(opcode)];
      known.push_back(cqe.result[0]);
      if (known.size() > 30) known.erase(known.begin());
      if (opcode == KH_ADM_CREATE_QP) ++queue_pairs;
    }
  }

  Rig& rig_;
  std::mt19937 random_;
  std::byte* pool_ = nullptr;
  std::byte* lists_ = nullptr;
  std::array<std::vector<uint32_t>, kinds> known_;
};

class Hostile : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Hostile, NonsenseIsRefusedAndNobodyElseIsHarmed) {
  Rig rig({.stations = 2, .host = {.memory = 8 << 20}, .hca = {.memory_budget = 4 << 20}});
  Nonsense nonsense(rig, GetParam());
  for (int i = 0; i < 20000; ++i) {
    nonsense.step();
    if (!rig.hca(0).ready()) {
      // It may have asked for an event queue in memory that it then took away.
      ASSERT_EQ(rig.hca(0).read_register(KH_REG_STATUS),
                KH_STATUS_FATAL | KH_FATAL_EQ_MEMORY << KH_STATUS_FATAL_SHIFT);
      rig.driver(0).disable();
      rig.driver(0).start(1);
    }
    if (i % 1000 == 0) rig.driver(1).must(FakeDriver::make(KH_ADM_NOP));
  }
  // Both answers were given, and often.
  EXPECT_GT(nonsense.accepted, 1000u);
  EXPECT_GT(nonsense.refused, 1000u);
  EXPECT_GT(nonsense.queue_pairs, 10u);
  rig.driver(0).disable();
  EXPECT_EQ(rig.hca(0).snapshot().memory_used, 0u);
  rig.driver(0).start(1);
  rig.driver(1).must(FakeDriver::make(KH_ADM_NOP));
}

INSTANTIATE_TEST_SUITE_P(Seeds, Hostile, ::testing::Range(1u, 6u));

}  // namespace
}  // namespace keyhole::test
