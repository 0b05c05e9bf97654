// SPDX-License-Identifier: BSD-2-Clause
//
// FLUSH and atomic WRITE.

#include <cstring>

#include "two_ends.h"

namespace keyhole::test {
namespace {

class Flush : public TransportTest {
 protected:
  Flush() {
    EndOptions options;
    options.access |= KH_ACCESS_FLUSH_GLOBAL;
    make_pair(options);
  }
  void TearDown() override { a.object().set_faults(nullptr); }

  Work flush(uint64_t offset, uint32_t length, uint32_t type = KH_FLUSH_GLOBAL,
             uint32_t level = KH_FLUSH_RANGE) {
    Work work;
    work.opcode = KH_OP_FLUSH;
    work.wr_id = 2;
    work.remote_addr = b.region.start + offset;
    work.rkey = b.region.key;
    work.flush_length = length;
    work.flush.type = type;
    work.flush.level = level;
    return work;
  }
  Work atomic_write(uint64_t offset, uint64_t value) {
    Work work = write(a, 0, 0, b, offset, 3);
    work.opcode = KH_OP_ATOMIC_WRITE;
    work.sge.clear();
    work.flags |= KH_WQE_INLINE;
    work.inline_data.resize(8);
    std::memcpy(work.inline_data.data(), &value, 8);
    return work;
  }
};

TEST_F(Flush, CompletesAfterTheWritesBeforeIt) {
  a.fill(0, 400'000, 1);
  a.post_unrung(write(a, 0, 400'000, b, 0, 1));
  a.post_unrung(flush(0, 400'000));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  kh_cqe cqe = sent(a);
  EXPECT_DONE(cqe, 2);
  EXPECT_EQ(cqe.opcode, KH_OP_FLUSH);
  EXPECT_TRUE(b.holds(0, 400'000, 1));
  EXPECT_TRUE(nothing_received(b));
}

TEST_F(Flush, OfAWholeRegionIgnoresItsRange) {
  a.post(flush(1 << 30, 0xffffffff, KH_FLUSH_GLOBAL, KH_FLUSH_MR));
  EXPECT_DONE(sent(a), 2);
}

TEST_F(Flush, OfARangeOutsideTheRegionIsARemoteAccessError) {
  a.post(flush(b.region.size - 4, 8));
  EXPECT_ERROR(sent(a), 2, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(Flush, ToPersistenceIsARemoteAccessErrorSinceNoKeyGrantsIt) {
  a.post(flush(0, 8, KH_FLUSH_PERSISTENT));
  EXPECT_ERROR(sent(a), 2, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Flush, ThroughAKeyThatDoesNotAllowItIsARemoteAccessError) {
  make_pair();
  a.post(flush(0, 8));
  EXPECT_ERROR(sent(a), 2, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Flush, OfNoTypeOrAnUnknownLevelIsRefusedByTheSender) {
  a.post(flush(0, 8, 0));
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_FLAGS);
  make_pair();
  a.post(flush(0, 8, KH_FLUSH_GLOBAL, 2));
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_FLAGS);
}

TEST_F(Flush, WhoseAnswerIsLostIsAnsweredAgain) {
  a.object().set_faults(&wire);
  wire.reply = [lost = false](const Segment&, const Reply&) mutable {
    if (lost) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  a.post(flush(0, 8));
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(2 * (uint64_t{4096} << 14));
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(b.stat(KH_STAT_DUPLICATES), 1u);
}

TEST_F(Flush, AnAtomicWriteStoresEightBytesAndACopyOfItStoresThemOnce) {
  a.post(atomic_write(64, 0x1122334455667788));
  EXPECT_DONE(sent(a), 3);
  EXPECT_EQ(b.word(64), 0x1122334455667788u);
  a.object().set_faults(&wire);
  wire.reply = [lost = false](const Segment&, const Reply&) mutable {
    if (lost) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  a.post(atomic_write(64, 5));
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_EQ(b.word(64), 5u);
  b.word(64) = 6;
  rig.run_for(2 * (uint64_t{4096} << 14));
  EXPECT_DONE(sent(a), 3);
  EXPECT_EQ(b.word(64), 6u);
}

TEST_F(Flush, AMisalignedAtomicWriteIsAnInvalidRequest) {
  a.post(atomic_write(4, 1));
  EXPECT_ERROR(sent(a), 3, KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID);
}

TEST_F(Flush, AnAtomicWriteOfAnotherLengthIsRefusedByTheSender) {
  Work work = atomic_write(0, 1);
  work.inline_data.resize(4);
  a.post(work);
  EXPECT_ERROR(sent(a), 3, KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH);
}

}  // namespace
}  // namespace keyhole::test
