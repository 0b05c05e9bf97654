// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/pci_config.h"

#include <gtest/gtest.h>
#include <linux/pci_regs.h>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace keyhole::vfio_user {

namespace {

constexpr PciIdentity identity{0x1234, 0x4b48, 0x1af4, 0x1100, 0x020000, 0x42};
constexpr std::array<PciBar, 6> bars{
    PciBar{1 << 20, true, false},          {}, PciBar{4096, false, false}, PciBar{},
    PciBar{uint64_t{8} << 30, true, true}, {}};
constexpr PciMsix msix_at{33, 2, 0x400, 2, 0x800};

class PciConfigTest : public testing::Test, public PciConfigEvents {
 public:
  void bus_master_changed(bool on) override { events.push_back(on ? "master" : "no master"); }
  void msix_changed(bool enabled, bool masked) override {
    events.push_back(std::string("msix") + (enabled ? " on" : " off") + (masked ? " masked" : ""));
  }
  void function_reset() override { events.emplace_back("reset"); }

  template <typename T>
  T read(uint64_t offset) {
    T value{};
    config.read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
  void write(uint64_t offset, T value) {
    config.write(offset, std::as_bytes(std::span(&value, 1)));
  }

  // The offset of a capability, found as software finds it; 0 if it is not in the list.
  uint8_t capability(uint8_t id) {
    EXPECT_TRUE(read<uint16_t>(PCI_STATUS) & PCI_STATUS_CAP_LIST);
    uint8_t at = read<uint8_t>(PCI_CAPABILITY_LIST);
    for (int hops = 0; at != 0 && hops < 48; ++hops) {
      if (read<uint8_t>(at) == id) return at;
      at = read<uint8_t>(at + 1u);
    }
    return 0;
  }

  std::vector<std::string> events;
  PciConfig config{identity, bars, msix_at, *this};
};

using Events = std::vector<std::string>;

}  // namespace

TEST_F(PciConfigTest, TheHeaderIdentifiesTheDevice) {
  EXPECT_EQ(read<uint32_t>(PCI_VENDOR_ID), 0x4b481234u);
  EXPECT_EQ(read<uint32_t>(PCI_CLASS_REVISION), 0x02000042u);
  EXPECT_EQ(read<uint32_t>(PCI_SUBSYSTEM_VENDOR_ID), 0x11001af4u);
  EXPECT_EQ(read<uint8_t>(PCI_HEADER_TYPE), 0);
  EXPECT_EQ(read<uint8_t>(PCI_INTERRUPT_PIN), 0);
  EXPECT_EQ(read<uint32_t>(0x100), 0u);  // no extended capabilities
}

TEST_F(PciConfigTest, IdentificationCannotBeWritten) {
  for (uint64_t offset = 0; offset < PciConfig::size; offset += 4) {
    if (offset == PCI_COMMAND) continue;
    write<uint32_t>(offset, 0);
  }
  EXPECT_EQ(read<uint32_t>(PCI_VENDOR_ID), 0x4b481234u);
  EXPECT_EQ(read<uint32_t>(PCI_CLASS_REVISION), 0x02000042u);
  EXPECT_NE(capability(PCI_CAP_ID_MSIX), 0);
  EXPECT_TRUE(events.empty());
}

TEST_F(PciConfigTest, BarsAreSizedByWritingOnes) {
  for (uint64_t bar = 0; bar < 6; ++bar)
    write<uint32_t>(PCI_BASE_ADDRESS_0 + 4 * bar, ~0u);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_0), 0xfff00004u);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_1), 0xffffffffu);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_2), 0xfffff000u);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_3), 0u);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_4), 0x0000000cu);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_5), 0xfffffffeu);
  EXPECT_EQ(read<uint32_t>(PCI_ROM_ADDRESS), 0u);
  write<uint64_t>(PCI_BASE_ADDRESS_0, 0x12345678'9abcdef0u);
  EXPECT_EQ(read<uint64_t>(PCI_BASE_ADDRESS_0), 0x12345678'9ab00004u);
}

TEST_F(PciConfigTest, CommandBitsThatExistAreWrittenAndReported) {
  write<uint16_t>(PCI_COMMAND, 0xffff);
  EXPECT_EQ(read<uint16_t>(PCI_COMMAND), PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER |
                                             PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
                                             PCI_COMMAND_INTX_DISABLE);
  EXPECT_TRUE(config.memory_enabled());
  EXPECT_TRUE(config.bus_master());
  write<uint16_t>(PCI_COMMAND, PCI_COMMAND_MASTER);
  EXPECT_FALSE(config.memory_enabled());
  write<uint16_t>(PCI_COMMAND, 0);
  EXPECT_EQ(events, (Events{"master", "no master"}));
  // Status: no write sets a bit, or takes the capability list away.
  write<uint16_t>(PCI_STATUS, 0xffff);
  EXPECT_EQ(read<uint16_t>(PCI_STATUS), PCI_STATUS_CAP_LIST);
}

TEST_F(PciConfigTest, AByteWriteTouchesItsByteOnly) {
  write<uint8_t>(PCI_COMMAND, PCI_COMMAND_MASTER);
  write<uint8_t>(PCI_COMMAND + 1, PCI_COMMAND_INTX_DISABLE >> 8);
  EXPECT_EQ(read<uint16_t>(PCI_COMMAND), PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE);
  EXPECT_EQ(events, Events{"master"});
}

TEST_F(PciConfigTest, MsixIsDescribedEnabledAndMasked) {
  uint8_t at = capability(PCI_CAP_ID_MSIX);
  ASSERT_NE(at, 0);
  EXPECT_EQ(read<uint16_t>(at + 2u), 32);
  EXPECT_EQ(read<uint32_t>(at + 4u), 0x402u);
  EXPECT_EQ(read<uint32_t>(at + 8u), 0x802u);
  write<uint16_t>(at + 2u, 0xffff);
  EXPECT_EQ(read<uint16_t>(at + 2u), 0xc000 | 32);
  EXPECT_TRUE(config.msix_enabled());
  EXPECT_TRUE(config.msix_function_masked());
  write<uint16_t>(at + 2u, PCI_MSIX_FLAGS_ENABLE);
  write<uint16_t>(at + 2u, PCI_MSIX_FLAGS_ENABLE);  // no change
  write<uint16_t>(at + 2u, 0);
  EXPECT_EQ(events, (Events{"msix on masked", "msix on", "msix off"}));
}

TEST_F(PciConfigTest, ADeviceWithoutVectorsHasNoMsix) {
  PciConfig plain(identity, bars, PciMsix{}, *this);
  std::vector<std::byte> all(256);
  plain.read(0, all);
  for (auto at = std::to_integer<size_t>(all[PCI_CAPABILITY_LIST]); at != 0;
       at = std::to_integer<size_t>(all[at + 1]))
    EXPECT_NE(all[at], std::byte{PCI_CAP_ID_MSIX});
  EXPECT_FALSE(plain.msix_enabled());
}

TEST_F(PciConfigTest, ItIsAnEndpointWithFunctionLevelReset) {
  uint8_t at = capability(PCI_CAP_ID_EXP);
  ASSERT_NE(at, 0);
  EXPECT_EQ(read<uint16_t>(at + PCI_EXP_FLAGS), 2);
  EXPECT_TRUE(read<uint32_t>(at + PCI_EXP_DEVCAP) & PCI_EXP_DEVCAP_FLR);
  // All that can be written in Device Control can be, but for the reset bit.
  write<uint16_t>(at + PCI_EXP_DEVCTL, 0x70ff);
  EXPECT_EQ(read<uint16_t>(at + PCI_EXP_DEVCTL), 0x70ff);
  EXPECT_TRUE(events.empty());
}

TEST_F(PciConfigTest, FunctionLevelResetRestoresTheFirstStateAndIsReportedOnce) {
  std::vector<std::byte> first(PciConfig::size);
  config.read(0, first);
  uint8_t express = capability(PCI_CAP_ID_EXP);
  uint8_t msix_at = capability(PCI_CAP_ID_MSIX);
  write<uint16_t>(PCI_COMMAND, 0xffff);
  write<uint32_t>(PCI_BASE_ADDRESS_0, 0xfeb00000);
  write<uint16_t>(msix_at + 2u, 0xffff);
  events.clear();

  uint16_t control = read<uint16_t>(express + PCI_EXP_DEVCTL);
  write<uint16_t>(express + PCI_EXP_DEVCTL, control | PCI_EXP_DEVCTL_BCR_FLR);
  EXPECT_EQ(events, Events{"reset"});
  std::vector<std::byte> after(PciConfig::size);
  config.read(0, after);
  EXPECT_EQ(after, first);
  EXPECT_FALSE(config.bus_master());
  EXPECT_FALSE(config.msix_enabled());

  // The upper byte alone is enough; the lower one alone is not.
  write<uint8_t>(express + PCI_EXP_DEVCTL, 0xff);
  EXPECT_EQ(events.size(), 1u);
  write<uint8_t>(express + PCI_EXP_DEVCTL + 1, PCI_EXP_DEVCTL_BCR_FLR >> 8);
  EXPECT_EQ(events.size(), 2u);
}

TEST_F(PciConfigTest, PowerStateIsKept) {
  uint8_t at = capability(PCI_CAP_ID_PM);
  ASSERT_NE(at, 0);
  write<uint16_t>(at + PCI_PM_CTRL, 0xffff);
  EXPECT_EQ(read<uint16_t>(at + PCI_PM_CTRL), 3 | PCI_PM_CTRL_NO_SOFT_RESET);
  write<uint16_t>(at + PCI_PM_CTRL, 0);
  EXPECT_EQ(read<uint16_t>(at + PCI_PM_CTRL), PCI_PM_CTRL_NO_SOFT_RESET);
}

TEST_F(PciConfigTest, WhatLiesOutsideReadsAsOnesAndIgnoresWrites) {
  EXPECT_EQ(read<uint32_t>(PciConfig::size - 2), 0xffff0000u);
  EXPECT_EQ(read<uint32_t>(PciConfig::size), ~0u);
  EXPECT_EQ(read<uint64_t>(~0ull - 3), ~0ull);
  write<uint64_t>(PciConfig::size - 4, 0);
  write<uint64_t>(~0ull - 3, 0);
  EXPECT_EQ(read<uint32_t>(PCI_VENDOR_ID), 0x4b481234u);
}

TEST_F(PciConfigTest, AnImpossibleDescriptionIsABugOfTheOwner) {
  auto with = [&](const std::array<PciBar, 6>& b, PciMsix m) {
    EXPECT_THROW(PciConfig(identity, b, m, *this), std::invalid_argument);
  };
  with({PciBar{3 << 20}}, {});
  with({PciBar{1024}}, {});
  with({PciBar{uint64_t{4} << 30}}, {});
  with({PciBar{1 << 20, true}, PciBar{4096}}, {});
  with({PciBar{}, PciBar{}, PciBar{}, PciBar{}, PciBar{}, PciBar{4096, true}}, {});
  with(bars, {4097, 2, 0, 2, 0x800});
  with(bars, {33, 3, 0, 2, 0x800});         // no such BAR
  with(bars, {33, 2, 4096 - 8, 2, 0x800});  // beyond its end
  with(bars, {33, 2, 0, 2, 4096});
  with(bars, {33, 2, 0x404, 2, 0x800});  // not a multiple of 8
}

}  // namespace keyhole::vfio_user
