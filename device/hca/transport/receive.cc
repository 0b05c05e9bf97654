// SPDX-License-Identifier: BSD-2-Clause
//
// Receives: taken from the queue pair's own ring or from an SRQ when a message needs one, filled as
// its segments come, and completed with its last.

#include "hca/cq.h"
#include "hca/guest_access.h"
#include "hca/hca.h"
#include "hca/srq.h"
#include "hca/transport/datagram_header.h"
#include "hca/transport/qp.h"
#include "hca/transport/sge.h"

namespace keyhole {

Qp::Receive Qp::take_receive() {
  if (receive_held_) return Receive::ready;
  if (config_.srq) {
    switch (config_.srq->take(receive_)) {
      case Srq::Taken::ok:
        break;
      case Srq::Taken::empty:
        return Receive::none;
      case Srq::Taken::malformed:
        return malformed_receive();
      case Srq::Taken::failed:
        fatal(KH_SYN_WQE_RING);
        return Receive::failed;
    }
  } else {
    if (!config_.has_rq) return Receive::none;
    const uint32_t size = 1u << config_.log_rq_size;
    if (receive_ci_ == receive_pi_ && !load_receive_producer())
      return receive_dead_ ? Receive::failed : Receive::none;
    const std::byte* slot = config_.memory.at(
        config_.rq_offset + (uint64_t{receive_ci_ & (size - 1)} << config_.log_rq_stride));
    if (!slot) [[unlikely]] {
      receive_dead_ = true;
      fatal(KH_SYN_WQE_MEMORY);
      return Receive::failed;
    }
    const bool good = read_receive_wqe(receive_, slot, config_.max_recv_sge);
    ++receive_ci_;
    if (!good) [[unlikely]]
      return malformed_receive();
  }
  receive_held_ = true;
  receive_done_ = 0;
  receive_room_ = 0;
  for (uint32_t i = 0; i < receive_.num_sge; ++i)
    receive_room_ += receive_.sge[i].length;
  return Receive::ready;
}

// False when nothing new has been posted, or the index is nonsense.
bool Qp::load_receive_producer() {
  std::byte* db = record();
  if (!db) [[unlikely]] {
    receive_dead_ = true;
    fatal(KH_SYN_WQE_MEMORY);
    return false;
  }
  receive_pi_ = load_acquire<uint32_t>(db + offsetof(kh_qp_db, rq_pi));
  if (receive_pi_ - receive_ci_ > (1u << config_.log_rq_size)) [[unlikely]] {
    receive_dead_ = true;
    receive_pi_ = receive_ci_;
    fatal(KH_SYN_WQE_RING);
    return false;
  }
  return receive_pi_ != receive_ci_;
}

// It claims more entries than it can have. It is consumed, with an error.
Qp::Receive Qp::malformed_receive() {
  fail_receive({KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE});
  enter_error();
  return Receive::failed;
}

Scattered Qp::fill_receive(const SpanCursor& from, uint32_t length, uint32_t unit) {
  if (length == 0) return {};
  Scattered stored = scatter(hca_.mkeys(), receive_who_, {receive_.sge.data(), receive_.num_sge},
                             receive_done_, length, unit, from);
  receive_done_ += stored.bytes;
  return stored;
}

void Qp::complete_receive(const Segment& segment, uint8_t opcode, uint32_t length) {
  kh_cqe cqe{};
  cqe.wr_id = receive_.wr_id;
  cqe.qpn = config_.qpn;
  cqe.byte_len = length;
  cqe.opcode = opcode;
  cqe.status = KH_WC_SUCCESS;
  cqe.vlan = KH_VLAN_NONE;
  cqe.src_qpn = segment.source_qpn;
  if (segment.has_immediate) {
    cqe.imm = segment.immediate;
    cqe.flags |= KH_CQE_IMM;
  } else if (segment.has_invalidate) {
    cqe.imm = segment.immediate;
    cqe.flags |= KH_CQE_INV;
  }
  if (segment.solicited) cqe.flags |= KH_CQE_SOLICITED;
  if (!connected()) {
    const DatagramPath& path = *segment.path;
    cqe.flags |= KH_CQE_GRH;
    if (is_ipv4(path.dgid)) cqe.flags |= KH_CQE_IPV4;
    std::memcpy(cqe.smac, path.smac.bytes.data(), sizeof(cqe.smac));
    cqe.vlan = path.vlan;
    cqe.sl = path.sl;
    cqe.pkey_index = 0;
  }
  receive_held_ = false;
  config_.recv_cq->push(cqe);
}

void Qp::fail_receive(Verdict verdict) {
  kh_cqe cqe{};
  cqe.wr_id = receive_.wr_id;
  cqe.qpn = config_.qpn;
  cqe.opcode = KH_CQE_RECV;
  cqe.status = verdict.status;
  cqe.syndrome = verdict.syndrome;
  cqe.vlan = KH_VLAN_NONE;
  receive_held_ = false;
  config_.recv_cq->push(cqe);
}

}  // namespace keyhole
