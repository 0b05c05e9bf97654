// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_bind_mw: binds of type 1 windows. The new R_Key is known before the device has seen the bind:
// the same index, the variant moved on by one. It goes into mw->rkey when the request is posted, so
// binds can be pipelined, each naming the key that the one before it will have made. If one fails,
// the QP is in error and those after it are flushed; the application then restores the key that it
// kept, as the man page says.

#include "fast_path.h"
#include "wqe.h"

namespace keyhole::verbs {

int bind_mw(ibv_qp* ibqp, ibv_mw* mw, ibv_mw_bind* bind) {
  Qp& qp = qp_of(ibqp);
  SendQueue& sq = qp.sq;
  constexpr unsigned flags_taken = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

  if (mw->type != IBV_MW_TYPE_1 || (bind->send_flags & ~flags_taken)) [[unlikely]]
    return EINVAL;
  const auto [access, error] = check_bind(*mw, bind->bind_info);
  if (error) [[unlikely]]
    return error;

  sq.lock.lock();
  int result = 0;
  if (!(sq.allowed >> IBV_WR_BIND_MW & 1)) [[unlikely]] {
    result = EINVAL;
  } else if (sq.pi == post_limit(sq)) [[unlikely]] {
    result = ENOMEM;
  } else {
    std::byte* wqe = block_at(sq, sq.pi);
    const std::uint32_t old_key = mw->rkey;
    const std::uint32_t new_key = (old_key & ~0xffu) | ((old_key + 1) & 0xffu);
    put_ctrl(wqe, wqe_head(KH_OP_BIND_MW, bind->send_flags | sq.always_flags, 1, 0), 0,
             bind->wr_id);
    put_bind(wqe, old_key, new_key, bind->bind_info, access);
    mw->rkey = new_key;
    sq.pi++;
    ring_send(qp, sq.pi);
  }
  sq.lock.unlock();
  return result;
}

}  // namespace keyhole::verbs
