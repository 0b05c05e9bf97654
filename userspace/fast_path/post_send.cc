// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_post_send. Each request is checked, written into the ring in one pass over its fields and its
// SGEs, and the whole chain is announced by one doorbell. A request that is refused leaves no
// trace: the producer index moves only past what is complete.
//
// Nearly all requests are of one shape: SEND, WRITE or READ on a connected QP with at most two SGEs
// or 32 bytes inline, which is one block that cannot wrap. put_direct() is that shape. The loop
// over it calls nothing, so it has no registers to save; the first request of another shape hands
// the rest of the chain to post_rest().

#include "fast_path.h"
#include "wqe.h"

namespace keyhole::verbs {
namespace {

// What a put function returns: the blocks that the request took, or a negated errno.
using Built = int;

// The opcode as a plain number: what a C program stored there may be no value of the enumeration at
// all.
inline unsigned number_of(const ibv_send_wr& wr) {
  std::uint32_t number = 0;
  static_assert(sizeof(number) == sizeof(wr.opcode));
  std::memcpy(&number, &wr.opcode, sizeof(number));
  return number;
}

// Builds the request if it has the direct shape. False: it has not, and nothing counts as written.
inline bool put_direct(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr) {
  const unsigned number = number_of(wr);
  if (number >= 32 || !(sq.direct >> number & 1)) return false;
  const Opcode& opcode = kOpcodes[number];
  unsigned num_sge = wr.num_sge;
  const ibv_sge* sges = wr.sg_list;
  std::uint32_t inline_len = 0;

  if (wr.send_flags & ~(kSendFlags & ~IBV_SEND_INLINE)) [[unlikely]] {
    if ((wr.send_flags & ~kSendFlags) || num_sge != 1 || number == IBV_WR_RDMA_READ) return false;
    inline_len = sges->length;
    if (inline_len > sq.direct_inline || sq.max_sge == 0) return false;
    num_sge = 0;
    copy_short<kDirectInline>(wqe + kRdmaBytes, reinterpret_cast<const std::byte*>(sges->addr),
                              inline_len);
  } else {
    if (num_sge > kDirectSges || num_sge > sq.max_sge) return false;
    if (num_sge) {
      std::memcpy(wqe + kRdmaBytes, sges, sizeof(kh_sge));
      if (num_sge == 2) std::memcpy(wqe + kRdmaBytes + sizeof(kh_sge), sges + 1, sizeof(kh_sge));
    }
  }
  put_ctrl(wqe, opcode.head | wqe_head(0, wr.send_flags | sq.always_flags, 0, num_sge),
           wr.imm_data & opcode.imm, wr.wr_id);
  if (opcode.remote)
    put_rdma(wqe, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey, inline_len);
  else
    put_rdma(wqe, 0, 0, inline_len);
  return true;
}

// The segment after ctrl of a SEND, WRITE or READ, by the QP's type.
template <bool ud>
inline void put_segment(std::byte* wqe, const ibv_send_wr& wr, bool remote,
                        std::uint32_t inline_len) {
  if constexpr (ud) {
    put_ud(wqe, ah_of(wr.wr.ud.ah).av, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
    put_ud_inline_len(wqe, inline_len);
  } else {
    put_rdma(wqe, remote ? wr.wr.rdma.remote_addr : 0, remote ? wr.wr.rdma.rkey : 0, inline_len);
  }
}

template <bool ud>
inline Built put_inline_message(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr,
                                std::uint32_t room) {
  constexpr unsigned fixed = ud ? kUdBytes : kRdmaBytes;
  const auto num_sge = static_cast<unsigned>(wr.num_sge);
  std::uint64_t len = 0;
  for (unsigned i = 0; i < num_sge; i++)
    len += wr.sg_list[i].length;
  if (!(kInlineOpcodes >> wr.opcode & 1) || len > sq.max_inline) [[unlikely]]
    return -EINVAL;
  const unsigned nblocks = blocks_of(fixed + len);
  if (nblocks > room) [[unlikely]]
    return -ENOMEM;

  const Opcode& opcode = kOpcodes[wr.opcode];
  put_ctrl(wqe, opcode.head + wqe_head(0, wr.send_flags | sq.always_flags, nblocks - 1, 0),
           wr.imm_data & opcode.imm, wr.wr_id);
  put_segment<ud>(wqe, wr, opcode.remote, static_cast<std::uint32_t>(len));
  std::byte* to = wqe + fixed;
  for (unsigned i = 0; i < num_sge; i++)
    to =
        put_inline(sq, to, reinterpret_cast<const void*>(wr.sg_list[i].addr), wr.sg_list[i].length);
  return static_cast<Built>(nblocks);
}

// SEND, WRITE or READ of any size.
template <bool ud>
inline Built put_message(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr,
                         std::uint32_t room) {
  constexpr unsigned fixed = ud ? kUdBytes : kRdmaBytes;
  const auto num_sge = static_cast<unsigned>(wr.num_sge);
  if (num_sge > sq.max_sge) [[unlikely]]
    return -EINVAL;
  if (ud && !wr.wr.ud.ah) [[unlikely]]
    return -EINVAL;
  if (wr.send_flags & IBV_SEND_INLINE) return put_inline_message<ud>(sq, wqe, wr, room);

  const unsigned nblocks = blocks_of(fixed + num_sge * sizeof(kh_sge));
  if (nblocks > room) [[unlikely]]
    return -ENOMEM;
  const Opcode& opcode = kOpcodes[wr.opcode];
  put_ctrl(wqe, opcode.head + wqe_head(0, wr.send_flags | sq.always_flags, nblocks - 1, num_sge),
           wr.imm_data & opcode.imm, wr.wr_id);
  put_segment<ud>(wqe, wr, opcode.remote, 0);
  put_sges(sq, wqe + fixed, wr.sg_list, num_sge);
  return static_cast<Built>(nblocks);
}

Built put_atomic_request(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr) {
  if (wr.num_sge != 1 || sq.max_sge == 0) return -EINVAL;
  const bool swap = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  put_ctrl(wqe, kOpcodes[wr.opcode].head | wqe_head(0, wr.send_flags | sq.always_flags, 0, 1), 0,
           wr.wr_id);
  put_rdma(wqe, wr.wr.atomic.remote_addr, wr.wr.atomic.rkey, 0);
  put_atomic(wqe, swap ? wr.wr.atomic.swap : wr.wr.atomic.compare_add,
             swap ? wr.wr.atomic.compare_add : 0);
  std::memcpy(wqe + kAtomicBytes, wr.sg_list, sizeof(kh_sge));
  return 1;
}

Built put_bind_request(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr) {
  const ibv_mw* mw = wr.bind_mw.mw;
  if (!mw || mw->type != IBV_MW_TYPE_2) return -EINVAL;
  const auto [access, error] = check_bind(*mw, wr.bind_mw.bind_info);
  if (error) return -error;
  put_ctrl(wqe, kOpcodes[IBV_WR_BIND_MW].head | wqe_head(0, wr.send_flags | sq.always_flags, 0, 0),
           0, wr.wr_id);
  put_bind(wqe, mw->rkey, wr.bind_mw.rkey, wr.bind_mw.bind_info, access);
  return 1;
}

// Every request, and the refusal of what is none.
Built put_request(const SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr, std::uint32_t room) {
  const unsigned opcode = number_of(wr);
  if (opcode >= kOpcodes.size() || !(sq.allowed >> opcode & 1) || (wr.send_flags & ~kSendFlags))
      [[unlikely]]
    return -EINVAL;
  if (room == 0) [[unlikely]]
    return -ENOMEM;
  if (kDirectOpcodes >> opcode & 1)
    return sq.ud ? put_message<true>(sq, wqe, wr, room) : put_message<false>(sq, wqe, wr, room);

  if (wr.send_flags & IBV_SEND_INLINE) return -EINVAL;
  switch (opcode) {
    case IBV_WR_LOCAL_INV:
      put_ctrl(wqe, kOpcodes[opcode].head | wqe_head(0, wr.send_flags | sq.always_flags, 0, 0),
               wr.invalidate_rkey, wr.wr_id);
      return 1;
    case IBV_WR_BIND_MW:
      return put_bind_request(sq, wqe, wr);
    default:
      return put_atomic_request(sq, wqe, wr);
  }
}

// Posts the rest of a chain, from index pi on, and leaves the lock.
[[gnu::noinline]] int post_rest(Qp& qp, std::uint32_t pi, std::uint32_t limit, ibv_send_wr* wr,
                                ibv_send_wr** bad_wr) {
  SendQueue& sq = qp.sq;
  int error = 0;
  for (; wr; wr = wr->next) {
    const Built built = put_request(sq, block_at(sq, pi), *wr, limit - pi);
    if (built < 0) [[unlikely]] {
      error = -built;
      *bad_wr = wr;
      break;
    }
    pi += built;
  }
  if (pi != sq.pi) {
    sq.pi = pi;
    ring_send(qp, pi);
  }
  sq.lock.unlock();
  return error;
}

// Posts a chain; the lock is held and left.
inline int post_chain(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  SendQueue& sq = qp.sq;
  const std::uint32_t limit = post_limit(sq);
  std::uint32_t pi = sq.pi;
  for (; wr; wr = wr->next) {
    if (pi == limit || !put_direct(sq, block_at(sq, pi), *wr))
      return post_rest(qp, pi, limit, wr, bad_wr);
    pi++;
  }
  sq.pi = pi;
  ring_send(qp, pi);
  return sq.lock.unlock();
}

[[gnu::noinline, gnu::cold]] int post_contended(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  qp.sq.lock.contend();
  return post_chain(qp, wr, bad_wr);
}

}  // namespace

int post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  if (!qp.sq.lock.try_lock()) [[unlikely]]
    return post_contended(qp, wr, bad_wr);
  return post_chain(qp, wr, bad_wr);
}

}  // namespace keyhole::verbs
