// SPDX-License-Identifier: BSD-2-Clause
//
// The states of a queue pair, and what MODIFY_QP takes and refuses.

#include <algorithm>
#include <cstring>

#include "hca/transport/qp_transitions.h"
#include "two_ends.h"

namespace keyhole::test {
namespace {

class State : public TransportTest {
 protected:
  kh_admin_cqe modify(End& end, const kh_qp_attr& attr) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_MODIFY_QP, end.qp.qpn);
    command.modify_qp = attr;
    return end.driver->command(command);
  }
  void expect_refused(End& end, const kh_qp_attr& attr, size_t offset) {
    uint8_t before = end.state();
    kh_admin_cqe cqe = modify(end, attr);
    EXPECT_EQ(cqe.status, KH_ST_INVAL);
    EXPECT_EQ(cqe.syndrome, sizeof(kh_admin_hdr) + offset);
    EXPECT_EQ(end.state(), before) << "a refused command has changed something";
  }
  // Brings a new queue pair into a state, by the shortest way.
  End in_state(uint8_t type, uint8_t state) {
    EndOptions options;
    options.type = type;
    options.region = 4096;
    End end = make_end(0, options);
    End peer = make_end(1, options);
    Connection link;
    auto step = [&](const kh_qp_attr& attr) { EXPECT_EQ(modify(end, attr).status, KH_ST_OK); };
    if (state == KH_QPS_RESET) return end;
    step(init_attr(end, link));
    if (state == KH_QPS_INIT) return end;
    if (state != KH_QPS_ERR) {
      step(rtr_attr(end, peer, link, 0));
      if (state == KH_QPS_RTR) return end;
      step(rts_attr(end, link, 0));
    }
    if (state == KH_QPS_SQD || state == KH_QPS_ERR) {
      EXPECT_EQ(set_state(end, state), KH_ST_OK);
    }
    if (state == KH_QPS_SQE) {
      // A send from a bad key.
      Work work = send(end, 0, 8);
      work.sge[0].lkey ^= 1;
      work.av = end.driver->path_to(*peer.driver);
      end.post(work);
      rig.run();
    }
    EXPECT_EQ(end.state(), state);
    return end;
  }
};

TEST_F(State, EveryTransitionOfTheVerbsExistsAndNoOther) {
  // Rows: from; columns: to. RESET INIT RTR RTS SQD SQE ERR
  const char* rc[] = {"11.....", "111...1", "1..1..1", "1..11.1", "1..11.1", "1.....1", "1.....1"};
  const char* ud[] = {"11.....", "111...1", "1..1..1", "1..11.1", "1..11.1", "1..1..1", "1.....1"};
  for (uint8_t type = KH_QPT_RC; type <= KH_QPT_GSI; ++type) {
    const char** table = type == KH_QPT_RC ? rc : ud;
    for (uint8_t from = 0; from < 7; ++from) {
      for (uint8_t to = 0; to < 7; ++to) {
        EXPECT_EQ(find_transition(type, from, to).exists, table[from][to] == '1')
            << int(type) << ": " << int(from) << " to " << int(to);
      }
    }
  }
  EXPECT_FALSE(find_transition(KH_QPT_RC, 0, 7).exists);
  EXPECT_FALSE(find_transition(4, 0, 1).exists);
}

TEST_F(State, EachRequiredAttributeIsAskedFor) {
  Connection link;
  for (uint8_t type : {KH_QPT_RC, KH_QPT_UC, KH_QPT_UD}) {
    for (uint8_t from : {KH_QPS_RESET, KH_QPS_INIT, KH_QPS_RTR}) {
      EndOptions options;
      options.type = type;
      End end = in_state(type, from);
      End peer = make_end(1, options);
      kh_qp_attr good = from == KH_QPS_RESET  ? init_attr(end, link)
                        : from == KH_QPS_INIT ? rtr_attr(end, peer, link, 0)
                                              : rts_attr(end, link, 0);
      for (uint32_t bit = 1; bit; bit <<= 1) {
        if (!(good.mask & bit) || bit == KH_QP_STATE) continue;
        kh_qp_attr attr = good;
        attr.mask &= ~bit;
        expect_refused(end, attr, offsetof(kh_qp_attr, mask));
      }
      EXPECT_EQ(modify(end, good).status, KH_ST_OK);
    }
  }
}

TEST_F(State, AttributesThatDoNotBelongToATransitionAreRefused) {
  End end = in_state(KH_QPT_RC, KH_QPS_RESET);
  kh_qp_attr attr = init_attr(end, {});
  attr.mask |= KH_QP_TIMEOUT;
  expect_refused(end, attr, offsetof(kh_qp_attr, mask));
  attr = init_attr(end, {});
  attr.mask |= 1u << 14;  // alternate paths: not of this device
  expect_refused(end, attr, offsetof(kh_qp_attr, mask));
  End ud = in_state(KH_QPT_UD, KH_QPS_RESET);
  attr = init_attr(ud, {});
  attr.mask |= KH_QP_ACCESS_FLAGS;
  expect_refused(ud, attr, offsetof(kh_qp_attr, mask));
}

TEST_F(State, EachFieldHasItsRange) {
  Connection link;
  End end = in_state(KH_QPT_RC, KH_QPS_RESET);
  End peer = make_end(1);
#define REFUSE(make, field, value)                          \
  {                                                         \
    kh_qp_attr attr = make;                                 \
    attr.field = value;                                     \
    expect_refused(end, attr, offsetof(kh_qp_attr, field)); \
  }
  kh_qp_attr init = init_attr(end, link);
  REFUSE(init, pkey_index, 1);
  REFUSE(init, port, 0);
  REFUSE(init, port, 2);
  REFUSE(init, access, KH_ACCESS_MW_BIND);
  REFUSE(init, access, 0x80);
  REFUSE(init, state, 7);
  ASSERT_EQ(modify(end, init).status, KH_ST_OK);
  kh_qp_attr rtr = rtr_attr(end, peer, link, 0);
  REFUSE(rtr, path_mtu, 0);
  REFUSE(rtr, path_mtu, 6);
  REFUSE(rtr, dest_qpn, 1u << 24);
  REFUSE(rtr, rq_psn, 1u << 24);
  REFUSE(rtr, max_dest_rd_atomic, KH_MAX_RD_ATOMIC + 1);
  REFUSE(rtr, min_rnr_timer, 32);
  REFUSE(rtr, av.sgid_index, 1);
  REFUSE(rtr, av.sgid_index, 255);
  REFUSE(rtr, av.sl, 16);
  REFUSE(rtr, av.flow_label, 1u << 20);
  {
    kh_qp_attr attr = rtr;
    std::memset(attr.av.dgid, 0, 16);
    expect_refused(end, attr, offsetof(kh_qp_attr, av.dgid));
    attr.av.dgid[0] = 0xff;
    expect_refused(end, attr, offsetof(kh_qp_attr, av.dgid));
    attr = rtr;
    attr.av.dmac[0] |= 1;
    expect_refused(end, attr, offsetof(kh_qp_attr, av.dmac));
    std::memset(attr.av.dmac, 0, 6);
    expect_refused(end, attr, offsetof(kh_qp_attr, av.dmac));
  }
  ASSERT_EQ(modify(end, rtr).status, KH_ST_OK);
  kh_qp_attr rts = rts_attr(end, link, 0);
  REFUSE(rts, timeout, 32);
  REFUSE(rts, retry_cnt, 8);
  REFUSE(rts, rnr_retry, 8);
  REFUSE(rts, max_rd_atomic, KH_MAX_RD_ATOMIC + 1);
  REFUSE(rts, sq_psn, 1u << 24);
  ASSERT_EQ(modify(end, rts).status, KH_ST_OK);
#undef REFUSE
}

TEST_F(State, ALocalRightAmongTheAccessFlagsIsIgnored) {
  End end = in_state(KH_QPT_RC, KH_QPS_RESET);
  kh_qp_attr attr = init_attr(end, {});
  attr.access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_READ;
  EXPECT_EQ(modify(end, attr).status, KH_ST_OK);
}

TEST_F(State, ACurrentStateThatIsNotTrueIsRefused) {
  End end = in_state(KH_QPT_RC, KH_QPS_RTS);
  kh_qp_attr attr{};
  attr.mask = KH_QP_CUR_STATE | KH_QP_MIN_RNR_TIMER;
  attr.cur_state = KH_QPS_SQD;
  expect_refused(end, attr, offsetof(kh_qp_attr, cur_state));
  attr.cur_state = KH_QPS_RTS;
  EXPECT_EQ(modify(end, attr).status, KH_ST_OK);
}

TEST_F(State, QueryTellsWhatModifySet) {
  make_pair();
  kh_qp_attr attr = a.driver->query_qp(a.qp);
  EXPECT_EQ(attr.state, KH_QPS_RTS);
  EXPECT_EQ(attr.cur_state, KH_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, 3);
  EXPECT_EQ(attr.access, KH_ACCESS_REMOTE);
  EXPECT_EQ(attr.dest_qpn, b.qp.qpn);
  EXPECT_EQ(attr.sq_psn, 0x100u);
  EXPECT_EQ(attr.rq_psn, 0x900u);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.min_rnr_timer, 12);
  EXPECT_EQ(attr.max_rd_atomic, KH_MAX_RD_ATOMIC);
  EXPECT_EQ(attr.max_dest_rd_atomic, KH_MAX_RD_ATOMIC);
  EXPECT_EQ(attr.port, 1);
  kh_av path = a.driver->path_to(*b.driver);
  EXPECT_EQ(std::memcmp(&attr.av, &path, sizeof(path)), 0);
}

TEST_F(State, NothingIsSentBeforeRtsAndThenWhatWasPosted) {
  a = make_end(0);
  b = make_end(1);
  Connection link;
  to_rtr(a, b, link, link.psn_back);
  to_rtr(b, a, link, link.psn_forth);
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_TRUE(nothing_sent(a));
  to_rts(a, link, link.psn_forth);
  EXPECT_DONE(sent(a), 1);
}

TEST_F(State, TheFirstPacketInRtrReportsThatCommunicationIsEstablished) {
  a = make_end(0);
  b = make_end(1);
  Connection link;
  to_rtr(a, b, link, link.psn_back);
  to_rtr(b, a, link, link.psn_forth);
  to_rts(a, link, link.psn_forth);
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  auto eqe = event(b, KH_EV_COMM_EST);
  ASSERT_TRUE(eqe.has_value());
  EXPECT_EQ(eqe->id, b.qp.qpn);
  a.post(write(a, 0, 8, b, 0, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_FALSE(event(b, KH_EV_COMM_EST).has_value()) << "once only";
  to_rts(b, link, link.psn_back);
}

TEST_F(State, TheErrorStateFlushesEverythingInOrder) {
  make_pair();
  for (int i = 0; i < 3; ++i)
    a.post_receive(10 + i, 0, 8);
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);  // nobody answers
  for (int i = 0; i < 5; ++i) {
    Work work = write(a, 0, 8, b, 0, i);
    work.flags = 0;
    a.post_unrung(work);
  }
  a.qp.ring();
  rig.run();
  ASSERT_EQ(set_state(a, KH_QPS_ERR), KH_ST_OK);
  for (int i = 0; i < 5; ++i)
    EXPECT_ERROR(sent(a), i, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  for (int i = 0; i < 3; ++i)
    EXPECT_ERROR(received(a), 10 + i, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(State, WhatIsPostedInTheErrorStateIsFlushedToo) {
  make_pair();
  ASSERT_EQ(set_state(a, KH_QPS_ERR), KH_ST_OK);
  rig.run();
  EXPECT_EQ(a.qp.db->rq_notify, 1u);
  a.post(write(a, 0, 8, b, 0, 1));
  EXPECT_ERROR(sent(a), 1, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  a.post_receive(2, 0, 8);
  EXPECT_ERROR(received(a), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(State, AFlushOfAFullQueueTakesSeveralTurns) {
  EndOptions options;
  options.log_sq_blocks = 10;
  options.log_cq = 11;
  make_pair(options);
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);
  for (int i = 0; i < 1024; ++i)
    a.post_unrung(write(a, 0, 8, b, 0, i));
  a.qp.ring();
  rig.run();
  ASSERT_EQ(set_state(a, KH_QPS_ERR), KH_ST_OK);
  for (int i = 0; i < 1024; ++i)
    EXPECT_ERROR(sent(a), i, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(State, ResetForgetsWhatWasPostedAndTheQueuePairWorksAgain) {
  make_pair();
  a.post_receive(1, 0, 8);
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 1));
  rig.run();
  ASSERT_EQ(set_state(a, KH_QPS_RESET), KH_ST_OK);
  rig.run_for(1'000'000'000);
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_TRUE(nothing_received(a));
  for (End* end : {&a, &b}) {
    end->qp.sq_pi = end->qp.rq_pi = 0;
    end->qp.db->sq_pi = end->qp.db->rq_pi = 0;
  }
  connect(a, b);
  a.post_receive(2, 0, 8);
  b.post(send(b, 0, 8, 3));
  EXPECT_DONE(sent(b), 3);
  EXPECT_DONE(received(a), 2);
}

TEST_F(State, ResetTakesBackTheWishForReceiveMarks) {
  make_pair();
  ASSERT_EQ(set_state(a, KH_QPS_ERR), KH_ST_OK);
  rig.run();
  EXPECT_EQ(a.qp.db->rq_notify, 1u);
  ASSERT_EQ(set_state(a, KH_QPS_RESET), KH_ST_OK);
  EXPECT_EQ(a.qp.db->rq_notify, 0u);
}

TEST_F(State, SqdFinishesWhatIsUnderWayReportsItAndHoldsTheRest) {
  make_pair();
  b.fill(0, 800'000, 1);
  a.post(read(a, 0, 800'000, b, 0, 1));
  rig.fabric().run();
  ASSERT_EQ(set_state(a, KH_QPS_SQD, KH_QP_EN_SQD_ASYNC_NOTIFY), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 2));
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(event(a, KH_EV_SQ_DRAINED).has_value());
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_EQ(a.driver->query_qp(a.qp).sq_draining, 0);
  ASSERT_EQ(set_state(a, KH_QPS_RTS), KH_ST_OK);
  EXPECT_DONE(sent(a), 2);
}

TEST_F(State, ADrainingQueuePairTakesNoAttributesAndDoesNotGoBack) {
  make_pair();
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 1));
  rig.run();
  ASSERT_EQ(set_state(a, KH_QPS_SQD, KH_QP_EN_SQD_ASYNC_NOTIFY), KH_ST_OK);
  EXPECT_EQ(a.driver->query_qp(a.qp).sq_draining, 1);
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE;
  attr.state = KH_QPS_RTS;
  expect_refused(a, attr, offsetof(kh_qp_attr, state));
  EXPECT_EQ(set_state(a, KH_QPS_ERR), KH_ST_OK);
  EXPECT_ERROR(sent(a), 1, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
}

TEST_F(State, WithoutTheWishNoDrainIsReported) {
  make_pair();
  ASSERT_EQ(set_state(a, KH_QPS_SQD), KH_ST_OK);
  EXPECT_FALSE(event(a, KH_EV_SQ_DRAINED).has_value());
  EXPECT_EQ(a.driver->query_qp(a.qp).sq_draining, 0);
}

TEST_F(State, InSqdTheResponderGoesOnAndThePathMayChange) {
  make_pair();
  ASSERT_EQ(set_state(a, KH_QPS_SQD), KH_ST_OK);
  rig.run();
  b.post(write(b, 0, 8, a, 0, 1));
  EXPECT_DONE(sent(b), 1);
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE | KH_QP_AV | KH_QP_TIMEOUT | KH_QP_MAX_QP_RD_ATOMIC;
  attr.state = KH_QPS_SQD;
  attr.av = a.driver->path_to(*b.driver);
  attr.timeout = 10;
  attr.max_rd_atomic = 1;
  EXPECT_EQ(modify(a, attr).status, KH_ST_OK);
  EXPECT_EQ(a.driver->query_qp(a.qp).timeout, 10);
}

TEST_F(State, AnUnreliableQueuePairThatFailsToSendGoesToSqeAndIsMendedByRts) {
  EndOptions options;
  options.type = KH_QPT_UC;
  make_pair(options);
  Work bad = write(a, 0, 8, b, 0, 1);
  bad.sge[0].lkey ^= 1;
  a.post_unrung(bad);
  a.post_unrung(write(a, 0, 8, b, 0, 2));
  a.qp.ring();
  EXPECT_ERROR(sent(a), 1, KH_WC_LOC_PROT_ERR, KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE);
  EXPECT_ERROR(sent(a), 2, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(a.state(), KH_QPS_SQE);
  a.post(write(a, 0, 8, b, 0, 3));
  EXPECT_ERROR(sent(a), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  // Receives go on.
  a.post_receive(4, 0, 8);
  b.post(send(b, 0, 8, 5));
  EXPECT_DONE(sent(b), 5);
  EXPECT_DONE(received(a), 4);
  ASSERT_EQ(set_state(a, KH_QPS_RTS), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 6));
  EXPECT_DONE(sent(a), 6);
}

TEST_F(State, AQueuePairWithAnSrqReportsItsLastReceiveWhenItFails) {
  b = make_end(1);
  TestSrq srq = b.driver->create_srq(b.pdn, 4);
  EndOptions shared;
  shared.srqn = srq.srqn;
  shared.pdn = b.pdn;
  shared.region = 16 << 20;
  End c = make_end(1, shared);
  EndOptions large;
  large.region = 16 << 20;
  a = make_end(0, large);
  connect(a, c);
  kh_sge sge = c.at(0, 16 << 20);
  srq.post(3, {&sge, 1});
  srq.post(4, {&sge, 1});
  a.post(send(a, 0, 16 << 20, 1));
  rig.fabric().run();  // in its middle
  ASSERT_EQ(set_state(c, KH_QPS_ERR), KH_ST_OK);
  EXPECT_ERROR(received(c), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  auto eqe = event(c, KH_EV_QP_LAST_WQE);
  ASSERT_TRUE(eqe.has_value());
  EXPECT_EQ(eqe->id, c.qp.qpn);
  EXPECT_TRUE(nothing_received(c)) << "what is in the SRQ is for others";
}

TEST_F(State, ADestroyedQueuePairWritesNoMoreCompletions) {
  make_pair();
  for (int i = 0; i < 4; ++i)
    a.post_receive(i, 0, 8);
  ASSERT_EQ(set_state(b, KH_QPS_RESET), KH_ST_OK);
  a.post(write(a, 0, 8, b, 0, 1));
  rig.run();
  EXPECT_EQ(a.driver->destroy(KH_ADM_DESTROY_QP, a.qp.qpn), KH_ST_OK);
  rig.run_for(10'000'000'000);
  EXPECT_TRUE(nothing_sent(a));
  EXPECT_TRUE(nothing_received(a));
}

}  // namespace
}  // namespace keyhole::test
