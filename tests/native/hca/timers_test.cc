// SPDX-License-Identifier: BSD-2-Clause
//
// Timers and tables of numbered objects.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "hca/id_table.h"
#include "hca/timers.h"

namespace keyhole::test {
namespace {

TEST(TimersTest, ExpireInOrderOfTheirDeadlineWhateverHappenedToThem) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Timers timers;
    struct Owner {
      std::vector<uint64_t>* expired;
      uint64_t deadline = 0;
    };
    std::vector<uint64_t> expired;
    std::deque<Owner> owners;
    std::vector<std::unique_ptr<Timer>> all;
    for (int i = 0; i < 200; ++i) {
      owners.push_back({&expired});
      all.push_back(std::make_unique<Timer>(
          timers,
          [](void* self, uint64_t) {
            auto* owner = static_cast<Owner*>(self);
            owner->expired->push_back(owner->deadline);
          },
          &owners.back()));
    }
    std::multiset<uint64_t> expected;
    for (int step = 0; step < 1000; ++step) {
      size_t i = random() % all.size();
      if (random() % 4 == 0) {
        all[i]->stop();
        owners[i].deadline = 0;
      } else {
        owners[i].deadline = 1 + random() % 10000;
        all[i]->start(owners[i].deadline);
      }
    }
    for (auto& owner : owners) {
      if (owner.deadline) expected.insert(owner.deadline);
    }
    EXPECT_EQ(timers.running(), expected.size());
    EXPECT_EQ(timers.next_deadline(), *expected.begin());
    timers.expire(5000, 100000);
    for (uint64_t deadline : expired)
      EXPECT_LE(deadline, 5000u);
    timers.expire(10000, 100000);
    EXPECT_EQ(expired, std::vector<uint64_t>(expected.begin(), expected.end()));
    EXPECT_EQ(timers.next_deadline(), Timers::never);
  }
}

TEST(TimersTest, ExpireAtMostTheLimitAndMayStartAnew) {
  Timers timers;
  struct Periodic {
    Timer timer;
    int count = 0;
    explicit Periodic(Timers& timers)
        : timer(
              timers,
              [](void* self, uint64_t now) {
                auto* periodic = static_cast<Periodic*>(self);
                ++periodic->count;
                periodic->timer.start(now);  // due again at once
              },
              this) {}
  } periodic(timers);
  periodic.timer.start(5);
  EXPECT_EQ(timers.expire(4, 10), 0u);
  EXPECT_EQ(timers.expire(5, 10), 10u);
  EXPECT_EQ(periodic.count, 10);
  EXPECT_TRUE(periodic.timer.running());
}

TEST(TimersTest, ATimerThatGoesAwayIsStopped) {
  Timers timers;
  {
    Timer timer(
        timers, [](void*, uint64_t) { FAIL(); }, nullptr);
    timer.start(1);
  }
  EXPECT_EQ(timers.expire(10, 10), 0u);
}

TEST(IdTableTest, NumbersAreFoundWholeAndComeBackOldestFirst) {
  IdTable<int> table(2, 6, 3, 8);
  std::set<uint32_t> numbers;
  while (auto number = table.reserve()) {
    table.put(*number, std::make_unique<int>(static_cast<int>(*number)));
    numbers.insert(*number);
  }
  EXPECT_EQ(numbers, (std::set<uint32_t>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.find(8 | 2), nullptr);
  EXPECT_EQ(table.find(0xffffffff), nullptr);
  table.erase(5);
  table.erase(3);
  EXPECT_EQ(table.find(5), nullptr);
  EXPECT_EQ(*table.reserve(), 8u | 5);
  EXPECT_EQ(*table.reserve(), 8u | 3);
  EXPECT_FALSE(table.reserve());
  EXPECT_EQ(table.count(), 4u);
}

TEST(IdTableTest, AnObjectIsNotFoundWhileItIsBeingDestroyed) {
  struct Object {
    IdTable<Object>* table;
    uint32_t number;
    bool* found;
    ~Object() { *found = table->find(number) != nullptr; }
  };
  IdTable<Object> table(0, 10, 8, 8);
  bool found = true;
  uint32_t number = *table.reserve();
  table.put(number, std::unique_ptr<Object>(new Object{&table, number, &found}));
  table.erase(number);
  EXPECT_FALSE(found);
}

}  // namespace
}  // namespace keyhole::test
