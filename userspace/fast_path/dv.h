// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The requests of keyholedv.h: what is checked of them before they are posted, and how they lie in
// the ring. Shared by keyholedv_post_send() and the builder.
//
// A fill is one block of fixed parts and, when it is inline, its entries from the second block on.
// KLMs are ibv_sge's layout and copied as such; a strided entry is 24 bytes, so one may lie across
// the end of the ring and is copied in two pieces there. A fill from a KLM list is the first block
// alone: its entries go into the list's memory, which the device reads when it comes to the
// request.
//
// Keys, ranges and rights are the device's to judge; what is refused here (EINVAL) is what could
// not be right on any device.

#pragma once

#include "wqe.h"

namespace keyhole::verbs {

inline constexpr unsigned kMaskedBytes = kRdmaBytes + sizeof(kh_wqe_masked_atomic);
inline constexpr unsigned kUmrBytes = kBareBytes + sizeof(kh_wqe_umr);
static_assert(kUmrBytes == KH_WQE_BLOCK && kMaskedBytes == KH_WQE_BLOCK);

// A masked atomic's SGE opens a second block.
inline constexpr unsigned kMaskedBlocks = blocks_of(kMaskedBytes + sizeof(kh_sge));
// Entries of either kind that a WQE can hold at all.
inline constexpr unsigned kMostInlineEntries =
    (KH_MAX_WQE_BLOCKS * KH_WQE_BLOCK - kUmrBytes) / sizeof(kh_stride);

static_assert(sizeof(kh_stride) == sizeof(keyholedv_mr_interleaved));
static_assert(offsetof(kh_stride, addr) == offsetof(keyholedv_mr_interleaved, addr));
static_assert(offsetof(kh_stride, length) == offsetof(keyholedv_mr_interleaved, bytes_count));
static_assert(offsetof(kh_stride, lkey) == offsetof(keyholedv_mr_interleaved, lkey));
static_assert(offsetof(kh_stride, stride) == offsetof(keyholedv_mr_interleaved, stride));
static_assert(sizeof(kh_klm) == sizeof(ibv_sge) && offsetof(kh_klm, length) == 8);

// An mkey's rights; hints in the optional range are ignored.
inline constexpr unsigned kFillAccess =
    KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND | KH_ACCESS_ZERO_BASED;

// What a fill takes in the ring, or why it cannot be posted.
struct FillShape {
  unsigned nblocks;
  int error;
};

inline FillShape shape_of(const SendQueue& sq, const keyholedv_fill& fill, bool in_line) {
  constexpr FillShape refused{0, EINVAL};
  const unsigned access = fill.access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  constexpr unsigned writes = KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC;
  if ((access & ~kFillAccess) || ((access & writes) && !(access & KH_ACCESS_LOCAL_WRITE)))
      [[unlikely]]
    return refused;
  if (fill.num_entries == 0 || !fill.list) [[unlikely]]
    return refused;

  const unsigned entry = fill.repeat_count ? sizeof(kh_stride) : sizeof(kh_klm);
  if (in_line) {
    if (fill.num_entries > sq.max_inline_entries) [[unlikely]]
      return refused;
    const unsigned nblocks = blocks_of(kUmrBytes + fill.num_entries * entry);
    if (nblocks > sq.mask + 1) [[unlikely]]  // no completion will ever make room for it
      return refused;
    return {nblocks, 0};
  }
  const keyholedv_klm_list* list = fill.klm_list;
  const std::uint64_t bytes = std::uint64_t{fill.num_entries} * entry;
  if (fill.num_entries > sq.max_list_entries || !list || (fill.klm_offset & 7) ||
      fill.klm_offset > list->length || bytes > list->length - fill.klm_offset) [[unlikely]]
    return refused;
  return {1, 0};
}

inline void put_umr(std::byte* wqe, const keyholedv_fill& fill, std::uint32_t list_key,
                    std::uint64_t list_offset) {
  auto& umr = part_of<kh_wqe_umr>(wqe, kBareBytes);
  umr.key = fill.mkey;
  umr.access = fill.access & kFillAccess;
  umr.start = fill.access & KH_ACCESS_ZERO_BASED ? 0 : fill.start;
  umr.num_entries = fill.num_entries;
  umr.repeat_count = fill.repeat_count;
  umr.list_offset = list_offset;
  umr.list_key = list_key;
  std::memset(umr.rsvd, 0, sizeof(umr.rsvd));
}

// The block after this one of the ring.
inline std::byte* next_block(const SendQueue& sq, std::byte* wqe) {
  std::byte* next = wqe + KH_WQE_BLOCK;
  return next == ring_end(sq) ? sq.ring : next;
}

// All of a fill but ctrl, after shape_of() found nothing wrong and there is room.
inline void put_fill(const SendQueue& sq, std::byte* wqe, const keyholedv_fill& fill,
                     bool in_line) {
  if (!in_line) {
    const std::size_t entry = fill.repeat_count ? sizeof(kh_stride) : sizeof(kh_klm);
    put_umr(wqe, fill, fill.klm_list->key, fill.klm_offset);
    // Entries that were put together in the list itself may lie where they go.
    std::memmove(static_cast<std::byte*>(fill.klm_list->addr) + fill.klm_offset, fill.list,
                 fill.num_entries * entry);
    return;
  }
  put_umr(wqe, fill, 0, 0);
  std::byte* to = next_block(sq, wqe);
  if (!fill.repeat_count) {
    put_sges(sq, to, fill.list, fill.num_entries);
    return;
  }
  const std::size_t bytes = fill.num_entries * sizeof(kh_stride);
  const std::size_t room = ring_end(sq) - to;
  const std::size_t first = std::min(bytes, room);
  std::memcpy(to, fill.interleaved, first);
  if (first < bytes) [[unlikely]]
    std::memcpy(sq.ring, reinterpret_cast<const std::byte*>(fill.interleaved) + first,
                bytes - first);
}

inline bool masked_atomic_fits(const SendQueue& sq, const keyholedv_masked_atomic& atomic,
                               bool swap) {
  return sq.max_sge && atomic.sge.length == 8 && !(atomic.remote_addr & 7) &&
         (swap || !(atomic.compare | atomic.compare_mask));
}

// All of a masked atomic but ctrl, whose num_sge is 1.
inline void put_masked_atomic(const SendQueue& sq, std::byte* wqe,
                              const keyholedv_masked_atomic& from) {
  put_rdma(wqe, from.remote_addr, from.rkey, 0);
  auto& atomic = part_of<kh_wqe_masked_atomic>(wqe, kRdmaBytes);
  atomic.swap_add = from.swap_add;
  atomic.compare = from.compare;
  atomic.swap_mask = from.swap_mask;
  atomic.compare_mask = from.compare_mask;
  std::memcpy(next_block(sq, wqe), &from.sge, sizeof(kh_sge));
}

}  // namespace keyhole::verbs
