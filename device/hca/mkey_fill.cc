// SPDX-License-Identifier: BSD-2-Clause
//
// UMR_FILL and UMR_INV.
//
// The entries are copied, each is checked in the copy, and only when all have passed does the key
// change, in one step. Short fills do this at once; for long lists see KeyFill in indirect.h.

#include <algorithm>
#include <cstring>

#include "hca/indirect.h"
#include "hca/mkey_table.h"

namespace keyhole {

namespace {

std::unexpected<uint32_t> refuse(uint32_t syndrome) { return std::unexpected(syndrome); }

size_t entry_size(const kh_wqe_umr& request) {
  return request.repeat_count ? sizeof(kh_stride) : sizeof(kh_klm);
}

}  // namespace

// The key of a request, if it may be filled as the request says; its entries have not been looked
// at.
std::expected<Mkey*, uint32_t> MkeyTable::key_for_fill(const kh_wqe_umr& request,
                                                       const KeyUser& who) {
  auto found = indirect_for(request.key, who);
  if (!found) return found;
  Mkey* mkey = *found;
  if (request.num_entries == 0 || request.num_entries > mkey->max_entries)
    return refuse(KH_SYN_UMR_COUNT);
  const uint32_t access = request.access;
  if ((access & ~KH_ACCESS_MASK) ||
      ((access & KH_ACCESS_MW_BIND) && !(mkey->indirect->created_access & KH_ACCESS_MW_BIND)) ||
      ((access & (KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC)) &&
       !(access & KH_ACCESS_LOCAL_WRITE)))
    return refuse(KH_SYN_UMR_ACCESS);
  if ((access & KH_ACCESS_ZERO_BASED) && request.start != 0) return refuse(KH_SYN_UMR_RANGE);
  return mkey;
}

// An indirect key that may be changed.
std::expected<Mkey*, uint32_t> MkeyTable::indirect_for(uint32_t key, const KeyUser& who) {
  Mkey* mkey = find(key);
  if (!mkey || mkey->kind == MkeyKind::none) return refuse(KH_SYN_UMR_KEY);
  if (mkey->kind != MkeyKind::indirect) return refuse(KH_SYN_UMR_KIND);
  if (mkey->pdn != who.pdn) return refuse(KH_SYN_UMR_PD);
  if (mkey->windows > 0) return refuse(KH_SYN_UMR_BUSY);
  return mkey;
}

// Copies entries `first` .. `first + count` of the request's list.
std::expected<void, uint32_t> MkeyTable::read_list(const kh_wqe_umr& request, uint32_t first,
                                                   uint32_t count, const KeyUser& who,
                                                   std::byte* to) const {
  const Mkey* list = find(request.list_key);
  if (!list || list->kind != MkeyKind::klm_list || list->pdn != who.pdn)
    return refuse(KH_SYN_UMR_LIST);
  // All of it must be there, not only this part.
  const uint64_t size = entry_size(request);
  const uint64_t all = size * request.num_entries;
  if ((request.list_offset & 7) || request.list_offset > list->length ||
      all > list->length - request.list_offset)
    return refuse(KH_SYN_UMR_LIST);
  uint64_t at = list->offset + request.list_offset + size * first;
  uint64_t left = size * count;
  while (left > 0) {
    HostSpan span = list->pages.span(at, left, false);
    if (!span) return refuse(KH_SYN_UMR_LIST);
    std::memcpy(to, span.host, span.size);
    to += span.size;
    at += span.size;
    left -= span.size;
  }
  // What is checked is what is used.
  asm volatile("" : : : "memory");
  return {};
}

// Checks entries, which nobody else can change, and adds them to what the key is to have.
std::expected<void, uint32_t> MkeyTable::add_entries(const kh_wqe_umr& request, uint32_t first,
                                                     uint32_t count, const KeyUser& who,
                                                     const std::byte* from, EntryTable& to) const {
  const size_t size = entry_size(request);
  const bool write = (request.access & KH_ACCESS_LOCAL_WRITE) != 0;
  for (uint32_t number = first; number < first + count; ++number, from += size) {
    kh_stride entry{};
    std::memcpy(&entry, from, size);
    if (entry.length == 0) continue;
    auto fault = [&](uint32_t reason) {
      return refuse(KH_SYN_UMR_ENTRY | reason | number << 16);
    };
    if (entry.lkey == request.key) return fault(KH_SYN_KEY_DEPTH);
    const Mkey* mkey = find(entry.lkey);
    // Those of the last round lie behind all others.
    unsigned __int128 reach = entry.length;
    if (request.repeat_count > 1)
      reach += static_cast<unsigned __int128>(entry.stride) * (request.repeat_count - 1);
    // What takes more than 64 bits lies in no key, not even in one of 2^64 - 1 bytes.
    const bool wraps = reach > UINT64_MAX;
    const uint64_t span = wraps ? UINT64_MAX : static_cast<uint64_t>(reach);
    uint32_t reason = entry_fault(mkey, entry.lkey, entry.addr, span, write, who.pdn);
    if (wraps && (reason == KH_SYN_NONE || reason == KH_SYN_KEY_RIGHTS)) reason = KH_SYN_KEY_RANGE;
    if (reason != KH_SYN_NONE) return fault(reason);
    if (mkey->kind == MkeyKind::indirect) {
      const uint8_t depth = mkey->indirect->table.depth;
      if (depth >= KH_MAX_DEPTH) return fault(KH_SYN_KEY_DEPTH);
      to.depth = std::max<uint8_t>(to.depth, depth + 1);
    }
    to.add({entry.addr, entry.length, entry.lkey}, entry.stride, number);
  }
  return {};
}

// The length of a key with these entries.
std::expected<uint64_t, uint32_t> MkeyTable::fill_length(const kh_wqe_umr& request,
                                                         const EntryTable& table) {
  unsigned __int128 length = table.period;
  if (table.rounds > 0) length *= table.rounds;
  if (length > UINT64_MAX) return refuse(KH_SYN_UMR_RANGE);
  auto bytes = static_cast<uint64_t>(length);
  if (bytes > 0 && request.start + (bytes - 1) < request.start) return refuse(KH_SYN_UMR_RANGE);
  return bytes;
}

void MkeyTable::finish_fill(Mkey& mkey, const kh_wqe_umr& request, uint64_t length) {
  mkey.access = request.access | (mkey.indirect->created_access & KH_ACCESS_MW_BIND);
  mkey.start = request.start;
  mkey.length = length;
  mkey.valid = true;
}

std::expected<void, uint32_t> MkeyTable::fill(const kh_wqe_umr& request,
                                              const std::byte* inline_entries, const KeyUser& who) {
  auto key = key_for_fill(request, who);
  if (!key) return refuse(key.error());
  alignas(8) std::byte copy[KH_MAX_INLINE_ENTRIES * sizeof(kh_stride)];
  if (!inline_entries) {
    if (auto read = read_list(request, 0, request.num_entries, who, copy); !read) return read;
    inline_entries = copy;
  }
  scratch_.clear(request.repeat_count);
  auto added = add_entries(request, 0, request.num_entries, who, inline_entries, scratch_);
  if (!added) return added;
  auto length = fill_length(request, scratch_);
  if (!length) return refuse(length.error());
  EntryTable& table = (*key)->indirect->table;
  table.copy(scratch_);
  finish_fill(**key, request, *length);
  return {};
}

std::expected<void, uint32_t> MkeyTable::unfill(uint32_t key, const KeyUser& who) {
  auto found = indirect_for(key, who);
  if (!found) return refuse(found.error());
  Mkey& mkey = **found;
  mkey.valid = false;
  mkey.access = mkey.indirect->created_access;
  mkey.start = mkey.length = 0;
  mkey.indirect->table.clear(0);
  return {};
}

// --- Long lists -------------------------------------------------------------------------------

KeyFill::KeyFill(MkeyTable& keys, const kh_wqe_umr& request, const KeyUser& who)
    : keys_(keys), request_(request), who_(who) {
  staged_.clear(request_.repeat_count);
}

KeyFill::~KeyFill() {
  Mkey* mkey = keys_.find(request_.key);
  if (mkey && mkey->indirect && mkey->indirect->filler == this) mkey->indirect->filler = nullptr;
}

std::expected<KeyFill::Step, uint32_t> KeyFill::step(uint32_t entries) {
  // Much may have happened since the last turn.
  auto key = keys_.key_for_fill(request_, who_);
  if (!key) return refuse(key.error());
  Indirect& indirect = *(*key)->indirect;
  if (indirect.filler != this) {
    if (indirect.filler) return Step::waiting;
    indirect.filler = this;
    staged_.reserve(request_.num_entries);
  }
  std::byte copy[KH_MAX_INLINE_ENTRIES * sizeof(kh_stride)];
  while (entries > 0 && read_ < request_.num_entries) {
    const uint32_t count =
        std::min({entries, request_.num_entries - read_, uint32_t{KH_MAX_INLINE_ENTRIES}});
    if (auto read = keys_.read_list(request_, read_, count, who_, copy); !read)
      return refuse(read.error());
    if (auto added = keys_.add_entries(request_, read_, count, who_, copy, staged_); !added)
      return refuse(added.error());
    read_ += count;
    entries -= count;
  }
  if (read_ < request_.num_entries) return Step::more;
  auto length = MkeyTable::fill_length(request_, staged_);
  if (!length) return refuse(length.error());
  std::swap(indirect.table, staged_);
  MkeyTable::finish_fill(**key, request_, *length);
  return Step::done;
}

}  // namespace keyhole
