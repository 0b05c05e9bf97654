// SPDX-License-Identifier: BSD-2-Clause
//
// A fuzzer's input as a program: small instructions, read from front to back, so that a seed can be
// written by a script and a find be read by a person. Behind the end everything reads as zero.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace keyhole::fuzz {

// What the device did is wrong: libFuzzer keeps the input.
[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "the fuzzer's oracle: %s\n", what);
  std::abort();
}

inline void require(bool condition, const char* what) {
  if (!condition) [[unlikely]]
    fail(what);
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }

  template <typename T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    size_t n = std::min(sizeof(T), left_.size());
    if (n > 0) std::memcpy(static_cast<void*>(&value), left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }
  uint8_t u8() { return take<uint8_t>(); }
  uint16_t u16() { return take<uint16_t>(); }
  uint32_t u32() { return take<uint32_t>(); }
  uint64_t u64() { return take<uint64_t>(); }
  uint8_t below(uint8_t n) { return u8() % n; }

  // `most` bytes, or what is left.
  std::vector<std::byte> bytes(size_t most) {
    size_t n = std::min(most, left_.size());
    std::vector<std::byte> out(n);
    if (n > 0) std::memcpy(out.data(), left_.data(), n);
    left_ = left_.subspan(n);
    return out;
  }

  template <typename T, size_t N>
  const T& one_of(const T (&choices)[N]) {
    static_assert(N <= 256);
    return choices[u8() % N];
  }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace keyhole::fuzz
