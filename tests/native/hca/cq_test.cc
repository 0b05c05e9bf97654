// SPDX-License-Identifier: BSD-2-Clause
//
// Completion and event queues: phases, overrun, arming, moderation, resizing, full event queues.

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "harness.h"
#include "hca/transport/qp.h"

namespace keyhole::test {
namespace {

class CqTest : public ::testing::TestWithParam<bool> {
 protected:
  Rig rig{{.stations = 1, .host = {.scattered = GetParam()}}};
  FakeDriver& driver = rig.driver(0);
  FakeHost& host = rig.host(0);
  Hca& hca = rig.hca(0);

  void push(const TestCq& cq, uint64_t wr_id, uint8_t flags = 0, uint8_t status = KH_WC_SUCCESS) {
    kh_cqe cqe{};
    cqe.wr_id = wr_id;
    cqe.flags = flags;
    cqe.status = status;
    hca.find_cq(cq.cqn)->push(cqe);
  }
  // Completion events since the last call.
  uint32_t events() {
    rig.run();
    uint32_t n = 0;
    kh_eqe eqe;
    while (driver.completion_eq.poll(eqe)) {
      EXPECT_EQ(eqe.type, KH_EV_COMPLETION);
      ++n;
    }
    return n;
  }
  bool has_async(uint8_t type, uint32_t id) {
    rig.run();
    kh_eqe eqe;
    while (driver.async_eq.poll(eqe)) {
      if (eqe.type == type && eqe.id == id) return true;
    }
    return false;
  }
};

TEST_P(CqTest, EntriesComeOutInOrderOverManyPasses) {
  TestCq cq = driver.create_cq(3);
  kh_cqe cqe;
  EXPECT_FALSE(cq.poll(cqe));
  for (uint64_t i = 0; i < 100; ++i) {
    push(cq, 2 * i);
    push(cq, 2 * i + 1);
    ASSERT_TRUE(cq.poll(cqe));
    EXPECT_EQ(cqe.wr_id, 2 * i);
    ASSERT_TRUE(cq.poll(cqe));
    EXPECT_EQ(cqe.wr_id, 2 * i + 1);
    EXPECT_FALSE(cq.poll(cqe));
  }
}

TEST_P(CqTest, AFullRingIsNoOverrunOneMoreEntryIs) {
  TestCq cq = driver.create_cq(2);
  kh_cqe cqe;
  while (driver.async_eq.poll(reinterpret_cast<kh_eqe&>(cqe))) {
  }
  for (uint64_t i = 0; i < 4; ++i)
    push(cq, i);
  EXPECT_FALSE(has_async(KH_EV_CQ_ERR, cq.cqn));
  ASSERT_TRUE(cq.poll(cqe));
  push(cq, 4);
  EXPECT_FALSE(has_async(KH_EV_CQ_ERR, cq.cqn));
  push(cq, 5);
  EXPECT_TRUE(has_async(KH_EV_CQ_ERR, cq.cqn));
  EXPECT_TRUE(hca.find_cq(cq.cqn)->failed());
  // What was written before stays readable; nothing is added.
  for (uint64_t i = 1; i < 5; ++i) {
    ASSERT_TRUE(cq.poll(cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
  push(cq, 6);
  EXPECT_FALSE(cq.poll(cqe));
}

TEST_P(CqTest, AConsumerIndexAheadOfTheProducerIsAnOverrun) {
  TestCq cq = driver.create_cq(2);
  cq.db->ci = 77;
  for (uint64_t i = 0; i < 5; ++i)
    push(cq, i);
  EXPECT_TRUE(has_async(KH_EV_CQ_ERR, cq.cqn));
}

TEST_P(CqTest, WithIgnoreOverrunTheNewestOverwritesTheOldest) {
  TestCq cq = driver.create_cq(2, 1, KH_CQ_IGNORE_OVERRUN);
  for (uint64_t i = 0; i < 11; ++i)
    push(cq, i);
  EXPECT_FALSE(has_async(KH_EV_CQ_ERR, cq.cqn));
  EXPECT_EQ(cq.ring[10 & 3].wr_id, 10u);
  EXPECT_EQ(cq.ring[11 & 3].wr_id, 7u);
}

TEST_P(CqTest, MemoryThatGoesAwayFailsTheQueueAndNothingElse) {
  TestCq cq = driver.create_cq(2);
  host.unmap(cq.memory, KH_PAGE_SIZE);
  push(cq, 1);
  EXPECT_TRUE(has_async(KH_EV_CQ_ERR, cq.cqn));
  EXPECT_TRUE(hca.ready());
}

TEST_P(CqTest, QueuePairsOfAFailedQueueGoToError) {
  uint32_t pd = driver.create_pd();
  TestCq cq = driver.create_cq(2);
  TestCq good = driver.create_cq(2);
  TestQp qp = driver.create_qp({.pdn = pd, .send_cqn = good.cqn, .recv_cqn = cq.cqn});
  TestQp other = driver.create_qp({.pdn = pd, .send_cqn = good.cqn, .recv_cqn = good.cqn});
  for (TestQp* each : {&qp, &other}) {
    kh_qp_attr init{};
    init.mask = KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_ACCESS_FLAGS;
    init.state = KH_QPS_INIT;
    init.port = 1;
    ASSERT_EQ(driver.modify_qp(*each, init), KH_ST_OK);
  }
  for (uint64_t i = 0; i < 5; ++i)
    push(cq, i);
  rig.run();
  EXPECT_EQ(driver.query_qp(qp).state, KH_QPS_ERR);
  EXPECT_EQ(driver.query_qp(other).state, KH_QPS_INIT);
}

TEST_P(CqTest, TimestampsAreTheDeviceClock) {
  TestCq cq = driver.create_cq(3, 1, KH_CQ_TIMESTAMP);
  TestCq without = driver.create_cq(3);
  push(cq, 1);
  uint64_t first = host.now_ns();
  host.advance(12345);
  push(cq, 2);
  push(without, 3);
  kh_cqe cqe;
  ASSERT_TRUE(cq.poll(cqe));
  EXPECT_EQ(cqe.timestamp, first);
  ASSERT_TRUE(cq.poll(cqe));
  EXPECT_EQ(cqe.timestamp, first + 12345);
  ASSERT_TRUE(without.poll(cqe));
  EXPECT_EQ(cqe.timestamp, 0u);
}

TEST_P(CqTest, AnEventComesOncePerArmAndNeverUnarmed) {
  TestCq cq = driver.create_cq(6);
  driver.completion_eq.arm();
  push(cq, 1);
  EXPECT_EQ(events(), 0u);
  cq.arm(KH_ARM_NEXT);
  push(cq, 2);
  push(cq, 3);
  EXPECT_EQ(events(), 1u);
  push(cq, 4);
  EXPECT_EQ(events(), 0u);
  cq.arm(KH_ARM_NEXT);
  EXPECT_EQ(events(), 0u);  // entries from before the arm are software's to see
  push(cq, 5);
  EXPECT_EQ(events(), 1u);
}

TEST_P(CqTest, SolicitedArmsWaitForSolicitedOrUnsuccessfulEntries) {
  TestCq cq = driver.create_cq(6);
  push(cq, 1, KH_CQE_SOLICITED);
  rig.run();
  cq.arm(KH_ARM_SOLICITED);
  push(cq, 2);
  EXPECT_EQ(events(), 0u);
  push(cq, 3, KH_CQE_SOLICITED);
  EXPECT_EQ(events(), 1u);
  cq.arm(KH_ARM_SOLICITED);
  push(cq, 4);
  push(cq, 5, 0, KH_WC_WR_FLUSH_ERR);
  EXPECT_EQ(events(), 1u);
  // A stronger arm on top of a weaker one.
  cq.arm(KH_ARM_SOLICITED);
  cq.arm(KH_ARM_NEXT);
  push(cq, 6);
  EXPECT_EQ(events(), 1u);
}

TEST_P(CqTest, InterruptsComeOncePerArmOfTheEventQueue) {
  TestCq cq = driver.create_cq(6);
  uint32_t before = host.raised[1];
  cq.arm(KH_ARM_NEXT);
  push(cq, 1);
  rig.run();
  EXPECT_EQ(host.raised[1], before);
  driver.completion_eq.arm();
  cq.arm(KH_ARM_NEXT);
  push(cq, 2);
  rig.run();
  cq.arm(KH_ARM_NEXT);
  push(cq, 3);
  rig.run();
  EXPECT_EQ(host.raised[1], before + 1);
}

// A driver that shares the vector with another queue looks at both at an interrupt of either. So it may
// take an event, and arm again, before the device comes to fire for that event.
TEST_P(CqTest, AnArmIsNotSpentOnAnEventThatHasBeenTaken) {
  EventSource source(7);
  kh_eqe eqe;
  while (driver.async_eq.poll(eqe)) {
  }
  driver.async_eq.arm();
  rig.run();
  const uint32_t before = host.raised[0];
  hca.report(source, KH_EV_SQ_DRAINED);
  ASSERT_TRUE(driver.async_eq.poll(eqe));
  driver.async_eq.arm();
  rig.run();
  EXPECT_EQ(host.raised[0], before);
  hca.report(source, KH_EV_SQ_DRAINED);
  rig.run();
  EXPECT_EQ(host.raised[0], before + 1);
  ASSERT_TRUE(driver.async_eq.poll(eqe));
}

TEST_P(CqTest, ModerationByCountWaitsForThatMany) {
  TestCq cq = driver.create_cq(6);
  kh_admin_cmd modify = FakeDriver::make(KH_ADM_MODIFY_CQ, cq.cqn);
  modify.modify_cq.count = 3;
  modify.modify_cq.period = 100;
  driver.must(modify);
  cq.arm(KH_ARM_NEXT);
  push(cq, 1);
  push(cq, 2);
  EXPECT_EQ(events(), 0u);
  push(cq, 3);
  EXPECT_EQ(events(), 1u);
}

TEST_P(CqTest, ModerationByPeriodEndsTheWait) {
  TestCq cq = driver.create_cq(6);
  for (uint16_t count : {0, 10}) {
    kh_admin_cmd modify = FakeDriver::make(KH_ADM_MODIFY_CQ, cq.cqn);
    modify.modify_cq.count = count;
    modify.modify_cq.period = 100;
    driver.must(modify);
    cq.arm(KH_ARM_NEXT);
    push(cq, 1);
    EXPECT_EQ(events(), 0u) << count;
    rig.run_for(99'000);
    push(cq, 2);
    EXPECT_EQ(events(), 0u) << count;
    rig.run_for(1'000);
    EXPECT_EQ(events(), 1u) << count;
    rig.run_for(1'000'000);
    EXPECT_EQ(events(), 0u) << count;
  }
  kh_admin_cmd modify = FakeDriver::make(KH_ADM_MODIFY_CQ, cq.cqn);
  driver.must(modify);
  cq.arm(KH_ARM_NEXT);
  push(cq, 3);
  EXPECT_EQ(events(), 1u);
}

TEST_P(CqTest, ResizeKeepsUnreadEntriesAndTheIndex) {
  for (uint8_t new_log : {2, 3, 6}) {
    for (int written : {0, 3, 9, 13}) {
      TestCq cq = driver.create_cq(3);
      kh_cqe cqe;
      uint64_t next = 0;
      for (; next < static_cast<uint64_t>(written); ++next) {
        push(cq, next);
        ASSERT_TRUE(cq.poll(cqe));
      }
      for (int i = 0; i < 3; ++i)
        push(cq, written + i);
      cq.arm(KH_ARM_SOLICITED);

      size_t ring = sizeof(kh_cqe) << new_log;
      std::byte* memory = host.allocate(ring + 64);
      kh_admin_cmd resize = FakeDriver::make(KH_ADM_RESIZE_CQ, cq.cqn);
      resize.create_cq.pages = host.pages(memory, ring + 64);
      resize.create_cq.db_offset = static_cast<uint32_t>(ring);
      resize.create_cq.log_size = new_log;
      driver.must(resize);
      cq.ring = reinterpret_cast<kh_cqe*>(memory);
      cq.db = reinterpret_cast<kh_cq_db*>(memory + ring);
      cq.log_size = new_log;
      EXPECT_EQ(cq.db->ci, cq.ci);
      EXPECT_EQ(cq.db->arm, cq.arm_sn << KH_ARM_SN_SHIFT | KH_ARM_SOLICITED);

      push(cq, written + 3);
      for (int i = 0; i < 4; ++i, ++next) {
        ASSERT_TRUE(cq.poll(cqe)) << int{new_log} << " " << written << " " << i;
        EXPECT_EQ(cqe.wr_id, next);
      }
      EXPECT_FALSE(cq.poll(cqe));
      for (int i = 0; i < 100; ++i, ++next) {
        push(cq, next);
        ASSERT_TRUE(cq.poll(cqe));
        EXPECT_EQ(cqe.wr_id, next);
        ASSERT_FALSE(cq.poll(cqe));
      }
    }
  }
}

TEST_P(CqTest, ResizeRefusesARingTooSmallAndKeepsTheOld) {
  TestCq cq = driver.create_cq(3);
  for (uint64_t i = 0; i < 5; ++i)
    push(cq, i);
  std::byte* memory = host.allocate(KH_PAGE_SIZE);
  kh_admin_cmd resize = FakeDriver::make(KH_ADM_RESIZE_CQ, cq.cqn);
  resize.create_cq.pages = host.pages(memory, KH_PAGE_SIZE);
  resize.create_cq.db_offset = 1024;
  resize.create_cq.log_size = 2;
  EXPECT_EQ(driver.command(resize).status, KH_ST_INVAL);
  resize.create_cq.log_size = 3;
  resize.create_cq.flags = 1;
  EXPECT_EQ(driver.command(resize).status, KH_ST_INVAL);
  kh_cqe cqe;
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(cq.poll(cqe));
    EXPECT_EQ(cqe.wr_id, i);
  }
}

TEST_P(CqTest, ErrorsAreCountedByKind) {
  TestCq cq = driver.create_cq(6);
  push(cq, 1, 0, KH_WC_LOC_PROT_ERR);
  push(cq, 2, 0, KH_WC_REM_ACCESS_ERR);
  push(cq, 3, 0, KH_WC_WR_FLUSH_ERR);
  push(cq, 4, 0, KH_WC_MW_BIND_ERR);
  push(cq, 5);
  const Stats& stats = hca.stats();
  EXPECT_EQ(stats[KH_STAT_CQES], 5u);
  EXPECT_EQ(stats[KH_STAT_ERROR_CQES], 3u);
  EXPECT_EQ(stats[KH_STAT_FLUSHED_CQES], 1u);
  EXPECT_EQ(stats[KH_STAT_LOCAL_ERRORS], 1u);
  EXPECT_EQ(stats[KH_STAT_REMOTE_ACCESS_ERRORS], 1u);
  EXPECT_EQ(stats[KH_STAT_MW_BIND_ERRORS], 1u);
}

TEST_P(CqTest, EventsThatDoNotFitAreHeldBackAndComeLater) {
  // 40 CQs report to an event queue of 16.
  driver.completion_eq = driver.create_eq(KH_EQ_COMPLETION, 2, 4);
  std::vector<TestCq> cqs;
  for (int i = 0; i < 40; ++i) {
    cqs.push_back(driver.create_cq(3));
    cqs.back().arm(KH_ARM_NEXT);
    push(cqs.back(), 1);
  }
  rig.run();
  std::set<uint32_t> seen;
  kh_eqe eqe;
  int batches = 0;
  for (; batches < 10 && seen.size() < 40; ++batches) {
    while (driver.completion_eq.poll(eqe))
      EXPECT_TRUE(seen.insert(eqe.id).second);
    driver.completion_eq.arm();
    uint32_t before = host.raised[2];
    rig.run_for(2'000'000);
    if (seen.size() < 40) {
      EXPECT_EQ(host.raised[2], before + 1);
    }
  }
  EXPECT_EQ(seen.size(), 40u);
  rig.run_for(10'000'000);
  EXPECT_FALSE(driver.completion_eq.poll(eqe));
}

TEST_P(CqTest, AnObjectThatDiesTakesItsHeldEventsAlong) {
  driver.completion_eq = driver.create_eq(KH_EQ_COMPLETION, 2, 4);
  std::vector<TestCq> cqs;
  for (int i = 0; i < 20; ++i) {
    cqs.push_back(driver.create_cq(3));
    cqs.back().arm(KH_ARM_NEXT);
    push(cqs.back(), 1);
  }
  rig.run();
  for (int i = 16; i < 20; ++i)
    EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, cqs[i].cqn), KH_ST_OK);
  kh_eqe eqe;
  int n = 0;
  while (driver.completion_eq.poll(eqe))
    ++n;
  rig.run_for(5'000'000);
  while (driver.completion_eq.poll(eqe))
    ++n;
  EXPECT_EQ(n, 16);
}

TEST_P(CqTest, AnEventQueueWhoseMemoryIsGoneIsFatal) {
  TestCq cq = driver.create_cq(3);
  host.unmap(driver.completion_eq.memory, KH_PAGE_SIZE);
  cq.arm(KH_ARM_NEXT);
  push(cq, 1);
  rig.run();
  EXPECT_EQ(hca.read_register(KH_REG_STATUS),
            KH_STATUS_FATAL | KH_FATAL_EQ_MEMORY << KH_STATUS_FATAL_SHIFT);
}

INSTANTIATE_TEST_SUITE_P(Arenas, CqTest, ::testing::Bool(),
                         [](auto& info) { return info.param ? "Scattered" : "Whole"; });

// --- SRQ --------------------------------------------------------------------------------------

class SrqTest : public ::testing::Test {
 protected:
  Rig rig{{.stations = 1}};
  FakeDriver& driver = rig.driver(0);
  uint32_t pd = driver.create_pd();

  uint32_t limit_events() {
    rig.run();
    uint32_t n = 0;
    kh_eqe eqe;
    while (driver.async_eq.poll(eqe))
      n += eqe.type == KH_EV_SRQ_LIMIT;
    return n;
  }
};

TEST_F(SrqTest, ReceivesAreTakenInOrderAndTheirPlaceIsGivenBackAtOnce) {
  TestSrq test = driver.create_srq(pd, 2);
  Srq& srq = *rig.hca(0).find_srq(test.srqn);
  ReceiveWqe wqe;
  EXPECT_EQ(srq.take(wqe), Srq::Taken::empty);
  for (uint64_t i = 0; i < 20; ++i) {
    kh_sge sge[2] = {{i, 10, 1}, {i + 1, 20, 2}};
    test.post(i, sge);
    ASSERT_EQ(srq.take(wqe), Srq::Taken::ok);
    EXPECT_EQ(wqe.wr_id, i);
    ASSERT_EQ(wqe.num_sge, 2u);
    EXPECT_EQ(wqe.sge[1].addr, i + 1);
    EXPECT_EQ(test.db->ci, i + 1);
  }
}

TEST_F(SrqTest, MoreEntriesThanTheStrideHoldsAreMalformed) {
  TestSrq test = driver.create_srq(pd, 2, 6);  // room for 3
  Srq& srq = *rig.hca(0).find_srq(test.srqn);
  test.post(5, {});
  auto* head = reinterpret_cast<kh_rwqe*>(test.ring);
  head->num_sge = 4;
  ReceiveWqe wqe;
  EXPECT_EQ(srq.take(wqe), Srq::Taken::malformed);
  EXPECT_EQ(wqe.wr_id, 5u);
  EXPECT_EQ(wqe.num_sge, 0u);
  EXPECT_EQ(srq.take(wqe), Srq::Taken::empty);
}

TEST_F(SrqTest, AProducerIndexBeyondTheRingIsAnError) {
  TestSrq test = driver.create_srq(pd, 2);
  Srq& srq = *rig.hca(0).find_srq(test.srqn);
  test.db->pi = 5;
  ReceiveWqe wqe;
  EXPECT_EQ(srq.take(wqe), Srq::Taken::failed);
  test.db->pi = 1;
  EXPECT_EQ(srq.take(wqe), Srq::Taken::failed);
  rig.run();
  kh_eqe eqe;
  bool reported = false;
  while (driver.async_eq.poll(eqe))
    reported |= eqe.type == KH_EV_SRQ_ERR && eqe.id == test.srqn;
  EXPECT_TRUE(reported);
}

TEST_F(SrqTest, TheLimitEventComesOnceAndIsDisarmedByIt) {
  TestSrq test = driver.create_srq(pd, 3);
  Srq& srq = *rig.hca(0).find_srq(test.srqn);
  for (uint64_t i = 0; i < 6; ++i)
    test.post(i, {});
  kh_admin_cmd modify = FakeDriver::make(KH_ADM_MODIFY_SRQ, test.srqn);
  modify.modify_srq.limit = 4;
  driver.must(modify);
  EXPECT_EQ(driver.must(FakeDriver::make(KH_ADM_QUERY_SRQ, test.srqn)).result[0], 4u);
  ReceiveWqe wqe;
  srq.take(wqe);
  srq.take(wqe);
  EXPECT_EQ(limit_events(), 0u);  // four are left
  srq.take(wqe);
  EXPECT_EQ(limit_events(), 1u);
  srq.take(wqe);
  EXPECT_EQ(limit_events(), 0u);
  EXPECT_EQ(driver.must(FakeDriver::make(KH_ADM_QUERY_SRQ, test.srqn)).result[0], 0u);
  // Armed when it is below already.
  driver.must(modify);
  EXPECT_EQ(limit_events(), 1u);
  modify.modify_srq.limit = 9;
  EXPECT_EQ(driver.command(modify).status, KH_ST_INVAL);
}

TEST_F(SrqTest, ResizeMovesWhatIsPostedAndNotTaken) {
  TestSrq test = driver.create_srq(pd, 3);
  Srq& srq = *rig.hca(0).find_srq(test.srqn);
  ReceiveWqe wqe;
  for (uint64_t i = 0; i < 5; ++i) {
    test.post(i, {});
    srq.take(wqe);
  }
  for (uint64_t i = 5; i < 11; ++i) {
    kh_sge sge[1] = {{i, 1, 1}};
    test.post(i, sge);
  }
  auto resize = [&](uint8_t log_size, auto change) {
    size_t ring = size_t{64} << log_size;
    std::byte* memory = rig.host(0).allocate(ring + sizeof(kh_srq_db));
    kh_admin_cmd command = FakeDriver::make(KH_ADM_RESIZE_SRQ, test.srqn);
    command.create_srq.pages = rig.host(0).pages(memory, ring + sizeof(kh_srq_db));
    command.create_srq.db_offset = static_cast<uint32_t>(ring);
    command.create_srq.log_size = log_size;
    command.create_srq.log_stride = 6;
    change(command);
    kh_admin_cqe cqe = driver.command(command);
    if (cqe.status == KH_ST_OK) {
      test.ring = memory;
      test.db = reinterpret_cast<kh_srq_db*>(memory + ring);
      test.log_size = log_size;
    }
    return std::pair<uint8_t, uint32_t>(cqe.status, cqe.syndrome);
  };
  using Body = kh_cmd_create_srq;
  auto refused = [](size_t field) {
    return std::pair<uint8_t, uint32_t>(KH_ST_INVAL, 16 + static_cast<uint32_t>(field));
  };
  auto same = [](auto&) {};
  EXPECT_EQ(resize(2, same), refused(offsetof(Body, log_size)));  // six do not fit
  EXPECT_EQ(resize(16, [](auto& c) { c.create_srq.db_offset = 0; }),
            refused(offsetof(Body, log_size)));
  EXPECT_EQ(resize(4, [](auto& c) { c.create_srq.log_stride = 7; }),
            refused(offsetof(Body, log_stride)));
  EXPECT_EQ(resize(4, [&](auto& c) { c.create_srq.pdn = pd; }), refused(offsetof(Body, pdn)));
  EXPECT_EQ(resize(4, [](auto& c) { c.create_srq.ctx = 1; }), refused(offsetof(Body, ctx)));
  EXPECT_EQ(resize(4, [](auto& c) { c.hdr.handle = 77; }).first, KH_ST_NOENT);
  EXPECT_EQ(resize(4, same).first, KH_ST_OK);
  EXPECT_EQ(test.db->pi, 11u);
  EXPECT_EQ(test.db->ci, 5u);
  EXPECT_EQ(resize(3, same).first, KH_ST_OK);
  for (uint64_t i = 11; i < 13; ++i)
    test.post(i, {});
  for (uint64_t i = 5; i < 13; ++i) {
    ASSERT_EQ(srq.take(wqe), Srq::Taken::ok);
    EXPECT_EQ(wqe.wr_id, i);
    if (i < 11) {
      ASSERT_EQ(wqe.num_sge, 1u);
      EXPECT_EQ(wqe.sge[0].addr, i);
    }
  }
  EXPECT_EQ(srq.take(wqe), Srq::Taken::empty);
}

}  // namespace
}  // namespace keyhole::test
