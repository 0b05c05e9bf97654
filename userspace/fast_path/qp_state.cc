// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The steps around a queue's life, all under its locks: set-up, opening and closing to posting by
// the QP's state, and the return to nothing. A QP that is reset or destroyed may have completions
// that nobody has polled. They must not be seen any more, nor be counted against indices that have
// started anew, so they are marked KH_CQE_SKIP in the ring. The kernel's command has completed by
// then and the device writes no more of them.

#include "completion.h"
#include "dv.h"

namespace keyhole::verbs {
namespace {

// Receives of the SRQ among what is dropped are complete, though unseen.
void drop_cqes(Cq& cq, std::uint32_t qpn, Srq* srq) {
  cq.lock.lock();
  for (std::uint32_t index = cq.ci; kh_cqe* cqe = new_cqe(cq, index); index++) {
    if (index - cq.ci > cq.mask) break;  // a ring full of new entries
    if (cqe->opcode == KH_CQE_SKIP || cqe->qpn != qpn) continue;
    if (srq && (cqe->opcode & KH_CQE_RECV))
      __atomic_fetch_add(&srq->completed, 1, __ATOMIC_RELEASE);
    cqe->opcode = KH_CQE_SKIP;
  }
  cq.lock.unlock();
}

}  // namespace

std::uint32_t opcodes_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return kRcOpcodes;
    case IBV_QPT_UC:
      return kUcOpcodes;
    case IBV_QPT_UD:
      return kUdOpcodes;
    default:
      return 0;
  }
}

void init_qp(Qp& qp, ibv_qp_type type, bool sq_sig_all, unsigned max_send_sge,
             unsigned max_recv_sge, unsigned max_inline, bool single_threaded) {
  qp.sq.ud = type == IBV_QPT_UD;
  qp.sq.type_allows = qp.sq.ring ? opcodes_of(type) : 0;
  qp.sq.always_flags = sq_sig_all ? KH_WQE_SIGNALED : 0;
  qp.sq.max_sge = static_cast<std::uint8_t>(max_send_sge);
  qp.sq.max_inline = static_cast<std::uint16_t>(max_inline);
  qp.sq.direct_inline = static_cast<std::uint8_t>(std::min(max_inline, kDirectInline));
  qp.sq.lock.elide(single_threaded);
  qp.rq.max_sge = static_cast<std::uint8_t>(max_recv_sge);
  qp.rq.lock.elide(single_threaded);
  set_qp_state(qp, IBV_QPS_RESET);
}

void set_dv_limits(Qp& qp, ibv_qp_type type, const DvLimits& limits) {
  const bool rc = type == IBV_QPT_RC;
  std::uint32_t opcodes = bit(KEYHOLEDV_WR_NOP);
  if (rc && limits.indirect) opcodes |= bit(KEYHOLEDV_WR_FILL) | bit(KEYHOLEDV_WR_INVALIDATE);
  if (rc && limits.masked_atomic)
    opcodes |= bit(KEYHOLEDV_WR_MASKED_CMP_SWAP) | bit(KEYHOLEDV_WR_MASKED_FETCH_ADD);
  qp.sq.dv_type_allows = qp.sq.ring ? static_cast<std::uint8_t>(opcodes) : 0;
  qp.sq.max_inline_entries =
      static_cast<std::uint8_t>(std::min(limits.max_inline_entries, kMostInlineEntries));
  qp.sq.max_list_entries = limits.max_entries;
}

void set_qp_state(Qp& qp, ibv_qp_state state) {
  qp.state = state;
  const bool sends = state != IBV_QPS_RESET && state != IBV_QPS_INIT && state != IBV_QPS_RTR;
  qp.sq.lock.lock();
  qp.sq.allowed = sends ? qp.sq.type_allows : 0;
  qp.sq.dv_allowed = sends ? qp.sq.dv_type_allows : 0;
  qp.sq.direct = qp.sq.ud ? 0 : qp.sq.allowed & kDirectOpcodes;
  qp.sq.lock.unlock();
  qp.rq.lock.lock();
  qp.rq.open = qp.rq.ring && state != IBV_QPS_RESET;
  qp.rq.lock.unlock();
}

void clean_qp(Qp& qp) {
  drop_cqes(*qp.recv_cq, qp.ibv.qp_num, qp.srq);
  if (qp.send_cq != qp.recv_cq) drop_cqes(*qp.send_cq, qp.ibv.qp_num, qp.srq);
  const bool may_receive =
      qp.state != IBV_QPS_RESET && qp.state != IBV_QPS_INIT && qp.state != IBV_QPS_ERR;
  if (qp.srq && may_receive) {
    qp.srq->lock.lock();
    qp.srq->lost++;
    qp.srq->lock.unlock();
  }
}

void reset_qp(Qp& qp) {
  clean_qp(qp);
  set_qp_state(qp, IBV_QPS_RESET);

  qp.sq.lock.lock();
  qp.sq.pi = 0;
  store_release(qp.sq.ci, 0);
  if (qp.sq.db) store_release(qp.sq.db->sq_pi, 0);
  qp.sq.lock.unlock();

  qp.rq.lock.lock();
  qp.rq.pi = 0;
  store_release(qp.rq.ci, 0);
  if (qp.rq.db) store_release(qp.rq.db->rq_pi, 0);
  qp.rq.lock.unlock();
}

void init_cq(Cq& cq, kh_cqe* ring, unsigned log_size, bool single_threaded) {
  cq.ring = ring;
  cq.mask = (1u << log_size) - 1;
  cq.log_size = static_cast<std::uint8_t>(log_size);
  cq.lock.elide(single_threaded);
}

CqResize::CqResize(Cq& cq, kh_cq_db* new_db) : cq_(cq), new_db_(new_db) {
  cq_.lock.lock();
  cq_.arm_lock.lock();
  store_relaxed(new_db_->ci, cq_.ci);
  store_release(new_db_->arm, load_relaxed(cq_.db->arm));
}

void CqResize::commit(kh_cqe* new_ring, unsigned log_size) {
  cq_.ring = new_ring;
  cq_.mask = (1u << log_size) - 1;
  cq_.log_size = static_cast<std::uint8_t>(log_size);
  cq_.db = new_db_;
}

CqResize::~CqResize() {
  cq_.arm_lock.unlock();
  cq_.lock.unlock();
}

}  // namespace keyhole::verbs
