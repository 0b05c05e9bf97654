// SPDX-License-Identifier: BSD-2-Clause
//
// Indirect keys in use: filled, refilled and invalidated by requests, and then taken where any other
// key is, by every operation and on both sides. Expected bytes are computed here, entry by entry.

#include <cstring>

#include "hca/indirect.h"
#include "hca/transport/sge.h"
#include "umr_work.h"

namespace keyhole::test {
namespace {

class Umr : public UmrTest {};

// Entries of odd sizes across page borders, none beside another.
const std::vector<Piece> kOdd = {{100'000, 1},  {4095, 2},     {20'000, 4097}, {8191, 1},
                                 {50'001, 333}, {12'288, 4096}, {30'000, 7}};

TEST_F(Umr, AWriteGathersFromAnIndirectKeyByteForByte) {
  uint32_t key = filled(a, kOdd);
  const uint32_t total = size_of(kOdd);
  fill_region(a, 3);
  for (auto [from, length] : {std::pair<uint32_t, uint32_t>{0, total}, {1, 2}, {2, total - 2},
                              {total - 1, 1}, {4100, 5}, {0, 0}, {3, 4097}}) {
    std::memset(b.bytes(), 0, 16384);
    Work work = write(a, 0, length, b, 64);
    work.sge = {{from, length, key}};
    a.post(work);
    EXPECT_DONE(sent(a), 1);
    EXPECT_EQ(taken(b, 64, length), of(a, kOdd, from, length)) << from << " " << length;
    EXPECT_EQ(b.bytes(64)[length], std::byte{0});
  }
}

TEST_F(Umr, AWriteScattersToAnIndirectKeyByteForByte) {
  uint32_t key = filled(b, kOdd);
  const uint32_t total = size_of(kOdd);
  for (auto [to, length] : {std::pair<uint32_t, uint32_t>{0, total}, {1, 2}, {2, total - 2},
                            {total - 1, 1}, {4100, 5}, {0, 0}}) {
    fill_region(a, 5);
    std::memset(b.bytes(), 0xee, b.region.size);
    Work work = write(a, 200, length, b, 0);
    work.remote_addr = to;
    work.rkey = key;
    a.post(work);
    EXPECT_DONE(sent(a), 1);
    EXPECT_EQ(of(b, kOdd, to, length), taken(a, 200, length));
    expect_only(b, kOdd, to, length);
  }
}

TEST_F(Umr, AReadAnswersFromOneAndStoresIntoAnother) {
  const std::vector<Piece> mine = {{9'000, 1000}, {70'003, 3000}, {1, 5000}};
  uint32_t theirs = filled(b, kOdd);
  uint32_t here = filled(a, mine);
  const uint32_t total = size_of(kOdd);
  fill_region(b, 9);
  Work work = read(a, 0, total, b, 0);
  work.sge = {{0, total, here}};
  work.rkey = theirs;
  work.remote_addr = 0;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(of(a, mine, 0, total), of(b, kOdd, 0, total));
}

TEST_F(Umr, ASendFillsAReceiveOfIndirectKeys) {
  const std::vector<Piece> mine = {{9'000, 1000}, {70'003, 3000}, {1, 5000}};
  uint32_t from = filled(a, kOdd);
  uint32_t to = filled(b, mine);
  fill_region(a, 7);
  kh_sge sge[] = {{10, 4000, to}, {5000, 4000, to}};
  b.qp.post_receive(4, sge);
  Work work = send(a, 0, 0);
  work.sge = {{5, 7000, from}, {0, 1, from}};
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(received(b).byte_len, 7001u);
  auto got = of(b, mine, 10, 4000);
  auto rest = of(b, mine, 5000, 3001);
  got.insert(got.end(), rest.begin(), rest.end());
  auto expected = of(a, kOdd, 5, 7000);
  expected.push_back(of(a, kOdd, 0, 1)[0]);
  EXPECT_EQ(got, expected);
}

TEST_F(Umr, StridedBlocksInterleaveTheirSources) {
  // Three sources, 500 rounds.
  std::vector<kh_stride> entries = {entry(a, 0, 8, 24), entry(a, 100'001, 3, 5),
                                    entry(a, 300'000, 64, 64)};
  uint32_t key = a.driver->create_indirect(a.pdn, 3);
  fill_strided(a, key, entries, 500);
  fill_region(a, 1);
  std::vector<std::byte> expected;
  for (int round = 0; round < 500; ++round) {
    for (const kh_stride& e : entries) {
      const std::byte* at = a.bytes(e.addr - a.region.start + round * e.stride);
      expected.insert(expected.end(), at, at + e.length);
    }
  }
  ASSERT_EQ(expected.size(), 37'500u);
  for (auto [from, length] : {std::pair<uint32_t, uint32_t>{0, 37'500}, {7, 2}, {74, 76},
                              {37'499, 1}, {20'000, 17'500}}) {
    Work work = write(a, 0, length, b, 0);
    work.sge = {{from, length, key}};
    a.post(work);
    EXPECT_DONE(sent(a), 1);
    EXPECT_EQ(taken(b, 0, length), std::vector(expected.begin() + from,
                                               expected.begin() + from + length));
  }
  kh_mkey_attr attr = a.driver->query_mkey(key);
  EXPECT_EQ(attr.repeat_count, 500u);
  EXPECT_EQ(attr.num_entries, 3u);
  EXPECT_EQ(attr.length, 37'500u);
  EXPECT_EQ(attr.depth, 1);
}

TEST_F(Umr, ABlockThatRepeatsWithoutAStrideReadsTheSameBytesAgain) {
  uint32_t key = a.driver->create_indirect(a.pdn, 1);
  fill_strided(a, key, {entry(a, 64, 4, 0)}, 1000);
  fill_region(a, 1);
  Work work = write(a, 0, 4000, b, 0);
  work.sge = {{0, 4000, key}};
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  for (int i = 0; i < 4000; ++i)
    ASSERT_EQ(b.bytes()[i], a.bytes(64)[i % 4]);
}

TEST_F(Umr, KeysNestFourDeepAndNoDeeper) {
  fill_region(a, 1);
  uint32_t keys[5];
  keys[0] = filled(a, {{1000, 10}, {3000, 20}});
  for (int level = 1; level < 4; ++level) {
    keys[level] = a.driver->create_indirect(a.pdn, 4);
    fill(a, keys[level],
         {{5, 20, keys[level - 1]}, {a.region.start + level, 3, a.region.key},
          {0, 7, keys[level - 1]}});
    EXPECT_EQ(a.driver->query_mkey(keys[level]).depth, level + 1);
  }
  // 30 bytes each, beside those of the level below.
  auto bytes = of(a, {{1000, 10}, {3000, 20}}, 0, 30);
  for (int level = 1; level < 4; ++level) {
    std::vector<std::byte> outer(bytes.begin() + 5, bytes.begin() + 25);
    outer.insert(outer.end(), a.bytes(level), a.bytes(level) + 3);
    outer.insert(outer.end(), bytes.begin(), bytes.begin() + 7);
    bytes = outer;
  }
  Work work = write(a, 0, 30, b, 0);
  work.sge = {{0, 30, keys[3]}};
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(taken(b, 0, 30), bytes);

  keys[4] = a.driver->create_indirect(a.pdn, 4);
  a.post(fill_work(keys[4], {{a.region.start, 1, a.region.key}, {0, 1, keys[3]}}));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_ENTRY | KH_SYN_KEY_DEPTH | 1 << 16);
  EXPECT_EQ(a.driver->query_mkey(keys[4]).valid, 0);
}

TEST_F(Umr, AKeyIsNoEntryOfItself) {
  uint32_t key = filled(a, {{0, 100}});
  a.post(fill_work(key, {{0, 10, key}}));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_ENTRY | KH_SYN_KEY_DEPTH);
}

TEST_F(Umr, ACycleEndsInAnError) {
  uint32_t x = filled(a, {{0, 100}});
  uint32_t y = a.driver->create_indirect(a.pdn, 4);
  fill(a, y, {{0, 50, x}});
  fill(a, x, {{a.region.start, 4, a.region.key}, {0, 50, y}});
  // What comes before the cycle can still be reached.
  Work work = write(a, 0, 4, b, 0);
  work.sge = {{0, 4, x}};
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  work.sge = {{4, 1, x}};
  work.remote_addr = b.region.start;
  a.post(work);
  // y's first bytes are x's first bytes, which are memory.
  EXPECT_DONE(sent(a), 1);
  work.sge = {{8, 40, x}};
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_ENTRY | KH_SYN_KEY_DEPTH | 1 << 16);
}

TEST_F(Umr, AnEntryThatHasGoneFailsOnlyAccessesThatNeedIt) {
  TestRegion other = a.driver->create_region(a.pdn, 8192, KH_ACCESS_LOCAL_WRITE);
  uint32_t key = a.driver->create_indirect(a.pdn, 4);
  fill(a, key, {{a.region.start, 100, a.region.key},
                {a.region.start, 0, 12345},  // empty: not looked at, but it counts
                {other.start, 50, other.key},
                {a.region.start + 100, 100, a.region.key}});
  ASSERT_EQ(a.driver->destroy(KH_ADM_DESTROY_MKEY, other.key), KH_ST_OK);
  Work work = write(a, 0, 100, b, 0);
  for (auto from : {0, 150}) {
    work.sge = {{uint64_t(from), 100, key}};
    a.post(work);
    EXPECT_DONE(sent(a), 1);
  }
  work.sge = {{99, 2, key}};
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_ENTRY | KH_SYN_KEY_NONE | 2 << 16);
}

TEST_F(Umr, ARemoteEntryThatHasGoneIsARemoteAccessError) {
  TestRegion other = b.driver->create_region(b.pdn, 8192, KH_ACCESS_LOCAL_WRITE);
  uint32_t key = b.driver->create_indirect(b.pdn, 4);
  fill(b, key, {{b.region.start, 100, b.region.key}, {other.start, 50, other.key}});
  ASSERT_EQ(b.driver->destroy(KH_ADM_DESTROY_MKEY, other.key), KH_ST_OK);
  Work work = write(a, 0, 10, b, 0);
  work.rkey = key;
  work.remote_addr = 120;
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  auto eqe = event(b, KH_EV_QP_ACCESS_ERR);
  ASSERT_TRUE(eqe);
  EXPECT_EQ(uint32_t{eqe->data}, uint32_t{KH_SYN_REMOTE_ENTRY | KH_SYN_KEY_NONE | 1 << 16});
}

TEST_F(Umr, RightsAreThoseOfTheFill) {
  uint32_t key = b.driver->create_indirect(b.pdn, 1);
  struct Row {
    uint32_t access;
    bool write, read, atomic;
  };
  for (const Row& row : {Row{0, false, false, false},
                         Row{KH_ACCESS_REMOTE_READ, false, true, false},
                         Row{KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_WRITE, true, false, false},
                         Row{KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_ATOMIC, false, false, true}}) {
    for (int what = 0; what < 3; ++what) {
      make_pair_again();
      Work fill = fill_work(key, {{b.region.start, 64, b.region.key}}, row.access);
      key = b.driver->create_indirect(b.pdn, 1);
      fill.umr.key = key;
      fill.inline_data = klms({{b.region.start, 64, b.region.key}});
      b.post(fill);
      EXPECT_DONE(sent(b), 1);
      Work work = what == 0 ? write(a, 0, 8, b, 0) : read(a, 0, 8, b, 0);
      if (what == 2) work = fetch_add(a, 0, b, 0, 1);
      work.rkey = key;
      work.remote_addr = 0;
      a.post(work);
      bool allowed = what == 0 ? row.write : what == 1 ? row.read : row.atomic;
      EXPECT_EQ(int(sent(a).status), int(allowed ? KH_WC_SUCCESS : KH_WC_REM_ACCESS_ERR))
          << row.access << " " << what;
    }
  }
}

TEST_F(Umr, AFillThatIsRefusedSaysWhyAndChangesNothing) {
  struct Row {
    const char* what;
    std::function<void(Work&)> change;
    uint32_t syndrome;
  };
  const uint32_t entry_error = KH_SYN_UMR_ENTRY | 1 << 16;
  std::vector<Row> rows = {
      {"no key", [](Work& w) { w.umr.key = 0x7fff00; }, KH_SYN_UMR_KEY},
      {"stale", [](Work& w) { w.umr.key ^= 1; }, KH_SYN_UMR_KEY},
      {"a region", [&](Work& w) { w.umr.key = a.region.key; }, KH_SYN_UMR_KIND},
      {"another PD's", [&](Work& w) {
         w.umr.key = a.driver->create_indirect(a.driver->create_pd(), 4);
       }, KH_SYN_UMR_PD},
      {"none", [](Work& w) { w.umr.num_entries = 0; }, KH_SYN_UMR_COUNT},
      {"more than the key has", [](Work& w) {
         w.umr.num_entries = 5;
         w.inline_data.resize(5 * 16);
       }, KH_SYN_UMR_COUNT},
      {"more than the request has", [](Work& w) {
         w.umr.num_entries = 4;
         w.umr.repeat_count = 1;
         w.inline_data.resize(64);
       }, KH_SYN_UMR_COUNT},
      {"more than any request has", [](Work& w) {
         w.umr.num_entries = 65;
         w.inline_data.resize(65 * 16);
       }, KH_SYN_UMR_COUNT},
      {"access bits", [](Work& w) { w.umr.access |= 0x40; }, KH_SYN_UMR_ACCESS},
      {"FLUSH", [](Work& w) { w.umr.access |= KH_ACCESS_FLUSH_GLOBAL; }, KH_SYN_UMR_ACCESS},
      {"MW_BIND", [](Work& w) { w.umr.access |= KH_ACCESS_MW_BIND; }, KH_SYN_UMR_ACCESS},
      {"remote write without local", [](Work& w) { w.umr.access = KH_ACCESS_REMOTE_WRITE; },
       KH_SYN_UMR_ACCESS},
      {"zero based", [](Work& w) {
         w.umr.access |= KH_ACCESS_ZERO_BASED;
         w.umr.start = 1;
       }, KH_SYN_UMR_RANGE},
      {"wraps", [](Work& w) { w.umr.start = ~uint64_t{0} - 100; }, KH_SYN_UMR_RANGE},
      {"list with inline", [](Work& w) { w.umr.list_key = 5; }, KH_SYN_UMR_LIST},
      {"no list", [](Work& w) {
         w.flags &= ~KH_WQE_INLINE;
         w.inline_data.clear();
       }, KH_SYN_UMR_LIST},
      {"entry range", [&](Work& w) { second(w).length = 1 << 21; }, entry_error | KH_SYN_KEY_RANGE},
      {"entry wraps", [&](Work& w) { second(w).addr = ~uint64_t{0}; },
       entry_error | KH_SYN_KEY_RANGE},
      {"entry none", [&](Work& w) { second(w).lkey = 0x7fff00; }, entry_error | KH_SYN_KEY_NONE},
      {"entry stale", [&](Work& w) { second(w).lkey ^= 1; }, entry_error | KH_SYN_KEY_STALE},
      {"entry window", [&](Work& w) {
         second(w).lkey = a.driver->create_window(a.pdn, KH_MKEY_MW1);
       }, entry_error | KH_SYN_KEY_KIND},
      {"entry reserved", [&](Work& w) { second(w).lkey = MkeyTable::local_dma_lkey; },
       entry_error | KH_SYN_KEY_KIND},
      {"entry free", [&](Work& w) { second(w).lkey = a.driver->create_indirect(a.pdn, 1); },
       entry_error | KH_SYN_KEY_FREE},
      {"entry PD", [&](Work& w) {
         second(w).lkey =
             a.driver->create_region(a.driver->create_pd(), 8192, KH_ACCESS_LOCAL_WRITE).key;
       }, entry_error | KH_SYN_KEY_PD},
      {"entry read only", [&](Work& w) {
         TestRegion read_only = a.driver->create_region(a.pdn, 8192, 0);
         second(w) = {read_only.start, 10, read_only.key};
       }, entry_error | KH_SYN_KEY_RIGHTS},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    make_pair_again();
    fill_region(a, 2);
    uint32_t key = a.driver->create_indirect(a.pdn, 4);
    fill(a, key, entries_of(a, {{100, 60}, {300, 40}}));
    Work work = fill_work(key, {{a.region.start, 100, a.region.key},
                                {a.region.start + 500, 100, a.region.key}});
    row.change(work);
    const uint64_t errors = a.stat(KH_STAT_UMR_ERRORS);
    a.post(work);
    EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, row.syndrome);
    EXPECT_EQ(a.stat(KH_STAT_UMR_ERRORS), errors + 1);
    kh_mkey_attr attr = a.driver->query_mkey(key);
    EXPECT_EQ(attr.valid, 1);
    EXPECT_EQ(attr.length, 100u);
    EXPECT_EQ(attr.num_entries, 2u);
  }
}

TEST_F(Umr, AnEntryOfAStridedFillMustHoldInEveryRound) {
  uint32_t key = a.driver->create_indirect(a.pdn, 1);
  const uint64_t size = a.region.size;
  fill_strided(a, key, {entry(a, 0, 8, 1024)}, static_cast<uint32_t>(size / 1024));
  a.post(strided_work(key, {entry(a, 8, 1020, 1024)}, static_cast<uint32_t>(size / 1024)));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_ENTRY | KH_SYN_KEY_RANGE);
  make_pair_again();
  key = a.driver->create_indirect(a.pdn, 1);
  a.post(strided_work(key, {entry(a, 0, 8, ~uint64_t{0})}, 0xffffffff));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_ENTRY | KH_SYN_KEY_RANGE);
}

// Of a key of 2^64 - 1 bytes, the longest that there can be, every 64 bit range from its start on
// would seem to be a part.
TEST_F(Umr, AStridedEntryThatWrapsAroundIsRefusedOfTheLongestKeyToo) {
  auto key = [&] { return a.driver->create_indirect(a.pdn, 2); };
  const uint32_t byte = key(), all = key(), wraps = key();
  fill_strided(a, byte, {entry(a, 0, 1, 0)}, 0xffffffff);
  fill_strided(a, all, {{0, 0xffffffff, byte, 0}, {0, 2, byte, 0}}, 0xffffffff);
  ASSERT_EQ(a.driver->query_mkey(all).length, ~uint64_t{0});
  a.post(strided_work(wraps, {{0, 2, all, uint64_t{1} << 40}}, 0xffffffff));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_ENTRY | KH_SYN_KEY_RANGE);
}

TEST_F(Umr, OnlyReliableConnectionsFill) {
  EndOptions options;
  options.type = KH_QPT_UC;
  make_pair(options);
  a.post(fill_work(a.driver->create_indirect(a.pdn, 1), {{a.region.start, 1, a.region.key}}));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_OPCODE);
}

TEST_F(Umr, ARefillTakesEffectBetweenTheRequestsAroundIt) {
  fill_region(a, 4);
  uint32_t key = filled(a, {{0, 100'000}});
  Work before = write(a, 0, 100'000, b, 0, 1);
  before.sge = {{0, 100'000, key}};
  Work refill = fill_work(key, {{a.region.start + 200'000, 100'000, a.region.key}});
  refill.wr_id = 2;
  Work after = write(a, 0, 100'000, b, 100'000, 3);
  after.sge = {{0, 100'000, key}};
  a.post_unrung(before);
  a.post_unrung(refill);
  a.post_unrung(after);
  a.qp.ring();
  for (int i = 1; i <= 3; ++i)
    EXPECT_DONE(sent(a), i);
  EXPECT_EQ(taken(b, 0, 100'000), taken(a, 0, 100'000));
  EXPECT_EQ(taken(b, 100'000, 100'000), taken(a, 200'000, 100'000));
}

TEST_F(Umr, AFillWaitsForAReadIntoItsKey) {
  fill_region(b, 4);
  uint32_t key = filled(a, {{0, 700'000}});
  Work into = read(a, 0, 700'000, b, 0, 1);
  into.sge = {{0, 700'000, key}};
  a.post_unrung(into);
  Work refill = fill_work(key, {{a.region.start + 900'000, 10, a.region.key}});
  refill.wr_id = 2;
  a.post_unrung(refill);
  Work invalidate;
  invalidate.opcode = KH_OP_UMR_INV;
  invalidate.imm = key;
  invalidate.wr_id = 3;
  a.post_unrung(invalidate);
  a.qp.ring();
  for (int i = 1; i <= 3; ++i)
    EXPECT_DONE(sent(a), i);
  EXPECT_EQ(taken(a, 0, 700'000), taken(b, 0, 700'000));
  EXPECT_EQ(a.driver->query_mkey(key).valid, 0);
}

TEST_F(Umr, AnInvalidatedKeyReachesNothingAndCanBeFilledAgain) {
  uint32_t key = filled(a, {{0, 64}});
  Work invalidate;
  invalidate.opcode = KH_OP_UMR_INV;
  invalidate.wr_id = 1;
  invalidate.imm = key;
  a.post(invalidate);
  EXPECT_DONE(sent(a), 1);
  a.post(invalidate);
  EXPECT_DONE(sent(a), 1);
  fill(a, key, {{a.region.start, 64, a.region.key}});
  a.post(invalidate);
  EXPECT_DONE(sent(a), 1);
  Work work = write(a, 0, 8, b, 0);
  work.sge = {{0, 8, key}};
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_FREE);
}

TEST_F(Umr, AListOf65536EntriesIsFilledInOneRequest) {
  constexpr uint32_t n = KH_MAX_INDIRECT;
  const size_t bytes = n * sizeof(kh_klm);
  auto* list = reinterpret_cast<kh_klm*>(a.host->allocate(bytes));
  for (uint32_t i = 0; i < n; ++i)
    list[i] = {a.region.start + (i * 7919u) % 1'000'000, 1 + i % 5, a.region.key};
  uint32_t list_key = a.driver->create_klm_list(a.pdn, reinterpret_cast<std::byte*>(list), bytes);
  uint32_t key = a.driver->create_indirect(a.pdn, n);
  fill_region(a, 1);
  a.post_unrung(list_work(key, list_key, n));
  Work work = write(a, 0, 150'000, b, 0, 2);
  work.sge = {{12'345, 150'000, key}};
  a.post_unrung(work);
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(a), 2);
  std::vector<std::byte> all;
  for (uint32_t i = 0; i < n; ++i) {
    const std::byte* at = a.bytes(list[i].addr - a.region.start);
    all.insert(all.end(), at, at + list[i].length);
  }
  EXPECT_EQ(taken(b, 0, 150'000), std::vector(all.begin() + 12'345, all.begin() + 162'345));
  EXPECT_EQ(a.stat(KH_STAT_UMR_FILLS), 1u);

  // An error near the end says which entry it is, and leaves what was there.
  list[65'000].lkey ^= 1;
  a.post(list_work(key, list_key, n));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR,
               KH_SYN_UMR_ENTRY | KH_SYN_KEY_STALE | 65'000u << 16);
  EXPECT_EQ(a.driver->query_mkey(key).length, all.size());
}

TEST_F(Umr, TwoQueuesThatFillOneKeyFromLongListsTakeTurns) {
  constexpr uint32_t n = 40'000;
  const size_t bytes = n * sizeof(kh_klm) / 4096 * 4096 + 4096;
  End c, d;
  EndOptions same;
  same.pdn = a.pdn;
  c = make_end(0, same);
  d = make_end(1);
  connect(c, d);
  auto* list = reinterpret_cast<kh_klm*>(a.host->allocate(bytes));
  for (uint32_t i = 0; i < n; ++i)
    list[i] = {a.region.start, 1, a.region.key};
  uint32_t list_key = a.driver->create_klm_list(a.pdn, reinterpret_cast<std::byte*>(list), bytes);
  uint32_t key = a.driver->create_indirect(a.pdn, n);
  a.post_unrung(list_work(key, list_key, n));
  c.post_unrung(list_work(key, list_key, n - 1));
  a.qp.ring();
  c.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(c), 1);
  const uint64_t length = a.driver->query_mkey(key).length;
  EXPECT_TRUE(length == n || length == n - 1);
}

TEST_F(Umr, AListIsCheckedBeforeItIsRead) {
  std::byte* memory = a.host->allocate(8192);
  struct Row {
    const char* what;
    std::function<void(Work&)> change;
  };
  uint32_t list_key = 0;
  const std::vector<Row> rows = {
      {"offset", [](Work& w) { w.umr.list_offset = 4; }},
      {"short", [](Work& w) { w.umr.list_offset = 8192 - 16 * 99; }},
      {"far", [](Work& w) { w.umr.list_offset = ~uint64_t{0} - 7; }},
      {"a region", [&](Work& w) { w.umr.list_key = a.region.key; }},
      {"another PD's",
       [&](Work& w) {
         w.umr.list_key = a.driver->create_klm_list(a.driver->create_pd(), memory, 8192);
       }},
      {"gone", [&](Work& w) {
         ASSERT_EQ(a.driver->destroy(KH_ADM_DESTROY_MKEY, w.umr.list_key), KH_ST_OK);
       }}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    make_pair_again();
    for (int i = 0; i < 100; ++i)
      reinterpret_cast<kh_klm*>(memory)[i] = {a.region.start, 1, a.region.key};
    list_key = a.driver->create_klm_list(a.pdn, memory, 8192);
    uint32_t key = a.driver->create_indirect(a.pdn, 100);
    Work work = list_work(key, list_key, 100);
    row.change(work);
    a.post(work);
    EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_LIST);
  }
  make_pair_again();
  list_key = a.driver->create_klm_list(a.pdn, memory, 8192);
  uint32_t key = a.driver->create_indirect(a.pdn, 100);
  a.host->unmap(memory, 8192);
  a.post(list_work(key, list_key, 100));
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_LIST);
}

TEST_F(Umr, AListIsNeverData) {
  std::byte* memory = b.host->allocate(4096);
  uint32_t list = b.driver->create_klm_list(b.pdn, memory, 4096);
  Work work = write(a, 0, 8, b, 0);
  work.rkey = list;
  work.remote_addr = 0;
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Umr, WhileAWindowIsBoundTheKeyStaysAsItIs) {
  uint32_t key = b.driver->create_indirect(b.pdn, 4, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_MW_BIND);
  fill(b, key, {{b.region.start + 1000, 50, b.region.key}, {b.region.start, 50, b.region.key}},
       KH_ACCESS_LOCAL_WRITE, 0x10000);
  uint32_t window = b.driver->create_window(b.pdn, KH_MKEY_MW2);
  Work bind;
  bind.opcode = KH_OP_BIND_MW;
  bind.wr_id = 3;
  bind.bind = {};
  bind.bind.mw_key = window;
  bind.bind.new_key = window + 1;
  bind.bind.mr_key = key;
  bind.bind.addr = 0x10000 + 40;
  bind.bind.length = 20;
  bind.bind.access = KH_ACCESS_REMOTE_WRITE;
  b.post(bind);
  EXPECT_DONE(sent(b), 3);
  // The window's bytes are the key's, across its entries.
  a.fill(0, 20, 1);
  Work work = write(a, 0, 20, b, 0);
  work.rkey = window + 1;
  work.remote_addr = 0x10000 + 40;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  auto got = taken(b, 1040, 10);
  auto rest = taken(b, 0, 10);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, taken(a, 0, 20));

  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_MKEY, key), KH_ST_BUSY);
  Work refill = fill_work(key, {{b.region.start, 1, b.region.key}});
  b.post(refill);
  EXPECT_ERROR(sent(b), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_UMR_BUSY);
  // That was the end of the queue pair; its windows stay until it goes.
  EXPECT_EQ(b.driver->query_mkey(key).length, 100u);
  ASSERT_EQ(b.driver->destroy(KH_ADM_DESTROY_QP, b.qp.qpn), KH_ST_OK);
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_MKEY, key), KH_ST_OK);
}

TEST_F(Umr, AKeyWithoutMwBindTakesNoWindow) {
  uint32_t key = filled(b, {{0, 100}});
  Work bind;
  bind.opcode = KH_OP_BIND_MW;
  bind.wr_id = 3;
  uint32_t window = b.driver->create_window(b.pdn, KH_MKEY_MW1);
  bind.bind.mw_key = window;
  bind.bind.new_key = window + 1;
  bind.bind.mr_key = key;
  bind.bind.length = 20;
  b.post(bind);
  EXPECT_ERROR(sent(b), 3, KH_WC_MW_BIND_ERR, KH_SYN_BIND_REGION);
}

TEST_F(Umr, AnAtomicReachesACellInOneEntryAndNoneInTwo) {
  uint32_t key = b.driver->create_indirect(b.pdn, 4);
  fill(b, key, {{b.region.start + 64, 16, b.region.key}, {b.region.start + 4096, 12, b.region.key},
                {b.region.start + 8188, 8, b.region.key}});
  b.word(72) = 40;
  uint32_t mine = filled(a, {{1000, 3}, {2000, 5}});
  Work add = fetch_add(a, 0, b, 0, 2);
  add.rkey = key;
  add.remote_addr = 8;
  add.sge = {{0, 8, mine}};
  a.post(add);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.word(72), 42u);
  auto found = of(a, {{1000, 3}, {2000, 5}}, 0, 8);
  uint64_t value;
  std::memcpy(&value, found.data(), 8);
  EXPECT_EQ(value, 40u);
  add.remote_addr = 24;
  a.post(add);
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  auto eqe = event(b, KH_EV_QP_ACCESS_ERR);
  ASSERT_TRUE(eqe);
  EXPECT_EQ(uint32_t{eqe->data}, uint32_t{KH_SYN_REMOTE_ENTRY | KH_SYN_KEY_ENTRY | 1 << 16});
}

TEST_F(Umr, AnEmptyKeyIsValidAndHasNoBytes) {
  uint32_t key = a.driver->create_indirect(a.pdn, 4);
  fill(a, key, {{1, 0, 2}, {3, 0, 4}});
  kh_mkey_attr attr = a.driver->query_mkey(key);
  EXPECT_EQ(attr.valid, 1);
  EXPECT_EQ(attr.length, 0u);
  EXPECT_EQ(attr.num_entries, 0u);
  Work work = write(a, 0, 1, b, 0);
  work.sge = {{0, 1, key}};
  a.post(work);
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(Umr, AnIndirectKeyGrantsNoFlush) {
  uint32_t key = filled(b, {{0, 100}});
  Work flush;
  flush.opcode = KH_OP_FLUSH;
  flush.wr_id = 2;
  flush.rkey = key;
  flush.flush_length = 8;
  flush.flush.type = KH_FLUSH_GLOBAL;
  a.post(flush);
  EXPECT_ERROR(sent(a), 2, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Umr, AtomicWriteGoesThroughAnIndirectKey) {
  uint32_t key = filled(b, {{64, 8}, {4096, 8}});
  Work work = write(a, 0, 0, b, 0);
  work.opcode = KH_OP_ATOMIC_WRITE;
  work.sge.clear();
  work.flags |= KH_WQE_INLINE;
  work.inline_data.resize(8, std::byte{0x5a});
  work.rkey = key;
  work.remote_addr = 8;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.word(4096), 0x5a5a5a5a5a5a5a5au);
}

// One call of the switch gives each HCA a few turns of the 4,096 entries that a quantum pays for,
// and a packet more.
constexpr uint64_t kEntriesOfARun = 4 * (4096 + 1024 + 4096);

// An entry for each byte, on both sides, for everything that moves bytes.
TEST_F(Umr, ListsOfSingleBytesWorkAndKeepTurnsShort) {
  constexpr uint32_t n = 60'000;
  auto bytewise = [&](End& end, uint32_t step) {
    const size_t bytes = (n * sizeof(kh_klm) + 4095) / 4096 * 4096;
    auto* list = reinterpret_cast<kh_klm*>(end.host->allocate(bytes));
    std::vector<Piece> pieces;
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t offset = i * step % 500'009;
      pieces.push_back({offset, 1});
      list[i] = {end.region.start + offset, 1, end.region.key};
    }
    uint32_t key = end.driver->create_indirect(end.pdn, n);
    uint32_t list_key =
        end.driver->create_klm_list(end.pdn, reinterpret_cast<std::byte*>(list), bytes);
    end.post(list_work(key, list_key, n));
    EXPECT_DONE(sent(end), 1);
    return std::pair(key, pieces);
  };
  for (uint8_t type : {KH_QPT_RC, KH_QPT_UC}) {
    make_pair_again();
    auto [here, mine] = bytewise(a, 3);
    auto [there, theirs] = bytewise(b, 7);
    if (type == KH_QPT_UC) use_unreliable_pair();
    End& from = type == KH_QPT_UC ? c : a;
    End& to = type == KH_QPT_UC ? d : b;
    fill_region(a, 1);
    Work work = write(from, 0, n, to, 0);
    work.sge = {{0, n, here}};
    work.rkey = there;
    work.remote_addr = 0;
    from.post(work);
    EXPECT_LT(longest_turn(), kEntriesOfARun);
    EXPECT_DONE(sent(from), 1);
    EXPECT_EQ(of(b, theirs, 0, n), of(a, mine, 0, n));

    fill_region(a, 2);
    kh_sge sge{0, n, there};
    to.qp.post_receive(4, {&sge, 1});
    Work message = send(from, 0, n);
    message.sge = {{0, n, here}};
    from.post(message);
    EXPECT_LT(longest_turn(), kEntriesOfARun);
    EXPECT_DONE(sent(from), 1);
    EXPECT_DONE(received(to), 4);
    EXPECT_EQ(of(b, theirs, 0, n), of(a, mine, 0, n));

    if (type == KH_QPT_UC) continue;
    fill_region(b, 3);
    Work back = read(a, 0, n, b, 0);
    back.sge = {{0, n, here}};
    back.rkey = there;
    back.remote_addr = 0;
    a.post(back);
    EXPECT_LT(longest_turn(), kEntriesOfARun);
    EXPECT_DONE(sent(a), 1);
    EXPECT_EQ(of(a, mine, 0, n), of(b, theirs, 0, n));
  }
}

TEST_F(Umr, DatagramsGatherAndScatterThroughIndirectKeys) {
  EndOptions options;
  options.type = KH_QPT_UD;
  options.pdn = a.pdn;
  c = make_end(0, options);
  options.pdn = b.pdn;
  d = make_end(1, options);
  start_datagrams(c, 0x55);
  start_datagrams(d, 0x55);
  std::vector<Piece> mine, theirs;
  for (uint32_t i = 0; i < 1000; ++i) {
    mine.push_back({i * 3, 1});
    theirs.push_back({i * 5 + 7, 1 + i % 2});
  }
  // More spans than a segment has.
  uint32_t from = a.driver->create_indirect(a.pdn, 1000);
  uint32_t to = b.driver->create_indirect(b.pdn, 1000);
  fill_from_list(a, from, mine);
  fill_from_list(b, to, theirs);
  fill_region(a, 1);
  kh_sge sge{0, 1040, to};
  d.qp.post_receive(4, {&sge, 1});
  Work work = send(c, 0, 0);
  work.sge = {{0, 1000, from}};
  work.av = c.driver->path_to(*d.driver);
  work.dest_qpn = d.qp.qpn;
  work.qkey = 0x55;
  c.post(work);
  EXPECT_DONE(sent(c), 1);
  EXPECT_DONE(received(d), 4);
  EXPECT_EQ(of(b, theirs, 40, 1000), of(a, mine, 0, 1000));
}

TEST_F(Umr, AnSrqReceivesIntoAnIndirectKey) {
  TestSrq srq = b.driver->create_srq(b.pdn, 4);
  EndOptions options;
  options.pdn = b.pdn;
  options.srqn = srq.srqn;
  c = make_end(0);
  d = make_end(1, options);
  connect(c, d);
  uint32_t key = filled(b, kOdd);
  kh_sge sge{1, 5000, key};
  srq.post(8, {&sge, 1});
  c.fill(0, 5000, 3);
  c.post(send(c, 0, 5000));
  EXPECT_DONE(sent(c), 1);
  EXPECT_DONE(received(d), 8);
  EXPECT_EQ(of(b, kOdd, 1, 5000), taken(c, 0, 5000));
}

TEST_F(Umr, LossInTheMiddleOfAnIndirectMessageIsMended) {
  a.object().set_faults(&wire);
  int count = 0;
  wire.segment = [&](const Segment&) { return ++count % 3 == 0 ? Fate::lost : Fate::delivered; };
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < 3000; ++i)
    pieces.push_back({i * 100, 3 + i % 50});
  uint32_t from = a.driver->create_indirect(a.pdn, 3000);
  uint32_t to = b.driver->create_indirect(b.pdn, 3000);
  fill_from_list(a, from, pieces);
  fill_from_list(b, to, pieces);
  fill_region(a, 6);
  const uint32_t total = size_of(pieces);
  Work work = write(a, 0, total, b, 0);
  work.sge = {{0, total, from}};
  work.rkey = to;
  work.remote_addr = 0;
  a.post(work);
  rig.run_for(2'000'000'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(of(b, pieces, 0, total), of(a, pieces, 0, total));
  a.object().set_faults(nullptr);
}

TEST_F(Umr, AFillThatIsCutShortByAnErrorChangesNothing) {
  constexpr uint32_t n = KH_MAX_INDIRECT;
  const size_t bytes = n * sizeof(kh_klm);
  auto* list = reinterpret_cast<kh_klm*>(a.host->allocate(bytes));
  for (uint32_t i = 0; i < n; ++i)
    list[i] = {a.region.start, 1, a.region.key};
  uint32_t list_key = a.driver->create_klm_list(a.pdn, reinterpret_cast<std::byte*>(list), bytes);
  uint32_t key = a.driver->create_indirect(a.pdn, n);
  fill(a, key, {{a.region.start, 9, a.region.key}});
  a.post(list_work(key, list_key, n));
  // The command comes in the fill's second turn at the latest; the list needs sixteen.
  set_state(a, KH_QPS_ERR);
  EXPECT_ERROR(sent(a), 1, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(a.driver->query_mkey(key).length, 9u);
  EXPECT_EQ(a.driver->destroy(KH_ADM_DESTROY_MKEY, key), KH_ST_OK);
}

// Keys of single bytes, each of them beside the last one or not, as targets of long messages: a turn
// ends before many have been looked at, so the queue's neighbours need not wait for them all.
class SingleBytes : public UmrTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint32_t kBytes = 60'000;
  static constexpr uint64_t kFrom = 500'000;
  static constexpr uint64_t kPacketBytes = 1024;
  static constexpr uint64_t kOneLook = 128;

  uint32_t single_bytes(End& end) {
    uint32_t key = end.driver->create_indirect(end.pdn, 1);
    fill_strided(end, key, {entry(end, 0, 1, GetParam())}, kBytes);
    return key;
  }
  // What a turn may look at before it sees that its quantum is spent.
  static constexpr uint64_t kAtOnce = kEntriesAtOnce + kPacketBytes + kOneLook;

  // Counts from here what is looked at for each segment, and the turns.
  void watch(End& requester) {
    requester.object().set_faults(&wire);
    wire.segment = [this](const Segment&) { return note(), Fate::delivered; };
    wire.reply = [this](const Segment&, const Reply&) { return note(), Fate::delivered; };
    seen_ = walked_entries;
    turns_before_ = turns();
  }
  void expect_short_turns() {
    EXPECT_GE(turns() - turns_before_, kBytes / (Quantum{}.bytes / kEntryCost + kAtOnce));
  }
  void expect_short_segments() {
    EXPECT_GT(most_, 0u);
    EXPECT_LE(most_, kAtOnce);
  }
  void expect_bytes(const End& in, const End& from) {
    for (uint32_t i = 0; i < kBytes; ++i)
      ASSERT_EQ(*in.bytes(uint64_t{i} * GetParam()), *from.bytes(kFrom + i)) << i;
  }
  // Of one of b's keys, by a peer.
  void expect_cut_write(End& from) {
    Work work = write(from, kFrom, kBytes, b, 0);
    work.rkey = single_bytes(b);
    work.remote_addr = 0;
    fill_region(from, 1);
    watch(from);
    from.post(work);
    EXPECT_DONE(sent(from), 1);
    expect_short_turns();
    expect_short_segments();
    expect_bytes(b, from);
  }

 private:
  void note() {
    most_ = std::max(most_, walked_entries - seen_);
    seen_ = walked_entries;
  }
  uint64_t turns() const { return a.hca->turns() + b.hca->turns(); }

  uint64_t seen_ = 0;
  uint64_t most_ = 0;
  uint64_t turns_before_ = 0;
};

TEST_P(SingleBytes, AWriteToThemIsCut) { expect_cut_write(a); }

TEST_P(SingleBytes, AnUnreliableWriteToThemIsCut) {
  use_unreliable_pair();
  expect_cut_write(c);
}

TEST_P(SingleBytes, AMessageThatIsReceivedThereIsCut) {
  kh_sge to{0, kBytes, single_bytes(b)};
  b.qp.post_receive(4, {&to, 1});
  fill_region(a, 1);
  watch(a);
  a.post(send(a, kFrom, kBytes));
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(received(b), 4);
  expect_short_turns();
  expect_short_segments();
  expect_bytes(b, a);
}

TEST_P(SingleBytes, AnAnswerThatIsStoredThereIsCut) {
  Work work = read(a, 0, kBytes, b, kFrom);
  work.sge = {{0, kBytes, single_bytes(a)}};
  fill_region(b, 1);
  watch(a);
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  expect_short_turns();
  expect_bytes(a, b);
}

INSTANTIATE_TEST_SUITE_P(Stride, SingleBytes, ::testing::Values(1u, 2u));

}  // namespace
}  // namespace keyhole::test
