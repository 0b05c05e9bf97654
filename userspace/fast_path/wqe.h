// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Building one send WQE in the ring: what post_send and the ibv_wr_* builder share.
//
// A WQE is a run of 64 byte blocks that may wrap at the end of the ring. What precedes the data
// (ctrl and the segment of the opcode, 16 to 64 bytes) always lies in the first block, so only the
// data wraps. An SGE is 16 bytes at a multiple of 16 and is never torn; inline data is copied in
// two pieces when it has to be.

#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "queues.h"
#include "shared_memory.h"

namespace keyhole::verbs {

// Bytes of a WQE before its data.
inline constexpr unsigned kBareBytes = sizeof(kh_wqe_ctrl);
inline constexpr unsigned kRdmaBytes = kBareBytes + sizeof(kh_wqe_rdma);
inline constexpr unsigned kAtomicBytes = kRdmaBytes + sizeof(kh_wqe_atomic);
inline constexpr unsigned kUdBytes = kBareBytes + sizeof(kh_wqe_ud);
static_assert(kUdBytes == KH_WQE_BLOCK && kAtomicBytes + sizeof(kh_sge) == KH_WQE_BLOCK);

constexpr unsigned blocks_of(std::size_t bytes) {
  return static_cast<unsigned>((bytes + KH_WQE_BLOCK - 1) >> KH_WQE_BLOCK_SHIFT);
}

// Blocks of the largest WQE of a QP: what an SQ of so many requests has to be sized by.
constexpr unsigned sq_wqe_blocks(ibv_qp_type type, unsigned max_sge, unsigned max_inline) {
  const std::size_t fixed = type == IBV_QPT_UD ? kUdBytes : kRdmaBytes;
  const std::size_t data = std::max<std::size_t>(max_sge * sizeof(kh_sge), max_inline);
  return blocks_of(fixed + data);
}

constexpr std::uint32_t bit(unsigned n) { return 1u << n; }
inline constexpr std::uint32_t kUdOpcodes = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
inline constexpr std::uint32_t kUcOpcodes =
    kUdOpcodes | bit(IBV_WR_SEND_WITH_INV) | bit(IBV_WR_RDMA_WRITE) |
    bit(IBV_WR_RDMA_WRITE_WITH_IMM) | bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
inline constexpr std::uint32_t kRcOpcodes = kUcOpcodes | bit(IBV_WR_RDMA_READ) |
                                            bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                                            bit(IBV_WR_ATOMIC_FETCH_AND_ADD);
inline constexpr std::uint32_t kInlineOpcodes = kUdOpcodes | bit(IBV_WR_SEND_WITH_INV) |
                                                bit(IBV_WR_RDMA_WRITE) |
                                                bit(IBV_WR_RDMA_WRITE_WITH_IMM);
inline constexpr std::uint32_t kDirectOpcodes = kInlineOpcodes | bit(IBV_WR_RDMA_READ);

// What fits the one block of put_direct() in post_send.cc.
inline constexpr unsigned kDirectSges = (KH_WQE_BLOCK - kRdmaBytes) / sizeof(kh_sge);
inline constexpr unsigned kDirectInline = KH_WQE_BLOCK - kRdmaBytes;
static_assert(kDirectSges == 2);

// An opcode of enum ibv_wr_opcode as the device has it; the numbers differ.
struct Opcode {
  std::uint32_t head;  // wqe_head() of one block
  std::uint32_t imm;   // all ones: ctrl.imm holds the immediate, or the key to invalidate
  bool remote;         // kh_wqe_rdma names remote memory
};

// The first word of a WQE: opcode, flags, nblocks, num_sge.
constexpr std::uint32_t wqe_head(unsigned opcode, unsigned flags, unsigned nblocks,
                                 unsigned num_sge) {
  return opcode | flags << 8 | nblocks << 16 | num_sge << 24;
}

inline constexpr std::array<Opcode, IBV_WR_SEND_WITH_INV + 1> kOpcodes = [] {
  constexpr std::uint32_t imm = ~0u;
  std::array<Opcode, IBV_WR_SEND_WITH_INV + 1> map{};
  map[IBV_WR_RDMA_WRITE] = {KH_OP_WRITE, 0, true};
  map[IBV_WR_RDMA_WRITE_WITH_IMM] = {KH_OP_WRITE_IMM, imm, true};
  map[IBV_WR_SEND] = {KH_OP_SEND, 0, false};
  map[IBV_WR_SEND_WITH_IMM] = {KH_OP_SEND_IMM, imm, false};
  map[IBV_WR_RDMA_READ] = {KH_OP_READ, 0, true};
  map[IBV_WR_ATOMIC_CMP_AND_SWP] = {KH_OP_CMP_SWAP, 0, true};
  map[IBV_WR_ATOMIC_FETCH_AND_ADD] = {KH_OP_FETCH_ADD, 0, true};
  map[IBV_WR_LOCAL_INV] = {KH_OP_LOCAL_INV, imm, false};
  map[IBV_WR_BIND_MW] = {KH_OP_BIND_MW, 0, false};
  map[IBV_WR_SEND_WITH_INV] = {KH_OP_SEND_INV, imm, false};
  for (Opcode& opcode : map)
    opcode.head |= wqe_head(0, 0, 1, 0);
  return map;
}();

inline constexpr unsigned kSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

// A window takes these; LOCAL_WRITE is accepted and dropped, hints in the optional range are
// ignored.
inline constexpr unsigned kWindowAccess = KH_ACCESS_REMOTE | KH_ACCESS_ZERO_BASED;
inline constexpr unsigned kWindowAccessIgnored = static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) |
                                                 static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);

inline std::byte* block_at(const SendQueue& sq, std::uint32_t index) {
  return sq.ring + (static_cast<std::size_t>(index & sq.mask) << KH_WQE_BLOCK_SHIFT);
}

// First index that may not be posted before more completions are polled.
inline std::uint32_t post_limit(const SendQueue& sq) { return load_acquire(sq.ci) + sq.mask + 1; }

// A part of a WQE as the structure that lies there. Fields are stored one by one: compilers make
// more of a structure that is put together first and then copied.
template <class T>
inline T& part_of(std::byte* wqe, std::size_t offset) {
  return *reinterpret_cast<T*>(wqe + offset);
}

inline void put_ctrl(std::byte* wqe, std::uint32_t head, std::uint32_t imm, std::uint64_t wr_id) {
  const std::uint64_t first = head | static_cast<std::uint64_t>(imm) << 32;
  std::memcpy(wqe, &first, 8);
  std::memcpy(wqe + 8, &wr_id, 8);
}
static_assert(offsetof(kh_wqe_ctrl, imm) == 4 && offsetof(kh_wqe_ctrl, wr_id) == 8);

inline void put_rdma(std::byte* wqe, std::uint64_t remote_addr, std::uint32_t rkey,
                     std::uint32_t inline_len) {
  auto& rdma = part_of<kh_wqe_rdma>(wqe, kBareBytes);
  rdma.remote_addr = remote_addr;
  rdma.rkey = rkey;
  rdma.inline_len = inline_len;
}

inline void put_ud(std::byte* wqe, const kh_av& av, std::uint32_t qpn, std::uint32_t qkey) {
  auto& ud = part_of<kh_wqe_ud>(wqe, kBareBytes);
  std::memcpy(&ud.av, &av, sizeof(av));
  ud.dest_qpn = qpn;
  ud.qkey = qkey;
}
inline void put_ud_inline_len(std::byte* wqe, std::uint32_t inline_len) {
  auto& ud = part_of<kh_wqe_ud>(wqe, kBareBytes);
  ud.inline_len = inline_len;
  ud.rsvd = 0;
}

inline void put_atomic(std::byte* wqe, std::uint64_t swap_add, std::uint64_t compare) {
  auto& atomic = part_of<kh_wqe_atomic>(wqe, kRdmaBytes);
  atomic.swap_add = swap_add;
  atomic.compare = compare;
}

inline void put_flush(std::byte* wqe, std::uint32_t type, std::uint32_t level) {
  auto& flush = part_of<kh_wqe_flush>(wqe, kRdmaBytes);
  flush.type = type;
  flush.level = level;
  std::memset(flush.rsvd, 0, sizeof(flush.rsvd));
}

inline std::byte* ring_end(const SendQueue& sq) {
  return sq.ring + ((static_cast<std::size_t>(sq.mask) + 1) << KH_WQE_BLOCK_SHIFT);
}

// SGEs from `to` on, which may be the end of the ring, where the start is meant.
inline void put_sges(const SendQueue& sq, std::byte* to, const ibv_sge* from, std::size_t count) {
  const std::size_t room = (ring_end(sq) - to) / sizeof(kh_sge);
  if (count > room) [[unlikely]] {
    std::memcpy(to, from, room * sizeof(kh_sge));
    from += room;
    count -= room;
    to = sq.ring;
  }
  for (; count; count--, from++, to += sizeof(kh_sge))
    std::memcpy(to, from, sizeof(kh_sge));
}

// Most inline data is short: a call to memcpy would cost more than the copy. Two pieces of a power
// of 2 that may overlap, so that nothing outside is read or written.
template <std::size_t most = 64>
inline void copy_short(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (most > 32 && bytes > 32) {
    std::memcpy(to, from, 32);
    std::memcpy(to + bytes - 32, from + bytes - 32, 32);
  } else if (bytes >= 16) {
    std::memcpy(to, from, 16);
    std::memcpy(to + bytes - 16, from + bytes - 16, 16);
  } else if (bytes >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + bytes - 8, from + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + bytes - 4, from + bytes - 4, 4);
  } else {
    for (std::size_t at = 0; at < bytes; at++)
      to[at] = from[at];
  }
}

inline void copy_inline(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 64)
    std::memcpy(to, from, bytes);
  else
    copy_short(to, static_cast<const std::byte*>(from), bytes);
}

// Copies one piece of inline data and returns where the next one goes (the end of the ring
// included).
inline std::byte* put_inline(const SendQueue& sq, std::byte* to, const void* from,
                             std::size_t bytes) {
  const auto* data = static_cast<const std::byte*>(from);
  const std::size_t room = ring_end(sq) - to;
  if (bytes > room) [[unlikely]] {
    copy_inline(to, data, room);
    data += room;
    bytes -= room;
    to = sq.ring;
  }
  copy_inline(to, data, bytes);
  return to + bytes;
}

struct BindRights {
  std::uint32_t access;
  int error;
};

// What can be said of a bind without the device. The window's type is the caller's to check.
inline BindRights check_bind(const ibv_mw& mw, const ibv_mw_bind_info& info) {
  const unsigned access = info.mw_access_flags;
  if (access & ~(kWindowAccess | kWindowAccessIgnored)) return {0, EINVAL};
  if (!info.mr) return {access & kWindowAccess, info.length ? EINVAL : 0};
  if (info.mr->pd != mw.pd) return {0, EPERM};
  return {access & kWindowAccess, 0};
}

inline void put_bind(std::byte* wqe, std::uint32_t old_key, std::uint32_t new_key,
                     const ibv_mw_bind_info& info, std::uint32_t access) {
  auto& bind = part_of<kh_wqe_bind>(wqe, kBareBytes);
  bind.mw_key = old_key;
  bind.new_key = new_key;
  bind.mr_key = info.length ? info.mr->lkey : 0;
  bind.access = access;
  bind.addr = info.addr;
  bind.length = info.length;
  std::memset(bind.rsvd, 0, sizeof(bind.rsvd));
}

// Publishes sq.pi and makes the device look. Under the lock: the record must not go backwards.
inline void ring_doorbell(const Doorbell& bell) {
  store_relaxed(*bell.mark, KH_DB_MARK);
  full_fence();
  if (load_relaxed(bell.status->sleeping)) [[unlikely]]
    store_relaxed(*bell.wake, 1);
}

inline void ring_send(Qp& qp, std::uint32_t pi) {
  store_release(qp.sq.db->sq_pi, pi);
  ring_doorbell(qp.bell);
}

}  // namespace keyhole::verbs
