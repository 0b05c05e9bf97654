// SPDX-License-Identifier: BSD-2-Clause
//
// Unreliable connections: what arrives, arrives whole; what does not, nobody hears of.

#include <cstring>

#include "two_ends.h"

namespace keyhole::test {
namespace {

class Uc : public TransportTest {
 protected:
  Uc() {
    EndOptions options;
    options.type = KH_QPT_UC;
    make_pair(options);
  }
  void TearDown() override { a.object().set_faults(nullptr); }
  void lose_nth(int nth) {
    a.object().set_faults(&wire);
    a.object().limit_segments(128 * 1024);
    wire.segment = [=, n = 0](const Segment&) mutable {
      return n++ == nth ? Fate::lost : Fate::delivered;
    };
  }
};

TEST_F(Uc, SendsAndWritesArriveWithTheirImmediates) {
  a.fill(0, 300'000, 1);
  b.post_receive(5, 0, 300'000);
  Work work = send(a, 0, 300'000, 1);
  work.opcode = KH_OP_SEND_IMM;
  work.imm = 4;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 5);
  EXPECT_EQ(cqe.byte_len, 300'000u);
  EXPECT_EQ(cqe.imm, 4u);
  EXPECT_TRUE(b.holds(0, 300'000, 1));

  b.post_receive(6, 0, 0);
  work = write(a, 0, 300'000, b, 400'000, 2);
  work.opcode = KH_OP_WRITE_IMM;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  cqe = received(b);
  EXPECT_DONE(cqe, 6);
  EXPECT_EQ(cqe.opcode, KH_CQE_RECV_WRITE_IMM);
  EXPECT_EQ(cqe.byte_len, 300'000u);
  EXPECT_TRUE(b.holds(400'000, 300'000, 1));
}

TEST_F(Uc, ReadsAndAtomicsDoNotExist) {
  for (uint8_t opcode : {KH_OP_READ, KH_OP_FETCH_ADD, KH_OP_SEND_INV}) {
    Work work = fetch_add(a, 0, b, 0, 1, 2);
    work.opcode = opcode;
    a.post(work);
    EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_OPCODE);
    ASSERT_EQ(set_state(a, KH_QPS_RTS), KH_ST_OK);
  }
}

TEST_F(Uc, AMessageThatLosesASegmentIsLostAndItsReceiveServesTheNext) {
  for (int nth = 0; nth < 4; ++nth) {
    lose_nth(nth);
    b.post_receive(5, 0, 500'000);
    a.fill(0, 500'000, 1);
    a.post(send(a, 0, 500'000, 1));
    EXPECT_DONE(sent(a), 1);
    EXPECT_TRUE(nothing_received(b));
    a.fill(0, 500'000, 2);
    a.post(send(a, 0, 500'000, 2));
    EXPECT_DONE(sent(a), 2);
    EXPECT_DONE(received(b), 5);
    EXPECT_TRUE(b.holds(0, 500'000, 2));
    EXPECT_TRUE(nothing_received(b));
  }
}

TEST_F(Uc, ASendWithoutAReceiveIsDropped) {
  a.post(send(a, 0, 8, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.stat(KH_STAT_DROPPED), 1u);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
}

TEST_F(Uc, AWriteThroughABadKeyIsDropped) {
  Work work = write(a, 0, 8, b, 0, 1);
  work.rkey ^= 1;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
  EXPECT_EQ(b.stat(KH_STAT_DROPPED), 1u);
  a.post(write(a, 0, 8, b, 0, 2));
  EXPECT_DONE(sent(a), 2);
}

TEST_F(Uc, AWriteToAQueuePairThatDoesNotAllowItIsDropped) {
  EndOptions options;
  options.type = KH_QPT_UC;
  Connection link;
  link.access = 0;
  make_pair(options, link);
  std::memset(b.bytes(), 0, 8);
  a.fill(0, 8, 1);
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.word(0), 0u);
}

TEST_F(Uc, ASendLongerThanTheReceiveFailsThere) {
  b.post_receive(5, 0, 7);
  a.post(send(a, 0, 8, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_ERROR(received(b), 5, KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(Uc, APeerThatIsNotThereChangesNothingForTheSender) {
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(a.state(), KH_QPS_RTS);
}

}  // namespace
}  // namespace keyhole::test
