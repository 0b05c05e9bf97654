// SPDX-License-Identifier: BSD-2-Clause
//
// The mkey table: lookup, rights, ranges, reuse; windows of both types, each rule of their binding,
// use and end.

#include <gtest/gtest.h>

#include <set>

#include "harness.h"
#include "hca/mkey_table.h"

namespace keyhole::test {
namespace {

constexpr uint32_t pd = 1;
constexpr uint32_t other_pd = 2;
constexpr uint64_t start = 0x7000'0000;
constexpr uint64_t length = 3 * KH_PAGE_SIZE;
constexpr uint32_t all_access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;

class MkeyTest : public ::testing::Test {
 protected:
  FakeHost host;
  MemoryBudget budget{64 << 20};
  MkeyTable table{host, budget, 1 << 20};
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  KeyUser who{.pdn = pd, .qpn = 10, .kernel = false};
  WindowList windows;

  uint32_t region(uint32_t access, uint32_t pdn = pd, uint64_t at = start) {
    MkeyTable::Attributes a;
    a.pdn = pdn;
    a.access = access;
    a.start = at;
    a.length = length;
    a.offset = 100;
    a.pages = PageList(host, host.iova(memory), 4 * KH_PAGE_SIZE);
    return *table.create(std::move(a));
  }
  uint32_t bare(MkeyKind kind, uint32_t pdn = pd, uint32_t access = 0) {
    MkeyTable::Attributes a;
    a.kind = kind;
    a.pdn = pdn;
    a.access = access;
    return *table.create(std::move(a));
  }
  static kh_wqe_bind bind_request(uint32_t window, uint32_t region, uint32_t access,
                                  uint64_t addr = start, uint64_t len = length) {
    kh_wqe_bind request{};
    request.mw_key = window;
    request.new_key = (window & ~0xffu) | KH_KEY_VARIANT(window + 1);
    request.mr_key = region;
    request.access = access;
    request.addr = addr;
    request.length = len;
    return request;
  }
  uint32_t bound(MkeyKind kind, uint32_t region, uint32_t access, uint64_t addr = start,
                 uint64_t len = length) {
    uint32_t window = bare(kind);
    kh_wqe_bind request = bind_request(window, region, access, addr, len);
    EXPECT_EQ(bind(request), 0u);
    return request.new_key;
  }
  // The syndrome; 0: it worked.
  uint32_t bind(const kh_wqe_bind& request, KeyUser user) {
    auto result = table.bind(request, user, windows);
    return result ? 0 : result.error();
  }
  uint32_t bind(const kh_wqe_bind& request) { return bind(request, who); }
  uint32_t local(uint32_t key, uint64_t addr, uint64_t len, bool write, KeyUser user) {
    auto result = table.local(key, addr, len, write, user);
    return result ? 0 : result.error();
  }
  uint32_t local(uint32_t key, uint64_t addr, uint64_t len, bool write = false) {
    return local(key, addr, len, write, who);
  }
  uint32_t remote(uint32_t key, uint64_t addr, uint64_t len, uint32_t right, KeyUser user) {
    auto result = table.remote(key, addr, len, right, user);
    return result ? 0 : result.error();
  }
  uint32_t remote(uint32_t key, uint64_t addr, uint64_t len, uint32_t right) {
    return remote(key, addr, len, right, who);
  }
  uint32_t invalidate(uint32_t key, KeyUser user) {
    auto result = table.invalidate(key, user);
    return result ? 0 : result.error();
  }
};

TEST_F(MkeyTest, ARegionReachesItsBytesAndNoOthers) {
  uint32_t key = region(KH_ACCESS_LOCAL_WRITE);
  auto cursor = table.local(key, start + 5, 50, true, who);
  ASSERT_TRUE(cursor);
  HostSpan span = cursor->next(1000);
  EXPECT_EQ(span.host, memory + 105);
  EXPECT_EQ(span.size, 50u);
  EXPECT_EQ(cursor->left(), 0u);
  EXPECT_EQ(local(key, start, length), 0u);
  EXPECT_EQ(local(key, start + length - 1, 1), 0u);
  for (auto [addr, len] : {std::pair<uint64_t, uint64_t>{start - 1, 1},
                           {start + length, 1},
                           {start, length + 1},
                           {start + 1, length},
                           {start + 1, ~uint64_t{0}},
                           {0, 1},
                           {~uint64_t{0}, 2}})
    EXPECT_EQ(local(key, addr, len), KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE) << addr << " " << len;
}

TEST_F(MkeyTest, ARegionThatEndsAtTheLastAddressDoesNotWrap) {
  uint32_t key = region(KH_ACCESS_REMOTE_READ, pd, ~uint64_t{0} - length + 1);
  EXPECT_EQ(remote(key, ~uint64_t{0}, 1, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(remote(key, ~uint64_t{0}, 2, KH_ACCESS_REMOTE_READ),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
  EXPECT_EQ(remote(key, 0, 1, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(MkeyTest, RightsAreGrantedOneByOne) {
  constexpr uint32_t rights[] = {KH_ACCESS_REMOTE_WRITE, KH_ACCESS_REMOTE_READ,
                                 KH_ACCESS_REMOTE_ATOMIC};
  for (uint32_t granted = 0; granted < 8; ++granted) {
    uint32_t access = KH_ACCESS_LOCAL_WRITE;
    for (int i = 0; i < 3; ++i)
      access |= granted >> i & 1 ? rights[i] : 0;
    uint32_t key = region(access);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(remote(key, start, 8, rights[i]),
                granted >> i & 1 ? 0u : KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  }
  uint32_t readable = region(0);
  EXPECT_EQ(local(readable, start, 8, false), 0u);
  EXPECT_EQ(local(readable, start, 8, true), KH_SYN_LOCAL_KEY | KH_SYN_KEY_RIGHTS);
}

TEST_F(MkeyTest, AllThirtyTwoBitsOfAKeyCount) {
  uint32_t key = region(all_access);
  for (int bit = 0; bit < 32; ++bit) {
    uint32_t wrong = key ^ 1u << bit;
    if (wrong == MkeyTable::local_dma_lkey) continue;
    uint32_t expected = bit < 8 ? KH_SYN_KEY_STALE : KH_SYN_KEY_NONE;
    EXPECT_EQ(local(wrong, start, 8), KH_SYN_LOCAL_KEY | expected) << bit;
  }
  EXPECT_EQ(local(0, start, 8), KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
  EXPECT_EQ(local(0xffffffff, start, 8), KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
}

TEST_F(MkeyTest, AnotherPdHasNoUseForIt) {
  uint32_t key = region(all_access, other_pd);
  EXPECT_EQ(local(key, start, 8), KH_SYN_LOCAL_KEY | KH_SYN_KEY_PD);
  EXPECT_EQ(remote(key, start, 8, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_PD);
}

TEST_F(MkeyTest, ZeroBytesNeedNoKey) {
  EXPECT_EQ(local(12345, 0, 0, true), 0u);
  EXPECT_EQ(remote(12345, 0, 0, KH_ACCESS_REMOTE_WRITE), 0u);
  EXPECT_EQ(table.remote(0, 0, 0, KH_ACCESS_REMOTE_READ, who)->left(), 0u);
}

TEST_F(MkeyTest, TheReservedKeyIsForTheKernelLocally) {
  KeyUser kernel{.pdn = 7, .qpn = 3, .kernel = true};
  uint64_t at = host.iova(memory) + 9;
  auto cursor = table.local(MkeyTable::local_dma_lkey, at, 10, true, kernel);
  ASSERT_TRUE(cursor);
  EXPECT_EQ(cursor->next(100).host, memory + 9);
  EXPECT_EQ(local(MkeyTable::local_dma_lkey, at, 10), KH_SYN_LOCAL_KEY | KH_SYN_KEY_KIND);
  EXPECT_EQ(remote(MkeyTable::local_dma_lkey, at, 10, KH_ACCESS_REMOTE_READ, kernel),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_KIND);
  EXPECT_EQ(local(MkeyTable::local_dma_lkey, ~uint64_t{0}, 2, false, kernel),
            KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
  EXPECT_FALSE(table.destroy(MkeyTable::local_dma_lkey));
  // An address where nothing is mapped passes the check, and the cursor finds nothing.
  auto nowhere = table.local(MkeyTable::local_dma_lkey, 64, 8, false, kernel);
  ASSERT_TRUE(nowhere);
  EXPECT_FALSE(nowhere->next(8));
}

TEST_F(MkeyTest, PhysicalKeysAreForTheKernelOfTheirPd) {
  uint32_t key = bare(MkeyKind::phys, pd, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_READ);
  KeyUser kernel{.pdn = pd, .qpn = 3, .kernel = true};
  uint64_t at = host.iova(memory);
  EXPECT_EQ(local(key, at, 8, true, kernel), 0u);
  EXPECT_EQ(remote(key, at, 8, KH_ACCESS_REMOTE_READ, kernel), 0u);
  EXPECT_EQ(remote(key, at, 8, KH_ACCESS_REMOTE_WRITE, kernel),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  EXPECT_EQ(local(key, at, 8, true, who), KH_SYN_LOCAL_KEY | KH_SYN_KEY_KIND);
  EXPECT_EQ(remote(key, at, 8, KH_ACCESS_REMOTE_READ, who), KH_SYN_REMOTE_KEY | KH_SYN_KEY_KIND);
  kernel.pdn = other_pd;
  EXPECT_EQ(local(key, at, 8, true, kernel), KH_SYN_LOCAL_KEY | KH_SYN_KEY_PD);
}

TEST_F(MkeyTest, FreedKeysAreGoneAndComeBackLateWithAnotherVariant) {
  uint32_t first = region(all_access);
  ASSERT_TRUE(table.destroy(first));
  EXPECT_EQ(local(first, start, 8), KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
  EXPECT_FALSE(table.destroy(first));
  uint32_t allocations = 0;
  for (;; ++allocations) {
    uint32_t key = bare(MkeyKind::mw1);
    bool again = KH_KEY_INDEX(key) == KH_KEY_INDEX(first);
    ASSERT_TRUE(table.destroy(key));
    if (again) {
      EXPECT_EQ(KH_KEY_VARIANT(key), KH_KEY_VARIANT(first + 1));
      break;
    }
    ASSERT_LT(allocations, 100000u);
  }
  EXPECT_GE(allocations, 1000u);
  EXPECT_EQ(table.count(), 0u);
}

TEST_F(MkeyTest, TheTableEndsAtItsLimitAndTheBudgetAtItsOwn) {
  MkeyTable small(host, budget, 100);
  std::set<uint32_t> keys;
  for (int i = 0; i < 100; ++i) {
    MkeyTable::Attributes a;
    a.kind = MkeyKind::mw1;
    auto key = small.create(std::move(a));
    ASSERT_TRUE(key);
    EXPECT_TRUE(keys.insert(*key).second);
  }
  EXPECT_EQ(small.create({}).error(), KH_ST_NOMEM);
  ASSERT_TRUE(small.destroy(*keys.begin()));
  EXPECT_TRUE(small.create({}));

  MemoryBudget tight(3 * sizeof(Mkey));
  MkeyTable poor(host, tight, 100);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(poor.create({}));
  EXPECT_EQ(poor.create({}).error(), KH_ST_NOMEM);
}

TEST_F(MkeyTest, MemoryThatTheGuestTookAwayIsNotFound) {
  uint32_t key = region(all_access);
  host.unmap(memory, KH_PAGE_SIZE);
  auto cursor = table.local(key, start, 8, true, who);
  ASSERT_TRUE(cursor);
  EXPECT_FALSE(cursor->next(8));
}

// --- Windows ----------------------------------------------------------------------------------

TEST_F(MkeyTest, AWindowReachesItsOwnRangeWithItsOwnRights) {
  uint32_t mr = region(all_access);
  for (MkeyKind kind : {MkeyKind::mw1, MkeyKind::mw2}) {
    uint32_t key = bound(kind, mr, KH_ACCESS_REMOTE_WRITE, start + 1000, 100);
    auto cursor = table.remote(key, start + 1010, 90, KH_ACCESS_REMOTE_WRITE, who);
    ASSERT_TRUE(cursor);
    EXPECT_EQ(cursor->next(90).host, memory + 100 + 1010);
    EXPECT_EQ(remote(key, start + 1000, 101, KH_ACCESS_REMOTE_WRITE),
              KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
    EXPECT_EQ(remote(key, start + 999, 1, KH_ACCESS_REMOTE_WRITE),
              KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
    EXPECT_EQ(remote(key, start + 1000, 1, KH_ACCESS_REMOTE_READ),
              KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  }
  EXPECT_EQ(table.query(mr)->windows, 2u);
}

TEST_F(MkeyTest, AZeroBasedWindowTakesOffsets) {
  uint32_t mr = region(all_access);
  uint32_t key =
      bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ | KH_ACCESS_ZERO_BASED, start + 1000, 100);
  auto cursor = table.remote(key, 7, 3, KH_ACCESS_REMOTE_READ, who);
  ASSERT_TRUE(cursor);
  EXPECT_EQ(cursor->next(3).host, memory + 100 + 1007);
  EXPECT_EQ(remote(key, 98, 3, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
  EXPECT_EQ(remote(key, start + 1000, 1, KH_ACCESS_REMOTE_READ),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(MkeyTest, AWindowIsNeverALocalKey) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(local(key, start, 8), KH_SYN_LOCAL_KEY | KH_SYN_KEY_KIND);
}

TEST_F(MkeyTest, AnUnboundWindowReachesNothing) {
  for (MkeyKind kind : {MkeyKind::mw1, MkeyKind::mw2})
    EXPECT_EQ(remote(bare(kind), 0, 1, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_FREE);
}

TEST_F(MkeyTest, Type1BindsAgainAndTheFormerKeyIsStale) {
  uint32_t mr = region(all_access);
  uint32_t first = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  kh_wqe_bind request = bind_request(first, mr, KH_ACCESS_REMOTE_READ, start, 16);
  ASSERT_EQ(bind(request), 0u);
  EXPECT_EQ(table.query(mr)->windows, 1u);
  EXPECT_EQ(remote(first, start, 1, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_STALE);
  EXPECT_EQ(remote(request.new_key, start, 16, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(remote(request.new_key, start, 17, KH_ACCESS_REMOTE_READ),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
  EXPECT_EQ(bind(bind_request(first, mr, 0)), uint32_t{KH_SYN_BIND_STALE});
}

TEST_F(MkeyTest, Type1BindOfZeroBytesUnbindsAndNeedsNoRegion) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  kh_wqe_bind unbind = bind_request(key, 0, 0, 0, 0);
  ASSERT_EQ(bind(unbind), 0u);
  EXPECT_EQ(table.query(mr)->windows, 0u);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_STALE);
  EXPECT_EQ(remote(unbind.new_key, start, 1, KH_ACCESS_REMOTE_READ),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_FREE);
  EXPECT_TRUE(table.destroy(mr));
}

TEST_F(MkeyTest, Type1IsUsableByEveryQueuePairOfThePd) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ, {.pdn = pd, .qpn = 99}), 0u);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ, {.pdn = other_pd, .qpn = 10}),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_PD);
}

TEST_F(MkeyTest, Type2IsUsableByItsQueuePairOnlyAndBindsOnce) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw2, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(table.query(key)->bound_qpn, who.qpn);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ, {.pdn = pd, .qpn = 99}),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_QP);
  EXPECT_EQ(bind(bind_request(key, mr, KH_ACCESS_REMOTE_READ)), uint32_t{KH_SYN_BIND_BOUND});
}

TEST_F(MkeyTest, Type2TakesAnyVariantOfTheConsumer) {
  uint32_t mr = region(all_access);
  uint32_t window = bare(MkeyKind::mw2);
  kh_wqe_bind request = bind_request(window, mr, KH_ACCESS_REMOTE_READ);
  request.new_key = (window & ~0xffu) | 0x5a;
  ASSERT_EQ(bind(request), 0u);
  EXPECT_EQ(remote(request.new_key, start, 1, KH_ACCESS_REMOTE_READ), 0u);
}

TEST_F(MkeyTest, EachRuleOfABindIsChecked) {
  uint32_t mr = region(all_access);
  struct Row {
    const char* what;
    uint32_t syndrome;
    std::function<void(kh_wqe_bind&)> change;
    MkeyKind kind = MkeyKind::mw1;
  };
  uint32_t no_bind = region(KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE);
  uint32_t no_local_write = region(KH_ACCESS_MW_BIND | KH_ACCESS_REMOTE_READ);
  uint32_t zero_based = region(all_access | KH_ACCESS_ZERO_BASED, pd, 0);
  uint32_t foreign = region(all_access, other_pd);
  uint32_t other_window = bound(MkeyKind::mw1, mr, 0);
  uint32_t foreign_window = bare(MkeyKind::mw1, other_pd);
  uint32_t phys = bare(MkeyKind::phys, pd, all_access);
  uint32_t unfilled = bare(MkeyKind::free, pd, all_access);
  constexpr uint32_t b = KH_SYN_BIND;
  const Row rows[] = {
      {"no window", KH_SYN_BIND_KIND, [&](auto& r) { r.mw_key = mr; }},
      {"no such index", KH_SYN_BIND_KIND, [](auto& r) { r.mw_key = 0xffffff00; }},
      {"the reserved key", KH_SYN_BIND_KIND, [](auto& r) { r.mw_key = 1; }},
      {"a stale window", KH_SYN_BIND_STALE, [](auto& r) { r.mw_key ^= 0x80; }},
      {"a window of another PD", KH_SYN_BIND_PD,
       [&](auto& r) {
         r.mw_key = foreign_window;
         r.new_key = foreign_window + 1;
       }},
      {"a new key of another index", KH_SYN_BIND_NEW_KEY, [](auto& r) { r.new_key ^= 0x100; }},
      {"type 1 with a variant of one's own", KH_SYN_BIND_NEW_KEY, [](auto& r) { r.new_key ^= 4; }},
      {"type 2 with a new key of another index", KH_SYN_BIND_NEW_KEY,
       [](auto& r) { r.new_key ^= 0x100; }, MkeyKind::mw2},
      {"type 2 of zero bytes", KH_SYN_BIND_LENGTH, [](auto& r) { r.length = 0; }, MkeyKind::mw2},
      {"unknown rights", KH_SYN_BIND_ACCESS, [](auto& r) { r.access |= 0x40; }},
      {"MW_BIND as a right", KH_SYN_BIND_ACCESS, [](auto& r) { r.access |= KH_ACCESS_MW_BIND; }},
      {"unknown rights, type 1 of zero bytes", KH_SYN_BIND_ACCESS,
       [](auto& r) {
         r.access = 0x40;
         r.length = 0;
       }},
      {"no such region", b | KH_SYN_KEY_NONE, [](auto& r) { r.mr_key = 0xabcdef00; }},
      {"a stale region", b | KH_SYN_KEY_STALE, [](auto& r) { r.mr_key ^= 1; }},
      {"an unfilled region", b | KH_SYN_KEY_FREE, [&](auto& r) { r.mr_key = unfilled; }},
      {"a region of another PD", b | KH_SYN_KEY_PD, [&](auto& r) { r.mr_key = foreign; }},
      {"a kernel's region", b | KH_SYN_KEY_KIND, [&](auto& r) { r.mr_key = phys; }},
      {"the reserved key as region", KH_SYN_BIND_REGION, [](auto& r) { r.mr_key = 1; }},
      {"a window as region", KH_SYN_BIND_REGION, [&](auto& r) { r.mr_key = other_window; }},
      {"a region without MW_BIND", KH_SYN_BIND_REGION, [&](auto& r) { r.mr_key = no_bind; }},
      {"a zero-based region", KH_SYN_BIND_REGION,
       [&](auto& r) {
         r.mr_key = zero_based;
         r.addr = 0;
       }},
      {"remote write without local write", KH_SYN_BIND_ACCESS,
       [&](auto& r) { r.mr_key = no_local_write; }},
      {"remote atomic without local write", KH_SYN_BIND_ACCESS,
       [&](auto& r) {
         r.mr_key = no_local_write;
         r.access = KH_ACCESS_REMOTE_ATOMIC;
       }},
      {"a range before the region", KH_SYN_BIND_RANGE, [](auto& r) { r.addr -= 1; }},
      {"a range behind the region", KH_SYN_BIND_RANGE, [](auto& r) { r.length += 1; }},
      {"a range that wraps", KH_SYN_BIND_RANGE, [](auto& r) { r.length = ~uint64_t{0}; }},
  };
  for (const Row& row : rows) {
    uint32_t window = bare(row.kind);
    kh_wqe_bind request = bind_request(window, mr, KH_ACCESS_REMOTE_WRITE);
    row.change(request);
    EXPECT_EQ(bind(request), row.syndrome) << row.what;
    // Nothing has changed.
    EXPECT_EQ(table.query(window)->key, window) << row.what;
    EXPECT_FALSE(table.query(window)->valid) << row.what;
    EXPECT_EQ(windows.first, 0u) << row.what;
  }
  EXPECT_EQ(table.query(mr)->windows, 1u);
  // What looks like these, and is well.
  uint32_t window = bare(MkeyKind::mw2);
  EXPECT_EQ(
      bind(bind_request(window, no_local_write, KH_ACCESS_REMOTE_READ | KH_ACCESS_LOCAL_WRITE)),
      0u);
}

TEST_F(MkeyTest, ARefusedRebindLeavesTheOldBinding) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(bind(bind_request(key, mr, KH_ACCESS_REMOTE_READ, start, length + 1)),
            uint32_t{KH_SYN_BIND_RANGE});
  EXPECT_EQ(remote(key, start, length, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(table.query(mr)->windows, 1u);
}

TEST_F(MkeyTest, ARegionStaysWhileWindowsAreBoundToIt) {
  uint32_t mr = region(all_access);
  uint32_t one = bound(MkeyKind::mw1, mr, 0);
  uint32_t two = bound(MkeyKind::mw2, mr, 0);
  EXPECT_EQ(table.destroy(mr).error(), KH_ST_BUSY);
  EXPECT_EQ(table.modify(mr, KH_MKEY_MOD_ACCESS, {}).error(), KH_ST_BUSY);
  EXPECT_TRUE(table.destroy(one));  // a bound window may go
  EXPECT_EQ(table.destroy(mr).error(), KH_ST_BUSY);
  EXPECT_EQ(invalidate(two, who), 0u);
  EXPECT_TRUE(table.destroy(mr));
}

TEST_F(MkeyTest, TheDriverNamesWindowsAndFreeKeysByTheirIndexAlone) {
  uint32_t mr = region(all_access);
  uint32_t window = bare(MkeyKind::mw1);
  ASSERT_EQ(bind(bind_request(window, mr, 0)), 0u);
  // The driver still knows it by its first key.
  ASSERT_NE(table.query(window), nullptr);
  EXPECT_EQ(table.query(window)->key, window + 1);
  EXPECT_TRUE(table.destroy(window));
  EXPECT_TRUE(table.destroy(bare(MkeyKind::free) ^ 1));
  EXPECT_EQ(table.destroy(mr ^ 1).error(), KH_ST_NOENT);
  // To ask, the index is enough for every kind.
  EXPECT_EQ(table.query(mr ^ 1)->key, mr);
}

TEST_F(MkeyTest, TheRangeIsLookedAtBeforeTheRights) {
  uint32_t key = region(0);
  EXPECT_EQ(local(key, start, length + 1, true), KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
  EXPECT_EQ(remote(key, start, length + 1, KH_ACCESS_REMOTE_READ),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(MkeyTest, InvalidateFreesType2WindowsOfThisQueuePairOnly) {
  uint32_t mr = region(all_access);
  uint32_t key = bound(MkeyKind::mw2, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(invalidate(key, {.pdn = pd, .qpn = 99}), uint32_t{KH_SYN_INV_QP});
  EXPECT_EQ(invalidate(key, {.pdn = other_pd, .qpn = who.qpn}), uint32_t{KH_SYN_INV_PD});
  EXPECT_EQ(invalidate(key ^ 1, who), uint32_t{KH_SYN_INV_KEY});
  EXPECT_EQ(invalidate(0xffffff00, who), uint32_t{KH_SYN_INV_KEY});
  EXPECT_EQ(invalidate(mr, who), uint32_t{KH_SYN_INV_KIND});
  uint32_t type1 = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  EXPECT_EQ(invalidate(type1, who), uint32_t{KH_SYN_INV_KIND});
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(invalidate(key, who), 0u);
  EXPECT_EQ(remote(key, start, 1, KH_ACCESS_REMOTE_READ), KH_SYN_REMOTE_KEY | KH_SYN_KEY_FREE);
  EXPECT_EQ(invalidate(key, who), 0u);
  // It may be bound anew, from the key it has now.
  EXPECT_EQ(bind(bind_request(key, mr, KH_ACCESS_REMOTE_READ)), 0u);
}

TEST_F(MkeyTest, ADyingQueuePairFreesItsType2Windows) {
  uint32_t mr = region(all_access);
  std::vector<uint32_t> keys;
  for (int i = 0; i < 5; ++i)
    keys.push_back(bound(MkeyKind::mw2, mr, KH_ACCESS_REMOTE_READ));
  uint32_t type1 = bound(MkeyKind::mw1, mr, KH_ACCESS_REMOTE_READ);
  WindowList others;
  uint32_t window = bare(MkeyKind::mw2);
  kh_wqe_bind request = bind_request(window, mr, KH_ACCESS_REMOTE_READ);
  KeyUser other{.pdn = pd, .qpn = 11};
  ASSERT_TRUE(table.bind(request, other, others));
  // From the middle, the front and the back of the list.
  EXPECT_EQ(invalidate(keys[2], who), 0u);
  EXPECT_TRUE(table.destroy(keys[4]));
  EXPECT_TRUE(table.destroy(keys[0]));
  table.release(windows);
  EXPECT_EQ(windows.first, 0u);
  for (int i : {1, 3})
    EXPECT_EQ(remote(keys[i], start, 1, KH_ACCESS_REMOTE_READ),
              KH_SYN_REMOTE_KEY | KH_SYN_KEY_FREE);
  EXPECT_EQ(remote(type1, start, 1, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(remote(request.new_key, start, 1, KH_ACCESS_REMOTE_READ, other), 0u);
  EXPECT_EQ(table.query(mr)->windows, 2u);
  table.release(others);
  EXPECT_EQ(table.query(mr)->windows, 1u);
}

TEST_F(MkeyTest, ARegionWithOtherMemoryOrPdHasANewKeyAndWithOtherRightsTheSame) {
  uint32_t mr = region(all_access);
  MkeyTable::Attributes a;
  a.start = 0x9000;
  a.length = 10;
  a.offset = 0;
  a.pages = PageList(host, host.iova(memory), KH_PAGE_SIZE);
  auto key = table.modify(mr, KH_MKEY_MOD_TRANSLATION, std::move(a));
  ASSERT_TRUE(key);
  EXPECT_EQ(local(mr, start, 1), KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
  EXPECT_EQ(local(*key, 0x9000, 10, true), 0u);
  EXPECT_EQ(local(*key, start, 1), KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
  a = {};
  a.access = KH_ACCESS_REMOTE_READ;
  EXPECT_EQ(*table.modify(*key, KH_MKEY_MOD_ACCESS, std::move(a)), *key);
  EXPECT_EQ(remote(*key, 0x9000, 10, KH_ACCESS_REMOTE_READ), 0u);
  EXPECT_EQ(remote(*key, 0x9000, 10, KH_ACCESS_REMOTE_WRITE),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_RIGHTS);
  a = {};
  a.pdn = other_pd;
  EXPECT_EQ(*table.modify(*key, KH_MKEY_MOD_PD, std::move(a)), *key + 1);
  EXPECT_EQ(table.modify(bare(MkeyKind::mw1), KH_MKEY_MOD_ACCESS, {}).error(), KH_ST_INVAL);
}

}  // namespace
}  // namespace keyhole::test
