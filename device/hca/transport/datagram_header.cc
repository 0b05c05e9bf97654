// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/datagram_header.h"

#include <algorithm>
#include <cstring>

namespace keyhole {
namespace {

constexpr uint32_t kUdp = 8, kBth = 12, kDeth = 8, kImmediate = 4, kIcrc = 4;
constexpr uint32_t kIpv4 = 20;
constexpr uint8_t kUdpProtocol = 17;

constexpr std::array<uint8_t, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

void put16(uint8_t* to, uint32_t value) {
  to[0] = static_cast<uint8_t>(value >> 8);
  to[1] = static_cast<uint8_t>(value);
}

uint16_t ip_checksum(const uint8_t* header) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kIpv4; i += 2)
    sum += uint32_t{header[i]} << 8 | header[i + 1];
  while (sum >> 16)
    sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

bool is_ipv4(const std::array<uint8_t, 16>& gid) {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), gid.begin());
}

bool is_multicast(const std::array<uint8_t, 16>& gid) {
  return gid[0] == 0xff || (is_ipv4(gid) && (gid[12] & 0xf0) == 0xe0);
}

bool is_zero(const std::array<uint8_t, 16>& gid) {
  return std::ranges::all_of(gid, [](uint8_t byte) { return byte == 0; });
}

std::array<std::byte, kGrhBytes> make_grh(const DatagramPath& path, uint32_t payload,
                                          bool immediate) {
  std::array<uint8_t, kGrhBytes> out{};
  // A packet's payload is padded to four bytes.
  uint32_t behind =
      kUdp + kBth + kDeth + (immediate ? kImmediate : 0) + ((payload + 3) & ~3u) + kIcrc;
  if (is_ipv4(path.dgid)) {
    uint8_t* ip = out.data() + (kGrhBytes - kIpv4);
    ip[0] = 0x45;
    ip[1] = path.traffic_class;
    put16(ip + 2, kIpv4 + behind);
    put16(ip + 6, 0x4000);  // do not fragment
    ip[8] = path.hop_limit;
    ip[9] = kUdpProtocol;
    std::memcpy(ip + 12, path.sgid.data() + 12, 4);
    std::memcpy(ip + 16, path.dgid.data() + 12, 4);
    put16(ip + 10, ip_checksum(ip));
  } else {
    put16(out.data(), 0x6000 | uint32_t{path.traffic_class} << 4 | (path.flow_label >> 16 & 0xf));
    put16(out.data() + 2, path.flow_label);
    put16(out.data() + 4, behind);
    out[6] = kUdpProtocol;
    out[7] = path.hop_limit;
    std::memcpy(out.data() + 8, path.sgid.data(), 16);
    std::memcpy(out.data() + 24, path.dgid.data(), 16);
  }
  std::array<std::byte, kGrhBytes> bytes;
  std::memcpy(bytes.data(), out.data(), kGrhBytes);
  return bytes;
}

}  // namespace keyhole
