// SPDX-License-Identifier: BSD-2-Clause
//
// The small parts: PSN arithmetic, copies between lists of spans.

#include <gtest/gtest.h>

#include <cstring>
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
