// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_poll_cq, and arming a CQ for an event.

#include <algorithm>

#include "completion.h"

namespace keyhole::verbs {
namespace {

inline void fill(ibv_wc& wc, const kh_cqe& cqe) {
  wc.wr_id = cqe.wr_id;
  wc.status = static_cast<ibv_wc_status>(cqe.status);
  wc.opcode = wc_opcode(cqe);
  wc.vendor_err = cqe.syndrome;
  wc.byte_len = cqe.byte_len;
  wc.imm_data = cqe.imm;
  wc.qp_num = cqe.qpn;
  wc.src_qp = cqe.src_qpn;
  wc.wc_flags = wc_flags(cqe);
  wc.pkey_index = cqe.pkey_index;
  wc.slid = 0;
  wc.sl = cqe.sl;
  wc.dlid_path_bits = 0;
}

}  // namespace

int poll_cq(ibv_cq* ibcq, int num_entries, ibv_wc* wc) {
  Cq& cq = cq_of(ibcq);

  cq.lock.lock();
  const std::uint32_t before = cq.ci;
  int polled = 0;
  for (; polled < num_entries; polled++) {
    const kh_cqe* cqe = take_cqe(cq);
    if (!cqe) break;
    fill(wc[polled], *cqe);
  }
  if (cq.ci != before) publish_ci(cq);
  cq.lock.unlock();
  return polled;
}

// A request for any completion outlasts a later one for solicited completions alone: whoever asked
// first still waits. A new serial number makes the device look at the word afresh.
int req_notify_cq(ibv_cq* ibcq, int solicited_only) {
  Cq& cq = cq_of(ibcq);
  const std::uint8_t type = solicited_only ? KH_ARM_SOLICITED : KH_ARM_NEXT;

  cq.arm_lock.lock();
  cq.arm_pending = std::max(cq.arm_pending, type);
  cq.arm_sn++;
  store_release(cq.db->arm, cq.arm_sn << KH_ARM_SN_SHIFT | cq.arm_pending);
  full_fence();  // before the caller polls once more
  cq.arm_lock.unlock();
  return 0;
}

void cq_event(ibv_cq* ibcq) {
  Cq& cq = cq_of(ibcq);
  cq.arm_lock.lock();
  cq.arm_pending = 0;
  cq.arm_lock.unlock();
}

}  // namespace keyhole::verbs
