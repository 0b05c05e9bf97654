// SPDX-License-Identifier: BSD-2-Clause
//
// The tables between the two worlds, every bit and every number of them. What is expected is written
// down in numbers: the names on both sides are what the tables themselves use.

#include "tables.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace {

using namespace keyhole::exp;

constexpr uint64_t e(int bit) { return uint64_t{1} << (32 + bit); }  // the experimental half


struct BitCase {
  const char* table;
  std::function<std::expected<uint64_t, int>(uint64_t)> map;
  std::map<uint64_t, std::expected<uint64_t, int>> rows;  // all others are EINVAL
};

const std::expected<uint64_t, int> lacking = std::unexpected(ENOSYS);

const BitCase kBitCases[] = {
    {"access of regions",
     [](uint64_t bits) { return map_bits(kRegionAccess, bits); },
     {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {e(5), 0}, {e(14), 64}, {e(15), 0},
      {e(6), lacking}, {e(7), lacking}, {e(8), lacking}, {e(9), lacking}, {e(10), lacking},
      {e(11), lacking}, {e(12), lacking}, {e(16), lacking}, {e(17), lacking}}},
    {"access of mkeys",
     [](uint64_t bits) { return map_bits(kMkeyAccess, bits); },
     {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {e(5), lacking}, {e(14), lacking},
      {e(6), lacking}, {e(7), lacking}, {e(8), lacking}, {e(9), lacking}, {e(10), lacking},
      {e(11), lacking}}},
    {"access of windows",
     [](uint64_t bits) { return map_bits(kWindowAccess, bits); },
     {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {e(13), 32}}},
    {"send flags",
     [](uint64_t bits) { return map_bits(kSendFlags, bits); },
     {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {e(0), 16}, {e(1), lacking}, {e(2), lacking}, {e(3), 0}}},
    {"QP creation flags",
     [](uint64_t bits) { return map_bits(kQpCreateFlags, bits); },
     {{1 << 2, lacking}, {1 << 3, lacking}, {1 << 4, lacking}, {1 << 6, lacking},
      {1 << 7, lacking}, {1 << 8, lacking}, {1 << 9, 0}, {1 << 10, lacking}, {1 << 11, 1 << 11},
      {1 << 12, 1 << 8}, {1 << 13, lacking}, {1 << 16, lacking}}},
    {"QP attributes",
     [](uint64_t bits) { return map_bits(kQpAttributes, bits); },
     {{1 << 0, 1 << 0}, {1 << 1, 1 << 1}, {1 << 2, 1 << 2}, {1 << 3, 1 << 3}, {1 << 4, 1 << 4},
      {1 << 5, 1 << 5}, {1 << 6, 1 << 6}, {1 << 7, 1 << 7}, {1 << 8, 1 << 8}, {1 << 9, 1 << 9},
      {1 << 10, 1 << 10}, {1 << 11, 1 << 11}, {1 << 12, 1 << 12}, {1 << 13, 1 << 13},
      {1 << 14, 1 << 14}, {1 << 15, 1 << 15}, {1 << 16, 1 << 16}, {1 << 17, 1 << 17},
      {1 << 18, 1 << 18}, {1 << 19, 1 << 19}, {1 << 20, 1 << 20}, {e(25), 1 << 25},
      {e(21), lacking}, {e(22), lacking}, {e(23), lacking}, {e(24), lacking}}},
};

TEST(Tables, EachOfThe64BitsOfAMaskIsMappedLackingOrRefused) {
  for (const BitCase& the : kBitCases) {
    for (int i = 0; i < 64; ++i) {
      const uint64_t bit = uint64_t{1} << i;
      const auto row = the.rows.find(bit);
      const std::expected<uint64_t, int> want =
          row == the.rows.end() ? std::expected<uint64_t, int>(std::unexpected(EINVAL)) : row->second;
      const auto got = the.map(bit);
      ASSERT_EQ(got.has_value(), want.has_value()) << the.table << ", bit " << i;
      if (want)
        EXPECT_EQ(*got, *want) << the.table << ", bit " << i;
      else
        EXPECT_EQ(got.error(), want.error()) << the.table << ", bit " << i;
    }
  }
}

TEST(Tables, AllServedBitsTogetherAreMappedTogether) {
  for (const BitCase& the : kBitCases) {
    uint64_t from = 0, to = 0;
    for (const auto& [bit, row] : the.rows)
      if (row) {
        from |= bit;
        to |= *row;
      }
    const auto got = the.map(from);
    ASSERT_TRUE(got.has_value()) << the.table;
    EXPECT_EQ(*got, to) << the.table;
  }
}

TEST(Tables, AnUnknownBitBesideALackingOneIsRefusedAsUnknown) {
  EXPECT_EQ(map_bits(kRegionAccess, IBV_EXP_ACCESS_PHYSICAL_ADDR | e(30)).error(), EINVAL);
}

TEST(Tables, EverySendOpcodeIsMappedAndNoOther) {
  struct Row {
    int from;
    Way way;
    int to;
  };
  const Row rows[] = {
      {0, Way::kStandard, 0},     {1, Way::kStandard, 1},     {2, Way::kStandard, 2},
      {3, Way::kStandard, 3},     {4, Way::kStandard, 4},     {5, Way::kStandard, 5},
      {6, Way::kStandard, 6},     {7, Way::kStandard, 7},     {8, Way::kStandard, 8},
      {9, Way::kStandard, 9},     {0x4f, Way::kStandard, 10}, {0x60, Way::kNotServed, 0},
      {0x61, Way::kNotServed, 0}, {0x62, Way::kNotServed, 0}, {0x63, Way::kKeyhole, 2},
      {0x64, Way::kKeyhole, 3},   {0x65, Way::kKeyhole, 4},   {0x66, Way::kKeyhole, 0},
      {0x67, Way::kKeyhole, 1},
  };
  for (int number = -1; number < 0x200; ++number) {
    const Row* want = nullptr;
    for (const Row& row : rows)
      if (row.from == number) want = &row;
    const SendOpcode* got = send_opcode(static_cast<uint32_t>(number));
    ASSERT_EQ(got != nullptr, want != nullptr) << number;
    if (!want) continue;
    EXPECT_EQ(got->way, want->way) << number;
    EXPECT_EQ(got->to, want->to) << number;
  }
}

TEST(Tables, EveryCompletionOpcodeIsMapped) {
  const std::map<int, int> rows = {
      {0, 0},     {1, 1},     {2, 2},     {3, 3},     {4, 4},      {5, 5},      {6, 6},
      {7, 11},    {128, 128}, {129, 129}, {130, 192}, {131, 193},  {132, 194},  {133, 195},
      {134, 196}, {135, 256}, {136, 9},   {137, 10},  {0x7f, 0},
  };
  for (int number = 0; number < 0x200; ++number) {
    const auto row = rows.find(number);
    EXPECT_EQ(wc_opcode(number), row == rows.end() ? 0 : row->second) << number;
  }
}

TEST(Tables, NoCompletionOfASendLooksLikeAReceive) {
  for (int number = 0; number < 0x200; ++number) {
    const bool receive = number >= 128 && number <= 134;
    EXPECT_EQ((wc_opcode(number) & IBV_EXP_WC_RECV) != 0, receive) << number;
  }
}

TEST(Tables, EveryStatusIsItselfAndLaterOnesAreGeneral) {
  for (int number = 0; number < 24; ++number)
    EXPECT_EQ(wc_status(static_cast<ibv_wc_status>(number)), number);
  for (int number = 24; number < 256; ++number)
    EXPECT_EQ(wc_status(static_cast<ibv_wc_status>(number)), IBV_WC_GENERAL_ERR);
}

TEST(Tables, EveryCompletionFlagIsReportedAndNoOther) {
  const std::map<uint64_t, uint64_t> rows = {
      {1, 1}, {2, 2}, {4, e(10) | e(11)}, {8, 8}, {16, e(19)}, {32, e(21)}, {64, e(22)}};
  for (int i = 0; i < 32; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    const auto row = rows.find(bit);
    EXPECT_EQ(report_bits(kWcFlags, bit), row == rows.end() ? 0 : row->second) << i;
  }
}

TEST(Tables, DeviceFlagsOfBothHalvesAreReported) {
  std::map<uint64_t, uint64_t> rows;
  for (int bit = 0; bit <= 14; ++bit)  // RESIZE_MAX_WR to N_NOTIFY_CQ
    rows[uint64_t{1} << bit] = uint64_t{1} << bit;
  rows[uint64_t{1} << 17] = e(17);
  rows[uint64_t{1} << 20] = uint64_t{1} << 20;
  rows[uint64_t{1} << 21] = e(21);
  rows[uint64_t{1} << 23] = e(23);
  rows[uint64_t{1} << 24] = e(24);
  rows[uint64_t{1} << 26] = e(11) | e(12);
  rows[uint64_t{1} << 34] = e(16);
  for (int i = 0; i < 64; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    const auto row = rows.find(bit);
    EXPECT_EQ(report_bits(kDeviceFlags, bit), row == rows.end() ? 0 : row->second) << i;
  }
}

TEST(Tables, BitsOfOnDemandPagingAreReported) {
  for (int i = 0; i < 32; ++i) {
    const uint64_t bit = uint64_t{1} << i;
    EXPECT_EQ(report_bits(kOdpGeneral, bit), i < 2 ? bit : 0) << i;
    EXPECT_EQ(report_bits(kOdpTransport, bit), i < 6 ? bit : 0) << i;
  }
}

TEST(Tables, AtomicCapabilitiesAreReported) {
  EXPECT_EQ(atomic_cap(IBV_ATOMIC_NONE), 0);
  EXPECT_EQ(atomic_cap(IBV_ATOMIC_HCA), 1);
  EXPECT_EQ(atomic_cap(IBV_ATOMIC_GLOB), 2);
}

}  // namespace
