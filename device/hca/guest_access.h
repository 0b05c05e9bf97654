// SPDX-License-Identifier: BSD-2-Clause
//
// Loads and stores to memory that somebody else changes at the same time: rings, doorbell records
// and doorbell pages that a guest or a process in it writes while the device looks.
//
// Whatever decides something is read by exactly one of these loads into a local value, and the
// value is what gets checked and used. The compiler may not read it again.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "keyhole_hw.h"

namespace keyhole {

// The layouts of keyhole_hw.h are little endian and are used as they lie.
static_assert(std::endian::native == std::endian::little);

template <typename T>
inline T load_acquire(const void* from) {
  return __atomic_load_n(static_cast<const T*>(from), __ATOMIC_ACQUIRE);
}

template <typename T>
inline T load_relaxed(const void* from) {
  return __atomic_load_n(static_cast<const T*>(from), __ATOMIC_RELAXED);
}

template <typename T>
inline void store_release(void* to, T value) {
  __atomic_store_n(static_cast<T*>(to), value, __ATOMIC_RELEASE);
}

template <typename T>
inline void store_relaxed(void* to, T value) {
  __atomic_store_n(static_cast<T*>(to), value, __ATOMIC_RELAXED);
}

// Orders everything before it against everything after it, loads after stores too.
inline void full_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Copies a structure out of guest memory, once. What may tear in it is checked as it came out.
template <typename T>
inline void copy_out(T& to, const std::byte* from) {
  std::memcpy(&to, from, sizeof(T));
  // What follows works on the copy: the compiler must not go back to the source.
  asm volatile("" : : "r"(&to) : "memory");
}

}  // namespace keyhole
