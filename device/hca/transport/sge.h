// SPDX-License-Identifier: BSD-2-Clause
//
// From scatter/gather entries to host memory. An entry's key is looked up when its bytes are needed
// and not before: of a receive's buffer only what a message fills, of a long message only this
// turn's part. So a key that goes away while a message is under way stops it at the next segment.

#pragma once

#include <cstdint>
#include <span>

#include "hca/mkey_table.h"
#include "hca/transport/copy.h"
#include "hca/transport/wqe.h"
#include "keyhole_hw.h"

namespace keyhole {

struct Gathered {
  uint32_t bytes = 0;
  uint32_t spans = 0;
  Verdict verdict;
};

// Finds the bytes [offset, offset + length) of what the entries name, for reading. Stops early when
// `spans` is full; then it gives a multiple of `unit` bytes (a power of 2). The rest of each entry
// that it touches is checked too.
Gathered gather(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, uint32_t unit, std::span<HostSpan> spans);

// Stores `length` bytes at `offset` of what the entries name; they have that much room.
Verdict scatter(MkeyTable& mkeys, const KeyUser& who, std::span<const kh_sge> entries,
                uint64_t offset, uint32_t length, SpanCursor from);

// Stores bytes that come from `from` behind a checked key, all that the cursor has left but at most
// `length`. False: the guest has taken the memory away.
inline bool store(MemoryCursor& to, SpanCursor& from, uint64_t length) {
  while (length > 0 && to.left() > 0 && !from.done()) {
    HostSpan span = to.next(std::min<uint64_t>(length, from.size()));
    if (!span) [[unlikely]]
      return false;
    copy_bytes(span.host, from.data(), span.size);
    from.advance(span.size);
    length -= span.size;
  }
  return true;
}

constexpr Verdict local_protection(uint32_t syndrome) {
  return {KH_WC_LOC_PROT_ERR, static_cast<uint16_t>(syndrome)};
}

}  // namespace keyhole
