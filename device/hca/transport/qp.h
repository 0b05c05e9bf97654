// SPDX-License-Identifier: BSD-2-Clause
//
// A queue pair. It has three machines, as the specification draws them (chapter 9), each in a file:
//
//   requester (requester.cc)  takes work requests from the send queue, in order, and sends them to
//   the
//                             peer as segments (segment.h), a quantum at a time
//   responder (responder.cc)  takes the peer's segments: checks them, moves the bytes, acknowledges
//   completer (completer.cc)  takes the peer's acknowledgements and READ answers, completes work
//                             requests in order, sends again what got lost
//
// All HCAs of a fabric live on one thread, so to send is to call the peer: Qp::receive() returns
// the acknowledgement. The calls never nest deeper than requester -> responder -> completer, since
// neither the responder nor the completer starts a new request: they schedule a turn.
//
// A request that has been sent stays in the *window* until it is complete. The window holds what is
// needed to send it again, but not the request itself: that is read again from the ring and must
// then be what it was. Inside one process nearly everything is complete when the call returns and
// the window is almost always empty; it fills when packets get lost, while a receive is missing at
// the peer, and while long READs are under way.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hca/admin_result.h"
#include "hca/eq.h"
#include "hca/link.h"
#include "hca/mkey_table.h"
#include "hca/page_list.h"
#include "hca/receive_wqe.h"
#include "hca/run_queue.h"
#include "hca/timers.h"
#include "hca/transport/copy.h"
#include "hca/transport/segment.h"
#include "hca/transport/sge.h"
#include "hca/transport/wqe.h"
#include "keyhole_hw.h"

namespace keyhole {

class Cq;
class Hca;
class Srq;
struct GidEntry;

struct QpConfig {
  uint32_t qpn = 0;
  kh_qp_type type = KH_QPT_RC;
  uint32_t pdn = 0;
  uint16_t context = 0;
  uint16_t db_slot = 0;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;  // null: a receive queue of its own, or none
  PageList memory;     // of the rings and the record
  uint64_t sq_offset = 0;
  uint64_t rq_offset = 0;
  uint64_t db_offset = 0;
  uint8_t log_sq_blocks = 0;
  uint8_t log_rq_size = 0;
  uint8_t log_rq_stride = 0;
  bool has_sq = false;
  bool has_rq = false;
  uint8_t max_send_sge = 0;
  uint8_t max_recv_sge = 0;
};

class Qp final : public Runnable {
 public:
  Qp(Hca& hca, QpConfig&& config);
  ~Qp() override;

  // MODIFY_QP. A refused command has changed nothing.
  AdminResult modify(const kh_qp_attr& attr);
  void query(kh_qp_attr& out) const;

  // A turn: answers to READs that are owed, then the send queue, then what an error left to flush.
  bool run(Quantum& quantum) override;

  // One of its CQs has overrun.
  void cq_failed();

  // A request from a peer; the acknowledgement is the answer. Who calls has checked that the sender
  // may speak to this queue pair.
  Reply receive(const Segment& segment);

  // A READ answer, or an acknowledgement that comes on its own. How many bytes at its end are not
  // taken this time: whole packets, to be sent again.
  uint32_t receive_response(const Segment& segment);

  const QpConfig& config() const { return config_; }
  uint32_t qpn() const { return config_.qpn; }
  kh_qp_state state() const { return static_cast<kh_qp_state>(attr_.state); }
  bool connected() const { return config_.type == KH_QPT_RC || config_.type == KH_QPT_UC; }
  // Takes requests from a peer.
  bool receiving() const { return (1u << attr_.state) & kReceiving; }
  // Still has to send a READ's answer.
  bool answering() const { return answer_.active; }

  // For tests. The segments and replies that this queue pair sends go past `faults`, which outlives
  // the queue pair or is taken away before.
  void set_faults(Faults* faults) { faults_ = faults; }
  // Also for tests: makes segments shorter than they would be, so that short messages have several.
  // A multiple of the path MTU.
  void limit_segments(uint32_t bytes) { chunk_ = bytes; }
  // Delivers a segment that was held, as if this queue pair sent it now.
  void inject(const Segment& segment);

 private:
  static constexpr uint32_t kReceiving =
      1u << KH_QPS_RTR | 1u << KH_QPS_RTS | 1u << KH_QPS_SQD | 1u << KH_QPS_SQE;
  // Requests that may be on their way; more than the READs and atomics among them.
  static constexpr uint32_t kWindow = 32;
  static_assert(kWindow > KH_MAX_RD_ATOMIC);
  // Bytes of a segment, at most. A multiple of every path MTU. More than the quantum of a turn, so
  // a long message is one segment a turn: what a segment costs beside its copy is mostly that the
  // copy has pushed everything else out of the cache.
  static constexpr uint32_t kChunk = 512 * 1024;

  enum class Progress : uint8_t {
    sending,
    done,    // completes as soon as all before it have
    failed,  // completes with `verdict` as soon as all before it have
  };

  struct Request {
    uint64_t wr_id;
    uint32_t block;    // where it begins in the ring
    uint32_t nblocks;  // all that is posted, when nobody knows where it ends
    uint32_t psn;      // of its first packet
    uint32_t npsn;
    uint32_t length;
    uint32_t arrived;  // READ: bytes that have come
    Verdict verdict;
    uint8_t opcode;
    uint8_t flags;
    Progress progress;

    bool is_read_or_atomic() const { return takes_resource(opcode); }
  };

  // --- Paths (path.cc) -----------------------------------------------------------------------

  // What was found on the way to the peer, and what has to stand for that to be true still.
  struct Path {
    Hca* hca = nullptr;
    Qp* qp = nullptr;
    uint64_t serial = 0;  // of qp
    uint64_t link_generation = 0;
    uint64_t gid_generation = 0;
    uint64_t peer_gid_generation = 0;
  };

  // The connected peer, if a packet would reach it and it would accept it; else null. Not to be
  // kept across turns.
  Qp* find_peer();
  Qp* find_peer_slowly();
  // The HCA at the other end: dmac, dgid and the source's VLAN lead there.
  Hca* find_station(const kh_av& av, const GidEntry& source) const;
  // The same, remembered for as long as datagrams go the same way.
  Hca* find_datagram_station(const kh_av& av, const GidEntry& source);
  void deliver_datagram(Segment segment, const kh_wqe_ud& ud, const GidEntry& source);

  // --- Requester (requester.cc) --------------------------------------------------------------

  enum class Take : uint8_t { taken, nothing, wait };

  bool send_requests(Quantum& quantum);
  bool load_producer();
  Take take_request(Quantum& quantum);
  Request& push_request(uint32_t nblocks, uint32_t npsn);
  void push_failed(uint32_t nblocks, Verdict verdict);
  bool load_again(const Request& request, Wqe& wqe, WqeBuffer& buffer);
  bool send_some(Quantum& quantum);
  bool send_message(Request& request, Quantum& quantum);
  bool send_read_or_atomic(Request& request, Quantum& quantum);
  void send_datagram(Request& request);
  void execute_locally(Request& request);
  std::expected<void, uint32_t> begin_fill();
  bool continue_fill(Quantum& quantum);
  void stop_at(Request& request, Verdict verdict);
  Reply deliver(const Segment& segment);
  Reply deliver_with_faults(const Segment& segment);
  Segment new_segment(const Request& request) const;
  // The largest datagram: the port's path MTU.
  uint32_t datagram_mtu() const;
  void step() {
    ++current_;
    sent_ = 0;
  }
  void note_sent(const Segment& segment);

  // --- Completer (completer.cc) --------------------------------------------------------------

  void take_reply(const Segment& segment, const Reply& reply);
  void acknowledge(uint32_t psn);
  void retire(uint32_t limit);
  void complete_ready();
  void complete_oldest();
  void fail_oldest(Verdict verdict);
  void fail_at(uint32_t psn, Verdict verdict);
  void push_send_cqe(const Request& request, Verdict verdict) const;
  void pop_oldest();
  void note_progress();
  void go_back(uint32_t psn);
  bool spend_retry();
  void wait_for_receive(const Reply& reply);
  uint32_t take_read_answer(const Segment& segment);
  void take_atomic_answer(const Reply& reply);
  Scattered store_result(const Request& request, uint32_t offset, uint32_t length,
                         const SpanCursor& from);
  void start_timer();
  void on_timer();
  void look_drained();
  void wake();

  // An error completion has been written and the rest is to be flushed.
  bool stopped_by_error() const { return attr_.state != KH_QPS_RTS && attr_.state != KH_QPS_SQD; }
  bool outstanding() const { return unacked_psn_ != high_psn_; }
  bool window_empty() const { return oldest_ == newest_; }
  Request& window(uint32_t index) { return window_[index & (kWindow - 1)]; }

  // --- Responder (responder.cc, receive.cc) --------------------------------------------------

  // What the latest READs and atomics were, so that they can be answered again.
  struct Answered {
    SegmentKind kind = SegmentKind::ack;  // ack: none
    uint32_t psn = 0;
    uint32_t npsn = 0;
    uint32_t rkey = 0;
    uint32_t length = 0;
    uint64_t addr = 0;
    uint64_t value = 0;
  };

  Reply receive_reliable(const Segment& segment);
  Reply execute(const Segment& segment);
  Reply execute_send(const Segment& segment);
  Reply execute_write(const Segment& segment);
  Reply execute_read(const Segment& segment);
  Reply execute_atomic(const Segment& segment);
  Reply execute_atomic_write(const Segment& segment);
  Reply execute_flush(const Segment& segment);
  Reply answer_at_once(const Segment& segment, uint64_t value);
  // Null when the cell may be used, else the answer.
  std::optional<Reply> find_cell(const Segment& segment, uint32_t right, uint64_t*& cell);
  Reply accept(const Segment& segment);
  Reply accept_some(const Segment& segment, uint32_t bytes);
  Reply out_of_order(const Segment& segment, int32_t ahead);
  Reply duplicate(const Segment& segment, uint32_t behind);
  Reply refuse(Answer answer, kh_event event, uint32_t syndrome);
  Reply not_ready();
  void remember(const Answered& answered);
  Reply receive_unreliable(const Segment& segment);
  void receive_datagram(const Segment& segment);
  void drop();
  void note_first_packet();
  void begin_answer(uint32_t psn, uint64_t addr, uint32_t rkey, uint32_t length);
  void send_answers(Quantum& quantum);
  uint32_t send_answer(const Segment& segment);
  void count_received(const Segment& segment);

  enum class Receive : uint8_t { ready, none, failed };
  Receive take_receive();
  Receive malformed_receive();
  Scattered fill_receive(const SpanCursor& from, uint32_t length, uint32_t unit);
  void complete_receive(const Segment& segment, uint8_t opcode, uint32_t length);
  void fail_receive(Verdict verdict);
  bool load_receive_producer();

  // --- States (qp_state.cc) ------------------------------------------------------------------

  void reset();
  void enter_error();
  void fatal(kh_syndrome why);
  void stop_sending();
  bool flush_send_queue(Quantum& quantum);
  bool flush_receive_queue(Quantum& quantum);
  std::byte* record() const { return config_.memory.at(config_.db_offset); }

  // What each turn and each segment touches comes first.
  Hca& hca_;
  QpConfig config_;
  kh_qp_attr attr_{};
  KeyUser who_;
  KeyUser receive_who_;  // an SRQ's receives name keys of the SRQ's PD
  Faults* faults_ = nullptr;
  uint32_t chunk_ = kChunk;
  uint8_t mtu_shift_ = 8;  // log2 of the path MTU
  bool running_ = false;   // inside run(): no need to schedule
  uint64_t serial_;        // another one after each MODIFY_QP
  Path path_;
  kh_av path_av_{};  // of datagrams: where path_ leads

  // Requester.
  SendRing ring_;
  uint32_t producer_ = 0;    // as last read
  uint32_t next_block_ = 0;  // of the next request to take
  uint32_t done_block_ = 0;  // everything before it is complete
  uint32_t oldest_ = 0;      // window
  uint32_t newest_ = 0;      // behind its last
  uint32_t current_ = 0;     // what is being sent; newest_: nothing
  uint32_t sent_ = 0;        // bytes of it
  uint32_t next_psn_ = 0;    // of the next request
  uint32_t unacked_psn_ = 0;
  uint32_t high_psn_ = 0;  // behind the last packet ever sent
  uint32_t loaded_ = 0;    // window index of what buffer_ and wqe_ hold
  bool loaded_valid_ = false;
  bool stopped_ = false;  // a request has failed: nothing more is taken
  bool dead_ = false;     // the ring cannot be read: nothing more is flushed
  bool draining_ = false;
  uint8_t reads_ = 0;  // READs and atomics in the window
  // A UMR_FILL from a long list: the only request in the window.
  std::unique_ptr<KeyFill> fill_;

  // Completer.
  enum class Wait : uint8_t { none, receive, silence };
  Wait wait_ = Wait::none;  // until the timer: an RNR NAK, or nobody there
  bool progress_ = false;   // since the timer was started
  uint8_t retries_left_ = 0;
  uint8_t rnr_retries_left_ = 0;

  // Responder.
  uint32_t expected_psn_ = 0;
  uint32_t msn_ = 0;
  bool nak_sent_ = false;    // of a packet ahead, or RNR: silent until the expected one comes
  bool first_seen_ = false;  // COMM_EST
  struct Message {
    bool active = false;
    bool is_send = false;
    uint32_t rkey = 0;
    uint64_t addr = 0;  // of the next byte
    uint32_t left = 0;
    uint32_t done = 0;
  } message_;
  struct Answering {
    bool active = false;
    bool first = false;
    uint32_t psn = 0;
    uint32_t rkey = 0;
    uint64_t addr = 0;
    uint32_t left = 0;
  } answer_;
  uint32_t receive_ci_ = 0;
  uint32_t receive_pi_ = 0;
  bool receive_held_ = false;  // receive_ has been taken and is not complete
  bool receive_dead_ = false;
  bool receive_reported_ = false;  // LAST_WQE
  uint32_t receive_done_ = 0;      // bytes
  uint64_t receive_room_ = 0;

  WindowList windows_;
  Timer timer_;
  EventSource events_;

  Wqe wqe_{};
  WqeBuffer buffer_;
  ReceiveWqe receive_;
  std::array<Request, kWindow> window_{};

  // The latest; as many as max_dest_rd_atomic promises.
  std::array<Answered, KH_MAX_RD_ATOMIC> answered_{};
  uint32_t answered_next_ = 0;
};

}  // namespace keyhole
