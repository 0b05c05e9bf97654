// SPDX-License-Identifier: BSD-2-Clause
//
// Objects by number: a direct index, because QPNs are looked up for each message. A number's low
// bits are the index; numbers with spare high bits (QPNs) use them as a count of the index's uses,
// so that a number comes back late. Freed indexes are used again oldest first.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace keyhole {

template <typename T>
class IdTable {
 public:
  // Numbers below 1 << number_bits, indexes first_index .. first_index + capacity - 1, which fit
  // into index_bits.
  IdTable(uint32_t first_index, uint32_t capacity, uint32_t index_bits, uint32_t number_bits)
      : first_(first_index),
        capacity_(capacity),
        index_bits_(index_bits),
        number_bits_(number_bits) {}

  T* find(uint32_t number) const {
    uint32_t index = number & ((1u << index_bits_) - 1);
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    return slot.number == number ? slot.object.get() : nullptr;
  }

  // A number for a new object; none when all are taken. put() or give_back() it.
  std::optional<uint32_t> reserve() {
    uint32_t index = 0;
    // Rather a fresh index than one that has just been freed.
    bool fresh = next_fresh_ < capacity_;
    if (fresh && free_.size() < resting) {
      index = first_ + next_fresh_++;
    } else if (!free_.empty()) {
      index = free_.front();
      free_.pop_front();
    } else {
      return std::nullopt;
    }
    if (index >= slots_.size()) slots_.resize(index + 1);
    Slot& slot = slots_[index];
    uint32_t uses_mask = (1u << (number_bits_ - index_bits_)) - 1;
    slot.number = (slot.uses & uses_mask) << index_bits_ | index;
    ++slot.uses;
    return slot.number;
  }
  void give_back(uint32_t number) { free_.push_back(number & ((1u << index_bits_) - 1)); }

  // An index outside first_.. + capacity_, for objects with a fixed number (the GSI QP).
  T& put(uint32_t number, std::unique_ptr<T> object) {
    uint32_t index = number & ((1u << index_bits_) - 1);
    if (index >= slots_.size()) slots_.resize(index + 1);
    slots_[index].number = number;
    slots_[index].object = std::move(object);
    ++count_;
    return *slots_[index].object;
  }

  void erase(uint32_t number) {
    uint32_t index = number & ((1u << index_bits_) - 1);
    // Not findable while it is being destroyed.
    std::unique_ptr<T> object = std::move(slots_[index].object);
    object.reset();
    --count_;
    if (index >= first_) give_back(number);
  }

  uint32_t count() const { return count_; }

  template <typename Do>
  void each(Do&& act) const {
    for (const Slot& slot : slots_) {
      if (slot.object) act(*slot.object);
    }
  }

  void clear() {
    for (Slot& slot : slots_)
      slot.object.reset();
    slots_.clear();
    free_.clear();
    next_fresh_ = 0;
    count_ = 0;
  }

 private:
  struct Slot {
    uint32_t number = 0;
    uint32_t uses = 0;
    std::unique_ptr<T> object;
  };
  static constexpr size_t resting = 64;

  uint32_t first_;
  uint32_t capacity_;
  uint32_t index_bits_;
  uint32_t number_bits_;
  uint32_t next_fresh_ = 0;
  uint32_t count_ = 0;
  std::vector<Slot> slots_;
  std::deque<uint32_t> free_;
};

}  // namespace keyhole
