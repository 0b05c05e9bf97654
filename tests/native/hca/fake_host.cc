// SPDX-License-Identifier: BSD-2-Clause
//
// Guest memory, clock and interrupts of the harness.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>

#include "harness.h"

namespace keyhole::test {

namespace {

// Between two pages that nobody may touch.
std::byte* anonymous(size_t size) {
  void* memory =
      mmap(nullptr, size + 2 * KH_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::byte* usable = static_cast<std::byte*>(memory) + KH_PAGE_SIZE;
  if (mprotect(usable, size, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  return usable;
}

void drop(std::byte* memory, size_t size) {
  munmap(memory - KH_PAGE_SIZE, size + 2 * KH_PAGE_SIZE);
}

size_t round_up(size_t size) { return (size + KH_PAGE_SIZE - 1) & ~size_t{KH_PAGE_SIZE - 1}; }

}  // namespace

FakeHost::FakeHost(const Options& options) : options_(options) {
  size_t npages = options_.memory / KH_PAGE_SIZE;
  if (npages == 0 || (npages & (npages - 1)) != 0)
    throw std::invalid_argument("the arena must be a power of two of pages");
  arena_ = anonymous(options_.memory);
  doorbells_ = {anonymous(size_t{options_.contexts} * KH_PAGE_SIZE),
                size_t{options_.contexts} * KH_PAGE_SIZE};
  status_ = {anonymous(size_t{options_.contexts} * KH_PAGE_SIZE),
             size_t{options_.contexts} * KH_PAGE_SIZE};
  place_of_page_.resize(npages);
  page_at_place_.resize(npages);
  for (size_t page = 0; page < npages; ++page) {
    // An odd factor permutes a power of two of pages.
    size_t place = options_.scattered ? (page * 0x9e3779b1u) & (npages - 1) : page;
    place_of_page_[page] = place;
    page_at_place_[place] = page;
  }
}

FakeHost::~FakeHost() {
  drop(arena_, options_.memory);
  drop(doorbells_.data(), doorbells_.size());
  drop(status_.data(), status_.size());
}

Host FakeHost::host() {
  return {.memory = this,
          .interrupts = this,
          .clock = this,
          .doorbells = doorbells_,
          .status = status_};
}

std::byte* FakeHost::allocate(size_t size) {
  size = std::max<size_t>(round_up(size), KH_PAGE_SIZE);
  auto fits = std::find_if(free_.begin(), free_.end(), [&](auto& f) { return f.second == size; });
  if (fits != free_.end()) {
    std::byte* memory = fits->first;
    free_.erase(fits);
    std::memset(memory, 0, size);
    return memory;
  }
  if (size > options_.memory - used_) throw std::bad_alloc();
  std::byte* memory = arena_ + used_;
  used_ += size;
  return memory;
}

void FakeHost::release(std::byte* memory, size_t size) {
  free_.emplace_back(memory, std::max<size_t>(round_up(size), KH_PAGE_SIZE));
}

size_t FakeHost::page_of(const void* memory) const {
  size_t offset = static_cast<const std::byte*>(memory) - arena_;
  if (offset >= options_.memory) throw std::out_of_range("not in the arena");
  return offset / KH_PAGE_SIZE;
}

uint64_t FakeHost::iova(const void* memory) const {
  size_t page = page_of(memory);
  size_t within = (static_cast<const std::byte*>(memory) - arena_) % KH_PAGE_SIZE;
  return options_.iova_base + uint64_t{place_of_page_[page]} * KH_PAGE_SIZE + within;
}

kh_pages FakeHost::pages(const void* memory, size_t size, int levels) {
  const auto* first = static_cast<const std::byte*>(memory);
  auto npages = static_cast<uint32_t>(round_up(size) / KH_PAGE_SIZE);
  if (levels < 0) {
    levels = 1;
    if (!options_.scattered || npages == 1)
      levels = 0;
    else if (npages > 512 * 512)
      levels = 3;
    else if (npages > 512)
      levels = 2;
  }
  kh_pages pages{};
  pages.npages = npages;
  pages.page_shift = KH_PAGE_SHIFT;
  pages.levels = levels;
  std::vector<uint64_t> addresses;
  for (uint32_t i = 0; i < npages; ++i)
    addresses.push_back(iova(first + size_t{i} * KH_PAGE_SIZE));
  for (int level = 0; level < levels; ++level) {
    std::vector<uint64_t> above;
    for (size_t at = 0; at < addresses.size(); at += KH_PAGES_PER_LIST) {
      std::byte* list = allocate(KH_PAGE_SIZE);
      size_t n = std::min<size_t>(KH_PAGES_PER_LIST, addresses.size() - at);
      std::memcpy(list, addresses.data() + at, n * sizeof(uint64_t));
      above.push_back(iova(list));
    }
    addresses = std::move(above);
  }
  if (levels > 0 && addresses.size() != 1) throw std::invalid_argument("too few levels");
  pages.addr = addresses.at(0);
  return pages;
}

void FakeHost::protect(size_t page, int protection) {
  if (!options_.guarded) return;
  if (mprotect(arena_ + page * KH_PAGE_SIZE, KH_PAGE_SIZE, protection) != 0) throw std::bad_alloc();
}

void FakeHost::unmap(const void* memory, size_t size) {
  for (size_t at = 0; at < size; at += KH_PAGE_SIZE) {
    size_t page = page_of(static_cast<const std::byte*>(memory) + at);
    unmapped_.insert(page);
    protect(page, PROT_NONE);
  }
  changed();
}

void FakeHost::map(const void* memory, size_t size) {
  for (size_t at = 0; at < size; at += KH_PAGE_SIZE) {
    size_t page = page_of(static_cast<const std::byte*>(memory) + at);
    if (unmapped_.erase(page) + protected_.erase(page) > 0) protect(page, PROT_READ | PROT_WRITE);
  }
  changed();
}

void FakeHost::write_protect(const void* memory, size_t size) {
  for (size_t at = 0; at < size; at += KH_PAGE_SIZE) {
    size_t page = page_of(static_cast<const std::byte*>(memory) + at);
    protected_.insert(page);
    if (!unmapped_.contains(page)) protect(page, PROT_READ);
  }
  changed();
}

GuestMemory::Region FakeHost::find(uint64_t iova) {
  uint64_t base = options_.iova_base;
  if (iova < base || iova - base >= options_.memory) return {};
  if (whole())
    return {.first = base, .last = base + options_.memory - 1, .host = arena_, .writable = true};
  uint64_t place = (iova - base) / KH_PAGE_SIZE;
  size_t page = page_at_place_[place];
  if (unmapped_.contains(page)) return {};
  uint64_t first = base + place * KH_PAGE_SIZE;
  return {.first = first,
          .last = first + KH_PAGE_SIZE - 1,
          .host = arena_ + page * KH_PAGE_SIZE,
          .writable = !protected_.contains(page)};
}

uint64_t FakeHost::now_ns() {
  if (!options_.real_clock) return now_;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace keyhole::test
