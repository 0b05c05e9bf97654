// SPDX-License-Identifier: BSD-2-Clause
//
// The small parts: PSN arithmetic, copies between lists of spans.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "hca/transport/copy.h"
#include "hca/transport/psn.h"

namespace keyhole {
namespace {

TEST(Psn, OneIsAheadOfAnotherWhenItIsLessThanHalfTheSpaceAway) {
  EXPECT_EQ(psn_diff(10, 5), 5);
  EXPECT_EQ(psn_diff(5, 10), -5);
  EXPECT_EQ(psn_diff(2, 0xfffffe), 4);
  EXPECT_EQ(psn_diff(0xfffffe, 2), -4);
  EXPECT_EQ(psn_add(0xffffff, 2), 1u);
  EXPECT_EQ(psn_distance(0xffffff, 1), 2u);
}

TEST(Psn, AMessageOfNoBytesIsOnePacket) {
  EXPECT_EQ(packets(0, 10), 1u);
  EXPECT_EQ(packets(1, 10), 1u);
  EXPECT_EQ(packets(1024, 10), 1u);
  EXPECT_EQ(packets(1025, 10), 2u);
  EXPECT_EQ(packets(0x80000000u, 8), 1u << 23);
}

TEST(Copy, CutsAndJoinsSpansOfAnySize) {
  std::vector<std::byte> from(1000), to(1000);
  for (size_t i = 0; i < from.size(); ++i)
    from[i] = std::byte(i * 7);
  for (size_t cut : {size_t{1}, size_t{3}, size_t{8}, size_t{9}, size_t{64}, size_t{999}}) {
    std::fill(to.begin(), to.end(), std::byte{0});
    std::vector<HostSpan> sources, targets;
    for (size_t at = 0; at < 1000; at += cut)
      sources.push_back({from.data() + at, std::min(cut, 1000 - at)});
    sources.insert(sources.begin() + 1, HostSpan{from.data(), 0});
    for (size_t at = 0; at < 1000; at += 17)
      targets.push_back({to.data() + at, std::min<size_t>(17, 1000 - at)});
    SpanCursor cursor(sources);
    EXPECT_EQ(copy_spans(targets, cursor), 1000u);
    EXPECT_EQ(from, to);
  }
}

// Pieces long enough to be copied with an eye on the next, on either side, in order and not.
TEST(Copy, CopiesLongPiecesFromAndToAnywhere) {
  std::mt19937 random(7);
  constexpr size_t kSize = size_t{1} << 16;
  std::vector<std::byte> from(kSize), to(kSize);
  for (size_t i = 0; i < kSize; ++i)
    from[i] = std::byte(random());
  // All of a buffer, in pieces of about `piece` bytes, shuffled if wanted.
  auto cut = [&](std::vector<std::byte>& buffer, size_t piece, bool shuffled) {
    std::vector<HostSpan> spans;
    for (size_t at = 0; at < kSize;) {
      const size_t size = std::min(kSize - at, piece + random() % 300);
      spans.push_back({buffer.data() + at, size});
      at += size;
    }
    if (shuffled) std::shuffle(spans.begin(), spans.end(), random);
    return spans;
  };
  auto bytes = [](std::span<const HostSpan> spans) {
    std::vector<std::byte> all;
    for (const HostSpan& span : spans)
      all.insert(all.end(), span.host, span.host + span.size);
    return all;
  };
  for (size_t source_piece : {100, 512, 1000, 4096, 20000}) {
    for (size_t target_piece : {100, 512, 1000, 4096, 20000}) {
      for (int shuffled = 0; shuffled < 4; ++shuffled) {
        std::fill(to.begin(), to.end(), std::byte{0});
        const auto sources = cut(from, source_piece, shuffled & 1);
        const auto targets = cut(to, target_piece, shuffled & 2);
        SpanCursor cursor(sources);
        EXPECT_EQ(copy_spans(targets, cursor), kSize);
        EXPECT_EQ(bytes(sources), bytes(targets)) << source_piece << " " << target_piece;
      }
    }
  }
}

TEST(Copy, LooksAheadWithoutChangingWhatIsAhead) {
  for (size_t size : {512, 513, 639, 640, 4096, 4097}) {
    for (size_t ahead : {size_t{1}, size_t{255}, size_t{256}, size_t{300}, size}) {
      for (size_t shift : {0, 1, 16, 48, 63}) {
        std::vector<std::byte> from(size + shift), to(size + 2 * 64);
        std::vector<std::byte> next(ahead, std::byte{3}), expected(ahead, std::byte{3});
        for (size_t i = 0; i < from.size(); ++i)
          from[i] = std::byte(i * 11 + i / 256);
        const HostSpan some{next.data(), next.size()};
        for (int which = 0; which < 4; ++which) {
          std::fill(to.begin(), to.end(), std::byte{7});
          copy_ahead(to.data() + 64 - shift, from.data() + shift, size,
                     which & 1 ? some : HostSpan{}, which & 2 ? some : HostSpan{});
          const auto begin = to.begin() + static_cast<std::ptrdiff_t>(64 - shift);
          EXPECT_TRUE(
              std::equal(from.begin() + static_cast<std::ptrdiff_t>(shift), from.end(), begin))
              << size << " " << ahead << " " << shift;
          // Nothing before it and nothing behind.
          EXPECT_EQ(std::count(to.begin(), begin, std::byte{7}), begin - to.begin());
          EXPECT_EQ(std::count(begin + static_cast<std::ptrdiff_t>(size), to.end(), std::byte{7}),
                    to.end() - begin - static_cast<std::ptrdiff_t>(size));
          EXPECT_EQ(next, expected);
        }
      }
    }
  }
}

TEST(Copy, OverlappingPiecesAreCopiedAsIfThroughABufferToo) {
  constexpr size_t kSize = 4096;
  for (int shift : {-4095, -100, -1, 0, 1, 100, 4095}) {
    std::vector<std::byte> memory(3 * kSize), next(kSize);
    for (size_t i = 0; i < memory.size(); ++i)
      memory[i] = std::byte(i * 13 + i / 256);
    std::byte* const from = memory.data() + kSize;
    const std::vector<std::byte> expected(from, from + kSize);
    const HostSpan some{next.data(), next.size()};
    copy_ahead(from + shift, from, kSize, some, some);
    EXPECT_EQ(std::memcmp(from + shift, expected.data(), kSize), 0) << shift;
  }
}

TEST(Copy, OverlappingRangesAreCopiedAsIfThroughABuffer) {
  for (size_t size : {size_t{4}, size_t{9}, size_t{100}, size_t{5000}}) {
    for (int shift : {-5, -1, 1, 5}) {
      std::vector<std::byte> memory(size + 20), expected;
      for (size_t i = 0; i < memory.size(); ++i)
        memory[i] = std::byte(i * 13);
      const auto first = memory.begin() + 10;
      expected.assign(first, first + static_cast<std::ptrdiff_t>(size));
      copy_bytes(memory.data() + 10 + shift, memory.data() + 10, size);
      EXPECT_EQ(std::memcmp(memory.data() + 10 + shift, expected.data(), size), 0);
    }
  }
}

}  // namespace
}  // namespace keyhole
