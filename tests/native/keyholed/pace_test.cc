// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/pace.h"

#include <gtest/gtest.h>

namespace keyhole {
namespace {

// A machine whose thread gets `share` percent of its core.
class Machine : public Pace::Meter {
 public:
  Pace::Usage usage() override { return {now, cpu, preemptions}; }

  void pass(uint64_t ns) {
    now += ns;
    cpu += ns * share / 100;
  }

  uint64_t now = 1'000'000'000;
  uint64_t cpu = 0;
  uint64_t preemptions = 0;
  uint64_t share = 100;
};

// Work every `gap` ns for `for_ns`, with turns of 1 us in between while spinning; the share of
// turns that spun.
double run(Pace& pace, Machine& machine, uint64_t gap, uint64_t for_ns) {
  uint64_t spun = 0, turns = 0;
  uint64_t end = machine.now + for_ns;
  while (machine.now < end) {
    pace.worked(machine.now);
    uint64_t next = machine.now + gap;
    while (machine.now < next) {
      uint64_t nap = pace.idle(machine.now);
      ++turns;
      if (nap == 0) {
        ++spun;
        machine.pass(1000);
      } else {
        machine.now += nap;  // asleep: no CPU time, and none was lost
      }
    }
  }
  return static_cast<double>(spun) / static_cast<double>(turns);
}

TEST(Pace, SpinsWhileItHasACoreOfItsOwn) {
  Machine machine;
  Pace pace({}, machine);
  EXPECT_EQ(run(pace, machine, 30'000, 100'000'000), 1.0);
  EXPECT_FALSE(pace.crowded());
}

TEST(Pace, NapsAfterItHasSeenThatItsCoreIsShared) {
  Machine machine;
  machine.share = 60;
  Pace pace({}, machine);
  run(pace, machine, 30'000, 20'000'000);
  EXPECT_TRUE(pace.crowded());
  EXPECT_LT(run(pace, machine, 30'000, 100'000'000), 0.1);
}

TEST(Pace, AddsUpStretchesThatAreShorterThanAMeasurement) {
  Machine machine;
  machine.share = 60;
  Pace pace({}, machine);
  // Each stretch is 50 us, then naps.
  run(pace, machine, 200'000, 40'000'000);
  EXPECT_TRUE(pace.crowded());
}

TEST(Pace, SpinsAgainWhenTheCrowdHasGone) {
  Machine machine;
  machine.share = 50;
  Pace pace({}, machine);
  run(pace, machine, 30'000, 50'000'000);
  ASSERT_TRUE(pace.crowded());
  machine.share = 100;
  run(pace, machine, 30'000, 2'000'000'000);
  EXPECT_FALSE(pace.crowded());
  EXPECT_EQ(run(pace, machine, 30'000, 50'000'000), 1.0);
}

TEST(Pace, ProbesLessAndLessOftenWhileTheCrowdStays) {
  Machine machine;
  machine.share = 50;
  Pace pace({}, machine);
  run(pace, machine, 30'000, 30'000'000'000);
  EXPECT_LT(run(pace, machine, 30'000, 10'000'000'000), 0.01);
}

TEST(Pace, PreemptionsMakeSmallLossesCount) {
  Machine machine;
  machine.share = 97;
  Pace pace({}, machine);
  run(pace, machine, 30'000, 20'000'000);
  EXPECT_FALSE(pace.crowded());
  uint64_t before = machine.preemptions;
  for (int i = 0; i < 100; ++i) {
    machine.preemptions = before + static_cast<uint64_t>(i);
    run(pace, machine, 30'000, 1'000'000);
  }
  EXPECT_TRUE(pace.crowded());
}

TEST(Pace, NeverSpinsWhenTold) {
  Machine machine;
  Pace::Options options;
  options.may_spin = false;
  Pace pace(options, machine);
  EXPECT_EQ(run(pace, machine, 30'000, 10'000'000), 0.0);
}

TEST(Pace, NapsAreShortAfterWorkAndEachIsLongerThanTheLast) {
  Machine machine;
  Pace::Options options;
  options.may_spin = false;
  Pace pace(options, machine);
  for (int round = 0; round < 2; ++round) {
    pace.worked(machine.now);
    uint64_t last = pace.idle(machine.now);
    EXPECT_EQ(last, options.short_nap_ns);
    for (int i = 0; i < 20 && last < options.long_nap_ns; ++i) {
      uint64_t nap = pace.idle(machine.now += last);
      EXPECT_GT(nap, last);
      last = nap;
    }
    EXPECT_EQ(last, options.long_nap_ns);
    EXPECT_EQ(pace.idle(machine.now += last), options.long_nap_ns);
  }
}

// Work that waits for the core: it comes when the device has napped, however long it spins before.
void starve(Pace& pace, Machine& machine) {
  pace.worked(machine.now);
  uint64_t nap = 0;
  while ((nap = pace.idle(machine.now)) == 0)
    machine.pass(1000);
  machine.now += nap;
}

TEST(Pace, NapsWhenWorkComesOnlyOnceItHasNapped) {
  Machine machine;
  Pace pace({}, machine);
  uint64_t start = machine.now;
  for (int i = 0; i < 20; ++i)
    starve(pace, machine);
  EXPECT_TRUE(pace.crowded());
  EXPECT_LT(machine.now - start, 2'000'000U);
}

TEST(Pace, NapsWhenHalfOfTheWorkComesOnlyOnceItHasNapped) {
  Machine machine;
  Pace pace({}, machine);
  for (int i = 0; i < 20; ++i) {
    starve(pace, machine);
    run(pace, machine, 5'000, 5'000);
  }
  EXPECT_TRUE(pace.crowded());
}

TEST(Pace, SpinsOnWhenLittleOfTheWorkComesAfterANap) {
  Machine machine;
  Pace pace({}, machine);
  for (int i = 0; i < 100; ++i) {
    starve(pace, machine);
    run(pace, machine, 5'000, 50'000);
  }
  EXPECT_FALSE(pace.crowded());
}

TEST(Pace, WorkThatComesLongAfterItHasSpunIsNoSignOfACrowd) {
  Machine machine;
  Pace pace({}, machine);
  run(pace, machine, 300'000, 300'000'000);
  EXPECT_FALSE(pace.crowded());
}

}  // namespace
}  // namespace keyhole
