// SPDX-License-Identifier: BSD-2-Clause

#include "hca/nic.h"

#include <spdlog/spdlog.h>

#include <cstring>

#include "hca/guest_access.h"
#include "hca/hca.h"

namespace keyhole {

Nic::Nic(Hca& hca, Config config) : hca_(hca), config_(std::move(config)) {}

Nic::~Nic() { hca_.notifier().nic_wants_flush = false; }

void Nic::note() { hca_.notifier().nic_wants_flush = true; }

// Copies the frame of a descriptor into device memory.
bool Nic::take_frame(const kh_nic_desc& desc) {
  if (desc.len < min_frame || desc.len > max_frame || desc.addr + (desc.len - 1) < desc.addr)
    return false;
  frame_.resize(desc.len);
  for (uint32_t at = 0; at < desc.len;) {
    HostSpan span = hca_.memory().translate(desc.addr + at, desc.len - at, false);
    if (!span) return false;
    std::memcpy(frame_.data() + at, span.host, span.size);
    at += static_cast<uint32_t>(span.size);
  }
  return true;
}

bool Nic::run(Quantum& quantum) {
  if (failed_) return false;
  std::byte* db = config_.memory.at(config_.db_offset);
  uint32_t size = 1u << config_.log_tx_size;
  uint32_t pi = db ? load_acquire<uint32_t>(db + offsetof(kh_nic_db, tx_pi)) : tx_ci_;
  if (!db || pi - tx_ci_ > size) {
    spdlog::warn("{}: NIC: TX producer index {} at {} of {} descriptors: no more frames are sent",
                 hca_.name(), pi, tx_ci_, size);
    failed_ = true;
    return false;
  }
  if (pi == tx_ci_) return false;
  while (pi != tx_ci_ && quantum.left()) {
    std::byte* slot =
        config_.memory.at(config_.tx_offset + uint64_t{tx_ci_ & (size - 1)} * sizeof(kh_nic_desc));
    if (!slot) {
      failed_ = true;
      return false;
    }
    kh_nic_desc desc;
    copy_out(desc, slot);
    ++tx_ci_;
    --quantum.entries;
    if (!take_frame(desc) || !hca_.port_up()) {
      ++hca_.stats()[KH_STAT_DROPPED];
      continue;
    }
    quantum.bytes -= desc.len;
    ++hca_.stats()[KH_STAT_NIC_TX_FRAMES];
    hca_.stats()[KH_STAT_NIC_TX_BYTES] += desc.len;
    if (hca_.link()) hca_.link()->send(hca_, frame_);
  }
  store_release(db + offsetof(kh_nic_db, tx_ci), tx_ci_);
  note();
  return pi != tx_ci_;
}

bool Nic::receive(std::span<const std::byte> frame) {
  std::byte* db = config_.memory.at(config_.db_offset);
  if (!db) return false;
  uint32_t size = 1u << config_.log_rx_size;
  auto posted = load_acquire<uint32_t>(db + offsetof(kh_nic_db, rx_pi)) - rx_done_;
  if (posted == 0 || posted > size) return false;
  if (rx_done_ - load_acquire<uint32_t>(db + offsetof(kh_nic_db, rx_ci)) >= size) return false;
  uint64_t index = rx_done_ & (size - 1);
  std::byte* slot = config_.memory.at(config_.rx_offset + index * sizeof(kh_nic_desc));
  std::byte* done = config_.memory.at(config_.rxc_offset + index * sizeof(kh_nic_cqe));
  if (!slot || !done) return false;
  kh_nic_desc desc;
  copy_out(desc, slot);
  if (desc.len < frame.size() || desc.addr + (frame.size() - 1) < desc.addr) return false;
  for (size_t at = 0; at < frame.size();) {
    HostSpan span = hca_.memory().translate(desc.addr + at, frame.size() - at, true);
    if (!span) return false;
    std::memcpy(span.host, frame.data() + at, span.size);
    at += span.size;
  }
  kh_nic_cqe cqe{};
  cqe.len = static_cast<uint32_t>(frame.size());
  cqe.flags = KH_NIC_CSUM_OK;
  cqe.phase = ((rx_done_ >> config_.log_rx_size) & 1) ^ 1;
  uint64_t whole = 0;
  std::memcpy(&whole, &cqe, sizeof(whole));
  store_release(done, whole);
  ++rx_done_;
  note();
  return true;
}

void Nic::fire() {
  std::byte* db = config_.memory.at(config_.db_offset);
  if (!db) return;
  auto arm = load_acquire<uint32_t>(db + offsetof(kh_nic_db, arm));
  uint32_t sn = arm >> KH_ARM_SN_SHIFT;
  if ((arm & KH_ARM_TYPE_MASK) == 0 || sn == fired_) return;
  fired_ = sn;
  hca_.notifier().raise(config_.vector);
}

}  // namespace keyhole
