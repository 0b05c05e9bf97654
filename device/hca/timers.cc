// SPDX-License-Identifier: BSD-2-Clause

#include "hca/timers.h"

namespace keyhole {

void Timer::start(uint64_t deadline) {
  if (!running()) {
    deadline_ = deadline;
    timers_.heap_.push_back(this);
    timers_.sift_up(this, timers_.heap_.size() - 1);
    return;
  }
  bool earlier = deadline < deadline_;
  deadline_ = deadline;
  if (earlier)
    timers_.sift_up(this, position_);
  else
    timers_.sift_down(this, position_);
}

void Timer::stop() {
  if (running()) timers_.remove(*this);
}

void Timers::place(Timer* timer, size_t at) {
  heap_[at] = timer;
  timer->position_ = at;
}

void Timers::sift_up(Timer* timer, size_t at) {
  while (at > 0) {
    size_t parent = (at - 1) / 2;
    if (heap_[parent]->deadline_ <= timer->deadline_) break;
    place(heap_[parent], at);
    at = parent;
  }
  place(timer, at);
}

void Timers::sift_down(Timer* timer, size_t at) {
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->deadline_ < heap_[child]->deadline_) ++child;
    if (timer->deadline_ <= heap_[child]->deadline_) break;
    place(heap_[child], at);
    at = child;
  }
  place(timer, at);
}

void Timers::remove(Timer& timer) {
  size_t at = timer.position_;
  Timer* last = heap_.back();
  heap_.pop_back();
  timer.position_ = Timer::not_running;
  if (last == &timer) return;
  // The last one takes the hole, and then finds its place from there.
  if (at > 0 && last->deadline_ < heap_[(at - 1) / 2]->deadline_)
    sift_up(last, at);
  else
    sift_down(last, at);
}

uint32_t Timers::expire(uint64_t now, uint32_t limit) {
  uint32_t expired = 0;
  while (expired < limit && !heap_.empty() && heap_.front()->deadline_ <= now) {
    Timer* timer = heap_.front();
    remove(*timer);
    ++expired;
    timer->expire_(timer->owner_, now);
  }
  return expired;
}

}  // namespace keyhole
