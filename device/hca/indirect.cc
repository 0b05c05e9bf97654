// SPDX-License-Identifier: BSD-2-Clause

#include "hca/indirect.h"

#include <algorithm>

#include "hca/mkey_table.h"

namespace keyhole {
namespace {

// Entries that next() looks at before it gives what it has found, which may be a single span.
constexpr uint64_t kLooks = 128;

}  // namespace

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
  entry_ended_ = false;
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

// The entry that `level` has reached is not one of a direct key that can be read on. False: it does
// not hold, for reason_; else the walk goes on inside the key that it names.
bool KeyWalk::descend(Level& level) {
  const EntryTable& table = *level.table;
  const EntryTable::Entry& entry = table.entries[level.entry];
  const uint64_t addr = table.addr(level.entry, level.round) + level.into;
  const uint64_t rest = entry.length - level.into;
  const uint64_t bytes = std::min(rest, level.left);
  const Mkey* mkey = keys_.find(entry.key);
  reason_ = keys_.entry_fault(mkey, entry.key, addr, bytes, write_, pdn_);
  if (reason_ != KH_SYN_NONE) return false;
  if (mkey->kind == MkeyKind::direct) {
    // The key is as it should be, and the guest has taken the memory away.
    reason_ = KH_SYN_KEY_MEMORY;
    return false;
  }
  if (depth_ == KH_MAX_DEPTH) {
    reason_ = KH_SYN_KEY_DEPTH;
    return false;
  }
  // This level goes on behind them.
  level.left -= bytes;
  level.into += bytes;
  if (bytes == rest) {
    level.into = 0;
    table.step(level.entry, level.round);
  }
  enter(mkey->indirect->table, addr - mkey->start, bytes);
  return true;
}

Found KeyWalk::next(HostSpan* to, size_t room, uint64_t max, uint64_t left) {
  Found found{0, 0};
  if (left != left_) {
    // Another cursor has begun since.
    reason_ = KH_SYN_KEY_MEMORY;
    return found;
  }
  uint64_t looks = 0;
  // Entries mostly name one key, and in this call no key changes.
  const Mkey* mkey = nullptr;
  uint32_t known = 0;  // whose rights have been checked; no key is 0
  while (found.spans < room && found.bytes < max && looks < kLooks) {
    while (levels_[depth_ - 1].left == 0)
      --depth_;
    Level& level = levels_[depth_ - 1];
    const EntryTable& table = *level.table;
    uint32_t index = level.entry;
    uint32_t last = index;
    uint64_t into = level.into;
    uint64_t level_left = level.left;
    ++looks;
    bool stuck = false;

    // Entries of direct keys, one after the other.
    while (found.spans < room && found.bytes < max && level_left > 0 && looks <= kLooks) {
      const EntryTable::Entry& entry = table.entries[index];
      const uint64_t addr = table.addr(index, level.round) + into;
      const uint64_t rest = entry.length - into;
      const uint64_t bytes = std::min(rest, level_left);
      if (entry.key != known) {
        mkey = keys_.find(entry.key);
        known = MkeyTable::plain_key(mkey, write_, pdn_) ? entry.key : 0;
      }
      stuck = known == 0 || !MkeyTable::holds(*mkey, addr, bytes);
      if (stuck) [[unlikely]]
        break;
      HostSpan span = mkey->pages.span(mkey->offset + (addr - mkey->start),
                                       std::min(bytes, max - found.bytes), write_);
      stuck = !span;
      if (stuck) [[unlikely]]
        break;
      // Entries in the order of memory make one span.
      if (found.spans > 0 && to[found.spans - 1].host + to[found.spans - 1].size == span.host)
        to[found.spans - 1].size += span.size;
      else
        to[found.spans++] = span;
      found.bytes += span.size;
      level_left -= span.size;
      last = index;
      into += span.size;
      if (span.size == rest) {
        into = 0;
        ++looks;
        table.step(index, level.round);
      }
    }
    level.entry = index;
    level.into = into;
    level.left = level_left;
    entry_ended_ = into == 0 || level_left == 0;
    if (depth_ == 1) index_ = table.number(last);
    if (!stuck) continue;
    // What has been found is given first; then this is looked at again.
    if (found.spans > 0) break;
    if (depth_ == 1) index_ = table.number(index);
    if (!descend(level)) break;
  }
  walked_entries += looks;
  left_ -= found.bytes;
  return found;
}

}  // namespace keyhole
