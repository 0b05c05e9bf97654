// SPDX-License-Identifier: BSD-2-Clause
//
// The model of what guest memory a device may write: every byte counts the reasons for which it may
// be written at present (a queue that the device fills, a key with write access). A byte that has
// none is frozen at the value that it had then, and check() compares. So a reason that ends (a key
// destroyed) ends the device's right at that moment, whatever was under way.
//
// Memory that the device may not even read is not this class's matter: it is unmapped.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace keyhole::fuzz {

struct Extent {
  size_t offset = 0;  // in the arena
  size_t size = 0;
};

class Oracle {
 public:
  // All is frozen as it is.
  explicit Oracle(std::span<std::byte> arena);

  // Parts outside the arena count for nothing.
  void allow(Extent extent);
  void forbid(Extent extent);  // one allow() less
  void allow(std::span<const Extent> extents);
  void forbid(std::span<const Extent> extents);

  // The guest itself has written there.
  void wrote(const void* at, size_t size);

  // The page of this process's memory is out of reach from now on, or is back: meanwhile nobody can
  // write it, and this must not read it.
  void hide(size_t page);
  void show(size_t page) { hidden_[page] = false; }
  bool hidden(size_t page) const { return hidden_[page]; }

  // Aborts when a frozen byte has changed.
  void check() const;

  // Where [at, at + size) lies.
  Extent extent(const void* at, size_t size) const {
    return {static_cast<size_t>(static_cast<const std::byte*>(at) - arena_.data()), size};
  }

 private:
  Extent clip(Extent extent) const;
  void check_page(size_t index) const;

  static constexpr size_t page = 4096;
  std::span<std::byte> arena_;
  std::vector<std::byte> frozen_;
  std::vector<uint16_t> reasons_;
  std::vector<uint32_t> open_;  // of each page: bytes that have reasons
  std::vector<bool> hidden_;
};

}  // namespace keyhole::fuzz
