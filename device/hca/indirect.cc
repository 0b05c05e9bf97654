// SPDX-License-Identifier: BSD-2-Clause

#include "hca/indirect.h"

#include <algorithm>

#include "hca/mkey_table.h"

namespace keyhole {

void EntryTable::clear(uint32_t repeat_count) {
  entries.clear();
  offsets.clear();
  strides.clear();
  period = 0;
  rounds = repeat_count;
  depth = 1;
}

void EntryTable::reserve(uint32_t n) {
  entries.reserve(n);
  offsets.reserve(n);
  if (rounds > 0) strides.reserve(n);
}

void EntryTable::add(const Entry& entry, uint64_t stride, uint32_t number) {
  entries.push_back(entry);
  offsets.push_back(period << number_bits | number);
  if (rounds > 0) strides.push_back(stride);
  period += entry.length;
}

void EntryTable::copy(const EntryTable& from) {
  entries.assign(from.entries.begin(), from.entries.end());
  offsets.assign(from.offsets.begin(), from.offsets.end());
  strides.assign(from.strides.begin(), from.strides.end());
  period = from.period;
  rounds = from.rounds;
  depth = from.depth;
}

void KeyWalk::begin(const Mkey& mkey, uint64_t position, uint64_t length, bool write, uint32_t pdn,
                    uint32_t use) {
  left_ = length;
  pdn_ = pdn;
  use_ = use;
  write_ = write;
  run_ = 0;
  depth_ = 0;
  enter(mkey.indirect->table, position, length);
}

// One level deeper: the entry that has byte `position`.
void KeyWalk::enter(const EntryTable& table, uint64_t position, uint64_t length) {
  Level& level = levels_[depth_++];
  level.table = &table;
  level.left = length;
  level.round = 0;
  if (table.rounds > 0) {
    level.round = static_cast<uint32_t>(position / table.period);
    position %= table.period;
  }
  // The last entry that begins at or before it.
  const uint64_t* base = table.offsets.data();
  size_t n = table.offsets.size();
  while (n > 1) {
    size_t half = n / 2;
    base = base[half] >> EntryTable::number_bits <= position ? base + half : base;
    n -= half;
  }
  level.entry = static_cast<uint32_t>(base - table.offsets.data());
  level.into = position - (*base >> EntryTable::number_bits);
  ++walked_entries;
}

// Goes to the next bytes that lie in a direct key. False: there are none, for reason_.
bool KeyWalk::find_run() {
  for (;;) {
    while (levels_[depth_ - 1].left == 0)
      --depth_;
    Level& level = levels_[depth_ - 1];
    const EntryTable& table = *level.table;
    const EntryTable::Entry& entry = table.entries[level.entry];
    if (depth_ == 1) index_ = table.number(level.entry);
    ++walked_entries;

    uint64_t addr = entry.addr + level.into;
    if (table.rounds > 0) addr += level.round * table.strides[level.entry];
    const uint64_t rest = entry.length - level.into;
    const uint64_t bytes = std::min(rest, level.left);
    const Mkey* mkey = keys_.find(entry.key);
    reason_ = keys_.entry_fault(mkey, entry.key, addr, bytes, write_, pdn_);
    if (reason_ != KH_SYN_NONE) [[unlikely]]
      return false;
    const bool direct = mkey->kind == MkeyKind::direct;
    if (!direct && depth_ == KH_MAX_DEPTH) {
      reason_ = KH_SYN_KEY_DEPTH;
      return false;
    }

    // This level goes on behind them.
    level.left -= bytes;
    if (bytes < rest) {
      level.into += bytes;
    } else {
      level.into = 0;
      if (++level.entry == table.entries.size()) {
        level.entry = 0;
        ++level.round;
      }
    }
    if (direct) {
      pages_ = &mkey->pages;
      position_ = mkey->offset + (addr - mkey->start);
      run_ = bytes;
      return true;
    }
    enter(mkey->indirect->table, addr - mkey->start, bytes);
  }
}

HostSpan KeyWalk::next(uint64_t max, uint64_t left) {
  if (left != left_) {
    // Another cursor has begun since.
    reason_ = KH_SYN_KEY_MEMORY;
    return {};
  }
  if (run_ == 0 && !find_run()) [[unlikely]]
    return {};
  HostSpan span = pages_->span(position_, std::min(max, run_), write_);
  if (!span) [[unlikely]] {
    reason_ = KH_SYN_KEY_MEMORY;
    return {};
  }
  position_ += span.size;
  run_ -= span.size;
  left_ -= span.size;
  return span;
}

}  // namespace keyhole
