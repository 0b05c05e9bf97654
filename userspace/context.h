// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// An opened device: the three pages through which a process rings its queues, the limits of those
// queues, and the table from QP numbers to QPs.

#pragma once

#include "fast_path/qp_table.h"
#include "fast_path/queues.h"
#include "geometry.h"
#include "rdma_core.h"

namespace keyhole {

// What the device has beyond standard verbs, for direct verbs. All zero from a driver that knows
// nothing of it.
struct DeviceExtras {
  uint64_t caps = 0;  // KH_CAP_*
  uint32_t max_mkey_entries = 0;
  uint32_t max_inline_entries = 0;
  uint32_t max_mkey_depth = 0;
  uint64_t max_klm_list = 0;  // bytes

  bool indirect() const { return caps & KH_CAP_INDIRECT; }
  bool masked_atomic() const { return caps & KH_CAP_MASKED_ATOMIC; }
};

struct Context {
  verbs_context core;
  void* doorbell_page;      // written by us, cleared by the device
  const void* status_page;  // struct kh_status_page, read only
  void* wake_page;          // one store to it wakes the device
  QueueLimits limits;
  DeviceExtras extras;
  verbs::QpTable* qps;

  // A QP's bell: its slot in the doorbell page.
  verbs::Doorbell bell(uint16_t slot) const {
    return {.mark = static_cast<std::uint8_t*>(doorbell_page) + slot,
            .status = static_cast<const kh_status_page*>(status_page),
            .wake = static_cast<std::uint32_t*>(wake_page)};
  }
};

inline Context& context_of(ibv_context* context) {
  return *reinterpret_cast<Context*>(reinterpret_cast<char*>(context) -
                                     offsetof(verbs_context, context));
}

}  // namespace keyhole
