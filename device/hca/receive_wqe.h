// SPDX-License-Identifier: BSD-2-Clause
//
// A receive work request, read once into device memory.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hca/guest_access.h"
#include "keyhole_hw.h"

namespace keyhole {

struct ReceiveWqe {
  uint64_t wr_id = 0;
  uint32_t num_sge = 0;
  std::array<kh_sge, KH_MAX_SGE> sge;
};

// False when it claims more than `max_sge` (at most KH_MAX_SGE, and what the stride holds) entries;
// wr_id is good all the same.
inline bool read_receive_wqe(ReceiveWqe& to, const std::byte* from, uint32_t max_sge) {
  kh_rwqe head;
  copy_out(head, from);
  to.wr_id = head.wr_id;
  to.num_sge = 0;
  if (head.num_sge > max_sge) return false;
  to.num_sge = head.num_sge;
  std::memcpy(to.sge.data(), from + sizeof(head), head.num_sge * sizeof(kh_sge));
  asm volatile("" : : "r"(&to) : "memory");
  return true;
}

}  // namespace keyhole
