// SPDX-License-Identifier: BSD-2-Clause

#include "hca/mkey_table.h"

#include <algorithm>

namespace keyhole {

namespace {

std::unexpected<uint32_t> local_error(uint32_t reason) {
  return std::unexpected(KH_SYN_LOCAL_KEY | reason);
}

std::unexpected<uint32_t> remote_error(uint32_t reason) {
  return std::unexpected(KH_SYN_REMOTE_KEY | reason);
}

}  // namespace

MkeyTable::MkeyTable(GuestMemory& memory, MemoryBudget& budget, uint32_t max_keys)
    : memory_(memory), budget_(budget), max_keys_(max_keys) {
  grow();
  Mkey& reserved = at(0);
  reserved.key = local_dma_lkey;
  reserved.kind = MkeyKind::phys;
  reserved.valid = true;
  reserved.access = KH_ACCESS_LOCAL_WRITE;
}

uint32_t MkeyTable::why_not_found(uint32_t key) const {
  uint32_t index = KH_KEY_INDEX(key);
  if (index >= size_ || at(index).kind == MkeyKind::none) return KH_SYN_KEY_NONE;
  return KH_SYN_KEY_STALE;
}

// What the common case in the header has turned down: kernel keys, and to say what is wrong.
std::expected<MemoryCursor, uint32_t> MkeyTable::local_slowly(uint32_t key, uint64_t addr,
                                                              uint64_t length, bool write,
                                                              const KeyUser& who) {
  const Mkey* mkey = find(key);
  if (!mkey || mkey->kind == MkeyKind::none) return local_error(why_not_found(key));
  if (is_window(mkey->kind) || mkey->kind == MkeyKind::klm_list)
    return local_error(KH_SYN_KEY_KIND);
  if (!mkey->valid) return local_error(KH_SYN_KEY_FREE);
  if (mkey->kind == MkeyKind::phys && !who.kernel) return local_error(KH_SYN_KEY_KIND);
  if (mkey->pdn != who.pdn && key != local_dma_lkey) return local_error(KH_SYN_KEY_PD);
  bool phys = mkey->kind == MkeyKind::phys;
  if (phys ? addr + (length - 1) < addr : !holds(*mkey, addr, length))
    return local_error(KH_SYN_KEY_RANGE);
  if (write && !(mkey->access & KH_ACCESS_LOCAL_WRITE)) return local_error(KH_SYN_KEY_RIGHTS);
  if (phys) return MemoryCursor(memory_, addr, length, write);
  if (mkey->kind == MkeyKind::indirect)
    return walk(*mkey, addr - mkey->start, length, write, KH_SYN_LOCAL_ENTRY);
  return MemoryCursor(mkey->pages, mkey->offset + (addr - mkey->start), length, write);
}

std::expected<MemoryCursor, uint32_t> MkeyTable::remote_slowly(uint32_t key, uint64_t addr,
                                                               uint64_t length, uint32_t right,
                                                               const KeyUser& who) {
  bool write = right != KH_ACCESS_REMOTE_READ;
  const Mkey* mkey = find(key);
  if (!mkey || mkey->kind == MkeyKind::none) return remote_error(why_not_found(key));
  if (!mkey->valid) return remote_error(KH_SYN_KEY_FREE);
  if (key == local_dma_lkey || mkey->kind == MkeyKind::klm_list ||
      (mkey->kind == MkeyKind::phys && !who.kernel))
    return remote_error(KH_SYN_KEY_KIND);
  if (mkey->pdn != who.pdn) return remote_error(KH_SYN_KEY_PD);
  if (mkey->kind == MkeyKind::mw2 && mkey->bound_qpn != who.qpn) return remote_error(KH_SYN_KEY_QP);
  bool phys = mkey->kind == MkeyKind::phys;
  if (phys ? addr + (length - 1) < addr : !holds(*mkey, addr, length))
    return remote_error(KH_SYN_KEY_RANGE);
  if (!(mkey->access & right)) return remote_error(KH_SYN_KEY_RIGHTS);
  if (phys) return MemoryCursor(memory_, addr, length, write);
  uint64_t position = mkey->offset + (addr - mkey->start);
  if (mkey->kind == MkeyKind::indirect)
    return walk(*mkey, position, length, write, KH_SYN_REMOTE_ENTRY);
  if (!is_window(mkey->kind)) return MemoryCursor(mkey->pages, position, length, write);

  // Through the region, which cannot go away or change while a window is bound to it; looked up all
  // the same, so that this holds by itself.
  const Mkey* region = find(mkey->bound_to);
  if (!region || !region->valid) return remote_error(KH_SYN_KEY_FREE);
  if (region->kind == MkeyKind::phys)
    return MemoryCursor(memory_, position, length, write);
  if (position > region->length || length > region->length - position)
    return remote_error(KH_SYN_KEY_RANGE);
  if (region->kind == MkeyKind::indirect)
    return walk(*region, position, length, write, KH_SYN_REMOTE_ENTRY);
  return MemoryCursor(region->pages, region->offset + position, length, write);
}

std::expected<MemoryCursor, uint32_t> MkeyTable::walk(const Mkey& mkey, uint64_t position,
                                                      uint64_t length, bool write, uint32_t use) {
  walk_.begin(mkey, position, length, write, mkey.pdn, use);
  return MemoryCursor(walk_, length);
}

uint32_t MkeyTable::entry_fault_slowly(const Mkey* mkey, uint32_t key, uint64_t addr,
                                       uint64_t length, bool write, uint32_t pdn) const {
  if (!mkey || mkey->kind == MkeyKind::none) return why_not_found(key);
  if (mkey->kind != MkeyKind::direct && mkey->kind != MkeyKind::indirect) return KH_SYN_KEY_KIND;
  if (!mkey->valid) return KH_SYN_KEY_FREE;
  if (mkey->pdn != pdn) return KH_SYN_KEY_PD;
  if (!holds(*mkey, addr, length)) return KH_SYN_KEY_RANGE;
  if (write && !(mkey->access & KH_ACCESS_LOCAL_WRITE)) return KH_SYN_KEY_RIGHTS;
  return KH_SYN_NONE;
}

// --- Allocation -------------------------------------------------------------------------------

// One more chunk of indexes, all of them free.
bool MkeyTable::grow() {
  if (size_ > max_keys_) return false;
  chunks_.push_back(std::make_unique<Mkey[]>(chunk_size));
  uint32_t first = size_;
  // Index 0 is the reserved key's and not counted.
  size_ = std::min(size_ + chunk_size, max_keys_ + 1);
  for (uint32_t index = std::max(first, 1u); index < size_; ++index)
    put_free(index);
  return true;
}

void MkeyTable::put_free(uint32_t index) {
  at(index).next = 0;
  if (newest_free_)
    at(newest_free_).next = index;
  else
    oldest_free_ = index;
  newest_free_ = index;
  ++free_count_;
}

void MkeyTable::describe(Mkey& mkey, Attributes& attributes) {
  mkey.pdn = attributes.pdn;
  mkey.access = attributes.access;
  mkey.start = attributes.start;
  mkey.length = attributes.length;
  mkey.offset = attributes.offset;
  mkey.max_entries = attributes.max_entries;
  mkey.pages = std::move(attributes.pages);
}

std::expected<uint32_t, uint8_t> MkeyTable::create(Attributes attributes) {
  while (free_count_ <= resting && grow()) {
  }
  std::unique_ptr<Indirect> indirect;
  if (attributes.kind == MkeyKind::indirect) {
    Charge charge(budget_, Indirect::cost(attributes.max_entries));
    if (!charge) return std::unexpected(KH_ST_NOMEM);
    indirect = std::make_unique<Indirect>();
    indirect->created_access = attributes.access;
    indirect->charge = std::move(charge);
  }
  if (free_count_ == 0 || !budget_.take(sizeof(Mkey))) return std::unexpected(KH_ST_NOMEM);
  uint32_t index = oldest_free_;
  Mkey& mkey = at(index);
  oldest_free_ = mkey.next;
  if (oldest_free_ == 0) newest_free_ = 0;
  --free_count_;
  ++count_;
  mkey.next = 0;
  mkey.key = index << KH_KEY_VARIANT_BITS | KH_KEY_VARIANT(mkey.key + 1);
  mkey.kind = attributes.kind;
  mkey.valid = attributes.kind == MkeyKind::direct || attributes.kind == MkeyKind::phys ||
               attributes.kind == MkeyKind::klm_list;
  mkey.indirect = std::move(indirect);
  describe(mkey, attributes);
  return mkey.key;
}

Mkey* MkeyTable::by_handle(uint32_t handle) {
  uint32_t index = KH_KEY_INDEX(handle);
  if (index == 0 || index >= size_) return nullptr;
  Mkey& mkey = at(index);
  if (mkey.kind == MkeyKind::none) return nullptr;
  if (mkey.key != handle && !changes_by_itself(mkey.kind)) return nullptr;
  return &mkey;
}

const Mkey* MkeyTable::query(uint32_t handle) const {
  uint32_t index = KH_KEY_INDEX(handle);
  if (index == 0 || index >= size_ || at(index).kind == MkeyKind::none) return nullptr;
  return &at(index);
}

std::expected<void, uint8_t> MkeyTable::destroy(uint32_t handle) {
  Mkey* mkey = by_handle(handle);
  if (!mkey) return std::unexpected(KH_ST_NOENT);
  if (mkey->windows > 0) return std::unexpected(KH_ST_BUSY);
  if (is_window(mkey->kind) && mkey->valid) unbind(*mkey);
  uint32_t key = mkey->key;
  *mkey = Mkey{};
  mkey->key = key;  // the next owner's variant follows
  budget_.give(sizeof(Mkey));
  --count_;
  put_free(KH_KEY_INDEX(key));
  return {};
}

std::expected<uint32_t, uint8_t> MkeyTable::modify(uint32_t handle, uint32_t mask,
                                                   Attributes attributes) {
  Mkey* mkey = by_handle(handle);
  if (!mkey) return std::unexpected(KH_ST_NOENT);
  if (mkey->kind != MkeyKind::direct) return std::unexpected(KH_ST_INVAL);
  if (mkey->windows > 0) return std::unexpected(KH_ST_BUSY);
  if (mask & KH_MKEY_MOD_PD) mkey->pdn = attributes.pdn;
  if (mask & KH_MKEY_MOD_ACCESS) mkey->access = attributes.access;
  if (mask & KH_MKEY_MOD_TRANSLATION) {
    mkey->start = attributes.start;
    mkey->length = attributes.length;
    mkey->offset = attributes.offset;
    mkey->pages = std::move(attributes.pages);
  }
  // A key dies when it would come to name other memory, or become another PD's.
  if (mask & (KH_MKEY_MOD_TRANSLATION | KH_MKEY_MOD_PD))
    mkey->key = (mkey->key & ~0xffu) | KH_KEY_VARIANT(mkey->key + 1);
  return mkey->key;
}

}  // namespace keyhole
