// SPDX-License-Identifier: BSD-2-Clause
//
// One HCA as a PCI device on a vfio-user socket: the place where the engine, which knows no PCI,
// and the server, which knows no RDMA, meet.
//
// Towards the server this is the device model: configuration space, the three BARs, DMA maps,
// resets. Towards the engine it is the host: guest memory and interrupts. Both are cut off while
// the guest has not set the bus master bit, as on a real bus; the engine then finds no memory at
// any address.

#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "fabric/switch.h"
#include "hca/hca.h"
#include "hca/host.h"
#include "keyholed/event_loop.h"
#include "keyholed/options.h"
#include "vfio_user/dma_table.h"
#include "vfio_user/pci_config.h"
#include "vfio_user/pci_model.h"
#include "vfio_user/server.h"

namespace keyhole {

class Adapter final : public vfio_user::PciModel,
                      private vfio_user::PciConfigEvents,
                      private vfio_user::Poll,
                      private GuestMemory,
                      private Interrupts {
 public:
  // Listens when it returns. The error is a sentence for a person.
  static std::expected<std::unique_ptr<Adapter>, std::string> create(const HcaSpec& spec,
                                                                     uint32_t contexts,
                                                                     Switch& fabric, Clock& clock,
                                                                     EventLoop& loop);
  ~Adapter() override;

  Hca& hca() { return *hca_; }
  const std::string& socket() const { return socket_; }
  bool has_client() const { return server_ && server_->has_client(); }
  uint64_t guest_bytes() const { return dma_.reachable_bytes(); }

  // Drops a client that has truncated the memory it gave us. Cheap while nothing of the kind
  // happens.
  void check_memory();

 private:
  Adapter(const HcaSpec& spec, uint32_t contexts, vfio_user::SharedMemory pages, Switch& fabric,
          Clock& clock, EventLoop& loop);

  // PciModel
  Result read(uint32_t region, uint64_t offset, std::span<std::byte> out) override;
  Result write(uint32_t region, uint64_t offset, std::span<const std::byte> in) override;
  Result dma_map(vfio_user::DmaMapping mapping) override;
  Result dma_unmap(uint64_t iova, uint64_t size) override;
  void dma_unmap_all() override;
  void reset() override;
  void client_arrived() override;
  void client_gone() override;

  // PciConfigEvents
  void bus_master_changed(bool on) override;
  void msix_changed(bool enabled, bool function_masked) override;
  void function_reset() override;

  // Poll
  void watch(int fd, bool readable, bool writable) override;
  void forget(int fd) override;

  // GuestMemory, Interrupts
  Region find(uint64_t iova) override;
  void raise(uint16_t vector) override;

  void read_registers(uint64_t offset, std::span<std::byte> out);
  void write_registers(uint64_t offset, std::span<const std::byte> in);
  void wake(uint64_t offset);
  void start_over();

  std::string name_;
  std::string socket_;
  uint32_t contexts_;
  EventLoop& loop_;
  Switch& fabric_;
  std::shared_ptr<vfio_user::SharedMemory> pages_;  // BAR 2
  vfio_user::PciConfig config_;
  vfio_user::DmaTable dma_;
  // The MSI-X table is the client's to emulate; this is what it wrote here, for it to read back.
  std::array<std::byte, 16 * KH_MAX_VECTORS> msix_table_{};
  uint64_t faults_seen_ = 0;
  std::unique_ptr<Hca> hca_;
  std::unique_ptr<vfio_user::Server> server_;
};

}  // namespace keyhole
