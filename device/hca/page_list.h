// SPDX-License-Identifier: BSD-2-Clause
//
// Guest memory as a command describes it (struct kh_pages), read once into device memory.
//
// A PageList maps a byte offset to a host pointer. Most lists collapse: pages that turn out to be
// one contiguous piece of IOVA are kept as just its address, and when that piece lies in one map,
// its host pointer is kept too, for as long as GuestMemory::generation() stands. What does not
// collapse is an array of page addresses, 8 bytes a page; each use translates the address anew,
// which is cheap (host.h) and needs no bookkeeping when maps change.
//
// Reading a list of millions of pages takes a while, so PageListReader does it in steps.

#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <vector>

#include "hca/host.h"
#include "hca/memory_budget.h"
#include "keyhole_hw.h"

namespace keyhole {

class PageList {
 public:
  PageList() = default;
  PageList(PageList&&) noexcept = default;
  PageList& operator=(PageList&&) noexcept = default;

  // One contiguous piece, unchecked: for tests and for what the device itself makes up.
  PageList(GuestMemory& memory, uint64_t iova, uint64_t size)
      : memory_(&memory), base_(iova), size_(size) {}

  // In bytes. Offsets below are less than this; the callers have checked.
  uint64_t size() const { return size_; }

  // The host address of `offset`, from where the rest of its page (4 KiB at least, so any aligned
  // ring entry) can be read and written. Null when the guest took the memory away. This is for
  // queues, whose memory was writable when they were created.
  std::byte* at(uint64_t offset) const {
    if (generation_ == memory_->generation()) [[likely]]
      return host_ + offset;
    return at_slowly(offset);
  }

  // The contiguous bytes at `offset`, at most `max` (> 0) of them. None when the memory went away.
  HostSpan span(uint64_t offset, uint64_t max, bool write) const {
    if (generation_ == memory_->generation()) [[likely]]
      return {host_ + offset, max < size_ - offset ? max : size_ - offset};
    return span_slowly(offset, max, write);
  }

  // Brings all of [offset, offset + length) into view once: false when some of it is not mapped.
  bool mapped(uint64_t offset, uint64_t length, bool write) const;

 private:
  friend class PageListReader;

  std::byte* at_slowly(uint64_t offset) const;
  HostSpan span_slowly(uint64_t offset, uint64_t max, bool write) const;
  uint64_t page_size() const { return uint64_t{1} << shift_; }

  GuestMemory* memory_ = nullptr;
  uint64_t base_ = 0;  // IOVA, when there is no array
  uint64_t size_ = 0;
  std::unique_ptr<uint64_t[]> pages_;  // IOVA of each page, when they are scattered
  uint8_t shift_ = KH_PAGE_SHIFT;
  Charge charge_;

  // Set when everything is one piece of one writable map.
  mutable std::byte* host_ = nullptr;
  mutable uint64_t generation_ = 0;
};

// Reads a kh_pages in steps. Every entry is read once, and checked: alignment, no wrap, and mapped.
class PageListReader {
 public:
  struct Error {
    uint8_t status;        // enum kh_admin_status
    uint8_t field_offset;  // of the refused field in struct kh_pages
  };

  // Lists of more entries than this are refused (NOMEM): 128 MiB of addresses.
  static constexpr uint32_t max_scattered_pages = 1u << 24;

  PageListReader(GuestMemory& memory, MemoryBudget& budget, const kh_pages& pages);

  // Reads up to `entries` more page addresses. True when the list is complete.
  std::expected<bool, Error> step(uint32_t entries);

  // After step() has returned true.
  PageList take() { return std::move(list_); }

 private:
  std::expected<void, Error> begin();
  std::expected<uint64_t, Error> entry(uint64_t list, uint32_t index);
  std::expected<uint64_t, Error> leaf_list(uint32_t page);

  GuestMemory& memory_;
  MemoryBudget& budget_;
  kh_pages pages_;
  PageList list_;
  uint64_t leaf_ = 0;  // IOVA of the list that the next page address is in
  uint32_t done_ = 0;
  bool begun_ = false;
  bool contiguous_ = true;  // so far
};

// Does it all at once.
std::expected<PageList, PageListReader::Error> read_page_list(GuestMemory& memory,
                                                              MemoryBudget& budget,
                                                              const kh_pages& pages);

}  // namespace keyhole
