// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// A request that the ibv_wr_* builder is at work on: how it begins, grows and fails. Shared by the
// builder calls of verbs.h (wr_builder.cc, which has the rules) and of keyholedv.h
// (wr_builder_dv.cc).

#pragma once

#include "wqe.h"

namespace keyhole::verbs {

using Build = SendQueue::Build;

// Data that is inline has a setter of its own, so the flag is none of the application's.
inline constexpr unsigned kBuilderFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

// The first error counts. With no room left and no place for data, nothing more is written.
[[gnu::cold, gnu::noinline]] inline void fail_batch(Build& build, int error) {
  if (!build.error) build.error = error;
  build.limit = build.end;
  build.data = nullptr;
}

// Begins a request of one block whose data, if it takes any, starts at data_offset. Null when the
// batch has failed.
template <unsigned data_offset>
inline std::byte* begin(SendQueue& sq, ibv_qp_ex* ex, unsigned opcode, std::uint32_t imm) {
  Build& build = sq.build;
  if (build.end == build.limit) [[unlikely]]
    return fail_batch(build, ENOMEM), nullptr;
  if (ex->wr_flags & ~kBuilderFlags) [[unlikely]]
    return fail_batch(build, EINVAL), nullptr;

  std::byte* wqe = block_at(sq, build.end);
  put_ctrl(wqe, wqe_head(opcode, ex->wr_flags | sq.always_flags, 1, 0), imm, ex->wr_id);
  build.wqe = wqe;
  build.data = data_offset ? wqe + data_offset : nullptr;
  build.index = build.end++;
  return wqe;
}

// ctrl of the WQE that is being built, in the ring; software alone writes there.
inline kh_wqe_ctrl& ctrl_of(const Build& build) { return part_of<kh_wqe_ctrl>(build.wqe, 0); }

// Makes the request long enough for its data. False when the batch has failed.
inline bool extend(Build& build, unsigned nblocks) {
  if (nblocks > build.limit - build.index) [[unlikely]]
    return fail_batch(build, ENOMEM), false;
  build.end = build.index + nblocks;
  return true;
}

}  // namespace keyhole::verbs
