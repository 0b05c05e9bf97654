// SPDX-License-Identifier: BSD-2-Clause
//
// Indirect keys: what UMR_FILL has given one, and the way from its bytes to memory.
//
// The entries of a key are kept as two arrays. Who reads on from where he is looks at `entries`
// alone, 16 bytes each and in order. Who begins in the middle searches `offsets`, 8 bytes each: the
// place of an entry's first byte and its number as the request gave it, in one word, so that empty
// entries can be dropped and errors still name the right one. A strided key has a third array, and
// its offsets are those of one round.
//
// An entry names another key, which may be gone, filled anew or deeper than it was. So nothing that
// was found at the fill is kept: each use looks the entry's key up and checks it as the fill did,
// for the bytes that are used. Nesting ends at KH_MAX_DEPTH, so a cycle ends there too.

#pragma once

#include <cstdint>
#include <expected>
#include <vector>

#include "hca/host.h"
#include "hca/memory_budget.h"
#include "keyhole_hw.h"

namespace keyhole {

class MkeyTable;
class PageList;
struct KeyUser;
struct Mkey;

// Entries of indirect keys that this thread has looked at. Who gives turns takes them for work that
// the bytes moved do not show: a list may have an entry for each byte.
inline thread_local constinit uint64_t walked_entries = 0;

struct EntryTable {
  struct Entry {
    uint64_t addr;  // of round 0
    uint32_t length;
    uint32_t key;
  };
  static constexpr unsigned number_bits = 16;
  static_assert(KH_MAX_INDIRECT <= 1u << number_bits);
  // KH_MAX_INDIRECT entries of 32 bit lengths: an offset fits into what is left.
  static_assert(uint64_t{KH_MAX_INDIRECT} * UINT32_MAX < uint64_t{1} << (64 - number_bits));

  // Bytes of memory for each entry, at most.
  static constexpr uint64_t bytes_each = sizeof(Entry) + 2 * sizeof(uint64_t);

  std::vector<Entry> entries;     // none of them empty
  std::vector<uint64_t> offsets;  // in a round << number_bits | number in the request
  std::vector<uint64_t> strides;  // of a strided key
  uint64_t period = 0;            // bytes of a round
  uint32_t rounds = 0;            // 0: not strided
  uint8_t depth = 1;

  void clear(uint32_t repeat_count);
  void reserve(uint32_t n);
  void add(const Entry& entry, uint64_t stride, uint32_t number);
  // Without giving up the memory that it has.
  void copy(const EntryTable& from);

  // The address of an entry in a round.
  uint64_t addr(uint32_t entry, uint32_t round) const {
    return rounds > 0 ? entries[entry].addr + round * strides[entry] : entries[entry].addr;
  }
  // From an entry to the next, which may be the first of another round.
  void step(uint32_t& entry, uint32_t& round) const {
    if (++entry < entries.size()) return;
    entry = 0;
    ++round;
  }
  uint32_t number(uint32_t entry) const {
    return static_cast<uint32_t>(offsets[entry] & ((1u << number_bits) - 1));
  }
};

class KeyFill;

// What an INDIRECT key has besides what all keys have.
struct Indirect {
  EntryTable table;
  uint32_t created_access = 0;
  const KeyFill* filler = nullptr;  // the long fill that is under way
  Charge charge;

  // Of the contents, and of those that a refill prepares meanwhile.
  static uint64_t cost(uint32_t max_entries) {
    return sizeof(Indirect) + 2 * EntryTable::bytes_each * max_entries;
  }
};

// What a cursor has come upon: so many spans, and so many bytes in them.
struct Found {
  size_t spans;
  uint64_t bytes;
};

// The place in an indirect key that a MemoryCursor has reached. There is one in a table, and a new
// cursor takes it over: nobody reads from two at a time.
class KeyWalk {
 public:
  explicit KeyWalk(const MkeyTable& keys) : keys_(keys) {}

  // From `position` of `mkey` on, `length` bytes (> 0) that are known to lie inside it. `use` is
  // KH_SYN_LOCAL_ENTRY or KH_SYN_REMOTE_ENTRY.
  void begin(const Mkey& mkey, uint64_t position, uint64_t length, bool write, uint32_t pdn,
             uint32_t use);

  // As MemoryCursor::next(), whose `left` is what the cursor has left.
  Found next(HostSpan* to, size_t room, uint64_t max, uint64_t left);

  // Why next() gave nothing.
  uint32_t error() const { return use_ | reason_ | index_ << 16; }
  // The syndrome for a cell that lies in two entries, when the last span ended with its entry;
  // else 0.
  uint32_t border() const { return entry_ended_ ? use_ | KH_SYN_KEY_ENTRY | index_ << 16 : 0; }

 private:
  struct Level {
    const EntryTable* table;
    uint64_t into;  // bytes into the entry
    uint64_t left;  // bytes that are wanted from here on
    uint32_t entry;
    uint32_t round;
  };

  void enter(const EntryTable& table, uint64_t position, uint64_t length);
  bool descend(Level& level);

  const MkeyTable& keys_;
  uint64_t left_ = 0;
  uint32_t pdn_ = 0;
  uint32_t use_ = 0;
  uint32_t index_ = 0;  // of the entry of the outermost key, as it was given
  uint32_t reason_ = KH_SYN_KEY_MEMORY;
  uint32_t depth_ = 0;
  bool write_ = false;
  bool entry_ended_ = false;  // with the last span
  Level levels_[KH_MAX_DEPTH] = {};
};

// A UMR_FILL of a long list, in steps. What is read is kept apart until all of it is there and has
// passed; a fill that fails, or is let go of, has changed nothing. A key has one at a time: another
// waits.
class KeyFill {
 public:
  KeyFill(MkeyTable& keys, const kh_wqe_umr& request, const KeyUser& who);
  ~KeyFill();
  KeyFill(const KeyFill&) = delete;
  KeyFill& operator=(const KeyFill&) = delete;

  enum class Step : uint8_t {
    done,
    more,
    waiting,  // for another fill of this key
  };
  // Reads up to `entries` more. An error is a syndrome.
  std::expected<Step, uint32_t> step(uint32_t entries);

 private:
  MkeyTable& keys_;
  kh_wqe_umr request_;
  const KeyUser& who_;
  EntryTable staged_;
  uint32_t read_ = 0;
};

}  // namespace keyhole
