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

std::optional<uint32_t> store_in_pieces(MemoryCursor& to, HostSpan first, SpanCursor& from,
                                        uint32_t length, const StoreLimit& limit) {
  // Many at once: who copies one wants to know the next.
  constexpr size_t kAtOnce = 64;
  HostSpan spans[kAtOnce];
  uint32_t done = 0;
  while (done < length) {
    Found found{0, 0};
    if (to.indirect()) {
      uint32_t most = length - done;
      if (limit.over()) {
        most = std::min(most, limit.rest_of_unit(done));
        if (most == 0) break;
      }
      found = to.next(spans, kAtOnce, most);
    } else {
      if (first) {
        spans[found.spans++] = first;
        found.bytes = first.size;
        first = {};
      }
      while (found.spans < kAtOnce && found.bytes < length - done) {
        spans[found.spans] = to.next(length - done - found.bytes);
        if (!spans[found.spans]) [[unlikely]]
          break;
        found.bytes += spans[found.spans++].size;
      }
    }
    if (found.spans == 0) [[unlikely]]
      return std::nullopt;
    copy_spans({spans, found.spans}, from);
    done += static_cast<uint32_t>(found.bytes);
  }
  return done;
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
  StoreLimit limit = StoreLimit::from_now(unit);
  for (const kh_sge& entry : entries) {
    const uint32_t done = limit.before;
    if (done == length) break;
    if (offset >= entry.length) {
      offset -= entry.length;
      continue;
    }
    const auto part =
        static_cast<uint32_t>(std::min<uint64_t>(entry.length - offset, length - done));
    auto cursor = mkeys.local(entry.lkey, entry.addr + offset, part, true, who);
    if (!cursor) [[unlikely]]
      return {done, local_protection(cursor.error())};
    offset = 0;
    const auto stored = store(*cursor, from, part, limit);
    if (!stored) [[unlikely]]
      return {done, local_protection(cursor->why(KH_SYN_LOCAL_KEY))};
    limit.before += *stored;
    if (*stored < part) break;
  }
  return {limit.before, {}};
}

}  // namespace keyhole
