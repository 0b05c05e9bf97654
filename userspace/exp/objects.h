// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Which objects are the library's own.
//
// ibv_dereg_mr() and ibv_destroy_cq() are handed a pointer, and must know whether it is one of
// theirs, whatever the program has written into the structure. So nothing in the structure tells: a
// table keyed by the pointer does. It has a fixed number of chains, each with a lock of its own; to
// put something in or take it out allocates nothing, for the links are in the records themselves.

#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "exp.h"

namespace keyhole::exp {

template <class Record>  // has: const void* key; Record* next;
class Objects {
 public:
  void put(Record* record) {
    Chain& chain = chain_of(record->key);
    std::lock_guard lock(chain.mutex);
    record->next = chain.first;
    chain.first = record;
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  // Out of the table; null if it is not in it.
  Record* take(const void* key) {
    if (empty()) return nullptr;
    Chain& chain = chain_of(key);
    std::lock_guard lock(chain.mutex);
    for (Record** link = &chain.first; *link; link = &(*link)->next) {
      Record* record = *link;
      if (record->key != key) continue;
      *link = record->next;
      count_.fetch_sub(1, std::memory_order_relaxed);
      return record;
    }
    return nullptr;
  }

  // The record lives until its object is destroyed, which is the caller's to exclude.
  Record* find(const void* key) {
    if (empty()) return nullptr;
    Chain& chain = chain_of(key);
    std::lock_guard lock(chain.mutex);
    for (Record* record = chain.first; record; record = record->next)
      if (record->key == key) return record;
    return nullptr;
  }

  // Without a lock: whoever asks about an object has seen its creation return.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Chain {
    std::mutex mutex;
    Record* first = nullptr;
  };
  static constexpr size_t kChains = 1024;

  Chain& chain_of(const void* key) {
    // Heap pointers differ in the middle: a multiplicative hash brings that to the top.
    const auto bits = reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15u;
    return chains_[bits >> 54];
  }

  std::array<Chain, kChains> chains_;
  std::atomic<size_t> count_{0};
};

}  // namespace keyhole::exp
