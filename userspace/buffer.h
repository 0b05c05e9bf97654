// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The memory of a queue: whole pages, zeroed, shared with nothing else of the process, and kept
// out of fork()ed children while the device writes to them.
//
// It comes from the application's allocator where the queue's parent domain has one and wants it,
// else from mmap. Large queues start at a huge page's border and ask for huge pages, so that the
// kernel has few to list and the device few to look up. Memory of the application's allocator is
// the application's to keep from being copied on fork: ibv_alloc_parent_domain(3) says so.

#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "domain.h"

namespace keyhole {

// What an application's allocator is told that the memory is for. The upper half is the rdma
// driver id, RDMA_DRIVER_UNKNOWN, which is 0.
enum class ResourceType : uint64_t { kQp = 1, kCq = 2, kSrq = 3, kKlmList = 4 };

class QueueBuffer {
 public:
  QueueBuffer() = default;
  QueueBuffer(QueueBuffer&& other) noexcept { swap(other); }
  QueueBuffer& operator=(QueueBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~QueueBuffer();

  // `length` is a multiple of the page size. ENOMEM, or EINVAL when the application's allocator
  // returned memory that is not aligned as it was asked to.
  static std::expected<QueueBuffer, int> allocate(size_t length, Pd* domain, ResourceType type);

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }
  bool from_application() const { return owner_ != nullptr; }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(data() + offset);
  }

  void swap(QueueBuffer& other) noexcept;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  Pd* owner_ = nullptr;  // whose allocator to return it to; null: mmap
  ResourceType type_ = ResourceType::kQp;
};

size_t page_size();

}  // namespace keyhole
