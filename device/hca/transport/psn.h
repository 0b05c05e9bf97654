// SPDX-License-Identifier: BSD-2-Clause
//
// Packet sequence numbers: 24 bits that wrap (specification, 9.7.2). Of two numbers, one is "ahead"
// of the other when it is less than half of the space away, so that no more than 2^23 packets may
// be outstanding: just what a message of 2 GiB takes at the smallest path MTU.

#pragma once

#include <cstdint>

namespace keyhole {

inline constexpr uint32_t kPsnMask = 0xffffff;
inline constexpr uint32_t kPsnWindow = 1u << 23;

constexpr uint32_t psn_add(uint32_t psn, uint32_t n) { return (psn + n) & kPsnMask; }

// How far `b` lies behind `a`, going forward only.
constexpr uint32_t psn_distance(uint32_t a, uint32_t b) { return (b - a) & kPsnMask; }

// Signed: below zero when `a` is the older.
constexpr int32_t psn_diff(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

static_assert(psn_diff(0, kPsnMask) == 1);
static_assert(psn_diff(kPsnMask, 0) == -1);
static_assert(psn_diff(5, 5) == 0);

// Packets of a message of `length` bytes; one at least. `mtu_shift` is log2 of the path MTU.
constexpr uint32_t packets(uint64_t length, unsigned mtu_shift) {
  if (length == 0) return 1;
  return static_cast<uint32_t>((length + (uint64_t{1} << mtu_shift) - 1) >> mtu_shift);
}

}  // namespace keyhole
