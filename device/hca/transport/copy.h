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

// A place in a list of spans.
class SpanCursor {
 public:
  explicit SpanCursor(std::span<const HostSpan> spans) : next_(spans.begin()), end_(spans.end()) {
    settle();
  }

  bool done() const { return left_.size == 0; }
  std::byte* data() const { return left_.host; }
  size_t size() const { return left_.size; }

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
    // Lists of pages: the processor does not see by itself where the next one is.
    if (next_ != end_) {
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
  for (const HostSpan& span : to) {
    size_t done = 0;
    while (done < span.size && !from.done()) {
      size_t step = std::min<uint64_t>(span.size - done, from.size());
      const std::byte* source = from.data();
      from.advance(step);
      if (from.done() || (done + step == span.size && &span == &to.back()))
        copy_bytes(span.host + done, source, step);
      else
        std::memmove(span.host + done, source, step);
      done += step;
    }
    total += done;
    if (from.done()) break;
  }
  return total;
}

}  // namespace keyhole
