// SPDX-License-Identifier: BSD-2-Clause
//
// A server with a device model that notes what it is asked, and a client that can say anything,
// well-formed or not. Both live in one thread: the client sends, the server is pumped until it has
// nothing to do, and the client looks at what came back.

#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vfio_user/dma_table.h"
#include "vfio_user/protocol.h"
#include "vfio_user/server.h"

namespace keyhole::vfio_user {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const T& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline Bytes text_bytes(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <typename T>
T value_at(std::span<const std::byte> bytes, size_t offset = 0) {
  T value{};
  if (offset + sizeof value <= bytes.size())
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  else
    ADD_FAILURE() << bytes.size() << " bytes hold no " << sizeof value << " at " << offset;
  return value;
}

// A file of `size` bytes in memory.
Fd memory_file(uint64_t size);
Fd event_fd();
// What an eventfd counted since the last look.
uint64_t signals(const Fd& eventfd);
// How many descriptors this process has open.
size_t open_fds();

class FakeModel : public PciModel {
 public:
  Result read(uint32_t region, uint64_t offset, std::span<std::byte> out) override;
  Result write(uint32_t region, uint64_t offset, std::span<const std::byte> in) override;
  Result dma_map(DmaMapping mapping) override;
  Result dma_unmap(uint64_t iova, uint64_t size) override;
  void dma_unmap_all() override;
  void reset() override { ++resets; }
  void client_arrived() override { ++arrivals; }
  void client_gone() override;

  struct Access {
    uint32_t region;
    uint64_t offset;
    Bytes data;
  };

  DmaTable table{"test"};
  std::map<uint64_t, std::byte> memory;  // region << 32 | offset, as written
  std::vector<Access> writes;
  int resets = 0;
  int arrivals = 0;
  int departures = 0;
  std::optional<int> refuse;           // errno for the next read or write
  Server* hang_up_on_write = nullptr;  // disconnects in the middle of a write
};

struct Answer {
  Header header;
  Bytes payload;
  std::vector<Fd> fds;

  bool failed() const { return (header.flags & flag_error) != 0; }
};

class Client {
 public:
  explicit Client(const std::string& path);

  // Sends one message; the header's size is that of the message unless another is given.
  uint16_t send(Command command, const Bytes& payload, std::vector<int> fds = {},
                uint32_t flags = 0, std::optional<uint32_t> size = {});
  void send_raw(std::span<const std::byte> bytes, std::vector<int> fds = {});

  // The next reply, if it is there.
  std::optional<Answer> receive();
  // The server closed the connection.
  bool closed();

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }
  bool connected() const { return connected_; }

 private:
  Fd socket_;
  bool connected_ = false;
  uint16_t next_id_ = 1;
};

class ServerTest : public testing::Test, public Poll {
 public:
  static constexpr uint32_t vectors = 6;
  static constexpr uint64_t bar0_size = 8 * 4096;
  static constexpr uint64_t bar2_size = 4096;

  ServerTest();
  ~ServerTest() override;

  void watch(int fd, bool readable, bool writable) override;
  void forget(int fd) override { watched.erase(fd); }

  // Lets the server do all that it can do now.
  void pump();

  std::unique_ptr<Client> connect();
  // A connection that has negotiated its version.
  std::unique_ptr<Client> attach();

  // Sends, pumps and receives. Fails the test when nothing comes back.
  Answer ask(Client& client, Command command, const Bytes& payload, std::vector<int> fds = {});
  // The same, for a message that must be refused: returns the errno, 0 when it was not.
  int refusal(Client& client, Command command, const Bytes& payload, std::vector<int> fds = {});
  // The connection still works.
  bool alive(Client& client);

  struct Interest {
    bool readable;
    bool writable;
  };
  std::map<int, Interest> watched;
  int watches = 0;
  std::string directory;
  std::string path;
  FakeModel model;
  std::shared_ptr<SharedMemory> doorbells;
  std::unique_ptr<Server> server;
};

inline Bytes version_payload(const std::string& json, uint16_t major = 0, uint16_t minor = 0) {
  return bytes_of(VersionPayload{major, minor}) + text_bytes(json + '\0');
}

inline Bytes map_payload(uint64_t iova, uint64_t size, uint64_t offset = 0, uint32_t flags = 3) {
  return bytes_of(DmaMapPayload{sizeof(DmaMapPayload), flags, offset, iova, size});
}

inline Bytes unmap_payload(uint64_t iova, uint64_t size, uint32_t flags = 0) {
  return bytes_of(DmaUnmapPayload{sizeof(DmaUnmapPayload), flags, iova, size});
}

inline Bytes access_payload(uint32_t region, uint64_t offset, uint32_t count) {
  return bytes_of(RegionAccessPayload{offset, region, count});
}

}  // namespace keyhole::vfio_user
