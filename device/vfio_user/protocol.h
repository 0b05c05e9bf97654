// SPDX-License-Identifier: BSD-2-Clause
//
// What travels on a vfio-user socket, in host byte order. The payloads that mirror an ioctl of the
// kernel's VFIO interface are the structures of <linux/vfio.h>; the others are here.

#pragma once

#include <linux/vfio.h>

#include <cstdint>

namespace keyhole::vfio_user {

enum class Command : uint16_t {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  device_get_info = 4,
  device_get_region_info = 5,
  device_get_region_io_fds = 6,
  device_get_irq_info = 7,
  device_set_irqs = 8,
  region_read = 9,
  region_write = 10,
  dma_read = 11,   // server to client
  dma_write = 12,  // server to client
  device_reset = 13,
  dirty_pages = 14,
  region_write_multi = 15,
  device_feature = 16,
  mig_data_read = 17,
  mig_data_write = 18,
};

struct Header {
  uint16_t id = 0;  // the sender's; echoed in the reply
  uint16_t command = 0;
  uint32_t size = 0;  // of the message with its header
  uint32_t flags = 0;
  uint32_t error = 0;  // an errno, in a reply with flag_error
};

constexpr uint32_t flag_type_mask = 0xf;
constexpr uint32_t type_command = 0;
constexpr uint32_t type_reply = 1;
constexpr uint32_t flag_no_reply = 1 << 4;
constexpr uint32_t flag_error = 1 << 5;

// The fixed part of `version`; JSON text with its terminating NUL follows.
struct VersionPayload {
  uint16_t major = 0;
  uint16_t minor = 0;
};

constexpr uint16_t protocol_major = 0;
constexpr uint16_t protocol_minor = 0;

struct DmaMapPayload {
  uint32_t argsz = 0;
  uint32_t flags = 0;  // VFIO_DMA_MAP_FLAG_READ, _WRITE
  uint64_t offset = 0;
  uint64_t iova = 0;
  uint64_t size = 0;
};

struct DmaUnmapPayload {
  uint32_t argsz = 0;
  uint32_t flags = 0;  // VFIO_DMA_UNMAP_FLAG_ALL
  uint64_t iova = 0;
  uint64_t size = 0;
};

struct DeviceInfoPayload {
  uint32_t argsz = 0;
  uint32_t flags = 0;  // VFIO_DEVICE_FLAGS_RESET, _PCI
  uint32_t num_regions = 0;
  uint32_t num_irqs = 0;
};

struct RegionIoFdsPayload {
  uint32_t argsz = 0;
  uint32_t flags = 0;
  uint32_t index = 0;
  uint32_t count = 0;
};

// `region_read` and `region_write`; data follows in the read's reply and in the write's request.
struct RegionAccessPayload {
  uint64_t offset = 0;
  uint32_t region = 0;
  uint32_t count = 0;
};

// One of the writes in `region_write_multi`, behind a 64-bit count of them.
struct RegionWriteOne {
  RegionAccessPayload access;
  uint8_t data[8] = {};
};

static_assert(sizeof(Header) == 16);
static_assert(sizeof(VersionPayload) == 4);
static_assert(sizeof(DmaMapPayload) == 32);
static_assert(sizeof(DmaUnmapPayload) == 24);
static_assert(sizeof(DeviceInfoPayload) == 16);
static_assert(sizeof(RegionIoFdsPayload) == 16);
static_assert(sizeof(RegionAccessPayload) == 16);
static_assert(sizeof(RegionWriteOne) == 24);
static_assert(sizeof(vfio_region_info) == 32);
static_assert(sizeof(vfio_irq_info) == 16);
static_assert(sizeof(vfio_irq_set) == 20);

}  // namespace keyhole::vfio_user
