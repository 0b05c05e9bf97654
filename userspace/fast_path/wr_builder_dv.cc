// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The builder calls of keyholedv.h. They stand between ibv_wr_start and ibv_wr_complete like all
// others and follow the same rules (wr_builder.cc); none takes a setter, since each has its data
// with it. A fill from a KLM list writes its entries there at once: a batch that fails or is
// aborted afterwards is not posted, but what it wrote into lists stays.

#include "builder.h"
#include "dv.h"
#include "fast_path.h"

namespace keyhole::verbs {
namespace {

// Begins a request of so many blocks, or fails the batch and gives null.
inline std::byte* begin_dv(Qp& qp, unsigned opcode, unsigned flags, unsigned nblocks,
                           unsigned num_sge, std::uint32_t imm) {
  SendQueue& sq = qp.sq;
  Build& build = sq.build;
  if (nblocks > build.limit - build.end) [[unlikely]]
    return fail_batch(build, ENOMEM), nullptr;
  std::byte* wqe = block_at(sq, build.end);
  put_ctrl(wqe, wqe_head(opcode, flags | sq.always_flags, nblocks, num_sge), imm, qp.ex.wr_id);
  build.wqe = wqe;
  build.data = nullptr;
  build.index = build.end;
  build.end += nblocks;
  return wqe;
}

inline void fill(Qp& qp, const keyholedv_fill& fill, bool in_line) {
  const unsigned flags = qp.ex.wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  if (flags & ~kBuilderFlags) [[unlikely]]
    return fail_batch(qp.sq.build, EINVAL);
  const auto [nblocks, error] = shape_of(qp.sq, fill, in_line);
  if (error) [[unlikely]]
    return fail_batch(qp.sq.build, error);
  std::byte* wqe =
      begin_dv(qp, KH_OP_UMR_FILL, flags | (in_line ? KH_WQE_INLINE : 0), nblocks, 0, 0);
  if (!wqe) [[unlikely]]
    return;
  put_fill(qp.sq, wqe, fill, in_line);
}

void wr_fill(keyholedv_qp_ex* dv, const keyholedv_fill* from) {
  Qp& qp = qp_of(dv);
  if (!from) [[unlikely]]
    return fail_batch(qp.sq.build, EINVAL);
  fill(qp, *from, qp.ex.wr_flags & IBV_SEND_INLINE);
}

void wr_mr_list(keyholedv_qp_ex* dv, keyholedv_mkey* mkey, std::uint32_t access,
                std::uint32_t num_sges, const ibv_sge* sge) {
  Qp& qp = qp_of(dv);
  if (!mkey) [[unlikely]]
    return fail_batch(qp.sq.build, EINVAL);
  keyholedv_fill request{};
  request.mkey = mkey->lkey;
  request.access = access;
  request.num_entries = num_sges;
  request.list = sge;
  fill(qp, request, true);
}

void wr_mr_interleaved(keyholedv_qp_ex* dv, keyholedv_mkey* mkey, std::uint32_t access,
                       std::uint32_t repeat_count, std::uint32_t num_interleaved,
                       const keyholedv_mr_interleaved* data) {
  Qp& qp = qp_of(dv);
  if (!mkey || repeat_count == 0) [[unlikely]]
    return fail_batch(qp.sq.build, EINVAL);
  keyholedv_fill request{};
  request.mkey = mkey->lkey;
  request.access = access;
  request.num_entries = num_interleaved;
  request.repeat_count = repeat_count;
  request.interleaved = data;
  fill(qp, request, true);
}

void wr_invalidate(keyholedv_qp_ex* dv, std::uint32_t lkey) {
  Qp& qp = qp_of(dv);
  begin<0>(qp.sq, &qp.ex, KH_OP_UMR_INV, lkey);
}

inline void masked_atomic(keyholedv_qp_ex* dv, const keyholedv_masked_atomic* atomic, bool swap) {
  Qp& qp = qp_of(dv);
  if (!atomic || (qp.ex.wr_flags & ~kBuilderFlags) || !masked_atomic_fits(qp.sq, *atomic, swap) ||
      kMaskedBlocks > qp.sq.mask + 1) [[unlikely]]
    return fail_batch(qp.sq.build, EINVAL);
  std::byte* wqe = begin_dv(qp, swap ? KH_OP_MASKED_CMP_SWAP : KH_OP_MASKED_FETCH_ADD,
                            qp.ex.wr_flags, kMaskedBlocks, 1, 0);
  if (!wqe) [[unlikely]]
    return;
  put_masked_atomic(qp.sq, wqe, *atomic);
}

void wr_masked_cmp_swap(keyholedv_qp_ex* dv, const keyholedv_masked_atomic* atomic) {
  masked_atomic(dv, atomic, true);
}
void wr_masked_fetch_add(keyholedv_qp_ex* dv, const keyholedv_masked_atomic* atomic) {
  masked_atomic(dv, atomic, false);
}

void wr_nop(keyholedv_qp_ex* dv) {
  Qp& qp = qp_of(dv);
  begin<0>(qp.sq, &qp.ex, KH_OP_NOP, 0);
}

// For a call that type or device do not have: whatever its arguments, the batch fails.
template <class... Args>
void dv_refuse(keyholedv_qp_ex* dv, Args...) {
  fail_batch(qp_of(dv).sq.build, EINVAL);
}

template <class... Args>
void offer(void (*&slot)(keyholedv_qp_ex*, Args...), bool has,
           std::type_identity_t<void (*)(keyholedv_qp_ex*, Args...)> builder) {
  slot = has ? builder : dv_refuse<Args...>;
}

}  // namespace

int set_dv_ops(Qp& qp, std::uint64_t send_ops_flags) {
  const auto has = [&qp](keyholedv_wr_opcode opcode) {
    return (qp.sq.dv_type_allows >> opcode & 1) != 0;
  };
  const bool fills = has(KEYHOLEDV_WR_FILL);
  const bool atomics = has(KEYHOLEDV_WR_MASKED_CMP_SWAP);
  std::uint64_t offered = 0;
  if (fills)
    offered |= KEYHOLEDV_QP_EX_WITH_MR_LIST | KEYHOLEDV_QP_EX_WITH_MR_INTERLEAVED |
               KEYHOLEDV_QP_EX_WITH_INVALIDATE;
  if (atomics) offered |= KEYHOLEDV_QP_EX_WITH_MASKED_ATOMIC;
  if (has(KEYHOLEDV_WR_NOP)) offered |= KEYHOLEDV_QP_EX_WITH_NOP;
  if (send_ops_flags & ~offered) return EOPNOTSUPP;

  keyholedv_qp_ex& dv = qp.dv;
  offer(dv.wr_fill, fills, wr_fill);
  offer(dv.wr_mr_list, fills, wr_mr_list);
  offer(dv.wr_mr_interleaved, fills, wr_mr_interleaved);
  offer(dv.wr_invalidate, fills, wr_invalidate);
  offer(dv.wr_masked_cmp_swap, atomics, wr_masked_cmp_swap);
  offer(dv.wr_masked_fetch_add, atomics, wr_masked_fetch_add);
  offer(dv.wr_nop, has(KEYHOLEDV_WR_NOP), wr_nop);
  return 0;
}

}  // namespace keyhole::verbs
