// SPDX-License-Identifier: BSD-2-Clause
//
// What the vfio-user server asks of the device behind it.
//
// The server calls these from within Server::on_ready(), on its owner's thread, one at a time and
// in the order in which the client sent the messages. What the client sent has been checked by then
// as far as the protocol goes: a region exists, an offset and a size lie inside it, a direction is
// allowed. Everything else about the values is still the client's word.
//
// An error is an errno value; the client gets it as the reply's error.

#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "vfio_user/fd.h"

namespace keyhole::vfio_user {

// What the device may do with a piece of client memory. Both for guest RAM, read for its ROM.
enum class DmaAccess : uint8_t { read = 1, write = 2, read_write = 3 };

constexpr bool allows(DmaAccess granted, DmaAccess wanted) {
  return (static_cast<uint8_t>(granted) & static_cast<uint8_t>(wanted)) ==
         static_cast<uint8_t>(wanted);
}

// Client memory at [iova, iova + size) is `fd` from `offset` on. Without a descriptor the memory
// exists, but this process cannot reach it.
struct DmaMapping {
  uint64_t iova = 0;
  uint64_t size = 0;
  DmaAccess access = DmaAccess::read_write;
  Fd fd;
  uint64_t offset = 0;
};

class PciModel {
 public:
  using Result = std::expected<void, int>;

  virtual ~PciModel() = default;

  // A load or store that the client trapped, of 1 to ServerOptions::max_transfer bytes at any
  // alignment. `region` is a VFIO PCI region index: 0 to 5 for the BARs, 7 for configuration space.
  // Accesses that lie wholly inside a region's mappable memory do not come here.
  virtual Result read(uint32_t region, uint64_t offset, std::span<std::byte> out) = 0;
  virtual Result write(uint32_t region, uint64_t offset, std::span<const std::byte> in) = 0;

  // DmaTable::map() and unmap() have the checks. The client is told that memory is unmapped when
  // the call returns, so whatever holds a pointer into it must have let go by then.
  virtual Result dma_map(DmaMapping mapping) = 0;
  virtual Result dma_unmap(uint64_t iova, uint64_t size) = 0;
  virtual void dma_unmap_all() = 0;

  // The client resets the device: a guest reboots, or asks for a reset of the bus. DMA maps and
  // interrupt descriptors outlive it; all that the guest set up in the device does not.
  virtual void reset() = 0;

  // A client has negotiated a version. The device is in its first state.
  virtual void client_arrived() {}

  // The client is gone. The model unmaps all DMA memory and goes back to its first state, as after
  // reset(). Interrupts raised from now on go nowhere.
  virtual void client_gone() = 0;
};

}  // namespace keyhole::vfio_user
