// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// How large a queue must be, and where its parts lie.
//
// Each queue is one allocation of whole pages: the rings first, the doorbell record behind them.
// One allocation is one call of the application's allocator, one range that the kernel pins, and
// nothing of the process shares a page with it.
//
// A send queue is a ring of blocks and a work request takes as many as it needs. The ring has room
// for max_send_wr of the largest that the capabilities allow, rounded up to a power of two; what
// the rounding gave is handed back, so that the capabilities returned are what the queue can do in
// the worst case: max_send_wr requests with max_send_sge entries (or max_inline_data bytes) each
// always fit. Everything here is arithmetic on values, so that it can be tested alone.

#pragma once

#include <keyhole_hw.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <expected>

namespace keyhole {

// What a queue may be at most, as the kernel reported it for the context.
struct QueueLimits {
  uint32_t max_send_sge = 0;
  uint32_t max_recv_sge = 0;
  uint32_t max_inline = 0;
  uint32_t max_send_blocks = 0;
  uint32_t max_recv_wr = 0;
};

struct SendGeometry {
  bool present = false;
  uint8_t log_blocks = 0;
  uint32_t max_wr = 0;
  uint32_t max_sge = 0;
  uint32_t max_inline = 0;
};

struct RecvGeometry {
  bool present = false;
  uint8_t log_size = 0;
  uint8_t log_stride = 5;
  uint32_t max_wr = 0;
  uint32_t max_sge = 0;
};

// Offsets are in bytes from the start of the allocation; length is in whole pages.
struct Layout {
  uint32_t sq_offset = 0;
  uint32_t rq_offset = 0;
  uint32_t db_offset = 0;
  uint32_t length = 0;
};

inline constexpr uint32_t kMinLogStride = 5;  // 16 bytes of head, one entry
inline constexpr uint32_t kMaxLogStride = 10;
inline constexpr uint32_t kMaxLogCq = 22;
inline constexpr uint64_t kDoorbellAlign = 128;  // a line of each side, and no line of a ring

constexpr uint64_t align_up(uint64_t value, uint64_t align) {
  return (value + align - 1) & ~(align - 1);
}

constexpr uint8_t ceil_log2(uint64_t value) {
  return static_cast<uint8_t>(value <= 1 ? 0 : std::bit_width(value - 1));
}

// Send queue of at least `wr` requests with `sge` entries or `inline_data` bytes. `head` is what
// precedes the data in the largest request: 32 bytes for RC and UC, 64 for UD. `request` is the
// size in bytes of what else has to fit so many times, as a fill with its entries.
// EINVAL: more than `limits` allows.
constexpr std::expected<SendGeometry, int> send_geometry(uint32_t wr, uint32_t sge,
                                                         uint32_t inline_data, uint32_t head,
                                                         const QueueLimits& limits,
                                                         uint32_t request = 0) {
  if (sge > limits.max_send_sge || inline_data > limits.max_inline) return std::unexpected(EINVAL);
  if (wr == 0) return SendGeometry{};

  // Binds and atomics fill one block and need no more than that.
  const uint64_t message = head + std::max<uint64_t>(sge * sizeof(kh_sge), inline_data);
  const uint64_t bytes = align_up(std::max<uint64_t>(message, request), KH_WQE_BLOCK);
  const uint64_t blocks = wr * (bytes / KH_WQE_BLOCK);
  const uint8_t log_blocks = ceil_log2(blocks);
  if (blocks > limits.max_send_blocks || (uint64_t{1} << log_blocks) > limits.max_send_blocks)
    return std::unexpected(EINVAL);

  const auto room = static_cast<uint32_t>(bytes - head);
  return SendGeometry{
      .present = true,
      .log_blocks = log_blocks,
      .max_wr = static_cast<uint32_t>((uint64_t{1} << log_blocks) / (bytes / KH_WQE_BLOCK)),
      .max_sge = std::min<uint32_t>(room / sizeof(kh_sge), limits.max_send_sge),
      .max_inline = std::min(room, limits.max_inline),
  };
}

// Receive queue (or shared receive queue) of at least `wr` requests with `sge` entries.
// EINVAL: more than `limits` allows.
constexpr std::expected<RecvGeometry, int> recv_geometry(uint32_t wr, uint32_t sge,
                                                         const QueueLimits& limits) {
  if (sge > limits.max_recv_sge || wr > limits.max_recv_wr) return std::unexpected(EINVAL);
  if (wr == 0) return RecvGeometry{};

  const uint8_t log_size = ceil_log2(wr);
  if ((uint64_t{1} << log_size) > limits.max_recv_wr) return std::unexpected(EINVAL);
  const uint32_t log_stride =
      std::max<uint32_t>(kMinLogStride, ceil_log2(sizeof(kh_rwqe) + sge * sizeof(kh_sge)));
  const uint32_t room = (1u << log_stride) - static_cast<uint32_t>(sizeof(kh_rwqe));
  return RecvGeometry{
      .present = true,
      .log_size = log_size,
      .log_stride = static_cast<uint8_t>(log_stride),
      .max_wr = 1u << log_size,
      .max_sge = std::min<uint32_t>(room / sizeof(kh_sge), limits.max_recv_sge),
  };
}

// log2 of the entries of a completion queue for at least `cqe` of them. EINVAL: none, or too many.
constexpr std::expected<uint8_t, int> cq_log_size(int64_t cqe) {
  if (cqe < 1 || cqe > (int64_t{1} << kMaxLogCq)) return std::unexpected(EINVAL);
  return std::max<uint8_t>(1, ceil_log2(static_cast<uint64_t>(cqe)));
}

// EINVAL: longer than an offset of the contract can say.
constexpr std::expected<Layout, int> lay_out(uint64_t sq_bytes, uint64_t rq_bytes,
                                             uint64_t rq_align, uint64_t db_bytes,
                                             uint64_t page_size) {
  const uint64_t rq = align_up(sq_bytes, rq_align);
  const uint64_t db = align_up(rq + rq_bytes, kDoorbellAlign);
  const uint64_t length = align_up(db + db_bytes, page_size);
  if (length > UINT32_MAX) return std::unexpected(EINVAL);
  return Layout{.sq_offset = 0,
                .rq_offset = static_cast<uint32_t>(rq),
                .db_offset = static_cast<uint32_t>(db),
                .length = static_cast<uint32_t>(length)};
}

constexpr std::expected<Layout, int> qp_layout(const SendGeometry& sq, const RecvGeometry& rq,
                                               uint64_t page_size) {
  const uint64_t stride = uint64_t{1} << rq.log_stride;
  return lay_out(sq.present ? uint64_t{KH_WQE_BLOCK} << sq.log_blocks : 0,
                 rq.present ? stride << rq.log_size : 0, stride, sizeof(kh_qp_db), page_size);
}

constexpr std::expected<Layout, int> srq_layout(const RecvGeometry& rq, uint64_t page_size) {
  const uint64_t stride = uint64_t{1} << rq.log_stride;
  return lay_out(0, stride << rq.log_size, stride, sizeof(kh_srq_db), page_size);
}

constexpr std::expected<Layout, int> cq_layout(uint8_t log_size, uint64_t page_size) {
  return lay_out(0, uint64_t{sizeof(kh_cqe)} << log_size, KH_WQE_BLOCK, sizeof(kh_cq_db),
                 page_size);
}

}  // namespace keyhole
