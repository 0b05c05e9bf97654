// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues. push() writes a CQE into the ring at once, phase last; whether anybody has
// to be told is looked at once for the whole batch (notifier.h).
//
// The consumer index is the guest's word. It is read only when the ring seems full; a value that
// cannot be true (beyond what was written, or behind by more than the ring) counts as an overrun. A
// CQ that overruns reports CQ_ERR and takes nothing more, and its QPs go to the error state.

#pragma once

#include <cstdint>
#include <cstring>

#include "hca/admin_result.h"
#include "hca/eq.h"
#include "hca/guest_access.h"
#include "hca/notifier.h"
#include "hca/page_list.h"
#include "hca/timers.h"
#include "keyhole_hw.h"

namespace keyhole {

class Cq {
 public:
  // The ring and the record, as CREATE_CQ and RESIZE_CQ give them; offsets checked against memory.
  struct Ring {
    PageList memory;
    uint64_t ring_offset = 0;
    uint64_t db_offset = 0;
    uint8_t log_size = 0;
  };

  Cq(Notifier& notifier, uint32_t cqn, Ring ring, Eq& eq, uint16_t context, uint8_t flags);
  ~Cq();
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;

  // Adds a CQE: all of it but phase and timestamp is the caller's, reserved bytes zero. Counts it
  // in the statistics by its status (CQES, ERROR_CQES, FLUSHED_CQES and the errors by kind), and
  // logs it when it is an error. Solicited is KH_CQE_SOLICITED in cqe.flags.
  void push(kh_cqe& cqe) {
    if (failed_) [[unlikely]]
      return;
    if (pi_ - ci_ >= size_ && !make_room()) [[unlikely]]
      return;
    std::byte* slot =
        ring_.memory.at(ring_.ring_offset + (uint64_t{pi_ & (size_ - 1)} << KH_CQE_SHIFT));
    if (!slot) [[unlikely]]
      return fail();
    cqe.phase = phase_of(pi_, ring_.log_size);
    if (flags_ & KH_CQ_TIMESTAMP) cqe.timestamp = notifier_.clock_ns();
    uint64_t tail = 0;
    std::memcpy(&tail, reinterpret_cast<const std::byte*>(&cqe) + 56, sizeof(tail));
    std::memcpy(slot, &cqe, 56);
    store_release(slot + 56, tail);
    ++pi_;
    ++unreported_;
    ++notifier_.stats()[KH_STAT_CQES];
    solicited_ |= (cqe.flags & KH_CQE_SOLICITED) != 0;
    if (cqe.status != KH_WC_SUCCESS) [[unlikely]]
      note_error(cqe);
    if (!dirty_) notifier_.note(*this);
  }

  // RESIZE_CQ: moves the CQEs that software has not consumed, and the record's contents. INVAL when
  // the new ring is too small for them; nothing has changed then.
  AdminResult resize(Ring ring);

  // MODIFY_CQ.
  void moderate(uint16_t count, uint16_t period_us);

  // After the flush's fence.
  void fire();

  uint32_t cqn() const { return cqn_; }
  uint16_t context() const { return context_; }
  bool failed() const { return failed_; }
  uint32_t size() const { return size_; }
  Eq& eq() { return eq_; }

  uint32_t users = 0;  // QPs that complete here, counted once for each of their two queues

  static uint8_t phase_of(uint32_t index, uint8_t log_size) {
    return ((index >> log_size) & 1) ^ 1;
  }

 private:
  friend class Notifier;

  bool make_room();
  void fail();
  void note_error(const kh_cqe& cqe);
  static void period_over(void* self, uint64_t now);
  void report(uint32_t sn);

  Notifier& notifier_;
  uint32_t pi_ = 0;
  uint32_t ci_ = 0;  // as last read
  uint32_t size_;
  uint8_t flags_;
  bool failed_ = false;
  bool dirty_ = false;
  bool solicited_ = false;   // one of the unreported CQEs is solicited or unsuccessful
  uint32_t unreported_ = 0;  // CQEs since the last event
  Ring ring_;
  uint32_t cqn_;
  uint16_t context_;
  uint32_t fired_ = 0;  // sn
  uint16_t count_ = 0;
  uint16_t period_us_ = 0;
  Cq* next_dirty_ = nullptr;
  Eq& eq_;
  Timer period_;
  EventSource completion_;  // in the line of eq_
  EventSource async_;       // in the line of the async EQ
};

}  // namespace keyhole
