// SPDX-License-Identifier: BSD-2-Clause
//
// The tables of the library's own objects, used by threads that share nothing but them.

#include "objects.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace {

struct Record {
  const void* key = nullptr;
  Record* next = nullptr;
  unsigned owner = 0;
};

TEST(Objects, ThreadsFindTheirOwnRecordsAndNoOthers) {
  constexpr unsigned kThreads = 4, kRecords = 64, kRounds = 500;
  keyhole::exp::Objects<Record> table;
  std::array<unsigned, kThreads> wrong{};
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < kThreads; ++me)
    threads.emplace_back([&, me] {
      std::vector<Record> records(kRecords);
      for (unsigned round = 0; round < kRounds; ++round) {
        for (Record& record : records) {
          record.key = &record;
          record.owner = me;
          table.put(&record);
        }
        for (Record& record : records) {
          Record* found = table.find(&record);
          wrong[me] += found != &record || found->owner != me || table.empty();
          wrong[me] += table.take(&record) != &record || table.find(&record) != nullptr;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (unsigned each : wrong) EXPECT_EQ(each, 0u);
  EXPECT_TRUE(table.empty());
}

}  // namespace
