// SPDX-License-Identifier: BSD-2-Clause
//
// Reliable connections when software is wrong: each mistake has its completion, its syndrome, its
// state and its event, and what is posted behind it is flushed.

#include <cstring>

#include "two_ends.h"

namespace keyhole::test {
namespace {

class RcError : public TransportTest {
 protected:
  // Posts `bad` and one more; expects the error, a flush, and the error state.
  void expect_local(const Work& bad, kh_cqe_status status, uint32_t syndrome) {
    make_pair();
    expect_local_on_pair(bad, status, syndrome);
  }
  void expect_local_on_pair(const Work& bad, kh_cqe_status status, uint32_t syndrome) {
    a.post_unrung(write(a, 0, 8, b, 0, 1));
    a.post_unrung(bad);
    a.post_unrung(write(a, 0, 8, b, 0, 3));
    a.qp.ring();
    EXPECT_DONE(sent(a), 1);
    EXPECT_ERROR(sent(a), bad.wr_id, status, syndrome);
    EXPECT_ERROR(sent(a), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
    EXPECT_EQ(a.state(), KH_QPS_ERR);
    EXPECT_EQ(b.state(), KH_QPS_RTS) << "the peer does not know";
  }
  // The same for what the responder refuses. `event` 0: none.
  void expect_remote(const Work& bad, kh_cqe_status status, uint32_t syndrome, int event_kind) {
    a.post_unrung(bad);
    a.post_unrung(write(a, 0, 8, b, 0, 3));
    a.qp.ring();
    EXPECT_ERROR(sent(a), bad.wr_id, status, syndrome);
    EXPECT_ERROR(sent(a), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
    EXPECT_EQ(a.state(), KH_QPS_ERR);
    EXPECT_EQ(b.state(), KH_QPS_ERR);
    if (event_kind) {
      auto eqe = event(b, static_cast<kh_event>(event_kind));
      ASSERT_TRUE(eqe.has_value());
      EXPECT_EQ(eqe->id, b.qp.qpn);
    }
  }
};

TEST_F(RcError, AnUnknownOpcodeIsAQpOperationError) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.opcode = 200;
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_OPCODE);
}

TEST_F(RcError, OpcodesThatAreNotOfferedAreRefused) {
  make_pair();
  Work work;
  work.opcode = KH_OP_REG_MR;
  work.wr_id = 2;
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_OPCODE);
}

TEST_F(RcError, UnknownFlagsAreRefused) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.flags |= 0x40;
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_FLAGS);
}

TEST_F(RcError, InlineDataInAReadIsRefused) {
  make_pair();
  Work work = read(a, 0, 0, b, 0, 2);
  work.sge.clear();
  work.flags |= KH_WQE_INLINE;
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_FLAGS);
}

TEST_F(RcError, MoreEntriesThanTheQueuePairAllowsAreRefused) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.sge.assign(17, a.at(0, 1));
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
}

TEST_F(RcError, EntriesBeyondTheBlocksOfTheRequestAreRefused) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.num_sge = 3;  // two fit into the block
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
}

TEST_F(RcError, TooMuchInlineDataIsRefused) {
  make_pair();
  Work work = write(a, 0, 0, b, 0, 2);
  work.sge.clear();
  work.flags |= KH_WQE_INLINE;
  work.inline_data.resize(KH_MAX_INLINE + 1);
  expect_local_on_pair(work, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
}

TEST_F(RcError, ARequestOfNoBlocksTakesAllThatIsPostedWithIt) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.nblocks = 0;
  a.post_unrung(work);
  a.post_unrung(write(a, 0, 8, b, 0, 3));
  a.qp.ring();
  kh_cqe cqe = sent(a);
  EXPECT_ERROR(cqe, 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
  EXPECT_EQ(cqe.sq_index, 2u);
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_EQ(a.state(), KH_QPS_ERR);
}

TEST_F(RcError, ARequestThatReachesBeyondTheProducerIndexIsRefused) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.nblocks = 2;
  a.post(work);
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
}

TEST_F(RcError, AnAtomicNeedsOneEntryOfEightBytes) {
  make_pair();
  Work work = fetch_add(a, 0, b, 0, 1, 2);
  work.sge[0].length = 4;
  expect_local_on_pair(work, KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH);
}

TEST_F(RcError, AWriteFromAnUnknownKeyIsALocalProtectionError) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.sge[0].lkey = 0xffffff00;
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
}

TEST_F(RcError, AWriteFromBehindTheRegionIsALocalProtectionError) {
  make_pair();
  Work work = write(a, a.region.size - 4, 8, b, 0, 2);
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(RcError, AnEntryThatWrapsAroundTheAddressSpaceIsRefused) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.sge[0].addr = ~uint64_t{0} - 3;
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_RANGE);
}

TEST_F(RcError, AKeyOfAnotherPdIsALocalProtectionError) {
  make_pair();
  uint32_t pdn = a.driver->create_pd();
  TestRegion other = a.driver->create_region(pdn, 4096, KH_ACCESS_LOCAL_WRITE);
  Work work = write(a, 0, 8, b, 0, 2);
  work.sge[0] = {other.start, 8, other.key};
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_PD);
}

TEST_F(RcError, AReadIntoAReadOnlyRegionIsALocalProtectionError) {
  make_pair();
  TestRegion read_only = a.driver->create_region(a.pdn, 4096, 0);
  Work work = read(a, 0, 8, b, 0, 2);
  work.sge[0] = {read_only.start, 8, read_only.key};
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_RIGHTS);
}

TEST_F(RcError, AnAtomicWithNowhereToPutItsResultIsNotExecuted) {
  make_pair();
  b.word(64) = 5;
  Work work = fetch_add(a, 0, b, 64, 1, 2);
  work.sge[0].lkey ^= 1;
  expect_local_on_pair(work, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
  EXPECT_EQ(b.word(64), 5u);
}

TEST_F(RcError, AReadOnAQueuePairWithoutReadResourcesIsRefused) {
  Connection link;
  link.max_rd_atomic = 0;
  make_pair(EndOptions{}, link);
  expect_local_on_pair(read(a, 0, 8, b, 0, 2), KH_WC_LOC_QP_OP_ERR, KH_SYN_NO_RD_ATOMIC);
}

TEST_F(RcError, MemoryThatTheGuestTakesAwayIsAProtectionErrorAtItsOwnSide) {
  make_pair();
  a.host->unmap(a.bytes(8192), 4096);
  a.post(write(a, 8192, 8, b, 0, 2));
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_MEMORY);
}

TEST_F(RcError, MemoryThatTheGuestTakesAwayIsARemoteAccessErrorAtTheOther) {
  make_pair();
  b.host->unmap(b.bytes(8192), 4096);
  expect_remote(write(a, 0, 8, b, 8192, 2), KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS,
                KH_EV_QP_ACCESS_ERR);
}

TEST_F(RcError, AWriteThroughAnUnknownKeyIsARemoteAccessError) {
  make_pair();
  Work work = write(a, 0, 8, b, 0, 2);
  work.rkey ^= 1;
  expect_remote(work, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS, KH_EV_QP_ACCESS_ERR);
}

TEST_F(RcError, AWriteThatDoesNotFitIntoTheRegionChangesNothing) {
  make_pair();
  std::memset(b.bytes(), 0, b.region.size);
  a.fill(0, 400'000, 1);
  expect_remote(write(a, 0, 400'000, b, b.region.size - 300'000, 2), KH_WC_REM_ACCESS_ERR,
                KH_SYN_NAK_ACCESS, KH_EV_QP_ACCESS_ERR);
  EXPECT_EQ(b.bytes()[b.region.size - 300'000], std::byte{0});
}

TEST_F(RcError, ARegionWithoutTheRightIsARemoteAccessErrorForEachOperation) {
  for (uint8_t opcode : {KH_OP_WRITE, KH_OP_READ, KH_OP_FETCH_ADD}) {
    EndOptions options;
    options.access = KH_ACCESS_LOCAL_WRITE;
    make_pair(options);
    Work work = fetch_add(a, 0, b, 0, 1, 2);
    work.opcode = opcode;
    expect_remote(work, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS, KH_EV_QP_ACCESS_ERR);
  }
}

TEST_F(RcError, AQueuePairWithoutTheRightIsAnInvalidRequestForEachOperation) {
  for (uint8_t opcode : {KH_OP_WRITE, KH_OP_READ, KH_OP_FETCH_ADD}) {
    Connection link;
    link.access = 0;
    make_pair(EndOptions{}, link);
    Work work = fetch_add(a, 0, b, 0, 1, 2);
    work.opcode = opcode;
    expect_remote(work, KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID, KH_EV_QP_REQ_ERR);
  }
}

TEST_F(RcError, AZeroLengthWriteAndReadDoNotLookAtTheirKey) {
  make_pair();
  Work work = write(a, 0, 0, b, 0, 1);
  work.rkey = 0xabcdef;
  work.remote_addr = 1;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  work.opcode = KH_OP_READ;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  work.sge.clear();
  a.post(work);
  EXPECT_DONE(sent(a), 1);
}

TEST_F(RcError, AMisalignedAtomicIsAnInvalidRequest) {
  make_pair();
  expect_remote(fetch_add(a, 0, b, 4, 1, 2), KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID,
                KH_EV_QP_REQ_ERR);
}

TEST_F(RcError, AnAtomicWhereTheMemoryItselfIsMisalignedIsAnInvalidRequest) {
  make_pair();
  // Key addresses are congruent to 4 modulo 8 with the memory behind them.
  kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
  command.create_mkey.kind = KH_MKEY_DIRECT;
  command.create_mkey.pdn = b.pdn;
  command.create_mkey.access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_ATOMIC;
  command.create_mkey.start = 0x1000;
  command.create_mkey.length = 4096;
  std::byte* memory = b.host->allocate(8192);
  command.create_mkey.pages = b.host->pages(memory, 8192);
  command.create_mkey.offset = 4;
  Work work = fetch_add(a, 0, b, 0, 1, 2);
  work.rkey = b.driver->must(command).result[0];
  work.remote_addr = 0x1000;
  expect_remote(work, KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID, KH_EV_QP_REQ_ERR);
}

TEST_F(RcError, AReadAtAResponderWithoutResourcesIsAnInvalidRequest) {
  Connection link;
  link.max_dest_rd_atomic = 0;
  make_pair(EndOptions{}, link);
  expect_remote(read(a, 0, 8, b, 0, 2), KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID,
                KH_EV_QP_REQ_ERR);
}

TEST_F(RcError, ASendLongerThanTheReceiveFailsAtBothEnds) {
  make_pair();
  b.post_receive(7, 0, 100);
  b.post_receive(8, 0, 100);
  expect_remote(send(a, 0, 101, 2), KH_WC_REM_INV_REQ_ERR, KH_SYN_NAK_INVALID, 0);
  EXPECT_ERROR(received(b), 7, KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH);
  EXPECT_ERROR(received(b), 8, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(RcError, AReceiveWithABadKeyFailsAtBothEnds) {
  make_pair();
  kh_sge sge = b.at(0, 100);
  sge.lkey ^= 1;
  b.qp.post_receive(7, {&sge, 1});
  expect_remote(send(a, 0, 100, 2), KH_WC_REM_OP_ERR, KH_SYN_NAK_OP, 0);
  EXPECT_ERROR(received(b), 7, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
}

TEST_F(RcError, ABadKeyThatAMessageDoesNotReachIsNotLookedAt) {
  make_pair();
  std::vector<kh_sge> entries = {b.at(0, 100), b.at(100, 100)};
  entries[1].lkey ^= 1;
  b.qp.post_receive(7, entries);
  a.post(send(a, 0, 100, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(received(b), 7);
}

TEST_F(RcError, AReceiveThatClaimsTooManyEntriesFails) {
  make_pair();
  b.post_receive(7, 0, 100);
  reinterpret_cast<kh_rwqe*>(b.qp.rq)->num_sge = 1000;
  expect_remote(send(a, 0, 100, 2), KH_WC_REM_OP_ERR, KH_SYN_NAK_OP, 0);
  EXPECT_ERROR(received(b), 7, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_SIZE);
}

TEST_F(RcError, AnErrorWaitsForTheRequestsBeforeIt) {
  make_pair();
  a.post_unrung(read(a, 0, 700'000, b, 0, 1));
  Work bad = write(a, 0, 8, b, 0, 2);
  bad.sge[0].lkey ^= 1;
  a.post_unrung(bad);
  a.post_unrung(write(a, 0, 8, b, 0, 3));
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
  EXPECT_ERROR(sent(a), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(RcError, UnsignaledRequestsCompleteWhenTheyFailOrAreFlushed) {
  make_pair();
  Work bad = write(a, 0, 8, b, 0, 1);
  bad.flags = 0;
  bad.rkey ^= 1;
  a.post_unrung(bad);
  Work flushed = write(a, 0, 8, b, 0, 2);
  flushed.flags = 0;
  a.post_unrung(flushed);
  a.qp.ring();
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  kh_cqe cqe = sent(a);
  EXPECT_ERROR(cqe, 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(cqe.sq_index, 2u);
}

TEST_F(RcError, AProducerIndexBeyondTheRingEndsInAFatalEvent) {
  make_pair();
  a.qp.db->sq_pi = 0x12345678;
  a.driver->ring(a.qp.context, a.qp.slot);
  auto eqe = event(a, KH_EV_QP_FATAL);
  ASSERT_TRUE(eqe.has_value());
  EXPECT_EQ(eqe->id, a.qp.qpn);
  EXPECT_EQ(eqe->data, uint32_t{KH_SYN_WQE_RING});
  EXPECT_EQ(a.state(), KH_QPS_ERR);
  EXPECT_TRUE(nothing_sent(a));
}

TEST_F(RcError, AProducerIndexThatGoesBackwardsEndsInAFatalEvent) {
  make_pair();
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  a.qp.db->sq_pi = 0;
  a.driver->ring(a.qp.context, a.qp.slot);
  EXPECT_TRUE(event(a, KH_EV_QP_FATAL).has_value());
}

TEST_F(RcError, AReceiveIndexBeyondTheRingEndsInAFatalEvent) {
  make_pair();
  b.qp.db->rq_pi = 65;
  expect_remote(send(a, 0, 8, 2), KH_WC_REM_OP_ERR, KH_SYN_NAK_OP, KH_EV_QP_FATAL);
}

TEST_F(RcError, ASendQueueWhoseMemoryGoesAwayEndsInAFatalEvent) {
  make_pair();
  a.post_unrung(write(a, 0, 8, b, 0, 1));
  a.host->unmap(a.qp.memory, a.qp.memory_size);
  a.driver->ring(a.qp.context, a.qp.slot);
  auto eqe = event(a, KH_EV_QP_FATAL);
  ASSERT_TRUE(eqe.has_value());
  EXPECT_EQ(eqe->data, uint32_t{KH_SYN_WQE_MEMORY});
  EXPECT_EQ(a.state(), KH_QPS_ERR);
}

TEST_F(RcError, ACqOverrunTakesItsQueuePairIntoTheErrorState) {
  EndOptions options;
  options.log_cq = 2;
  make_pair(options);
  for (int i = 0; i < 8; ++i)
    a.post_unrung(write(a, 0, 8, b, 0, i));
  a.qp.ring();
  EXPECT_TRUE(event(a, KH_EV_CQ_ERR).has_value());
  EXPECT_EQ(a.state(), KH_QPS_ERR);
}

class RcGone : public RcError {
 protected:
  RcGone() {
    EndOptions large;
    large.region = 16 << 20;
    make_pair(large);
  }
  // Some turns: neither nothing nor all of 16 MiB.
  void run_a_little() {
    rig.fabric().run();
    rig.fabric().run();
    kh_cqe cqe{};
    ASSERT_FALSE(a.send_cq.poll(cqe));
  }
};

TEST_F(RcGone, ADestroyedRegionStopsAWriteInItsMiddle) {
  a.fill(0, 16 << 20, 1);
  a.post(write(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  EXPECT_EQ(b.bytes()[0], a.bytes()[0]);
  b.hca->mkeys().destroy(b.region.key).value();
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  EXPECT_NE(b.bytes()[(16 << 20) - 1], a.bytes()[(16 << 20) - 1]);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(RcGone, ADestroyedSourceStopsAWriteInItsMiddle) {
  a.post(write(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  a.hca->mkeys().destroy(a.region.key).value();
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
}

TEST_F(RcGone, ADestroyedRegionStopsAReadInItsMiddle) {
  a.post(read(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  b.hca->mkeys().destroy(b.region.key).value();
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_ACCESS_ERR, KH_SYN_NAK_ACCESS);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
  EXPECT_TRUE(event(b, KH_EV_QP_ACCESS_ERR).has_value());
}

TEST_F(RcGone, ADestroyedDestinationStopsAReadInItsMiddle) {
  a.post(read(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  a.hca->mkeys().destroy(a.region.key).value();
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
}

TEST_F(RcGone, ADestroyedReceiveBufferStopsASendInItsMiddle) {
  b.post_receive(5, 0, 16 << 20);
  a.post(send(a, 0, 16 << 20, 1));
  run_a_little();
  b.hca->mkeys().destroy(b.region.key).value();
  EXPECT_ERROR(sent(a), 1, KH_WC_REM_OP_ERR, KH_SYN_NAK_OP);
  EXPECT_ERROR(received(b), 5, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_NONE);
}

TEST_F(RcGone, AnHcaThatIsResetInTheMiddleOfAWriteIsTriedUntilTheRetriesEnd) {
  a.post(write(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  b.hca->reset();
  EXPECT_TRUE(nothing_sent(a));
  rig.run_for(16 * (uint64_t{4096} << 14));
  EXPECT_ERROR(sent(a), 1, KH_WC_RETRY_EXC_ERR, KH_SYN_RETRY);
}

TEST_F(RcGone, AnHcaThatIsResetWhileItReadsLeavesThePeerInPeace) {
  a.post(read(a, 0, 16 << 20, b, 0, 1));
  run_a_little();
  a.hca->reset();
  rig.run_for(1'000'000'000);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
}

TEST_F(RcGone, AQueuePairThatIsDestroyedInTheMiddleOfItsWriteLeavesThePeerInPeace) {
  a.post(write(a, 0, 16 << 20, b, 0, 1));
  rig.fabric().run();
  EXPECT_EQ(a.driver->destroy(KH_ADM_DESTROY_QP, a.qp.qpn), KH_ST_OK);
  rig.run_for(1'000'000'000);
  EXPECT_EQ(b.state(), KH_QPS_RTS);
  EXPECT_TRUE(nothing_sent(a));
}

}  // namespace
}  // namespace keyhole::test
