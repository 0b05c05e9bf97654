// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows: bind, unbind, invalidate.
//
// A type 1 window may be bound again while it is bound: the old binding ends and the new begins in
// one step, and the variant moves by one each time. A type 2 window is bound once, by one QP, with
// a variant that the consumer chose, until an invalidate or that QP's end frees it. Each check
// below happens before the first change, so that a refused bind leaves everything as it was.

#include "hca/mkey_table.h"

namespace keyhole {

namespace {

// What may stand among a window's access flags. LOCAL_WRITE is ignored there; MW_BIND has no
// meaning.
constexpr uint32_t window_access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_ZERO_BASED;

}  // namespace

// The region of a bind, if it may be bound to as the request says.
std::expected<const Mkey*, uint32_t> MkeyTable::region_for_bind(const kh_wqe_bind& request,
                                                                const KeyUser& who) const {
  const Mkey* region = find(request.mr_key);
  if (!region || region->kind == MkeyKind::none)
    return std::unexpected(KH_SYN_BIND | why_not_found(request.mr_key));
  if (is_window(region->kind) || region->kind == MkeyKind::klm_list)
    return std::unexpected(KH_SYN_BIND_REGION);
  if (!region->valid) return std::unexpected(KH_SYN_BIND | KH_SYN_KEY_FREE);
  if (request.mr_key == local_dma_lkey) return std::unexpected(KH_SYN_BIND_REGION);
  if (region->kind == MkeyKind::phys && !who.kernel)
    return std::unexpected(KH_SYN_BIND | KH_SYN_KEY_KIND);
  if (region->pdn != who.pdn) return std::unexpected(KH_SYN_BIND | KH_SYN_KEY_PD);
  if (!(region->access & KH_ACCESS_MW_BIND) || (region->access & KH_ACCESS_ZERO_BASED))
    return std::unexpected(KH_SYN_BIND_REGION);
  if ((request.access & (KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC)) &&
      !(region->access & KH_ACCESS_LOCAL_WRITE))
    return std::unexpected(KH_SYN_BIND_ACCESS);
  bool inside = region->kind == MkeyKind::phys ? request.addr + (request.length - 1) >= request.addr
                                               : holds(*region, request.addr, request.length);
  if (!inside) return std::unexpected(KH_SYN_BIND_RANGE);
  return region;
}

std::expected<void, uint32_t> MkeyTable::bind(const kh_wqe_bind& request, const KeyUser& who,
                                              WindowList& windows) {
  uint32_t index = KH_KEY_INDEX(request.mw_key);
  if (index >= size_ || !is_window(at(index).kind)) return std::unexpected(KH_SYN_BIND_KIND);
  Mkey& window = at(index);
  bool type2 = window.kind == MkeyKind::mw2;
  if (window.key != request.mw_key) return std::unexpected(KH_SYN_BIND_STALE);
  if (window.pdn != who.pdn) return std::unexpected(KH_SYN_BIND_PD);
  if (KH_KEY_INDEX(request.new_key) != index) return std::unexpected(KH_SYN_BIND_NEW_KEY);
  if (!type2 && KH_KEY_VARIANT(request.new_key) != KH_KEY_VARIANT(window.key + 1))
    return std::unexpected(KH_SYN_BIND_NEW_KEY);
  if (type2 && window.valid) return std::unexpected(KH_SYN_BIND_BOUND);
  if (type2 && request.length == 0) return std::unexpected(KH_SYN_BIND_LENGTH);
  if (request.access & ~window_access) return std::unexpected(KH_SYN_BIND_ACCESS);

  if (request.length == 0) {
    if (window.valid) unbind(window);
    window.key = request.new_key;
    return {};
  }
  auto found = region_for_bind(request, who);
  if (!found) return std::unexpected(found.error());
  Mkey& region = at(KH_KEY_INDEX(request.mr_key));

  if (window.valid) unbind(window);
  window.key = request.new_key;
  window.valid = true;
  window.access = request.access & KH_ACCESS_REMOTE;
  window.start = request.access & KH_ACCESS_ZERO_BASED ? 0 : request.addr;
  window.length = request.length;
  window.offset = request.addr - region.start;
  window.bound_to = request.mr_key;
  ++region.windows;
  if (type2) {
    window.bound_qpn = who.qpn;
    link(windows, window);
  }
  return {};
}

void MkeyTable::unbind(Mkey& window) {
  --at(KH_KEY_INDEX(window.bound_to)).windows;
  if (window.list) unlink(window);
  window.valid = false;
  window.access = 0;
  window.start = window.length = window.offset = 0;
  window.bound_to = 0;
  window.bound_qpn = 0;
}

void MkeyTable::link(WindowList& windows, Mkey& window) {
  uint32_t index = KH_KEY_INDEX(window.key);
  window.list = &windows;
  window.previous = 0;
  window.next = windows.first;
  if (windows.first) at(windows.first).previous = index;
  windows.first = index;
}

void MkeyTable::unlink(Mkey& window) {
  if (window.previous)
    at(window.previous).next = window.next;
  else
    window.list->first = window.next;
  if (window.next) at(window.next).previous = window.previous;
  window.list = nullptr;
  window.next = window.previous = 0;
}

void MkeyTable::release(WindowList& windows) {
  while (windows.first)
    unbind(at(windows.first));
}

std::expected<void, uint32_t> MkeyTable::invalidate(uint32_t key, const KeyUser& who) {
  Mkey* mkey = find(key);
  if (!mkey || mkey->kind == MkeyKind::none) return std::unexpected(KH_SYN_INV_KEY);
  if (mkey->kind != MkeyKind::mw2 && mkey->kind != MkeyKind::free)
    return std::unexpected(KH_SYN_INV_KIND);
  if (mkey->pdn != who.pdn) return std::unexpected(KH_SYN_INV_PD);
  if (mkey->kind == MkeyKind::free) {
    if (mkey->windows > 0) return std::unexpected(KH_SYN_INV_BUSY);
    mkey->valid = false;
    return {};
  }
  if (!mkey->valid) return {};
  if (mkey->bound_qpn != who.qpn) return std::unexpected(KH_SYN_INV_QP);
  unbind(*mkey);
  return {};
}

}  // namespace keyhole
