// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The lock of a queue. Taking and leaving it is one atomic exchange each, inline; a thread that
// finds it taken spins a little and then sleeps in the kernel, since the holder may have been
// preempted: with fewer CPUs than threads a pure spin lock burns whole time slices. Where the
// application promised that one thread alone uses the queue (a thread domain, or a CQ created
// SINGLE_THREADED) the lock is elided: a branch on a flag in the same word's cache line.

#pragma once

#include <atomic>
#include <cstdint>

namespace keyhole::verbs {

class Lock {
 public:
  // Before the queue is in use only.
  void elide(bool yes) { elided_ = yes; }
  bool elided() const { return elided_; }

  // True when taken at once; else take it by contend().
  bool try_lock() {
    if (elided_) return true;
    std::uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void contend();

  void lock() {
    if (!try_lock()) [[unlikely]]
      contend();
  }

  // Always 0. The hot functions end with `return lock.unlock()`, so that the rare call that wakes a
  // waiter is a jump and they need save no registers for it.
  int unlock() {
    if (elided_) return 0;
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
      return wake();
    return 0;
  }

 private:
  static constexpr std::uint32_t kFree = 0, kTaken = 1, kAwaited = 2;

  int wake();

  std::atomic<std::uint32_t> state_{kFree};
  bool elided_ = false;
};

}  // namespace keyhole::verbs
