// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile guest's memory: FakeHost's arena with the oracle over it. What the guest writes goes
// through here, so that the oracle knows it from what the device writes. A page that is unmapped
// from the device is out of reach for the whole process: a touch ends it.

#pragma once

#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "harness.h"
#include "oracle.h"

namespace keyhole::fuzz {

class Guest {
 public:
  // Everything that has been allocated so far is the driver's and may change.
  explicit Guest(test::FakeHost& host)
      : host_(host), oracle_(host.arena()), writable_(host.arena().size() / KH_PAGE_SIZE, true) {
    const std::byte* used = host.allocate(KH_PAGE_SIZE);
    first_ = static_cast<size_t>(used - host.arena().data());
    oracle_.allow({0, first_});
  }

  test::FakeHost& host() { return host_; }
  Oracle& oracle() { return oracle_; }
  // The first byte that is not the driver's.
  size_t first() const { return first_; }
  size_t size() const { return host_.arena().size(); }
  std::byte* at(size_t offset) { return host_.arena().data() + offset; }
  uint64_t iova(size_t offset) { return host_.iova(at(offset)); }

  bool may_write(size_t offset, size_t size) const {
    if (offset >= writable_.size() * KH_PAGE_SIZE ||
        size > writable_.size() * KH_PAGE_SIZE - offset)
      return false;
    for (size_t page = offset / KH_PAGE_SIZE; page * KH_PAGE_SIZE < offset + size; ++page)
      if (!writable_[page]) return false;
    return true;
  }
  // Nothing happens where the page is out of reach.
  void write(size_t offset, const void* from, size_t size) {
    if (!may_write(offset, size)) return;
    std::memcpy(at(offset), from, size);
    oracle_.wrote(at(offset), size);
  }
  template <typename T>
  void put(size_t offset, const T& value) {
    write(offset, &value, sizeof(value));
  }

  // The driver uses this page itself: it may change, and does not go away.
  void give_to_driver(const std::byte* memory) {
    const Extent extent = oracle_.extent(memory, KH_PAGE_SIZE);
    oracle_.allow(extent);
    drivers_.insert(extent.offset / KH_PAGE_SIZE);
  }

  void unmap(size_t page) {
    if (drivers_.contains(page)) return;
    oracle_.hide(page);
    writable_[page] = false;
    host_.unmap(at(page * KH_PAGE_SIZE), KH_PAGE_SIZE);
  }
  void write_protect(size_t page) {
    if (oracle_.hidden(page) || drivers_.contains(page)) return;
    writable_[page] = false;
    host_.write_protect(at(page * KH_PAGE_SIZE), KH_PAGE_SIZE);
  }
  void map_all() {
    host_.map(at(0), size());
    for (size_t page = 0; page < writable_.size(); ++page)
      oracle_.show(page);
    writable_.assign(writable_.size(), true);
  }

  // --- kh_pages, as the contract explains it -------------------------------------------------

  struct Piece {
    uint64_t iova = 0;
    uint64_t size = 0;
  };
  // The pages in order, or nothing when a list cannot be read.
  std::vector<Piece> expand(const kh_pages& pages) const {
    constexpr uint32_t most = 1u << 16;  // more than this memory has, in any list that it can hold
    if (pages.page_shift < KH_PAGE_SHIFT_MIN || pages.page_shift > KH_PAGE_SHIFT_MAX ||
        pages.levels > KH_PAGES_MAX_LEVELS || pages.npages > most)
      return {};
    const uint64_t page = uint64_t{1} << pages.page_shift;
    if (pages.levels == 0) return {{pages.addr, page * pages.npages}};
    std::vector<Piece> pieces;
    for (uint32_t i = 0; i < pages.npages; ++i) {
      uint64_t list = pages.addr;
      for (int level = pages.levels - 1; level >= 0; --level) {
        uint64_t entry = (i >> (9 * level)) % KH_PAGES_PER_LIST;
        if (!read(list + entry * sizeof(uint64_t), list)) return {};
      }
      pieces.push_back({list, page});
    }
    return pieces;
  }
  // Where the bytes [offset, offset + size) of such pages lie in the arena.
  std::vector<Extent> extents(const std::vector<Piece>& pieces, uint64_t offset,
                              uint64_t size) const {
    std::vector<Extent> out;
    for (const Piece& piece : pieces) {
      if (size == 0) break;
      if (offset >= piece.size) {
        offset -= piece.size;
        continue;
      }
      const uint64_t n = std::min(size, piece.size - offset);
      out.push_back({arena_offset(piece.iova + offset), static_cast<size_t>(n)});
      size -= n;
      offset = 0;
    }
    return out;
  }

 private:
  size_t arena_offset(uint64_t iova) const {
    return static_cast<size_t>(iova - host_.iova(host_.arena().data()));
  }
  bool read(uint64_t iova, uint64_t& value) const {
    const size_t offset = arena_offset(iova);
    const size_t last = offset + sizeof(value) - 1;
    if (offset >= size() || last >= size() || oracle_.hidden(offset / KH_PAGE_SIZE) ||
        oracle_.hidden(last / KH_PAGE_SIZE))
      return false;
    std::memcpy(&value, host_.arena().data() + offset, sizeof(value));
    return true;
  }

  test::FakeHost& host_;
  Oracle oracle_;
  std::vector<bool> writable_;  // by the guest and the device
  std::set<size_t> drivers_;    // pages behind first_ that are the driver's
  size_t first_ = 0;
};

}  // namespace keyhole::fuzz
