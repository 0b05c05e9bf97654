// SPDX-License-Identifier: BSD-2-Clause
//
// What the thread does when a turn has found nothing to do: look again at once (spin), sleep for
// some microseconds (nap), or wait until someone calls (block).
//
// Spinning has the least latency, as long as the core that it burns is not needed by those it waits
// for. When it is (a guest with two busy virtual CPUs on a machine with two cores), the device
// spins in the very time in which its guest would have run. Two signs tell. While it spins its CPU
// time falls behind the time on the wall, or the scheduler takes the core from it. And where the
// scheduler lets it have the core for as long, it spins in vain, and the work comes as soon as it
// naps. So the device probes: it spins, measures, and on a crowded machine it naps instead, and
// probes again only after a while, longer each time.
//
// Naps begin short, for the work that follows work soon is what latency is about, and each is
// longer than the last. For a nap must not be too short either: a virtual CPU that gets the core
// for ten microseconds at a time spends them on filling its caches and never comes to the point
// where it rings a doorbell.

#pragma once

#include <cstdint>

namespace keyhole {

class Pace {
 public:
  // What the operating system says of the thread, all since some fixed time.
  struct Usage {
    uint64_t wall_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t preemptions = 0;  // involuntary context switches
  };
  class Meter {
   public:
    virtual ~Meter() = default;
    virtual Usage usage() = 0;
  };

  struct Options {
    bool may_spin = true;           // false: never (one core, or by request)
    uint64_t spin_ns = 50'000;      // spin for this long after the last work
    uint64_t probe_ns = 4'000'000;  // spinning time that one measurement takes
    uint64_t probe_waits = 16;      // and waits for work that another takes
    uint64_t lost_share = 20;       // crowded if more than 1 / lost_share of the time was lost, or
    uint64_t vain_share = 4;        // if more than 1 / vain_share of the waits ended only in a nap
    uint64_t soon_ns = 60'000;      // of a nap: what comes after it waited for the core
    uint64_t first_retry_ns = 200'000'000;
    uint64_t last_retry_ns = 10'000'000'000;
    uint64_t short_nap_ns = 10'000;
    uint64_t long_nap_ns = 50'000;
  };

  Pace(Options options, Meter& meter) : options_(options), meter_(meter) {}

  // The turn at `now_ns` found work.
  void worked(uint64_t now_ns);

  // The turn at `now_ns` found none: nanoseconds to nap, 0 to spin.
  uint64_t idle(uint64_t now_ns);

  bool crowded() const { return crowded_; }

 private:
  void end_stretch(uint64_t now_ns);
  void judge_waits(uint64_t now_ns);
  void crowd(uint64_t now_ns);

  Options options_;
  Meter& meter_;
  uint64_t last_work_ns_ = 0;
  uint64_t next_nap_ns_ = 0;
  bool crowded_ = true;  // until a probe has shown otherwise
  uint64_t retry_at_ns_ = 0;
  uint64_t retry_after_ns_ = 0;

  // A stretch is a time without a nap. Stretches are added up until they make a measurement.
  bool in_stretch_ = false;
  bool spun_ = false;           // since the last work
  uint64_t gave_up_at_ns_ = 0;  // when a stretch ended that brought no work; 0: none did
  uint64_t stretch_began_ns_ = 0;
  Usage began_;
  Usage spent_;
  uint64_t waits_ = 0;  // for work that came while spinning or soon after
  uint64_t vain_ = 0;   // of these, those that came soon after
};

}  // namespace keyhole
