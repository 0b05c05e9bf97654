// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/sge.h"

#include <algorithm>

namespace keyhole {
namespace {

constexpr uint32_t kMemoryGone = KH_SYN_LOCAL_KEY | KH_SYN_KEY_MEMORY;

// Drops bytes from the end.
void shorten(Gathered& found, uint32_t by, std::span<HostSpan> spans) {
  found.bytes -= by;
  while (by > 0) {
    HostSpan& last = spans[found.spans - 1];
    if (last.size > by) {
      last.size -= by;
      return;
    }
    by -= static_cast<uint32_t>(last.size);
    --found.spans;
  }
}

}  // namespace

Gathered gather(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, uint32_t unit, std::span<HostSpan> spans) {
  Gathered found;
  for (const kh_sge& entry : entries) {
    if (offset >= entry.length) {
      offset -= entry.length;
      continue;
    }
    if (found.bytes == length) return found;
    auto cursor = mkeys.local(entry.lkey, entry.addr + offset, entry.length - offset, false, who);
    if (!cursor) [[unlikely]]
      return {0, 0, local_protection(cursor.error())};
    offset = 0;
    while (cursor->left() > 0 && found.bytes < length) {
      if (found.spans == spans.size()) [[unlikely]] {
        shorten(found, found.bytes & (unit - 1), spans);
        return found;
      }
      HostSpan span = cursor->next(length - found.bytes);
      if (!span) [[unlikely]]
        return {0, 0, local_protection(kMemoryGone)};
      spans[found.spans++] = span;
      found.bytes += static_cast<uint32_t>(span.size);
    }
  }
  return found;
}

Verdict scatter(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, SpanCursor from) {
  for (const kh_sge& entry : entries) {
    if (length == 0) break;
    if (offset >= entry.length) {
      offset -= entry.length;
      continue;
    }
    auto part = static_cast<uint32_t>(std::min<uint64_t>(entry.length - offset, length));
    auto cursor = mkeys.local(entry.lkey, entry.addr + offset, part, true, who);
    if (!cursor) [[unlikely]]
      return local_protection(cursor.error());
    if (!store(*cursor, from, part)) [[unlikely]]
      return local_protection(kMemoryGone);
    offset = 0;
    length -= part;
  }
  return {};
}

}  // namespace keyhole
