// SPDX-License-Identifier: BSD-2-Clause

#include "hca/transport/copy.h"

#include <functional>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace keyhole {
namespace {

#ifdef __x86_64__

// What is copied in a round: two lines, and so much is prefetched in one.
constexpr size_t kRound = 128;
// What is worth it.
constexpr size_t kLeast = 256;
static_assert(kLeast <= kPieceAhead);

void copy_16(std::byte* to, const std::byte* from) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// At least kLeast bytes. Of a page's time a store across two lines is a noticeable part, and one
// across two pages more so: lines are written whole, and what is before the first and behind the
// last of them by 16 bytes at a time, as memory is mostly aligned to them.
template <bool kTo, bool kFrom>
[[gnu::target("avx2,prfchw")]] void copy_rounds(std::byte* to, const std::byte* from, size_t size,
                                                std::byte* next_to, const std::byte* next_from) {
  size_t at = 0;
  const size_t first_line = -reinterpret_cast<uintptr_t>(to) & 63;
  if (first_line & 15) {
    copy_16(to, from);
    at = first_line & 15;
  }
  for (; at < first_line; at += 16)
    copy_16(to + at, from + at);
  const size_t end = at + ((size - at) & ~(kRound - 1));
  for (; at < end; at += kRound) {
    const auto* source = reinterpret_cast<const __m256i_u*>(from + at);
    auto* target = reinterpret_cast<__m256i_u*>(to + at);
    const __m256i a = _mm256_loadu_si256(source);
    const __m256i b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2);
    const __m256i d = _mm256_loadu_si256(source + 3);
    if constexpr (kFrom) {
      __builtin_prefetch(next_from + at);
      __builtin_prefetch(next_from + at + 64);
    }
    if constexpr (kTo) {
      __builtin_prefetch(next_to + at, 1);
      __builtin_prefetch(next_to + at + 64, 1);
    }
    _mm256_storeu_si256(target, a);
    _mm256_storeu_si256(target + 1, b);
    _mm256_storeu_si256(target + 2, c);
    _mm256_storeu_si256(target + 3, d);
  }
  for (; at + 16 <= size; at += 16)
    copy_16(to + at, from + at);
  if (at < size) copy_16(to + size - 16, from + size - 16);
}

const bool has_avx2 = __builtin_cpu_supports("avx2");

bool overlap(const std::byte* a, const std::byte* b, size_t size) {
  const std::less<> less;
  return less(a, b + size) && less(b, a + size);
}

// The bytes that it has copied.
size_t copy_prefetching(std::byte* to, const std::byte* from, size_t size, std::byte* next_to,
                        const std::byte* next_from) {
  if (!has_avx2 || size < kLeast || (!next_to && !next_from) || overlap(to, from, size)) return 0;
  if (next_to && next_from)
    copy_rounds<true, true>(to, from, size, next_to, next_from);
  else if (next_to)
    copy_rounds<true, false>(to, from, size, next_to, next_from);
  else
    copy_rounds<false, true>(to, from, size, next_to, next_from);
  return size;
}

#else

size_t copy_prefetching(std::byte*, const std::byte*, size_t, std::byte*, const std::byte*) {
  return 0;
}

#endif

}  // namespace

void copy_ahead(std::byte* to, const std::byte* from, size_t size, HostSpan next_to,
                HostSpan next_from) {
  size_t ahead = size;
  for (const HostSpan& next : {next_to, next_from})
    if (next) ahead = std::min<uint64_t>(ahead, next.size);
  const size_t done = copy_prefetching(to, from, ahead, next_to.host, next_from.host);
  std::memmove(to + done, from + done, size - done);
}

}  // namespace keyhole
