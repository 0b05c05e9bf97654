// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// What the fast path offers: the verbs that run without a system call, with the signatures that
// struct ibv_context_ops and struct verbs_context_ops want, and the few steps by which the control
// path sets queues up, resets them and takes them down. All return an errno or 0, as verbs do; none
// throws.

#pragma once

#include <cstdint>

#include "qp_table.h"
#include "queues.h"

namespace keyhole::verbs {

// ---- verbs -------------------------------------------------------------------------------------

// ENOMEM when the ring is full. EINVAL: an opcode that the QP's type or state does not take,
// unknown send flags, too many SGEs, inline data too long, inline with an opcode that sends no
// data, no AH, or a window of the wrong type. *bad_wr is the first request not posted; those before
// it are posted.
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);

// ENOMEM when max_recv_wr receives are outstanding. EINVAL: too many SGEs, in RESET, or no RQ.
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// keyholedv_post_send(). As post_send(); EINVAL also: access flags that no fill takes, a fill of no
// entries or of more than the device has for it, without entries, or larger than the whole ring; a
// KLM list that is missing, too short, or used from an offset that is no multiple of 8; a masked
// atomic without 8 aligned bytes on both sides. A fill that is refused leaves the KLM list as it
// was.
int post_dv(ibv_qp* qp, keyholedv_send_wr* wr, keyholedv_send_wr** bad_wr);

// Type 1. On success mw->rkey is the key that the window will have. EINVAL: not a type 1 window, a
// QP that is not RC or UC or is not ready to send, unknown access flags, a length without a region;
// EPERM: window and region of different PDs; ENOMEM: ring full. What the device has to decide
// (rights, range, keys) completes with IBV_WC_MW_BIND_ERR.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

// The number of completions, or -1 with errno never: a CQ in error shows by its async event.
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
// verbs_context_ops.cq_event: an event of this CQ was taken from its channel.
void cq_event(ibv_cq* cq);

// ---- set-up, for the control path --------------------------------------------------------------

// Opcodes (bits of enum ibv_wr_opcode) that a QP of this type takes.
std::uint32_t opcodes_of(ibv_qp_type type);

// Fills what follows from type, sq_sig_all and the device's limits. The caller sets ring, mask and
// db of sq and rq, capacity and log_stride of rq, bell, CQs and SRQ. An rq without ring stays
// closed.
void init_qp(Qp& qp, ibv_qp_type type, bool sq_sig_all, unsigned max_send_sge,
             unsigned max_recv_sge, unsigned max_inline, bool single_threaded);

// Call after each successful MODIFY_QP with IBV_QP_STATE (and at creation with RESET): opens and
// closes the queues to posting. For RESET call reset_qp() instead, which does this too.
void set_qp_state(Qp& qp, ibv_qp_state state);

// After the kernel moved the QP to RESET: drops the QP's unread CQEs and empties its queues. Not
// at creation (nothing to drop; all zeroes).
void reset_qp(Qp& qp);

// After the kernel destroyed the QP, before its memory goes: drops its unread CQEs. Then remove it
// from the table.
void clean_qp(Qp& qp);

// After init_qp(): fills the ibv_wr_* pointers of qp.ex. EOPNOTSUPP when send_ops_flags
// (IBV_QP_EX_WITH_*) asks for what the type does not have.
int set_wr_ops(Qp& qp, ibv_qp_type type, std::uint64_t send_ops_flags);

// What the device has for direct verbs; zero from an older device or driver.
struct DvLimits {
  bool indirect = false;       // KH_CAP_INDIRECT
  bool masked_atomic = false;  // KH_CAP_MASKED_ATOMIC
  unsigned max_inline_entries = 0;
  std::uint32_t max_entries = 0;  // of an indirect mkey
};

// After init_qp(), before the QP leaves RESET: lets it post what the device has and its type takes.
void set_dv_limits(Qp& qp, ibv_qp_type type, const DvLimits& limits);

// After set_wr_ops() and set_dv_limits(): fills the pointers of qp.dv. EOPNOTSUPP when
// send_ops_flags (KEYHOLEDV_QP_EX_WITH_*) asks for what type or device do not have.
int set_dv_ops(Qp& qp, std::uint64_t send_ops_flags);

// wc_flags of ibv_create_cq_ex that the device can give; refuse others with EOPNOTSUPP.
inline constexpr std::uint64_t kCqWcFlags =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
    IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN;

// The caller sets db and qps; the ring starts at index 0. Also for a new, zeroed Cq.
void init_cq(Cq& cq, kh_cqe* ring, unsigned log_size, bool single_threaded);

// Fills start_poll and the rest of cq.ex, for the fields in wc_flags. Call for every CQ created
// with ibv_create_cq_ex.
void set_cq_ops(Cq& cq, std::uint64_t wc_flags);

// A resize, around the kernel's command: nobody polls or arms meanwhile. The constructor prepares
// the new ring's record; after success of the command, and only then, call commit().
class CqResize {
 public:
  CqResize(Cq& cq, kh_cq_db* new_db);
  CqResize(const CqResize&) = delete;
  CqResize& operator=(const CqResize&) = delete;
  ~CqResize();
  void commit(kh_cqe* new_ring, unsigned log_size);

 private:
  Cq& cq_;
  kh_cq_db* new_db_;
};

}  // namespace keyhole::verbs
