// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/sge.h"

#include <algorithm>
#include <cstring>

namespace keyhole {
namespace {

// The spans of a segment while they are found.
class Collector {
 public:
  Collector(uint32_t length, uint32_t unit, Spans& spans)
      : limit_(length), unit_(unit), spans_(spans) {}

  bool complete() const { return found_.bytes == limit_; }

  // Takes from the cursor until it is empty or this is complete. False: the memory is not there.
  bool take(MemoryCursor& from) {
    while (from.left() > 0 && found_.bytes < limit_) {
      if (found_.spans == kSpans) [[unlikely]]
        make_room();
      if (found_.bytes >= limit_) return true;
      if (from.indirect() && !packing_) {
        Found more = from.next(&spans_[found_.spans], kSpans - found_.spans, limit_ - found_.bytes);
        if (more.spans == 0) [[unlikely]]
          return false;
        found_.spans += static_cast<uint32_t>(more.spans);
        found_.bytes += static_cast<uint32_t>(more.bytes);
        continue;
      }
      HostSpan span = from.next(limit_ - found_.bytes);
      if (!span) [[unlikely]]
        return false;
      if (packing_) [[unlikely]] {
        std::memcpy(spans_.packed + found_.bytes, span.host, span.size);
      } else {
        spans_[found_.spans++] = span;
      }
      found_.bytes += static_cast<uint32_t>(span.size);
    }
    return true;
  }

  void add(HostSpan span) {
    spans_[found_.spans++] = span;
    found_.bytes += static_cast<uint32_t>(span.size);
  }

  Gathered finish() {
    if (packing_) {
      spans_[0] = {spans_.packed, found_.bytes};
      found_.spans = 1;
    }
    return found_;
  }

 private:
  // There are no spans left. Whole packets go as they are; a single one is put together.
  void make_room() {
    if (packing_) return;
    if (found_.bytes >= unit_) {
      shorten(found_.bytes & (unit_ - 1));
      limit_ = found_.bytes;
      return;
    }
    size_t at = 0;
    for (size_t i = 0; i < kSpans; ++i) {
      std::memcpy(spans_.packed + at, spans_[i].host, spans_[i].size);
      at += spans_[i].size;
    }
    limit_ = std::min(limit_, unit_);
    packing_ = true;
  }

  // Drops bytes from the end.
  void shorten(uint32_t by) {
    found_.bytes -= by;
    while (by > 0) {
      HostSpan& last = spans_[found_.spans - 1];
      if (last.size > by) {
        last.size -= by;
        return;
      }
      by -= static_cast<uint32_t>(last.size);
      --found_.spans;
    }
  }

  Gathered found_;
  uint32_t limit_;
  uint32_t unit_;
  bool packing_ = false;
  Spans& spans_;
};

}  // namespace

bool store_in_entries(MemoryCursor& to, SpanCursor& from, uint64_t length) {
  while (length > 0 && to.left() > 0 && !from.done()) {
    constexpr size_t kAtOnce = 64;
    HostSpan spans[kAtOnce];
    const Found found = to.next(spans, kAtOnce, length);
    if (found.spans == 0) [[unlikely]]
      return false;
    copy_spans({spans, found.spans}, from);
    length -= found.bytes;
  }
  return true;
}

Gathered gather(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, uint32_t unit, Spans& spans) {
  Collector collector(length, unit, spans);
  for (const kh_sge& entry : entries) {
    if (offset >= entry.length) {
      offset -= entry.length;
      continue;
    }
    if (collector.complete()) break;
    auto cursor = mkeys.local(entry.lkey, entry.addr + offset, entry.length - offset, false, who);
    if (!cursor) [[unlikely]]
      return {0, 0, local_protection(cursor.error())};
    offset = 0;
    if (!collector.take(*cursor)) [[unlikely]]
      return {0, 0, local_protection(cursor->why(KH_SYN_LOCAL_KEY))};
  }
  return collector.finish();
}

Gathered gather(MemoryCursor& from, uint32_t length, uint32_t unit, Spans& spans) {
  if (length == 0) return {};
  // Mostly it is one piece.
  HostSpan first = from.next(length);
  if (first && first.size == length) [[likely]] {
    spans[0] = first;
    return {length, 1, {}};
  }
  Collector collector(length, unit, spans);
  if (!first) [[unlikely]]
    return {0, 0, {KH_WC_REM_ACCESS_ERR, from.why(KH_SYN_REMOTE_KEY)}};
  collector.add(first);
  if (!collector.take(from)) [[unlikely]]
    return {0, 0, {KH_WC_REM_ACCESS_ERR, from.why(KH_SYN_REMOTE_KEY)}};
  return collector.finish();
}

Scattered scatter(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                  uint64_t offset, uint32_t length, uint32_t unit, SpanCursor from) {
  const uint64_t limit = walked_entries + kEntriesAtOnce;
  uint32_t done = 0;
  for (const kh_sge& entry : entries) {
    if (done == length) break;
    if (offset >= entry.length) {
      offset -= entry.length;
      continue;
    }
    auto part = static_cast<uint32_t>(std::min<uint64_t>(entry.length - offset, length - done));
    auto cursor = mkeys.local(entry.lkey, entry.addr + offset, part, true, who);
    if (!cursor) [[unlikely]]
      return {done, local_protection(cursor.error())};
    offset = 0;
    while (part > 0) {
      // Of an indirect key one packet at a time.
      const uint32_t step = cursor->indirect() ? std::min(part, unit - (done & (unit - 1))) : part;
      if (!store(*cursor, from, step)) [[unlikely]]
        return {done, local_protection(cursor->why(KH_SYN_LOCAL_KEY))};
      done += step;
      part -= step;
      if (cursor->indirect() && walked_entries >= limit && done < length &&
          (done & (unit - 1)) == 0)
        return {done, {}};
    }
  }
  return {done, {}};
}

}  // namespace keyhole
