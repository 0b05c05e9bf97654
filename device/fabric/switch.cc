// SPDX-License-Identifier: BSD-2-Clause

#include "fabric/switch.h"

#include <algorithm>

#include "hca/hca.h"

namespace keyhole {

void Switch::attach(Hca& hca) {
  hcas_.push_back(&hca);
  changed(hca);
}

void Switch::detach(Hca& hca) {
  std::erase(hcas_, &hca);
  std::erase_if(table_, [&](const auto& entry) { return entry.second.hca == &hca; });
  std::erase(stations_, &hca);
  ++generation_;
}

void Switch::changed(Hca&) {
  stations_.clear();
  std::ranges::copy_if(hcas_, std::back_inserter(stations_),
                       [](Hca* hca) { return hca->rdma_up(); });
  ++generation_;
}

Hca* Switch::find(const Mac& mac) {
  auto found = std::ranges::find_if(stations_, [&](Hca* hca) { return hca->mac() == mac; });
  return found == stations_.end() ? nullptr : *found;
}

void Switch::learn(const Mac& mac, Hca& hca) {
  if (mac.multicast() || mac.value() == 0) return;
  uint64_t now = clock_.now_ns();
  auto known = table_.find(mac.value());
  if (known != table_.end()) {
    known->second = {&hca, now};
    return;
  }
  if (table_.size() >= max_learned)
    std::erase_if(table_,
                  [&](const auto& entry) { return now - entry.second.seen > forget_after_ns; });
  if (table_.size() < max_learned) table_.emplace(mac.value(), Place{&hca, now});
}

void Switch::deliver(Hca& hca, const Mac& to, std::span<const std::byte> frame) {
  if (to.multicast() || to == hca.mac() || hca.promiscuous()) hca.receive(frame);
}

void Switch::send(Hca& from, std::span<const std::byte> frame) {
  if (frame.size() < 14) return;
  Mac to = Mac::at(frame.data());
  learn(Mac::at(frame.data() + 6), from);
  if (!to.multicast()) {
    auto known = table_.find(to.value());
    if (known != table_.end() && clock_.now_ns() - known->second.seen <= forget_after_ns) {
      // Somebody behind the sender's own port: not ours to deliver.
      if (known->second.hca != &from) deliver(*known->second.hca, to, frame);
      return;
    }
  }
  for (Hca* hca : hcas_) {
    if (hca != &from) deliver(*hca, to, frame);
  }
}

bool Switch::run() {
  bool more = false;
  for (Hca* hca : hcas_)
    more |= hca->run();
  // One may have given work to another whose turn was over.
  return more || std::ranges::any_of(hcas_, [](Hca* hca) { return hca->has_work(); });
}

uint64_t Switch::turns() const {
  uint64_t turns = 0;
  for (Hca* hca : hcas_)
    turns += hca->turns();
  return turns;
}

bool Switch::polling() const {
  return std::ranges::any_of(hcas_, [](Hca* hca) { return hca->ready() && hca->polling(); });
}

uint64_t Switch::deadline() const {
  uint64_t first = Timers::never;
  for (Hca* hca : hcas_)
    first = std::min(first, hca->deadline());
  return first;
}

}  // namespace keyhole
