// SPDX-License-Identifier: BSD-2-Clause
//
// One function for each message of the protocol: read the payload into a structure, check it, act,
// and build the reply. An error is the errno that the client gets.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "vfio_user/protocol.h"
#include "vfio_user/reply.h"
#include "vfio_user/server.h"

namespace keyhole::vfio_user {

namespace {

constexpr size_t max_version_text = 4096;

// The JSON text of a `version` payload. Without any, the client proposes nothing.
std::optional<nlohmann::json> parse_version_data(std::span<const std::byte> text) {
  if (text.empty()) return nlohmann::json::object();
  if (text.size() > max_version_text || text.back() != std::byte{0}) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(text.data());
  auto json = nlohmann::json::parse(begin, begin + text.size() - 1, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

uint32_t irq_flags(uint32_t index) {
  if (index == VFIO_PCI_MSIX_IRQ_INDEX) return VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE;
  return VFIO_IRQ_INFO_EVENTFD;
}

bool mappable(const Region& region, uint64_t offset, uint64_t size) {
  if (!region.memory) return false;
  if (region.areas.empty()) return true;
  return std::ranges::any_of(region.areas, [&](const MappableArea& area) {
    return offset >= area.offset && offset - area.offset <= area.size &&
           size <= area.size - (offset - area.offset);
  });
}

// The other side of a mapped page may be looking while we copy: a naturally aligned word must be
// seen whole.
void copy_shared(std::byte* to, const std::byte* from, size_t size) {
  auto address = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  auto word = [&]<typename T>(T) {
    __atomic_store_n(reinterpret_cast<T*>(to),
                     __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_ACQUIRE),
                     __ATOMIC_RELEASE);
  };
  if (size == 8 && address % 8 == 0)
    word(uint64_t{});
  else if (size == 4 && address % 4 == 0)
    word(uint32_t{});
  else if (size == 2 && address % 2 == 0)
    word(uint16_t{});
  else
    std::memcpy(to, from, size);
}

}  // namespace

Server::Answer Server::version(Message& message) {
  std::span<const std::byte> rest(message.payload);
  auto request = take<VersionPayload>(rest);
  if (!request) return std::unexpected(EINVAL);
  auto proposed = parse_version_data(rest);
  if (!proposed) return std::unexpected(EINVAL);
  if (request->major != protocol_major) {
    leaving_ = "it speaks another major version of the protocol";
    return std::unexpected(ENOTSUP);
  }

  // The reply holds what was proposed, with our values: no capability that the client did not name.
  // (QEMU takes no reply longer than its request.)
  auto capabilities = proposed->value("capabilities", nlohmann::json::object());
  if (!capabilities.is_object()) return std::unexpected(EINVAL);
  nlohmann::json agreed = nlohmann::json::object();
  auto agree = [&](const char* name, auto value) {
    if (capabilities.contains(name)) agreed[name] = value;
  };
  agree("max_msg_fds", max_message_fds);
  agree("max_data_xfer_size", options_.max_transfer);
  agree("max_dma_maps", options_.max_dma_maps);
  agree("pgsizes", 4096);
  agree("write_multiple", true);

  if (auto fds = capabilities.find("max_msg_fds"); fds != capabilities.end()) {
    if (!fds->is_number_unsigned()) return std::unexpected(EINVAL);
    client_takes_fds_ = fds->get<uint64_t>() > 0;
  }

  std::string text = nlohmann::json{{"capabilities", agreed}}.dump();
  Reply reply;
  reply.add(VersionPayload{protocol_major, std::min(request->minor, protocol_minor)});
  const auto* begin = reinterpret_cast<const std::byte*>(text.c_str());
  reply.payload.insert(reply.payload.end(), begin, begin + text.size() + 1);

  negotiated_ = true;
  spdlog::info("{}: client attached", options_.name);
  model_.client_arrived();
  return reply;
}

Server::Answer Server::dma_map(Message& message) {
  auto request = exactly<DmaMapPayload>(message.payload);
  if (!request || request->argsz < sizeof *request) return std::unexpected(EINVAL);
  constexpr uint32_t both = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
  if ((request->flags & ~both) != 0 || request->flags == 0) return std::unexpected(EINVAL);
  if (request->size == 0 || request->iova + request->size - 1 < request->iova)
    return std::unexpected(EINVAL);
  if (message.fds.size() > 1) return std::unexpected(EINVAL);

  static_assert(VFIO_DMA_MAP_FLAG_READ == static_cast<uint32_t>(DmaAccess::read));
  static_assert(VFIO_DMA_MAP_FLAG_WRITE == static_cast<uint32_t>(DmaAccess::write));
  DmaMapping mapping;
  mapping.iova = request->iova;
  mapping.size = request->size;
  mapping.access = static_cast<DmaAccess>(request->flags);
  mapping.offset = request->offset;
  if (!message.fds.empty()) mapping.fd = std::move(message.fds.front());

  spdlog::debug("{}: DMA map {:#x}+{:#x} {}{}", options_.name, mapping.iova, mapping.size,
                allows(mapping.access, DmaAccess::write) ? "rw" : "ro",
                mapping.fd ? "" : ", no descriptor");
  if (auto done = model_.dma_map(std::move(mapping)); !done) return std::unexpected(done.error());
  return Reply{};
}

Server::Answer Server::dma_unmap(Message& message) {
  auto request = exactly<DmaUnmapPayload>(message.payload);
  if (!request || request->argsz < sizeof *request) return std::unexpected(EINVAL);

  if (request->flags == VFIO_DMA_UNMAP_FLAG_ALL) {
    if (request->iova != 0 || request->size != 0) return std::unexpected(EINVAL);
    spdlog::debug("{}: DMA unmap all", options_.name);
    model_.dma_unmap_all();
  } else if (request->flags == 0 && request->size != 0 &&
             request->iova + request->size - 1 >= request->iova) {
    spdlog::debug("{}: DMA unmap {:#x}+{:#x}", options_.name, request->iova, request->size);
    if (auto done = model_.dma_unmap(request->iova, request->size); !done)
      return std::unexpected(done.error());
  } else {
    return std::unexpected(EINVAL);
  }
  return Reply{}.add(*request);
}

Server::Answer Server::device_info(Message& message) {
  auto request = exactly<DeviceInfoPayload>(message.payload);
  if (!request || request->argsz < sizeof *request) return std::unexpected(EINVAL);
  DeviceInfoPayload info;
  info.argsz = sizeof info;
  info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
  info.num_regions = VFIO_PCI_NUM_REGIONS;
  info.num_irqs = VFIO_PCI_NUM_IRQS;
  return Reply{}.add(info);
}

Server::Answer Server::region_info(Message& message) {
  auto request = exactly<vfio_region_info>(message.payload);
  if (!request || request->argsz < sizeof *request || request->index >= regions_.size())
    return std::unexpected(EINVAL);
  const Region& region = regions_[request->index];

  vfio_region_info info{};
  info.argsz = sizeof info;
  info.index = request->index;
  info.size = region.size;
  Reply reply;
  if (region.size == 0) return reply.add(info);

  if (region.readable) info.flags |= VFIO_REGION_INFO_FLAG_READ;
  if (region.writable) info.flags |= VFIO_REGION_INFO_FLAG_WRITE;
  if (!region.memory || !client_takes_fds_) return reply.add(info);

  info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
  reply.fd = region.memory->fd();
  if (region.areas.empty()) return reply.add(info);

  // If the capability does not fit, the client learns its size and asks again. Its offset is set
  // all the same: QEMU refuses a reply with the flag and no offset.
  info.flags |= VFIO_REGION_INFO_FLAG_CAPS;
  info.cap_offset = sizeof info;
  info.argsz = static_cast<uint32_t>(sizeof info + sizeof(vfio_region_info_cap_sparse_mmap) +
                                     region.areas.size() * sizeof(vfio_region_sparse_mmap_area));
  reply.add(info);
  if (request->argsz < info.argsz) {
    reply.fd = -1;
    return reply;
  }

  vfio_info_cap_header capability{};
  capability.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP;
  capability.version = 1;
  reply.add(capability).add(static_cast<uint32_t>(region.areas.size())).add(uint32_t{0});
  for (const MappableArea& area : region.areas)
    reply.add(vfio_region_sparse_mmap_area{area.offset, area.size});
  return reply;
}

// No part of a region is served by an ioeventfd: none of the sub-regions that this asks for.
Server::Answer Server::region_io_fds(Message& message) {
  auto request = exactly<RegionIoFdsPayload>(message.payload);
  if (!request || request->argsz < sizeof *request || request->flags != 0 || request->count != 0 ||
      request->index >= regions_.size())
    return std::unexpected(EINVAL);
  RegionIoFdsPayload none;
  none.argsz = sizeof none;
  none.index = request->index;
  return Reply{}.add(none);
}

// The interrupts of a VFIO PCI interrupt type; null where the device has none of it.
Irqs* Server::irqs_of(uint32_t index) {
  if (index == VFIO_PCI_MSIX_IRQ_INDEX) return &msix_;
  if (index == VFIO_PCI_ERR_IRQ_INDEX) return &errors_;
  if (index == VFIO_PCI_REQ_IRQ_INDEX) return &unplug_;
  return nullptr;
}

Server::Answer Server::irq_info(Message& message) {
  auto request = exactly<vfio_irq_info>(message.payload);
  if (!request || request->argsz < sizeof *request || request->index >= VFIO_PCI_NUM_IRQS)
    return std::unexpected(EINVAL);
  vfio_irq_info info{};
  info.argsz = sizeof info;
  info.index = request->index;
  if (const Irqs* irqs = irqs_of(request->index)) {
    info.count = irqs->count();
    info.flags = irq_flags(request->index);
  }
  return Reply{}.add(info);
}

Server::Answer Server::set_irqs(Message& message) {
  std::span<const std::byte> rest(message.payload);
  if (rest.size() < sizeof(vfio_irq_set)) return std::unexpected(EINVAL);
  vfio_irq_set request{};
  std::memcpy(&request, rest.data(), sizeof request);
  rest = rest.subspan(sizeof request);

  // One kind of data and one action; the range inside the type; as much data as the kind says.
  uint32_t data = request.flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
  uint32_t action = request.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
  if (request.argsz < sizeof request || request.flags != (data | action) ||
      !std::has_single_bit(data) || !std::has_single_bit(action))
    return std::unexpected(EINVAL);
  if (request.index >= VFIO_PCI_NUM_IRQS) return std::unexpected(EINVAL);
  Irqs* irqs = irqs_of(request.index);
  uint32_t available = irqs != nullptr ? irqs->count() : 0;
  if (request.start > available || request.count > available - request.start)
    return std::unexpected(EINVAL);
  if (rest.size() != (data == VFIO_IRQ_SET_DATA_BOOL ? request.count : 0))
    return std::unexpected(EINVAL);
  if (data != VFIO_IRQ_SET_DATA_EVENTFD && !message.fds.empty()) return std::unexpected(EINVAL);

  if (request.count == 0) {
    // Only as "all of this type off".
    if (data != VFIO_IRQ_SET_DATA_NONE || action != VFIO_IRQ_SET_ACTION_TRIGGER ||
        request.start != 0)
      return std::unexpected(EINVAL);
    if (irqs != nullptr) irqs->clear();
    return Reply{};
  }

  if (data == VFIO_IRQ_SET_DATA_EVENTFD) {
    // A descriptor for each vector, or none at all to take theirs away. Descriptors that would be
    // signalled when an interrupt is masked or unmasked are not supported.
    if (action != VFIO_IRQ_SET_ACTION_TRIGGER) return std::unexpected(ENOTSUP);
    if (!message.fds.empty() && message.fds.size() != request.count) return std::unexpected(EINVAL);
    for (const Fd& fd : message.fds)
      if (!Irqs::usable(fd)) return std::unexpected(EINVAL);
    for (uint32_t i = 0; i < request.count; ++i) {
      Fd fd = message.fds.empty() ? Fd{} : std::move(message.fds[i]);
      irqs->assign(request.start + i, std::move(fd));
    }
    return Reply{};
  }

  for (uint32_t i = 0; i < request.count; ++i) {
    if (data == VFIO_IRQ_SET_DATA_BOOL && rest[i] == std::byte{0}) continue;
    uint32_t vector = request.start + i;
    if (action == VFIO_IRQ_SET_ACTION_MASK)
      irqs->mask(vector);
    else if (action == VFIO_IRQ_SET_ACTION_UNMASK)
      irqs->unmask(vector);
    else
      irqs->raise(vector);
  }
  return Reply{};
}

// The region, if the range lies in it.
std::expected<const Region*, int> Server::reach(uint32_t region, uint64_t offset,
                                                uint64_t size) const {
  if (region >= regions_.size()) return std::unexpected(EINVAL);
  const Region& r = regions_[region];
  if (size == 0 || size > options_.max_transfer || size > r.size || offset > r.size - size)
    return std::unexpected(EINVAL);
  return &r;
}

PciModel::Result Server::read(uint32_t region, uint64_t offset, std::span<std::byte> out) {
  auto r = reach(region, offset, out.size());
  if (!r) return std::unexpected(r.error());
  if (!(*r)->readable) return std::unexpected(EPERM);
  if (!mappable(**r, offset, out.size())) return model_.read(region, offset, out);
  copy_shared(out.data(), (*r)->memory->data() + offset, out.size());
  return {};
}

PciModel::Result Server::write(uint32_t region, uint64_t offset, std::span<const std::byte> in) {
  auto r = reach(region, offset, in.size());
  if (!r) return std::unexpected(r.error());
  if (!(*r)->writable) return std::unexpected(EPERM);
  if (!mappable(**r, offset, in.size())) return model_.write(region, offset, in);
  copy_shared((*r)->memory->data() + offset, in.data(), in.size());
  return {};
}

Server::Answer Server::region_read(Message& message) {
  auto request = exactly<RegionAccessPayload>(message.payload);
  if (!request) return std::unexpected(EINVAL);
  // Checked before the reply is made that long.
  if (auto r = reach(request->region, request->offset, request->count); !r)
    return std::unexpected(r.error());

  Reply reply;
  reply.add(*request);
  reply.payload.resize(sizeof *request + request->count);
  std::span<std::byte> data(reply.payload);
  if (auto done = read(request->region, request->offset, data.subspan(sizeof *request)); !done)
    return std::unexpected(done.error());
  return reply;
}

Server::Answer Server::region_write(Message& message) {
  std::span<const std::byte> rest(message.payload);
  auto request = take<RegionAccessPayload>(rest);
  if (!request || rest.size() != request->count) return std::unexpected(EINVAL);
  if (auto done = write(request->region, request->offset, rest); !done)
    return std::unexpected(done.error());
  return Reply{}.add(*request);
}

Server::Answer Server::region_write_multi(Message& message) {
  std::span<const std::byte> rest(message.payload);
  auto count = take<uint64_t>(rest);
  if (!count || rest.size() % sizeof(RegionWriteOne) != 0 ||
      rest.size() / sizeof(RegionWriteOne) != *count)
    return std::unexpected(EINVAL);

  for (auto check = rest; auto one = take<RegionWriteOne>(check);) {
    const RegionAccessPayload& access = one->access;
    if (access.count > sizeof one->data || !reach(access.region, access.offset, access.count))
      return std::unexpected(EINVAL);
  }
  while (auto one = take<RegionWriteOne>(rest)) {
    auto data = std::as_bytes(std::span(one->data)).first(one->access.count);
    if (auto done = write(one->access.region, one->access.offset, data); !done)
      return std::unexpected(done.error());
  }
  return Reply{}.add(*count);
}

Server::Answer Server::device_reset(Message& message) {
  if (!message.payload.empty()) return std::unexpected(EINVAL);
  spdlog::debug("{}: device reset", options_.name);
  msix_.clear_pending();
  model_.reset();
  return Reply{};
}

}  // namespace keyhole::vfio_user
