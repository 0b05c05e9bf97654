// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/wqe.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "hca/guest_access.h"

namespace keyhole {
namespace {

constexpr uint8_t kRc = 1 << KH_QPT_RC;
constexpr uint8_t kUc = 1 << KH_QPT_UC;
constexpr uint8_t kUd = 1 << KH_QPT_UD | 1 << KH_QPT_GSI;
constexpr uint8_t kAll = kRc | kUc | kUd;

// What each opcode needs before its data, and which queue pairs know it. UC has no SEND with
// invalidate: there is no such packet.
struct Shape {
  uint8_t types;
  uint8_t header;  // bytes before the data
  bool may_inline;
};
constexpr std::array<Shape, 18> kShapes = [] {
  std::array<Shape, 18> shapes{};
  shapes[KH_OP_SEND] = {kAll, 32, true};
  shapes[KH_OP_SEND_IMM] = {kAll, 32, true};
  shapes[KH_OP_SEND_INV] = {kRc, 32, true};
  shapes[KH_OP_WRITE] = {kRc | kUc, 32, true};
  shapes[KH_OP_WRITE_IMM] = {kRc | kUc, 32, true};
  shapes[KH_OP_READ] = {kRc, 32, false};
  shapes[KH_OP_CMP_SWAP] = {kRc, 48, false};
  shapes[KH_OP_FETCH_ADD] = {kRc, 48, false};
  shapes[KH_OP_LOCAL_INV] = {kRc | kUc, 16, false};
  shapes[KH_OP_BIND_MW] = {kRc | kUc, 64, false};
  shapes[KH_OP_REG_MR] = {kRc | kUc, 64, false};
  shapes[KH_OP_NOP] = {kAll, 16, false};
  shapes[KH_OP_UMR_FILL] = {kRc, 64, true};
  shapes[KH_OP_UMR_INV] = {kRc, 16, false};
  shapes[KH_OP_MASKED_CMP_SWAP] = {kRc, 64, false};
  shapes[KH_OP_MASKED_FETCH_ADD] = {kRc, 64, false};
  shapes[KH_OP_FLUSH] = {kRc, 48, false};
  shapes[KH_OP_ATOMIC_WRITE] = {kRc, 32, true};
  return shapes;
}();

constexpr uint8_t kFlags = KH_WQE_FENCE | KH_WQE_SIGNALED | KH_WQE_SOLICITED | KH_WQE_INLINE;

constexpr Verdict refuse(kh_syndrome why) { return {KH_WC_LOC_QP_OP_ERR, why}; }

template <typename T>
const T* at(const WqeBuffer& buffer, size_t offset) {
  return reinterpret_cast<const T*>(buffer.bytes + offset);
}

// A UMR_FILL's own fields, as far as they are about the request and not about its key.
Verdict decode_fill(const WqeBuffer& buffer, uint32_t room, Wqe& wqe) {
  wqe.umr = at<kh_wqe_umr>(buffer, sizeof(kh_wqe_ctrl));
  wqe.inline_data = nullptr;
  if (!(wqe.flags & KH_WQE_INLINE)) return {};
  const uint32_t count = wqe.umr->num_entries;
  const size_t size = wqe.umr->repeat_count ? sizeof(kh_stride) : sizeof(kh_klm);
  if (count > KH_MAX_INLINE_ENTRIES || count * size > room) return refuse(KH_SYN_UMR_COUNT);
  if (wqe.umr->list_key != 0 || wqe.umr->list_offset != 0) return refuse(KH_SYN_UMR_LIST);
  wqe.inline_data = buffer.bytes + 64;
  return {};
}

// Masked atomics, and the others.
Verdict decode_atomic(const WqeBuffer& buffer, Wqe& wqe) {
  wqe.atomic = at<kh_wqe_atomic>(buffer, 32);
  wqe.masked = at<kh_wqe_masked_atomic>(buffer, 32);
  if (wqe.num_sge != 1) return refuse(KH_SYN_WQE_SIZE);
  if (wqe.length != 8) return {KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH};
  if (wqe.opcode == KH_OP_MASKED_FETCH_ADD && (wqe.masked->compare | wqe.masked->compare_mask))
    return refuse(KH_SYN_WQE_FLAGS);
  return {};
}

}  // namespace

bool fetch_wqe(const SendRing& ring, uint32_t index, uint32_t available, WqeBuffer& buffer) {
  const std::byte* block = ring.block(index);
  if (block == nullptr) [[unlikely]]
    return false;
  std::memcpy(buffer.bytes, block, KH_WQE_BLOCK);
  uint32_t nblocks = std::to_integer<uint8_t>(buffer.bytes[offsetof(kh_wqe_ctrl, nblocks)]);
  uint32_t wanted = std::min({nblocks, available, kWqeBlocks});
  for (uint32_t i = 1; i < wanted; ++i) {
    block = ring.block(index + i);
    if (block == nullptr) [[unlikely]]
      return false;
    std::memcpy(buffer.bytes + i * KH_WQE_BLOCK, block, KH_WQE_BLOCK);
  }
  asm volatile("" : : "r"(&buffer) : "memory");
  return true;
}

bool decode_head(const WqeBuffer& buffer, uint32_t available, Wqe& wqe) {
  const auto* ctrl = at<kh_wqe_ctrl>(buffer, 0);
  wqe.opcode = ctrl->opcode;
  wqe.flags = ctrl->flags;
  wqe.nblocks = ctrl->nblocks;
  wqe.num_sge = ctrl->num_sge;
  wqe.imm = ctrl->imm;
  wqe.wr_id = ctrl->wr_id;
  wqe.length = 0;
  return wqe.nblocks != 0 && wqe.nblocks <= KH_MAX_WQE_BLOCKS && wqe.nblocks <= available;
}

Verdict decode_wqe(const WqeBuffer& buffer, const WqeLimits& limits, Wqe& wqe) {
  if (wqe.opcode >= kShapes.size()) return refuse(KH_SYN_WQE_OPCODE);
  const Shape& shape = kShapes[wqe.opcode];
  if (!(shape.types & (1 << limits.type))) return refuse(KH_SYN_WQE_OPCODE);
  if (wqe.flags & ~kFlags) return refuse(KH_SYN_WQE_FLAGS);

  const bool datagram = limits.type >= KH_QPT_UD && !wqe.is_local();
  const uint32_t header = datagram ? 64 : shape.header;
  const uint32_t room = wqe.nblocks * KH_WQE_BLOCK;
  if (header > room) return refuse(KH_SYN_WQE_SIZE);

  if (wqe.is_local()) {
    if (wqe.num_sge != 0) return refuse(KH_SYN_WQE_SIZE);
    if (wqe.opcode == KH_OP_UMR_FILL) return decode_fill(buffer, room - header, wqe);
    if (wqe.flags & KH_WQE_INLINE) return refuse(KH_SYN_WQE_FLAGS);
    wqe.bind = at<kh_wqe_bind>(buffer, sizeof(kh_wqe_ctrl));
    wqe.reg = at<kh_wqe_reg>(buffer, sizeof(kh_wqe_ctrl));
    return {};
  }

  uint32_t inline_length = 0;
  if (datagram) {
    wqe.ud = at<kh_wqe_ud>(buffer, sizeof(kh_wqe_ctrl));
    wqe.rdma = nullptr;
    inline_length = wqe.ud->inline_len;
  } else {
    wqe.rdma = at<kh_wqe_rdma>(buffer, sizeof(kh_wqe_ctrl));
    wqe.ud = nullptr;
    inline_length = wqe.rdma->inline_len;
  }

  if (wqe.opcode == KH_OP_FLUSH) {
    // It has a length, but no data.
    wqe.flush = at<kh_wqe_flush>(buffer, 32);
    wqe.sge = nullptr;
    wqe.inline_data = nullptr;
    if (wqe.num_sge != 0) return refuse(KH_SYN_WQE_SIZE);
    constexpr uint32_t kTypes = KH_FLUSH_GLOBAL | KH_FLUSH_PERSISTENT;
    if ((wqe.flags & KH_WQE_INLINE) || wqe.flush->type == 0 || (wqe.flush->type & ~kTypes) ||
        wqe.flush->level > KH_FLUSH_MR)
      return refuse(KH_SYN_WQE_FLAGS);
    return {};
  }

  if (wqe.flags & KH_WQE_INLINE) {
    if (!shape.may_inline) return refuse(KH_SYN_WQE_FLAGS);
    if (wqe.num_sge != 0 || inline_length > KH_MAX_INLINE || inline_length > room - header)
      return refuse(KH_SYN_WQE_SIZE);
    wqe.inline_data = buffer.bytes + header;
    wqe.sge = nullptr;
    wqe.length = inline_length;
  } else {
    if (wqe.num_sge > limits.max_sge || wqe.num_sge > KH_MAX_SGE ||
        wqe.num_sge * sizeof(kh_sge) > room - header)
      return refuse(KH_SYN_WQE_SIZE);
    wqe.inline_data = nullptr;
    wqe.sge = at<kh_sge>(buffer, header);
    uint64_t length = 0;
    for (unsigned i = 0; i < wqe.num_sge; ++i)
      length += wqe.sge[i].length;
    if (length > KH_MAX_MSG_SIZE) return {KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH};
    wqe.length = static_cast<uint32_t>(length);
  }

  if (is_atomic(wqe.opcode)) return decode_atomic(buffer, wqe);
  if (wqe.opcode == KH_OP_ATOMIC_WRITE) {
    if (!(wqe.flags & KH_WQE_INLINE)) return refuse(KH_SYN_WQE_FLAGS);
    if (wqe.length != 8) return {KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH};
  }
  if (datagram && wqe.length > limits.ud_mtu) return {KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH};
  return {};
}

}  // namespace keyhole
