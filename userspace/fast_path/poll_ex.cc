// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The extended CQ: the application walks over CQEs in the ring and reads the fields that it wants.
// The lock is held from a successful start_poll to end_poll. ci is published at the end, so the
// device cannot overwrite the entry that is being read.

#include "completion.h"

namespace keyhole::verbs {
namespace {

inline int next(Cq& cq) {
  const kh_cqe* cqe = take_cqe(cq);
  if (!cqe) return ENOENT;
  cq.current = cqe;
  cq.ex.wr_id = cqe->wr_id;
  cq.ex.status = static_cast<ibv_wc_status>(cqe->status);
  return 0;
}

template <bool locked>
int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
  Cq& cq = cq_of(ex);
  if (attr->comp_mask) [[unlikely]]
    return EINVAL;
  if constexpr (locked) cq.lock.lock();
  const std::uint32_t before = cq.ci;
  const int error = next(cq);
  if (error) {
    if (cq.ci != before) publish_ci(cq);  // there were only entries to skip
    if constexpr (locked) cq.lock.unlock();
  }
  return error;
}

int next_poll(ibv_cq_ex* ex) { return next(cq_of(ex)); }

template <bool locked>
void end_poll(ibv_cq_ex* ex) {
  Cq& cq = cq_of(ex);
  publish_ci(cq);
  if constexpr (locked) cq.lock.unlock();
}

const kh_cqe& current(ibv_cq_ex* ex) { return *cq_of(ex).current; }

ibv_wc_opcode read_opcode(ibv_cq_ex* ex) { return wc_opcode(current(ex)); }
std::uint32_t read_vendor_err(ibv_cq_ex* ex) { return current(ex).syndrome; }
std::uint32_t read_byte_len(ibv_cq_ex* ex) { return current(ex).byte_len; }
__be32 read_imm_data(ibv_cq_ex* ex) { return current(ex).imm; }  // and read_invalidated_rkey
std::uint32_t read_qp_num(ibv_cq_ex* ex) { return current(ex).qpn; }
std::uint32_t read_src_qp(ibv_cq_ex* ex) { return current(ex).src_qpn; }
unsigned read_wc_flags(ibv_cq_ex* ex) { return wc_flags(current(ex)); }
std::uint32_t read_slid(ibv_cq_ex*) { return 0; }  // RoCE has no LIDs
std::uint8_t read_sl(ibv_cq_ex* ex) { return current(ex).sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex*) { return 0; }
std::uint64_t read_completion_ts(ibv_cq_ex* ex) { return current(ex).timestamp; }
std::uint16_t read_cvlan(ibv_cq_ex* ex) {
  const std::uint16_t vlan = current(ex).vlan;
  return vlan == KH_VLAN_NONE ? 0 : vlan;
}

}  // namespace

void set_cq_ops(Cq& cq, std::uint64_t wc_flags) {
  ibv_cq_ex& ex = cq.ex;
  const bool locked = !cq.lock.elided();
  ex.start_poll = locked ? start_poll<true> : start_poll<false>;
  ex.next_poll = next_poll;
  ex.end_poll = locked ? end_poll<true> : end_poll<false>;
  ex.read_opcode = read_opcode;
  ex.read_vendor_err = read_vendor_err;
  ex.read_wc_flags = read_wc_flags;
  if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN) ex.read_byte_len = read_byte_len;
  if (wc_flags & IBV_WC_EX_WITH_IMM) ex.read_imm_data = read_imm_data;
  if (wc_flags & IBV_WC_EX_WITH_QP_NUM) ex.read_qp_num = read_qp_num;
  if (wc_flags & IBV_WC_EX_WITH_SRC_QP) ex.read_src_qp = read_src_qp;
  if (wc_flags & IBV_WC_EX_WITH_SLID) ex.read_slid = read_slid;
  if (wc_flags & IBV_WC_EX_WITH_SL) ex.read_sl = read_sl;
  if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) ex.read_dlid_path_bits = read_dlid_path_bits;
  if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) ex.read_completion_ts = read_completion_ts;
  if (wc_flags & IBV_WC_EX_WITH_CVLAN) ex.read_cvlan = read_cvlan;
}

}  // namespace keyhole::verbs
