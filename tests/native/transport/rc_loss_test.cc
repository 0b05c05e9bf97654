// SPDX-License-Identifier: BSD-2-Clause
//
// Reliable connections when packets get lost, come twice or in the wrong order, or when nobody
// answers: retransmission, NAKs, timers and retry counts, by a clock that stands still unless it is
// moved.

#include <cstring>
#include <random>

#include "hca/transport/qp_transitions.h"
#include "two_ends.h"

namespace keyhole::test {
namespace {

constexpr uint64_t kTimeout14 = uint64_t{4096} << 14;

class RcLoss : public TransportTest {
 protected:
  void make_lossy_pair(const Connection& link = {}) {
    make_pair(EndOptions{}, link);
    for (End* end : {&a, &b}) {
      end->object().set_faults(&wire);
      end->object().limit_segments(128 * 1024);
    }
  }
  // Loses the nth (from 0) segment of a kind.
  void lose(SegmentKind kind, int nth, int count = 1) {
    wire.segment = [=, seen = 0](const Segment& s) mutable {
      if (s.kind != kind) return Fate::delivered;
      int now = seen++;
      return now >= nth && now < nth + count ? Fate::lost : Fate::delivered;
    };
  }
  void TearDown() override {
    if (a.hca && a.hca->find_qp(a.qp.qpn)) a.object().set_faults(nullptr);
    if (b.hca && b.hca->find_qp(b.qp.qpn)) b.object().set_faults(nullptr);
  }
};

TEST_F(RcLoss, ALostWriteIsSentAgainWhenTheTimerExpires) {
  make_lossy_pair();
  lose(SegmentKind::write, 0);
  a.fill(0, 64, 1);
  a.post(write(a, 0, 64, b, 0, 1));
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(kTimeout14 - 1'000'000);
  EXPECT_TRUE(nothing_sent(a)) << "not before its time";
  rig.run_for(2'000'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(b.holds(0, 64, 1));
  EXPECT_EQ(a.stat(KH_STAT_RETRANSMITS), 1u);
}

TEST_F(RcLoss, ALostSegmentIsAskedForBySequenceNakWithoutWaiting) {
  make_lossy_pair();
  lose(SegmentKind::write, 0);
  a.fill(0, 128, 1);
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(write(a, 64, 64, b, 64, 2));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(a), 2);
  EXPECT_TRUE(b.holds(0, 128, 1));
  EXPECT_EQ(b.stat(KH_STAT_OUT_OF_SEQUENCE), 1u);
}

TEST_F(RcLoss, AMessageThatLosesASegmentInItsMiddleGoesOnFromThere) {
  for (int nth = 0; nth < 8; ++nth) {
    make_lossy_pair();
    lose(SegmentKind::write, nth);
    a.fill(0, 1 << 20, static_cast<uint8_t>(nth));
    a.post(write(a, 0, 1 << 20, b, 0, 1));
    rig.run_for(3 * kTimeout14);
    EXPECT_DONE(sent(a), 1);
    EXPECT_TRUE(b.holds(0, 1 << 20, static_cast<uint8_t>(nth)));
    a.object().set_faults(nullptr);
    b.object().set_faults(nullptr);
  }
}

TEST_F(RcLoss, ASendThatLosesASegmentIsReceivedOnce) {
  for (int nth = 0; nth < 8; ++nth) {
    make_lossy_pair();
    lose(SegmentKind::send, nth);
    b.post_receive(5, 0, 1 << 20);
    b.post_receive(6, 0, 1 << 20);
    a.fill(0, 1 << 20, 1);
    a.post(send(a, 0, 1 << 20, 1));
    rig.run_for(3 * kTimeout14);
    EXPECT_DONE(sent(a), 1);
    EXPECT_DONE(received(b), 5);
    EXPECT_TRUE(nothing_received(b));
    EXPECT_TRUE(b.holds(0, 1 << 20, 1));
    a.object().set_faults(nullptr);
    b.object().set_faults(nullptr);
  }
}

TEST_F(RcLoss, ALostAcknowledgementMakesADuplicateThatIsNotExecuted) {
  make_lossy_pair();
  b.post_receive(5, 0, 64);
  b.post_receive(6, 64, 64);
  wire.reply = [lost = false](const Segment&, const Reply& r) mutable {
    if (lost || r.answer != Answer::ack) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  a.post(send(a, 0, 64, 1));
  EXPECT_DONE(received(b), 5);
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(nothing_received(b));
  EXPECT_EQ(b.stat(KH_STAT_DUPLICATES), 1u);
}

TEST_F(RcLoss, ALaterAcknowledgementStandsForALostOne) {
  make_lossy_pair();
  wire.reply = [lost = false](const Segment&, const Reply&) mutable {
    if (lost) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(write(a, 0, 64, b, 0, 2));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(a.stat(KH_STAT_RETRANSMITS), 0u);
}

TEST_F(RcLoss, AnAtomicWhoseAnswerIsLostIsExecutedOnce) {
  make_lossy_pair();
  b.word(64) = 10;
  wire.reply = [lost = false](const Segment&, const Reply& r) mutable {
    if (lost || r.answer != Answer::atomic) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  a.post(fetch_add(a, 0, b, 64, 5, 1));
  EXPECT_TRUE(nothing_sent(a));
  b.word(64) += 100;  // somebody else's change: the answer must be the saved one
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(a.word(0), 10u);
  EXPECT_EQ(b.word(64), 115u);
}

TEST_F(RcLoss, AnAtomicWhoseAnswerIsLostIsAskedAgainWhenALaterOneIsAnswered) {
  make_lossy_pair();
  wire.reply = [lost = false](const Segment&, const Reply& r) mutable {
    if (lost || r.answer != Answer::atomic) return Fate::delivered;
    lost = true;
    return Fate::lost;
  };
  for (int i = 0; i < 4; ++i)
    a.post_unrung(fetch_add(a, 8 * i, b, 64, 1, i));
  a.post_unrung(write(a, 0, 8, b, 0, 4));
  a.qp.ring();
  rig.run_for(3 * kTimeout14);
  for (int i = 0; i < 5; ++i)
    EXPECT_DONE(sent(a), i);
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(a.word(8 * i), i);
  EXPECT_EQ(b.word(64), 4u);
}

TEST_F(RcLoss, ALostReadRequestIsSentAgain) {
  make_lossy_pair();
  lose(SegmentKind::read, 0);
  b.fill(0, 100'000, 1);
  a.post(read(a, 0, 100'000, b, 0, 1));
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(a.holds(0, 100'000, 1));
}

TEST_F(RcLoss, AReadAnswerThatLosesASegmentIsAskedForFromThere) {
  for (int nth = 0; nth < 8; ++nth) {
    make_lossy_pair();
    lose(SegmentKind::read_response, nth);
    b.fill(0, 1 << 20, 1);
    a.post_unrung(read(a, 0, 1 << 20, b, 0, 1));
    a.post_unrung(send(a, 0, 0, 2));
    b.post_receive(3, 0, 0);
    a.qp.ring();
    rig.run_for(4 * kTimeout14);
    EXPECT_DONE(sent(a), 1);
    EXPECT_DONE(sent(a), 2);
    EXPECT_TRUE(a.holds(0, 1 << 20, 1)) << nth;
    a.object().set_faults(nullptr);
    b.object().set_faults(nullptr);
  }
}

TEST_F(RcLoss, EverySegmentTwiceChangesNothing) {
  make_lossy_pair();
  wire.segment = [](const Segment&) { return Fate::twice; };
  b.word(0) = 0;
  a.fill(1000, 300'000, 9);
  b.post_receive(1, 400'000, 300'000);
  b.post_receive(2, 0, 0);
  a.post_unrung(send(a, 1000, 300'000, 1));
  a.post_unrung(fetch_add(a, 0, b, 0, 1, 2));
  a.post_unrung(read(a, 500'000, 300'000, b, 400'000, 3));
  a.post_unrung(fetch_add(a, 8, b, 0, 1, 4));
  a.qp.ring();
  rig.run_for(20 * kTimeout14);
  for (int i = 1; i <= 4; ++i)
    EXPECT_DONE(sent(a), i);
  EXPECT_DONE(received(b), 1);
  EXPECT_TRUE(nothing_received(b));
  EXPECT_EQ(b.word(0), 2u);
  EXPECT_EQ(std::memcmp(a.bytes(500'000), a.bytes(1000), 300'000), 0);
}

TEST_F(RcLoss, ASegmentThatComesLateIsADuplicate) {
  make_lossy_pair();
  std::optional<Held> held;
  wire.segment = [&](const Segment& s) {
    if (held || s.kind != SegmentKind::write) return Fate::delivered;
    held.emplace(s);
    return Fate::held;
  };
  a.fill(0, 64, 1);
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(write(a, 0, 64, b, 64, 2));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(a), 2);
  std::memset(b.bytes(), 0, 64);
  a.object().inject(held->segment);
  EXPECT_EQ(b.bytes()[0], std::byte{0}) << "it was executed again";
  EXPECT_EQ(a.state(), KH_QPS_RTS);
}

TEST_F(RcLoss, TwoSegmentsInTheWrongOrderCostOneRetry) {
  make_lossy_pair();
  std::optional<Held> held;
  wire.segment = [&](const Segment& s) {
    if (!held && s.kind == SegmentKind::write) {
      held.emplace(s);
      return Fate::held;
    }
    return Fate::delivered;
  };
  a.fill(0, 1 << 20, 3);
  a.post(write(a, 0, 1 << 20, b, 0, 1));
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(b.holds(0, 1 << 20, 3));
  EXPECT_EQ(a.stat(KH_STAT_RETRANSMITS), 1u);
}

TEST_F(RcLoss, ASegmentThatIsCutDifferentlyTheSecondTimeIsTakenFromWhereItIsNew) {
  make_lossy_pair();
  a.fill(0, 4096, 1);
  // The first packet of four arrives, as a wire could have it; then the whole message comes again.
  wire.segment = [this, cut = false](const Segment& s) mutable {
    if (cut) return Fate::delivered;
    cut = true;
    Held packet(s);
    packet.segment.npsn = 1;
    packet.segment.last = false;
    packet.segment.length = 1024;
    packet.span.size = 1024;
    b.object().receive(packet.segment);
    std::memset(b.bytes(), 0, 1024);
    return Fate::delivered;
  };
  a.post(write(a, 0, 4096, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(b.bytes()[0], std::byte{0}) << "the first packet was executed twice";
  EXPECT_EQ(std::memcmp(b.bytes(1024), a.bytes(1024), 3072), 0);
}

TEST_F(RcLoss, APeerThatNeverAnswersExhaustsTheRetries) {
  Connection link;
  link.retry_cnt = 3;
  make_lossy_pair(link);
  wire.segment = [](const Segment&) { return Fate::lost; };
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(write(a, 0, 64, b, 0, 2));
  a.qp.ring();
  rig.run_for(3 * kTimeout14 + kTimeout14 / 2);
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(kTimeout14);
  EXPECT_ERROR(sent(a), 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
  EXPECT_ERROR(sent(a), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(a.stat(KH_STAT_RETRANSMITS), 3u);
  EXPECT_EQ(a.stat(KH_STAT_RETRY_EXCEEDED), 1u);
  EXPECT_EQ(a.state(), KH_QPS_ERR);
}

TEST_F(RcLoss, ATimeoutOfZeroWaitsForEver) {
  Connection link;
  link.timeout = 0;
  make_lossy_pair(link);
  wire.segment = [](const Segment&) { return Fate::lost; };
  a.post(write(a, 0, 64, b, 0, 1));
  rig.run_for(1'000'000'000'000);
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_EQ(a.state(), KH_QPS_RTS);
}

TEST_F(RcLoss, ProgressGivesTheRetriesBack) {
  Connection link;
  link.retry_cnt = 1;
  make_lossy_pair(link);
  // Every second segment is lost: more losses than retries, but never two without progress.
  wire.segment = [n = 0](const Segment& s) mutable {
    return s.kind == SegmentKind::write && n++ % 2 == 0 ? Fate::lost : Fate::delivered;
  };
  for (int i = 0; i < 10; ++i) {
    a.post(write(a, 0, 64, b, 0, i));
    rig.run_for(3 * kTimeout14);
    EXPECT_DONE(sent(a), i);
  }
}

TEST_F(RcLoss, APeerInTheWrongStateIsTriedUntilTheRetriesEnd) {
  for (uint8_t state : {KH_QPS_RESET, KH_QPS_ERR}) {
    Connection link;
    link.retry_cnt = 2;
    make_pair(EndOptions{}, link);
    ASSERT_EQ(set_state(b, state), KH_ST_OK);
    a.post(write(a, 0, 64, b, 0, 1));
    EXPECT_TRUE(nothing_sent(a));
    rig.run_for(5 * kTimeout14);
    EXPECT_ERROR(sent(a), 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
  }
}

TEST_F(RcLoss, APeerThatBecomesReadyInTimeIsReached) {
  a = make_end(0);
  b = make_end(1);
  Connection link;
  to_rtr(a, b, link, link.psn_back);
  to_rts(a, link, link.psn_forth);
  a.fill(0, 64, 1);
  a.post(write(a, 0, 64, b, 0, 1));
  EXPECT_TRUE(nothing_sent(a));
  to_rtr(b, a, link, link.psn_forth);
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(b.holds(0, 64, 1));
}

TEST_F(RcLoss, APeerThatIsDestroyedIsTriedUntilTheRetriesEnd) {
  make_pair();
  a.post(write(a, 0, 1 << 20, b, 0, 1));
  rig.fabric().run();
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_QP, b.qp.qpn), KH_ST_OK);
  rig.run_for(20 * kTimeout14);
  kh_cqe cqe = sent(a);
  if (cqe.status != KH_WC_SUCCESS) EXPECT_ERROR(cqe, 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
}

TEST_F(RcLoss, AQueuePairThatIsDestroyedWhileItAnswersAReadLeavesNothingBehind) {
  Connection link;
  link.retry_cnt = 0;
  make_pair(EndOptions{}, link);
  a.post(read(a, 0, 1 << 20, b, 0, 1));
  rig.fabric().run();
  EXPECT_EQ(b.driver->destroy(KH_ADM_DESTROY_QP, b.qp.qpn), KH_ST_OK);
  rig.run_for(5 * kTimeout14);
  kh_cqe cqe = sent(a);
  if (cqe.status != KH_WC_SUCCESS) EXPECT_ERROR(cqe, 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
}

TEST_F(RcLoss, AStrangerIsNotHeard) {
  make_pair();
  // c speaks to b, but b is connected to a.
  End c = make_end(0);
  Connection link;
  link.retry_cnt = 0;
  to_rtr(c, b, link, link.psn_back);
  to_rts(c, link, link.psn_forth);
  std::memset(b.bytes(), 0, 64);
  c.fill(0, 64, 1);
  c.post(write(c, 0, 64, b, 0, 1));
  rig.run_for(3 * kTimeout14);
  EXPECT_ERROR(sent(c), 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
  EXPECT_FALSE(b.holds(0, 64, 1));
  EXPECT_EQ(b.state(), KH_QPS_RTS);
}

TEST_F(RcLoss, APathWhoseGidIsRemovedIsRetriedAndFails) {
  Connection link;
  link.retry_cnt = 1;
  make_pair(EndOptions{}, link);
  kh_admin_cmd remove = FakeDriver::make(KH_ADM_SET_GID);
  remove.set_gid.index = 0;
  remove.set_gid.vlan = KH_VLAN_NONE;
  b.driver->must(remove);
  a.post(write(a, 0, 64, b, 0, 1));
  rig.run_for(3 * kTimeout14);
  EXPECT_ERROR(sent(a), 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
}

TEST_F(RcLoss, APortThatGoesDownAndComesBackCostsOnlyTime) {
  make_pair();
  kh_admin_cmd port = FakeDriver::make(KH_ADM_SET_PORT);
  std::memcpy(port.set_port.mac, b.driver->mac.bytes.data(), 6);
  port.set_port.mtu = 4200;
  b.driver->must(port);
  a.post(write(a, 0, 64, b, 0, 1));
  EXPECT_TRUE(nothing_sent(a));
  port.set_port.flags = KH_PORT_UP | KH_PORT_RDMA;
  b.driver->must(port);
  rig.run_for(2 * kTimeout14);
  EXPECT_DONE(sent(a), 1);
}

// --- No receive is posted --------------------------------------------------------------------

TEST_F(RcLoss, ASendWithoutAReceiveIsTriedAgainAfterTheRnrTime) {
  make_pair();  // RNR timer 12: 640 us
  a.fill(0, 64, 1);
  a.post(send(a, 0, 64, 1));
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_EQ(b.stat(KH_STAT_RNR_NAKS_SENT), 1u);
  b.post_receive(5, 0, 64);
  rig.run_for(600'000);
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(100'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(received(b), 5);
  EXPECT_TRUE(b.holds(0, 64, 1));
}

TEST_F(RcLoss, TheRnrRetriesEndInAnError) {
  Connection link;
  link.rnr_retry = 2;
  make_pair(EndOptions{}, link);
  a.post_unrung(send(a, 0, 64, 1));
  a.post_unrung(send(a, 0, 64, 2));
  a.qp.ring();
  rig.run_for(640'000 + 300'000);
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(640'000);
  EXPECT_ERROR(sent(a), 1, KH_WC_RNR_RETRY_EXC_ERR, KH_SYN_RNR);
  EXPECT_ERROR(sent(a), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(a.stat(KH_STAT_RNR_NAKS_RECEIVED), 3u);
  EXPECT_EQ(a.stat(KH_STAT_RNR_RETRY_EXCEEDED), 1u);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
}

TEST_F(RcLoss, SevenRnrRetriesAreWithoutEnd) {
  make_pair();
  a.post(send(a, 0, 64, 1));
  rig.run_for(100'000'000);
  EXPECT_GT(b.stat(KH_STAT_RNR_NAKS_SENT), 100u);
  b.post_receive(5, 0, 64);
  rig.run_for(1'000'000);
  EXPECT_DONE(sent(a), 1);
}

TEST_F(RcLoss, NoRnrRetriesFailAtOnce) {
  Connection link;
  link.rnr_retry = 0;
  make_pair(EndOptions{}, link);
  a.post(send(a, 0, 64, 1));
  EXPECT_ERROR(sent(a), 1, KH_WC_RNR_RETRY_EXC_ERR, KH_SYN_RNR);
}

TEST_F(RcLoss, WritesBeforeASendWithoutAReceiveComplete) {
  make_pair();
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(send(a, 0, 64, 2));
  a.post_unrung(write(a, 0, 64, b, 0, 3));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(nothing_sent(a));
  b.post_receive(5, 0, 64);
  rig.run_for(1'000'000);
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(sent(a), 3);
}

TEST_F(RcLoss, AWriteWithImmediateWaitsForAReceiveBeforeItWrites) {
  make_pair();
  std::memset(b.bytes(), 0, 64);
  a.fill(0, 64, 1);
  Work work = write(a, 0, 64, b, 0, 1);
  work.opcode = KH_OP_WRITE_IMM;
  a.post(work);
  EXPECT_TRUE(nothing_sent(a));
  b.post_receive(5, 0, 0);
  rig.run_for(1'000'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(received(b), 5);
  EXPECT_TRUE(b.holds(0, 64, 1));
}

TEST_F(RcLoss, AnEmptySrqIsRnrToo) {
  b = make_end(1);
  TestSrq srq = b.driver->create_srq(b.pdn, 4);
  EndOptions shared;
  shared.srqn = srq.srqn;
  shared.pdn = b.pdn;
  End c = make_end(1, shared);
  a = make_end(0);
  connect(a, c);
  a.post(send(a, 0, 64, 1));
  EXPECT_TRUE(nothing_sent(a));
  kh_sge sge = c.at(0, 64);
  srq.post(3, {&sge, 1});
  rig.run_for(1'000'000);
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(received(c), 3);
}

TEST_F(RcLoss, TheRnrTimesAreThoseOfTheSpecification) {
  EXPECT_EQ(rnr_delay_ns(0), 655'360'000u);
  EXPECT_EQ(rnr_delay_ns(1), 10'000u);
  EXPECT_EQ(rnr_delay_ns(12), 640'000u);
  EXPECT_EQ(rnr_delay_ns(14), 1'280'000u);
  EXPECT_EQ(rnr_delay_ns(31), 491'520'000u);
}

// --- A request that changes under way --------------------------------------------------------

TEST_F(RcLoss, ARequestThatIsChangedBeforeItIsSentAgainIsRefused) {
  make_lossy_pair();
  wire.segment = [](const Segment&) { return Fate::lost; };
  a.post_unrung(write(a, 0, 64, b, 0, 1));
  a.post_unrung(write(a, 0, 64, b, 64, 2));
  a.qp.ring();
  rig.run();
  // Longer, so that its packets would no longer be the ones that were counted.
  auto* sge = reinterpret_cast<kh_sge*>(a.qp.sq + 32);
  sge->length = 100'000;
  wire.segment = [](const Segment&) { return Fate::delivered; };
  rig.run_for(2 * kTimeout14);
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_MEMORY);
  EXPECT_ERROR(sent(a), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

}  // namespace
}  // namespace keyhole::test
