// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/adapter.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace keyhole {

using vfio_user::PciBar;
using vfio_user::PciIdentity;
using vfio_user::PciModel;
using vfio_user::PciMsix;
using vfio_user::SharedMemory;

namespace {

constexpr uint16_t vectors = 16;
// Awake for so long after the last mark. A wake costs the guest a trapped store, some hundred
// microseconds where there is no hardware virtualization, so a pause in a conversation is not the
// end.
constexpr uint64_t idle_ns = 2'000'000;

constexpr uint32_t region_registers = KH_BAR_REGS;
constexpr uint32_t region_wake = KH_BAR_WAKE;
constexpr uint64_t msix_table_end = KH_MSIX_TABLE_OFFSET + 16 * KH_MAX_VECTORS;
constexpr uint64_t msix_pba_end = KH_MSIX_PBA_OFFSET + KH_MAX_VECTORS / 8;

uint64_t doorbell_bar_size(uint32_t contexts) {
  return std::bit_ceil(uint64_t{contexts} * 2 * KH_PAGE_SIZE);
}

uint64_t wake_bar_size(uint32_t contexts) {
  return std::bit_ceil(uint64_t{contexts} * KH_PAGE_SIZE);
}

PciIdentity identity() {
  return {.vendor = KH_PCI_VENDOR,
          .device = KH_PCI_DEVICE,
          .subsystem_vendor = KH_PCI_VENDOR,
          .subsystem = KH_PCI_DEVICE,
          .class_code = KH_PCI_CLASS << 8,
          .revision = KH_HW_MAJOR};
}

std::array<PciBar, 6> bars(uint32_t contexts) {
  std::array<PciBar, 6> bars{};
  bars[KH_BAR_REGS] = {.size = KH_BAR_REGS_SIZE};
  bars[KH_BAR_DOORBELL] = {.size = doorbell_bar_size(contexts), .wide = true, .prefetchable = true};
  bars[KH_BAR_WAKE] = {.size = wake_bar_size(contexts), .wide = true};
  return bars;
}

PciMsix msix() {
  return {.vectors = vectors,
          .table_bar = KH_BAR_REGS,
          .table_offset = KH_MSIX_TABLE_OFFSET,
          .pba_bar = KH_BAR_REGS,
          .pba_offset = KH_MSIX_PBA_OFFSET};
}

}  // namespace

std::expected<std::unique_ptr<Adapter>, std::string> Adapter::create(const HcaSpec& spec,
                                                                     uint32_t contexts,
                                                                     Switch& fabric, Clock& clock,
                                                                     EventLoop& loop) {
  auto pages = SharedMemory::create("keyhole-" + spec.name, doorbell_bar_size(contexts));
  if (!pages)
    return std::unexpected(
        fmt::format("{}: memory for doorbells: {}", spec.name, std::strerror(pages.error())));
  std::unique_ptr<Adapter> adapter(
      new Adapter(spec, contexts, std::move(*pages), fabric, clock, loop));

  vfio_user::ServerOptions options;
  options.name = spec.name;
  options.socket_path = spec.socket;
  options.msix_vectors = vectors;
  options.regions = {
      {.index = region_registers, .size = KH_BAR_REGS_SIZE, .memory = {}, .areas = {}},
      {.index = KH_BAR_DOORBELL,
       .size = adapter->pages_->size(),
       .memory = adapter->pages_,
       .areas = {}},
      {.index = region_wake, .size = wake_bar_size(contexts), .memory = {}, .areas = {}},
      {.index = vfio_user::region_config,
       .size = vfio_user::PciConfig::size,
       .memory = {},
       .areas = {}},
  };
  auto server = vfio_user::Server::listen(std::move(options), *adapter, *adapter);
  if (!server) return std::unexpected(server.error());
  adapter->server_ = std::move(*server);
  return adapter;
}

Adapter::Adapter(const HcaSpec& spec, uint32_t contexts, SharedMemory pages, Switch& fabric,
                 Clock& clock, EventLoop& loop)
    : name_(spec.name),
      socket_(spec.socket),
      contexts_(contexts),
      loop_(loop),
      fabric_(fabric),
      pages_(std::make_shared<SharedMemory>(std::move(pages))),
      config_(identity(), bars(contexts), msix(), *this),
      dma_(spec.name) {
  HcaOptions options;
  options.name = spec.name;
  options.mac = spec.mac;
  options.vectors = vectors;
  options.idle_ns = idle_ns;
  size_t half = size_t{contexts} * KH_PAGE_SIZE;
  Host host{.memory = this,
            .interrupts = this,
            .clock = &clock,
            .doorbells = pages_->bytes().subspan(0, half),
            .status = pages_->bytes().subspan(half, half)};
  hca_ = std::make_unique<Hca>(options, host, &fabric);
  fabric_.attach(*hca_);
}

Adapter::~Adapter() {
  server_.reset();
  fabric_.detach(*hca_);
}

void Adapter::check_memory() {
  if (faults_seen_ == vfio_user::SigbusGuard::faults()) return;
  faults_seen_ = vfio_user::SigbusGuard::faults();
  if (dma_.damaged())
    server_->disconnect("it truncated the memory that it had mapped to the device");
}

// BAR 2 is mapped memory: the server serves it by itself where a client does not map it.
PciModel::Result Adapter::read(uint32_t region, uint64_t offset, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  switch (region) {
    case vfio_user::region_config:
      config_.read(offset, out);
      return {};
    case region_registers:
      read_registers(offset, out);
      return {};
    case region_wake:
      return {};
    default:
      return std::unexpected(EINVAL);
  }
}

PciModel::Result Adapter::write(uint32_t region, uint64_t offset, std::span<const std::byte> in) {
  switch (region) {
    case vfio_user::region_config:
      config_.write(offset, in);
      return {};
    case region_registers:
      write_registers(offset, in);
      return {};
    case region_wake:
      wake(offset);
      return {};
    default:
      return std::unexpected(EINVAL);
  }
}

void Adapter::read_registers(uint64_t offset, std::span<std::byte> out) {
  if (offset < KH_MSIX_TABLE_OFFSET) {
    if (out.size() != 4 || offset % 4 != 0) return;
    uint32_t value = hca_->read_register(offset);
    std::memcpy(out.data(), &value, sizeof(value));
  } else if (offset < msix_table_end && out.size() <= msix_table_end - offset) {
    std::memcpy(out.data(), msix_table_.data() + (offset - KH_MSIX_TABLE_OFFSET), out.size());
  } else if (offset >= KH_MSIX_PBA_OFFSET && offset < msix_pba_end) {
    server_->read_pending_bits(offset - KH_MSIX_PBA_OFFSET, out);
  }
}

void Adapter::write_registers(uint64_t offset, std::span<const std::byte> in) {
  if (offset < KH_MSIX_TABLE_OFFSET) {
    if (in.size() != 4 || offset % 4 != 0) return;
    uint32_t value = 0;
    std::memcpy(&value, in.data(), sizeof(value));
    hca_->write_register(offset, value);
  } else if (offset < msix_table_end && in.size() <= msix_table_end - offset) {
    std::memcpy(msix_table_.data() + (offset - KH_MSIX_TABLE_OFFSET), in.data(), in.size());
  }
}

void Adapter::wake(uint64_t offset) {
  if (offset % KH_PAGE_SIZE != 0) return;
  uint64_t context = offset / KH_PAGE_SIZE;
  if (context < contexts_) hca_->wake(static_cast<uint32_t>(context));
}

PciModel::Result Adapter::dma_map(vfio_user::DmaMapping mapping) {
  Result result = dma_.map(mapping);
  changed();
  return result;
}

PciModel::Result Adapter::dma_unmap(uint64_t iova, uint64_t size) {
  Result result = dma_.unmap(iova, size);
  changed();
  return result;
}

void Adapter::dma_unmap_all() {
  dma_.unmap_all();
  changed();
}

// All that the guest set up goes; what the client has mapped and its eventfds stay.
void Adapter::start_over() {
  hca_->reset();
  if (server_) server_->clear_pending();
  msix_table_.fill(std::byte{0});
  changed();
}

void Adapter::reset() {
  spdlog::info("{}: reset", name_);
  config_.reset();
  start_over();
}

void Adapter::function_reset() {
  spdlog::info("{}: function-level reset", name_);
  start_over();
}

void Adapter::client_arrived() { spdlog::info("{}: a virtual machine has connected", name_); }

void Adapter::client_gone() {
  spdlog::info("{}: the virtual machine has gone", name_);
  config_.reset();
  start_over();
  dma_unmap_all();
}

void Adapter::bus_master_changed(bool on) {
  spdlog::debug("{}: bus master {}", name_, on ? "on" : "off");
  changed();
}

void Adapter::msix_changed(bool enabled, bool function_masked) {
  spdlog::debug("{}: MSI-X {}{}", name_, enabled ? "on" : "off", function_masked ? ", masked" : "");
}

void Adapter::watch(int fd, bool readable, bool writable) {
  uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
  loop_.watch(fd, events, [this, fd](uint32_t) { server_->on_ready(fd); });
}

void Adapter::forget(int fd) { loop_.forget(fd); }

GuestMemory::Region Adapter::find(uint64_t iova) {
  if (!config_.bus_master()) return {};
  auto whole = dma_.whole(iova);
  if (whole.host == nullptr) return {};
  return {whole.first, whole.last, whole.host, whole.writable};
}

void Adapter::raise(uint16_t vector) {
  if (config_.bus_master() && config_.msix_enabled()) server_->raise(vector);
}

}  // namespace keyhole
