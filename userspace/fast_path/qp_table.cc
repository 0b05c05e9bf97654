// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

#include "qp_table.h"

#include <new>

namespace keyhole::verbs {

QpTable::~QpTable() {
  for (auto& leaf : leaves_)
    delete leaf.load(std::memory_order_relaxed);
}

bool QpTable::insert(std::uint32_t qpn, Qp* qp) {
  const std::lock_guard guard(mutex_);
  auto& slot = leaves_[qpn >> kLeafBits & kLeafMask];
  Leaf* leaf = slot.load(std::memory_order_relaxed);
  if (!leaf) {
    leaf = new (std::nothrow) Leaf;
    if (!leaf) return false;
    slot.store(leaf, std::memory_order_release);
  }
  leaf->qps[qpn & kLeafMask].store(qp, std::memory_order_release);
  leaf->used++;
  return true;
}

void QpTable::remove(std::uint32_t qpn) {
  const std::lock_guard guard(mutex_);
  auto& slot = leaves_[qpn >> kLeafBits & kLeafMask];
  Leaf* leaf = slot.load(std::memory_order_relaxed);
  if (!leaf || !leaf->qps[qpn & kLeafMask].exchange(nullptr, std::memory_order_release)) return;
  if (--leaf->used == 0) {
    slot.store(nullptr, std::memory_order_release);
    delete leaf;
  }
}

}  // namespace keyhole::verbs
