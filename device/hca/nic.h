// SPDX-License-Identifier: BSD-2-Clause
//
// The Ethernet side of the HCA: one ring of frames to send, one of buffers for frames that arrive.
//
// A frame is copied into device memory before anything looks at it, then it goes over the link; the
// copy at the other end goes into a buffer that the other driver has posted, or is dropped.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hca/page_list.h"
#include "hca/run_queue.h"
#include "keyhole_hw.h"

namespace keyhole {

class Hca;

class Nic final : public Runnable {
 public:
  struct Config {
    PageList memory;
    uint64_t tx_offset = 0;
    uint64_t rx_offset = 0;
    uint64_t rxc_offset = 0;
    uint64_t db_offset = 0;
    uint8_t log_tx_size = 0;
    uint8_t log_rx_size = 0;
    uint16_t vector = 0;
    uint16_t db_slot = 0;
  };

  // Without FCS: an Ethernet header with a VLAN tag, and the largest MTU.
  static constexpr uint32_t min_frame = 14;
  static constexpr uint32_t max_frame = 9216 + 18;

  Nic(Hca& hca, Config config);
  ~Nic() override;

  // Sends what is posted.
  bool run(Quantum& quantum) override;

  // A frame from the link for this netdev. False: dropped, no buffer or too long for it.
  bool receive(std::span<const std::byte> frame);

  // After a fence: the interrupt, if software has armed it.
  void fire();

  const Config& config() const { return config_; }

 private:
  bool take_frame(const kh_nic_desc& desc);
  void note();

  Hca& hca_;
  Config config_;
  uint32_t tx_ci_ = 0;
  uint32_t rx_done_ = 0;  // buffers used and completions written
  uint32_t fired_ = 0;    // sn
  bool failed_ = false;   // an index or an address was nonsense: sends no more
  std::vector<std::byte> frame_;
};

}  // namespace keyhole
