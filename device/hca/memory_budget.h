// SPDX-License-Identifier: BSD-2-Clause
//
// How much memory of this process one HCA may make the device spend. Whatever a guest can cause to
// be allocated is charged here first, at about its true size, and refused with ENOMEM at the limit.

#pragma once

#include <cstdint>
#include <utility>

namespace keyhole {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) : limit_(limit) {}

  bool take(uint64_t bytes) {
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void give(uint64_t bytes) { used_ -= bytes; }

  uint64_t used() const { return used_; }
  uint64_t limit() const { return limit_; }

 private:
  uint64_t limit_;
  uint64_t used_ = 0;
};

// A part of the budget, given back when this goes.
class Charge {
 public:
  Charge() = default;
  // Test it: false when the budget has no more.
  Charge(MemoryBudget& budget, uint64_t bytes) {
    if (!budget.take(bytes)) return;
    budget_ = &budget;
    bytes_ = bytes;
  }
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this != &other) {
      release();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { release(); }

  explicit operator bool() const { return budget_ != nullptr; }

  void release() {
    if (budget_) budget_->give(bytes_);
    budget_ = nullptr;
    bytes_ = 0;
  }

 private:
  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace keyhole
