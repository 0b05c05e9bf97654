// SPDX-License-Identifier: BSD-2-Clause
//
// The states of a queue pair (specification, 10.3.1): changes that software asks for, and the
// changes that errors bring about.
//
//   ERR  everything that is posted is flushed, the send queue first, then the receives; also what
//   is
//        posted later, for which the device asks to be told of receives (rq_notify)
//   SQE  of UC and UD: a send has failed. The send queue is flushed, receives go on, RTS mends it
//   SQD  what has been taken is finished, nothing more is taken

#include <array>

#include "hca/cq.h"
#include "hca/guest_access.h"
#include "hca/hca.h"
#include "hca/srq.h"
#include "hca/transport/datagram_header.h"
#include "hca/transport/qp.h"
#include "hca/transport/qp_transitions.h"

namespace keyhole {
namespace {

// The whole thread's count of MODIFY_QPs: a number that no other queue pair, and not this one at
// another time, has.
uint64_t next_serial() {
  static thread_local uint64_t last = 0;
  return ++last;
}

constexpr uint32_t kKnownMask =
    KH_QP_STATE | KH_QP_CUR_STATE | KH_QP_EN_SQD_ASYNC_NOTIFY | KH_QP_ACCESS_FLAGS |
    KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_QKEY | KH_QP_AV | KH_QP_PATH_MTU | KH_QP_TIMEOUT |
    KH_QP_RETRY_CNT | KH_QP_RNR_RETRY | KH_QP_RQ_PSN | KH_QP_MAX_QP_RD_ATOMIC |
    KH_QP_MIN_RNR_TIMER | KH_QP_SQ_PSN | KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_DEST_QPN;

// A field that is just a number with a largest value.
struct Range {
  uint32_t mask;
  size_t offset;
  size_t size;
  uint32_t least;
  uint32_t most;
};
#define FIELD(mask, name, least, most) \
  Range { mask, offsetof(kh_qp_attr, name), sizeof(kh_qp_attr::name), least, most }
constexpr Range kRanges[] = {
    FIELD(KH_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify, 0, 1),
    // A local right among the remote ones is what programs write, and means nothing here.
    FIELD(KH_QP_ACCESS_FLAGS, access, 0, KH_ACCESS_REMOTE | KH_ACCESS_LOCAL_WRITE),
    FIELD(KH_QP_PKEY_INDEX, pkey_index, 0, 0),
    FIELD(KH_QP_PORT, port, 1, 1),
    FIELD(KH_QP_PATH_MTU, path_mtu, 1, 5),
    FIELD(KH_QP_TIMEOUT, timeout, 0, 31),
    FIELD(KH_QP_RETRY_CNT, retry_cnt, 0, 7),
    FIELD(KH_QP_RNR_RETRY, rnr_retry, 0, 7),
    FIELD(KH_QP_RQ_PSN, rq_psn, 0, 0xffffff),
    FIELD(KH_QP_SQ_PSN, sq_psn, 0, 0xffffff),
    FIELD(KH_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, 0, KH_MAX_RD_ATOMIC),
    FIELD(KH_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, 0, KH_MAX_RD_ATOMIC),
    FIELD(KH_QP_MIN_RNR_TIMER, min_rnr_timer, 0, 31),
    FIELD(KH_QP_DEST_QPN, dest_qpn, 0, 0xffffff),
};
// What MODIFY_QP copies, besides the state and the address vector.
constexpr Range kQkey = FIELD(KH_QP_QKEY, qkey, 0, 0xffffffff);
#undef FIELD

uint32_t value_of(const kh_qp_attr& attr, const Range& field) {
  uint32_t value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&attr) + field.offset, field.size);
  return value;
}

void copy_field(kh_qp_attr& to, const kh_qp_attr& from, const Range& field) {
  if (from.mask & field.mask)
    std::memcpy(reinterpret_cast<char*>(&to) + field.offset,
                reinterpret_cast<const char*>(&from) + field.offset, field.size);
}

constexpr size_t kNothing = ~size_t{0};

// The offset of the first field of the address vector that cannot be; kNothing when all is well.
size_t find_bad(const kh_av& av, const Hca& hca) {
  constexpr size_t base = offsetof(kh_qp_attr, av);
  Gid dgid;
  std::memcpy(dgid.data(), av.dgid, dgid.size());
  // A connected queue pair has one peer.
  if (is_zero(dgid) || is_multicast(dgid)) return base + offsetof(kh_av, dgid);
  Mac dmac = Mac::at(av.dmac);
  if (dmac.multicast() || dmac == Mac{}) return base + offsetof(kh_av, dmac);
  if (!hca.gid(av.sgid_index)) return base + offsetof(kh_av, sgid_index);
  if (av.sl > 15) return base + offsetof(kh_av, sl);
  if (av.flow_label > 0xfffff) return base + offsetof(kh_av, flow_label);
  return kNothing;
}

}  // namespace

Qp::Qp(Hca& hca, QpConfig&& config)
    : hca_(hca),
      config_(std::move(config)),
      who_{config_.pdn, config_.qpn, config_.context == 0},
      receive_who_(who_),
      serial_(next_serial()),
      timer_(
          hca.timers(), [](void* qp, uint64_t) { static_cast<Qp*>(qp)->on_timer(); }, this),
      events_(config_.qpn) {
  attr_.state = KH_QPS_RESET;
  attr_.path_mtu = 1;
  if (config_.srq) receive_who_.pdn = config_.srq->pdn();
  ring_ = {&config_.memory, config_.sq_offset, config_.has_sq ? 1u << config_.log_sq_blocks : 0};
}

Qp::~Qp() { hca_.mkeys().release(windows_); }

AdminResult Qp::modify(const kh_qp_attr& attr) {
  const uint8_t from = attr_.state;
  const uint8_t to = attr.mask & KH_QP_STATE ? attr.state : from;
  if (attr.mask & ~kKnownMask) return AdminResult::refuse(offsetof(kh_qp_attr, mask));
  if ((attr.mask & KH_QP_CUR_STATE) && attr.cur_state != from)
    return AdminResult::refuse(offsetof(kh_qp_attr, cur_state));

  const Transition change = find_transition(config_.type, from, to);
  if (!change.exists) return AdminResult::refuse(offsetof(kh_qp_attr, state));
  const uint32_t allowed = change.required | change.optional | KH_QP_STATE;
  if ((attr.mask & change.required) != change.required || (attr.mask & ~allowed))
    return AdminResult::refuse(offsetof(kh_qp_attr, mask));
  // While it drains, only the ways out are open.
  if (from == KH_QPS_SQD && draining_ && to != KH_QPS_ERR && to != KH_QPS_RESET)
    return AdminResult::refuse(offsetof(kh_qp_attr, state));

  for (const Range& field : kRanges) {
    if (!(attr.mask & field.mask)) continue;
    uint32_t value = value_of(attr, field);
    bool bad = value < field.least || value > field.most;
    if (field.mask == KH_QP_ACCESS_FLAGS) bad = (value & ~field.most) != 0;
    if (bad) return AdminResult::refuse(field.offset);
  }
  if (attr.mask & KH_QP_AV) {
    size_t bad = find_bad(attr.av, hca_);
    if (bad != kNothing) return AdminResult::refuse(bad);
  }

  serial_ = next_serial();
  path_ = {};
  if (to == KH_QPS_RESET) {
    reset();
    return AdminResult::done();
  }
  for (const Range& field : kRanges)
    copy_field(attr_, attr, field);
  copy_field(attr_, attr, kQkey);
  if (attr.mask & KH_QP_AV) attr_.av = attr.av;
  if (attr.mask & KH_QP_PATH_MTU) mtu_shift_ = 7 + attr.path_mtu;
  if (attr.mask & KH_QP_RQ_PSN) expected_psn_ = attr.rq_psn;
  if (attr.mask & KH_QP_SQ_PSN) next_psn_ = unacked_psn_ = high_psn_ = attr.sq_psn;
  if (attr.mask & KH_QP_RETRY_CNT) retries_left_ = attr.retry_cnt;
  if (attr.mask & KH_QP_RNR_RETRY) rnr_retries_left_ = attr.rnr_retry;
  if (attr.mask & KH_QP_MAX_DEST_RD_ATOMIC) {
    answered_ = {};
    answered_next_ = 0;
  }

  if (to == KH_QPS_ERR) {
    enter_error();
    return AdminResult::done();
  }
  if (from == KH_QPS_SQE && to == KH_QPS_RTS) stopped_ = false;
  attr_.state = to;
  if (from == KH_QPS_RTS && to == KH_QPS_SQD) {
    draining_ = true;
    if (!(attr.mask & KH_QP_EN_SQD_ASYNC_NOTIFY)) attr_.en_sqd_async_notify = 0;
    look_drained();
  }
  // There may be work posted before, and an error may have come in the meantime.
  wake();
  return AdminResult::done();
}

void Qp::query(kh_qp_attr& out) const {
  out = attr_;
  out.mask = kKnownMask;
  out.cur_state = attr_.state;
  out.sq_draining = draining_;
  out.port = 1;
  out.rq_psn = expected_psn_;
  out.sq_psn = next_psn_;
}

// Everything is as it was when it was created, and nothing that was posted is known any more.
void Qp::reset() {
  timer_.stop();
  fill_.reset();
  events_.forget();
  hca_.mkeys().release(windows_);
  attr_ = {};
  attr_.state = KH_QPS_RESET;
  attr_.path_mtu = 1;
  mtu_shift_ = 8;
  producer_ = next_block_ = done_block_ = 0;
  oldest_ = newest_ = current_ = sent_ = 0;
  next_psn_ = unacked_psn_ = high_psn_ = 0;
  loaded_valid_ = stopped_ = dead_ = draining_ = false;
  reads_ = 0;
  wait_ = Wait::none;
  progress_ = false;
  expected_psn_ = msn_ = 0;
  nak_sent_ = first_seen_ = false;
  message_ = {};
  answer_ = {};
  receive_ci_ = receive_pi_ = 0;
  receive_held_ = receive_dead_ = receive_reported_ = false;
  receive_done_ = 0;
  answered_ = {};
  answered_next_ = 0;
  if (std::byte* db = record()) store_release<uint32_t>(db + offsetof(kh_qp_db, rq_notify), 0);
}

void Qp::enter_error() {
  if (attr_.state == KH_QPS_ERR || attr_.state == KH_QPS_RESET) return;
  attr_.state = KH_QPS_ERR;
  serial_ = next_serial();
  timer_.stop();
  fill_.reset();
  wait_ = Wait::none;
  draining_ = false;
  message_.active = false;
  answer_.active = false;
  unacked_psn_ = high_psn_;
  hca_.schedule(*this);
}

void Qp::fatal(kh_syndrome why) {
  if (attr_.state == KH_QPS_RESET) return;
  hca_.report(events_, KH_EV_QP_FATAL, why);
  enter_error();
}

void Qp::cq_failed() {
  if (attr_.state != KH_QPS_ERR) fatal(KH_SYN_CQ_OVERRUN);
}

// A send request has failed, and has completed with its error.
void Qp::stop_sending() {
  if (config_.type == KH_QPT_RC) {
    enter_error();
  } else if (attr_.state == KH_QPS_RTS || attr_.state == KH_QPS_SQD) {
    attr_.state = KH_QPS_SQE;
    draining_ = false;
    wake();
  }
}

// Completes what is posted as flushed. True: the quantum ended first.
bool Qp::flush_send_queue(Quantum& quantum) {
  constexpr Verdict kFlushed{KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH};
  while (!window_empty()) {
    if (!quantum.left()) return true;
    push_send_cqe(window(oldest_), kFlushed);
    pop_oldest();
    --quantum.entries;
  }
  loaded_valid_ = false;
  while (ring_.size != 0 && !dead_ && (producer_ != next_block_ || load_producer())) {
    if (!quantum.left()) return true;
    const std::byte* block = ring_.block(next_block_);
    if (!block) {
      dead_ = true;
      fatal(KH_SYN_WQE_MEMORY);
      break;
    }
    const uint32_t available = producer_ - next_block_;
    std::memcpy(buffer_.bytes, block, KH_WQE_BLOCK);
    Wqe wqe;
    Request request{};
    request.nblocks = decode_head(buffer_, available, wqe) ? wqe.nblocks : available;
    request.wr_id = wqe.wr_id;
    request.opcode = wqe.opcode;
    request.block = next_block_;
    push_send_cqe(request, kFlushed);
    next_block_ += request.nblocks;
    done_block_ = next_block_;
    --quantum.entries;
  }
  return false;
}

bool Qp::flush_receive_queue(Quantum& quantum) {
  constexpr Verdict kFlushed{KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH};
  if (receive_held_) fail_receive(kFlushed);
  if (config_.srq) {
    // It will take no more from there.
    if (!receive_reported_) hca_.report(events_, KH_EV_QP_LAST_WQE);
    receive_reported_ = true;
    return false;
  }
  if (!config_.has_rq || receive_dead_) return false;
  std::byte* db = record();
  if (!db) return false;
  // From now on posting a receive rings. What was posted before is seen here.
  if (!receive_reported_) {
    store_release<uint32_t>(db + offsetof(kh_qp_db, rq_notify), 1);
    full_fence();
    receive_reported_ = true;
  }
  const uint32_t size = 1u << config_.log_rq_size;
  while (receive_pi_ != receive_ci_ || load_receive_producer()) {
    if (!quantum.left()) return true;
    const std::byte* slot = config_.memory.at(
        config_.rq_offset + (uint64_t{receive_ci_ & (size - 1)} << config_.log_rq_stride));
    if (!slot) {
      receive_dead_ = true;
      return false;
    }
    read_receive_wqe(receive_, slot, config_.max_recv_sge);
    ++receive_ci_;
    fail_receive(kFlushed);
    --quantum.entries;
  }
  return false;
}

}  // namespace keyhole
