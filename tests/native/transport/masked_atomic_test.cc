// SPDX-License-Identifier: BSD-2-Clause
//
// Masked atomics: compare, replace and add within parts of the 8 bytes.

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "two_ends.h"

namespace keyhole::test {
namespace {

class MaskedAtomic : public TransportTest {
 protected:
  MaskedAtomic() { make_pair(); }
  void TearDown() override { a.object().set_faults(nullptr); }

  Work swap(uint64_t compare, uint64_t compare_mask, uint64_t value, uint64_t swap_mask) {
    Work work = fetch_add(a, 0, b, 64, 0);
    work.opcode = KH_OP_MASKED_CMP_SWAP;
    work.masked = {value, compare, swap_mask, compare_mask};
    return work;
  }
  Work add(uint64_t value, uint64_t last_bits) {
    Work work = fetch_add(a, 0, b, 64, 0);
    work.opcode = KH_OP_MASKED_FETCH_ADD;
    work.masked = {value, 0, last_bits, 0};
    return work;
  }
  uint64_t after(const Work& work, uint64_t before) {
    b.word(64) = before;
    a.post(work);
    EXPECT_DONE(sent(a), 1);
    EXPECT_EQ(a.word(0), before);
    return b.word(64);
  }
  // The same as the contract says it, bit by bit.
  static uint64_t add_slowly(uint64_t x, uint64_t y, uint64_t last_bits) {
    uint64_t sum = 0;
    unsigned carry = 0;
    for (int bit = 0; bit < 64; ++bit) {
      unsigned digit = (x >> bit & 1) + (y >> bit & 1) + carry;
      sum |= uint64_t{digit & 1} << bit;
      carry = last_bits >> bit & 1 ? 0 : digit >> 1;
    }
    return sum;
  }
};

TEST_F(MaskedAtomic, CompareLooksAtItsBitsAndSwapReplacesItsOwn) {
  const uint64_t old = 0x1122334455667788;
  EXPECT_EQ(after(swap(0x88, 0xff, ~uint64_t{0}, 0xff00), old), 0x112233445566ff88u);
  EXPECT_EQ(after(swap(0x87, 0xff, ~uint64_t{0}, 0xff00), old), old);
  EXPECT_EQ(after(swap(0x87, 0, 5, ~uint64_t{0}), old), 5u);
  EXPECT_EQ(after(swap(old, ~uint64_t{0}, 7, ~uint64_t{0}), old), 7u);
  EXPECT_EQ(after(swap(0, 0, 7, 0), old), old);
}

TEST_F(MaskedAtomic, AddKeepsItsFieldsApart) {
  constexpr uint64_t bytes = 0x8080808080808080;
  EXPECT_EQ(after(add(0x0101010101010101, bytes), 0xff00ff00ff00ff7f), 0x0001000100010080u);
  EXPECT_EQ(after(add(1, 0), ~uint64_t{0}), 0u);
  EXPECT_EQ(after(add(0x100000001, uint64_t{1} << 31), 0xffffffff), 0x100000000u);
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    uint64_t x = random(), y = random(), last_bits = random() & random();
    ASSERT_EQ(after(add(y, last_bits), x), add_slowly(x, y, last_bits));
  }
}

TEST_F(MaskedAtomic, ADuplicateIsAnsweredAndNotExecutedAgain) {
  a.object().set_faults(&wire);
  int replies = 0;
  wire.reply = [&](const Segment&, const Reply&) {
    return replies++ == 0 ? Fate::lost : Fate::delivered;
  };
  b.word(64) = 5;
  a.post(add(3, 0));
  rig.run_for(1'000'000'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(replies, 2);
  EXPECT_EQ(a.word(0), 5u);
  EXPECT_EQ(b.word(64), 8u);
}

TEST_F(MaskedAtomic, AreAtomicTowardsTheProcessors) {
  b.word(64) = 0;
  std::atomic<bool> stop = false;
  uint64_t mine = 0;
  // One counts in the upper half, the device in the lower.
  std::thread processor([&] {
    while (!stop) {
      __atomic_fetch_add(&b.word(64), uint64_t{1} << 32, __ATOMIC_SEQ_CST);
      ++mine;
    }
  });
  for (int i = 0; i < 2000; ++i) {
    a.post(add(1, uint64_t{1} << 31));
    kh_cqe cqe = sent(a);
    ASSERT_EQ(cqe.status, KH_WC_SUCCESS);
  }
  stop = true;
  processor.join();
  EXPECT_EQ(b.word(64) & 0xffffffff, 2000u);
  EXPECT_EQ(b.word(64) >> 32, mine & 0xffffffff);
}

TEST_F(MaskedAtomic, WhatIsWrongWithOneIsSaid) {
  struct Row {
    const char* what;
    std::function<void(Work&)> change;
    kh_cqe_status status;
    uint32_t syndrome;
  };
  const std::vector<Row> rows = {
      {"no entry", [](Work& w) { w.sge.clear(); }, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE},
      {"one block", [](Work& w) { w.nblocks = 1; }, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE},
      {"length", [](Work& w) { w.sge[0].length = 4; }, KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH},
      {"compare", [](Work& w) { w.masked.compare = 1; }, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_FLAGS},
      {"place", [](Work& w) { w.sge[0].addr = 0; }, KH_WC_LOC_PROT_ERR,
       KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE},
      {"alignment", [](Work& w) { w.remote_addr += 4; }, KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID},
      {"key", [](Work& w) { w.rkey ^= 1; }, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    make_pair();
    Work work = add(1, 0);
    row.change(work);
    b.word(64) = 9;
    a.post(work);
    EXPECT_ERROR(sent(a), 1, row.status, row.syndrome);
    EXPECT_EQ(b.word(64), 9u);
  }
}

}  // namespace
}  // namespace keyhole::test
