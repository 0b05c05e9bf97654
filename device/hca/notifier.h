// SPDX-License-Identifier: BSD-2-Clause
//
// What one HCA does after it has written completions and events: one full fence for the whole
// batch, then a look at the arm word of each queue that got an entry, then events, then interrupts.
//
// The fence is what makes arming safe. Software stores its arm and then looks at the ring; the
// device stores the entry and then looks at the arm: with a full fence between store and load on
// both sides, one of them sees the other.

#pragma once

#include <cstdint>

#include "hca/host.h"
#include "hca/stats.h"
#include "hca/timers.h"
#include "keyhole_hw.h"

namespace keyhole {

class Cq;
class Eq;

class Notifier {
 public:
  Notifier(Interrupts& interrupts, Clock& clock, Timers& timers, Stats& stats)
      : interrupts_(interrupts), clock_(clock), timers_(timers), stats_(stats) {}

  // A queue has got an entry.
  void note(Cq& cq);
  void note(Eq& eq);
  void forget(Cq& cq);
  void forget(Eq& eq);

  bool empty() const { return first_cq_ == nullptr && first_eq_ == nullptr && !nic_wants_flush; }
  void flush();

  // A CQ has failed (overrun, or its memory is gone): its event is posted, and the HCA moves its
  // QPs to the error state when the present turn is over.
  void failed(Cq& cq);
  bool any_failed() const { return any_failed_; }
  void failures_done() { any_failed_ = false; }

  // Set when an event queue's memory has gone: the HCA goes into its fatal state.
  bool eq_lost() const { return eq_lost_; }
  void lose_eq() { eq_lost_ = true; }

  // After a reset: all queues are gone.
  void start_over() {
    any_failed_ = eq_lost_ = nic_wants_flush = false;
    holding = 0;
  }

  void raise(uint16_t vector);
  uint64_t clock_ns() { return clock_.now_ns(); }
  Timers& timers() { return timers_; }
  Stats& stats() { return stats_; }
  // Where asynchronous events go; null while the driver has made no such queue (they are dropped).
  Eq* async_eq() { return async_eq_; }
  void set_async_eq(Eq* eq) { async_eq_ = eq; }
  // Event queues that hold events back: the HCA looks after them until the driver has made room.
  uint32_t holding = 0;

  // The NIC has sent or received; the HCA looks at its arm word after the flush.
  bool nic_wants_flush = false;

  const char* name = "";  // of the HCA, for the log

 private:
  Interrupts& interrupts_;
  Clock& clock_;
  Timers& timers_;
  Stats& stats_;
  Cq* first_cq_ = nullptr;
  Eq* first_eq_ = nullptr;
  Eq* async_eq_ = nullptr;
  bool any_failed_ = false;
  bool eq_lost_ = false;
};

}  // namespace keyhole
