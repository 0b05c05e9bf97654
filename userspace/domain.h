// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Protection domains, parent domains and thread domains.
//
// A parent domain is a protection domain of the kernel's seen through a second object, which adds
// what a program wants for the queues that it creates under it: its own memory, and the promise
// that one thread alone uses them. Nothing of that reaches the kernel. Both kinds are one struct
// here, because verbs hand either as an ibv_pd; a plain one has no `protection_domain`.
//
// Objects are counted, since the kernel does not know of parent and thread domains and so cannot
// refuse to free one that is in use.

#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "rdma_core.h"

namespace keyhole {

struct ThreadDomain {
  ibv_td ibv{};
  std::atomic<uint32_t> users{0};  // parent domains
};

struct Pd {
  ibv_pd ibv{};
  std::atomic<uint32_t> users{0};  // parent domains of a plain one, queues of a parent domain

  // Of a parent domain; else null.
  Pd* protection_domain = nullptr;
  ThreadDomain* thread_domain = nullptr;
  void* (*alloc)(ibv_pd*, void*, size_t, size_t, uint64_t) = nullptr;
  void (*free)(ibv_pd*, void*, void*, uint64_t) = nullptr;
  void* context = nullptr;

  bool is_parent() const { return protection_domain != nullptr; }
  bool single_threaded() const { return thread_domain != nullptr; }
};

inline Pd& pd_of(ibv_pd* pd) { return *reinterpret_cast<Pd*>(pd); }
inline ThreadDomain& td_of(ibv_td* td) { return *reinterpret_cast<ThreadDomain*>(td); }

// Holds a parent domain for the life of a queue that was created under it. Empty for a plain
// protection domain, which the kernel itself guards.
class DomainUse {
 public:
  DomainUse() = default;
  explicit DomainUse(Pd* pd) : pd_(pd && pd->is_parent() ? pd : nullptr) {
    if (pd_) pd_->users.fetch_add(1, std::memory_order_relaxed);
  }
  DomainUse(DomainUse&& other) noexcept : pd_(other.pd_) { other.pd_ = nullptr; }
  DomainUse& operator=(DomainUse&& other) noexcept {
    std::swap(pd_, other.pd_);
    return *this;
  }
  ~DomainUse() {
    if (pd_) pd_->users.fetch_sub(1, std::memory_order_release);
  }

  Pd* parent() const { return pd_; }

 private:
  Pd* pd_ = nullptr;
};

}  // namespace keyhole
