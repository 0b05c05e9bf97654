// SPDX-License-Identifier: BSD-2-Clause
//
// Counters of one HCA since its last reset, in the order of enum kh_stat.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "keyhole_hw.h"

namespace keyhole {

struct Stats {
  std::array<uint64_t, KH_NUM_STATS> counters{};

  uint64_t& operator[](kh_stat which) { return counters[which]; }
  uint64_t operator[](kh_stat which) const { return counters[which]; }
};

// "tx_ops" and so on, for logs and JSON.
std::string_view stat_name(kh_stat which);

}  // namespace keyhole
