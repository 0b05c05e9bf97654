// SPDX-License-Identifier: BSD-2-Clause
//
// What tests of indirect keys say again and again: fills by list of pieces, and the bytes that such
// a list names, computed without the device.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "two_ends.h"

namespace keyhole::test {

// Offset in the end's region, and bytes.
using Piece = std::pair<uint32_t, uint32_t>;

constexpr uint32_t kAllRights = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE;

class UmrTest : public TransportTest {
 protected:
  UmrTest() { make_pair(); }

  void make_pair_again() { make_pair(); }
  // c and d: a UC pair on the PDs of a and b.
  void use_unreliable_pair() {
    EndOptions options;
    options.type = KH_QPT_UC;
    options.pdn = a.pdn;
    c = make_end(0, options);
    options.pdn = b.pdn;
    d = make_end(1, options);
    connect(c, d);
  }

  static std::vector<std::byte> klms(const std::vector<kh_klm>& entries) {
    const auto* bytes = reinterpret_cast<const std::byte*>(entries.data());
    return {bytes, bytes + entries.size() * sizeof(kh_klm)};
  }
  static Work fill_of(uint32_t key, size_t entries) {
    Work work;
    work.opcode = KH_OP_UMR_FILL;
    work.wr_id = 1;
    work.umr.key = key;
    work.umr.access = kAllRights;
    work.umr.num_entries = static_cast<uint32_t>(entries);
    return work;
  }
  static Work fill_work(uint32_t key, const std::vector<kh_klm>& entries,
                        uint32_t access = kAllRights, uint64_t start = 0) {
    Work work = fill_of(key, entries.size());
    work.flags |= KH_WQE_INLINE;
    work.umr.access = access;
    work.umr.start = start;
    work.inline_data = klms(entries);
    return work;
  }
  static Work strided_work(uint32_t key, const std::vector<kh_stride>& entries, uint32_t rounds) {
    Work work = fill_of(key, entries.size());
    work.flags |= KH_WQE_INLINE;
    work.umr.repeat_count = rounds;
    const auto* bytes = reinterpret_cast<const std::byte*>(entries.data());
    work.inline_data.assign(bytes, bytes + entries.size() * sizeof(kh_stride));
    return work;
  }
  static Work list_work(uint32_t key, uint32_t list, uint32_t entries) {
    Work work = fill_of(key, entries);
    work.flags = KH_WQE_SIGNALED;
    work.umr.list_key = list;
    return work;
  }
  static kh_klm& second(Work& work) {
    return reinterpret_cast<kh_klm*>(work.inline_data.data())[1];
  }
  static kh_stride entry(const End& end, uint64_t offset, uint32_t length, uint64_t stride) {
    return {end.region.start + offset, length, end.region.key, stride};
  }

  void fill(End& end, uint32_t key, const std::vector<kh_klm>& entries,
            uint32_t access = kAllRights, uint64_t start = 0) {
    end.post(fill_work(key, entries, access, start));
    EXPECT_DONE(sent(end), 1);
  }
  void fill_strided(End& end, uint32_t key, const std::vector<kh_stride>& entries,
                    uint32_t rounds) {
    end.post(strided_work(key, entries, rounds));
    EXPECT_DONE(sent(end), 1);
  }
  static std::vector<kh_klm> entries_of(const End& end, const std::vector<Piece>& pieces) {
    std::vector<kh_klm> entries;
    for (auto [offset, length] : pieces)
      entries.push_back({end.region.start + offset, length, end.region.key});
    return entries;
  }
  // A new key with these pieces, addressed from 0.
  uint32_t filled(End& end, const std::vector<Piece>& pieces) {
    uint32_t key = end.driver->create_indirect(end.pdn, 64);
    fill(end, key, entries_of(end, pieces));
    return key;
  }
  void fill_from_list(End& end, uint32_t key, const std::vector<Piece>& pieces) {
    const size_t bytes = (pieces.size() * sizeof(kh_klm) + 4095) / 4096 * 4096;
    std::byte* list = end.host->allocate(bytes);
    auto entries = entries_of(end, pieces);
    std::memcpy(list, entries.data(), entries.size() * sizeof(kh_klm));
    uint32_t list_key = end.driver->create_klm_list(end.pdn, list, bytes);
    End& filler = end.qp.type == KH_QPT_RC ? end : a;
    filler.post(list_work(key, list_key, static_cast<uint32_t>(pieces.size())));
    EXPECT_DONE(sent(filler), 1);
  }

  static uint32_t size_of(const std::vector<Piece>& pieces) {
    uint32_t size = 0;
    for (auto [offset, length] : pieces)
      size += length;
    return size;
  }
  static void fill_region(const End& end, uint8_t seed) {
    for (size_t i = 0; i < end.region.size; ++i)
      end.region.memory[i] = static_cast<std::byte>(i * 37 + (i >> 8) * 101 + seed);
  }
  static std::vector<std::byte> taken(const End& end, uint64_t offset, uint32_t length) {
    return {end.bytes(offset), end.bytes(offset) + length};
  }
  // The bytes [from, from + length) of what the pieces name.
  static std::vector<std::byte> of(const End& end, const std::vector<Piece>& pieces, uint32_t from,
                                   uint32_t length) {
    std::vector<std::byte> all;
    for (auto [offset, size] : pieces)
      all.insert(all.end(), end.bytes(offset), end.bytes(offset) + size);
    return {all.begin() + from, all.begin() + from + length};
  }
  // Nothing but those bytes differs from 0xee.
  static void expect_only(const End& end, const std::vector<Piece>& pieces, uint32_t from,
                          uint32_t length) {
    std::vector<bool> may(end.region.size);
    uint32_t at = 0;
    for (auto [offset, size] : pieces) {
      for (uint32_t i = 0; i < size; ++i, ++at)
        if (at >= from && at - from < length) may[offset + i] = true;
    }
    size_t wrong = 0;
    for (size_t i = 0; i < end.region.size; ++i)
      wrong += !may[i] && end.region.memory[i] != std::byte{0xee};
    EXPECT_EQ(wrong, 0u);
  }
  // Runs, and says how many entries of indirect keys the busiest call of the switch looked at.
  uint64_t longest_turn() {
    uint64_t most = 0;
    for (bool more = true; more;) {
      const uint64_t before = walked_entries;
      more = rig.fabric().run();
      most = std::max(most, walked_entries - before);
    }
    return most;
  }

  End c, d;
};

}  // namespace keyhole::test
