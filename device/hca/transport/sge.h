// SPDX-License-Identifier: BSD-2-Clause
//
// From scatter/gather entries to host memory. An entry's key is looked up when its bytes are needed
// and not before: of a receive's buffer only what a message fills, of a long message only this
// turn's part. So a key that goes away while a message is under way stops it at the next segment.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "hca/mkey_table.h"
#include "hca/run_queue.h"
#include "hca/transport/copy.h"
#include "hca/transport/wqe.h"
#include "keyhole_hw.h"

namespace keyhole {

struct Gathered {
  uint32_t bytes = 0;
  uint32_t spans = 0;
  Verdict verdict;
};

// Entries of indirect keys that are looked at for one segment, about; a segment that needs more is
// cut between two packets.
inline constexpr uint64_t kEntriesAtOnce = 1024;
// What one costs a turn's quantum, in bytes moved.
inline constexpr uint32_t kEntryCost = 64;

// Charges a turn for the entries looked at since it last did.
class EntryMeter {
 public:
  void charge(Quantum& quantum) {
    quantum.bytes -= static_cast<int64_t>((walked_entries - seen_) * kEntryCost);
    seen_ = walked_entries;
  }

 private:
  uint64_t seen_ = walked_entries;
};

// Spans of one segment's payload: enough for the largest packet with the most entries, each of
// them across a page border, and for some packets of an indirect key's small pieces.
inline constexpr size_t kSpans = 256;
static_assert(kSpans > 2 * KH_MAX_SGE + 2);
// The largest packet.
inline constexpr size_t kPacket = 4096;

// Not initialised: it is made for each segment, and mostly one span of it is used. Of an indirect
// key's entries a packet may need thousands; then its bytes are put together here.
struct Spans {
  union {
    HostSpan at[kSpans];
  };
  std::byte packed[kPacket];
  Spans() {}
  HostSpan* data() { return at; }
  HostSpan& operator[](size_t i) { return at[i]; }
};

// Finds the bytes [offset, offset + length) of what the entries name, for reading. Stops early when
// `spans` is full; then it gives a multiple of `unit` bytes (a power of 2, at most kPacket), and
// not none. The rest of each entry that it touches is checked too.
Gathered gather(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, uint32_t unit, Spans& spans);

// The same for the next bytes behind one remote key.
Gathered gather(MemoryCursor& from, uint32_t length, uint32_t unit, Spans& spans);

struct Scattered {
  uint32_t bytes = 0;
  Verdict verdict;
};

// Stores `length` bytes at `offset` of what the entries name; they have that much room. May stop at
// a multiple of `unit` (a power of 2) when indirect keys make it long.
Scattered scatter(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                  uint64_t offset, uint32_t length, uint32_t unit, SpanCursor from);

// Bytes on their way into indirect keys: how many entries they may still have looked at.
struct StoreLimit {
  uint64_t entries;  // of walked_entries
  uint32_t unit;     // what is stored ends at a multiple of this, when they run out
  uint32_t before;   // bytes stored so far, if it is not from here that they count

  static StoreLimit from_now(uint32_t unit) { return {walked_entries + kEntriesAtOnce, unit, 0}; }
  bool over() const { return walked_entries >= entries; }
  // Bytes from here to the end of the unit; none when one has just ended.
  uint32_t rest_of_unit(uint32_t done) const { return -(before + done) & (unit - 1); }
};

// Of store(), where the bytes behind the key come in many pieces.
std::optional<uint32_t> store_in_pieces(MemoryCursor& to, HostSpan first, SpanCursor& from,
                                        uint32_t length, const StoreLimit& limit);

// Stores bytes that come from `from` behind a checked key: `length` of them, which the key and the
// cursor have, or fewer when an indirect key makes it long. The bytes stored; none: some of the
// memory is not there, and the cursor says why.
inline std::optional<uint32_t> store(MemoryCursor& to, SpanCursor& from, uint32_t length,
                                     const StoreLimit& limit) {
  if (length == 0) [[unlikely]]
    return 0;
  HostSpan span;
  if (!to.indirect()) [[likely]] {
    span = to.next(length);
    if (!span) [[unlikely]]
      return std::nullopt;
    if (span.size == length) [[likely]] {
      // From many pieces into one.
      copy_spans({&span, 1}, from);
      return length;
    }
  }
  return store_in_pieces(to, span, from, length, limit);
}

constexpr Verdict local_protection(uint32_t syndrome) { return {KH_WC_LOC_PROT_ERR, syndrome}; }

}  // namespace keyhole
