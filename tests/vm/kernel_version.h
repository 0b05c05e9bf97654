// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel that a test runs on, for the few answers that are the RDMA core's and that it has changed.

#ifndef TESTS_VM_KERNEL_VERSION_H_
#define TESTS_VM_KERNEL_VERSION_H_

#include <sys/utsname.h>

#include <cstdio>
#include <tuple>

inline bool kernel_is_before(int major, int minor) {
  utsname name{};
  int running_major = 0, running_minor = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &running_major, &running_minor) != 2) return false;
  return std::tie(running_major, running_minor) < std::tie(major, minor);
}

#endif  // TESTS_VM_KERNEL_VERSION_H_
