// SPDX-License-Identifier: BSD-2-Clause
//
// PCI configuration space of one endpoint function (PCI Express, type 0 header, 4096 bytes).
//
// The space is three byte arrays: the value, a mask of the bits that software may write, and a mask
// of the bits that it clears by writing one. The constructor lays out the registers from tables;
// after that a write is one loop over its bytes, whatever its size and alignment, and the few
// registers whose bits mean something to the device are compared before and after.
//
// It holds: identification, command and status, six BARs (a write of all ones reads back the size
// mask), a capability list of Power Management, PCI Express (with function-level reset) and, if
// there are vectors, MSI-X.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace keyhole::vfio_user {

struct PciIdentity {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem = 0;
  uint32_t class_code = 0;  // 24 bits: base class, subclass, programming interface
  uint8_t revision = 0;
};

// A memory BAR. `size` is a power of two of at least 4096 bytes (so that each lies in pages of its
// own), or 0 for none. A 64-bit BAR takes the next slot as well, which must be empty.
struct PciBar {
  uint64_t size = 0;
  bool wide = false;
  bool prefetchable = false;
};

// Where the MSI-X table (16 bytes for each vector) and the pending bits (8 bytes for each 64
// vectors) lie. Offsets are multiples of 8.
struct PciMsix {
  uint16_t vectors = 0;  // 0 to 2048
  uint8_t table_bar = 0;
  uint32_t table_offset = 0;
  uint8_t pba_bar = 0;
  uint32_t pba_offset = 0;
};

// What configuration writes do to the device. Called after the write took effect.
class PciConfigEvents {
 public:
  virtual ~PciConfigEvents() = default;
  // The device may (not) access memory and send interrupts any more.
  virtual void bus_master_changed(bool on) = 0;
  virtual void msix_changed(bool enabled, bool function_masked) = 0;
  // Function-level reset was asked for. Configuration space is back in its first state already (so
  // bus mastering and MSI-X are off, without further events); the rest of the device is to follow.
  virtual void function_reset() = 0;
};

class PciConfig {
 public:
  static constexpr size_t size = 4096;

  // Throws std::invalid_argument when the description breaks a rule above.
  PciConfig(const PciIdentity& identity, const std::array<PciBar, 6>& bars, const PciMsix& msix,
            PciConfigEvents& events);

  // Any offset and size inside the 4096 bytes; what lies outside reads as ones and ignores writes.
  void read(uint64_t offset, std::span<std::byte> out) const;
  void write(uint64_t offset, std::span<const std::byte> in);

  // Back to the first state. No events.
  void reset();

  bool memory_enabled() const;
  bool bus_master() const;
  bool msix_enabled() const;
  bool msix_function_masked() const;

 private:
  void identify(const PciIdentity& identity);
  void add_bars(const std::array<PciBar, 6>& bars);
  uint8_t add_capability(uint8_t id, size_t length);
  void add_power_management();
  void add_express();
  void add_msix(const PciMsix& msix);

  template <typename T>
  void define(size_t offset, T reset, T writable = 0, T clear_by_one = 0);
  uint16_t word(size_t offset) const;

  PciConfigEvents& events_;
  std::array<uint8_t, size> value_{};
  std::array<uint8_t, size> first_{};     // the value after reset
  std::array<uint8_t, size> writable_{};  // bits that take what is written
  std::array<uint8_t, size> clear_{};     // bits that a written one clears
  size_t next_capability_ = 0x40;
  size_t link_ = 0x34;  // where the pointer to the next capability goes
  size_t express_ = 0;
  size_t msix_ = 0;  // 0: no such capability
};

}  // namespace keyhole::vfio_user
