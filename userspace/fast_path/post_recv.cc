// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Posting receives to a QP's own queue or to an SRQ. The device reads the producer index when a
// message needs a WQE, so nothing rings; but a QP in the error state asks (rq_notify) to be rung,
// since there no message will come and the receive is to be flushed.

#include "fast_path.h"
#include "wqe.h"

namespace keyhole::verbs {
namespace {

inline void put_receive(std::byte* wqe, const ibv_recv_wr& wr, unsigned num_sge) {
  auto& head = part_of<kh_rwqe>(wqe, 0);
  head.wr_id = wr.wr_id;
  head.num_sge = num_sge;
  head.rsvd = 0;
  for (unsigned i = 0; i < num_sge; i++)
    std::memcpy(wqe + sizeof(head) + i * sizeof(kh_sge), &wr.sg_list[i], sizeof(kh_sge));
}

// Posts the chain as far as `room` WQEs and well-formed requests allow. Q is ReceiveQueue or Srq.
template <class Q>
inline int put_chain(Q& rq, std::uint32_t room, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  for (; wr; wr = wr->next) {
    const auto num_sge = static_cast<unsigned>(wr->num_sge);
    const int error = num_sge > rq.max_sge ? EINVAL : room == 0 ? ENOMEM : 0;
    if (error) [[unlikely]] {
      *bad_wr = wr;
      return error;
    }
    put_receive(rq.ring + (static_cast<std::size_t>(rq.pi & rq.mask) << rq.log_stride), *wr,
                num_sge);
    rq.pi++;
    room--;
  }
  return 0;
}

}  // namespace

int post_recv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = qp_of(ibqp);
  ReceiveQueue& rq = qp.rq;

  rq.lock.lock();
  if (!rq.open) [[unlikely]] {
    rq.lock.unlock();
    *bad_wr = wr;
    return EINVAL;
  }
  const std::uint32_t before = rq.pi;
  const std::uint32_t room = rq.capacity - (before - load_acquire(rq.ci));
  const int error = put_chain(rq, room, wr, bad_wr);
  if (rq.pi != before) {
    store_release(rq.db->rq_pi, rq.pi);
    full_fence();
    if (load_relaxed(rq.db->rq_notify)) [[unlikely]]
      ring_doorbell(qp.bell);
  }
  rq.lock.unlock();
  return error;
}

int post_srq_recv(ibv_srq* ibsrq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Srq& srq = srq_of(ibsrq);

  srq.lock.lock();
  const std::uint32_t before = srq.pi;
  const std::uint32_t outstanding = before - load_acquire(srq.completed);
  // Never past what the device has yet to take, whatever the count says (see Srq::lost).
  const std::uint32_t limit = srq.capacity + srq.lost;
  const std::uint32_t by_count = outstanding < limit ? limit - outstanding : 0;
  const std::uint32_t by_ring = srq.mask + 1 - (before - load_acquire(srq.db->ci));
  const int error = put_chain(srq, std::min(by_count, by_ring), wr, bad_wr);
  if (srq.pi != before) store_release(srq.db->pi, srq.pi);
  srq.lock.unlock();
  return error;
}

}  // namespace keyhole::verbs
