// SPDX-License-Identifier: BSD-2-Clause
//
// Registers, start and reset, contexts and their sleep, the heartbeat.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "harness.h"
#include "hca/guest_access.h"

namespace keyhole::test {
namespace {

TEST(Registers, IdentifyTheDeviceAndItsLimits) {
  Rig rig({.stations = 1, .start = false});
  Hca& hca = rig.hca(0);
  EXPECT_EQ(hca.read_register(KH_REG_MAGIC), KH_HW_MAGIC);
  EXPECT_EQ(hca.read_register(KH_REG_VERSION), KH_HW_MAJOR << 16 | KH_HW_MINOR);
  EXPECT_EQ(hca.read_register(KH_REG_NUM_CONTEXTS), 16u);
  EXPECT_EQ(hca.read_register(KH_REG_NUM_VECTORS), 16u);
  EXPECT_EQ(hca.read_register(KH_REG_MAC_LO), 0x00000002u);
  EXPECT_EQ(hca.read_register(KH_REG_MAC_HI), 0x0101u);
  EXPECT_EQ(hca.read_register(0x1000), 0u);
}

TEST(Registers, ClockLowLatchesClockHigh) {
  FakeHost host;
  Hca hca({}, host.host(), nullptr);
  host.advance(0x1'ffff'fff0 - host.now_ns());
  EXPECT_EQ(hca.read_register(KH_REG_CLOCK_LO), 0xfffffff0u);
  host.advance(0x20);
  EXPECT_EQ(hca.read_register(KH_REG_CLOCK_HI), 1u);
  EXPECT_EQ(hca.read_register(KH_REG_CLOCK_LO), 0x10u);
  EXPECT_EQ(hca.read_register(KH_REG_CLOCK_HI), 2u);
}

TEST(Start, RefusesAdminRingsThatAreNotMemory) {
  FakeHost host;
  Hca hca({}, host.host(), nullptr);
  hca.write_register(KH_REG_ADMIN_SIZE, 5);
  hca.write_register(KH_REG_ADMIN_SQ, 0x1000);
  hca.write_register(KH_REG_CONTROL, KH_CONTROL_ENABLE);
  EXPECT_EQ(hca.read_register(KH_REG_STATUS),
            KH_STATUS_FATAL | KH_FATAL_ADMIN_ADDR << KH_STATUS_FATAL_SHIFT);
  EXPECT_FALSE(hca.run());
  EXPECT_EQ(hca.deadline(), Timers::never);
}

TEST(Start, RefusesAnAdminQueueOfNoSizeOrOffItsPage) {
  FakeHost host;
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  auto status_with = [&](uint32_t size, uint64_t sq, uint64_t db) {
    Hca hca({}, host.host(), nullptr);
    auto put = [&](uint32_t reg, uint64_t value) {
      hca.write_register(reg, static_cast<uint32_t>(value));
      hca.write_register(reg + 4, static_cast<uint32_t>(value >> 32));
    };
    put(KH_REG_ADMIN_SQ, sq);
    put(KH_REG_ADMIN_CQ, host.iova(memory) + KH_PAGE_SIZE);
    put(KH_REG_ADMIN_DB, db);
    hca.write_register(KH_REG_ADMIN_SIZE, size);
    hca.write_register(KH_REG_CONTROL, KH_CONTROL_ENABLE);
    return hca.read_register(KH_REG_STATUS);
  };
  uint64_t sq = host.iova(memory);
  uint64_t db = sq + 2 * KH_PAGE_SIZE;
  EXPECT_EQ(status_with(5, sq, db), KH_STATUS_READY);
  EXPECT_EQ(status_with(5, sq, db + 64), KH_STATUS_READY);
  EXPECT_NE(status_with(0, sq, db), KH_STATUS_READY);
  EXPECT_NE(status_with(6, sq, db), KH_STATUS_READY);
  EXPECT_NE(status_with(5, sq + 64, db), KH_STATUS_READY);
  EXPECT_NE(status_with(5, sq, db + 32), KH_STATUS_READY);
}

TEST(Reset, EveryObjectIsGoneAndTheDriverCanStartAgain) {
  Rig rig({.stations = 2});
  FakeDriver& driver = rig.driver(0);
  uint32_t pd = driver.create_pd();
  TestCq cq = driver.create_cq(4);
  driver.create_region(pd, 8192, KH_ACCESS_LOCAL_WRITE);
  driver.create_qp({.pdn = pd, .send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  driver.create_srq(pd, 4);
  EXPECT_EQ(rig.hca(0).snapshot().qps, 1u);
  EXPECT_GT(rig.hca(0).snapshot().memory_used, 0u);

  driver.disable();
  auto snapshot = rig.hca(0).snapshot();
  EXPECT_EQ(snapshot.status, 0u);
  EXPECT_EQ(snapshot.qps + snapshot.cqs + snapshot.srqs + snapshot.eqs + snapshot.pds +
                snapshot.mkeys + snapshot.contexts,
            0u);
  EXPECT_EQ(snapshot.memory_used, 0u);
  EXPECT_FALSE(snapshot.port_up);
  EXPECT_EQ(rig.hca(0).deadline(), Timers::never);

  driver.start(1);
  EXPECT_EQ(driver.create_pd(), pd);
}

TEST(Reset, LeavesThePagesOfItsBarZero) {
  Rig rig({.stations = 1});
  std::memset(rig.host(0).doorbell_page(1), KH_DB_MARK, KH_PAGE_SIZE);
  rig.driver(0).disable();
  for (uint32_t context = 0; context < 16; ++context) {
    const std::byte* pages[] = {rig.host(0).doorbell_page(context),
                                reinterpret_cast<std::byte*>(rig.host(0).status_page(context))};
    for (const std::byte* page : pages)
      EXPECT_TRUE(std::all_of(page, page + KH_PAGE_SIZE, [](std::byte b) {
        return b == std::byte{0};
      })) << context;
  }
}

TEST(Reset, TouchesNoGuestMemoryAfterwards) {
  Rig rig({.stations = 1});
  FakeDriver& driver = rig.driver(0);
  rig.hca(0).reset();
  // Poison everything the device knew; nothing may change in it.
  std::span<std::byte> arena = rig.host(0).arena();
  std::ranges::fill(arena, std::byte{0xa5});
  std::memset(rig.host(0).doorbell_page(0), KH_DB_MARK, KH_PAGE_SIZE);
  rig.hca(0).wake(0);
  rig.run_for(2'000'000'000);
  EXPECT_TRUE(std::ranges::all_of(arena, [](std::byte b) { return b == std::byte{0xa5}; }));
  EXPECT_EQ(rig.hca(0).read_register(KH_REG_ADMIN_SIZE), 0u);
  std::ranges::fill(arena, std::byte{0});
  driver.start(1);
  EXPECT_TRUE(rig.hca(0).ready());
}

TEST(Contexts, SleepAfterTheIdleTimeAndWakeByTheirWakePage) {
  Rig rig({.stations = 1, .hca = {.idle_ns = 1000}});
  FakeDriver& driver = rig.driver(0);
  driver.must(FakeDriver::make(KH_ADM_NOP));
  EXPECT_TRUE(rig.hca(0).polling());
  rig.host(0).advance(999);
  rig.run();
  EXPECT_TRUE(rig.hca(0).polling());
  rig.host(0).advance(1);
  rig.run();
  EXPECT_FALSE(rig.hca(0).polling());
  EXPECT_NE(rig.host(0).status_page(0)->sleeping, 0u);

  // A mark alone is not seen any more, a wake is.
  uint64_t wakes = rig.hca(0).stats()[KH_STAT_WAKES];
  driver.must(FakeDriver::make(KH_ADM_NOP));
  EXPECT_EQ(rig.hca(0).stats()[KH_STAT_WAKES], wakes + 1);
  EXPECT_EQ(rig.host(0).status_page(0)->sleeping, 0u);
}

TEST(Contexts, AMarkThatComesJustBeforeSleepIsTaken) {
  Rig rig({.stations = 1, .hca = {.idle_ns = 1000}});
  alignas(64) std::array<std::byte, KH_PAGE_SIZE> status{};
  alignas(64) std::array<std::byte, KH_PAGE_SIZE> doorbells{};
  std::byte* page = doorbells.data();
  Context context(3, page, status.data());
  struct Counter : Runnable {
    int runs = 0;
    bool run(Quantum&) override {
      ++runs;
      return false;
    }
  } queue;
  context.attach(70, queue);
  context.wake();
  RunQueue run_queue;
  page[70] = std::byte{KH_DB_MARK};
  EXPECT_EQ(context.sleep(run_queue), 1u);
  EXPECT_TRUE(context.awake());
  EXPECT_EQ(load_relaxed<uint32_t>(status.data()), 0u);
  EXPECT_EQ(run_queue.take(), &queue);
  EXPECT_EQ(page[70], std::byte{0});
  EXPECT_EQ(context.sleep(run_queue), 0u);
  EXPECT_FALSE(context.awake());
  EXPECT_NE(load_relaxed<uint32_t>(status.data()), 0u);
  context.detach(70, queue);
}

TEST(Contexts, SlotsMayBeSharedAndMarksWithoutAQueueAreHarmless) {
  alignas(64) std::array<std::byte, KH_PAGE_SIZE> status{};
  alignas(64) std::array<std::byte, KH_PAGE_SIZE> doorbells{};
  doorbells[5] = std::byte{KH_DB_MARK};  // a former owner's
  Context context(1, doorbells.data(), status.data());
  EXPECT_EQ(doorbells[5], std::byte{0});
  struct Queue : Runnable {
    bool run(Quantum&) override { return false; }
  } a, b, c;
  RunQueue run_queue;
  context.attach(9, a);
  context.attach(9, b);
  context.attach(4095, c);
  doorbells[9] = doorbells[10] = doorbells[4095] = std::byte{0x7f};
  EXPECT_EQ(context.scan(run_queue), 3u);
  int scheduled = 0;
  while (run_queue.take())
    ++scheduled;
  EXPECT_EQ(scheduled, 3);
  context.detach(9, a);
  context.detach(4095, c);
  doorbells[9] = std::byte{1};
  context.scan(run_queue);
  EXPECT_EQ(run_queue.take(), &b);
  EXPECT_EQ(run_queue.take(), nullptr);
  // Beyond the highest slot in use nobody looks.
  doorbells[4095] = std::byte{1};
  EXPECT_EQ(context.scan(run_queue), 0u);
  context.detach(9, b);
  EXPECT_EQ(context.attached(), 0u);
}

TEST(Contexts, OfAProcessOnlyItsOwnIsWoken) {
  Rig rig({.stations = 1, .hca = {.idle_ns = 1000}});
  rig.run_for(5000);
  ASSERT_FALSE(rig.hca(0).polling());
  rig.hca(0).wake(7);       // not created
  rig.hca(0).wake(100000);  // not there at all
  EXPECT_FALSE(rig.hca(0).polling());
  rig.hca(0).wake(2);
  EXPECT_TRUE(rig.hca(0).polling());
  EXPECT_EQ(rig.host(0).status_page(2)->sleeping, 0u);
  EXPECT_NE(rig.host(0).status_page(1)->sleeping, 0u);
}

TEST(Heartbeat, MovesAtLeastOnceASecondEvenAsleep) {
  Rig rig({.stations = 1});
  rig.run_for(10'000'000);
  EXPECT_FALSE(rig.hca(0).polling());
  uint64_t before = rig.host(0).status_page(0)->heartbeat;
  rig.run_for(1'000'000'000);
  EXPECT_GT(rig.host(0).status_page(0)->heartbeat, before);
  uint64_t clock = rig.host(0).status_page(0)->clock;
  EXPECT_LE(clock, rig.host(0).now_ns());
  EXPECT_GT(clock, rig.host(0).now_ns() - 1'000'000'000);
}

TEST(Heartbeat, AnIdleDeviceWakesAFewTimesASecondOnly) {
  Rig rig({.stations = 1});
  rig.run_for(10'000'000);
  int wakeups = 0;
  uint64_t end = rig.host(0).now_ns() + 10'000'000'000;
  while (rig.fabric().deadline() < end) {
    rig.host(0).advance(rig.fabric().deadline() - rig.host(0).now_ns());
    rig.run();
    ++wakeups;
  }
  EXPECT_GE(wakeups, 10);
  EXPECT_LE(wakeups, 50);
}

}  // namespace
}  // namespace keyhole::test
