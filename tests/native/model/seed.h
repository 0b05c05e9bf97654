// SPDX-License-Identifier: BSD-2-Clause
//
// What a randomized run is told from outside: KEYHOLE_SEED and KEYHOLE_STEPS.

#pragma once

#include <cstdint>
#include <cstdlib>

namespace keyhole::test {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

}  // namespace keyhole::test
