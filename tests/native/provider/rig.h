// SPDX-License-Identifier: BSD-2-Clause
//
// The provider's queues in plain memory, with the test as the device: it reads the WQEs that were
// posted, byte for byte, and writes CQEs. Programs' calls go through libibverbs' public inline
// functions, by way of the function table of a context, as they do in a real process.

#pragma once

#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fast_path.h"
#include "wqe.h"

namespace keyhole::verbs {

// A context that offers the fast path and nothing else.
inline ibv_context* test_context() {
  static ibv_context context = [] {
    ibv_context c{};
    c.ops.post_send = post_send;
    c.ops.post_recv = post_recv;
    c.ops.post_srq_recv = post_srq_recv;
    c.ops.bind_mw = bind_mw;
    c.ops.poll_cq = poll_cq;
    c.ops.req_notify_cq = req_notify_cq;
    return c;
  }();
  return &context;
}

// The pages that a context maps.
struct Pages {
  alignas(4096) std::array<std::uint8_t, KH_DB_SLOTS> doorbell{};
  alignas(4096) kh_status_page status{};
  alignas(4096) std::array<std::uint32_t, 1024> wake{};
};

struct CqRig {
  std::vector<kh_cqe> ring;
  alignas(64) kh_cq_db db{};
  Cq cq;
  std::uint32_t written = 0;  // by the "device"

  CqRig(QpTable& qps, unsigned log_size, bool single_threaded = false) : ring(1u << log_size) {
    cq.ex.context = test_context();
    cq.db = &db;
    cq.qps = &qps;
    init_cq(cq, ring.data(), log_size, single_threaded);
    set_cq_ops(cq, kCqWcFlags);
  }

  // Writes an entry as the device does, the word with the phase last.
  void put(kh_cqe cqe) {
    std::array<std::uint64_t, 8> words{};
    cqe.phase = static_cast<std::uint8_t>(~(written >> cq.log_size) & 1);
    std::memcpy(words.data(), &cqe, sizeof(cqe));
    auto* slot = reinterpret_cast<std::uint64_t*>(&ring[written & cq.mask]);
    for (std::size_t i = 0; i < 7; i++) slot[i] = words[i];
    store_release(slot[7], words[7]);
    written++;
  }

  ibv_cq* ibv() { return &cq.ibv; }
};

struct SrqRig {
  std::vector<std::byte> ring;
  alignas(64) kh_srq_db db{};
  Srq srq;

  explicit SrqRig(unsigned log_size, unsigned log_stride = 6, unsigned max_sge = 3)
      : ring(std::size_t{1} << (log_size + log_stride)) {
    srq.ibv.context = test_context();
    srq.ring = ring.data();
    srq.mask = (1u << log_size) - 1;
    srq.capacity = 1u << log_size;
    srq.log_stride = static_cast<std::uint8_t>(log_stride);
    srq.max_sge = static_cast<std::uint8_t>(max_sge);
    srq.db = &db;
  }
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned log_sq_blocks = 4;
  unsigned log_rq_size = 3;
  unsigned max_send_sge = 8;
  unsigned max_recv_sge = 3;
  unsigned max_inline = 256;
  bool sq_sig_all = false;
  bool single_threaded = false;
  ibv_qp_state state = IBV_QPS_RTS;
  DvLimits dv = {.indirect = true,
                 .masked_atomic = true,
                 .max_inline_entries = KH_MAX_INLINE_ENTRIES,
                 .max_entries = KH_MAX_INDIRECT};
};

struct QpRig {
  // Aligned as the device demands; filled with rubbish, so that a byte nobody wrote shows.
  std::vector<std::byte> sq_ring, rq_ring;
  alignas(64) kh_qp_db db{};
  Pages pages;
  QpTable& qps;
  Qp qp;

  QpRig(QpTable& table, CqRig& send_cq, CqRig& recv_cq, std::uint32_t qpn, QpOptions o = {},
        Srq* srq = nullptr)
      : sq_ring(std::size_t{KH_WQE_BLOCK} << o.log_sq_blocks, std::byte{0xee}),
        rq_ring(std::size_t{64} << o.log_rq_size, std::byte{0xee}),
        qps(table) {
    qp.ibv.context = test_context();
    qp.ibv.qp_num = qpn;
    qp.ibv.qp_type = o.type;
    qp.sq.ring = sq_ring.data();
    qp.sq.mask = (1u << o.log_sq_blocks) - 1;
    qp.sq.db = &db;
    if (!srq) {
      qp.rq.ring = rq_ring.data();
      qp.rq.mask = (1u << o.log_rq_size) - 1;
      qp.rq.capacity = 1u << o.log_rq_size;
      qp.rq.log_stride = 6;
    }
    qp.rq.db = &db;
    qp.bell = {
        .mark = &pages.doorbell[qpn & 0xfff], .status = &pages.status, .wake = pages.wake.data()};
    qp.send_cq = &send_cq.cq;
    qp.recv_cq = &recv_cq.cq;
    qp.srq = srq;
    init_qp(qp, o.type, o.sq_sig_all, o.max_send_sge, o.max_recv_sge, o.max_inline,
            o.single_threaded);
    set_wr_ops(qp, o.type, 0);
    set_dv_limits(qp, o.type, o.dv);
    set_dv_ops(qp, 0);
    if (!table.insert(qpn, &qp)) std::abort();
    set_qp_state(qp, o.state);
  }
  ~QpRig() { qps.remove(qp.ibv.qp_num); }

  ibv_qp* ibv() { return &qp.ibv; }
  ibv_qp_ex* ex() { return &qp.ex; }
  keyholedv_qp_ex* dv() { return &qp.dv; }
  int post_dv(keyholedv_send_wr& wr, keyholedv_send_wr** bad = nullptr) {
    return verbs::post_dv(ibv(), &wr, bad);
  }

  // The WQE at a block index, unrolled from the ring.
  std::vector<std::byte> wqe(std::uint32_t index) const {
    auto block = [&](std::uint32_t i) {
      return sq_ring.data() + std::size_t{i & qp.sq.mask} * KH_WQE_BLOCK;
    };
    kh_wqe_ctrl ctrl{};
    std::memcpy(&ctrl, block(index), sizeof(ctrl));
    std::vector<std::byte> bytes;
    for (unsigned i = 0; i < ctrl.nblocks; i++)
      bytes.insert(bytes.end(), block(index + i), block(index + i) + KH_WQE_BLOCK);
    return bytes;
  }

  // True once after each doorbell.
  bool rung() { return std::exchange(pages.doorbell[qp.ibv.qp_num & 0xfff], 0) == KH_DB_MARK; }

  // A completion of the request that ends just before this block index.
  kh_cqe send_cqe(std::uint32_t sq_index, std::uint64_t wr_id,
                  std::uint8_t opcode = KH_OP_SEND) const {
    kh_cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.qpn = qp.ibv.qp_num;
    cqe.sq_index = sq_index;
    cqe.opcode = opcode;
    return cqe;
  }
  kh_cqe recv_cqe(std::uint64_t wr_id) const {
    kh_cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.qpn = qp.ibv.qp_num;
    cqe.opcode = KH_CQE_RECV;
    return cqe;
  }
};

// A part of a WQE as the structure that lies there.
template <class T>
T part(std::span<const std::byte> wqe, std::size_t offset) {
  T value{};
  if (offset + sizeof(T) <= wqe.size()) std::memcpy(&value, wqe.data() + offset, sizeof(T));
  return value;
}

// A QP with a CQ for each direction: what most tests need.
struct QpTest {
  QpTable qps;
  CqRig send_cq{qps, 4};
  CqRig recv_cq{qps, 4};
  QpRig qp;

  explicit QpTest(QpOptions options = {}) : qp(qps, send_cq, recv_cq, 0x4711, options) {}
};

inline std::vector<std::byte> pattern(std::size_t size, unsigned seed = 1) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; i++)
    bytes[i] = static_cast<std::byte>(i * 131 + seed * 17 + (i >> 8));
  return bytes;
}

}  // namespace keyhole::verbs
