// SPDX-License-Identifier: BSD-2-Clause
//
// Names of the numbers in keyhole_hw.h, for logs. "?" for what has none.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keyhole {

std::string_view admin_op_name(uint8_t opcode);
std::string_view admin_status_name(uint8_t status);
std::string_view wc_status_name(uint8_t status);
std::string_view cqe_opcode_name(uint8_t opcode);
std::string_view event_name(uint8_t event);
std::string_view qp_state_name(uint8_t state);
std::string_view qp_type_name(uint8_t type);
// "LOCAL_KEY RANGE", "BIND_BOUND" ...
std::string syndrome_name(uint32_t syndrome);

}  // namespace keyhole
