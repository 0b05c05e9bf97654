// SPDX-License-Identifier: BSD-2-Clause
//
// A vfio-user server for one PCI device: QEMU's `vfio-user-pci` or another client connects to its
// unix socket and finds a device with regions and MSI-X interrupts behind it.
//
// The protocol is in QEMU's docs/interop/vfio-user.rst. What is not here: DMA by messages (memory
// must come with a file descriptor), migration, ioeventfds and the second ("twin") socket; a client
// learns of each by the reply that the protocol has for it.
//
// The server has no thread and no clock. It tells its owner through Poll which descriptors to wait
// for, and the owner calls on_ready() when one is. One client at a time: another that connects
// meanwhile is turned away at once, and when the client goes, the next may come.
//
// What a client sends is not trusted. A malformed message gets an error reply and does nothing.
// Only when a size field makes it impossible to tell where the next message begins is the
// connection dropped. A client that does not read its replies is not read from until it does.

#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vfio_user/fd.h"
#include "vfio_user/irqs.h"
#include "vfio_user/pci_model.h"
#include "vfio_user/shared_memory.h"
#include "vfio_user/stream.h"

namespace keyhole::vfio_user {

// The owner's event loop, as the server sees it. Level-triggered.
class Poll {
 public:
  virtual ~Poll() = default;
  // From now on call Server::on_ready(fd) when `fd` can be read / written (or has hung up).
  // Replaces what was asked for `fd` before. Both false: not now, but hang-ups still count.
  virtual void watch(int fd, bool readable, bool writable) = 0;
  // The descriptor is about to be closed.
  virtual void forget(int fd) = 0;
};

// VFIO PCI region indexes.
constexpr uint32_t region_bar0 = 0;
constexpr uint32_t region_config = 7;

struct MappableArea {
  uint64_t offset = 0;  // in the region and in its memory; a multiple of the page size, as the size
  uint64_t size = 0;
};

struct Region {
  uint32_t index = 0;
  uint64_t size = 0;
  bool readable = true;
  bool writable = true;
  // If set, the client may map it (of the region's size). With areas, only those; without any, all.
  std::shared_ptr<SharedMemory> memory;
  std::vector<MappableArea> areas;
};

struct ServerOptions {
  std::string name;         // stands before what the server logs
  std::string socket_path;  // a socket left behind by a dead server is replaced
  std::vector<Region> regions;
  uint32_t msix_vectors = 0;
  uint32_t max_transfer = 1 << 20;  // bytes in one region read or write; the protocol's default
  uint32_t max_dma_maps = 4096;     // told to the client; DmaLimits::maps is what counts
};

class Server {
 public:
  // Binds the socket and starts to listen. The error is a sentence for a person. Throws
  // std::invalid_argument when the regions contradict each other: that is a bug of the owner.
  static std::expected<std::unique_ptr<Server>, std::string> listen(ServerOptions options,
                                                                    PciModel& model, Poll& poll);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `fd` is one that Poll::watch() named. Does a bounded amount of work; what is left shows as
  // readiness again.
  void on_ready(int fd);

  bool has_client() const { return stream_ != nullptr; }

  // Drops the client (after the current message, when called from within the model). It cannot come
  // back to this session; it may connect anew.
  void disconnect(const std::string& why);

  // Raises an MSI-X vector. Not sent while the client has given no eventfd for it or has masked it;
  // it is pending then. The caller looks at PciConfig's bus_master() and msix_enabled().
  void raise(uint32_t vector) { msix_.raise(vector); }

  // The pending bit of a vector, and the pending bit array as the guest reads it.
  bool pending(uint32_t vector) const { return vector < msix_.count() && msix_.pending(vector); }
  void read_pending_bits(uint64_t offset, std::span<std::byte> out) const;

  // Interrupts raised before a reset do not come after it. Called for DEVICE_RESET by the server
  // itself; for a function-level reset by the owner.
  void clear_pending() { msix_.clear_pending(); }

  // Asks the client to give the device back. False when the client did not ask to be told, as
  // QEMU's vfio-user-pci does not (11.1): there, unplugging starts with QEMU's device_del.
  bool request_unplug();

 private:
  struct Reply;
  using Answer = std::expected<Reply, int>;

  Server(ServerOptions options, PciModel& model, Poll& poll, Fd listener);

  void accept_client();
  Fd accept_connection();
  void serve_client();
  void drop_client();
  void watch_client();
  bool answer(Message& message);
  Answer dispatch(Message& message);
  void complain(const Header& header, int error);

  // One for each message of the protocol (commands.cc).
  Answer version(Message& message);
  Answer dma_map(Message& message);
  Answer dma_unmap(Message& message);
  static Answer device_info(Message& message);
  Answer region_info(Message& message);
  Answer region_io_fds(Message& message);
  Answer irq_info(Message& message);
  Answer set_irqs(Message& message);
  Answer region_read(Message& message);
  Answer region_write(Message& message);
  Answer region_write_multi(Message& message);
  Answer device_reset(Message& message);

  PciModel::Result read(uint32_t region, uint64_t offset, std::span<std::byte> out);
  PciModel::Result write(uint32_t region, uint64_t offset, std::span<const std::byte> in);
  std::expected<const Region*, int> reach(uint32_t region, uint64_t offset, uint64_t size) const;
  Irqs* irqs_of(uint32_t index);

  ServerOptions options_;
  PciModel& model_;
  Poll& poll_;
  Fd listener_;
  Fd spare_;                     // closed to make room for a connection that has to be turned away
  std::vector<Region> regions_;  // by index, absent ones with size 0
  Irqs msix_;
  Irqs unplug_{1};
  Irqs errors_{1};  // never raised: QEMU warns its user when a device has no such interrupt

  std::unique_ptr<Stream> stream_;
  bool watched_readable_ = false;  // what Poll was last told of the client's socket
  bool watched_writable_ = false;
  bool negotiated_ = false;
  bool client_takes_fds_ = true;
  bool in_message_ = false;
  uint32_t complaints_ = 0;
  std::optional<std::string> leaving_;  // why the client is to be dropped
};

}  // namespace keyhole::vfio_user
