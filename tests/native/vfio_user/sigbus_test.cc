// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/sigbus.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

constexpr uint64_t page_bytes = 4096;

DmaMapping whole(const Fd& file, uint64_t iova, uint64_t size) {
  DmaMapping m;
  m.iova = iova;
  m.size = size;
  m.fd = Fd(dup(file.get()));
  return m;
}

}  // namespace

TEST(Sigbus, ACopyFromATruncatedFileFinishesWithZeroesAndTheTableKnows) {
  DmaTable table;
  DmaTable other;
  Fd file = memory_file(8 * page_bytes);
  Fd good = memory_file(page_bytes);
  Bytes ones(8 * page_bytes, std::byte{1});
  ASSERT_EQ(pwrite(file.get(), ones.data(), ones.size(), 0), static_cast<ssize_t>(ones.size()));
  ASSERT_TRUE(table.map(whole(file, 0, 8 * page_bytes)));
  ASSERT_TRUE(other.map(whole(good, 0, page_bytes)));
  EXPECT_FALSE(table.damaged());

  ASSERT_EQ(ftruncate(file.get(), 2 * page_bytes), 0);
  Bytes copy(8 * page_bytes);
  std::memcpy(copy.data(), table.find(0, 8 * page_bytes, DmaAccess::read), copy.size());
  EXPECT_EQ(copy[2 * page_bytes - 1], std::byte{1});
  for (size_t i = 2 * page_bytes; i < copy.size(); ++i)
    ASSERT_EQ(copy[i], std::byte{0}) << i;
  EXPECT_TRUE(table.damaged());
  EXPECT_FALSE(other.damaged());

  // Stores are survived too, and what is left of the file still is the file.
  std::memset(table.find(0, 8 * page_bytes, DmaAccess::write), 5, 8 * page_bytes);
  char seen = 0;
  EXPECT_EQ(pread(file.get(), &seen, 1, page_bytes), 1);
  EXPECT_EQ(seen, 5);
}

TEST(Sigbus, DamageIsRememberedUntilTheClientIsGone) {
  DmaTable table;
  Fd file = memory_file(page_bytes);
  ASSERT_TRUE(table.map(whole(file, 0, page_bytes)));
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  *table.find(0, 1, DmaAccess::write) = std::byte{1};
  // Not asked for until the map is gone.
  ASSERT_TRUE(table.unmap(0, page_bytes));
  EXPECT_TRUE(table.damaged());
  table.unmap_all();
  EXPECT_FALSE(table.damaged());
}

TEST(Sigbus, PagesAreLostFromTheBackWithoutAMappingForEach) {
  DmaTable table;
  Fd file = memory_file(256 * page_bytes);
  ASSERT_TRUE(table.map(whole(file, 0, 256 * page_bytes)));
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  auto before = mappings();
  EXPECT_GT(before, 0);
  for (uint64_t i = 256; i-- > 0;)
    *table.find(i * page_bytes, 1, DmaAccess::write) = std::byte{1};
  EXPECT_LE(mappings(), before + 4);
  EXPECT_TRUE(table.damaged());
}

TEST(Sigbus, SeveralThreadsSurviveAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int round = 0; round < 50; ++round) {
        DmaTable table;
        Fd file = memory_file(4 * page_bytes);
        ASSERT_TRUE(table.map(whole(file, 0, 4 * page_bytes)));
        ASSERT_EQ(ftruncate(file.get(), 0), 0);
        std::memset(table.find(0, 4 * page_bytes, DmaAccess::write), 1, 4 * page_bytes);
        EXPECT_TRUE(table.damaged());
      }
    });
  for (std::thread& t : threads)
    t.join();
}

// In a process of its own, where the guard is the first to take the signal over from the default.
TEST(SigbusDeathTest, AFaultInOtherMemoryIsFatal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        (void)signal(SIGBUS, SIG_DFL);
        DmaTable table;
        Fd guarded = memory_file(page_bytes);
        (void)table.map(whole(guarded, 0, page_bytes));
        Fd file = memory_file(page_bytes);
        auto* other = static_cast<char*>(
            mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
        (void)!ftruncate(file.get(), 0);
        *const_cast<volatile char*>(other) = 1;
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(SigbusDeathTest, ASignalSentByAnotherProcessIsFatal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        (void)signal(SIGBUS, SIG_DFL);
        DmaTable table;
        Fd guarded = memory_file(page_bytes);
        (void)table.map(whole(guarded, 0, page_bytes));
        kill(getpid(), SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(SharedMemory, ItsSizeIsSealed) {
  auto memory = SharedMemory::create("test", 4 * page_bytes);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->size(), 4 * page_bytes);
  EXPECT_NE(ftruncate(memory->fd(), 0), 0);
  EXPECT_NE(ftruncate(memory->fd(), 8 * page_bytes), 0);
  memory->bytes()[4 * page_bytes - 1] = std::byte{3};
  SharedMemory moved = std::move(*memory);
  EXPECT_EQ(moved.bytes()[4 * page_bytes - 1], std::byte{3});
  EXPECT_EQ(memory->data(), nullptr);
}

}  // namespace keyhole::vfio_user
