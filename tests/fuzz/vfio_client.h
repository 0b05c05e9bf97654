// SPDX-License-Identifier: BSD-2-Clause
//
// A vfio-user client that can say anything and holds the server to its word: each command that asks
// for a reply gets exactly one, in order, with its number, and a shape that a client can read. Only
// after something from which no server could tell where the next message begins, or which ends the
// conversation by the protocol's own rules, does it expect nothing more.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vfio_user/fd.h"
#include "vfio_user/protocol.h"

namespace keyhole::fuzz {

class VfioClient {
 public:
  // `pump` lets the server do all that it can do now.
  VfioClient(const std::string& path, std::function<void()> pump);
  ~VfioClient();

  // One message; another size than its own loses the framing.
  void send(uint16_t command, std::span<const std::byte> payload, std::span<const int> fds = {},
            uint32_t flags = 0, std::optional<uint32_t> size = {});
  template <typename T>
  void send(vfio_user::Command command, const T& payload, std::span<const int> fds = {}) {
    send(static_cast<uint16_t>(command), std::as_bytes(std::span(&payload, 1)), fds);
  }
  // The next message will go in two parts, the first of so many bytes.
  void cut_next_after(size_t bytes) { cut_ = bytes; }
  void send_noise(std::span<const std::byte> bytes);
  // The server may drop this client from now on.
  void may_be_dropped() { framing_known_ = false; }

  // Takes all replies that are there. What is owed must have come.
  void settle();

  // The payload of the last reply; nothing when it was an error.
  const std::optional<std::vector<std::byte>>& last() const { return last_; }
  bool gone() const { return gone_; }

 private:
  struct Owed {
    uint16_t id;
    uint16_t command;
  };

  void put(std::span<const std::byte> bytes, std::span<const int> fds);
  void receive();
  void take_replies();

  std::function<void()> pump_;
  vfio_user::Fd socket_;
  std::deque<Owed> owed_;
  std::vector<std::byte> received_;
  std::optional<std::vector<std::byte>> last_;
  uint16_t next_id_ = 1;
  std::optional<size_t> cut_;
  bool framing_known_ = true;
  bool gone_ = false;
};

}  // namespace keyhole::fuzz
