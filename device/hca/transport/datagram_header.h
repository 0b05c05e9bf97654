// SPDX-License-Identifier: BSD-2-Clause
//
// The 40 bytes before the payload of a received datagram (the "GRH area"): the IP header as it
// would have come over a wire. An IPv6 header fills it; an IPv4 header is its second half. Software
// makes address handles from it, and believes an IPv4 header only if its checksum is right.

#pragma once

#include <array>
#include <cstdint>

#include "hca/transport/segment.h"

namespace keyhole {

inline constexpr uint32_t kGrhBytes = 40;

// IPv4 addresses stand in GIDs as ::ffff:a.b.c.d.
bool is_ipv4(const std::array<uint8_t, 16>& gid);
// Of IPv4 or IPv6.
bool is_multicast(const std::array<uint8_t, 16>& gid);
bool is_zero(const std::array<uint8_t, 16>& gid);

// `payload` is the length of the message, without headers.
std::array<std::byte, kGrhBytes> make_grh(const DatagramPath& path, uint32_t payload,
                                          bool immediate);

}  // namespace keyhole
