// SPDX-License-Identifier: BSD-2-Clause
//
// The completer: from acknowledgements to completions.
//
// An acknowledgement of a packet stands for all packets before it too (specification, 9.7.5.1.2),
// so requests complete from the oldest on: retire(). A READ or atomic completes only by its own
// answer; an acknowledgement of something behind it means that the answer was lost, and it is asked
// again.
//
// Loss shows in three ways: a sequence NAK, an answer that is missing while a later one is there,
// or silence until the timer. All end in go_back(), which moves the requester's place in the window
// back to the first packet in doubt. Each costs one of retry_cnt tries; progress gives them back.
//
// The timer is not moved when an acknowledgement comes, only a flag is set; when it expires and the
// flag is set, it runs once more. So a loss is noticed after one to two times the timeout, and the
// specification allows four.

#include "hca/cq.h"
#include "hca/hca.h"
#include "hca/transport/psn.h"
#include "hca/transport/qp.h"
#include "hca/transport/qp_transitions.h"
#include "hca/transport/sge.h"

namespace keyhole {

void Qp::take_reply(const Segment& segment, const Reply& reply) {
  if (attr_.state != KH_QPS_RTS && attr_.state != KH_QPS_SQD) return;
  if (reply.answer == Answer::ack) [[likely]] {
    acknowledge(reply.psn);
    return;
  }
  if (reply.answer == Answer::none || reply.answer == Answer::busy) return;
  // About a packet that is not outstanding: late, and known already.
  if (psn_distance(unacked_psn_, reply.psn) >= psn_distance(unacked_psn_, high_psn_)) return;
  Stats& stats = hca_.stats();
  switch (reply.answer) {
    case Answer::atomic:
      take_atomic_answer(reply);
      break;
    case Answer::rnr:
      ++stats[KH_STAT_RNR_NAKS_RECEIVED];
      wait_for_receive(reply);
      break;
    case Answer::sequence_error:
      retire(reply.psn);
      if (spend_retry()) go_back(unacked_psn_);
      break;
    case Answer::invalid_request:
      fail_at(reply.psn, {KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID});
      break;
    case Answer::access_error:
      fail_at(reply.psn, {KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS});
      break;
    default:
      fail_at(reply.psn, {KH_WC_REM_OP_ERR, KH_SYN_NAK_OP});
      break;
  }
  (void)segment;
}

void Qp::acknowledge(uint32_t psn) {
  const uint32_t limit = psn_add(psn, 1);
  const uint32_t distance = psn_distance(unacked_psn_, limit);
  if (distance == 0 || distance > psn_distance(unacked_psn_, high_psn_)) return;
  retire(limit);
  if (window_empty() || unacked_psn_ == limit) return;
  // A READ or atomic stands in the way whose answer must have come by now.
  if (window(oldest_).progress == Progress::sending && spend_retry()) {
    go_back(unacked_psn_);
    wake();
  }
}

// Completes what lies before packet `limit`, which is outstanding or the next one to be.
void Qp::retire(uint32_t limit) {
  while (!window_empty()) {
    Request& request = window(oldest_);
    if (request.progress == Progress::done) {
      complete_oldest();
      continue;
    }
    if (request.progress == Progress::failed) {
      fail_oldest(request.verdict);
      return;
    }
    if (request.is_read_or_atomic()) return;
    const uint32_t end = psn_add(request.psn, request.npsn);
    const uint32_t reached = psn_distance(unacked_psn_, limit);
    if (reached < psn_distance(unacked_psn_, end)) {
      if (reached > 0) {
        unacked_psn_ = limit;
        note_progress();
      }
      return;
    }
    unacked_psn_ = end;
    note_progress();
    complete_oldest();
  }
}

// Completes what has nothing left to wait for.
void Qp::complete_ready() {
  while (!window_empty()) {
    Request& request = window(oldest_);
    if (request.progress == Progress::sending) return;
    if (request.progress == Progress::failed) {
      fail_oldest(request.verdict);
      return;
    }
    complete_oldest();
  }
}

void Qp::push_send_cqe(const Request& request, Verdict verdict) const {
  kh_cqe cqe{};
  cqe.wr_id = request.wr_id;
  cqe.qpn = config_.qpn;
  cqe.byte_len = request.length;
  cqe.sq_index = request.block + request.nblocks;
  cqe.syndrome = verdict.syndrome;
  cqe.opcode = request.opcode;
  cqe.status = verdict.status;
  config_.send_cq->push(cqe);
}

void Qp::complete_oldest() {
  const Request& request = window(oldest_);
  if (request.flags & KH_WQE_SIGNALED) push_send_cqe(request, {});
  pop_oldest();
}

void Qp::pop_oldest() {
  const Request& request = window(oldest_);
  done_block_ = request.block + request.nblocks;
  // What failed before it was sent has taken no packet and no resource.
  if (request.is_read_or_atomic() && request.npsn > 0) --reads_;
  ++oldest_;
  // Acknowledged while it was being sent again.
  if (static_cast<int32_t>(current_ - oldest_) < 0) {
    current_ = oldest_;
    sent_ = 0;
  }
}

void Qp::fail_oldest(Verdict verdict) {
  push_send_cqe(window(oldest_), verdict);
  pop_oldest();
  stop_sending();
}

// The peer refuses packet `psn`: with it fails the request that it belongs to.
void Qp::fail_at(uint32_t psn, Verdict verdict) {
  retire(psn);
  if (stopped_by_error() || window_empty()) return;
  fail_oldest(verdict);
}

void Qp::note_progress() {
  progress_ = true;
  retries_left_ = attr_.retry_cnt;
  rnr_retries_left_ = attr_.rnr_retry;
}

// Sends again from packet `psn` on.
void Qp::go_back(uint32_t psn) {
  for (uint32_t index = oldest_; index != newest_; ++index) {
    const Request& request = window(index);
    const uint32_t into = psn_distance(request.psn, psn);
    if (into >= request.npsn || request.progress != Progress::sending) continue;
    current_ = index;
    // A READ asks for what is missing; it has no place in the middle.
    sent_ = request.is_read_or_atomic() ? 0 : into << mtu_shift_;
    return;
  }
}

// Takes one of the tries. False when there was none left: then the oldest request has failed.
bool Qp::spend_retry() {
  if (stopped_by_error() || window_empty()) return false;
  if (retries_left_ == 0) {
    complete_ready();
    if (!stopped_by_error() && !window_empty()) fail_oldest({KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY});
    return false;
  }
  --retries_left_;
  ++hca_.stats()[KH_STAT_RETRANSMITS];
  return true;
}

void Qp::wait_for_receive(const Reply& reply) {
  constexpr uint8_t kForEver = 7;
  retire(reply.psn);
  if (stopped_by_error() || window_empty()) return;
  if (attr_.rnr_retry != kForEver) {
    if (rnr_retries_left_ == 0) {
      fail_oldest({KH_WC_RNR_RETRY_EXC_ERR, KH_SYN_RNR});
      return;
    }
    --rnr_retries_left_;
  }
  go_back(reply.psn);
  wait_ = Wait::receive;
  timer_.start(hca_.now() + rnr_delay_ns(reply.code));
}

uint32_t Qp::receive_response(const Segment& segment) {
  if (attr_.state != KH_QPS_RTS && attr_.state != KH_QPS_SQD) return 0;
  uint32_t refused = 0;
  hca_.stats()[KH_STAT_RX_PACKETS] += segment.npsn;
  hca_.stats()[KH_STAT_RX_BYTES] += segment.length;
  if (segment.kind == SegmentKind::read_response) {
    refused = take_read_answer(segment);
  } else {
    take_reply(segment, segment.aeth);
  }
  wake();
  return refused;
}

Scattered Qp::store_result(const Request& request, uint32_t offset, uint32_t length,
                           const SpanCursor& from) {
  const uint32_t unit = 1u << mtu_shift_;
  if (loaded_valid_ && window(loaded_).block == request.block) [[likely]]
    return scatter(hca_.mkeys(), who_, {wqe_.sge, wqe_.num_sge}, offset, length, unit, from);
  // Another request has been loaded since: what is being sent must not be disturbed.
  WqeBuffer buffer;
  Wqe wqe;
  if (!load_again(request, wqe, buffer)) return {0, {KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_MEMORY}};
  return scatter(hca_.mkeys(), who_, {wqe.sge, wqe.num_sge}, offset, length, unit, from);
}

uint32_t Qp::take_read_answer(const Segment& segment) {
  // Too late, or the second time.
  if (psn_distance(unacked_psn_, segment.psn) >= psn_distance(unacked_psn_, high_psn_)) return 0;
  // It acknowledges what was sent before the READ.
  retire(segment.psn);
  if (stopped_by_error() || window_empty()) return 0;
  Request& request = window(oldest_);
  if (request.opcode != KH_OP_READ || request.progress != Progress::sending) return 0;
  const uint32_t expected = psn_add(request.psn, request.arrived >> mtu_shift_);
  // One before it has been lost. The timer will ask for it.
  if (segment.psn != expected) return 0;
  const uint32_t missing = request.length - request.arrived;
  if (segment.length > missing || segment.last != (segment.length == missing)) {
    fail_oldest({KH_WC_BAD_RESP_ERR, KH_SYN_NONE});
    return 0;
  }
  uint32_t refused = 0;
  if (segment.length > 0) {
    Scattered stored =
        store_result(request, request.arrived, segment.length, SpanCursor(segment.payload));
    if (!stored.verdict.ok()) {
      fail_oldest(stored.verdict);
      return 0;
    }
    refused = segment.length - stored.bytes;
  }
  request.arrived += segment.length - refused;
  unacked_psn_ = psn_add(segment.psn, segment.npsn - (refused ? packets(refused, mtu_shift_) : 0));
  note_progress();
  if (segment.last && refused == 0) {
    complete_oldest();
    complete_ready();
  }
  return refused;
}

void Qp::take_atomic_answer(const Reply& reply) {
  retire(reply.psn);
  if (stopped_by_error() || window_empty()) return;
  Request& request = window(oldest_);
  if (request.psn != reply.psn || request.progress != Progress::sending ||
      !request.is_read_or_atomic() || request.opcode == KH_OP_READ)
    return;
  if (is_atomic(request.opcode)) {
    uint64_t value = reply.value;
    HostSpan span{reinterpret_cast<std::byte*>(&value), sizeof(value)};
    Verdict verdict = store_result(request, 0, sizeof(value), SpanCursor({&span, 1})).verdict;
    if (!verdict.ok()) {
      fail_oldest(verdict);
      return;
    }
  }
  unacked_psn_ = psn_add(reply.psn, 1);
  note_progress();
  complete_oldest();
  complete_ready();
}

void Qp::start_timer() {
  // 0: wait for ever.
  if (config_.type != KH_QPT_RC || attr_.timeout == 0) return;
  progress_ = false;
  timer_.start(hca_.now() + (uint64_t{4096} << attr_.timeout));
}

void Qp::on_timer() {
  if (attr_.state != KH_QPS_RTS && attr_.state != KH_QPS_SQD) return;
  if (wait_ == Wait::receive) {
    wait_ = Wait::none;
    wake();
    return;
  }
  if (!outstanding()) return;
  Qp* peer = find_peer();
  // A peer in this process that has an answer under way loses nothing: it only wants its turn.
  if (progress_ || (peer && peer->answering())) {
    start_timer();
    return;
  }
  wait_ = Wait::none;
  if (spend_retry()) go_back(unacked_psn_);
  wake();
}

void Qp::look_drained() {
  if (!draining_ || !window_empty()) return;
  draining_ = false;
  if (attr_.en_sqd_async_notify) hca_.report(events_, KH_EV_SQ_DRAINED);
}

void Qp::wake() {
  if (!running_) hca_.schedule(*this);
}

}  // namespace keyhole
