// SPDX-License-Identifier: BSD-2-Clause
//
// Guest memory is a file that another process owns. If that process truncates the file, our next
// load or store behind its new end raises SIGBUS, in the middle of a copy and with nobody to blame
// but the kernel's messenger. Checking the size before each access would be slow and still a race.
//
// So the mappings of guest memory are registered here, and a process-wide SIGBUS handler looks the
// faulting address up. If it lies in one of them, the handler maps zero-filled anonymous memory
// over the mapping from that page to its end, marks the mapping as damaged and returns: the access
// is done again and succeeds. The copy finishes, its owner sees damaged() and stops using the
// memory. From the faulting page to the end, because that is what a truncated file has lost, and
// because page by page a hostile client could make us spend a kernel mapping on every second page.
//
// Any other SIGBUS goes to whoever had the signal before, and by default ends the process.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace keyhole::vfio_user {

// The registration of one mapping, for as long as it lives. May be made and dropped by any thread;
// whoever drops it has stopped using the memory, and unmaps it afterwards.
class SigbusGuard {
 public:
  SigbusGuard() = default;
  // `page_size` is that of the mapping: a huge page is lost as a whole.
  SigbusGuard(std::span<std::byte> mapping, size_t page_size);
  SigbusGuard(SigbusGuard&& other) noexcept;
  SigbusGuard& operator=(SigbusGuard&& other) noexcept;
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;
  ~SigbusGuard();

  // False when all slots are taken (some 64 thousand): the mapping is not protected.
  explicit operator bool() const { return slot_ != nullptr; }

  // Some of the mapping has been lost and replaced by zeroes.
  bool damaged() const;

  // How many faults have been survived in this process, ever. While it does not move, no mapping
  // has been damaged anew: one load to look at on each turn of a loop.
  static uint64_t faults() { return faults_.load(std::memory_order_relaxed); }

  struct Slot;

 private:
  friend bool replace_lost_memory(std::uintptr_t address);
  static std::atomic<uint64_t> faults_;

  Slot* slot_ = nullptr;
};

}  // namespace keyhole::vfio_user
