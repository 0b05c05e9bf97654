// SPDX-License-Identifier: BSD-2-Clause
//
// Requests about keys: BIND_MW, LOCAL_INV and the peer's SEND_INV, and their order among others.

#include <cstring>

#include "two_ends.h"

namespace keyhole::test {
namespace {

class Key : public TransportTest {
 protected:
  Key() {
    make_pair();
    // Windows are b's: a uses them.
    mw1 = b.driver->create_window(b.pdn, KH_MKEY_MW1);
    mw2 = b.driver->create_window(b.pdn, KH_MKEY_MW2);
  }
  static uint32_t next(uint32_t key) { return (key & ~0xffu) | ((key + 1) & 0xff); }

  Work bind(uint32_t key, uint32_t new_key, uint64_t offset, uint64_t length,
            uint32_t access = KH_ACCESS_REMOTE, uint64_t wr_id = 1) {
    Work work;
    work.opcode = KH_OP_BIND_MW;
    work.wr_id = wr_id;
    work.bind.mw_key = key;
    work.bind.new_key = new_key;
    work.bind.mr_key = length ? b.region.key : 0;
    work.bind.access = access;
    work.bind.addr = length ? b.region.start + offset : 0;
    work.bind.length = length;
    return work;
  }
  Work invalidate(uint32_t key, uint64_t wr_id = 1) {
    Work work;
    work.opcode = KH_OP_LOCAL_INV;
    work.wr_id = wr_id;
    work.imm = key;
    return work;
  }
  Work write_by(uint32_t key, uint64_t offset, uint32_t length, uint64_t wr_id = 9) {
    Work work = write(a, 0, length, b, offset, wr_id);
    work.rkey = key;
    return work;
  }
  // A second pair on the same PD of b.
  void make_second_pair() {
    EndOptions options;
    options.pdn = b.pdn;
    c = make_end(0);
    d = make_end(1, options);
    connect(c, d);
  }

  uint32_t mw1 = 0, mw2 = 0;
  End c, d;
};

TEST_F(Key, AType1WindowOpensItsRangeWithItsRightsAndNoMore) {
  b.post(bind(mw1, next(mw1), 4096, 100, KH_ACCESS_REMOTE_WRITE));
  EXPECT_DONE(sent(b), 1);
  EXPECT_EQ(b.stat(KH_STAT_MW_BINDS), 1u);
  a.fill(0, 100, 1);
  a.post(write_by(next(mw1), 4096, 100));
  EXPECT_DONE(sent(a), 9);
  EXPECT_TRUE(b.holds(4096, 100, 1));
  a.post(write_by(next(mw1), 4097, 100));
  EXPECT_ERROR(sent(a), 9, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Key, ARebindOrAnUnbindKillsTheOldKey) {
  b.post(bind(mw1, next(mw1), 4096, 100));
  EXPECT_DONE(sent(b), 1);
  uint32_t old = next(mw1);
  b.post(bind(old, next(old), 0, 0, 0));
  EXPECT_DONE(sent(b), 1);
  a.post(write_by(old, 4096, 8));
  EXPECT_ERROR(sent(a), 9, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Key, ABindTakesEffectBeforeTheRequestsBehindIt) {
  // b binds and tells a in the same batch; a's answer goes through the window.
  a.post_receive(5, 512, 8);
  b.post_unrung(bind(mw1, next(mw1), 0, 64));
  b.post_unrung(send(b, 0, 8, 2));
  b.qp.ring();
  EXPECT_DONE(sent(b), 1);
  EXPECT_DONE(sent(b), 2);
  EXPECT_DONE(received(a), 5);
  a.post(write_by(next(mw1), 0, 8));
  EXPECT_DONE(sent(a), 9);
}

TEST_F(Key, ABindCompletesAfterTheRequestsBeforeIt) {
  b.post_unrung(read(b, 0, 700'000, a, 0, 1));
  b.post_unrung(bind(mw1, next(mw1), 0, 64, KH_ACCESS_REMOTE, 2));
  b.post_unrung(invalidate(mw2, 3));
  b.qp.ring();
  for (int i = 1; i <= 3; ++i)
    EXPECT_DONE(sent(b), i);
}

TEST_F(Key, ARefusedBindIsABindErrorAndEndsInTheErrorState) {
  Work too_long = bind(mw1, next(mw1), 0, b.region.size + 1);
  b.post_unrung(too_long);
  b.post_unrung(write(b, 0, 8, a, 0, 2));
  b.qp.ring();
  kh_cqe cqe = sent(b);
  EXPECT_EQ(cqe.status, KH_WC_MW_BIND_ERR);
  EXPECT_EQ(cqe.syndrome, uint32_t{KH_SYN_BIND_RANGE});
  EXPECT_EQ(cqe.wr_id, 1u);
  EXPECT_ERROR(sent(b), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(Key, AType2WindowServesOnlyTheQueuePairThatBoundIt) {
  uint32_t key = (mw2 & ~0xffu) | 0x5a;
  b.post(bind(mw2, key, 0, 64));
  EXPECT_DONE(sent(b), 1);
  a.post(write_by(key, 0, 8));
  EXPECT_DONE(sent(a), 9);
  make_second_pair();
  Work stranger = write_by(key, 0, 8);
  stranger.sge = {c.at(0, 8)};
  c.post(stranger);
  EXPECT_ERROR(sent(c), 9, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Key, ALocalInvalidateFreesAType2Window) {
  uint32_t key = (mw2 & ~0xffu) | 0x5a;
  b.post_unrung(bind(mw2, key, 0, 64));
  b.post_unrung(invalidate(key, 2));
  b.qp.ring();
  EXPECT_DONE(sent(b), 1);
  EXPECT_DONE(sent(b), 2);
  EXPECT_EQ(b.stat(KH_STAT_INVALIDATES), 1u);
  a.post(write_by(key, 0, 8));
  EXPECT_ERROR(sent(a), 9, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Key, AnInvalidateOfARegionOrAType1WindowIsRefused) {
  b.post(invalidate(b.region.key));
  EXPECT_ERROR(sent(b), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_INV_KIND);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(Key, ASendWithInvalidateFreesTheWindowAndTellsWhich) {
  uint32_t key = (mw2 & ~0xffu) | 0x5a;
  b.post(bind(mw2, key, 0, 64));
  EXPECT_DONE(sent(b), 1);
  b.post_receive(5, 0, 64);
  Work work = send(a, 0, 8, 2);
  work.opcode = KH_OP_SEND_INV;
  work.imm = key;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 5);
  EXPECT_EQ(cqe.flags, KH_CQE_INV);
  EXPECT_EQ(cqe.imm, key);
  a.post(write_by(key, 0, 8));
  EXPECT_ERROR(sent(a), 9, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
}

TEST_F(Key, ASendThatInvalidatesWhatItMustNotFailsAtBothEnds) {
  for (uint32_t key : {b.region.key, mw1, 0x12345600u}) {
    make_pair();
    b.post_receive(5, 0, 64);
    Work work = send(a, 0, 8, 2);
    work.opcode = KH_OP_SEND_INV;
    work.imm = key;
    a.post(work);
    EXPECT_ERROR(sent(a), 2, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
    kh_cqe cqe = received(b);
    EXPECT_EQ(cqe.status, KH_WC_REM_INV_REQ_ERR);
    EXPECT_TRUE(event(b, KH_EV_QP_ACCESS_ERR).has_value());
    EXPECT_EQ(b.state(), KH_QPS_ERR);
  }
}

TEST_F(Key, TheDeathOfAQueuePairFreesItsType2Windows) {
  uint32_t key = (mw2 & ~0xffu) | 0x5a;
  b.post(bind(mw2, key, 0, 64));
  EXPECT_DONE(sent(b), 1);
  EXPECT_EQ(b.driver->query_mkey(mw2).valid, 1);
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_MKEY, b.region.key), KH_ST_BUSY);
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_QP, b.qp.qpn), KH_ST_OK);
  EXPECT_EQ(b.driver->query_mkey(mw2).valid, 0);
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_MKEY, b.region.key), KH_ST_OK);
}

TEST_F(Key, AZeroBasedWindowTakesOffsets) {
  b.post(bind(mw1, next(mw1), 4096, 100, KH_ACCESS_REMOTE_WRITE | KH_ACCESS_ZERO_BASED));
  EXPECT_DONE(sent(b), 1);
  a.fill(0, 8, 3);
  Work work = write_by(next(mw1), 0, 8);
  work.remote_addr = 92;
  a.post(work);
  EXPECT_DONE(sent(a), 9);
  EXPECT_TRUE(b.holds(4096 + 92, 8, 3));
}

}  // namespace
}  // namespace keyhole::test
