// SPDX-License-Identifier: BSD-2-Clause
//
// A send work request, copied out of its ring and checked.
//
// The ring is memory that its owner can change at any time. So the blocks are copied once into a
// WqeBuffer, everything is checked in the copy, and the copy is all that is used from then on. What
// a Wqe says is in range: the opcode fits the queue pair's type, the entries lie inside the blocks,
// the length is the sum of the entries and within what a message may have. Keys and addresses are
// not looked at yet: that happens when memory is touched.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hca/page_list.h"
#include "keyhole_hw.h"

namespace keyhole {

// A completion's verdict.
struct Verdict {
  uint8_t status = KH_WC_SUCCESS;   // enum kh_cqe_status
  uint32_t syndrome = KH_SYN_NONE;  // enum kh_syndrome, and an entry's number above it

  bool ok() const { return status == KH_WC_SUCCESS; }
};

// The ring of a send queue, in blocks.
struct SendRing {
  PageList* pages = nullptr;
  uint64_t offset = 0;
  uint32_t size = 0;  // blocks, a power of 2; 0: there is no send queue

  std::byte* block(uint32_t index) const {
    return pages->at(offset + (uint64_t{index & (size - 1)} << KH_WQE_BLOCK_SHIFT));
  }
};

// Large enough for every request that can be valid: no entry or inline byte lies behind this.
inline constexpr uint32_t kWqeBytes = 64 + KH_MAX_INLINE_ENTRIES * sizeof(kh_stride);
inline constexpr uint32_t kWqeBlocks = kWqeBytes / KH_WQE_BLOCK;
static_assert(kWqeBytes >= 64 + KH_MAX_INLINE);
static_assert(kWqeBytes >= 64 + KH_MAX_SGE * sizeof(kh_sge));
static_assert(kWqeBytes % KH_WQE_BLOCK == 0 && kWqeBlocks <= KH_MAX_WQE_BLOCKS);

struct alignas(64) WqeBuffer {
  std::byte bytes[kWqeBytes];
};

// READs, atomics and FLUSHes: each takes one of the peer's responder resources.
constexpr bool takes_resource(uint8_t opcode) {
  return (opcode >= KH_OP_READ && opcode <= KH_OP_FETCH_ADD) ||
         (opcode >= KH_OP_MASKED_CMP_SWAP && opcode <= KH_OP_ATOMIC_WRITE);
}
static_assert(takes_resource(KH_OP_MASKED_FETCH_ADD) && takes_resource(KH_OP_FLUSH));

// Its answer is what the cell held.
constexpr bool is_atomic(uint8_t opcode) {
  return opcode == KH_OP_CMP_SWAP || opcode == KH_OP_FETCH_ADD ||
         opcode == KH_OP_MASKED_CMP_SWAP || opcode == KH_OP_MASKED_FETCH_ADD;
}

constexpr bool is_umr(uint8_t opcode) {
  return opcode == KH_OP_UMR_FILL || opcode == KH_OP_UMR_INV;
}

struct Wqe {
  uint8_t opcode;  // enum kh_wqe_opcode
  uint8_t flags;   // KH_WQE_*
  uint8_t nblocks;
  uint8_t num_sge;
  uint32_t imm;
  uint64_t wr_id;
  uint32_t length;  // of the message
  // In the buffer:
  const kh_wqe_rdma* rdma;  // all but UD and local requests
  const kh_wqe_ud* ud;
  const kh_wqe_atomic* atomic;
  const kh_wqe_masked_atomic* masked;
  const kh_wqe_flush* flush;
  const kh_wqe_bind* bind;
  const kh_wqe_reg* reg;
  const kh_wqe_umr* umr;
  const kh_sge* sge;
  const std::byte* inline_data;  // instead of entries; of a UMR_FILL: its entries

  bool is_local() const {
    return opcode == KH_OP_LOCAL_INV || opcode == KH_OP_BIND_MW || opcode == KH_OP_REG_MR ||
           opcode == KH_OP_NOP || is_umr(opcode);
  }
  bool is_read_or_atomic() const { return takes_resource(opcode); }
  bool signaled() const { return flags & KH_WQE_SIGNALED; }
};

struct WqeLimits {
  kh_qp_type type;
  uint8_t max_sge;
  uint32_t ud_mtu;  // largest UD message
};

// Copies the request at block `index`, of which `available` blocks have been posted. False when the
// queue's memory has gone.
bool fetch_wqe(const SendRing& ring, uint32_t index, uint32_t available, WqeBuffer& buffer);

// Reads the head, even of a request that is wrong otherwise: opcode, flags, nblocks, num_sge, imm
// and wr_id. False when nblocks cannot be true, so that nobody knows where the next request begins.
bool decode_head(const WqeBuffer& buffer, uint32_t available, Wqe& wqe);

// Checks all the rest.
Verdict decode_wqe(const WqeBuffer& buffer, const WqeLimits& limits, Wqe& wqe);

}  // namespace keyhole
