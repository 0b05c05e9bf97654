// SPDX-License-Identifier: BSD-2-Clause
//
// Which changes of a queue pair's state exist, and which attributes each must and may bring
// (specification, 11.2.5.2 and its table of transitions; man page ibv_modify_qp).

#pragma once

#include <cstdint>

#include "keyhole_hw.h"

namespace keyhole {

struct Transition {
  bool exists = false;
  uint32_t required = 0;  // KH_QP_*
  uint32_t optional = 0;
};

// `type` is an enum kh_qp_type, the states are enum kh_qp_state. What is in neither set is refused,
// but for KH_QP_STATE itself.
Transition find_transition(uint8_t type, uint8_t from, uint8_t to);

// Nanoseconds that a requester waits after an RNR NAK with this timer field (5 bits;
// specification, 9.7.5.2.8).
uint64_t rnr_delay_ns(uint8_t code);

}  // namespace keyhole
