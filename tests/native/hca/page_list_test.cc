// SPDX-License-Identifier: BSD-2-Clause
//
// Guest memory and page lists: translation, collapsing, what happens when maps change.

#include <gtest/gtest.h>

#include <cstring>

#include "harness.h"
#include "hca/page_list.h"

namespace keyhole::test {
namespace {

class PageListTest : public ::testing::TestWithParam<bool> {
 protected:
  FakeHost host{{.scattered = GetParam()}};
  MemoryBudget budget{1 << 20};

  PageList read(const kh_pages& pages) {
    auto list = read_page_list(host, budget, pages);
    EXPECT_TRUE(list.has_value());
    return std::move(*list);
  }
};

TEST_P(PageListTest, EveryByteIsWhereItIs) {
  std::byte* memory = host.allocate(10 * KH_PAGE_SIZE);
  PageList list = read(host.pages(memory, 10 * KH_PAGE_SIZE));
  EXPECT_EQ(list.size(), 10u * KH_PAGE_SIZE);
  for (uint64_t at = 0; at < list.size(); at += 1000)
    EXPECT_EQ(list.at(at), memory + at);
  uint64_t at = 123;
  while (at < list.size()) {
    HostSpan span = list.span(at, list.size() - at, true);
    ASSERT_TRUE(span);
    EXPECT_EQ(span.host, memory + at);
    at += span.size;
  }
  EXPECT_EQ(at, list.size());
}

TEST_P(PageListTest, SpansEndWhereAskedOrWherePagesPart) {
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  PageList list = read(host.pages(memory, 4 * KH_PAGE_SIZE));
  EXPECT_EQ(list.span(4000, 10, false).size, 10u);
  EXPECT_EQ(list.span(4000, 1000, false).size, GetParam() ? 96u : 1000u);
  EXPECT_EQ(list.span(4 * KH_PAGE_SIZE - 5, 1000, false).size, 5u);
}

TEST_P(PageListTest, MemoryThatIsTakenAwayIsMissedAtOnceAndFoundAgain) {
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  PageList list = read(host.pages(memory, 4 * KH_PAGE_SIZE));
  EXPECT_NE(list.at(KH_PAGE_SIZE), nullptr);
  host.unmap(memory + KH_PAGE_SIZE, KH_PAGE_SIZE);
  EXPECT_EQ(list.at(KH_PAGE_SIZE), nullptr);
  EXPECT_FALSE(list.span(KH_PAGE_SIZE, 1, false));
  EXPECT_FALSE(list.mapped(0, 4 * KH_PAGE_SIZE, false));
  // The other pages are still there.
  EXPECT_EQ(list.at(100), memory + 100);
  EXPECT_EQ(list.span(100, 8000, false).size, KH_PAGE_SIZE - 100u);
  host.map(memory + KH_PAGE_SIZE, KH_PAGE_SIZE);
  EXPECT_EQ(list.at(KH_PAGE_SIZE), memory + KH_PAGE_SIZE);
  EXPECT_TRUE(list.mapped(0, 4 * KH_PAGE_SIZE, true));
}

TEST_P(PageListTest, ReadOnlyMemoryCanBeReadOnly) {
  std::byte* memory = host.allocate(2 * KH_PAGE_SIZE);
  host.write_protect(memory + KH_PAGE_SIZE, KH_PAGE_SIZE);
  PageList list = read(host.pages(memory, 2 * KH_PAGE_SIZE));
  EXPECT_TRUE(list.span(KH_PAGE_SIZE, 8, false));
  EXPECT_FALSE(list.span(KH_PAGE_SIZE, 8, true));
  EXPECT_TRUE(list.mapped(0, 2 * KH_PAGE_SIZE, false));
  EXPECT_FALSE(list.mapped(0, 2 * KH_PAGE_SIZE, true));
}

INSTANTIATE_TEST_SUITE_P(Arenas, PageListTest, ::testing::Bool(),
                         [](auto& info) { return info.param ? "Scattered" : "Whole"; });

TEST(PageListReading, ContiguousListsCostNothingScatteredOnesEightBytesAPage) {
  MemoryBudget budget(1 << 20);
  FakeHost whole;
  std::byte* memory = whole.allocate(100 * KH_PAGE_SIZE);
  auto collapsed = read_page_list(whole, budget, whole.pages(memory, 100 * KH_PAGE_SIZE, 1));
  ASSERT_TRUE(collapsed);
  EXPECT_EQ(budget.used(), 0u);
  FakeHost scattered({.scattered = true});
  memory = scattered.allocate(100 * KH_PAGE_SIZE);
  {
    auto list = read_page_list(scattered, budget, scattered.pages(memory, 100 * KH_PAGE_SIZE));
    ASSERT_TRUE(list);
    EXPECT_EQ(budget.used(), 800u);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(PageListReading, PagesThatFollowEachOtherAfterAGapAreRead) {
  FakeHost host;
  MemoryBudget budget(1 << 20);
  std::byte* memory = host.allocate(20 * KH_PAGE_SIZE);
  kh_pages pages = host.pages(memory, 6 * KH_PAGE_SIZE, 1);
  auto* list = reinterpret_cast<uint64_t*>(host.arena().data() +
                                           (pages.addr - host.iova(host.arena().data())));
  for (int i = 3; i < 6; ++i)
    list[i] += 10 * KH_PAGE_SIZE;
  auto read = read_page_list(host, budget, pages);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->at(2 * KH_PAGE_SIZE), memory + 2 * KH_PAGE_SIZE);
  EXPECT_EQ(read->at(3 * KH_PAGE_SIZE), memory + 13 * KH_PAGE_SIZE);
  EXPECT_EQ(read->span(10, 1 << 20, false).size, 3u * KH_PAGE_SIZE - 10);
  EXPECT_EQ(read->span(3 * KH_PAGE_SIZE, 1 << 20, false).size, 3u * KH_PAGE_SIZE);
}

TEST(PageListReading, ListsAreReadOnceAndThenNeverAgain) {
  FakeHost host({.scattered = true});
  MemoryBudget budget(1 << 20);
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  kh_pages pages = host.pages(memory, 4 * KH_PAGE_SIZE);
  auto list = read_page_list(host, budget, pages);
  ASSERT_TRUE(list);
  // The driver frees the list: its page is used for something else.
  HostSpan page = host.translate(pages.addr, KH_PAGE_SIZE, true);
  std::memset(page.host, 0xff, page.size);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(list->at(i * KH_PAGE_SIZE), memory + i * KH_PAGE_SIZE);
}

TEST(PageListReading, LargePagesThatRunOverSeveralMapsWork) {
  // Every page of the arena is a map of its own; one 64 KiB page covers sixteen of them.
  FakeHost host;
  MemoryBudget budget(1 << 20);
  std::byte* spare = host.allocate(KH_PAGE_SIZE);
  while ((host.iova(spare) + KH_PAGE_SIZE) % 0x10000 != 0)
    spare = host.allocate(KH_PAGE_SIZE);
  std::byte* memory = host.allocate(0x20000);
  host.unmap(host.arena().data(), KH_PAGE_SIZE);  // now the arena is a map a page
  kh_pages pages{};
  pages.addr = host.iova(memory);
  pages.npages = 2;
  pages.page_shift = 16;
  auto list = read_page_list(host, budget, pages);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->size(), 0x20000u);
  EXPECT_EQ(list->at(0x1ffff), memory + 0x1ffff);
  EXPECT_EQ(list->span(0x10, 0x8000, true).size, KH_PAGE_SIZE - 0x10u);
  host.unmap(memory + 0x13000, KH_PAGE_SIZE);
  EXPECT_FALSE(read_page_list(host, budget, pages));
}

TEST(Translation, RemembersMapsUntilTheyChange) {
  struct Counting : GuestMemory {
    int finds = 0;
    std::array<std::byte, 8192> bytes{};
    Region find(uint64_t iova) override {
      ++finds;
      if (iova < 0x1000 || iova >= 0x3000) return {};
      return {.first = 0x1000, .last = 0x2fff, .host = bytes.data(), .writable = true};
    }
  } memory;
  EXPECT_EQ(memory.translate(0x1008, 16, true).host, memory.bytes.data() + 8);
  EXPECT_EQ(memory.translate(0x2ff8, 16, false).size, 8u);
  EXPECT_EQ(memory.finds, 1);
  EXPECT_FALSE(memory.translate(0x3000, 1, false));
  EXPECT_FALSE(memory.translate(0xfff, 1, false));
  uint64_t before = memory.generation();
  memory.changed();
  EXPECT_NE(memory.generation(), before);
  memory.finds = 0;
  memory.translate(0x1008, 16, true);
  EXPECT_EQ(memory.finds, 1);
}

TEST(Translation, AMapMayEndAtTheLastAddress) {
  struct Top : GuestMemory {
    std::array<std::byte, 4096> bytes{};
    Region find(uint64_t iova) override {
      if (iova < ~uint64_t{4095}) return {};
      return {
          .first = ~uint64_t{4095}, .last = ~uint64_t{0}, .host = bytes.data(), .writable = true};
    }
  } memory;
  EXPECT_EQ(memory.translate(~uint64_t{0}, 1, true).size, 1u);
  EXPECT_EQ(memory.translate(~uint64_t{7}, 100, true).size, 8u);
}

}  // namespace
}  // namespace keyhole::test
