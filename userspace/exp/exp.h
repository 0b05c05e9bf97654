// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// What all files of libibverbs_exp share: the API, and how a call fails.
//
// The library is a layer on libibverbs and on direct verbs and reaches nothing below them: it has
// no state of an object but what its tables keep (objects.h), and no knowledge of a provider but
// what keyholedv_query_device() tells.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <expected>
#include <iterator>
#include <optional>

// In here the standard calls are the standard ones.
#define LIBIBVERBS_EXP_SOURCE
#include <infiniband/verbs.h>
#include <infiniband/verbs_exp.h>

#include "keyholedv.h"

namespace keyhole::exp {

// A pointer's failure.
inline std::nullptr_t fail(int err) {
  errno = err;
  return nullptr;
}

// An int's. Old programs look at either.
inline int fail_int(int err) {
  errno = err;
  return err;
}

// What the provider does not have, it calls by either name; the old stack had one.
constexpr int as_enosys(int err) { return err == EOPNOTSUPP ? ENOSYS : err; }

// For calls that return a pointer, right after a NULL.
inline std::nullptr_t fail_as_provider() { return fail(errno ? as_enosys(errno) : ENOMEM); }

// A mask is valid below its first reserved bit.
constexpr bool mask_is_known(uint64_t mask, uint64_t first_reserved) {
  return mask < first_reserved;
}

// The number in an enumeration's place, which a C program may have filled with anything.
template <class Enum>
uint32_t number_in(const Enum& place) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number = 0;
  std::memcpy(&number, &place, sizeof(number));
  return number;
}

// Bytes of a receive that may come inline. Keyhole's receives go where they are told to in any
// case: the answer says that asking does no harm.
inline constexpr uint32_t kMaxInlineReceive = 512;

// None on another provider's context.
inline std::optional<keyholedv_context> keyhole_caps(ibv_context* context) {
  keyholedv_context caps{};
  if (!keyholedv_is_supported(context->device) || keyholedv_query_device(context, &caps))
    return std::nullopt;
  return caps;
}

}  // namespace keyhole::exp
