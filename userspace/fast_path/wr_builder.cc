// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The ibv_wr_* builder. A builder call writes the request into the ring as if it had no data, one
// block long; a setter then adds the data and rewrites the first word. So each request is complete
// after every call and nothing has to be finished later. The ring's producer index stays where it
// was until wr_complete: a batch that failed or was aborted is forgotten by not publishing it.
//
// The first error of a batch sticks: from then on no call writes anything, and wr_complete returns
// it and posts nothing of the batch. The lock is held from wr_start to wr_complete or wr_abort.

#include "builder.h"
#include "fast_path.h"

namespace keyhole::verbs {
namespace {

// ---- requests ----------------------------------------------------------------------------------

// SEND of any kind. For UD the address comes by its own setter.
template <bool ud>
inline void send(ibv_qp_ex* ex, unsigned opcode, std::uint32_t imm) {
  SendQueue& sq = qp_of(ex).sq;
  if (ud && sq.build.address_missing) [[unlikely]]
    return fail_batch(sq.build, EINVAL);
  std::byte* wqe = begin < ud ? kUdBytes : kRdmaBytes > (sq, ex, opcode, imm);
  if (!wqe) [[unlikely]]
    return;
  if constexpr (ud) {
    put_ud_inline_len(wqe, 0);
    sq.build.address_missing = true;
  } else {
    put_rdma(wqe, 0, 0, 0);
  }
}

template <bool ud>
void wr_send(ibv_qp_ex* ex) {
  send<ud>(ex, KH_OP_SEND, 0);
}
template <bool ud>
void wr_send_imm(ibv_qp_ex* ex, __be32 imm) {
  send<ud>(ex, KH_OP_SEND_IMM, imm);
}
void wr_send_inv(ibv_qp_ex* ex, std::uint32_t rkey) { send<false>(ex, KH_OP_SEND_INV, rkey); }

inline void rdma(ibv_qp_ex* ex, unsigned opcode, std::uint32_t imm, std::uint32_t rkey,
                 std::uint64_t remote_addr) {
  std::byte* wqe = begin<kRdmaBytes>(qp_of(ex).sq, ex, opcode, imm);
  if (!wqe) [[unlikely]]
    return;
  put_rdma(wqe, remote_addr, rkey, 0);
}

void wr_rdma_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr) {
  rdma(ex, KH_OP_WRITE, 0, rkey, remote_addr);
}
void wr_rdma_write_imm(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr, __be32 imm) {
  rdma(ex, KH_OP_WRITE_IMM, imm, rkey, remote_addr);
}
void wr_rdma_read(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr) {
  rdma(ex, KH_OP_READ, 0, rkey, remote_addr);
}

inline void atomic(ibv_qp_ex* ex, unsigned opcode, std::uint32_t rkey, std::uint64_t remote_addr,
                   std::uint64_t swap_add, std::uint64_t compare) {
  std::byte* wqe = begin<kAtomicBytes>(qp_of(ex).sq, ex, opcode, 0);
  if (!wqe) [[unlikely]]
    return;
  put_rdma(wqe, remote_addr, rkey, 0);
  put_atomic(wqe, swap_add, compare);
}

void wr_atomic_cmp_swp(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr,
                       std::uint64_t compare, std::uint64_t swap) {
  atomic(ex, KH_OP_CMP_SWAP, rkey, remote_addr, swap, compare);
}
void wr_atomic_fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr,
                         std::uint64_t add) {
  atomic(ex, KH_OP_FETCH_ADD, rkey, remote_addr, add, 0);
}

// 8 bytes that travel in the request.
void wr_atomic_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr,
                     const void* value) {
  Build& build = qp_of(ex).sq.build;
  std::byte* wqe = begin<0>(qp_of(ex).sq, ex, KH_OP_ATOMIC_WRITE, 0);
  if (!wqe) [[unlikely]]
    return;
  ctrl_of(build).flags |= KH_WQE_INLINE;
  put_rdma(wqe, remote_addr, rkey, 8);
  std::memcpy(wqe + kRdmaBytes, value, 8);
}

[[maybe_unused]] void wr_flush(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr,
                               std::size_t length, std::uint8_t type, std::uint8_t level) {
  SendQueue& sq = qp_of(ex).sq;
  const bool range = level == KH_FLUSH_RANGE;
  if (!type || (type & ~(KH_FLUSH_GLOBAL | KH_FLUSH_PERSISTENT)) || level > KH_FLUSH_MR ||
      (range && length > KH_MAX_MSG_SIZE)) [[unlikely]]
    return fail_batch(sq.build, EINVAL);
  std::byte* wqe = begin<0>(sq, ex, KH_OP_FLUSH, 0);
  if (!wqe) [[unlikely]]
    return;
  put_rdma(wqe, remote_addr, rkey, range ? static_cast<std::uint32_t>(length) : 0);
  put_flush(wqe, type, level);
}

void wr_local_inv(ibv_qp_ex* ex, std::uint32_t rkey) {
  begin<0>(qp_of(ex).sq, ex, KH_OP_LOCAL_INV, rkey);
}

void wr_bind_mw(ibv_qp_ex* ex, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  SendQueue& sq = qp_of(ex).sq;
  if (mw->type != IBV_MW_TYPE_2) [[unlikely]]
    return fail_batch(sq.build, EINVAL);
  const auto [access, error] = check_bind(*mw, *info);
  if (error) [[unlikely]]
    return fail_batch(sq.build, error);
  if (std::byte* wqe = begin<0>(sq, ex, KH_OP_BIND_MW, 0))
    put_bind(wqe, mw->rkey, rkey, *info, access);
}

// ---- setters -----------------------------------------------------------------------------------

bool is_atomic(const Build& build) {
  const unsigned opcode = ctrl_of(build).opcode;
  return opcode == KH_OP_CMP_SWAP || opcode == KH_OP_FETCH_ADD;
}

void set_sge_list(ibv_qp_ex* ex, std::size_t num_sge, const ibv_sge* list) {
  SendQueue& sq = qp_of(ex).sq;
  Build& build = sq.build;
  if (!build.data || num_sge > (is_atomic(build) ? 1 : sq.max_sge)) [[unlikely]]
    return fail_batch(build, EINVAL);
  const unsigned nblocks = blocks_of(build.data - build.wqe + num_sge * sizeof(kh_sge));
  if (!extend(build, nblocks)) [[unlikely]]
    return;
  ctrl_of(build).nblocks = static_cast<std::uint8_t>(nblocks);
  ctrl_of(build).num_sge = static_cast<std::uint8_t>(num_sge);
  put_sges(sq, build.data, list, num_sge);
}

// Where one SGE is allowed at all and lies in the first block.
void set_sge(ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  Build& build = qp_of(ex).sq.build;
  if (!build.data) [[unlikely]]
    return fail_batch(build, EINVAL);
  ctrl_of(build).num_sge = 1;
  auto& sge = part_of<kh_sge>(build.data, 0);
  sge.addr = addr;
  sge.length = length;
  sge.lkey = lkey;
}

// Elsewhere: for UD the first SGE opens the second block.
void set_sge_checked(ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  const ibv_sge sge{.addr = addr, .length = length, .lkey = lkey};
  set_sge_list(ex, 1, &sge);
}

bool takes_inline(const Build& build) {
  constexpr std::uint32_t opcodes = bit(KH_OP_SEND) | bit(KH_OP_SEND_IMM) | bit(KH_OP_SEND_INV) |
                                    bit(KH_OP_WRITE) | bit(KH_OP_WRITE_IMM);
  return opcodes >> ctrl_of(build).opcode & 1;
}

// What both inline setters share: the total is known, so the request is sized before the copy.
// Where to copy to, or null when the batch has failed.
inline std::byte* begin_inline(SendQueue& sq, std::size_t total) {
  Build& build = sq.build;
  if (!build.data || !takes_inline(build) || total > sq.max_inline) [[unlikely]]
    return fail_batch(build, EINVAL), nullptr;
  const unsigned nblocks = blocks_of(build.data - build.wqe + total);
  if (!extend(build, nblocks)) [[unlikely]]
    return nullptr;
  ctrl_of(build).flags |= KH_WQE_INLINE;
  ctrl_of(build).nblocks = static_cast<std::uint8_t>(nblocks);
  const auto len = static_cast<std::uint32_t>(total);
  if (sq.ud)
    put_ud_inline_len(build.wqe, len);
  else
    part_of<kh_wqe_rdma>(build.wqe, kBareBytes).inline_len = len;
  return build.data;
}

void set_inline_data(ibv_qp_ex* ex, void* addr, std::size_t length) {
  SendQueue& sq = qp_of(ex).sq;
  if (std::byte* to = begin_inline(sq, length)) put_inline(sq, to, addr, length);
}

void set_inline_data_list(ibv_qp_ex* ex, std::size_t num_buf, const ibv_data_buf* list) {
  SendQueue& sq = qp_of(ex).sq;
  std::size_t total = 0;
  for (std::size_t i = 0; i < num_buf; i++) {
    if (list[i].length > sq.max_inline)  // nor may the sum wrap
      return fail_batch(sq.build, EINVAL);
    total += list[i].length;
  }
  std::byte* to = begin_inline(sq, total);
  if (!to) return;
  for (std::size_t i = 0; i < num_buf; i++)
    to = put_inline(sq, to, list[i].addr, list[i].length);
}

void set_ud_addr(ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
  Build& build = qp_of(ex).sq.build;
  if (!ah || !build.data) [[unlikely]]
    return fail_batch(build, EINVAL);
  put_ud(build.wqe, ah_of(ah).av, qpn, qkey);
  build.address_missing = false;
}

// ---- the critical section ----------------------------------------------------------------------

// With the lock held.
inline void start(SendQueue& sq) {
  Build& build = sq.build;
  build.data = nullptr;
  build.end = sq.pi;
  build.limit = post_limit(sq);
  build.error = 0;
  build.address_missing = 0;
  if (!sq.allowed) [[unlikely]]  // not in a state to send
    fail_batch(build, EINVAL);
}

[[gnu::noinline, gnu::cold]] void start_contended(SendQueue& sq) {
  sq.lock.contend();
  start(sq);
}

void wr_start(ibv_qp_ex* ex) {
  SendQueue& sq = qp_of(ex).sq;
  if (!sq.lock.try_lock()) [[unlikely]]
    return start_contended(sq);
  start(sq);
}

[[gnu::noinline, gnu::cold]] int give_up(SendQueue& sq) {
  const int error = sq.build.error ? sq.build.error : EINVAL;
  sq.lock.unlock();
  return error;
}

int wr_complete(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  SendQueue& sq = qp.sq;
  if (sq.build.error | sq.build.address_missing) [[unlikely]]
    return give_up(sq);
  const std::uint32_t end = sq.build.end;
  if (end != sq.pi) [[likely]] {
    sq.pi = end;
    ring_send(qp, end);
  }
  return sq.lock.unlock();
}

void wr_abort(ibv_qp_ex* ex) { qp_of(ex).sq.lock.unlock(); }

// For a builder that the QP's type does not have: whatever its arguments, the batch fails.
template <class... Args>
void wr_refuse(ibv_qp_ex* ex, Args...) {
  fail_batch(qp_of(ex).sq.build, EINVAL);
}

template <class... Args>
void offer(void (*&slot)(ibv_qp_ex*, Args...), bool has,
           std::type_identity_t<void (*)(ibv_qp_ex*, Args...)> builder) {
  slot = has ? builder : wr_refuse<Args...>;
}

constexpr std::uint64_t kUdOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kUcOps = kUdOps | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                                 IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                 IBV_QP_EX_WITH_BIND_MW;
// rdma-core has FLUSH since version 45: this also builds with an older one.
constexpr std::uint64_t kWithFlush = 1 << 11;  // IBV_QP_EX_WITH_FLUSH
template <class QpEx>
void offer_flush(QpEx& ex, bool has) {
  if constexpr (requires { ex.wr_flush; }) offer(ex.wr_flush, has, wr_flush);
}

constexpr std::uint64_t kRcOps =
    kUcOps | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE | kWithFlush;

}  // namespace

int set_wr_ops(Qp& qp, ibv_qp_type type, std::uint64_t send_ops_flags) {
  const std::uint64_t offered = type == IBV_QPT_RC   ? kRcOps
                                : type == IBV_QPT_UC ? kUcOps
                                : type == IBV_QPT_UD ? kUdOps
                                                     : 0;
  if (send_ops_flags & ~offered) return EOPNOTSUPP;

  ibv_qp_ex& ex = qp.ex;
  const bool ud = type == IBV_QPT_UD;
  const bool rc = type == IBV_QPT_RC;
  ex.wr_start = wr_start;
  ex.wr_complete = wr_complete;
  ex.wr_abort = wr_abort;

  ex.wr_send = ud ? wr_send<true> : wr_send<false>;
  ex.wr_send_imm = ud ? wr_send_imm<true> : wr_send_imm<false>;
  offer(ex.wr_send_inv, !ud, wr_send_inv);
  offer(ex.wr_rdma_write, !ud, wr_rdma_write);
  offer(ex.wr_rdma_write_imm, !ud, wr_rdma_write_imm);
  offer(ex.wr_rdma_read, rc, wr_rdma_read);
  offer(ex.wr_atomic_cmp_swp, rc, wr_atomic_cmp_swp);
  offer(ex.wr_atomic_fetch_add, rc, wr_atomic_fetch_add);
  offer(ex.wr_atomic_write, rc, wr_atomic_write);
  offer_flush(ex, rc);
  offer(ex.wr_local_inv, !ud, wr_local_inv);
  offer(ex.wr_bind_mw, !ud, wr_bind_mw);
  offer(ex.wr_send_tso, false, nullptr);

  offer(ex.wr_set_ud_addr, ud, set_ud_addr);
  offer(ex.wr_set_xrc_srqn, false, nullptr);
  ex.wr_set_sge = ud || qp.sq.max_sge == 0 ? set_sge_checked : set_sge;
  ex.wr_set_sge_list = set_sge_list;
  ex.wr_set_inline_data = set_inline_data;
  ex.wr_set_inline_data_list = set_inline_data_list;
  return 0;
}

}  // namespace keyhole::verbs
