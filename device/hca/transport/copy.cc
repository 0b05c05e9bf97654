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

template <bool kTo, bool kFrom>
[[gnu::target("avx2,prfchw")]] void copy_rounds(std::byte* to, const std::byte* from, size_t size,
                                                std::byte* next_to, const std::byte* next_from) {
  for (size_t at = 0; at < size; at += kRound) {
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
}

const bool has_avx2 = __builtin_cpu_supports("avx2");

bool overlap(const std::byte* a, const std::byte* b, size_t size) {
  const std::less<> less;
  return less(a, b + size) && less(b, a + size);
}

// The bytes that it has copied.
size_t copy_prefetching(std::byte* to, const std::byte* from, size_t size, std::byte* next_to,
                        const std::byte* next_from) {
  if (!has_avx2 || (!next_to && !next_from) || overlap(to, from, size)) return 0;
  size &= ~(kRound - 1);
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

void copy_ahead(std::byte* to, const std::byte* from, size_t size, std::byte* next_to,
                const std::byte* next_from, size_t ahead) {
  const size_t done = copy_prefetching(to, from, std::min(size, ahead), next_to, next_from);
  std::memmove(to + done, from + done, size - done);
}

}  // namespace keyhole
