// SPDX-License-Identifier: BSD-2-Clause
//
// What the thread does when a turn has found nothing to do: look again at once (spin), sleep for
// some microseconds (nap), or wait until someone calls (block).
//
// Spinning has the least latency, as long as the core that it burns is not needed by those it waits
// for. When it is (a guest with two busy virtual CPUs on a machine with two cores), the device
// spins in the very time in which its guest would have run. No count that a scheduler keeps tells
// the two apart on every machine: one takes the core from who spins, another lets it spin and has
// the others wait. What tells is how long the waits for work are. So the device measures them while
// it spins after work for one time, then for another, and stays with what makes them shortest; and
// from time to time it tries another again, since programs and machines change. A try takes some
// hundreds of waits, and costs no more than these.
//
// Where no time of spinning makes the waits shorter than a nap, the guest may wait for this very
// core while another is idle: a thread that sleeps most of the time is left where it is by some
// schedulers. Then it is worth a move to another core; at worst that one is no better.
//
// Naps begin short, for the work that follows work soon is what latency is about, and each is
// longer than the last. For a nap must not be too short either: a virtual CPU that gets the core
// for ten microseconds at a time spends them on filling its caches and never comes to the point
// where it rings a doorbell.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace keyhole {

class Pace {
 public:
  struct Options {
    // For how long to spin after work: what there is to choose from, the cheapest first. One that
    // is dearer must make the waits shorter by more than 1 / gain_share. Eight microseconds catch
    // the answer of a guest whose virtual CPU runs on another core, and take little from one whose
    // virtual CPU waits for this one.
    std::vector<uint64_t> spins_ns = {8'000, 50'000};
    uint64_t gain_share = 10;
    uint64_t sample = 100;           // waits that one measurement takes at least, and
    uint64_t sample_ns = 2'000'000;  // for how long it lasts at least
    uint64_t longest_ns = 300'000;   // of a wait as it is counted: longer ones are pauses
    uint64_t rest_ns = 100'000'000;  // between two tries
    uint64_t short_nap_ns = 10'000;
    uint64_t long_nap_ns = 50'000;
  };

  explicit Pace(Options options) : options_(std::move(options)) {}

  // The turn at `now_ns` found work.
  void worked(uint64_t now_ns);

  // The turn at `now_ns` found none: nanoseconds to nap, 0 to spin.
  uint64_t idle(uint64_t now_ns);

  // How often, up to now, another core would have been worth a try.
  uint64_t moves() const { return moves_; }

  // For how long it spins after work where it tries nothing else.
  uint64_t spin_ns() const { return options_.spins_ns[chosen_]; }

 private:
  enum class State { rests, measures_chosen, measures_other };

  void waited(uint64_t wait_ns, uint64_t now_ns);
  void choose(uint64_t other_ns);

  Options options_;
  uint64_t last_work_ns_ = 0;
  uint64_t next_nap_ns_ = options_.short_nap_ns;
  bool waiting_ = false;  // a turn since the last work found none

  State state_ = State::measures_chosen;
  size_t chosen_ = 0;
  size_t other_ = 0;
  size_t in_use_ = 0;  // chosen_ or other_
  uint64_t moves_ = 0;
  uint64_t rests_until_ns_ = 0;
  uint64_t began_ns_ = 0;   // the measurement that goes on
  uint64_t waits_ = 0;      // in it
  uint64_t waited_ns_ = 0;  // by these
  uint64_t chosen_ns_ = 0;  // the mean wait when what is chosen was measured last
};

}  // namespace keyhole
