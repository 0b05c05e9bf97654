// SPDX-License-Identifier: BSD-2-Clause

#include "hca/page_list.h"

#include <algorithm>

#include "hca/guest_access.h"

namespace keyhole {

namespace {

// Takes one step for each map that the range runs over.
bool range_mapped(GuestMemory& memory, uint64_t iova, uint64_t size, bool write) {
  while (size > 0) {
    HostSpan span = memory.translate(iova, size, write);
    if (!span) return false;
    iova += span.size;
    size -= span.size;
  }
  return true;
}

}  // namespace

std::byte* PageList::at_slowly(uint64_t offset) const {
  if (pages_) {
    uint64_t iova = pages_[offset >> shift_] + (offset & (page_size() - 1));
    return memory_->translate(iova, 1, true).host;
  }
  HostSpan all = memory_->translate(base_, size_, true);
  if (all && all.size == size_) {
    host_ = all.host;
    generation_ = memory_->generation();
    return host_ + offset;
  }
  return memory_->translate(base_ + offset, 1, true).host;
}

HostSpan PageList::span_slowly(uint64_t offset, uint64_t max, bool write) const {
  max = std::min(max, size_ - offset);
  if (!pages_) {
    HostSpan all = memory_->translate(base_, size_, true);
    if (all && all.size == size_) {
      host_ = all.host;
      generation_ = memory_->generation();
      return {host_ + offset, max};
    }
    return memory_->translate(base_ + offset, max, write);
  }
  uint64_t page = offset >> shift_;
  uint64_t within = offset & (page_size() - 1);
  uint64_t iova = pages_[page];
  // Pages that follow each other make one span.
  uint64_t size = page_size() - within;
  while (size < max && pages_[page + 1] == pages_[page] + page_size()) {
    size += page_size();
    ++page;
  }
  return memory_->translate(iova + within, std::min(size, max), write);
}

bool PageList::mapped(uint64_t offset, uint64_t length, bool write) const {
  while (length > 0) {
    HostSpan span = this->span(offset, length, write);
    if (!span) return false;
    offset += span.size;
    length -= span.size;
  }
  return true;
}

PageListReader::PageListReader(GuestMemory& memory, MemoryBudget& budget, const kh_pages& pages)
    : memory_(memory), budget_(budget), pages_(pages) {}

std::expected<void, PageListReader::Error> PageListReader::begin() {
  auto refuse = [](uint8_t status, size_t offset) {
    return std::unexpected(Error{status, static_cast<uint8_t>(offset)});
  };
  if (pages_.page_shift < KH_PAGE_SHIFT_MIN || pages_.page_shift > KH_PAGE_SHIFT_MAX)
    return refuse(KH_ST_INVAL, offsetof(kh_pages, page_shift));
  if (pages_.levels > KH_PAGES_MAX_LEVELS) return refuse(KH_ST_INVAL, offsetof(kh_pages, levels));
  if (pages_.rsvd != 0) return refuse(KH_ST_INVAL, offsetof(kh_pages, rsvd));
  uint64_t most = pages_.levels == 0 ? UINT32_MAX : 1;
  for (int level = 0; level < pages_.levels; ++level)
    most *= KH_PAGES_PER_LIST;
  if (pages_.npages == 0 || pages_.npages > most)
    return refuse(KH_ST_INVAL, offsetof(kh_pages, npages));
  if (pages_.levels > 0 && pages_.npages > max_scattered_pages)
    return refuse(KH_ST_NOMEM, offsetof(kh_pages, npages));

  list_.memory_ = &memory_;
  list_.shift_ = pages_.page_shift;
  list_.size_ = uint64_t{pages_.npages} << pages_.page_shift;
  if (pages_.levels == 0) {
    uint64_t page_mask = list_.page_size() - 1;
    if (pages_.addr & page_mask || pages_.addr + (list_.size_ - 1) < pages_.addr)
      return refuse(KH_ST_INVAL, offsetof(kh_pages, addr));
    if (!range_mapped(memory_, pages_.addr, list_.size_, false))
      return refuse(KH_ST_FAULT, offsetof(kh_pages, addr));
    list_.base_ = pages_.addr;
    done_ = pages_.npages;
  }
  return {};
}

// The entry `index` of the list at IOVA `list`.
std::expected<uint64_t, PageListReader::Error> PageListReader::entry(uint64_t list,
                                                                     uint32_t index) {
  if (list & (KH_PAGE_SIZE - 1))
    return std::unexpected(Error{KH_ST_INVAL, offsetof(kh_pages, addr)});
  HostSpan span = memory_.translate(list, KH_PAGE_SIZE, false);
  if (!span || span.size < KH_PAGE_SIZE)
    return std::unexpected(Error{KH_ST_FAULT, offsetof(kh_pages, addr)});
  return load_relaxed<uint64_t>(span.host + uint64_t{index} * sizeof(uint64_t));
}

// Where the list lies that holds the address of `page`.
std::expected<uint64_t, PageListReader::Error> PageListReader::leaf_list(uint32_t page) {
  uint64_t list = pages_.addr;
  for (int level = pages_.levels; level > 1; --level) {
    uint32_t index = page >> (9 * (level - 1)) & (KH_PAGES_PER_LIST - 1);
    auto next = entry(list, index);
    if (!next) return next;
    list = *next;
  }
  return list;
}

std::expected<bool, PageListReader::Error> PageListReader::step(uint32_t entries) {
  if (!begun_) {
    begun_ = true;
    if (auto begun = begin(); !begun) return std::unexpected(begun.error());
  }
  uint64_t page_size = list_.page_size();
  for (; done_ < pages_.npages && entries > 0; ++done_, --entries) {
    if (done_ % KH_PAGES_PER_LIST == 0) {
      auto leaf = leaf_list(done_);
      if (!leaf) return std::unexpected(leaf.error());
      leaf_ = *leaf;
    }
    auto page = entry(leaf_, done_ % KH_PAGES_PER_LIST);
    if (!page) return std::unexpected(page.error());
    if (*page & (page_size - 1) || *page + (page_size - 1) < *page)
      return std::unexpected(Error{KH_ST_INVAL, offsetof(kh_pages, addr)});
    if (!range_mapped(memory_, *page, page_size, false))
      return std::unexpected(Error{KH_ST_FAULT, offsetof(kh_pages, addr)});
    if (done_ == 0) list_.base_ = *page;
    if (contiguous_ && *page != list_.base_ + uint64_t{done_} * page_size) {
      // The first page out of line: from here on addresses are kept.
      list_.charge_ = Charge(budget_, uint64_t{pages_.npages} * sizeof(uint64_t));
      if (!list_.charge_) return std::unexpected(Error{KH_ST_NOMEM, offsetof(kh_pages, npages)});
      list_.pages_ = std::make_unique_for_overwrite<uint64_t[]>(pages_.npages);
      for (uint32_t i = 0; i < done_; ++i)
        list_.pages_[i] = list_.base_ + i * page_size;
      contiguous_ = false;
    }
    if (!contiguous_) list_.pages_[done_] = *page;
  }
  return done_ == pages_.npages;
}

std::expected<PageList, PageListReader::Error> read_page_list(GuestMemory& memory,
                                                              MemoryBudget& budget,
                                                              const kh_pages& pages) {
  PageListReader reader(memory, budget, pages);
  for (;;) {
    auto complete = reader.step(UINT32_MAX);
    if (!complete) return std::unexpected(complete.error());
    if (*complete) return reader.take();
  }
}

}  // namespace keyhole
