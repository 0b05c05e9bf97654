// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// See buffer.h.

#include "buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace keyhole {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Maps `length` bytes at a multiple of `align`, by mapping more and giving the ends back.
void* map_aligned(size_t length, size_t align) {
  const size_t slack = align - page_size();
  void* mapped =
      mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + align - 1) & ~(align - 1);
  const size_t before = aligned - start;
  if (before) munmap(mapped, before);
  if (slack - before) munmap(reinterpret_cast<void*>(aligned + length), slack - before);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::expected<QueueBuffer, int> QueueBuffer::allocate(size_t length, Pd* domain,
                                                      ResourceType type) {
  QueueBuffer buffer;
  buffer.size_ = length;
  buffer.type_ = type;

  if (domain && domain->alloc) {
    void* memory = domain->alloc(&domain->ibv, domain->context, length, page_size(),
                                 static_cast<uint64_t>(type));
    if (!memory) return std::unexpected(ENOMEM);
    if (memory != IBV_ALLOCATOR_USE_DEFAULT) {
      buffer.data_ = memory;
      buffer.owner_ = domain;
      if (reinterpret_cast<uintptr_t>(memory) % page_size()) return std::unexpected(EINVAL);
      // The allocator ought to have done it; a stale phase bit would be a completion that never
      // was.
      std::memset(memory, 0, length);
      return buffer;
    }
  }

  const bool huge = length >= kHugePage;
  void* memory = map_aligned(length, huge ? kHugePage : page_size());
  if (!memory) return std::unexpected(ENOMEM);
  if (huge) madvise(memory, length, MADV_HUGEPAGE);  // a wish; small pages do as well
  if (ibv_dontfork_range(memory, length)) {
    munmap(memory, length);
    return std::unexpected(ENOMEM);
  }
  buffer.data_ = memory;
  return buffer;
}

QueueBuffer::~QueueBuffer() {
  if (!data_) return;
  if (owner_) {
    owner_->free(&owner_->ibv, owner_->context, data_, static_cast<uint64_t>(type_));
  } else {
    ibv_dofork_range(data_, size_);
    munmap(data_, size_);
  }
}

void QueueBuffer::swap(QueueBuffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(owner_, other.owner_);
  std::swap(type_, other.type_);
}

}  // namespace keyhole
