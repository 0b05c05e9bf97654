// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace keyhole {
namespace {

constexpr uint64_t kShort = 8'000;
constexpr uint64_t kLong = 50'000;

// A guest that answers each piece of work after some time. Where it needs the core that the device
// spins on, that time passes only in naps, of which each begins with filling its caches.
struct Guest {
  uint64_t answers_after;
  bool on_our_core = false;
  uint64_t wasted_by_nap = 0;
};

struct Machine {
  uint64_t now = 1'000'000'000;
  uint64_t spun = 0;

  // One wait for work; how long it was.
  uint64_t wait(Pace& pace, const Guest& guest) {
    uint64_t start = now;
    pace.worked(now);
    int64_t left = static_cast<int64_t>(guest.answers_after);
    while (left > 0) {
      uint64_t nap = pace.idle(now);
      uint64_t passed = nap == 0 ? 500 : nap;
      now += passed;
      if (nap == 0) spun += passed;
      if (!guest.on_our_core)
        left -= static_cast<int64_t>(passed);
      else
        left -= static_cast<int64_t>(nap - std::min(nap, guest.wasted_by_nap));
    }
    return now - start;
  }

  // The mean of so many.
  uint64_t mean(Pace& pace, const Guest& guest, uint64_t waits = 10'000) {
    uint64_t start = now;
    for (uint64_t i = 0; i < waits; ++i)
      wait(pace, guest);
    return (now - start) / waits;
  }
};

TEST(Pace, SpinsForLongWhereThatBringsTheWorkSooner) {
  Machine machine;
  Pace pace({});
  machine.mean(pace, {.answers_after = 12'000});
  EXPECT_EQ(pace.spin_ns(), kLong);
  EXPECT_LT(machine.mean(pace, {.answers_after = 12'000}), 12'600U);
}

TEST(Pace, SpinsForAShortTimeWhereTheGuestNeedsTheCore) {
  Machine machine;
  Pace pace({});
  machine.mean(pace, {.answers_after = 6'000, .on_our_core = true});
  EXPECT_EQ(pace.spin_ns(), kShort);
  EXPECT_LT(machine.mean(pace, {.answers_after = 6'000, .on_our_core = true}), 20'000U);
}

TEST(Pace, SpinsForAShortTimeWhereMoreBringsNothing) {
  Machine machine;
  Pace pace({});
  machine.mean(pace, {.answers_after = 4'000});  // found within either
  EXPECT_EQ(pace.spin_ns(), kShort);
  machine.mean(pace, {.answers_after = 2'000'000});  // pauses, found within neither
  EXPECT_EQ(pace.spin_ns(), kShort);
  machine.spun = 0;
  uint64_t start = machine.now;
  machine.mean(pace, {.answers_after = 2'000'000}, 1000);
  EXPECT_LT(machine.spun, (machine.now - start) / 50);
}

TEST(Pace, NoticesThatTheGuestHasChanged) {
  Machine machine;
  Pace pace({});
  for (int i = 0; i < 3; ++i) {
    machine.mean(pace, {.answers_after = 12'000});
    EXPECT_EQ(pace.spin_ns(), kLong);
    machine.mean(pace, {.answers_after = 12'000, .on_our_core = true});
    EXPECT_EQ(pace.spin_ns(), kShort);
  }
}

TEST(Pace, TriesCostLittle) {
  Machine machine;
  Pace pace({});
  const Guest guest{.answers_after = 6'000, .on_our_core = true};
  machine.mean(pace, guest);
  uint64_t best = machine.wait(pace, guest);
  EXPECT_LT(machine.mean(pace, guest, 100'000), best + best / 12);
}

TEST(Pace, AVirtualCpuThatComesToNothingInAShortNapGetsALongerOne) {
  Machine machine;
  Pace pace({});
  // A nap of 10 us would never do.
  EXPECT_LT(machine.mean(pace, {.answers_after = 5'000, .on_our_core = true, .wasted_by_nap = 11'000}), 150'000U);
}

TEST(Pace, NapsAreShortAfterWorkAndEachIsLongerThanTheLast) {
  Pace::Options options;
  options.spins_ns = {0};
  Pace pace(options);
  uint64_t now = 1'000'000;
  for (int round = 0; round < 2; ++round) {
    pace.worked(now);
    uint64_t last = pace.idle(now);
    EXPECT_EQ(last, options.short_nap_ns);
    for (int i = 0; i < 20 && last < options.long_nap_ns; ++i) {
      uint64_t nap = pace.idle(now += last);
      EXPECT_GT(nap, last);
      last = nap;
    }
    EXPECT_EQ(last, options.long_nap_ns);
    EXPECT_EQ(pace.idle(now += last), options.long_nap_ns);
  }
}

TEST(Pace, NeverSpinsWhenTold) {
  Machine machine;
  Pace::Options options;
  options.spins_ns = {0};
  Pace pace(options);
  machine.mean(pace, {.answers_after = 12'000});
  EXPECT_EQ(machine.spun, 0U);
}

TEST(Pace, WantsAnotherCoreOnlyWhileTheWaitsAreLong) {
  Machine machine;
  Pace pace({});
  machine.mean(pace, {.answers_after = 4'000});
  EXPECT_EQ(pace.moves(), 0U);
  machine.mean(pace, {.answers_after = 6'000, .on_our_core = true});
  uint64_t moves = pace.moves();
  EXPECT_GT(moves, 0U);
  machine.mean(pace, {.answers_after = 4'000}, 100'000);
  EXPECT_LE(pace.moves(), moves + 1);  // the try that was under way
}

// In the middle of a try, one long pause is not taken for a sign.
TEST(Pace, APauseIsNoReasonToChange) {
  Machine machine;
  Pace pace({});
  const Guest guest{.answers_after = 12'000};
  machine.mean(pace, guest);
  ASSERT_EQ(pace.spin_ns(), kLong);
  for (int i = 0; i < 1000; ++i) {
    machine.mean(pace, guest, 997);
    machine.wait(pace, {.answers_after = 50'000'000});
    EXPECT_EQ(pace.spin_ns(), kLong) << i;
  }
}

}  // namespace
}  // namespace keyhole
