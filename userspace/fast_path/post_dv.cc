// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// keyholedv_post_send: the requests that ibv_post_send has no form for. As there, each is checked
// and then written in one pass, the whole chain is announced by one doorbell, and what is refused
// leaves no trace.

#include "dv.h"
#include "fast_path.h"

namespace keyhole::verbs {
namespace {

// The blocks that the request took, or a negated errno.
using Built = int;

// A C program may have stored what is no value of the enumeration at all.
inline unsigned number_of(const keyholedv_send_wr& wr) {
  std::uint32_t number = 0;
  static_assert(sizeof(number) == sizeof(wr.opcode));
  std::memcpy(&number, &wr.opcode, sizeof(number));
  return number;
}

inline void put_head(const SendQueue& sq, std::byte* wqe, const keyholedv_send_wr& wr,
                     unsigned opcode, unsigned nblocks, unsigned num_sge, std::uint32_t imm = 0) {
  put_ctrl(wqe, wqe_head(opcode, wr.send_flags | sq.always_flags, nblocks, num_sge), imm, wr.wr_id);
}

Built put_fill_request(const SendQueue& sq, std::byte* wqe, const keyholedv_send_wr& wr,
                       std::uint32_t room) {
  const bool in_line = wr.send_flags & IBV_SEND_INLINE;
  const auto [nblocks, error] = shape_of(sq, wr.fill, in_line);
  if (error) [[unlikely]]
    return -error;
  if (nblocks > room) [[unlikely]]
    return -ENOMEM;
  put_head(sq, wqe, wr, KH_OP_UMR_FILL, nblocks, 0);
  put_fill(sq, wqe, wr.fill, in_line);
  return static_cast<Built>(nblocks);
}

Built put_atomic_request(const SendQueue& sq, std::byte* wqe, const keyholedv_send_wr& wr,
                         std::uint32_t room, bool swap) {
  if (!masked_atomic_fits(sq, wr.atomic, swap) || kMaskedBlocks > sq.mask + 1) [[unlikely]]
    return -EINVAL;
  if (kMaskedBlocks > room) [[unlikely]]
    return -ENOMEM;
  put_head(sq, wqe, wr, swap ? KH_OP_MASKED_CMP_SWAP : KH_OP_MASKED_FETCH_ADD, kMaskedBlocks, 1);
  put_masked_atomic(sq, wqe, wr.atomic);
  return kMaskedBlocks;
}

Built put_request(const SendQueue& sq, std::byte* wqe, const keyholedv_send_wr& wr,
                  std::uint32_t room) {
  const unsigned opcode = number_of(wr);
  if (opcode > KEYHOLEDV_WR_NOP || !(sq.dv_allowed >> opcode & 1) || (wr.send_flags & ~kSendFlags))
      [[unlikely]]
    return -EINVAL;
  if (opcode == KEYHOLEDV_WR_FILL) return put_fill_request(sq, wqe, wr, room);

  if (wr.send_flags & IBV_SEND_INLINE) [[unlikely]]
    return -EINVAL;
  if (opcode == KEYHOLEDV_WR_MASKED_CMP_SWAP || opcode == KEYHOLEDV_WR_MASKED_FETCH_ADD)
    return put_atomic_request(sq, wqe, wr, room, opcode == KEYHOLEDV_WR_MASKED_CMP_SWAP);

  if (room == 0) [[unlikely]]
    return -ENOMEM;
  if (opcode == KEYHOLEDV_WR_INVALIDATE)
    put_head(sq, wqe, wr, KH_OP_UMR_INV, 1, 0, wr.invalidate_mkey);
  else
    put_head(sq, wqe, wr, KH_OP_NOP, 1, 0);
  return 1;
}

}  // namespace

int post_dv(ibv_qp* ibqp, keyholedv_send_wr* wr, keyholedv_send_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  SendQueue& sq = qp.sq;
  sq.lock.lock();
  const std::uint32_t limit = post_limit(sq);
  std::uint32_t pi = sq.pi;
  int error = 0;
  for (; wr; wr = wr->next) {
    const Built built = put_request(sq, block_at(sq, pi), *wr, limit - pi);
    if (built < 0) [[unlikely]] {
      error = -built;
      if (bad_wr) *bad_wr = wr;
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

}  // namespace keyhole::verbs
