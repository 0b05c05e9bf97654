// SPDX-License-Identifier: BSD-2-Clause

#include "oracle.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "input.h"

namespace keyhole::fuzz {

Oracle::Oracle(std::span<std::byte> arena)
    : arena_(arena),
      frozen_(arena.begin(), arena.end()),
      reasons_(arena.size()),
      open_(arena.size() / page),
      hidden_(arena.size() / page) {}

Extent Oracle::clip(Extent extent) const {
  if (extent.offset >= arena_.size()) return {0, 0};
  return {extent.offset, std::min(extent.size, arena_.size() - extent.offset)};
}

void Oracle::allow(Extent wanted) {
  Extent extent = clip(wanted);
  for (size_t i = extent.offset; i < extent.offset + extent.size; ++i)
    if (reasons_[i]++ == 0) ++open_[i / page];
}

void Oracle::forbid(Extent wanted) {
  Extent extent = clip(wanted);
  for (size_t i = extent.offset; i < extent.offset + extent.size; ++i) {
    if (--reasons_[i] > 0) continue;
    --open_[i / page];
    if (!hidden_[i / page]) frozen_[i] = arena_[i];
  }
}

void Oracle::allow(std::span<const Extent> extents) {
  for (const Extent& extent : extents)
    allow(extent);
}

void Oracle::forbid(std::span<const Extent> extents) {
  for (const Extent& extent : extents)
    forbid(extent);
}

void Oracle::wrote(const void* at, size_t size) {
  Extent where = clip(extent(at, size));
  std::memcpy(frozen_.data() + where.offset, arena_.data() + where.offset, where.size);
}

// What its bytes are now they will be when it comes back, those that may be written too.
void Oracle::hide(size_t index) {
  if (hidden_[index]) return;
  check_page(index);
  std::memcpy(&frozen_[index * page], &arena_[index * page], page);
  hidden_[index] = true;
}

void Oracle::check() const {
  for (size_t index = 0; index < open_.size(); ++index)
    check_page(index);
}

void Oracle::check_page(size_t index) const {
  const size_t first = index * page;
  if (hidden_[index] || open_[index] == page) return;
  if (std::memcmp(&arena_[first], &frozen_[first], page) == 0) return;
  for (size_t i = first; i < first + page; ++i) {
    if (i % 64 == 0 && std::memcmp(&arena_[i], &frozen_[i], 64) == 0) {
      i += 63;
      continue;
    }
    if (reasons_[i] > 0 || arena_[i] == frozen_[i]) continue;
    std::fprintf(stderr, "guest memory at %#zx (page %zu) is %#x and was %#x\n", i, index,
                 std::to_integer<unsigned>(arena_[i]), std::to_integer<unsigned>(frozen_[i]));
    fail("the device wrote where nothing allows it");
  }
}

}  // namespace keyhole::fuzz
