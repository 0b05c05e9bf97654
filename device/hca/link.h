// SPDX-License-Identifier: BSD-2-Clause
//
// What an HCA is plugged into, as the HCA sees it (device/fabric/ has the switch).
//
// Two things travel over a link. Ethernet frames of the netdevs, as bytes. And RDMA between HCAs of
// this process, which travels by reference: the sender finds the HCA that a packet with this
// destination MAC would arrive at, and calls its transport with a segment that points into the
// sender's guest memory.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace keyhole {

class Hca;

struct Mac {
  std::array<uint8_t, 6> bytes{};

  bool operator==(const Mac&) const = default;
  // The first byte lowest, so that 0 is the zero address.
  uint64_t value() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  bool multicast() const { return bytes[0] & 1; }
  static Mac at(const void* from) {
    Mac mac;
    std::memcpy(mac.bytes.data(), from, mac.bytes.size());
    return mac;
  }
};

class Link {
 public:
  virtual ~Link() = default;

  // An Ethernet frame without FCS, of 14 bytes or more, from the netdev of `from`.
  virtual void send(Hca& from, std::span<const std::byte> frame) = 0;

  // The HCA with this unicast MAC whose port is up and whose RDMA function is on (it may be the
  // sender itself: a loopback); null when nobody has it. The answer holds while generation() does.
  virtual Hca* find(const Mac& mac) = 0;

  // All HCAs on the link whose RDMA function is up, for multicast: the sender too.
  virtual std::span<Hca* const> stations() = 0;

  // Never 0. Moves when an HCA comes, goes, changes its MAC or its port's state.
  uint64_t generation() const { return generation_; }

  // An HCA says that its MAC or its port's state has changed.
  virtual void changed(Hca& hca) = 0;

 protected:
  uint64_t generation_ = 1;
};

}  // namespace keyhole
