// SPDX-License-Identifier: BSD-2-Clause
//
// A user context (0: the kernel's): one page of doorbell marks, and one of status.
//
// The marks of an awake context are looked at on each turn, up to the highest slot in use. A
// context whose marks were all clear for a while goes to sleep: the device sets its sleeping flag,
// fences, and looks once more. Software does the mirror image (mark, fence, look at the flag), so
// that either the device sees the mark or software sees the flag and wakes it through the wake
// page.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hca/guest_access.h"
#include "hca/run_queue.h"
#include "keyhole_hw.h"

namespace keyhole {

class Context {
 public:
  Context(uint32_t number, std::byte* doorbells, std::byte* status);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  uint32_t number() const { return number_; }

  // From now on a mark in `slot` schedules `queue`. Slots are below KH_DB_SLOTS; several queues may
  // share one. Detach before the queue goes.
  void attach(uint32_t slot, Runnable& queue);
  void detach(uint32_t slot, Runnable& queue);

  // Takes the marks that are set and schedules their queues. Returns how many it took.
  uint32_t scan(RunQueue& run_queue);

  bool awake() const { return awake_; }
  // Tells software not to wait for a wake.
  void wake();
  // Goes to sleep unless a mark is there: then it schedules and stays awake. Returns what scan()
  // did.
  uint32_t sleep(RunQueue& run_queue);

  uint64_t last_mark = 0;  // when scan() last took one, or it woke
  uint32_t objects = 0;    // CQs, SRQs and QPs that it owns
  uint32_t attached() const { return attached_; }

 private:
  void take(uint32_t slot, RunQueue& run_queue);

  uint32_t number_;
  std::byte* doorbells_;
  kh_status_page* status_;
  bool awake_ = false;
  uint32_t attached_ = 0;
  std::vector<Runnable*> slots_;  // head of each slot's list; as long as the highest slot needs
};

}  // namespace keyhole
