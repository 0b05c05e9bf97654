// SPDX-License-Identifier: BSD-2-Clause
//
// The responder: from segments to memory.
//
// A reliable one takes packets in PSN order. What is ahead gets a sequence NAK, once; what is
// behind is a duplicate: SENDs and WRITEs are acknowledged again and not executed, READs are read
// again, atomics are answered with the value that was saved (specification, 9.7.5.1.1
// and 9.7.5.1.3). An error is answered with a NAK and ends in the error state, with an event unless
// a receive's completion tells of it. An unreliable one drops what is out of order or not allowed,
// and nobody is told.
//
// Keys are looked up for each segment, so a key that goes away stops a message in its middle.
//
// A READ is answered in this queue pair's own turns when it is long. Until then nothing more is
// taken from this peer: Answer::busy. So requests are executed strictly in order.

#include <algorithm>
#include <atomic>

#include "hca/hca.h"
#include "hca/transport/datagram_header.h"
#include "hca/transport/psn.h"
#include "hca/transport/qp.h"
#include "hca/transport/sge.h"

namespace keyhole {
namespace {

// No asynchronous event: a completion tells.
constexpr kh_event kNoEvent = KH_EV_COMPLETION;

// Adds in fields that end with the bits set in `last`, each for itself. The last bits are added
// apart from the rest, so that nothing can carry out of them.
constexpr uint64_t add_fields(uint64_t a, uint64_t b, uint64_t last) {
  return ((a & ~last) + (b & ~last)) ^ ((a ^ b) & last);
}

// Tries until nobody has been there in between, and not longer than it takes others to do the same:
// each round that fails is one that the guest's processors have spent on this cell. So the guest
// can keep the device here only while all its efforts go into that.
template <typename Change>
uint64_t change_cell(uint64_t* cell, Change change) {
  uint64_t old = __atomic_load_n(cell, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(cell, &old, change(old), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return old;
}

}  // namespace

Reply Qp::receive(const Segment& segment) {
  if (!receiving()) [[unlikely]] {
    drop();
    return {};
  }
  switch (config_.type) {
    case KH_QPT_RC:
      return receive_reliable(segment);
    case KH_QPT_UC:
      return receive_unreliable(segment);
    default:
      receive_datagram(segment);
      return {};
  }
}

void Qp::drop() { ++hca_.stats()[KH_STAT_DROPPED]; }

void Qp::note_first_packet() {
  if (first_seen_ || attr_.state != KH_QPS_RTR || !connected()) return;
  first_seen_ = true;
  hca_.report(events_, KH_EV_COMM_EST);
}

void Qp::count_received(const Segment& segment) {
  Stats& stats = hca_.stats();
  stats[KH_STAT_RX_OPS] += segment.last;
  stats[KH_STAT_RX_BYTES] += segment.length;
  stats[KH_STAT_RX_PACKETS] += is_read_or_atomic(segment.kind) ? 1 : segment.npsn;
}

// --- Reliable --------------------------------------------------------------------------------

Reply Qp::receive_reliable(const Segment& segment) {
  if (answer_.active) [[unlikely]]
    return {.answer = Answer::busy, .psn = segment.psn};
  const int32_t ahead = psn_diff(segment.psn, expected_psn_);
  if (ahead != 0) [[unlikely]]
    return out_of_order(segment, ahead);
  nak_sent_ = false;
  return execute(segment);
}

Reply Qp::out_of_order(const Segment& segment, int32_t ahead) {
  if (ahead > 0) {
    ++hca_.stats()[KH_STAT_OUT_OF_SEQUENCE];
    if (nak_sent_) return {};
    nak_sent_ = true;
    return {.answer = Answer::sequence_error, .psn = expected_psn_, .msn = msn_};
  }
  return duplicate(segment, static_cast<uint32_t>(-ahead));
}

Reply Qp::duplicate(const Segment& segment, uint32_t behind) {
  if (segment.kind == SegmentKind::send || segment.kind == SegmentKind::write) {
    if (behind >= segment.npsn) {
      ++hca_.stats()[KH_STAT_DUPLICATES];
      return {.answer = Answer::ack, .psn = psn_add(expected_psn_, kPsnMask), .msn = msn_};
    }
    // It was cut differently the first time: its later packets are new.
    Spans spans;
    SpanCursor rest(segment.payload);
    rest.skip(size_t{behind} << mtu_shift_);
    size_t nspans = 0;
    for (; !rest.done() && nspans < kSpans; rest.advance(rest.size()))
      spans[nspans++] = {rest.data(), rest.size()};
    Segment tail = segment;
    tail.first = false;
    tail.psn = expected_psn_;
    tail.npsn -= behind;
    tail.length -= behind << mtu_shift_;
    tail.payload = {spans.data(), nspans};
    nak_sent_ = false;
    return execute(tail);
  }

  ++hca_.stats()[KH_STAT_DUPLICATES];
  for (const Answered& old : answered_) {
    if (old.kind != segment.kind) continue;
    const uint32_t into = psn_distance(old.psn, segment.psn);
    if (into >= old.npsn) continue;
    if (segment.kind != SegmentKind::read)
      return {.answer = Answer::atomic, .psn = old.psn, .msn = msn_, .value = old.value};
    // The same READ, or the rest of it.
    const uint64_t skipped = uint64_t{into} << mtu_shift_;
    if (segment.rkey != old.rkey || segment.remote_addr != old.addr + skipped ||
        segment.dma_length + skipped != old.length)
      return {};
    begin_answer(segment.psn, segment.remote_addr, segment.rkey, segment.dma_length);
    return {};
  }
  // Too old to be known: no answer (specification, 9.7.5.1.3).
  return {};
}

Reply Qp::execute(const Segment& segment) {
  note_first_packet();
  // Within a message only its own packets may come.
  const bool is_send = segment.kind == SegmentKind::send;
  if (message_.active) {
    if (segment.first || is_read_or_atomic(segment.kind) || is_send != message_.is_send)
      return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NAK_INVALID);
  } else if (!segment.first) {
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NAK_INVALID);
  }
  switch (segment.kind) {
    case SegmentKind::send:
      return execute_send(segment);
    case SegmentKind::write:
      return execute_write(segment);
    case SegmentKind::read:
      return execute_read(segment);
    case SegmentKind::compare_swap:
    case SegmentKind::fetch_add:
    case SegmentKind::masked_compare_swap:
    case SegmentKind::masked_fetch_add:
      return execute_atomic(segment);
    case SegmentKind::atomic_write:
      return execute_atomic_write(segment);
    case SegmentKind::flush:
      return execute_flush(segment);
    default:
      return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NAK_INVALID);
  }
}

// Executed: moves on, and acknowledges.
Reply Qp::accept(const Segment& segment) {
  expected_psn_ = psn_add(segment.psn, segment.npsn);
  msn_ = (msn_ + segment.last) & kPsnMask;
  count_received(segment);
  if (!segment.ack_request) return {};
  return {.answer = Answer::ack, .psn = psn_add(expected_psn_, kPsnMask), .msn = msn_};
}

// The first packets of it, `bytes` in all: the rest is to come in another turn.
Reply Qp::accept_some(const Segment& segment, uint32_t bytes) {
  Segment head = segment;
  head.npsn = bytes >> mtu_shift_;
  head.length = bytes;
  head.last = false;
  accept(head);
  return {.answer = Answer::busy, .psn = expected_psn_, .msn = msn_};
}

Reply Qp::refuse(Answer answer, kh_event event, uint32_t syndrome) {
  Reply reply{.answer = answer, .psn = expected_psn_, .msn = msn_};
  if (event != kNoEvent) hca_.report(events_, event, syndrome);
  enter_error();
  return reply;
}

Reply Qp::not_ready() {
  ++hca_.stats()[KH_STAT_RNR_NAKS_SENT];
  nak_sent_ = true;
  return {.answer = Answer::rnr, .code = attr_.min_rnr_timer, .psn = expected_psn_, .msn = msn_};
}

Reply Qp::execute_send(const Segment& segment) {
  if (segment.first) {
    switch (take_receive()) {
      case Receive::ready:
        break;
      case Receive::none:
        return not_ready();
      case Receive::failed:
        return refuse(Answer::operation_error, kNoEvent, 0);
    }
    message_ = {.active = true, .is_send = true};
  }
  if (segment.length > receive_room_ - receive_done_) {
    fail_receive({KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH});
    return refuse(Answer::invalid_request, kNoEvent, 0);
  }
  Scattered stored = fill_receive(SpanCursor(segment.payload), segment.length, 1u << mtu_shift_);
  if (!stored.verdict.ok()) {
    fail_receive(stored.verdict);
    return refuse(Answer::operation_error, kNoEvent, 0);
  }
  if (stored.bytes < segment.length) [[unlikely]]
    return accept_some(segment, stored.bytes);
  if (segment.last) {
    if (segment.has_invalidate) {
      auto invalidated = hca_.mkeys().invalidate(segment.immediate, who_);
      if (!invalidated) {
        fail_receive({KH_WC_REM_INV_REQ_ERR, invalidated.error()});
        return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, invalidated.error());
      }
      ++hca_.stats()[KH_STAT_INVALIDATES];
    }
    message_.active = false;
    complete_receive(segment, KH_CQE_RECV, receive_done_);
  }
  return accept(segment);
}

Reply Qp::execute_write(const Segment& segment) {
  if (segment.first) {
    if (!(attr_.access & KH_ACCESS_REMOTE_WRITE))
      return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR,
                    KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
    if (segment.dma_length > KH_MAX_MSG_SIZE)
      return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_WQE_LENGTH);
    message_ = {.active = true,
                .is_send = false,
                .rkey = segment.rkey,
                .addr = segment.remote_addr,
                .left = segment.dma_length,
                .done = 0};
  }
  if (segment.length > message_.left || segment.last != (segment.length == message_.left))
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_WQE_LENGTH);

  const bool completes = segment.last && segment.has_immediate;
  if (completes) [[unlikely]] {
    switch (take_receive()) {
      case Receive::ready:
        break;
      case Receive::none:
        if (segment.first) message_.active = false;
        return not_ready();
      case Receive::failed:
        return refuse(Answer::operation_error, kNoEvent, 0);
    }
  }

  // The range is checked to its end, so that a message which will not fit changes nothing.
  auto place = hca_.mkeys().remote(message_.rkey, message_.addr, message_.left,
                                   KH_ACCESS_REMOTE_WRITE, who_);
  if (!place) [[unlikely]]
    return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place.error());
  SpanCursor from(segment.payload);
  auto stored = store(*place, from, segment.length, StoreLimit::from_now(1u << mtu_shift_));
  if (!stored) [[unlikely]]
    return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place->why(KH_SYN_REMOTE_KEY));
  message_.addr += *stored;
  message_.left -= *stored;
  message_.done += *stored;
  if (*stored < segment.length) [[unlikely]]
    return accept_some(segment, *stored);
  if (segment.last) message_.active = false;
  if (completes) complete_receive(segment, KH_CQE_RECV_WRITE_IMM, message_.done);
  return accept(segment);
}

Reply Qp::execute_read(const Segment& segment) {
  if (!(attr_.access & KH_ACCESS_REMOTE_READ))
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  if (attr_.max_dest_rd_atomic == 0)
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NO_RD_ATOMIC);
  if (segment.dma_length > KH_MAX_MSG_SIZE ||
      segment.npsn != packets(segment.dma_length, mtu_shift_))
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_WQE_LENGTH);
  auto place = hca_.mkeys().remote(segment.rkey, segment.remote_addr, segment.dma_length,
                                   KH_ACCESS_REMOTE_READ, who_);
  if (!place) return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place.error());
  remember({.kind = SegmentKind::read,
            .psn = segment.psn,
            .npsn = segment.npsn,
            .rkey = segment.rkey,
            .length = segment.dma_length,
            .addr = segment.remote_addr});
  accept(segment);
  begin_answer(segment.psn, segment.remote_addr, segment.rkey, segment.dma_length);
  return {};
}

void Qp::remember(const Answered& answered) {
  answered_[answered_next_] = answered;
  answered_next_ = (answered_next_ + 1) % std::max<uint32_t>(attr_.max_dest_rd_atomic, 1);
}

// The eight bytes that an atomic is about. They are aligned, and they are memory.
std::optional<Reply> Qp::find_cell(const Segment& segment, uint32_t right, uint64_t*& cell) {
  if (!(attr_.access & right))
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  if (attr_.max_dest_rd_atomic == 0)
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NO_RD_ATOMIC);
  if (segment.remote_addr & 7)
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_ATOMIC_ALIGN);
  auto place = hca_.mkeys().remote(segment.rkey, segment.remote_addr, 8, right, who_);
  if (!place) return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place.error());
  HostSpan span = place->next(8);
  if (!span)
    return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place->why(KH_SYN_REMOTE_KEY));
  if (span.size < 8 && place->border() != 0)
    return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, place->border());
  // A region may map an aligned address to memory that is not.
  if (span.size < 8 || reinterpret_cast<uintptr_t>(span.host) & 7)
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_ATOMIC_ALIGN);
  cell = reinterpret_cast<uint64_t*>(span.host);
  return std::nullopt;
}

Reply Qp::execute_atomic(const Segment& segment) {
  uint64_t* cell = nullptr;
  if (auto refused = find_cell(segment, KH_ACCESS_REMOTE_ATOMIC, cell)) return *refused;
  uint64_t found = 0;
  switch (segment.kind) {
    case SegmentKind::fetch_add:
      found = __atomic_fetch_add(cell, segment.swap_add, __ATOMIC_SEQ_CST);
      break;
    case SegmentKind::compare_swap:
      found = segment.compare;
      __atomic_compare_exchange_n(cell, &found, segment.swap_add, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST);
      break;
    case SegmentKind::masked_fetch_add:
      found = change_cell(
          cell, [&](uint64_t old) { return add_fields(old, segment.swap_add, segment.swap_mask); });
      break;
    default:
      found = change_cell(cell, [&](uint64_t old) {
        if ((old ^ segment.compare) & segment.compare_mask) return old;
        return (old & ~segment.swap_mask) | (segment.swap_add & segment.swap_mask);
      });
      break;
  }
  return answer_at_once(segment, found);
}

Reply Qp::execute_atomic_write(const Segment& segment) {
  uint64_t* cell = nullptr;
  if (auto refused = find_cell(segment, KH_ACCESS_REMOTE_WRITE, cell)) return *refused;
  __atomic_store_n(cell, segment.swap_add, __ATOMIC_SEQ_CST);
  return answer_at_once(segment, 0);
}

// What came before has been executed, and the memory is coherent with the guest's processors. So
// all that a FLUSH of the global kind asks for is so already; what remains is to check its key.
Reply Qp::execute_flush(const Segment& segment) {
  if (attr_.max_dest_rd_atomic == 0)
    return refuse(Answer::invalid_request, KH_EV_QP_REQ_ERR, KH_SYN_NO_RD_ATOMIC);
  uint64_t addr = segment.remote_addr;
  uint64_t length = segment.dma_length;
  if (segment.flush_level == KH_FLUSH_MR || length == 0) {
    const Mkey* mkey = hca_.mkeys().query(segment.rkey);
    addr = mkey ? mkey->start : 0;
    length = 1;
  }
  auto place = hca_.mkeys().remote(segment.rkey, addr, length, KH_ACCESS_FLUSH_GLOBAL, who_);
  uint32_t why = place ? KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS : place.error();
  // No key grants persistence.
  if (!place || (segment.flush_type & KH_FLUSH_PERSISTENT))
    return refuse(Answer::access_error, KH_EV_QP_ACCESS_ERR, why);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return answer_at_once(segment, 0);
}

// Executed; a duplicate will get the same answer.
Reply Qp::answer_at_once(const Segment& segment, uint64_t value) {
  remember({.kind = segment.kind, .psn = segment.psn, .npsn = 1, .value = value});
  accept(segment);
  return {.answer = Answer::atomic, .psn = segment.psn, .msn = msn_, .value = value};
}

void Qp::begin_answer(uint32_t psn, uint64_t addr, uint32_t rkey, uint32_t length) {
  answer_ = {.active = true, .first = true, .psn = psn, .rkey = rkey, .addr = addr, .left = length};
  // Short ones at once, in the requester's turn.
  Quantum quantum{.entries = 2, .bytes = chunk_};
  send_answers(quantum);
  if (answer_.active) wake();
}

void Qp::send_answers(Quantum& quantum) {
  for (EntryMeter meter; answer_.active && quantum.left(); meter.charge(quantum)) {
    Segment segment{};
    segment.transport = KH_QPT_RC;
    segment.dest_qpn = attr_.dest_qpn;
    segment.source_qpn = config_.qpn;
    segment.solicited = segment.ack_request = false;
    segment.has_immediate = segment.has_invalidate = false;
    segment.psn = answer_.psn;

    auto place =
        hca_.mkeys().remote(answer_.rkey, answer_.addr, answer_.left, KH_ACCESS_REMOTE_READ, who_);
    Spans spans;
    Gathered found;
    if (place)
      found = gather(*place, std::min(answer_.left, chunk_), 1u << mtu_shift_, spans);
    else
      found.verdict = {KH_WC_REM_ACCESS_ERR, place.error()};
    if (!found.verdict.ok()) [[unlikely]] {
      answer_.active = false;
      segment.kind = SegmentKind::ack;
      segment.npsn = 1;
      segment.length = 0;
      segment.payload = {};
      segment.aeth = {.answer = Answer::access_error, .psn = segment.psn, .msn = msn_};
      hca_.report(events_, KH_EV_QP_ACCESS_ERR, found.verdict.syndrome);
      enter_error();
      send_answer(segment);
      return;
    }
    const uint32_t length = found.bytes;

    segment.kind = SegmentKind::read_response;
    segment.npsn = packets(length, mtu_shift_);
    segment.first = answer_.first;
    segment.last = length == answer_.left;
    segment.length = length;
    segment.payload = {spans.data(), found.spans};
    segment.aeth = {.answer = Answer::ack, .psn = segment.psn, .msn = msn_};

    const Answering before = answer_;
    answer_.first = false;
    answer_.psn = psn_add(answer_.psn, segment.npsn);
    answer_.addr += length;
    answer_.left -= length;
    if (segment.last) answer_.active = false;
    quantum.bytes -= length;
    --quantum.entries;
    Stats& stats = hca_.stats();
    stats[KH_STAT_TX_BYTES] += length;
    stats[KH_STAT_TX_PACKETS] += segment.npsn;
    if (uint32_t refused = send_answer(segment)) [[unlikely]] {
      // It goes on from there in another turn.
      const uint32_t taken = length - refused;
      answer_ = before;
      answer_.first = before.first && taken == 0;
      answer_.psn = psn_add(before.psn, taken >> mtu_shift_);
      answer_.addr += taken;
      answer_.left -= taken;
      quantum.bytes = 0;
    }
  }
}

uint32_t Qp::send_answer(const Segment& segment) {
  int copies = 1;
  if (faults_) [[unlikely]] {
    Fate fate = faults_->on_segment(segment);
    if (fate == Fate::lost || fate == Fate::held) return 0;
    if (fate == Fate::twice) copies = 2;
  }
  uint32_t refused = 0;
  for (; copies > 0; --copies) {
    Qp* peer = find_peer();
    if (!peer) {
      // Nobody to answer any more.
      answer_.active = false;
      return 0;
    }
    refused = std::max(refused, peer->receive_response(segment));
  }
  return refused;
}

// --- Unreliable connection -------------------------------------------------------------------

// What is dropped gets no answer, and what is executed none either; but inside one process it may
// be that only a part is taken.
Reply Qp::receive_unreliable(const Segment& segment) {
  auto drop_it = [&]() -> Reply {
    drop();
    return {};
  };
  note_first_packet();
  const bool is_send = segment.kind == SegmentKind::send;
  if (segment.first) {
    // A message that has not ended is lost; its receive serves this one.
    expected_psn_ = segment.psn;
    message_ = {.active = false,
                .is_send = is_send,
                .rkey = segment.rkey,
                .addr = segment.remote_addr,
                .left = segment.dma_length,
                .done = 0};
    receive_done_ = 0;
    if (is_send) {
      if (take_receive() != Receive::ready) return drop_it();
    } else if (!(attr_.access & KH_ACCESS_REMOTE_WRITE) || segment.dma_length > KH_MAX_MSG_SIZE) {
      return drop_it();
    }
    message_.active = true;
  } else if (!message_.active || segment.psn != expected_psn_ || is_send != message_.is_send) {
    message_.active = false;
    return drop_it();
  }
  expected_psn_ = psn_add(segment.psn, segment.npsn);

  uint32_t done = 0;
  if (is_send) {
    Scattered stored{0, {KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH}};
    if (segment.length <= receive_room_ - receive_done_)
      stored = fill_receive(SpanCursor(segment.payload), segment.length, 1u << mtu_shift_);
    if (!stored.verdict.ok()) {
      fail_receive(stored.verdict);
      enter_error();
      return {};
    }
    done = stored.bytes;
  } else {
    message_.active = false;
    if (segment.length > message_.left || segment.last != (segment.length == message_.left))
      return drop_it();
    if (segment.last && segment.has_immediate && take_receive() != Receive::ready) return drop_it();
    auto place = hca_.mkeys().remote(message_.rkey, message_.addr, message_.left,
                                     KH_ACCESS_REMOTE_WRITE, who_);
    if (!place) return drop_it();
    SpanCursor from(segment.payload);
    auto stored = store(*place, from, segment.length, StoreLimit::from_now(1u << mtu_shift_));
    if (!stored) return drop_it();
    done = *stored;
    message_.active = true;
    message_.addr += done;
    message_.left -= done;
    message_.done += done;
  }
  if (done < segment.length) [[unlikely]]
    return accept_some(segment, done);
  count_received(segment);
  if (!segment.last) return {};
  message_.active = false;
  if (is_send) {
    complete_receive(segment, KH_CQE_RECV, receive_done_);
  } else if (segment.has_immediate) {
    complete_receive(segment, KH_CQE_RECV_WRITE_IMM, message_.done);
  }
  return {};
}

// --- Datagrams -------------------------------------------------------------------------------

void Qp::receive_datagram(const Segment& segment) {
  if (segment.kind != SegmentKind::send || !segment.path || segment.qkey != attr_.qkey)
    return drop();
  note_first_packet();
  if (take_receive() != Receive::ready) return drop();
  receive_done_ = 0;
  // Never more than one packet: it is taken as a whole.
  constexpr uint32_t kWhole = 1u << 31;
  Verdict verdict{KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH};
  if (uint64_t{segment.length} + kGrhBytes <= receive_room_) {
    auto grh = make_grh(*segment.path, segment.length, segment.has_immediate);
    HostSpan span{grh.data(), grh.size()};
    verdict = fill_receive(SpanCursor({&span, 1}), kGrhBytes, kWhole).verdict;
    if (verdict.ok())
      verdict = fill_receive(SpanCursor(segment.payload), segment.length, kWhole).verdict;
  }
  if (!verdict.ok()) {
    fail_receive(verdict);
    enter_error();
    return;
  }
  count_received(segment);
  complete_receive(segment, KH_CQE_RECV, kGrhBytes + segment.length);
}

}  // namespace keyhole
