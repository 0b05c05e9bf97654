// SPDX-License-Identifier: BSD-2-Clause
//
// Queues take turns. What has work (a QP, the admin queue, the NIC) stands in the run queue once;
// it is taken from the head, works for a quantum, and goes back to the tail if it has more to do.
// So a queue with a 2 GiB message, or an endless one, delays each of its neighbours by a quantum.

#pragma once

#include <cstdint>

namespace keyhole {

// What one turn may spend. Both count down; a turn stops at the first entry or segment that finds
// either used up, so it may overshoot by one.
struct Quantum {
  int32_t entries = 128;  // WQEs, commands, frames, CQEs of a flush
  int64_t bytes = 256 * 1024;

  bool left() const { return entries > 0 && bytes > 0; }
};

class RunQueue;

class Runnable {
 public:
  Runnable() = default;
  virtual ~Runnable() { leave(); }
  Runnable(const Runnable&) = delete;
  Runnable& operator=(const Runnable&) = delete;

  // Works until nothing is left to do or the quantum is spent. True: there is more to do now, come
  // back. False: nothing, until the queue is scheduled again (a mark, a timer, a peer).
  virtual bool run(Quantum& quantum) = 0;

  bool scheduled() const { return queue_ != nullptr; }

 private:
  friend class RunQueue;
  friend class Context;
  inline void leave();

  RunQueue* queue_ = nullptr;
  Runnable* next_ = nullptr;
  Runnable* previous_ = nullptr;
  Runnable* next_of_slot_ = nullptr;  // another one that rings at the same doorbell slot
};

class RunQueue {
 public:
  bool empty() const { return head_ == nullptr; }

  // At the tail, unless it stands in it already.
  void add(Runnable& runnable) {
    if (runnable.queue_) return;
    runnable.queue_ = this;
    runnable.previous_ = tail_;
    runnable.next_ = nullptr;
    (tail_ ? tail_->next_ : head_) = &runnable;
    tail_ = &runnable;
  }

  Runnable* take() {
    Runnable* runnable = head_;
    if (runnable) remove(*runnable);
    return runnable;
  }

  void remove(Runnable& runnable) {
    (runnable.previous_ ? runnable.previous_->next_ : head_) = runnable.next_;
    (runnable.next_ ? runnable.next_->previous_ : tail_) = runnable.previous_;
    runnable.queue_ = nullptr;
    runnable.next_ = runnable.previous_ = nullptr;
  }

 private:
  Runnable* head_ = nullptr;
  Runnable* tail_ = nullptr;
};

inline void Runnable::leave() {
  if (queue_) queue_->remove(*this);
}

}  // namespace keyhole
