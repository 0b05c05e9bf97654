// SPDX-License-Identifier: BSD-2-Clause
//
// Whether a ring or a record lies where a command says it does.

#pragma once

#include <cstdint>
#include <optional>

#include "hca/admin_result.h"
#include "hca/page_list.h"
#include "keyhole_hw.h"

namespace keyhole {

// `field` is the offset in the command's body of the field that holds `offset`. Nothing: it is
// well.
inline std::optional<AdminResult> refuse_piece(const PageList& pages, uint64_t offset,
                                               uint64_t size, uint64_t align, size_t field) {
  if (offset % align != 0 || offset > pages.size() || size > pages.size() - offset)
    return AdminResult::refuse(field);
  if (!pages.mapped(offset, size, true)) return AdminResult::refuse(field, KH_ST_FAULT);
  return std::nullopt;
}

}  // namespace keyhole
