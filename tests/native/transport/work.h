// SPDX-License-Identifier: BSD-2-Clause
//
// Work requests by name, and how they lie in a send queue. For tests and fuzzers alike: nothing
// here checks what it is told.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "keyhole_hw.h"

namespace keyhole::test {

// A send work request, before it is laid out in blocks.
struct Work {
  uint8_t opcode = KH_OP_NOP;
  uint64_t wr_id = 0;
  uint8_t flags = KH_WQE_SIGNALED;
  uint32_t imm = 0;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  std::vector<kh_sge> sge;
  std::vector<std::byte> inline_data;  // with KH_WQE_INLINE
  uint64_t swap_add = 0;
  uint64_t compare = 0;
  kh_av av{};
  uint32_t dest_qpn = 0;
  uint32_t qkey = 0;
  kh_wqe_bind bind{};
  kh_wqe_flush flush{};
  uint32_t flush_length = 0;
  kh_wqe_masked_atomic masked{};
  kh_wqe_umr umr{};  // its entries are in inline_data
  int nblocks = -1;  // as many as needed
  int num_sge = -1;  // as many as there are
};

std::vector<std::byte> lay_out(const Work& work, bool datagram);

}  // namespace keyhole::test
