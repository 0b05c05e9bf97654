// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// CQs whose completions carry a timestamp: those must be polled field by field.

#pragma once

#include "objects.h"

namespace keyhole::exp {

struct ExtendedCq {
  const void* key;  // the struct ibv_cq
  ExtendedCq* next;
  ibv_cq_ex* cq;
  bool wallclock;
};

Objects<ExtendedCq>& extended_cqs();

// What ibv_exp_poll_cq() reads of every completion, besides.
inline constexpr uint64_t kPolledFields = IBV_WC_STANDARD_FLAGS;

}  // namespace keyhole::exp
