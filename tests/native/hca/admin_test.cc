// SPDX-License-Identifier: BSD-2-Clause
//
// The admin queue: its mechanics, and each command with the fields that it must refuse.

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "harness.h"
#include "hca/names.h"
#include "hca/transport/qp.h"

namespace keyhole::test {
namespace {

constexpr size_t body = sizeof(kh_admin_hdr);

class AdminTest : public ::testing::Test {
 protected:
  Rig rig{{.stations = 1}};
  FakeDriver& driver = rig.driver(0);
  FakeHost& host = rig.host(0);

  void expect(const kh_admin_cmd& command, uint8_t status, size_t syndrome) {
    kh_admin_cqe cqe = driver.command(command);
    EXPECT_EQ(admin_status_name(cqe.status), admin_status_name(status))
        << admin_op_name(command.hdr.opcode);
    EXPECT_EQ(cqe.syndrome, syndrome) << admin_op_name(command.hdr.opcode);
  }
};

TEST_F(AdminTest, UnknownOpcodesAreNotSupported) {
  for (int opcode : {0x05, 0x3f, 0x40, 0xff}) {
    kh_admin_cmd command = FakeDriver::make(static_cast<kh_admin_op>(opcode));
    expect(command, KH_ST_NOSUPP, 0);
  }
}

// Every byte that no field owns must be zero, in every command; the syndrome is that byte.
TEST_F(AdminTest, ReservedBytesAreRefusedAtTheirOffset) {
  auto field = [](size_t offset, size_t size) {
    return std::pair(body + offset, body + offset + size - 1);
  };
#define FIELD(type, name) field(offsetof(type, name), sizeof(type::name))
  std::vector<std::pair<kh_admin_op, std::pair<size_t, size_t>>> rows = {
      {KH_ADM_NOP, {16, 127}},
      {KH_ADM_QUERY_DEVICE, {16, 127}},
      {KH_ADM_QUERY_STATS, {16, 127}},
      {KH_ADM_SET_PORT, FIELD(kh_cmd_set_port, rsvd0)},
      {KH_ADM_SET_PORT, FIELD(kh_cmd_set_port, rsvd1)},
      {KH_ADM_SET_GID, FIELD(kh_cmd_set_gid, rsvd)},
      {KH_ADM_CREATE_EQ, FIELD(kh_cmd_create_eq, rsvd)},
      {KH_ADM_DESTROY_EQ, {16, 127}},
      {KH_ADM_CREATE_CONTEXT, {16, 127}},
      {KH_ADM_DESTROY_CONTEXT, {16, 127}},
      {KH_ADM_CREATE_PD, {16, 127}},
      {KH_ADM_DESTROY_PD, {16, 127}},
      {KH_ADM_CREATE_MKEY, FIELD(kh_cmd_create_mkey, rsvd0)},
      {KH_ADM_CREATE_MKEY, FIELD(kh_cmd_create_mkey, rsvd1)},
      {KH_ADM_DESTROY_MKEY, {16, 127}},
      {KH_ADM_MODIFY_MKEY, FIELD(kh_cmd_modify_mkey, rsvd0)},
      {KH_ADM_MODIFY_MKEY, FIELD(kh_cmd_modify_mkey, rsvd1)},
      {KH_ADM_MODIFY_MKEY, FIELD(kh_cmd_modify_mkey, rsvd2)},
      {KH_ADM_QUERY_MKEY, {16, 127}},
      {KH_ADM_CREATE_CQ, FIELD(kh_cmd_create_cq, rsvd)},
      {KH_ADM_DESTROY_CQ, {16, 127}},
      {KH_ADM_RESIZE_CQ, FIELD(kh_cmd_create_cq, rsvd)},
      {KH_ADM_MODIFY_CQ, FIELD(kh_cmd_modify_cq, rsvd)},
      {KH_ADM_CREATE_SRQ, FIELD(kh_cmd_create_srq, rsvd)},
      {KH_ADM_DESTROY_SRQ, {16, 127}},
      {KH_ADM_MODIFY_SRQ, FIELD(kh_cmd_modify_srq, rsvd)},
      {KH_ADM_QUERY_SRQ, {16, 127}},
      {KH_ADM_RESIZE_SRQ, FIELD(kh_cmd_create_srq, rsvd)},
      {KH_ADM_CREATE_QP, FIELD(kh_cmd_create_qp, rsvd)},
      {KH_ADM_DESTROY_QP, {16, 127}},
      {KH_ADM_MODIFY_QP, FIELD(kh_qp_attr, sq_draining)},
      {KH_ADM_MODIFY_QP, FIELD(kh_qp_attr, rsvd0)},
      {KH_ADM_MODIFY_QP, FIELD(kh_qp_attr, rsvd1)},
      {KH_ADM_QUERY_QP, {16, 127}},
      {KH_ADM_ATTACH_MCAST, FIELD(kh_cmd_mcast, rsvd)},
      {KH_ADM_DETACH_MCAST, FIELD(kh_cmd_mcast, rsvd)},
      {KH_ADM_CREATE_NIC, FIELD(kh_cmd_create_nic, rsvd)},
      {KH_ADM_DESTROY_NIC, {16, 127}},
  };
#undef FIELD
  for (auto& [opcode, bytes] : rows) {
    for (size_t at : {bytes.first, (bytes.first + bytes.second) / 2, bytes.second}) {
      kh_admin_cmd command = FakeDriver::make(opcode);
      reinterpret_cast<std::byte*>(&command)[at] = std::byte{0x80};
      expect(command, KH_ST_INVAL, at);
    }
    kh_admin_cmd command = FakeDriver::make(opcode);
    command.hdr.rsvd0 = 1;
    expect(command, KH_ST_INVAL, offsetof(kh_admin_hdr, rsvd0));
  }
}

TEST_F(AdminTest, CreationCommandsHaveNoHandleAndCommandsWithoutOutputNoAddress) {
  expect(FakeDriver::make(KH_ADM_CREATE_PD, 1), KH_ST_INVAL, offsetof(kh_admin_hdr, handle));
  expect(FakeDriver::make(KH_ADM_NOP, 0, 64), KH_ST_INVAL, offsetof(kh_admin_hdr, out_addr));
}

TEST_F(AdminTest, OutputMustBeAlignedAndMapped) {
  std::byte* page = host.allocate(2 * KH_PAGE_SIZE);
  uint64_t at = host.iova(page);
  expect(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, at + 32), KH_ST_INVAL,
         offsetof(kh_admin_hdr, out_addr));
  expect(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, 0), KH_ST_FAULT,
         offsetof(kh_admin_hdr, out_addr));
  expect(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, ~uint64_t{63}), KH_ST_FAULT,
         offsetof(kh_admin_hdr, out_addr));
  host.unmap(page + KH_PAGE_SIZE, KH_PAGE_SIZE);
  expect(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, at + KH_PAGE_SIZE - 64), KH_ST_FAULT,
         offsetof(kh_admin_hdr, out_addr));
  host.map(page + KH_PAGE_SIZE, KH_PAGE_SIZE);
  host.write_protect(page, KH_PAGE_SIZE);
  expect(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, at), KH_ST_FAULT,
         offsetof(kh_admin_hdr, out_addr));
}

TEST_F(AdminTest, QueryDeviceReportsTheLimits) {
  std::byte* page = host.allocate(KH_PAGE_SIZE);
  driver.must(FakeDriver::make(KH_ADM_QUERY_DEVICE, 0, host.iova(page)));
  kh_device_attr attr;
  std::memcpy(&attr, page, sizeof(attr));
  EXPECT_EQ(attr.max_cqe, 1u << 22);
  EXPECT_EQ(attr.max_mkey, 1u << 20);
  EXPECT_EQ(attr.gid_table_len, 128u);
  EXPECT_EQ(attr.max_contexts, 16u);
  EXPECT_EQ(attr.max_rd_atomic, 16u);
  EXPECT_EQ(attr.caps, KH_CAP_MW1 | KH_CAP_MW2B | KH_CAP_INDIRECT | KH_CAP_MASKED_ATOMIC |
                           KH_CAP_SRQ_RESIZE | KH_CAP_FLUSH | KH_CAP_ATOMIC_WRITE);
  EXPECT_EQ(attr.max_indirect, 65536u);
  EXPECT_EQ(attr.max_inline_entries, 64u);
  EXPECT_EQ(attr.max_depth, 4u);
  EXPECT_EQ(attr.page_size_cap & 0xfff, 0u);
  EXPECT_NE(attr.page_size_cap & 1u << 30, 0u);
  // The EUI-64 of 02:00:00:00:01:01.
  const uint8_t guid[] = {0x00, 0x00, 0x00, 0xff, 0xfe, 0x00, 0x01, 0x01};
  EXPECT_EQ(std::memcmp(&attr.node_guid, guid, 8), 0);
}

TEST_F(AdminTest, StatisticsCountCommandsAndTheirErrors) {
  std::byte* page = host.allocate(KH_PAGE_SIZE);
  auto read = [&] {
    driver.must(FakeDriver::make(KH_ADM_QUERY_STATS, 0, host.iova(page)));
    std::array<uint64_t, KH_NUM_STATS> stats;
    std::memcpy(stats.data(), page, sizeof(stats));
    return stats;
  };
  auto before = read();
  driver.command(FakeDriver::make(KH_ADM_DESTROY_PD, 999));
  auto after = read();
  EXPECT_EQ(after[KH_STAT_ADMIN_COMMANDS], before[KH_STAT_ADMIN_COMMANDS] + 2);
  EXPECT_EQ(after[KH_STAT_ADMIN_ERRORS], before[KH_STAT_ADMIN_ERRORS] + 1);
  EXPECT_GT(after[KH_STAT_DOORBELLS], before[KH_STAT_DOORBELLS]);
}

TEST_F(AdminTest, TheRingWrapsManyTimes) {
  for (int i = 0; i < 200; ++i)
    driver.must(FakeDriver::make(KH_ADM_NOP));
}

TEST_F(AdminTest, PortFieldsAreChecked) {
  auto port = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_SET_PORT);
    command.set_port.mac[0] = 2;
    command.set_port.mtu = 1500;
    change(command.set_port);
    return command;
  };
  expect(port([](auto&) {}), KH_ST_OK, 0);
  expect(port([](auto& p) { p.flags = 8; }), KH_ST_INVAL, body);
  expect(port([](auto& p) { p.mac[0] = 0; }), KH_ST_INVAL, body + offsetof(kh_cmd_set_port, mac));
  expect(port([](auto& p) { p.mac[0] = 1; }), KH_ST_INVAL, body + offsetof(kh_cmd_set_port, mac));
  expect(port([](auto& p) { p.mtu = 67; }), KH_ST_INVAL, body + offsetof(kh_cmd_set_port, mtu));
  expect(port([](auto& p) { p.mtu = 9217; }), KH_ST_INVAL, body + offsetof(kh_cmd_set_port, mtu));
}

TEST_F(AdminTest, PortChangesAreEvents) {
  kh_eqe eqe;
  ASSERT_TRUE(driver.async_eq.poll(eqe));
  EXPECT_EQ(eqe.type, KH_EV_PORT_UP);
  kh_admin_cmd down = FakeDriver::make(KH_ADM_SET_PORT);
  down.set_port.mac[0] = 2;
  down.set_port.mtu = 1500;
  driver.must(down);
  ASSERT_TRUE(driver.async_eq.poll(eqe));
  EXPECT_EQ(eqe.type, KH_EV_PORT_DOWN);
  driver.must(down);
  EXPECT_FALSE(driver.async_eq.poll(eqe));
}

TEST_F(AdminTest, GidsAreSetAndRemoved) {
  kh_admin_cmd set = FakeDriver::make(KH_ADM_SET_GID);
  set.set_gid.index = 127;
  set.set_gid.gid[0] = 0xfe;
  set.set_gid.vlan = 100;
  set.set_gid.valid = 1;
  uint64_t generation = rig.hca(0).gid_generation();
  driver.must(set);
  EXPECT_NE(rig.hca(0).gid_generation(), generation);
  ASSERT_NE(rig.hca(0).gid(127), nullptr);
  EXPECT_EQ(rig.hca(0).gid(127)->vlan, 100);
  EXPECT_EQ(rig.hca(0).find_gid({0xfe}, 100), 127);
  EXPECT_EQ(rig.hca(0).find_gid({0xfe}, KH_VLAN_NONE), -1);
  set.set_gid.valid = 0;
  driver.must(set);
  EXPECT_EQ(rig.hca(0).gid(127), nullptr);
  EXPECT_EQ(rig.hca(0).gid(128), nullptr);

  set.set_gid.valid = 2;
  expect(set, KH_ST_INVAL, body + offsetof(kh_cmd_set_gid, valid));
  set.set_gid.valid = 1;
  set.set_gid.vlan = 4095;
  expect(set, KH_ST_INVAL, body + offsetof(kh_cmd_set_gid, vlan));
  set.set_gid.index = 128;
  expect(set, KH_ST_INVAL, body + offsetof(kh_cmd_set_gid, index));
}

TEST_F(AdminTest, EventQueueFieldsAreChecked) {
  std::byte* memory = host.allocate(2 * KH_PAGE_SIZE);
  auto eq = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_EQ);
    command.create_eq.pages = host.pages(memory, 2 * KH_PAGE_SIZE);
    command.create_eq.db_offset = KH_PAGE_SIZE;
    command.create_eq.log_size = 8;
    command.create_eq.type = KH_EQ_COMPLETION;
    change(command.create_eq);
    return command;
  };
  using Body = kh_cmd_create_eq;
  expect(eq([](Body&) {}), KH_ST_OK, 0);
  expect(eq([](Body& b) { b.log_size = 3; }), KH_ST_INVAL, body + offsetof(Body, log_size));
  expect(eq([](Body& b) { b.log_size = 17; }), KH_ST_INVAL, body + offsetof(Body, log_size));
  expect(eq([](Body& b) { b.type = 2; }), KH_ST_INVAL, body + offsetof(Body, type));
  expect(eq([](Body& b) { b.type = KH_EQ_ASYNC; }), KH_ST_EXIST, body + offsetof(Body, type));
  expect(eq([](Body& b) { b.vector = 16; }), KH_ST_INVAL, body + offsetof(Body, vector));
  expect(eq([](Body& b) { b.ring_offset = 32; }), KH_ST_INVAL, body + offsetof(Body, ring_offset));
  expect(eq([](Body& b) { b.ring_offset = KH_PAGE_SIZE + 64; }), KH_ST_INVAL,
         body + offsetof(Body, ring_offset));
  expect(eq([](Body& b) { b.db_offset = 2 * KH_PAGE_SIZE; }), KH_ST_INVAL,
         body + offsetof(Body, db_offset));
  expect(eq([](Body& b) {
           b.pages.levels = 1;
           b.pages.npages = 2;
         }),
         KH_ST_INVAL, body + offsetof(Body, pages) + offsetof(kh_pages, levels));
  expect(eq([](Body& b) { b.pages.page_shift = 11; }), KH_ST_INVAL,
         body + offsetof(Body, pages) + offsetof(kh_pages, page_shift));
  expect(eq([](Body& b) { b.pages.page_shift = 31; }), KH_ST_INVAL,
         body + offsetof(Body, pages) + offsetof(kh_pages, page_shift));
  expect(eq([](Body& b) { b.pages.npages = 0; }), KH_ST_INVAL,
         body + offsetof(Body, pages) + offsetof(kh_pages, npages));
  expect(eq([](Body& b) { b.pages.rsvd = 1; }), KH_ST_INVAL,
         body + offsetof(Body, pages) + offsetof(kh_pages, rsvd));
  expect(eq([](Body& b) { b.pages.addr += 64; }), KH_ST_INVAL, body + offsetof(Body, pages));
  expect(eq([](Body& b) { b.pages.addr = 0; }), KH_ST_FAULT, body + offsetof(Body, pages));
  host.write_protect(memory, KH_PAGE_SIZE);
  expect(eq([](Body&) {}), KH_ST_FAULT, body + offsetof(Body, ring_offset));
}

TEST_F(AdminTest, AnEventQueueInUseStays) {
  TestCq cq = driver.create_cq(4);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_EQ, driver.completion_eq.eqn), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, cq.cqn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_EQ, driver.completion_eq.eqn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_EQ, driver.completion_eq.eqn), KH_ST_NOENT);
}

TEST_F(AdminTest, ContextsAreExclusiveAndStayWhileTheyHaveObjects) {
  expect(FakeDriver::make(KH_ADM_CREATE_CONTEXT, 1), KH_ST_EXIST, 4);
  expect(FakeDriver::make(KH_ADM_CREATE_CONTEXT, 0), KH_ST_EXIST, 4);
  expect(FakeDriver::make(KH_ADM_CREATE_CONTEXT, 16), KH_ST_INVAL, 4);
  expect(FakeDriver::make(KH_ADM_DESTROY_CONTEXT, 0), KH_ST_PERM, 4);
  expect(FakeDriver::make(KH_ADM_DESTROY_CONTEXT, 5), KH_ST_NOENT, 4);
  TestCq cq = driver.create_cq(4, 1);
  expect(FakeDriver::make(KH_ADM_DESTROY_CONTEXT, 1), KH_ST_BUSY, 4);
  driver.destroy(KH_ADM_DESTROY_CQ, cq.cqn);
  expect(FakeDriver::make(KH_ADM_DESTROY_CONTEXT, 1), KH_ST_OK, 0);
  driver.create_context(1);
}

TEST_F(AdminTest, PdsStayWhileTheyHaveKeysQueuesOrQueuePairs) {
  uint32_t pd = driver.create_pd();
  EXPECT_GT(pd, 0u);
  auto busy = [&](kh_admin_op destroy, uint32_t handle) {
    EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_BUSY);
    EXPECT_EQ(driver.destroy(destroy, handle), KH_ST_OK);
  };
  busy(KH_ADM_DESTROY_MKEY, driver.create_region(pd, 4096, 0).key);
  busy(KH_ADM_DESTROY_MKEY, driver.create_window(pd, KH_MKEY_MW2));
  busy(KH_ADM_DESTROY_SRQ, driver.create_srq(pd, 2).srqn);
  TestCq cq = driver.create_cq(4);
  busy(KH_ADM_DESTROY_QP,
       driver.create_qp({.pdn = pd, .send_cqn = cq.cqn, .recv_cqn = cq.cqn}).qpn);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_NOENT);
}

TEST_F(AdminTest, MkeyFieldsAreChecked) {
  uint32_t pd = driver.create_pd();
  std::byte* memory = host.allocate(2 * KH_PAGE_SIZE);
  using Body = kh_cmd_create_mkey;
  auto key = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.pdn = pd;
    command.create_mkey.start = 0x10000;
    command.create_mkey.length = KH_PAGE_SIZE;
    command.create_mkey.pages = host.pages(memory, 2 * KH_PAGE_SIZE);
    command.create_mkey.offset = 100;
    change(command.create_mkey);
    return command;
  };
  auto bare = [&](uint8_t kind, auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.kind = kind;
    command.create_mkey.pdn = pd;
    change(command.create_mkey);
    return command;
  };
  expect(key([](Body&) {}), KH_ST_OK, 0);
  expect(key([](Body& b) { b.kind = 7; }), KH_ST_INVAL, body);
  expect(key([](Body& b) { b.pdn = 4711; }), KH_ST_NOENT, body + offsetof(Body, pdn));
  expect(key([](Body& b) { b.pdn = 0; }), KH_ST_NOENT, body + offsetof(Body, pdn));
  expect(key([](Body& b) { b.access = 0x40; }), KH_ST_INVAL, body + offsetof(Body, access));
  expect(key([](Body& b) { b.access = KH_ACCESS_FLUSH_PERSISTENT; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(key([](Body& b) { b.access = KH_ACCESS_REMOTE_WRITE; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(key([](Body& b) { b.access = KH_ACCESS_REMOTE_ATOMIC; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(key([](Body& b) { b.max_entries = 1; }), KH_ST_INVAL, body + offsetof(Body, max_entries));
  expect(key([](Body& b) { b.length = 0; }), KH_ST_INVAL, body + offsetof(Body, length));
  expect(key([](Body& b) { b.length = 2 * KH_PAGE_SIZE - 99; }), KH_ST_INVAL,
         body + offsetof(Body, length));
  expect(key([](Body& b) {
           b.length = ~uint64_t{0};
           b.start = 0;
         }),
         KH_ST_INVAL, body + offsetof(Body, length));
  expect(key([](Body& b) { b.offset = 2 * KH_PAGE_SIZE; }), KH_ST_INVAL,
         body + offsetof(Body, offset));
  expect(key([](Body& b) { b.start = ~uint64_t{0} - 10; }), KH_ST_INVAL,
         body + offsetof(Body, start));
  expect(key([](Body& b) { b.access = KH_ACCESS_ZERO_BASED; }), KH_ST_INVAL,
         body + offsetof(Body, start));
  expect(key([](Body& b) { b.pages.levels = 4; }), KH_ST_INVAL,
         body + offsetof(Body, pages) + offsetof(kh_pages, levels));
  for (uint8_t kind : {KH_MKEY_MW1, KH_MKEY_MW2, KH_MKEY_PHYS}) {
    expect(bare(kind, [](Body&) {}), KH_ST_OK, 0);
    expect(bare(kind, [](Body& b) { b.start = 1; }), KH_ST_INVAL, body + offsetof(Body, start));
    expect(bare(kind, [](Body& b) { b.length = 1; }), KH_ST_INVAL, body + offsetof(Body, length));
    expect(bare(kind, [](Body& b) { b.offset = 1; }), KH_ST_INVAL, body + offsetof(Body, offset));
    expect(bare(kind, [](Body& b) { b.pages.npages = 1; }), KH_ST_INVAL,
           body + offsetof(Body, pages));
  }
  expect(bare(KH_MKEY_MW1, [](Body& b) { b.access = 1; }), KH_ST_INVAL,
         body + offsetof(Body, access));
  expect(bare(KH_MKEY_FREE, [](Body&) {}), KH_ST_INVAL, body + offsetof(Body, max_entries));
}

TEST_F(AdminTest, PageListsOfEveryDepthAreRead) {
  uint32_t pd = driver.create_pd();
  std::byte* memory = host.allocate(600 * KH_PAGE_SIZE);
  for (int levels : {0, 2, 3}) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.pdn = pd;
    command.create_mkey.length = 600 * KH_PAGE_SIZE;
    command.create_mkey.pages = host.pages(memory, 600 * KH_PAGE_SIZE, levels);
    EXPECT_EQ(driver.command(command).status, KH_ST_OK) << levels;
  }
  kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
  command.create_mkey.pdn = pd;
  command.create_mkey.length = KH_PAGE_SIZE;
  command.create_mkey.pages = host.pages(memory, 513 * KH_PAGE_SIZE, 2);
  command.create_mkey.pages.levels = 1;  // too many pages for that
  expect(command, KH_ST_INVAL,
         body + offsetof(kh_cmd_create_mkey, pages) + offsetof(kh_pages, npages));
}

TEST_F(AdminTest, PageListEntriesAreCheckedOneByOne) {
  uint32_t pd = driver.create_pd();
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
  command.create_mkey.pdn = pd;
  command.create_mkey.length = 4 * KH_PAGE_SIZE;
  command.create_mkey.pages = host.pages(memory, 4 * KH_PAGE_SIZE, 1);
  auto* list = reinterpret_cast<uint64_t*>(
      host.arena().data() + (command.create_mkey.pages.addr - host.iova(host.arena().data())));
  constexpr size_t at = body + offsetof(kh_cmd_create_mkey, pages);
  uint64_t good = list[2];
  list[2] = good + 8;
  expect(command, KH_ST_INVAL, at);
  list[2] = 0xffff'ffff'ffff'f000;
  expect(command, KH_ST_FAULT, at);
  list[2] = good;
  expect(command, KH_ST_OK, 0);
  command.create_mkey.pages.addr += 8;
  expect(command, KH_ST_INVAL, at);
  command.create_mkey.pages.addr = 0x1000;
  expect(command, KH_ST_FAULT, at);
}

TEST_F(AdminTest, ModifyMkeyChangesWhatItsMaskSaysAndYieldsANewKey) {
  uint32_t pd = driver.create_pd();
  uint32_t other = driver.create_pd();
  TestRegion region = driver.create_region(pd, 8192, KH_ACCESS_LOCAL_WRITE);
  kh_admin_cmd modify = FakeDriver::make(KH_ADM_MODIFY_MKEY, region.key);
  modify.modify_mkey.mask = KH_MKEY_MOD_PD | KH_MKEY_MOD_ACCESS;
  modify.modify_mkey.pdn = other;
  modify.modify_mkey.access = KH_ACCESS_REMOTE_READ;
  uint32_t key = driver.must(modify).result[0];
  EXPECT_EQ(KH_KEY_INDEX(key), KH_KEY_INDEX(region.key));
  EXPECT_EQ(KH_KEY_VARIANT(key), KH_KEY_VARIANT(region.key + 1));
  expect(modify, KH_ST_NOENT, offsetof(kh_admin_hdr, handle));  // the old key is nobody's
  kh_mkey_attr attr = driver.query_mkey(key);
  EXPECT_EQ(attr.pdn, other);
  EXPECT_EQ(attr.access, uint32_t{KH_ACCESS_REMOTE_READ});
  EXPECT_EQ(attr.start, region.start);
  EXPECT_EQ(attr.length, 8192u);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, pd), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_PD, other), KH_ST_BUSY);

  using Body = kh_cmd_modify_mkey;
  auto bad = [&](auto change, uint8_t status, size_t at) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_MODIFY_MKEY, key);
    command.modify_mkey.mask = KH_MKEY_MOD_ACCESS;
    change(command.modify_mkey);
    expect(command, status, at);
  };
  bad([](Body& b) { b.mask = 0; }, KH_ST_INVAL, body);
  bad([](Body& b) { b.mask = 8; }, KH_ST_INVAL, body);
  bad([](Body& b) { b.start = 1; }, KH_ST_INVAL, body + offsetof(Body, start));
  bad([](Body& b) { b.pdn = 1; }, KH_ST_INVAL, body + offsetof(Body, pdn));
  bad([](Body& b) { b.access = KH_ACCESS_REMOTE_WRITE; }, KH_ST_INVAL,
      body + offsetof(Body, access));
  bad([](Body& b) { b.access = KH_ACCESS_ZERO_BASED; }, KH_ST_INVAL, body + offsetof(Body, access));
  bad(
      [](Body& b) {
        b.mask = KH_MKEY_MOD_PD;
        b.pdn = 999;
      },
      KH_ST_NOENT, body + offsetof(Body, pdn));
  // A refused one has changed nothing.
  EXPECT_EQ(driver.query_mkey(key).key, key);
}

TEST_F(AdminTest, QueueFieldsAreChecked) {
  std::byte* memory = host.allocate(4 * KH_PAGE_SIZE);
  auto cq = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_CQ);
    command.create_cq.pages = host.pages(memory, 4 * KH_PAGE_SIZE);
    command.create_cq.db_offset = 3 * KH_PAGE_SIZE;
    command.create_cq.eqn = driver.completion_eq.eqn;
    command.create_cq.ctx = 1;
    command.create_cq.log_size = 7;
    change(command.create_cq);
    return command;
  };
  using Cqb = kh_cmd_create_cq;
  expect(cq([](Cqb&) {}), KH_ST_OK, 0);
  expect(cq([](Cqb& b) { b.log_size = 0; }), KH_ST_INVAL, body + offsetof(Cqb, log_size));
  expect(cq([](Cqb& b) { b.log_size = 23; }), KH_ST_INVAL, body + offsetof(Cqb, log_size));
  expect(cq([](Cqb& b) { b.log_size = 22; }), KH_ST_INVAL, body + offsetof(Cqb, ring_offset));
  expect(cq([](Cqb& b) { b.flags = 4; }), KH_ST_INVAL, body + offsetof(Cqb, flags));
  expect(cq([](Cqb& b) { b.eqn = 60; }), KH_ST_NOENT, body + offsetof(Cqb, eqn));
  expect(cq([&](Cqb& b) { b.eqn = driver.async_eq.eqn; }), KH_ST_NOENT, body + offsetof(Cqb, eqn));
  expect(cq([](Cqb& b) { b.ctx = 3; }), KH_ST_NOENT, body + offsetof(Cqb, ctx));
  expect(cq([](Cqb& b) { b.ctx = 0xffff; }), KH_ST_NOENT, body + offsetof(Cqb, ctx));
  expect(cq([](Cqb& b) { b.db_offset = 16; }), KH_ST_INVAL, body + offsetof(Cqb, db_offset));

  uint32_t pd = driver.create_pd();
  auto srq = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_SRQ);
    command.create_srq.pages = host.pages(memory, 4 * KH_PAGE_SIZE);
    command.create_srq.db_offset = 3 * KH_PAGE_SIZE;
    command.create_srq.pdn = pd;
    command.create_srq.ctx = 1;
    command.create_srq.log_size = 4;
    command.create_srq.log_stride = 6;
    change(command.create_srq);
    return command;
  };
  using Sb = kh_cmd_create_srq;
  expect(srq([](Sb&) {}), KH_ST_OK, 0);
  expect(srq([](Sb& b) { b.log_size = 16; }), KH_ST_INVAL, body + offsetof(Sb, log_size));
  expect(srq([](Sb& b) { b.log_stride = 4; }), KH_ST_INVAL, body + offsetof(Sb, log_stride));
  expect(srq([](Sb& b) { b.log_stride = 11; }), KH_ST_INVAL, body + offsetof(Sb, log_stride));
  expect(srq([](Sb& b) { b.ring_offset = 32; }), KH_ST_INVAL, body + offsetof(Sb, ring_offset));
  expect(srq([](Sb& b) { b.pdn = 77; }), KH_ST_NOENT, body + offsetof(Sb, pdn));
  expect(srq([](Sb& b) { b.ctx = 9; }), KH_ST_NOENT, body + offsetof(Sb, ctx));
  expect(srq([](Sb& b) { b.db_offset = 4 * KH_PAGE_SIZE - 64; }), KH_ST_INVAL,
         body + offsetof(Sb, db_offset));
}

TEST_F(AdminTest, QueuePairFieldsAreChecked) {
  uint32_t pd = driver.create_pd();
  TestCq cq = driver.create_cq(4);
  TestSrq srq = driver.create_srq(pd, 4);
  std::byte* memory = host.allocate(8 * KH_PAGE_SIZE);
  using Body = kh_cmd_create_qp;
  auto qp = [&](auto change) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_QP);
    Body& b = command.create_qp;
    b.pages = host.pages(memory, 8 * KH_PAGE_SIZE);
    b.rq_offset = 4 * KH_PAGE_SIZE;
    b.db_offset = 7 * KH_PAGE_SIZE;
    b.pdn = pd;
    b.send_cqn = b.recv_cqn = cq.cqn;
    b.srqn = KH_NO_SRQ;
    b.ctx = 1;
    b.log_sq_blocks = 6;
    b.log_rq_size = 4;
    b.log_rq_stride = 6;
    b.has_sq = b.has_rq = 1;
    b.max_send_sge = 32;
    b.max_recv_sge = 3;
    change(b);
    return command;
  };
  expect(qp([](Body&) {}), KH_ST_OK, 0);
  expect(qp([](Body& b) { b.has_sq = b.has_rq = 0; }), KH_ST_OK, 0);
  expect(qp([](Body& b) { b.type = 4; }), KH_ST_INVAL, body + offsetof(Body, type));
  expect(qp([](Body& b) { b.type = KH_QPT_GSI; }), KH_ST_PERM, body + offsetof(Body, ctx));
  expect(qp([](Body& b) { b.db_slot = 4096; }), KH_ST_INVAL, body + offsetof(Body, db_slot));
  expect(qp([](Body& b) { b.has_sq = 2; }), KH_ST_INVAL, body + offsetof(Body, has_sq));
  expect(qp([](Body& b) { b.has_rq = 2; }), KH_ST_INVAL, body + offsetof(Body, has_rq));
  expect(qp([&](Body& b) { b.srqn = srq.srqn; }), KH_ST_INVAL, body + offsetof(Body, has_rq));
  expect(qp([](Body& b) {
           b.srqn = 99;
           b.has_rq = 0;
         }),
         KH_ST_NOENT, body + offsetof(Body, srqn));
  expect(qp([](Body& b) { b.max_send_sge = 33; }), KH_ST_INVAL,
         body + offsetof(Body, max_send_sge));
  expect(qp([](Body& b) { b.max_recv_sge = 4; }), KH_ST_INVAL, body + offsetof(Body, max_recv_sge));
  expect(qp([](Body& b) {
           b.max_recv_sge = 33;
           b.log_rq_stride = 10;
         }),
         KH_ST_INVAL, body + offsetof(Body, max_recv_sge));
  expect(qp([](Body& b) { b.log_sq_blocks = 21; }), KH_ST_INVAL,
         body + offsetof(Body, log_sq_blocks));
  expect(qp([](Body& b) { b.log_sq_blocks = 20; }), KH_ST_INVAL, body + offsetof(Body, sq_offset));
  expect(qp([](Body& b) { b.sq_offset = 32; }), KH_ST_INVAL, body + offsetof(Body, sq_offset));
  expect(qp([](Body& b) { b.log_rq_size = 16; }), KH_ST_INVAL, body + offsetof(Body, log_rq_size));
  expect(qp([](Body& b) { b.log_rq_stride = 4; }), KH_ST_INVAL,
         body + offsetof(Body, log_rq_stride));
  expect(qp([](Body& b) { b.rq_offset = 0xffffffc0; }), KH_ST_INVAL,
         body + offsetof(Body, rq_offset));
  expect(qp([](Body& b) { b.db_offset = 8 * KH_PAGE_SIZE - 64; }), KH_ST_INVAL,
         body + offsetof(Body, db_offset));
  expect(qp([](Body& b) { b.pdn = 99; }), KH_ST_NOENT, body + offsetof(Body, pdn));
  expect(qp([](Body& b) { b.send_cqn = 99; }), KH_ST_NOENT, body + offsetof(Body, send_cqn));
  expect(qp([](Body& b) { b.recv_cqn = 99; }), KH_ST_NOENT, body + offsetof(Body, recv_cqn));
  expect(qp([](Body& b) { b.ctx = 4; }), KH_ST_NOENT, body + offsetof(Body, ctx));
}

TEST_F(AdminTest, WhatAQueuePairUsesStaysUntilItIsGone) {
  uint32_t pd = driver.create_pd();
  TestCq send = driver.create_cq(4);
  TestCq recv = driver.create_cq(4);
  TestSrq srq = driver.create_srq(pd, 4);
  TestQp qp =
      driver.create_qp({.pdn = pd, .send_cqn = send.cqn, .recv_cqn = recv.cqn, .srqn = srq.srqn});
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, send.cqn), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, recv.cqn), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_SRQ, srq.srqn), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CONTEXT, 1), KH_ST_BUSY);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_QP, qp.qpn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_QP, qp.qpn), KH_ST_NOENT);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, send.cqn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CQ, recv.cqn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_SRQ, srq.srqn), KH_ST_OK);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_CONTEXT, 1), KH_ST_OK);
}

TEST_F(AdminTest, QueuePairNumbersAreNotSoonReusedAndOneIsTheGsi) {
  uint32_t pd = driver.create_pd();
  TestCq cq = driver.create_cq(4, 0);
  QpOptions options{
      .pdn = pd, .send_cqn = cq.cqn, .recv_cqn = cq.cqn, .log_sq_blocks = 2, .log_rq_size = 2};
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    TestQp qp = driver.create_qp(options);
    EXPECT_GT(qp.qpn, 1u);
    EXPECT_LT(qp.qpn, 1u << 24);
    EXPECT_TRUE(seen.insert(qp.qpn).second);
    driver.destroy(KH_ADM_DESTROY_QP, qp.qpn);
    host.release(qp.memory, qp.memory_size);
  }
  options.type = KH_QPT_GSI;
  options.context = 0;
  EXPECT_EQ(driver.create_qp(options).qpn, 1u);
  EXPECT_THROW(driver.create_qp(options), std::runtime_error);
  EXPECT_EQ(driver.destroy(KH_ADM_DESTROY_QP, 1), KH_ST_OK);
  EXPECT_EQ(driver.create_qp(options).qpn, 1u);
}

TEST_F(AdminTest, MulticastIsForDatagramsAndGroupsEndWithTheirMembers) {
  uint32_t pd = driver.create_pd();
  TestCq cq = driver.create_cq(4);
  QpOptions options{.pdn = pd, .send_cqn = cq.cqn, .recv_cqn = cq.cqn};
  TestQp rc = driver.create_qp(options);
  options.type = KH_QPT_UD;
  TestQp ud = driver.create_qp(options);
  auto mcast = [&](kh_admin_op opcode, uint32_t qpn, uint8_t first) {
    kh_admin_cmd command = FakeDriver::make(opcode, qpn);
    command.mcast.mgid[0] = first;
    return command;
  };
  expect(mcast(KH_ADM_ATTACH_MCAST, rc.qpn, 0xff), KH_ST_INVAL, 4);
  expect(mcast(KH_ADM_ATTACH_MCAST, 12345, 0xff), KH_ST_NOENT, 4);
  expect(mcast(KH_ADM_ATTACH_MCAST, ud.qpn, 0xfe), KH_ST_INVAL, body);
  expect(mcast(KH_ADM_ATTACH_MCAST, ud.qpn, 0xff), KH_ST_OK, 0);
  expect(mcast(KH_ADM_ATTACH_MCAST, ud.qpn, 0xff), KH_ST_OK, 0);
  ASSERT_EQ(rig.hca(0).mcast_members({0xff}).size(), 1u);
  expect(mcast(KH_ADM_DETACH_MCAST, ud.qpn, 0xff), KH_ST_OK, 0);
  expect(mcast(KH_ADM_DETACH_MCAST, ud.qpn, 0xff), KH_ST_NOENT, body);
  // 224.0.0.1
  kh_admin_cmd ipv4 = FakeDriver::make(KH_ADM_ATTACH_MCAST, ud.qpn);
  ipv4.mcast.mgid[10] = ipv4.mcast.mgid[11] = 0xff;
  ipv4.mcast.mgid[12] = 224;
  ipv4.mcast.mgid[15] = 1;
  expect(ipv4, KH_ST_OK, 0);
  driver.destroy(KH_ADM_DESTROY_QP, ud.qpn);
  Gid group{};
  std::memcpy(group.data(), ipv4.mcast.mgid, 16);
  EXPECT_TRUE(rig.hca(0).mcast_members(group).empty());
}

TEST_F(AdminTest, AProducerIndexBeyondTheRingIsFatal) {
  kh_eqe eqe;
  while (driver.async_eq.poll(eqe)) {
  }
  // The third page that the driver has allocated is its admin record.
  auto* db = reinterpret_cast<kh_admin_db*>(host.arena().data() + 2 * KH_PAGE_SIZE);
  db->pi = db->pi + 33;
  driver.ring(0, KH_DB_SLOT_ADMIN);
  rig.run();
  EXPECT_EQ(rig.hca(0).read_register(KH_REG_STATUS),
            KH_STATUS_FATAL | KH_FATAL_ADMIN_RING << KH_STATUS_FATAL_SHIFT);
  ASSERT_TRUE(driver.async_eq.poll(eqe));
  EXPECT_EQ(eqe.type, KH_EV_FATAL);
  EXPECT_FALSE(rig.hca(0).polling());
  driver.disable();
  driver.start(1);
  EXPECT_TRUE(rig.hca(0).ready());
}

TEST_F(AdminTest, ACompletionRingThatNobodyReadsIsFatal) {
  auto* db = reinterpret_cast<kh_admin_db*>(host.arena().data() + 2 * KH_PAGE_SIZE);
  db->ci = db->ci - 32;
  db->pi = db->pi + 1;
  driver.ring(0, KH_DB_SLOT_ADMIN);
  rig.run();
  EXPECT_EQ(rig.hca(0).read_register(KH_REG_STATUS),
            KH_STATUS_FATAL | KH_FATAL_ADMIN_CQ << KH_STATUS_FATAL_SHIFT);
}

TEST_F(AdminTest, AdminMemoryThatIsTakenAwayIsFatal) {
  host.unmap(host.arena().data(), KH_PAGE_SIZE);  // the admin SQ
  auto* db = reinterpret_cast<kh_admin_db*>(host.arena().data() + 2 * KH_PAGE_SIZE);
  db->pi = db->pi + 1;
  driver.ring(0, KH_DB_SLOT_ADMIN);
  rig.run();
  EXPECT_EQ(rig.hca(0).read_register(KH_REG_STATUS),
            KH_STATUS_FATAL | KH_FATAL_ADMIN_ADDR << KH_STATUS_FATAL_SHIFT);
}

TEST_F(AdminTest, ArmedCompletionsRaiseVectorZeroOncePerSerialNumber) {
  auto* db = reinterpret_cast<kh_admin_db*>(host.arena().data() + 2 * KH_PAGE_SIZE);
  uint32_t before = host.raised[0];
  driver.must(FakeDriver::make(KH_ADM_NOP));
  EXPECT_EQ(host.raised[0], before);
  db->arm = 1 << KH_ARM_SN_SHIFT | KH_ARM_NEXT;
  driver.must(FakeDriver::make(KH_ADM_NOP));
  driver.must(FakeDriver::make(KH_ADM_NOP));
  EXPECT_EQ(host.raised[0], before + 1);
  db->arm = 2 << KH_ARM_SN_SHIFT | KH_ARM_NEXT;
  driver.must(FakeDriver::make(KH_ADM_NOP));
  EXPECT_EQ(host.raised[0], before + 2);
}

TEST(AdminBudget, ObjectsAreRefusedAtTheMemoryLimitAndFreedMemoryComesBack) {
  Rig rig({.stations = 1,
           .host = {.memory = 64 << 20, .scattered = true},
           .hca = {.memory_budget = 64 << 10}});
  FakeDriver& driver = rig.driver(0);
  uint32_t pd = driver.create_pd();
  // 4,096 pages are 32 KiB of addresses.
  std::byte* memory = rig.host(0).allocate(16 << 20);
  TestRegion first = driver.register_memory(pd, memory, 16 << 20, 0, 0);
  EXPECT_GE(rig.hca(0).snapshot().memory_used, 32u << 10);
  EXPECT_THROW(driver.register_memory(pd, memory, 16 << 20, 0, 0), std::runtime_error);
  driver.destroy(KH_ADM_DESTROY_MKEY, first.key);
  driver.register_memory(pd, memory, 16 << 20, 0, 0);

  TestCq cq = driver.create_cq(4);
  QpOptions options{
      .pdn = pd, .send_cqn = cq.cqn, .recv_cqn = cq.cqn, .log_sq_blocks = 2, .log_rq_size = 2};
  uint32_t made = 0;
  try {
    for (; made < 100; ++made)
      driver.create_qp(options);
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("NOMEM"), std::string::npos) << error.what();
  }
  EXPECT_LE(made * sizeof(Qp), 32u << 10);
}

TEST(AdminQuantum, ALongPageListIsReadOverSeveralTurns) {
  Rig rig({.stations = 1, .host = {.memory = 512 << 20, .scattered = true}});
  uint32_t pd = rig.driver(0).create_pd();
  std::byte* memory = rig.host(0).allocate(256 << 20);  // 65,536 pages
  kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
  command.create_mkey.pdn = pd;
  command.create_mkey.length = 256 << 20;
  command.create_mkey.pages = rig.host(0).pages(memory, 256 << 20);
  // Posted by hand, to count the turns.
  uint64_t before = rig.hca(0).stats()[KH_STAT_ADMIN_COMMANDS];
  auto* sq = reinterpret_cast<kh_admin_cmd*>(rig.host(0).arena().data());
  auto* db = reinterpret_cast<kh_admin_db*>(rig.host(0).arena().data() + 2 * KH_PAGE_SIZE);
  sq[db->pi & 31] = command;
  db->pi = db->pi + 1;
  rig.driver(0).ring(0, 0);
  int turns = 0;
  while (rig.hca(0).stats()[KH_STAT_ADMIN_COMMANDS] == before && turns < 1000) {
    rig.hca(0).run();
    ++turns;
  }
  EXPECT_GT(turns, 1);
  EXPECT_LT(turns, 1000);
}

}  // namespace
}  // namespace keyhole::test
