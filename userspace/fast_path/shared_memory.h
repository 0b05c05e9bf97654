// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Words that the device and the program both touch. Every such access is one atomic load or store,
// so that the compiler neither splits nor repeats it and ThreadSanitizer sees the order we mean.
// The layouts are little endian and so is every host that we build for.

#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace keyhole::verbs {

static_assert(std::endian::native == std::endian::little);

template <class T>
inline T load_relaxed(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

template <class T>
inline T load_acquire(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}

template <class T>
inline void store_relaxed(T& word, std::type_identity_t<T> value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

template <class T>
inline void store_release(T& word, std::type_identity_t<T> value) {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

// Orders our stores before our later loads, as the device on another CPU sees them. A real mfence
// and not a lock-prefixed instruction (what compilers like to make of a sequentially consistent
// fence): a guest under TCG with one vCPU executes the latter as no fence at all.
inline void full_fence() {
#if defined(__x86_64__)
  __asm__ __volatile__("mfence" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace keyhole::verbs
