// SPDX-License-Identifier: BSD-2-Clause
//
// The requester: from work requests to segments.
//
// Requests are taken from the ring in order, and each is sent as a whole before the next is taken,
// over as many turns as its length needs. Everything that a request must wait for (a fence, a free
// READ resource, room in the window) keeps it in the ring; whoever makes the wait end schedules a
// turn.
//
// What is wrong with a request is found when it is taken or while it is sent. Its error completes
// only after all before it have, so it stays in the window as failed and nothing behind it is
// taken.

#include <algorithm>
#include <cstring>

#include "hca/guest_access.h"
#include "hca/hca.h"
#include "hca/transport/datagram_header.h"
#include "hca/transport/psn.h"
#include "hca/transport/qp.h"
#include "hca/transport/sge.h"

namespace keyhole {
namespace {

constexpr SegmentKind kind_of(uint8_t opcode) {
  switch (opcode) {
    case KH_OP_WRITE:
    case KH_OP_WRITE_IMM:
      return SegmentKind::write;
    case KH_OP_READ:
      return SegmentKind::read;
    case KH_OP_CMP_SWAP:
      return SegmentKind::compare_swap;
    case KH_OP_FETCH_ADD:
      return SegmentKind::fetch_add;
    case KH_OP_MASKED_CMP_SWAP:
      return SegmentKind::masked_compare_swap;
    case KH_OP_MASKED_FETCH_ADD:
      return SegmentKind::masked_fetch_add;
    case KH_OP_ATOMIC_WRITE:
      return SegmentKind::atomic_write;
    case KH_OP_FLUSH:
      return SegmentKind::flush;
    default:
      return SegmentKind::send;
  }
}

constexpr Verdict bad_request(uint32_t why) { return {KH_WC_LOC_QP_OP_ERR, why}; }

}  // namespace

bool Qp::run(Quantum& quantum) {
  running_ = true;
  if (answer_.active) send_answers(quantum);
  bool more = false;
  uint8_t state = attr_.state;
  switch (state) {
    case KH_QPS_RTS:
    case KH_QPS_SQD:
      more = send_requests(quantum);
      break;
    case KH_QPS_SQE:
      more = flush_send_queue(quantum);
      break;
    case KH_QPS_ERR:
      more = flush_send_queue(quantum) || flush_receive_queue(quantum);
      break;
    default:
      break;
  }
  if (outstanding() && !timer_.running()) start_timer();
  // An error has happened on the way: there is something to flush.
  if (attr_.state != state) more = true;
  running_ = false;
  return more || answer_.active;
}

bool Qp::send_requests(Quantum& quantum) {
  EntryMeter meter;
  for (;; meter.charge(quantum)) {
    if (!quantum.left()) return true;
    if (attr_.state != KH_QPS_RTS && attr_.state != KH_QPS_SQD) return true;
    if (fill_) [[unlikely]] {
      if (!continue_fill(quantum)) return true;
      continue;
    }
    if (wait_ != Wait::none) return false;
    if (current_ != newest_) {
      if (!send_some(quantum)) return true;
      continue;
    }
    if (attr_.state == KH_QPS_SQD) {
      look_drained();
      return false;
    }
    if (take_request(quantum) != Take::taken) return false;
  }
}

// Reads the producer index. False when there is nothing new, or it is nonsense.
bool Qp::load_producer() {
  std::byte* db = record();
  if (!db) [[unlikely]] {
    dead_ = true;
    fatal(KH_SYN_WQE_MEMORY);
    return false;
  }
  producer_ = load_acquire<uint32_t>(db + offsetof(kh_qp_db, sq_pi));
  // Software frees a request's blocks only when its completion has been written.
  if (producer_ - done_block_ > ring_.size) [[unlikely]] {
    dead_ = true;
    fatal(KH_SYN_WQE_RING);
    return false;
  }
  return producer_ != next_block_;
}

Qp::Take Qp::take_request(Quantum& quantum) {
  if (stopped_) return Take::wait;
  if (producer_ == next_block_) {
    if (ring_.size == 0 || !load_producer()) return Take::nothing;
  }
  if (newest_ - oldest_ == kWindow) return Take::wait;
  const uint32_t available = producer_ - next_block_;

  loaded_valid_ = false;
  if (!fetch_wqe(ring_, next_block_, available, buffer_)) [[unlikely]] {
    dead_ = true;
    fatal(KH_SYN_WQE_MEMORY);
    return Take::wait;
  }
  if (!decode_head(buffer_, available, wqe_)) [[unlikely]] {
    // Nobody knows where the next request begins: this one takes all the rest with it.
    --quantum.entries;
    push_failed(available, bad_request(KH_SYN_WQE_SIZE));
    return Take::taken;
  }
  Verdict verdict = decode_wqe(buffer_, {config_.type, config_.max_send_sge, datagram_mtu()}, wqe_);
  const bool read = wqe_.is_read_or_atomic();
  if (verdict.ok() && read && attr_.max_rd_atomic == 0) verdict = bad_request(KH_SYN_NO_RD_ATOMIC);
  if (!verdict.ok()) [[unlikely]] {
    --quantum.entries;
    if (is_umr(wqe_.opcode)) ++hca_.stats()[KH_STAT_UMR_ERRORS];
    push_failed(wqe_.nblocks, verdict);
    return Take::taken;
  }

  if (reads_ > 0) {
    if (wqe_.flags & KH_WQE_FENCE) return Take::wait;
    if (read && reads_ >= attr_.max_rd_atomic) return Take::wait;
  }
  if (wqe_.is_local()) {
    // What is under way may still need the key.
    if ((wqe_.opcode == KH_OP_LOCAL_INV || is_umr(wqe_.opcode)) && !window_empty())
      return Take::wait;
    --quantum.entries;
    execute_locally(push_request(wqe_.nblocks, 0));
    return Take::taken;
  }
  const bool one_packet = !connected() || (read && wqe_.opcode != KH_OP_READ);
  const uint32_t npsn = one_packet ? 1 : packets(wqe_.length, mtu_shift_);
  if (psn_distance(unacked_psn_, next_psn_) + npsn > kPsnWindow) return Take::wait;

  --quantum.entries;
  loaded_ = newest_;
  loaded_valid_ = true;
  push_request(wqe_.nblocks, npsn);
  reads_ += read;
  ++hca_.stats()[KH_STAT_TX_OPS];
  return Take::taken;
}

Qp::Request& Qp::push_request(uint32_t nblocks, uint32_t npsn) {
  Request& request = window(newest_++);
  request = {.wr_id = wqe_.wr_id,
             .block = next_block_,
             .nblocks = nblocks,
             .psn = next_psn_,
             .npsn = npsn,
             .length = wqe_.length,
             .arrived = 0,
             .verdict = {},
             .opcode = wqe_.opcode,
             .flags = wqe_.flags,
             .progress = Progress::sending};
  next_block_ += nblocks;
  next_psn_ = psn_add(next_psn_, npsn);
  return request;
}

void Qp::push_failed(uint32_t nblocks, Verdict verdict) {
  stop_at(push_request(nblocks, 0), verdict);
}

// The request cannot be done. Nothing is sent or taken any more; it completes when its turn comes.
void Qp::stop_at(Request& request, Verdict verdict) {
  request.progress = Progress::failed;
  request.verdict = verdict;
  stopped_ = true;
  current_ = newest_;
  sent_ = 0;
  complete_ready();
}

// A request that was taken before, read again. False when it is no longer the same.
bool Qp::load_again(const Request& request, Wqe& wqe, WqeBuffer& buffer) {
  if (!fetch_wqe(ring_, request.block, request.nblocks, buffer)) return false;
  if (!decode_head(buffer, request.nblocks, wqe)) return false;
  Verdict verdict = decode_wqe(buffer, {config_.type, config_.max_send_sge, datagram_mtu()}, wqe);
  return verdict.ok() && wqe.opcode == request.opcode && wqe.length == request.length;
}

// Sends the current request, or a part of it. False: the peer is busy, let others have a turn.
bool Qp::send_some(Quantum& quantum) {
  Request& request = window(current_);
  if (request.progress != Progress::sending) {
    // Nothing behind a request that has failed is sent.
    if (request.progress == Progress::failed) {
      current_ = newest_;
    } else {
      step();
    }
    sent_ = 0;
    return true;
  }
  if (!loaded_valid_ || loaded_ != current_) [[unlikely]] {
    loaded_ = current_;
    loaded_valid_ = load_again(request, wqe_, buffer_);
    if (!loaded_valid_) {
      stop_at(request, bad_request(KH_SYN_WQE_MEMORY));
      return true;
    }
  }
  if (!connected()) {
    quantum.bytes -= request.length;
    send_datagram(request);
    return true;
  }
  if (request.is_read_or_atomic()) return send_read_or_atomic(request, quantum);
  return send_message(request, quantum);
}

Segment Qp::new_segment(const Request& request) const {
  Segment segment{};
  segment.kind = kind_of(request.opcode);
  segment.transport = config_.type;
  segment.solicited = (request.flags & KH_WQE_SOLICITED) != 0;
  segment.ack_request = true;
  segment.has_immediate = request.opcode == KH_OP_SEND_IMM || request.opcode == KH_OP_WRITE_IMM;
  segment.has_invalidate = request.opcode == KH_OP_SEND_INV;
  segment.immediate = wqe_.imm;
  segment.dest_qpn = attr_.dest_qpn;
  segment.source_qpn = config_.qpn;
  return segment;
}

void Qp::note_sent(const Segment& segment) {
  uint32_t end = psn_add(segment.psn, segment.npsn);
  // What is sent again may have been acknowledged meanwhile: then it ends behind `unacked_psn_`.
  uint32_t ahead = psn_distance(unacked_psn_, end);
  if (ahead <= kPsnWindow && ahead > psn_distance(unacked_psn_, high_psn_)) high_psn_ = end;
  Stats& stats = hca_.stats();
  stats[KH_STAT_TX_BYTES] += segment.length;
  stats[KH_STAT_TX_PACKETS] += is_read_or_atomic(segment.kind) ? 1 : segment.npsn;
}

bool Qp::send_message(Request& request, Quantum& quantum) {
  const uint32_t offset = sent_;
  const uint32_t left = request.length - offset;
  uint32_t length = std::min(left, chunk_);

  Spans spans;
  uint32_t nspans = 0;
  if (wqe_.inline_data) {
    if (length) spans[nspans++] = {const_cast<std::byte*>(wqe_.inline_data) + offset, length};
  } else if (length) {
    Gathered found = gather(hca_.mkeys(), who_, {wqe_.sge, wqe_.num_sge}, offset, length,
                            1u << mtu_shift_, spans);
    if (!found.verdict.ok()) [[unlikely]] {
      stop_at(request, found.verdict);
      return true;
    }
    length = found.bytes;
    nspans = found.spans;
  }

  Segment segment = new_segment(request);
  segment.first = offset == 0;
  segment.last = length == left;
  segment.psn = psn_add(request.psn, offset >> mtu_shift_);
  segment.npsn = packets(length, mtu_shift_);
  if (wqe_.rdma) {
    segment.remote_addr = wqe_.rdma->remote_addr;
    segment.rkey = wqe_.rdma->rkey;
  }
  segment.dma_length = request.length;
  segment.payload = {spans.data(), nspans};
  segment.length = length;

  // The peer may answer before deliver() returns, so this queue pair is in order before it is
  // called.
  if (segment.last) {
    step();
  } else {
    sent_ += length;
  }
  note_sent(segment);
  quantum.bytes -= length;

  Reply reply = deliver(segment);
  if (config_.type == KH_QPT_UC) unacked_psn_ = high_psn_;
  if (reply.answer == Answer::busy) {
    go_back(reply.psn);
    return false;
  }
  if (config_.type == KH_QPT_UC) {
    if (segment.last) {
      request.progress = Progress::done;
      complete_ready();
    }
    return true;
  }
  take_reply(segment, reply);
  return true;
}

bool Qp::send_read_or_atomic(Request& request, Quantum& quantum) {
  Segment segment = new_segment(request);
  segment.first = segment.last = true;
  segment.remote_addr = wqe_.rdma->remote_addr;
  segment.rkey = wqe_.rdma->rkey;
  segment.length = 0;
  segment.payload = {};
  if (request.opcode == KH_OP_READ) {
    // Sent again, it asks for what has not come yet.
    segment.remote_addr += request.arrived;
    segment.dma_length = request.length - request.arrived;
    segment.psn = psn_add(request.psn, request.arrived >> mtu_shift_);
    segment.npsn = packets(segment.dma_length, mtu_shift_);
    quantum.bytes -= std::min(segment.dma_length, chunk_);
  } else {
    segment.dma_length = 8;
    segment.psn = request.psn;
    segment.npsn = 1;
    if (request.opcode == KH_OP_FLUSH) {
      segment.dma_length = wqe_.rdma->inline_len;
      segment.flush_type = static_cast<uint8_t>(wqe_.flush->type);
      segment.flush_level = static_cast<uint8_t>(wqe_.flush->level);
    } else if (request.opcode == KH_OP_ATOMIC_WRITE) {
      std::memcpy(&segment.swap_add, wqe_.inline_data, sizeof(segment.swap_add));
    } else {
      // An atomic cannot be taken back: its result must have a place to go.
      auto place = hca_.mkeys().local(wqe_.sge->lkey, wqe_.sge->addr, 8, true, who_);
      uint32_t why = place ? uint32_t{KH_SYN_NONE} : place.error();
      while (place && place->indirect() && place->left() > 0 && why == KH_SYN_NONE) {
        if (!place->next(8)) why = place->why(KH_SYN_LOCAL_KEY);
      }
      if (why != KH_SYN_NONE) {
        stop_at(request, local_protection(why));
        return true;
      }
      segment.swap_add = wqe_.atomic->swap_add;
      segment.compare = wqe_.atomic->compare;
      if (request.opcode == KH_OP_MASKED_CMP_SWAP || request.opcode == KH_OP_MASKED_FETCH_ADD) {
        segment.swap_mask = wqe_.masked->swap_mask;
        segment.compare_mask = wqe_.masked->compare_mask;
      }
    }
  }
  step();
  note_sent(segment);

  Reply reply = deliver(segment);
  if (reply.answer == Answer::busy) {
    go_back(reply.psn);
    return false;
  }
  take_reply(segment, reply);
  return true;
}

uint32_t Qp::datagram_mtu() const {
  if (connected()) return 0;
  // What of the port's MTU is left behind the longest headers that RoCE v2 may have (IPv6, UDP,
  // BTH, XRC, AtomicETH, ICRC), rounded down to a path MTU: so does Linux compute the port's active
  // MTU.
  constexpr uint32_t kHeaders = 40 + 8 + 12 + 4 + 28 + 4;
  uint32_t room = hca_.mtu() > kHeaders ? hca_.mtu() - kHeaders : 0;
  for (uint32_t mtu = 4096; mtu >= 256; mtu /= 2) {
    if (mtu <= room) return mtu;
  }
  return 256;
}

void Qp::send_datagram(Request& request) {
  const kh_wqe_ud& ud = *wqe_.ud;
  const GidEntry* source = hca_.gid(ud.av.sgid_index);
  Gid dgid;
  std::ranges::copy(ud.av.dgid, dgid.begin());
  if (!source || is_zero(dgid) || ud.dest_qpn > 0xffffff || ud.av.flow_label > 0xfffff) {
    stop_at(request, bad_request(KH_SYN_WQE_AV));
    return;
  }

  Spans spans;
  uint32_t nspans = 0;
  if (wqe_.inline_data) {
    if (request.length)
      spans[nspans++] = {const_cast<std::byte*>(wqe_.inline_data), request.length};
  } else if (request.length) {
    Gathered found =
        gather(hca_.mkeys(), who_, {wqe_.sge, wqe_.num_sge}, 0, request.length, kPacket, spans);
    if (!found.verdict.ok()) {
      stop_at(request, found.verdict);
      return;
    }
    nspans = found.spans;
  }

  Segment segment = new_segment(request);
  segment.first = segment.last = true;
  segment.ack_request = false;
  segment.psn = request.psn;
  segment.npsn = 1;
  segment.dest_qpn = ud.dest_qpn;
  // The privileged bit stands for the queue pair's own key (specification, 10.2.5).
  segment.qkey = ud.qkey & 0x80000000 ? attr_.qkey : ud.qkey;
  segment.payload = {spans.data(), nspans};
  segment.length = request.length;

  step();
  note_sent(segment);
  unacked_psn_ = high_psn_;
  deliver_datagram(segment, ud, *source);
  request.progress = Progress::done;
  complete_ready();
}

void Qp::execute_locally(Request& request) {
  std::expected<void, uint32_t> done;
  uint8_t status = KH_WC_LOC_QP_OP_ERR;
  switch (request.opcode) {
    case KH_OP_BIND_MW:
      done = hca_.mkeys().bind(*wqe_.bind, who_, windows_);
      status = KH_WC_MW_BIND_ERR;
      if (done) ++hca_.stats()[KH_STAT_MW_BINDS];
      break;
    case KH_OP_LOCAL_INV:
      done = hca_.mkeys().invalidate(wqe_.imm, who_);
      if (done) ++hca_.stats()[KH_STAT_INVALIDATES];
      break;
    case KH_OP_UMR_FILL:
      done = begin_fill();
      if (fill_) return;
      ++hca_.stats()[done ? KH_STAT_UMR_FILLS : KH_STAT_UMR_ERRORS];
      break;
    case KH_OP_UMR_INV:
      done = hca_.mkeys().unfill(wqe_.imm, who_);
      if (done)
        ++hca_.stats()[KH_STAT_INVALIDATES];
      else
        ++hca_.stats()[KH_STAT_UMR_ERRORS];
      break;
    case KH_OP_REG_MR:
      done = std::unexpected(uint32_t{KH_SYN_WQE_OPCODE});  // KH_CAP_REG_MR is not offered
      break;
    default:
      break;
  }
  if (!done) {
    stop_at(request, {status, done.error()});
    return;
  }
  request.progress = Progress::done;
  if (current_ + 1 == newest_) step();
  complete_ready();
}

// A fill that is short is done at once; a long list begins to be read.
std::expected<void, uint32_t> Qp::begin_fill() {
  if (wqe_.umr->num_entries <= KH_MAX_INLINE_ENTRIES)
    return hca_.mkeys().fill(*wqe_.umr, wqe_.inline_data, who_);
  fill_ = std::make_unique<KeyFill>(hca_.mkeys(), *wqe_.umr, who_);
  return {};
}

// Reads on. False: enough for this turn.
bool Qp::continue_fill(Quantum& quantum) {
  const auto share = static_cast<uint32_t>(quantum.bytes / kEntryCost + 1);
  auto step = fill_->step(share);
  if (step && *step != KeyFill::Step::done) return false;
  fill_.reset();
  Request& request = window(oldest_);
  quantum.bytes -= int64_t{kEntryCost} * std::min(share, wqe_.umr->num_entries);
  if (!step) {
    ++hca_.stats()[KH_STAT_UMR_ERRORS];
    stop_at(request, bad_request(step.error()));
    return true;
  }
  ++hca_.stats()[KH_STAT_UMR_FILLS];
  request.progress = Progress::done;
  this->step();
  complete_ready();
  return true;
}

Reply Qp::deliver(const Segment& segment) {
  if (faults_) [[unlikely]]
    return deliver_with_faults(segment);
  Qp* peer = find_peer();
  if (!peer || !peer->receiving()) [[unlikely]] {
    // Nobody is there. To go on sending is pointless; the retransmit timer will try again.
    if (config_.type == KH_QPT_RC) wait_ = Wait::silence;
    return {};
  }
  return peer->receive(segment);
}

Reply Qp::deliver_with_faults(const Segment& segment) {
  Fate fate = faults_->on_segment(segment);
  if (fate == Fate::lost || fate == Fate::held) return {};
  Reply reply;
  for (int copies = fate == Fate::twice ? 2 : 1; copies > 0; --copies) {
    Qp* peer = find_peer();
    if (!peer || !peer->receiving()) {
      if (config_.type == KH_QPT_RC) wait_ = Wait::silence;
      return {};
    }
    reply = peer->receive(segment);
    if (reply.answer == Answer::none || reply.answer == Answer::busy) continue;
    if (faults_->on_reply(segment, reply) == Fate::lost) reply = {};
    if (copies == 2) take_reply(segment, reply);
  }
  return reply;
}

void Qp::inject(const Segment& segment) {
  Qp* peer = find_peer();
  if (!peer) return;
  if (segment.kind == SegmentKind::read_response || segment.kind == SegmentKind::ack) {
    peer->receive_response(segment);
    return;
  }
  Reply reply = peer->receive(segment);
  if (config_.type != KH_QPT_RC || reply.answer == Answer::busy) return;
  // As an answer that comes on its own: what waited for it goes on.
  take_reply(segment, reply);
  wake();
}

}  // namespace keyhole
