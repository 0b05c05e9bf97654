// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

#include "lock.h"

namespace keyhole::verbs {

void Lock::contend() {
  // A post or a poll holds the lock for well under a microsecond.
  for (int spins = 0; spins < 100; spins++) {
    std::uint32_t free = kFree;
    if (state_.load(std::memory_order_relaxed) == kFree &&
        state_.compare_exchange_weak(free, kTaken, std::memory_order_acquire))
      return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  // Whoever slept takes the lock as "awaited": it cannot know that nobody else sleeps.
  while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
    state_.wait(kAwaited, std::memory_order_relaxed);
}

int Lock::wake() {
  state_.notify_one();
  return 0;
}

}  // namespace keyhole::verbs
