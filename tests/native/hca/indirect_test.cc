// SPDX-License-Identifier: BSD-2-Clause
//
// Indirect keys and KLM lists as the table and the admin commands have them: creation, memory,
// query, destruction. What their bytes are is in ../model and ../transport.

#include <gtest/gtest.h>

#include "harness.h"
#include "hca/mkey_table.h"
#include "hca/names.h"

namespace keyhole::test {
namespace {

class IndirectTest : public ::testing::Test {
 protected:
  FakeHost host;
  MemoryBudget budget{64 << 20};
  MkeyTable table{host, budget, 1 << 20};
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  KeyUser who{.pdn = 1, .qpn = 10, .kernel = false};

  uint32_t region(uint32_t access = KH_ACCESS_LOCAL_WRITE) {
    MkeyTable::Attributes a;
    a.pdn = 1;
    a.access = access;
    a.start = 0x1000;
    a.length = 4 * KH_PAGE_SIZE;
    a.pages = PageList(host, host.iova(memory), 4 * KH_PAGE_SIZE);
    return *table.create(std::move(a));
  }
  std::expected<uint32_t, uint8_t> indirect(uint32_t max_entries, uint32_t access = 0) {
    MkeyTable::Attributes a;
    a.kind = MkeyKind::indirect;
    a.pdn = 1;
    a.access = access;
    a.max_entries = max_entries;
    return table.create(std::move(a));
  }
  std::expected<void, uint32_t> fill(uint32_t key, const std::vector<kh_klm>& entries,
                                     uint32_t access = KH_ACCESS_LOCAL_WRITE) {
    kh_wqe_umr request{};
    request.key = key;
    request.access = access;
    request.num_entries = static_cast<uint32_t>(entries.size());
    return table.fill(request, reinterpret_cast<const std::byte*>(entries.data()), who);
  }
};

TEST_F(IndirectTest, IsFreeUntilItIsFilled) {
  uint32_t key = *indirect(4);
  EXPECT_EQ(table.local(key, 0, 1, false, who).error(), KH_SYN_LOCAL_KEY | KH_SYN_KEY_FREE);
  EXPECT_EQ(table.remote(key, 0, 1, KH_ACCESS_REMOTE_READ, who).error(),
            KH_SYN_REMOTE_KEY | KH_SYN_KEY_FREE);
}

TEST_F(IndirectTest, ChargesWhatItsFillsCanNeedAndGivesItBack) {
  const uint64_t before = budget.used();
  uint32_t key = *indirect(KH_MAX_INDIRECT);
  const uint64_t charged = budget.used() - before;
  EXPECT_GE(charged, 2 * EntryTable::bytes_each * KH_MAX_INDIRECT);
  uint32_t under = region();
  const uint64_t now = budget.used();
  std::vector<kh_klm> entries(64, kh_klm{0x1000, 1, under});
  ASSERT_TRUE(fill(key, entries));
  EXPECT_EQ(budget.used(), now);
  ASSERT_TRUE(table.destroy(under));
  ASSERT_TRUE(table.destroy(key));
  EXPECT_EQ(budget.used(), before);
}

TEST_F(IndirectTest, AtTheBudgetCreationFailsAndLeavesNoTrace) {
  std::vector<uint32_t> keys;
  uint64_t used;
  for (;;) {
    used = budget.used();
    auto key = indirect(KH_MAX_INDIRECT);
    if (!key) {
      EXPECT_EQ(key.error(), KH_ST_NOMEM);
      break;
    }
    keys.push_back(*key);
    ASSERT_LT(keys.size(), 1000u);
  }
  EXPECT_GT(keys.size(), 1u);
  EXPECT_EQ(budget.used(), used);
  EXPECT_EQ(table.count(), keys.size());
}

TEST_F(IndirectTest, TheVariantStaysThroughFillsAndMovesAtDestruction) {
  uint32_t key = *indirect(2);
  uint32_t under = region();
  ASSERT_TRUE(fill(key, {{0x1000, 4, under}}));
  ASSERT_TRUE(fill(key, {{0x1004, 4, under}}));
  EXPECT_EQ(table.query(key)->key, key);
  ASSERT_TRUE(table.unfill(key, who));
  EXPECT_EQ(table.query(key)->key, key);
}

TEST_F(IndirectTest, MwBindOfItsCreationOutlivesEachFill) {
  uint32_t under = region();
  uint32_t key = *indirect(2, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_MW_BIND);
  ASSERT_TRUE(fill(key, {{0x1000, 4, under}}, 0));
  EXPECT_EQ(table.query(key)->access, uint32_t{KH_ACCESS_MW_BIND});
}

TEST_F(IndirectTest, ANewCursorEndsAnOlderOneOfAnIndirectKey) {
  uint32_t under = region();
  uint32_t key = *indirect(2);
  ASSERT_TRUE(fill(key, {{0x1000, 64, under}}));
  auto first = table.local(key, 0, 64, false, who);
  auto second = table.local(key, 0, 32, false, who);
  EXPECT_TRUE(second->next(8));
  EXPECT_FALSE(first->next(8));
}

TEST_F(IndirectTest, MemoryThatTheGuestTookAwayIsSaidOfItsEntry) {
  uint32_t under = region();
  uint32_t key = *indirect(2);
  ASSERT_TRUE(fill(key, {{0x1000, 64, under}, {0x1000 + KH_PAGE_SIZE, 64, under}}));
  host.unmap(memory + KH_PAGE_SIZE, KH_PAGE_SIZE);
  auto cursor = table.local(key, 0, 128, false, who);
  ASSERT_TRUE(cursor);
  EXPECT_TRUE(cursor->next(64));
  EXPECT_FALSE(cursor->next(64));
  EXPECT_EQ(cursor->why(KH_SYN_LOCAL_KEY), KH_SYN_LOCAL_ENTRY | KH_SYN_KEY_MEMORY | 1u << 16);
}

TEST(IndirectNames, AnEntryErrorIsASentence) {
  EXPECT_EQ(syndrome_name(KH_SYN_UMR_ENTRY | KH_SYN_KEY_RANGE | 7u << 16),
            "UMR_ENTRY RANGE of entry 7");
  EXPECT_EQ(syndrome_name(KH_SYN_UMR_BUSY), "UMR_BUSY");
}

class IndirectAdmin : public ::testing::Test {
 protected:
  Rig rig{{.stations = 1}};
  FakeHost& host = rig.host(0);
  FakeDriver& driver = rig.driver(0);
  uint32_t pd = driver.create_pd();
  static constexpr size_t body = sizeof(kh_admin_hdr);
  using Body = kh_cmd_create_mkey;

  void expect(const kh_admin_cmd& command, uint8_t status, size_t syndrome) {
    kh_admin_cqe cqe = driver.command(command);
    EXPECT_EQ(int(cqe.status), int(status));
    EXPECT_EQ(cqe.syndrome, syndrome);
  }
};

TEST_F(IndirectAdmin, FieldsOfAnIndirectKeyAreChecked) {
  auto key = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.kind = KH_MKEY_INDIRECT;
    command.create_mkey.pdn = pd;
    command.create_mkey.max_entries = 1;
    change(command.create_mkey);
    return command;
  };
  expect(key([](Body&) {}), KH_ST_OK, 0);
  expect(key([](Body& b) { b.max_entries = KH_MAX_INDIRECT; }), KH_ST_OK, 0);
  expect(key([](Body& b) { b.max_entries = 0; }), KH_ST_INVAL, body + offsetof(Body, max_entries));
  expect(key([](Body& b) { b.max_entries = KH_MAX_INDIRECT + 1; }), KH_ST_INVAL,
         body + offsetof(Body, max_entries));
  expect(key([](Body& b) { b.access = KH_ACCESS_ZERO_BASED; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(key([](Body& b) { b.access = KH_ACCESS_FLUSH_GLOBAL; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(key([](Body& b) { b.start = 1; }), KH_ST_INVAL, body + offsetof(Body, start));
  expect(key([](Body& b) { b.length = 1; }), KH_ST_INVAL, body + offsetof(Body, length));
  expect(key([](Body& b) { b.offset = 8; }), KH_ST_INVAL, body + offsetof(Body, offset));
  expect(key([](Body& b) { b.pages.npages = 1; }), KH_ST_INVAL, body + offsetof(Body, pages));
  expect(key([](Body& b) { b.pdn = 4711; }), KH_ST_NOENT, body + offsetof(Body, pdn));
}

TEST_F(IndirectAdmin, FieldsOfAListAreChecked) {
  std::byte* memory = host.allocate(2 * KH_PAGE_SIZE);
  auto list = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.kind = KH_MKEY_KLM_LIST;
    command.create_mkey.pdn = pd;
    command.create_mkey.length = KH_PAGE_SIZE;
    command.create_mkey.pages = host.pages(memory, 2 * KH_PAGE_SIZE);
    change(command.create_mkey);
    return command;
  };
  expect(list([](Body&) {}), KH_ST_OK, 0);
  expect(list([](Body& b) { b.offset = 16; }), KH_ST_OK, 0);
  expect(list([](Body& b) { b.offset = 4; }), KH_ST_INVAL, body + offsetof(Body, offset));
  expect(list([](Body& b) { b.access = 1; }), KH_ST_INVAL, body + offsetof(Body, access));
  expect(list([](Body& b) { b.max_entries = 1; }), KH_ST_INVAL,
         body + offsetof(Body, max_entries));
  expect(list([](Body& b) { b.length = 0; }), KH_ST_INVAL, body + offsetof(Body, length));
  expect(list([](Body& b) { b.length = 2 * KH_PAGE_SIZE + 1; }), KH_ST_INVAL,
         body + offsetof(Body, length));
}

TEST_F(IndirectAdmin, AFreeKeyIsQueriedAsSuch) {
  uint32_t key = driver.create_indirect(pd, 77, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_MW_BIND);
  kh_mkey_attr attr = driver.query_mkey(key);
  EXPECT_EQ(attr.kind, KH_MKEY_INDIRECT);
  EXPECT_EQ(attr.valid, 0);
  EXPECT_EQ(attr.key, key);
  EXPECT_EQ(attr.max_entries, 77u);
  EXPECT_EQ(attr.num_entries, 0u);
  EXPECT_EQ(attr.depth, 0);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_MKEY, key ^ 1), KH_ST_NOENT);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_MKEY, key), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_OK);
}

}  // namespace
}  // namespace keyhole::test
