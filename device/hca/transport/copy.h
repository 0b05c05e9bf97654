// SPDX-License-Identifier: BSD-2-Clause
//
// Copies between lists of spans: the one copy that a message costs.
//
// Guests may aim a transfer at its own source, so the ranges may overlap and memmove is the only
// choice; what then lies there is the guest's affair.
//
// The last bytes are written last. Programs that wait for an RDMA WRITE look at its final byte; no
// rule promises them anything, every adapter that they ran on kept it, and it costs one store.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "hca/transport/segment.h"

namespace keyhole {

inline void copy_bytes(std::byte* to, const std::byte* from, size_t size) {
  if (size <= 8) {
    std::memmove(to, from, size);
    return;
  }
  // The tail is read first: if the ranges overlap, the copy may change it.
  uint64_t tail = 0;
  std::memcpy(&tail, from + size - 8, 8);
  std::memmove(to, from, size - 8);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to + size - 8, &tail, 8);
}

// Pieces of at least this many bytes are copied with an eye on what comes after them.
inline constexpr size_t kPieceAhead = 512;

// Copies `size` bytes and meanwhile brings what is at `next_from`, to be read, and at `next_to`, to
// be written, into the cache; either may be null. The processor's own prefetching follows a stream
// to the end of its page and no further, so what lies in scattered pages it has to wait for at each
// one's beginning.
void copy_ahead(std::byte* to, const std::byte* from, size_t size, HostSpan next_to,
                HostSpan next_from);

// Of what comes next, that to bring into the cache: few bytes are soon over.
inline HostSpan worth_asking_for(HostSpan next, HostSpan after) {
  return next.size < kPieceAhead && after.size > next.size ? after : next;
}

// A place in a list of spans.
class SpanCursor {
 public:
  explicit SpanCursor(std::span<const HostSpan> spans) : next_(spans.begin()), end_(spans.end()) {
    settle();
  }

  bool done() const { return left_.size == 0; }
  std::byte* data() const { return left_.host; }
  size_t size() const { return left_.size; }
  // What to bring into the cache before it is here.
  HostSpan ahead() const { return worth_asking_for(left_, next_ != end_ ? *next_ : HostSpan{}); }

  void advance(size_t n) {
    left_.host += n;
    left_.size -= n;
    if (left_.size == 0) settle();
  }
  void skip(size_t n) {
    while (n > 0 && !done()) {
      size_t step = std::min<uint64_t>(n, left_.size);
      advance(step);
      n -= step;
    }
  }

 private:
  void settle() {
    left_ = {};
    while (next_ != end_ && left_.size == 0)
      left_ = *next_++;
    // Of a short piece all is read before the next one can be asked for line by line.
    if (next_ != end_ && left_.size < kPieceAhead) {
      for (size_t line = 0; line < 4; ++line)
        __builtin_prefetch(next_->host + 64 * line);
    }
  }

  std::span<const HostSpan>::iterator next_;
  std::span<const HostSpan>::iterator end_;
  HostSpan left_{};
};

// Copies until one of the two ends; returns the bytes copied. Only of the last piece the last bytes
// are written last.
inline size_t copy_spans(std::span<const HostSpan> to, SpanCursor& from) {
  size_t total = 0;
  for (size_t i = 0; i < to.size() && !from.done(); ++i) {
    const HostSpan& span = to[i];
    size_t done = 0;
    while (done < span.size && !from.done()) {
      const size_t step = std::min<uint64_t>(span.size - done, from.size());
      std::byte* target = span.host + done;
      const std::byte* source = from.data();
      from.advance(step);
      done += step;
      const bool full = done == span.size;
      if (from.done() || (full && i + 1 == to.size())) {
        copy_bytes(target, source, step);
      } else if (step < kPieceAhead) {
        std::memmove(target, source, step);
      } else {
        HostSpan next_to{target + step, span.size - done};
        if (full) next_to = worth_asking_for(to[i + 1], i + 2 < to.size() ? to[i + 2] : HostSpan{});
        HostSpan next_from = from.ahead();
        // What goes on where it is the processor sees by itself, and is better not disturbed.
        if (next_to.host == target + step) next_to = {};
        if (next_from.host == source + step) next_from = {};
        copy_ahead(target, source, step, next_to, next_from);
      }
    }
    total += done;
  }
  return total;
}

}  // namespace keyhole
