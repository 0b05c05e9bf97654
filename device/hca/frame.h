// SPDX-License-Identifier: BSD-2-Clause
//
// What the engine has to see in an Ethernet frame.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace keyhole {

constexpr uint16_t roce_udp_port = 4791;

// Whether the frame is a RoCE v2 packet: UDP to port 4791 over IPv4 or IPv6 (without extension
// headers, as RoCE v2 has it), with a VLAN tag or without. Fragments are none.
inline bool is_roce(std::span<const std::byte> frame) {
  auto byte_at = [&](size_t at) {
    return at < frame.size() ? std::to_integer<uint16_t>(frame[at]) : uint16_t{0};
  };
  auto word_at = [&](size_t at) {
    return static_cast<uint16_t>(byte_at(at) << 8 | byte_at(at + 1));
  };
  size_t at = 12;
  uint16_t type = word_at(at);
  if (type == 0x8100) {
    at += 4;
    type = word_at(at);
  }
  at += 2;
  constexpr uint16_t udp = 17;
  if (type == 0x0800) {
    bool fragment = (word_at(at + 6) & 0x3fff) != 0;
    if (byte_at(at + 9) != udp || fragment) return false;
    at += size_t{4} * (byte_at(at) & 0xf);
  } else if (type == 0x86dd) {
    if (byte_at(at + 6) != udp) return false;
    at += 40;
  } else {
    return false;
  }
  return word_at(at + 2) == roce_udp_port;
}

}  // namespace keyhole
