// SPDX-License-Identifier: BSD-2-Clause
//
// Timers of the engine: a binary heap of pointers to timers that live in their owners. Starting,
// moving and stopping one is O(log n) and allocates nothing once the heap has grown.
//
// A timer that is moved at each packet (a retransmit timer) had better not be: let it expire at its
// old time, look, and start it anew for the rest.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace keyhole {

class Timers;

class Timer {
 public:
  // `expire` is called once at each expiry, with `owner`; it may start or stop any timer, this one
  // too, and may destroy other timers, but not this one.
  using Expire = void (*)(void* owner, uint64_t now);

  Timer(Timers& timers, Expire expire, void* owner)
      : timers_(timers), expire_(expire), owner_(owner) {}
  ~Timer() { stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Expires when the time is `deadline` ns or later. Moves it when it runs already.
  void start(uint64_t deadline);
  void stop();
  bool running() const { return position_ != not_running; }
  uint64_t deadline() const { return deadline_; }

 private:
  friend class Timers;
  static constexpr size_t not_running = std::numeric_limits<size_t>::max();

  Timers& timers_;
  Expire expire_;
  void* owner_;
  uint64_t deadline_ = 0;
  size_t position_ = not_running;  // in the heap
};

class Timers {
 public:
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();

  // When the first timer expires; never when none runs.
  uint64_t next_deadline() const { return heap_.empty() ? never : heap_.front()->deadline_; }

  // Expires at most `limit` timers that are due, earliest first. Returns how many.
  uint32_t expire(uint64_t now, uint32_t limit);

  size_t running() const { return heap_.size(); }

 private:
  friend class Timer;
  void place(Timer* timer, size_t at);
  void sift_up(Timer* timer, size_t at);
  void sift_down(Timer* timer, size_t at);
  void remove(Timer& timer);

  std::vector<Timer*> heap_;
};

}  // namespace keyhole
