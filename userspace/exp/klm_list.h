// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

#pragma once

#include "exp.h"

namespace keyhole::exp {

// The pinned memory behind a container. EINVAL: none, or one of another context.
std::expected<keyholedv_klm_list*, int> klm_list_of(ibv_exp_mkey_list_container* container,
                                                    const ibv_context* context);

}  // namespace keyhole::exp
