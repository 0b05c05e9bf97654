// SPDX-License-Identifier: BSD-2-Clause
//
// The one table of memory keys. A key is index << 8 | variant, and all 32 bits are compared at each
// use. Freed indexes wait in a queue and come back oldest first, and never before a thousand others
// are free; the variant moves on at each allocation. So a stale key does not reach a new owner.
//
// A key that passes its checks yields a MemoryCursor, which hands out the bytes behind it as
// contiguous host spans. A cursor is good for the turn in which it was made, no longer: a message
// that takes several turns looks its keys up again in each (any key may be gone by then).
//
// Windows hold no memory of their own. A window is checked against its own range and rights, then
// its bytes are reached through the region that it is bound to, which is looked up at each use.
// Indirect keys have theirs in other keys: see indirect.h.

#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <memory>
#include <utility>
#include <vector>

#include "hca/host.h"
#include "hca/indirect.h"
#include "hca/memory_budget.h"
#include "hca/page_list.h"
#include "keyhole_hw.h"

namespace keyhole {

// enum kh_mkey_kind, and what an index without a key is.
enum class MkeyKind : uint8_t {
  direct = KH_MKEY_DIRECT,
  phys = KH_MKEY_PHYS,
  free = KH_MKEY_FREE,
  mw1 = KH_MKEY_MW1,
  mw2 = KH_MKEY_MW2,
  indirect = KH_MKEY_INDIRECT,
  klm_list = KH_MKEY_KLM_LIST,
  none = 0xff,
};

// Work requests give these another variant, and the driver is not told.
constexpr bool changes_by_itself(MkeyKind kind) {
  return kind == MkeyKind::mw1 || kind == MkeyKind::mw2 || kind == MkeyKind::free;
}

constexpr bool is_window(MkeyKind kind) { return kind == MkeyKind::mw1 || kind == MkeyKind::mw2; }

// Who uses a key: made once for each QP.
struct KeyUser {
  uint32_t pdn = 0;
  uint32_t qpn = 0;
  bool kernel = false;  // of context 0: may use the reserved key and PHYS keys
};

// The bytes behind a checked key.
class MemoryCursor {
 public:
  MemoryCursor() = default;  // zero bytes
  MemoryCursor(const PageList& pages, uint64_t position, uint64_t length, bool write)
      : pages_(&pages), position_(position), left_(length), write_(write) {}
  // Guest-physical memory.
  MemoryCursor(GuestMemory& memory, uint64_t iova, uint64_t length, bool write)
      : memory_(&memory), position_(iova), left_(length), write_(write) {}
  // An indirect key, where the walk has begun.
  MemoryCursor(KeyWalk& walk, uint64_t length) : walk_(&walk), left_(length), indirect_(true) {}

  uint64_t left() const { return left_; }

  // The next contiguous bytes, at most `max` (> 0) and at most left() (> 0). A span without a host
  // pointer: the guest has taken the memory away, or an entry of an indirect key does not hold;
  // why() says. Moves on by the span's size.
  HostSpan next(uint64_t max) {
    max = std::min(max, left_);
    HostSpan span{};
    if (indirect_) [[unlikely]] {
      next(&span, 1, max);
      return span;
    }
    span =
        pages_ ? pages_->span(position_, max, write_) : memory_->translate(position_, max, write_);
    if (span) {
      position_ += span.size;
      left_ -= span.size;
    }
    return span;
  }

  // The same of an indirect key, for up to `room` (> 0) spans at once. No span: as above.
  Found next(HostSpan* to, size_t room, uint64_t max) {
    Found found = walk_->next(to, room, max < left_ ? max : left_, left_);
    left_ -= found.bytes;
    return found;
  }

  // The syndrome when next() gave nothing. `use` is KH_SYN_LOCAL_KEY or KH_SYN_REMOTE_KEY.
  uint32_t why(uint32_t use) const { return indirect_ ? walk_->error() : use | KH_SYN_KEY_MEMORY; }
  bool indirect() const { return indirect_; }
  // Of an indirect key: the syndrome if the last span ended where its entry ends, else 0.
  uint32_t border() const { return indirect_ ? walk_->border() : 0; }

 private:
  const PageList* pages_ = nullptr;  // of a direct key
  union {
    GuestMemory* memory_ = nullptr;
    KeyWalk* walk_;
  };
  uint64_t position_ = 0;  // an IOVA when there are no pages
  uint64_t left_ = 0;
  bool write_ = false;
  bool indirect_ = false;
};

// The type 2 windows that one QP has bound: the QP's own, given to bind(); it stays where it is.
// Its `first` is an index, 0 for none.
struct WindowList {
  uint32_t first = 0;
};

struct Mkey {
  uint32_t key = 0;  // present key, all 32 bits
  MkeyKind kind = MkeyKind::none;
  bool valid = false;   // may be used; a window: is bound
  uint32_t access = 0;  // KH_ACCESS_*
  uint32_t pdn = 0;
  uint64_t start = 0;  // address of the first byte as the key's users name it
  uint64_t length = 0;
  uint64_t offset = 0;  // of that byte in `pages`; of a window: from its region's first byte
  PageList pages;
  uint32_t windows = 0;      // bound to this key
  uint32_t max_entries = 0;  // FREE and INDIRECT
  uint32_t bound_to = 0;     // a window's region, its full key
  uint32_t bound_qpn = 0;    // type 2: the QP that bound it
  // Type 2, while bound: that QP's list and the neighbours in it. No key: the next free index.
  WindowList* list = nullptr;
  uint32_t next = 0;
  uint32_t previous = 0;
  std::unique_ptr<Indirect> indirect;  // of an INDIRECT key, always
};

class MkeyTable {
 public:
  // The reserved local key: index 0. The kernel's QPs reach all guest memory with it, locally.
  static constexpr uint32_t local_dma_lkey = 0x00000001;

  MkeyTable(GuestMemory& memory, MemoryBudget& budget, uint32_t max_keys);
  MkeyTable(const MkeyTable&) = delete;
  MkeyTable& operator=(const MkeyTable&) = delete;

  // --- The data path -------------------------------------------------------------------------

  // A local key for [addr, addr + length). `write`: the device will store there (receives, READ and
  // atomic results). Errors are KH_SYN_LOCAL_KEY | reason. A length of zero names no bytes: the
  // key is not looked at, as an SGE of zero bytes may carry any key.
  std::expected<MemoryCursor, uint32_t> local(uint32_t key, uint64_t addr, uint64_t length,
                                              bool write, const KeyUser& who) {
    if (length == 0) return MemoryCursor{};
    const Mkey* mkey = find(key);
    if (mkey && mkey->valid && mkey->kind == MkeyKind::direct && mkey->pdn == who.pdn &&
        (!write || (mkey->access & KH_ACCESS_LOCAL_WRITE)) && holds(*mkey, addr, length)) [[likely]]
      return MemoryCursor(mkey->pages, mkey->offset + (addr - mkey->start), length, write);
    return local_slowly(key, addr, length, write, who);
  }

  // A remote key at the responder. `right` is one of KH_ACCESS_REMOTE_WRITE, _READ, _ATOMIC; the
  // bytes will be stored to unless it is _READ. Errors are KH_SYN_REMOTE_KEY | reason. A length of
  // zero: the R_Key of an RDMA WRITE or READ of no bytes is not checked (InfiniBand specification
  // volume 1, C9-88 and its neighbours), so the cursor is empty. Atomics are never of zero bytes.
  std::expected<MemoryCursor, uint32_t> remote(uint32_t key, uint64_t addr, uint64_t length,
                                               uint32_t right, const KeyUser& who) {
    if (length == 0) return MemoryCursor{};
    const Mkey* mkey = find(key);
    if (mkey && mkey->valid && mkey->kind == MkeyKind::direct && mkey->pdn == who.pdn &&
        (mkey->access & right) && holds(*mkey, addr, length)) [[likely]]
      return MemoryCursor(mkey->pages, mkey->offset + (addr - mkey->start), length,
                          right != KH_ACCESS_REMOTE_READ);
    return remote_slowly(key, addr, length, right, who);
  }

  // BIND_MW, for a QP (of type RC or UC: the caller has checked) and its list of windows. An
  // error is a syndrome: KH_SYN_BIND_* or KH_SYN_BIND | reason; nothing has changed then.
  std::expected<void, uint32_t> bind(const kh_wqe_bind& request, const KeyUser& who,
                                     WindowList& windows);

  // LOCAL_INV, and the invalidate of a peer's SEND_INV at the responder: frees a type 2 window that
  // this QP has bound (invalidating a free one is no error), or a key filled by REG_MR. Errors are
  // KH_SYN_INV_*.
  std::expected<void, uint32_t> invalidate(uint32_t key, const KeyUser& who);

  // A UMR_FILL of at most KH_MAX_INLINE_ENTRIES entries, which `inline_entries` points to, or else
  // the request's list has. Errors are KH_SYN_UMR_* or KH_SYN_UMR_ENTRY | reason with the entry's
  // number; nothing has changed then. For more entries: KeyFill.
  std::expected<void, uint32_t> fill(const kh_wqe_umr& request, const std::byte* inline_entries,
                                     const KeyUser& who);

  // UMR_INV. A free key stays so, and that is no error.
  std::expected<void, uint32_t> unfill(uint32_t key, const KeyUser& who);

  // The QP dies: its type 2 windows become free. Takes time in their number.
  void release(WindowList& windows);

  // --- Admin commands ------------------------------------------------------------------------

  struct Attributes {
    MkeyKind kind = MkeyKind::direct;
    uint32_t pdn = 0;
    uint32_t access = 0;
    uint32_t max_entries = 0;
    uint64_t start = 0;
    uint64_t length = 0;
    uint64_t offset = 0;
    PageList pages;
  };

  // The new key; its attributes have been checked. Error: an enum kh_admin_status (NOMEM).
  std::expected<uint32_t, uint8_t> create(Attributes attributes);

  // A window that is bound is unbound. `handle`: what the driver knows the key by. The keys of
  // windows and FREE keys move on without the driver, so only their index counts; of others all
  // bits do. Errors: NOENT; BUSY while windows are bound to it.
  std::expected<void, uint8_t> destroy(uint32_t handle);

  // MODIFY_MKEY of a direct key, by KH_MKEY_MOD_*. Returns its key: with other memory or another PD
  // the next variant, so that the old one is stale; with other rights alone the same as before, as
  // users of reregistration expect. Errors: NOENT, BUSY, INVAL (not a direct key).
  std::expected<uint32_t, uint8_t> modify(uint32_t handle, uint32_t mask, Attributes attributes);

  // The key of this index, whatever its variant; null when there is none.
  const Mkey* query(uint32_t handle) const;

  uint32_t count() const { return count_; }

 private:
  friend class KeyFill;
  friend class KeyWalk;

  static constexpr uint32_t chunk_bits = 8;
  static constexpr uint32_t chunk_size = 1u << chunk_bits;
  // Indexes that lie free before one is used again.
  static constexpr uint32_t resting = 1024;

  // The entry whose present key is `key`.
  const Mkey* find(uint32_t key) const {
    uint32_t index = KH_KEY_INDEX(key);
    if (index >= size_) [[unlikely]]
      return nullptr;
    const Mkey& mkey = chunks_[index >> chunk_bits][index & (chunk_size - 1)];
    return mkey.key == key ? &mkey : nullptr;
  }
  Mkey* find(uint32_t key) { return const_cast<Mkey*>(std::as_const(*this).find(key)); }

  Mkey& at(uint32_t index) { return chunks_[index >> chunk_bits][index & (chunk_size - 1)]; }
  const Mkey& at(uint32_t index) const {
    return chunks_[index >> chunk_bits][index & (chunk_size - 1)];
  }

  static bool holds(const Mkey& mkey, uint64_t addr, uint64_t length) {
    // Wraps to something huge when addr lies before start.
    uint64_t into = addr - mkey.start;
    return into <= mkey.length && length <= mkey.length - into;
  }

  Mkey* by_handle(uint32_t handle);
  std::expected<MemoryCursor, uint32_t> local_slowly(uint32_t key, uint64_t addr, uint64_t length,
                                                     bool write, const KeyUser& who);
  std::expected<MemoryCursor, uint32_t> remote_slowly(uint32_t key, uint64_t addr, uint64_t length,
                                                      uint32_t right, const KeyUser& who);
  uint32_t why_not_found(uint32_t key) const;
  std::expected<MemoryCursor, uint32_t> walk(const Mkey& mkey, uint64_t position, uint64_t length,
                                             bool write, uint32_t use);

  // What is wrong with an entry of an indirect key that names these bytes (> 0) of `mkey`, the
  // result of find(key): KH_SYN_KEY_*, or KH_SYN_NONE.
  uint32_t entry_fault(const Mkey* mkey, uint32_t key, uint64_t addr, uint64_t length, bool write,
                       uint32_t pdn) const {
    if (plain_entry(mkey, addr, length, write, pdn)) [[likely]]
      return KH_SYN_NONE;
    return entry_fault_slowly(mkey, key, addr, length, write, pdn);
  }
  // The common case: nothing is wrong and the key is a direct one.
  static bool plain_entry(const Mkey* mkey, uint64_t addr, uint64_t length, bool write,
                          uint32_t pdn) {
    return plain_key(mkey, write, pdn) && holds(*mkey, addr, length);
  }
  static bool plain_key(const Mkey* mkey, bool write, uint32_t pdn) {
    return mkey && mkey->valid && mkey->kind == MkeyKind::direct && mkey->pdn == pdn &&
           (!write || (mkey->access & KH_ACCESS_LOCAL_WRITE));
  }
  uint32_t entry_fault_slowly(const Mkey* mkey, uint32_t key, uint64_t addr, uint64_t length,
                              bool write, uint32_t pdn) const;
  std::expected<Mkey*, uint32_t> indirect_for(uint32_t key, const KeyUser& who);
  std::expected<Mkey*, uint32_t> key_for_fill(const kh_wqe_umr& request, const KeyUser& who);
  std::expected<void, uint32_t> read_list(const kh_wqe_umr& request, uint32_t first, uint32_t count,
                                          const KeyUser& who, std::byte* to) const;
  std::expected<void, uint32_t> add_entries(const kh_wqe_umr& request, uint32_t first,
                                            uint32_t count, const KeyUser& who,
                                            const std::byte* from, EntryTable& to) const;
  static std::expected<uint64_t, uint32_t> fill_length(const kh_wqe_umr& request,
                                                       const EntryTable& table);
  static void finish_fill(Mkey& mkey, const kh_wqe_umr& request, uint64_t length);

  std::expected<const Mkey*, uint32_t> region_for_bind(const kh_wqe_bind& request,
                                                       const KeyUser& who) const;
  void unbind(Mkey& window);
  void link(WindowList& windows, Mkey& window);
  void unlink(Mkey& window);
  bool grow();
  void put_free(uint32_t index);
  static void describe(Mkey& mkey, Attributes& attributes);

  GuestMemory& memory_;
  MemoryBudget& budget_;
  uint32_t max_keys_;
  std::vector<std::unique_ptr<Mkey[]>> chunks_;
  KeyWalk walk_{*this};
  EntryTable scratch_;  // what a short fill is about to give its key
  uint32_t size_ = 0;   // indexes that have an entry
  uint32_t count_ = 0;  // keys that exist, without the reserved one
  uint32_t free_count_ = 0;
  uint32_t oldest_free_ = 0;  // 0: none
  uint32_t newest_free_ = 0;
};

}  // namespace keyhole
