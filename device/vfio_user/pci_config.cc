// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/pci_config.h"

#include <linux/pci_regs.h>

#include <bit>
#include <stdexcept>

namespace keyhole::vfio_user {

namespace {

constexpr uint16_t status_write_one_to_clear =
    PCI_STATUS_PARITY | PCI_STATUS_SIG_TARGET_ABORT | PCI_STATUS_REC_TARGET_ABORT |
    PCI_STATUS_REC_MASTER_ABORT | PCI_STATUS_SIG_SYSTEM_ERROR | PCI_STATUS_DETECTED_PARITY;

// The link that the PCI Express capability reports: drivers print it and nothing depends on it.
constexpr uint16_t link_speed = PCI_EXP_LNKSTA_CLS_16_0GB;
constexpr uint16_t link_width = 16 << PCI_EXP_LNKSTA_NLW_SHIFT;
constexpr size_t express_length = 0x3c;  // a version 2 capability

constexpr uint16_t msix_control_writable = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;

void require(bool condition, const char* rule) {
  if (!condition) throw std::invalid_argument(rule);
}

bool inside_bar(const std::array<PciBar, 6>& bars, uint8_t bar, uint32_t offset, uint64_t size) {
  return bar < bars.size() && offset % 8 == 0 && size <= bars[bar].size &&
         offset <= bars[bar].size - size;
}

}  // namespace

PciConfig::PciConfig(const PciIdentity& identity, const std::array<PciBar, 6>& bars,
                     const PciMsix& msix, PciConfigEvents& events)
    : events_(events) {
  identify(identity);
  add_bars(bars);
  add_power_management();
  add_express();
  if (msix.vectors != 0) {
    require(msix.vectors <= 2048, "at most 2048 MSI-X vectors");
    require(inside_bar(bars, msix.table_bar, msix.table_offset, msix.vectors * 16u),
            "the MSI-X table lies outside its BAR");
    require(inside_bar(bars, msix.pba_bar, msix.pba_offset, (msix.vectors + 63u) / 64 * 8),
            "the MSI-X pending bits lie outside their BAR");
    add_msix(msix);
  }
  reset();
}

template <typename T>
void PciConfig::define(size_t offset, T reset, T writable, T clear_by_one) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    auto byte = [i](T value) { return static_cast<uint8_t>(value >> (8 * i)); };
    first_[offset + i] = byte(reset);
    writable_[offset + i] = byte(writable);
    clear_[offset + i] = byte(clear_by_one);
  }
}

void PciConfig::identify(const PciIdentity& identity) {
  define<uint16_t>(PCI_VENDOR_ID, identity.vendor);
  define<uint16_t>(PCI_DEVICE_ID, identity.device);
  define<uint16_t>(PCI_COMMAND, 0,
                   PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
                       PCI_COMMAND_INTX_DISABLE);
  define<uint16_t>(PCI_STATUS, PCI_STATUS_CAP_LIST, 0, status_write_one_to_clear);
  define<uint32_t>(PCI_CLASS_REVISION, identity.class_code << 8 | identity.revision);
  define<uint8_t>(PCI_CACHE_LINE_SIZE, 0, 0xff);
  define<uint8_t>(PCI_HEADER_TYPE, PCI_HEADER_TYPE_NORMAL);
  define<uint16_t>(PCI_SUBSYSTEM_VENDOR_ID, identity.subsystem_vendor);
  define<uint16_t>(PCI_SUBSYSTEM_ID, identity.subsystem);
  define<uint8_t>(PCI_INTERRUPT_LINE, 0, 0xff);
  // The interrupt pin stays 0: no INTx.
}

void PciConfig::add_bars(const std::array<PciBar, 6>& bars) {
  for (size_t i = 0; i < bars.size(); ++i) {
    const PciBar& bar = bars[i];
    if (bar.size == 0) continue;
    require(std::has_single_bit(bar.size) && bar.size >= 4096, "a BAR's size is a power of two");
    require(bar.wide || bar.size <= uint64_t{1} << 31, "a 32-bit BAR has at most 2 GiB");
    require(!bar.wide || (i + 1 < bars.size() && bars[i + 1].size == 0),
            "a 64-bit BAR needs the next one's place");

    uint64_t address_bits = ~(bar.size - 1);
    uint32_t type = bar.wide ? PCI_BASE_ADDRESS_MEM_TYPE_64 : PCI_BASE_ADDRESS_MEM_TYPE_32;
    if (bar.prefetchable) type |= PCI_BASE_ADDRESS_MEM_PREFETCH;
    size_t at = PCI_BASE_ADDRESS_0 + 4 * i;
    define<uint32_t>(at, type, static_cast<uint32_t>(address_bits));
    if (bar.wide) define<uint32_t>(at + 4, 0, static_cast<uint32_t>(address_bits >> 32));
  }
}

// Places a capability and links it into the list; returns its offset.
uint8_t PciConfig::add_capability(uint8_t id, size_t length) {
  auto at = static_cast<uint8_t>(next_capability_);
  first_[link_] = at;
  first_[at] = id;
  link_ = at + 1u;
  next_capability_ = (at + length + 3) & ~size_t{3};
  return at;
}

void PciConfig::add_power_management() {
  size_t at = add_capability(PCI_CAP_ID_PM, PCI_PM_SIZEOF);
  define<uint16_t>(at + PCI_PM_PMC, 3);  // version 3, D0 and D3hot only, no wake-up
  define<uint16_t>(at + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET, PCI_PM_CTRL_STATE_MASK);
}

void PciConfig::add_express() {
  size_t at = express_ = add_capability(PCI_CAP_ID_EXP, express_length);
  define<uint16_t>(at + PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_ENDPOINT << 4);
  define<uint32_t>(at + PCI_EXP_DEVCAP,
                   PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR | PCI_EXP_DEVCAP_EXT_TAG | 2);
  // The reset bit reads as zero and is looked for in write().
  define<uint16_t>(at + PCI_EXP_DEVCTL,
                   PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_NOSNOOP_EN | 0x2000,
                   static_cast<uint16_t>(0xffff & ~PCI_EXP_DEVCTL_BCR_FLR &
                                         ~(PCI_EXP_DEVCTL_PHANTOM | PCI_EXP_DEVCTL_AUX_PME)));
  define<uint16_t>(
      at + PCI_EXP_DEVSTA, 0, 0,
      PCI_EXP_DEVSTA_CED | PCI_EXP_DEVSTA_NFED | PCI_EXP_DEVSTA_FED | PCI_EXP_DEVSTA_URD);
  define<uint32_t>(at + PCI_EXP_LNKCAP, link_speed | link_width);
  define<uint16_t>(at + PCI_EXP_LNKCTL, 0,
                   PCI_EXP_LNKCTL_RCB | PCI_EXP_LNKCTL_CCC | PCI_EXP_LNKCTL_ES);
  define<uint16_t>(at + PCI_EXP_LNKSTA, link_speed | link_width);
  define<uint32_t>(at + PCI_EXP_DEVCAP2, PCI_EXP_DEVCAP2_COMP_TMOUT_DIS);
  define<uint16_t>(at + PCI_EXP_DEVCTL2, 0, PCI_EXP_DEVCTL2_COMP_TMOUT_DIS);
  define<uint32_t>(at + PCI_EXP_LNKCAP2, PCI_EXP_LNKCAP2_SLS_2_5GB | PCI_EXP_LNKCAP2_SLS_5_0GB |
                                             PCI_EXP_LNKCAP2_SLS_8_0GB |
                                             PCI_EXP_LNKCAP2_SLS_16_0GB);
  define<uint16_t>(at + PCI_EXP_LNKCTL2, link_speed, PCI_EXP_LNKCTL2_TLS);
}

void PciConfig::add_msix(const PciMsix& msix) {
  size_t at = msix_ = add_capability(PCI_CAP_ID_MSIX, PCI_CAP_MSIX_SIZEOF);
  define<uint16_t>(at + PCI_MSIX_FLAGS, static_cast<uint16_t>(msix.vectors - 1),
                   msix_control_writable);
  define<uint32_t>(at + PCI_MSIX_TABLE, msix.table_offset | msix.table_bar);
  define<uint32_t>(at + PCI_MSIX_PBA, msix.pba_offset | msix.pba_bar);
}

void PciConfig::read(uint64_t offset, std::span<std::byte> out) const {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::byte{offset < size && i < size - offset ? value_[offset + i] : uint8_t{0xff}};
}

void PciConfig::write(uint64_t offset, std::span<const std::byte> in) {
  bool master_before = bus_master();
  bool enabled_before = msix_enabled();
  bool masked_before = msix_function_masked();
  bool function_reset = false;

  for (size_t i = 0; i < in.size() && offset < size && i < size - offset; ++i) {
    size_t at = offset + i;
    auto byte = std::to_integer<uint8_t>(in[i]);
    value_[at] = static_cast<uint8_t>(((value_[at] & ~writable_[at]) | (byte & writable_[at])) &
                                      ~(byte & clear_[at]));
    if (at == express_ + PCI_EXP_DEVCTL + 1 && (byte & PCI_EXP_DEVCTL_BCR_FLR >> 8) != 0)
      function_reset = true;
  }

  if (function_reset) {
    reset();
    events_.function_reset();
    return;
  }
  if (bus_master() != master_before) events_.bus_master_changed(bus_master());
  if (msix_enabled() != enabled_before || msix_function_masked() != masked_before)
    events_.msix_changed(msix_enabled(), msix_function_masked());
}

void PciConfig::reset() { value_ = first_; }

uint16_t PciConfig::word(size_t offset) const {
  return static_cast<uint16_t>(value_[offset] | value_[offset + 1] << 8);
}

bool PciConfig::memory_enabled() const { return (word(PCI_COMMAND) & PCI_COMMAND_MEMORY) != 0; }

bool PciConfig::bus_master() const { return (word(PCI_COMMAND) & PCI_COMMAND_MASTER) != 0; }

bool PciConfig::msix_enabled() const {
  return msix_ != 0 && (word(msix_ + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_ENABLE) != 0;
}

bool PciConfig::msix_function_masked() const {
  return msix_ != 0 && (word(msix_ + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_MASKALL) != 0;
}

}  // namespace keyhole::vfio_user
