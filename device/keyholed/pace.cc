// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/pace.h"

#include <algorithm>

namespace keyhole {

void Pace::worked(uint64_t now_ns) {
  if (waiting_) waited(std::min(now_ns - last_work_ns_, options_.longest_ns), now_ns);
  waiting_ = false;
  last_work_ns_ = now_ns;
  next_nap_ns_ = options_.short_nap_ns;
}

uint64_t Pace::idle(uint64_t now_ns) {
  waiting_ = true;
  if (now_ns - last_work_ns_ < options_.spins_ns[in_use_]) return 0;
  uint64_t nap = next_nap_ns_;
  next_nap_ns_ = std::min(nap + nap / 4, options_.long_nap_ns);
  return nap;
}

void Pace::waited(uint64_t wait_ns, uint64_t now_ns) {
  if (options_.spins_ns.size() < 2) return;
  if (state_ == State::rests) {
    if (now_ns < rests_until_ns_) return;
    state_ = State::measures_chosen;
  }
  if (waits_ == 0) began_ns_ = now_ns - wait_ns;
  waited_ns_ += wait_ns;
  if (++waits_ < options_.sample || now_ns - began_ns_ < options_.sample_ns) return;
  uint64_t mean_ns = waited_ns_ / waits_;

  if (state_ == State::measures_chosen) {
    chosen_ns_ = mean_ns;
    do
      other_ = (other_ + 1) % options_.spins_ns.size();
    while (other_ == chosen_);
    in_use_ = other_;
    state_ = State::measures_other;
  } else {
    choose(mean_ns);
    moves_ += std::min(chosen_ns_, mean_ns) > options_.short_nap_ns;
    in_use_ = chosen_;
    state_ = State::rests;
    rests_until_ns_ = now_ns + options_.rest_ns;
  }
  waits_ = waited_ns_ = 0;
}

void Pace::choose(uint64_t other_ns) {
  uint64_t cheap_ns = chosen_ < other_ ? chosen_ns_ : other_ns;
  uint64_t dear_ns = chosen_ < other_ ? other_ns : chosen_ns_;
  bool dear_is_worth_it = dear_ns + cheap_ns / options_.gain_share < cheap_ns;
  if (dear_is_worth_it == (other_ > chosen_)) chosen_ = other_;
}

}  // namespace keyhole
