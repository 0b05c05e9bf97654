// SPDX-License-Identifier: BSD-2-Clause
//
// Taking a request's payload apart and putting a reply's together.

#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "vfio_user/server.h"

namespace keyhole::vfio_user {

// Descriptors in one message, either way. QEMU can send and take 16.
constexpr size_t max_message_fds = 16;

struct Server::Reply {
  std::vector<std::byte> payload;
  int fd = -1;  // lent: it belongs to a region

  template <typename T>
  requires std::is_trivially_copyable_v<T> Reply& add(const T& value) {
    size_t at = payload.size();
    payload.resize(at + sizeof value);
    std::memcpy(payload.data() + at, &value, sizeof value);
    return *this;
  }
};

// The structure at the front of a payload; what follows it stays in `rest`.
template <typename T>
requires std::is_trivially_copyable_v<T> std::optional<T> take(std::span<const std::byte>& rest) {
  if (rest.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, rest.data(), sizeof value);
  rest = rest.subspan(sizeof value);
  return value;
}

// A payload that is this structure and nothing else.
template <typename T>
std::optional<T> exactly(const std::vector<std::byte>& payload) {
  std::span<const std::byte> rest(payload);
  auto value = take<T>(rest);
  return rest.empty() ? value : std::nullopt;
}

}  // namespace keyhole::vfio_user
