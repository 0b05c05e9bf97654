// SPDX-License-Identifier: BSD-2-Clause
//
// What the tests of direct verbs' requests share: requests that are right, and the bytes that they
// must become, put together here from the contract alone.

#pragma once

#include <initializer_list>

#include "rig.h"

namespace keyhole::verbs {

constexpr unsigned kReadWrite =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

inline std::vector<ibv_sge> klms(unsigned count) {
  std::vector<ibv_sge> list;
  for (unsigned i = 0; i < count; i++)
    list.push_back({.addr = 0x100000 + i * 0x1000ull, .length = i * 7, .lkey = 0x500 + i});
  return list;
}

inline std::vector<keyholedv_mr_interleaved> strides(unsigned count) {
  std::vector<keyholedv_mr_interleaved> list;
  for (unsigned i = 0; i < count; i++)
    list.push_back({.addr = 0x900000 + i * 0x111ull,
                    .bytes_count = 3 + i,
                    .lkey = 0x700 + i,
                    .stride = 0x10000000000ull + i});
  return list;
}

inline keyholedv_send_wr fill_request(const std::vector<ibv_sge>& list,
                                      unsigned flags = IBV_SEND_INLINE) {
  keyholedv_send_wr wr{};
  wr.wr_id = 0x1122334455667788;
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = flags;
  wr.fill.mkey = 0xabcd01;
  wr.fill.access = kReadWrite;
  wr.fill.start = 0x7000000012345;
  wr.fill.num_entries = static_cast<std::uint32_t>(list.size());
  wr.fill.list = list.data();
  return wr;
}

inline keyholedv_send_wr fill_request(const std::vector<keyholedv_mr_interleaved>& list,
                                      std::uint32_t repeat_count,
                                      unsigned flags = IBV_SEND_INLINE) {
  keyholedv_send_wr wr = fill_request(std::vector<ibv_sge>{}, flags);
  wr.fill.num_entries = static_cast<std::uint32_t>(list.size());
  wr.fill.repeat_count = repeat_count;
  wr.fill.interleaved = list.data();
  return wr;
}

inline keyholedv_send_wr plain_request(keyholedv_wr_opcode opcode, unsigned flags = 0) {
  keyholedv_send_wr wr{};
  wr.wr_id = 0x77;
  wr.opcode = opcode;
  wr.send_flags = flags;
  if (opcode == KEYHOLEDV_WR_INVALIDATE) {
    wr.invalidate_mkey = 0xabcd01;
  } else if (opcode != KEYHOLEDV_WR_NOP) {
    const std::uint64_t swap = opcode == KEYHOLEDV_WR_MASKED_CMP_SWAP ? ~0ull : 0;
    wr.atomic = {.remote_addr = 0x10008,
                 .rkey = 0x99,
                 .reserved = 0,
                 .swap_add = 0x1111111111111111,
                 .compare = 0x2222222222222222 & swap,
                 .swap_mask = 0x3333333333333333,
                 .compare_mask = 0x4444444444444444 & swap,
                 .sge = {.addr = 0x5000, .length = 8, .lkey = 0x55}};
  }
  return wr;
}

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(value));
}

// The first block of a fill.
inline std::vector<std::byte> fill_block(const keyholedv_send_wr& wr, unsigned nblocks,
                                         std::uint32_t list_key = 0,
                                         std::uint64_t list_offset = 0) {
  std::vector<std::byte> bytes;
  kh_wqe_ctrl ctrl{};
  ctrl.opcode = KH_OP_UMR_FILL;
  ctrl.flags = static_cast<std::uint8_t>(wr.send_flags);
  ctrl.nblocks = static_cast<std::uint8_t>(nblocks);
  ctrl.wr_id = wr.wr_id;
  append(bytes, ctrl);
  kh_wqe_umr umr{};
  umr.key = wr.fill.mkey;
  umr.access = wr.fill.access;
  umr.start = wr.fill.start;
  umr.num_entries = wr.fill.num_entries;
  umr.repeat_count = wr.fill.repeat_count;
  umr.list_offset = list_offset;
  umr.list_key = list_key;
  append(bytes, umr);
  return bytes;
}

// The entries as the device reads them.
inline std::vector<std::byte> device_bytes(const std::vector<ibv_sge>& list) {
  std::vector<std::byte> bytes;
  for (const ibv_sge& sge : list)
    append(bytes, kh_klm{.addr = sge.addr, .length = sge.length, .lkey = sge.lkey});
  return bytes;
}
inline std::vector<std::byte> device_bytes(const std::vector<keyholedv_mr_interleaved>& list) {
  std::vector<std::byte> bytes;
  for (const auto& from : list)
    append(bytes, kh_stride{.addr = from.addr,
                            .length = from.bytes_count,
                            .lkey = from.lkey,
                            .stride = from.stride});
  return bytes;
}

// Memory that plays a pinned KLM list.
struct ListRig {
  std::vector<std::byte> memory;
  keyholedv_klm_list list;

  explicit ListRig(std::uint32_t max_entries)
      : memory(max_entries * sizeof(kh_stride), std::byte{0xdd}),
        list{.addr = memory.data(),
             .length = memory.size(),
             .max_entries = max_entries,
             .key = 0xfeed02} {}
};

}  // namespace keyhole::verbs
