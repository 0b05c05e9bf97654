// SPDX-License-Identifier: BSD-2-Clause
//
// The outcome of an admin command, as its completion says it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "keyhole_hw.h"

namespace keyhole {

struct AdminResult {
  uint8_t status = KH_ST_OK;  // enum kh_admin_status
  uint32_t syndrome = 0;      // byte offset in the command of the field refused
  std::array<uint32_t, 4> result{};

  bool ok() const { return status == KH_ST_OK; }

  static AdminResult done(uint32_t result0 = 0) { return {KH_ST_OK, 0, {result0}}; }
  // `offset` is that of the field in the command's body, which begins at byte 16.
  static AdminResult refuse(size_t offset, uint8_t status = KH_ST_INVAL) {
    return {status, static_cast<uint32_t>(sizeof(kh_admin_hdr) + offset), {}};
  }
  // About the object that the command's handle names.
  static AdminResult handle(uint8_t status) { return {status, offsetof(kh_admin_hdr, handle), {}}; }
};

}  // namespace keyhole
