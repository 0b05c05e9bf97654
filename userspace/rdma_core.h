// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// rdma-core's provider interface (infiniband/driver.h) for C++.
//
// driver.h is C. Two of the headers that it pulls in cannot be read as C++: kern-abi.h, which
// relies on empty structures having no size, and cmd_ioctl.h, which orders designated initializers
// freely. Both serve command marshalling only, which is C here (cmd.c), so their include guards are
// taken in advance. The C++ standard headers that verbs.h and driver.h need come first, because a
// template has no place inside extern "C".

#pragma once

#include <stdatomic.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#define KERN_ABI_H
// NOLINTNEXTLINE(bugprone-reserved-identifier): rdma-core's name, not a compiler's
#define __INFINIBAND_VERBS_IOCTL_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-enum-enum-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
extern "C" {
#include <infiniband/driver.h>
}
#pragma GCC diagnostic pop
