// SPDX-License-Identifier: BSD-2-Clause
//
// What travels between two queue pairs.
//
// On a wire a message is a train of packets of the path MTU. Between HCAs of one process there is
// no wire, and cutting a message up to glue it together again would cost more than all the rest. So
// a message travels as *segments*: a segment has the fields of the packets' transport headers once,
// says how many consecutive packets it stands for, and names its payload by reference, as spans of
// the sender's memory. PSNs count exactly as the packets would: to put a segment on a wire is to
// cut its payload at the MTU and to number the pieces from `psn` on.
//
// A request's acknowledgement is the return value of its delivery. The answer to a READ comes as
// segments of its own.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hca/host.h"
#include "hca/link.h"
#include "keyhole_hw.h"

namespace keyhole {

enum class SegmentKind : uint8_t {
  send,
  write,
  read,  // a request: no payload
  compare_swap,
  fetch_add,
  masked_compare_swap,
  masked_fetch_add,
  atomic_write,
  flush,
  read_response,
  atomic_response,
  ack,  // on its own: after a READ response that failed, or from the outside
};

// Takes a responder resource, and is complete only with an answer of its own. FLUSH is one of them.
constexpr bool is_read_or_atomic(SegmentKind kind) {
  return kind >= SegmentKind::read && kind <= SegmentKind::flush;
}

// What an acknowledgement says (AETH syndrome; specification, 9.7.5.2.1).
enum class Answer : uint8_t {
  none,  // nothing came back
  ack,
  rnr,             // no receive is posted: try again after the time that `code` stands for
  sequence_error,  // NAK codes 0 to 3
  invalid_request,
  access_error,
  operation_error,
  atomic,  // an answer of its own: with the value an atomic found, or of a FLUSH
  busy,    // from packet `psn` on not taken: the responder is still answering a READ of this peer,
           // or has had enough for a turn. Never on a wire
};

struct Reply {
  Answer answer = Answer::none;
  uint8_t code = 0;  // RNR timer field
  uint32_t psn = 0;  // ack: the last packet received; NAKs: the packet refused
  uint32_t msn = 0;
  uint64_t value = 0;
};

// What the headers below the transport say of a datagram (RoCE v2: Ethernet, IP): its receiver is
// told.
struct DatagramPath {
  std::array<uint8_t, 16> sgid;
  std::array<uint8_t, 16> dgid;
  Mac smac;
  uint16_t vlan;
  uint8_t sl;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint32_t flow_label;
};

struct Segment {
  SegmentKind kind;
  uint8_t transport;  // enum kh_qp_type, GSI counts as UD
  bool first;
  bool last;
  bool solicited;
  bool ack_request;
  bool has_immediate;
  bool has_invalidate;
  uint32_t psn;
  uint32_t npsn;  // packets that this stands for
  uint32_t dest_qpn;
  uint32_t immediate;  // network order; or the key to invalidate

  // RETH of the first segment, and AtomicETH.
  uint32_t rkey;
  uint64_t remote_addr;
  uint32_t dma_length;

  // DETH.
  uint32_t source_qpn;
  uint32_t qkey;
  const DatagramPath* path;

  uint64_t swap_add;  // atomic WRITE: the value
  uint64_t compare;
  uint64_t swap_mask;  // masked atomics
  uint64_t compare_mask;

  // FETH.
  uint8_t flush_type;   // KH_FLUSH_GLOBAL ...
  uint8_t flush_level;  // KH_FLUSH_RANGE or KH_FLUSH_MR

  Reply aeth;  // of responses

  std::span<const HostSpan> payload;
  uint32_t length;  // bytes of payload
};

// For tests: what happens to a segment, or to the reply to one, on its way. `held` makes it vanish
// for now; who wants it to arrive later copies it, payload and all, and hands it to Qp::inject().
enum class Fate : uint8_t { delivered, lost, twice, held };

class Faults {
 public:
  virtual ~Faults() = default;
  virtual Fate on_segment(const Segment& segment) = 0;
  virtual Fate on_reply(const Segment& request, const Reply& reply) = 0;
};

}  // namespace keyhole
