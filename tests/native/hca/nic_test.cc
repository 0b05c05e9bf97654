// SPDX-License-Identifier: BSD-2-Clause
//
// NIC rings and the switch.

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "harness.h"
#include "hca/frame.h"
#include "hca/guest_access.h"

namespace keyhole::test {
namespace {

using Frame = std::vector<std::byte>;

// The netdev's driver, at its smallest.
class TestNic {
 public:
  static constexpr uint8_t log_size = 4;
  static constexpr uint32_t buffer_size = 2048;

  explicit TestNic(FakeDriver& driver) : driver_(driver) {
    memory_ = driver_.host().allocate(KH_PAGE_SIZE);
    buffers_ = driver_.host().allocate(buffer_size * 16);
    tx_frame_ = driver_.host().allocate(16384);
    driver_.must(command());
  }

  kh_admin_cmd command() {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_NIC);
    kh_cmd_create_nic& body = command.create_nic;
    body.pages = driver_.host().pages(memory_, KH_PAGE_SIZE, 0);
    body.tx_offset = 0;
    body.rx_offset = 256;
    body.rxc_offset = 512;
    body.db_offset = 1024;
    body.vector = 3;
    body.db_slot = 5;
    body.log_tx_size = body.log_rx_size = log_size;
    return command;
  }

  void post_buffer(uint32_t size = buffer_size) {
    kh_nic_desc& desc = rx()[rx_pi_ & 15];
    desc.addr = driver_.host().iova(buffers_ + size_t{rx_pi_ & 15} * buffer_size);
    desc.len = size;
    store_release(&db()->rx_pi, ++rx_pi_);
  }

  void send(const Frame& frame) {
    std::memcpy(tx_frame_, frame.data(), std::min<size_t>(frame.size(), 16384));
    kh_nic_desc& desc = tx()[tx_pi_ & 15];
    desc.addr = driver_.host().iova(tx_frame_);
    desc.len = static_cast<uint32_t>(frame.size());
    store_release(&db()->tx_pi, ++tx_pi_);
    driver_.ring(0, 5);
    driver_.run();
  }

  std::optional<Frame> receive() {
    auto* cqe = reinterpret_cast<kh_nic_cqe*>(memory_ + 512) + (rx_ci_ & 15);
    if (load_acquire<uint8_t>(&cqe->phase) != (((rx_ci_ >> log_size) & 1) ^ 1)) return std::nullopt;
    EXPECT_EQ(cqe->flags, KH_NIC_CSUM_OK);
    std::byte* from = buffers_ + size_t{rx_ci_ & 15} * buffer_size;
    Frame frame(from, from + cqe->len);
    store_release(&db()->rx_ci, ++rx_ci_);
    return frame;
  }

  kh_nic_db* db() { return reinterpret_cast<kh_nic_db*>(memory_ + 1024); }
  kh_nic_desc* tx() { return reinterpret_cast<kh_nic_desc*>(memory_); }
  kh_nic_desc* rx() { return reinterpret_cast<kh_nic_desc*>(memory_ + 256); }

 private:
  FakeDriver& driver_;
  std::byte* memory_ = nullptr;
  std::byte* buffers_ = nullptr;
  std::byte* tx_frame_ = nullptr;
  uint32_t tx_pi_ = 0;
  uint32_t rx_pi_ = 0;
  uint32_t rx_ci_ = 0;
};

class NicTest : public ::testing::Test {
 protected:
  Rig rig{{.stations = 3}};
  TestNic a{rig.driver(0)}, b{rig.driver(1)}, c{rig.driver(2)};

  static Frame frame(const Mac& to, const Mac& from, size_t size = 100, uint8_t fill = 0x42) {
    Frame frame(size, std::byte{fill});
    std::memcpy(frame.data(), to.bytes.data(), 6);
    std::memcpy(frame.data() + 6, from.bytes.data(), 6);
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xb5};
    return frame;
  }
  static constexpr Mac broadcast{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
  const Mac& mac(int station) { return rig.driver(station).mac; }
  void set_port(int station, uint8_t flags) {
    kh_admin_cmd port = FakeDriver::make(KH_ADM_SET_PORT);
    port.set_port.flags = flags;
    std::memcpy(port.set_port.mac, mac(station).bytes.data(), 6);
    port.set_port.mtu = 1500;
    rig.driver(station).must(port);
  }
};

TEST_F(NicTest, AUnicastFrameArrivesWholeAtItsAddressOnly) {
  b.post_buffer();
  c.post_buffer();
  Frame sent = frame(mac(1), mac(0), 1514);
  a.send(sent);
  auto got = b.receive();
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, sent);
  EXPECT_FALSE(c.receive());
  EXPECT_EQ(a.db()->tx_ci, 1u);
  EXPECT_EQ(rig.hca(0).stats()[KH_STAT_NIC_TX_BYTES], 1514u);
  EXPECT_EQ(rig.hca(1).stats()[KH_STAT_NIC_RX_FRAMES], 1u);
}

TEST_F(NicTest, BroadcastGoesToAllOthers) {
  a.post_buffer();
  b.post_buffer();
  c.post_buffer();
  a.send(frame(broadcast, mac(0)));
  EXPECT_FALSE(a.receive());
  EXPECT_TRUE(b.receive());
  EXPECT_TRUE(c.receive());
}

TEST_F(NicTest, APromiscuousNetdevSeesUnknownAddressesAndTheSwitchLearnsTheirPlace) {
  Mac behind{{0x02, 0xbb, 0, 0, 0, 1}};
  set_port(2, KH_PORT_UP | KH_PORT_PROMISC);
  for (int i = 0; i < 4; ++i)
    b.post_buffer(), c.post_buffer();
  a.send(frame(behind, mac(0)));  // flooded
  EXPECT_FALSE(b.receive());
  EXPECT_TRUE(c.receive());
  // Somebody behind station 2 answers, and is known from then on.
  size_t learned = rig.fabric().learned();
  c.send(frame(mac(1), behind));
  EXPECT_EQ(rig.fabric().learned(), learned + 1);
  EXPECT_TRUE(b.receive());
  set_port(1, KH_PORT_UP | KH_PORT_PROMISC);
  a.send(frame(behind, mac(0)));
  EXPECT_FALSE(b.receive());
  EXPECT_TRUE(c.receive());
  // Five silent minutes later it is flooded again.
  for (int i = 0; i < 3; ++i)
    rig.host(i).advance(Switch::forget_after_ns + 1);
  a.send(frame(behind, mac(0)));
  EXPECT_TRUE(b.receive());
}

TEST_F(NicTest, TheTableOfLearnedAddressesIsBounded) {
  for (uint32_t i = 0; i < Switch::max_learned + 100; ++i)
    a.send(
        frame(broadcast, {{0x02, 1, 0, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)}}));
  EXPECT_EQ(rig.fabric().learned(), Switch::max_learned);
  // Others are still reached.
  b.post_buffer();
  a.send(frame(mac(1), mac(0)));
  EXPECT_TRUE(b.receive());
}

TEST_F(NicTest, FramesWithoutABufferOrTooLongForItAreDropped) {
  a.send(frame(mac(1), mac(0)));
  EXPECT_EQ(rig.hca(1).stats()[KH_STAT_NIC_RX_DROPPED], 1u);
  b.post_buffer(99);
  a.send(frame(mac(1), mac(0)));
  EXPECT_EQ(rig.hca(1).stats()[KH_STAT_NIC_RX_DROPPED], 2u);
  EXPECT_FALSE(b.receive());
}

TEST_F(NicTest, ManyFramesWrapTheRings) {
  for (int i = 0; i < 100; ++i) {
    b.post_buffer();
    Frame sent = frame(mac(1), mac(0), 60 + i, static_cast<uint8_t>(i));
    a.send(sent);
    auto got = b.receive();
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, sent);
  }
}

TEST_F(NicTest, FramesFlowOnlyWhilePortsAreUp) {
  b.post_buffer();
  set_port(1, 0);
  a.send(frame(mac(1), mac(0)));
  EXPECT_FALSE(b.receive());
  set_port(1, KH_PORT_UP);
  set_port(0, 0);
  a.send(frame(mac(1), mac(0)));
  EXPECT_FALSE(b.receive());
  EXPECT_EQ(a.db()->tx_ci, 2u);  // done with all the same
  set_port(0, KH_PORT_UP);
  a.send(frame(mac(1), mac(0)));
  EXPECT_TRUE(b.receive());
}

TEST_F(NicTest, FramesOfImpossibleLengthAreSkipped) {
  b.post_buffer();
  a.send(frame(mac(1), mac(0), 10000));
  Frame shorty = frame(mac(1), mac(0), 14);
  shorty.resize(13);
  a.send(shorty);
  EXPECT_FALSE(b.receive());
  EXPECT_EQ(a.db()->tx_ci, 2u);
  a.tx()[2].addr = 0x10;  // not memory
  a.tx()[2].len = 100;
  store_release<uint32_t>(&a.db()->tx_pi, 3);
  rig.driver(0).ring(0, 5);
  rig.run();
  EXPECT_EQ(a.db()->tx_ci, 3u);
  EXPECT_FALSE(b.receive());
}

TEST_F(NicTest, AProducerIndexBeyondTheRingStopsTheNicOnly) {
  store_release<uint32_t>(&a.db()->tx_pi, 17);
  rig.driver(0).ring(0, 5);
  rig.run();
  EXPECT_EQ(a.db()->tx_ci, 0u);
  EXPECT_TRUE(rig.hca(0).ready());
  rig.driver(0).must(FakeDriver::make(KH_ADM_NOP));
  rig.driver(0).must(FakeDriver::make(KH_ADM_DESTROY_NIC));
}

TEST_F(NicTest, InterruptsFollowTheArm) {
  uint32_t before = rig.host(1).raised[3];
  b.post_buffer();
  b.post_buffer();
  a.send(frame(mac(1), mac(0)));
  EXPECT_EQ(rig.host(1).raised[3], before);
  b.db()->arm = 1 << KH_ARM_SN_SHIFT | KH_ARM_NEXT;
  a.send(frame(mac(1), mac(0)));
  a.send(frame(mac(1), mac(0)));
  EXPECT_EQ(rig.host(1).raised[3], before + 1);
  a.db()->arm = 1 << KH_ARM_SN_SHIFT | KH_ARM_NEXT;
  before = rig.host(0).raised[3];
  a.send(frame(mac(1), mac(0)));
  EXPECT_EQ(rig.host(0).raised[3], before + 1);  // TX done
}

TEST_F(NicTest, RocePacketsAreTheHcasWhileItsRdmaFunctionIsUp) {
  b.post_buffer();
  Frame roce = frame(mac(1), mac(0), 100, 0);
  roce[12] = std::byte{0x08};
  roce[13] = std::byte{0x00};
  roce[14] = std::byte{0x45};
  roce[23] = std::byte{17};
  roce[36] = std::byte{4791 >> 8};
  roce[37] = std::byte{4791 & 0xff};
  a.send(roce);
  EXPECT_FALSE(b.receive());
  EXPECT_EQ(rig.hca(1).stats()[KH_STAT_DROPPED], 1u);
  set_port(1, KH_PORT_UP);
  a.send(roce);
  EXPECT_TRUE(b.receive());
}

TEST_F(NicTest, ThereIsOneAndItCanBeMadeAnew) {
  kh_admin_cmd again = a.command();
  EXPECT_EQ(rig.driver(0).command(again).status, KH_ST_EXIST);
  rig.driver(0).must(FakeDriver::make(KH_ADM_DESTROY_NIC));
  EXPECT_EQ(rig.driver(0).destroy(KH_ADM_DESTROY_NIC, 0), KH_ST_NOENT);
  using Body = kh_cmd_create_nic;
  auto bad = [&](auto change, size_t at) {
    kh_admin_cmd command = a.command();
    change(command.create_nic);
    kh_admin_cqe cqe = rig.driver(0).command(command);
    EXPECT_EQ(cqe.status, KH_ST_INVAL);
    EXPECT_EQ(cqe.syndrome, 16 + at);
  };
  bad([](Body& b) { b.log_tx_size = 3; }, offsetof(Body, log_tx_size));
  bad([](Body& b) { b.log_rx_size = 13; }, offsetof(Body, log_rx_size));
  bad([](Body& b) { b.vector = 16; }, offsetof(Body, vector));
  bad([](Body& b) { b.db_slot = 4096; }, offsetof(Body, db_slot));
  bad([](Body& b) { b.tx_offset = 4096; }, offsetof(Body, tx_offset));
  bad([](Body& b) { b.rx_offset = 1; }, offsetof(Body, rx_offset));
  bad([](Body& b) { b.rxc_offset = 4096 - 64; }, offsetof(Body, rxc_offset));
  bad([](Body& b) { b.db_offset = 4096 - 64; }, offsetof(Body, db_offset));
  rig.driver(0).must(a.command());
}

TEST(RoceFrames, AreRecognisedWithAndWithoutTagOverBothFamilies) {
  auto set16 = [](Frame& f, size_t at, uint16_t value) {
    f[at] = std::byte(value >> 8);
    f[at + 1] = std::byte(value & 0xff);
  };
  for (bool tagged : {false, true}) {
    size_t at = tagged ? 18 : 14;
    Frame v4(80);
    if (tagged) set16(v4, 12, 0x8100);
    set16(v4, at - 2, 0x0800);
    v4[at] = std::byte{0x46};  // with an option
    v4[at + 9] = std::byte{17};
    set16(v4, at + 24 + 2, 4791);
    EXPECT_TRUE(is_roce(v4));
    set16(v4, at + 6, 0x4000);  // don't fragment
    EXPECT_TRUE(is_roce(v4));
    set16(v4, at + 6, 0x2000);  // a fragment
    EXPECT_FALSE(is_roce(v4));
    Frame v6(80);
    if (tagged) set16(v6, 12, 0x8100);
    set16(v6, at - 2, 0x86dd);
    v6[at + 6] = std::byte{17};
    set16(v6, at + 40 + 2, 4791);
    EXPECT_TRUE(is_roce(v6));
    v6[at + 6] = std::byte{6};
    EXPECT_FALSE(is_roce(v6));
  }
  for (size_t size : {0, 13, 14, 20, 36})
    EXPECT_FALSE(is_roce(Frame(size)));
}

TEST(SwitchStations, AreThoseWhoseRdmaFunctionIsUp) {
  Rig rig({.stations = 2});
  EXPECT_EQ(rig.fabric().stations().size(), 2u);
  EXPECT_EQ(rig.fabric().find(rig.driver(1).mac), &rig.hca(1));
  EXPECT_EQ(rig.fabric().find({{9, 9}}), nullptr);
  uint64_t generation = rig.fabric().generation();
  rig.driver(1).disable();
  EXPECT_NE(rig.fabric().generation(), generation);
  EXPECT_EQ(rig.fabric().find(rig.driver(1).mac), nullptr);
  EXPECT_EQ(rig.fabric().stations().size(), 1u);
}

}  // namespace
}  // namespace keyhole::test
