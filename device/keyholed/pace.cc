// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/pace.h"

#include <algorithm>

namespace keyhole {

void Pace::worked(uint64_t now_ns) {
  bool soon = gave_up_at_ns_ != 0 && now_ns - gave_up_at_ns_ < options_.soon_ns;
  if (!crowded_ && (spun_ || soon)) {
    ++waits_;
    vain_ += soon;
    if (waits_ == options_.probe_waits) judge_waits(now_ns);
  }
  spun_ = false;
  gave_up_at_ns_ = 0;
  last_work_ns_ = now_ns;
  next_nap_ns_ = options_.short_nap_ns;
}

uint64_t Pace::idle(uint64_t now_ns) {
  uint64_t idle_ns = now_ns - std::min(now_ns, last_work_ns_);
  bool spin = options_.may_spin && idle_ns < options_.spin_ns;

  if (spin && crowded_ && now_ns >= retry_at_ns_) {
    crowded_ = false;  // on trial
    spent_ = {};
    waits_ = vain_ = 0;
  }
  if (spin && !crowded_) {
    if (!in_stretch_) {
      in_stretch_ = true;
      stretch_began_ns_ = now_ns;
      began_ = meter_.usage();
    } else if (now_ns - stretch_began_ns_ >= options_.probe_ns) {
      end_stretch(now_ns);
    }
    if (!crowded_) {
      spun_ = true;
      return 0;
    }
  }
  if (in_stretch_) {
    end_stretch(now_ns);
    gave_up_at_ns_ = now_ns;
    spun_ = false;
  }
  uint64_t nap = next_nap_ns_;
  next_nap_ns_ = std::min(nap + nap / 4, options_.long_nap_ns);
  return nap;
}

void Pace::end_stretch(uint64_t now_ns) {
  Usage ended = meter_.usage();
  in_stretch_ = false;
  spent_.wall_ns += ended.wall_ns - began_.wall_ns;
  spent_.cpu_ns += ended.cpu_ns - began_.cpu_ns;
  spent_.preemptions += ended.preemptions - began_.preemptions;
  if (crowded_ || spent_.wall_ns < options_.probe_ns) return;

  // Time that was lost counts in full, and twice if the scheduler says that it took it.
  uint64_t lost = spent_.wall_ns - std::min(spent_.wall_ns, spent_.cpu_ns);
  if (spent_.preemptions != 0) lost *= 2;
  if (lost > spent_.wall_ns / options_.lost_share)
    crowd(now_ns);
  else
    retry_after_ns_ = 0;
  spent_ = {};
}

void Pace::judge_waits(uint64_t now_ns) {
  if (vain_ > waits_ / options_.vain_share) crowd(now_ns);
  waits_ = vain_ = 0;
}

void Pace::crowd(uint64_t now_ns) {
  crowded_ = true;
  retry_after_ns_ =
      std::clamp(retry_after_ns_ * 2, options_.first_retry_ns, options_.last_retry_ns);
  retry_at_ns_ = now_ns + retry_after_ns_;
}

}  // namespace keyhole
