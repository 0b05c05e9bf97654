// SPDX-License-Identifier: BSD-2-Clause
//
// The switch that all HCAs of one process are plugged into.
//
// For frames of the netdevs it is an ordinary learning Ethernet switch: an address lives where it
// was last seen as a source, unknown and multicast destinations are flooded. An HCA gets a unicast
// frame only when it is for its own MAC or its netdev is promiscuous (bridges, macvlan). The table
// of learned addresses is bounded and forgets what was silent for five minutes.
//
// RDMA between HCAs does not travel as frames: find() and stations() tell the sender's transport
// which HCA a packet would have come to, by the MACs that their drivers have set.
//
// A port to the outside will be one more destination of send() and one more answer of find().

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "hca/host.h"
#include "hca/link.h"

namespace keyhole {

class Switch final : public Link {
 public:
  explicit Switch(Clock& clock) : clock_(clock) {}

  // An HCA is plugged in, and pulled out before it is destroyed.
  void attach(Hca& hca);
  void detach(Hca& hca);

  void send(Hca& from, std::span<const std::byte> frame) override;
  Hca* find(const Mac& mac) override;
  std::span<Hca* const> stations() override { return stations_; }
  void changed(Hca& hca) override;

  // Gives each HCA a turn. True: somebody has more to do at once.
  bool run();
  // Hca::turns() of all.
  uint64_t turns() const;
  // Some context of some HCA is awake.
  bool polling() const;
  // The earliest deadline of all.
  uint64_t deadline() const;

  std::span<Hca* const> hcas() const { return hcas_; }
  size_t learned() const { return table_.size(); }

  static constexpr size_t max_learned = 4096;
  static constexpr uint64_t forget_after_ns = 300'000'000'000;

 private:
  struct Place {
    Hca* hca = nullptr;
    uint64_t seen = 0;
  };

  void learn(const Mac& mac, Hca& hca);
  static void deliver(Hca& hca, const Mac& to, std::span<const std::byte> frame);

  Clock& clock_;
  std::vector<Hca*> hcas_;
  std::vector<Hca*> stations_;
  std::unordered_map<uint64_t, Place> table_;
};

}  // namespace keyhole
