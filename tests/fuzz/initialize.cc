// SPDX-License-Identifier: BSD-2-Clause
//
// What every fuzzer does once, before its first input: the device says nothing, as what it would
// say of nonsense is most of the work.

#include <spdlog/spdlog.h>

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}
