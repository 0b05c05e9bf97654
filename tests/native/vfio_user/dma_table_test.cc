// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/dma_table.h"

#include <fcntl.h>

#include <cerrno>
#include <random>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

DmaMapping mapping(uint64_t iova, uint64_t size, const Fd& file, uint64_t offset = 0,
                   DmaAccess access = DmaAccess::read_write) {
  DmaMapping m;
  m.iova = iova;
  m.size = size;
  m.access = access;
  m.fd = Fd(file ? dup(file.get()) : -1);
  m.offset = offset;
  return m;
}

constexpr uint64_t page = 4096;

}  // namespace

TEST(DmaTable, ARangeIsFoundOnlyInsideOneMap) {
  DmaTable table;
  Fd file = memory_file(8 * page);
  ASSERT_TRUE(table.map(mapping(0x10000, 4 * page, file)));
  ASSERT_TRUE(table.map(mapping(0x14000, 4 * page, file, 4 * page)));
  std::byte* base = table.find(0x10000, 1, DmaAccess::read);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(table.find(0x10000, 4 * page, DmaAccess::read), base);
  EXPECT_EQ(table.find(0x13fff, 1, DmaAccess::read), base + 0x3fff);
  EXPECT_EQ(table.find(0x13fff, 2, DmaAccess::read), nullptr);  // into the neighbour
  EXPECT_EQ(table.find(0xffff, 1, DmaAccess::read), nullptr);
  EXPECT_EQ(table.find(0x18000, 1, DmaAccess::read), nullptr);
  EXPECT_EQ(table.find(0x10000, ~0ull, DmaAccess::read), nullptr);
  EXPECT_NE(table.find(0x17fff, 1, DmaAccess::read), nullptr);

  // A range over both is walked in pieces.
  DmaSpan piece = table.at(0x13000, DmaAccess::write);
  EXPECT_EQ(piece.host, base + 0x3000);
  EXPECT_EQ(piece.size, 0x1000u);
  EXPECT_EQ(table.at(0x14000, DmaAccess::write).size, 4 * page);
  EXPECT_EQ(table.at(0x18000, DmaAccess::write).host, nullptr);
}

TEST(DmaTable, RightsAreThoseOfTheMap) {
  DmaTable table;
  Fd file = memory_file(3 * page);
  ASSERT_TRUE(table.map(mapping(0, page, file, 0, DmaAccess::read)));
  ASSERT_TRUE(table.map(mapping(page, page, file, page, DmaAccess::write)));
  EXPECT_NE(table.find(0, 8, DmaAccess::read), nullptr);
  EXPECT_EQ(table.find(0, 8, DmaAccess::write), nullptr);
  EXPECT_EQ(table.find(0, 8, DmaAccess::read_write), nullptr);
  EXPECT_EQ(table.find(page, 8, DmaAccess::read), nullptr);
  EXPECT_NE(table.find(page, 8, DmaAccess::write), nullptr);
}

TEST(DmaTable, TheWholeMapAtAnAddressIsToldToOnesOwnCache) {
  DmaTable table;
  Fd file = memory_file(4 * page);
  ASSERT_TRUE(table.map(mapping(0x10000, 2 * page, file)));
  ASSERT_TRUE(table.map(mapping(0x20000, 2 * page, file, 0, DmaAccess::read)));
  ASSERT_TRUE(table.map(mapping(0x30000, 2 * page, Fd{})));
  DmaTable::Whole whole = table.whole(0x11234);
  EXPECT_EQ(whole.first, 0x10000u);
  EXPECT_EQ(whole.last, 0x11fffu);
  EXPECT_EQ(whole.host, table.find(0x10000, 1, DmaAccess::read));
  EXPECT_TRUE(whole.writable);
  EXPECT_FALSE(table.whole(0x20000).writable);
  EXPECT_EQ(table.whole(0x30000).host, nullptr);
  EXPECT_EQ(table.whole(0x12000).host, nullptr);
}

TEST(DmaTable, AFileThatMayOnlyBeReadCannotBeMappedForWriting) {
  DmaTable table;
  Fd file = memory_file(page);
  Fd read_only(open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  EXPECT_EQ(table.map(mapping(0, page, read_only)).error(), EACCES);
  EXPECT_TRUE(table.map(mapping(0, page, read_only, 0, DmaAccess::read)));
}

TEST(DmaTable, ChangesMoveTheGeneration) {
  DmaTable table;
  Fd file = memory_file(page);
  uint64_t first = table.generation();
  EXPECT_NE(first, 0u);
  ASSERT_TRUE(table.map(mapping(0, page, file)));
  uint64_t second = table.generation();
  EXPECT_NE(second, first);
  EXPECT_FALSE(table.map(mapping(0, page, file)));
  EXPECT_FALSE(table.unmap(page, page));
  EXPECT_EQ(table.generation(), second);
  ASSERT_TRUE(table.unmap(0, page));
  EXPECT_NE(table.generation(), second);
}

TEST(DmaTable, UnmapTakesWholeMapsOnly) {
  DmaTable table;
  Fd file = memory_file(page);
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_TRUE(table.map(mapping(0x10000 + 2 * page * i, page, file)));
  EXPECT_EQ(table.unmap(0x10000, 0).error(), EINVAL);
  EXPECT_EQ(table.unmap(0x11000, page).error(), ENOENT);
  // A range over several, with holes between them.
  ASSERT_TRUE(table.unmap(0x10000, 3 * page));
  EXPECT_EQ(table.count(), 6u);
  EXPECT_EQ(table.find(0x10000, 1, DmaAccess::read), nullptr);
  EXPECT_EQ(table.find(0x12000, 1, DmaAccess::read), nullptr);
  EXPECT_NE(table.find(0x14000, 1, DmaAccess::read), nullptr);
  ASSERT_TRUE(table.unmap(0, ~0ull));
  EXPECT_EQ(table.count(), 0u);
  EXPECT_EQ(table.reachable_bytes(), 0u);
}

TEST(DmaTable, AMapMayEndWithTheAddressSpace) {
  DmaTable table;
  Fd file = memory_file(page);
  uint64_t top = ~uint64_t{0} - page + 1;
  ASSERT_TRUE(table.map(mapping(top, page, file)));
  EXPECT_NE(table.find(~uint64_t{0}, 1, DmaAccess::read), nullptr);
  EXPECT_EQ(table.find(~uint64_t{0}, 2, DmaAccess::read), nullptr);
  EXPECT_EQ(table.at(top, DmaAccess::read).size, page);
  EXPECT_EQ(table.map(mapping(top, page, file)).error(), EEXIST);
  EXPECT_TRUE(table.unmap(top, page));
}

TEST(DmaTable, OnlyRegularFilesLongEnoughAreMapped) {
  DmaTable table;
  Fd file = memory_file(2 * page - 1);
  EXPECT_TRUE(table.map(mapping(0, page, file)));
  EXPECT_EQ(table.map(mapping(0x10000, 2 * page, file)).error(), EINVAL);
  EXPECT_EQ(table.map(mapping(0x10000, page, file, page)).error(), EINVAL);
  EXPECT_EQ(table.map(mapping(0x10000, page, event_fd())).error(), EINVAL);
  Fd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(table.map(mapping(0x10000, page, zero)).error(), EINVAL);
  EXPECT_EQ(table.map(mapping(0x10001, page, file)).error(), EINVAL);
  EXPECT_EQ(table.map(mapping(0x10000, page + 1, file)).error(), EINVAL);
  EXPECT_EQ(table.count(), 1u);
}

TEST(DmaTable, CountAndAddressSpaceAreBounded) {
  DmaTable table("test", DmaLimits{4, 10 * page});
  Fd file = memory_file(8 * page);
  ASSERT_TRUE(table.map(mapping(0, 8 * page, file)));
  EXPECT_EQ(table.map(mapping(0x10000, 3 * page, file)).error(), ENOMEM);
  ASSERT_TRUE(table.map(mapping(0x10000, 2 * page, file)));
  EXPECT_EQ(table.map(mapping(0x20000, page, file)).error(), ENOMEM);
  ASSERT_TRUE(table.map(mapping(0x20000, page, Fd{})));
  ASSERT_TRUE(table.map(mapping(0x30000, page, Fd{})));
  EXPECT_EQ(table.map(mapping(0x40000, page, Fd{})).error(), ENOMEM);
  // What is given back can be had again.
  ASSERT_TRUE(table.unmap(0, 8 * page));
  EXPECT_TRUE(table.map(mapping(0, 8 * page, file)));
}

TEST(DmaTable, AMapWithoutDescriptorTakesItsPlaceAndCannotBeReached) {
  DmaTable table;
  Fd file = memory_file(page);
  ASSERT_TRUE(table.map(mapping(0x10000, 16 * page, Fd{})));
  EXPECT_EQ(table.find(0x10000, 1, DmaAccess::read), nullptr);
  EXPECT_EQ(table.at(0x10000, DmaAccess::read).host, nullptr);
  EXPECT_EQ(table.unreachable_bytes(), 16 * page);
  EXPECT_EQ(table.map(mapping(0x12000, page, file)).error(), EEXIST);
  EXPECT_TRUE(table.unmap(0x10000, 16 * page));
  EXPECT_EQ(table.unreachable_bytes(), 0u);
}

TEST(DmaTable, AgreesWithAPlainListUnderRandomChanges) {
  DmaTable table("test", DmaLimits{64, 1 << 30});
  Fd file = memory_file(64 * page);
  std::map<uint64_t, uint64_t> model;  // iova -> pages
  std::mt19937 random(4);
  auto below = [&](uint32_t n) { return random() % n; };

  for (int step = 0; step < 20000; ++step) {
    uint64_t iova = below(256) * page;
    uint64_t pages = 1 + below(8);
    if (below(2) == 0) {
      bool overlaps = false;
      for (auto [start, count] : model)
        overlaps = overlaps || (iova < start + count * page && start < iova + pages * page);
      bool fits = model.size() < 64;
      // The file's pages are as the addresses, so that a lookup can be checked by its contents.
      bool mapped = table.map(mapping(iova, pages * page, file, iova % (56 * page))).has_value();
      EXPECT_EQ(mapped, !overlaps && fits);
      if (mapped) model[iova] = pages;
    } else {
      bool any = false;
      bool cut = false;
      for (auto [start, count] : model) {
        uint64_t end = start + count * page;
        if (iova >= end || start >= iova + pages * page) continue;
        any = true;
        cut = cut || start < iova || end > iova + pages * page;
      }
      EXPECT_EQ(table.unmap(iova, pages * page).has_value(), any && !cut);
      if (any && !cut)
        std::erase_if(model,
                      [&](auto& m) { return m.first >= iova && m.first < iova + pages * page; });
    }
    uint64_t probe = below(256 * page);
    auto next = model.upper_bound(probe);
    bool inside =
        next != model.begin() && probe < std::prev(next)->first + std::prev(next)->second * page;
    EXPECT_EQ(table.find(probe, 1, DmaAccess::read) != nullptr, inside);
    ASSERT_EQ(table.count(), model.size());
  }
}

}  // namespace keyhole::vfio_user
