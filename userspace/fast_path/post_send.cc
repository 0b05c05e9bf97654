// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_post_send. Each request is checked, written into the ring in one pass over its fields and its
// SGEs, and the whole chain is announced by one doorbell. A request that is refused leaves no
// trace: the producer index moves only past what is complete.

#include "fast_path.h"
#include "wqe.h"

namespace keyhole::verbs {
namespace {

// How many blocks the WQE took, or an errno.
struct Built {
  unsigned nblocks;
  int error;
};

constexpr Built refused(int error) { return {0, error}; }

// The data of a SEND, WRITE or READ, and the ctrl segment that depends on it. `fixed` bytes precede
// the data; put_inline_len(len) stores inline_len, wherever the segment has it.
template <class PutSegment>
inline Built put_message(SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr, std::uint32_t room,
                         unsigned fixed, unsigned flags, std::uint32_t imm,
                         PutSegment put_segment) {
  const auto num_sge = static_cast<unsigned>(wr.num_sge);
  if (num_sge > sq.max_sge) [[unlikely]]
    return refused(EINVAL);
  const unsigned opcode = kDeviceOpcode[wr.opcode];

  if (flags & KH_WQE_INLINE) {
    if (!(kInlineOpcodes >> wr.opcode & 1)) [[unlikely]]
      return refused(EINVAL);
    std::uint64_t len = 0;
    for (unsigned i = 0; i < num_sge; i++)
      len += wr.sg_list[i].length;
    if (len > sq.max_inline) [[unlikely]]
      return refused(EINVAL);
    const unsigned nblocks = blocks_of(fixed + len);
    if (nblocks > room) [[unlikely]]
      return refused(ENOMEM);
    put_ctrl(wqe, wqe_head(opcode, flags, nblocks, 0), imm, wr.wr_id);
    put_segment(static_cast<std::uint32_t>(len));
    std::byte* to = wqe + fixed;
    for (unsigned i = 0; i < num_sge; i++)
      to = put_inline(sq, to, reinterpret_cast<const void*>(wr.sg_list[i].addr),
                      wr.sg_list[i].length);
    return {nblocks, 0};
  }

  const unsigned nblocks = blocks_of(fixed + num_sge * sizeof(kh_sge));
  if (nblocks > room) [[unlikely]]
    return refused(ENOMEM);
  put_ctrl(wqe, wqe_head(opcode, flags, nblocks, num_sge), imm, wr.wr_id);
  put_segment(0);
  put_sges(sq, wqe + fixed, wr.sg_list, num_sge);
  return {nblocks, 0};
}

Built put_ud_send(SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr, std::uint32_t room,
                  unsigned flags, std::uint32_t imm) {
  if (!wr.wr.ud.ah) return refused(EINVAL);
  return put_message(sq, wqe, wr, room, kUdBytes, flags, imm, [&](std::uint32_t inline_len) {
    put_ud(wqe, ah_of(wr.wr.ud.ah).av, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
    put_ud_inline_len(wqe, inline_len);
  });
}

// These have no data, or one SGE, and fit one block.
Built put_one_block(SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr, unsigned flags) {
  if (flags & KH_WQE_INLINE) return refused(EINVAL);
  const unsigned opcode = kDeviceOpcode[wr.opcode];

  switch (wr.opcode) {
    case IBV_WR_LOCAL_INV:
      put_ctrl(wqe, wqe_head(opcode, flags, 1, 0), wr.invalidate_rkey, wr.wr_id);
      return {1, 0};

    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      if (wr.num_sge != 1) return refused(EINVAL);
      const bool swap = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
      put_ctrl(wqe, wqe_head(opcode, flags, 1, 1), 0, wr.wr_id);
      put_rdma(wqe, wr.wr.atomic.remote_addr, wr.wr.atomic.rkey, 0);
      put_atomic(wqe, swap ? wr.wr.atomic.swap : wr.wr.atomic.compare_add,
                 swap ? wr.wr.atomic.compare_add : 0);
      put_sges(sq, wqe + kAtomicBytes, wr.sg_list, 1);
      return {1, 0};
    }

    case IBV_WR_BIND_MW: {
      const ibv_mw* mw = wr.bind_mw.mw;
      if (!mw || mw->type != IBV_MW_TYPE_2) return refused(EINVAL);
      const auto [access, error] = check_bind(*mw, wr.bind_mw.bind_info);
      if (error) return refused(error);
      put_ctrl(wqe, wqe_head(opcode, flags, 1, 0), 0, wr.wr_id);
      put_bind(wqe, mw->rkey, wr.bind_mw.rkey, wr.bind_mw.bind_info, access);
      return {1, 0};
    }

    default:
      return refused(EINVAL);
  }
}

inline Built put_request(SendQueue& sq, std::byte* wqe, const ibv_send_wr& wr, std::uint32_t room) {
  const auto opcode = static_cast<unsigned>(wr.opcode);
  if (opcode >= kWrOpcodes || !(sq.allowed >> opcode & 1)) [[unlikely]]
    return refused(EINVAL);
  if (room == 0) [[unlikely]]
    return refused(ENOMEM);
  if (wr.send_flags & ~kSendFlags) [[unlikely]]
    return refused(EINVAL);

  constexpr std::uint32_t message = kInlineOpcodes | bit(IBV_WR_RDMA_READ);
  const unsigned flags = wr.send_flags | sq.always_flags;
  if (!(message >> opcode & 1)) return put_one_block(sq, wqe, wr, flags);

  const std::uint32_t imm = kImmOpcodes >> opcode & 1 ? wr.imm_data : 0;
  if (sq.ud) return put_ud_send(sq, wqe, wr, room, flags, imm);

  constexpr std::uint32_t remote =
      bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM) | bit(IBV_WR_RDMA_READ);
  const bool named = remote >> opcode & 1;
  return put_message(sq, wqe, wr, room, kRdmaBytes, flags, imm, [&](std::uint32_t inline_len) {
    put_rdma(wqe, named ? wr.wr.rdma.remote_addr : 0, named ? wr.wr.rdma.rkey : 0, inline_len);
  });
}

}  // namespace

int post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  SendQueue& sq = qp.sq;

  sq.lock.lock();
  const std::uint32_t limit = post_limit(sq);
  std::uint32_t pi = sq.pi;
  int error = 0;
  for (; wr; wr = wr->next) {
    const Built built = put_request(sq, block_at(sq, pi), *wr, limit - pi);
    if (built.error) [[unlikely]] {
      error = built.error;
      *bad_wr = wr;
      break;
    }
    pi += built.nblocks;
  }
  if (pi != sq.pi) [[likely]] {
    sq.pi = pi;
    ring_send(qp, pi);
  }
  sq.lock.unlock();
  return error;
}

}  // namespace keyhole::verbs
