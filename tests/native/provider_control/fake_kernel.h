// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel and the private half of libibverbs, as the provider's control path sees them: every
// kh_cmd_* and ibv_cmd_* is here a few lines that note what they were asked and answer as a good
// kernel would, or fail when a test says so. What is live is counted, so that a test can tell that
// a failed verb left nothing behind.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "context.h"
#include "control.h"
#include "rdma_core.h"

#include <rdma/keyhole-abi.h>

namespace keyhole::test {

struct FakeKernel {
  // Live kernel objects by kind ("pd", "cq", "srq", "qp", "mr", "mw", "ah", "mkey", "klm_list",
  // "context").
  std::map<std::string, int> live;
  // Commands that are to fail, with which errno; one shot.
  std::map<std::string, int> failures;
  // Ranges kept from children of fork().
  int dontfork_ranges = 0;

  keyhole_create_cq_req cq{};
  keyhole_resize_cq_req resize{};
  keyhole_create_srq_req srq{};
  keyhole_modify_srq_req srq_resize{};
  keyhole_create_qp_req qp{};
  ibv_qp_cap qp_cap{};
  ibv_srq_attr srq_attr{};
  int cqe = 0;
  uint32_t next_qpn = 0x100;
  uint16_t db_slot = 7;
  uint32_t hw_version = KH_HW_MAJOR << 16 | KH_HW_MINOR;
  uint64_t clock = 123456789;
  uint32_t clock_khz = 1000000;

  // What the device has for direct verbs, as kh_cmd_get_context() tells it.
  uint64_t caps = KH_CAP_INDIRECT | KH_CAP_MASKED_ATOMIC;
  uint32_t max_indirect = KH_MAX_INDIRECT;
  uint64_t max_klm_list = uint64_t{KH_MAX_INDIRECT} * sizeof(kh_stride);
  uint32_t max_inline_entries = KH_MAX_INLINE_ENTRIES;
  // What was asked last of an mkey or a KLM list.
  uint32_t mkey_pd = 0, mkey_entries = 0, mkey_access = 0, mkey_handle = 0;
  uint64_t list_addr = 0, list_length = 0;
  uint32_t list_handle = 0;
  keyhole_mkey_attr mkey_attr{};

  int alive() const {
    int sum = 0;
    for (const auto& [kind, count] : live)
      sum += count;
    return sum;
  }
};

extern FakeKernel kernel;

// Fails the allocation (operator new, nothrow) after `skip` more; -1: none. Tells whether it came
// to that.
void fail_allocation(int skip);
bool allocation_failed();

// An opened device, over a file that stands for the device's pages.
class Device {
 public:
  // ours: false is a device that another provider serves.
  explicit Device(bool ours = true);
  ~Device();
  ibv_context* context() const { return context_; }
  Context& state() const { return context_of(context_); }

 private:
  ibv_context* context_ = nullptr;
};

}  // namespace keyhole::test
