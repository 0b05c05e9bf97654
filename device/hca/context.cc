// SPDX-License-Identifier: BSD-2-Clause

#include "hca/context.h"

#include <cstring>

namespace keyhole {

Context::Context(uint32_t number, std::byte* doorbells, std::byte* status)
    : number_(number), doorbells_(doorbells), status_(reinterpret_cast<kh_status_page*>(status)) {
  // Marks that a former owner of the page has left.
  std::memset(doorbells_, 0, KH_DB_SLOTS);
  store_release<uint32_t>(&status_->sleeping, 1);
}

Context::~Context() {
  std::memset(doorbells_, 0, KH_DB_SLOTS);
  std::memset(static_cast<void*>(status_), 0, sizeof(*status_));
}

void Context::attach(uint32_t slot, Runnable& queue) {
  // In steps of 64: what scan() reads must be whole words.
  if (slot >= slots_.size()) slots_.resize((slot | 63) + 1);
  queue.next_of_slot_ = slots_[slot];
  slots_[slot] = &queue;
  ++attached_;
}

void Context::detach(uint32_t slot, Runnable& queue) {
  for (Runnable** at = &slots_[slot]; *at; at = &(*at)->next_of_slot_) {
    if (*at != &queue) continue;
    *at = queue.next_of_slot_;
    queue.next_of_slot_ = nullptr;
    --attached_;
    break;
  }
  size_t used = slots_.size();
  while (used > 0 && !slots_[used - 1])
    --used;
  slots_.resize((used + 63) & ~size_t{63});
}

void Context::take(uint32_t slot, RunQueue& run_queue) {
  for (Runnable* queue = slots_[slot]; queue; queue = queue->next_of_slot_)
    run_queue.add(*queue);
}

uint32_t Context::scan(RunQueue& run_queue) {
  uint32_t taken = 0;
  for (uint32_t at = 0; at < slots_.size(); at += sizeof(uint64_t)) {
    if (load_relaxed<uint64_t>(doorbells_ + at) == 0) [[likely]]
      continue;
    // One exchange clears eight marks. It is a full fence too: an index that is read from here on
    // is at least as new as the marks.
    uint64_t marks =
        __atomic_exchange_n(reinterpret_cast<uint64_t*>(doorbells_ + at), 0, __ATOMIC_SEQ_CST);
    while (marks != 0) {
      uint32_t byte = __builtin_ctzll(marks) / 8;
      marks &= ~(uint64_t{0xff} << (byte * 8));
      take(at + byte, run_queue);
      ++taken;
    }
  }
  return taken;
}

void Context::wake() {
  awake_ = true;
  store_release<uint32_t>(&status_->sleeping, 0);
}

uint32_t Context::sleep(RunQueue& run_queue) {
  store_release<uint32_t>(&status_->sleeping, 1);
  full_fence();
  uint32_t taken = scan(run_queue);
  if (taken > 0)
    store_release<uint32_t>(&status_->sleeping, 0);
  else
    awake_ = false;
  return taken;
}

}  // namespace keyhole
