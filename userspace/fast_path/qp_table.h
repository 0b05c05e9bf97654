// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// From the QP number in a CQE to the QP: a two-level array over the 24 bits, so that a lookup is
// two loads. Leaves come and go with the QPs in them; the device hands out numbers upwards and does
// not soon reuse them, so old leaves empty.
//
// Lookups take no lock. That is sound because one only looks up the number of a QP that is in the
// table: its CQEs are marked KH_CQE_SKIP, under the CQ's lock, before it is removed.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace keyhole::verbs {

struct Qp;

class QpTable {
 public:
  QpTable() = default;
  QpTable(const QpTable&) = delete;
  QpTable& operator=(const QpTable&) = delete;
  ~QpTable();

  // False when memory is short. qpn has 24 bits and is not in the table.
  bool insert(std::uint32_t qpn, Qp* qp);
  void remove(std::uint32_t qpn);

  // Null for a number that is not in the table.
  Qp* find(std::uint32_t qpn) const {
    const Leaf* leaf = leaves_[qpn >> kLeafBits & kLeafMask].load(std::memory_order_acquire);
    return leaf ? leaf->qps[qpn & kLeafMask].load(std::memory_order_acquire) : nullptr;
  }

 private:
  static constexpr unsigned kLeafBits = 12;
  static constexpr std::uint32_t kLeafMask = (1u << kLeafBits) - 1;

  struct Leaf {
    std::array<std::atomic<Qp*>, 1u << kLeafBits> qps{};
    std::uint32_t used = 0;
  };

  std::mutex mutex_;  // of insert and remove
  std::array<std::atomic<Leaf*>, 1u << (24 - kLeafBits)> leaves_{};
};

}  // namespace keyhole::verbs
