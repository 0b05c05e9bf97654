// SPDX-License-Identifier: BSD-2-Clause
//
// Admin commands about the HCA as a whole: limits, port, GIDs, event queues, contexts, PDs, the
// NIC.

#include <bit>
#include <cstring>

#include "hca/admin.h"
#include "hca/geometry.h"
#include "hca/hca.h"
#include "hca/nic.h"

namespace keyhole {

// A member as all the others are: the table of commands points to members.
// NOLINTNEXTLINE(readability-convert-member-functions-to-static)
AdminResult Admin::nop() { return AdminResult::done(); }

AdminResult Admin::query_device() {
  kh_device_attr attr{};
  attr.fw_version = uint64_t{KH_HW_MAJOR} << 32 | KH_HW_MINOR << 16 | 1;
  attr.caps = KH_CAP_MW1 | KH_CAP_MW2B | KH_CAP_INDIRECT | KH_CAP_MASKED_ATOMIC |
              KH_CAP_SRQ_RESIZE | KH_CAP_FLUSH | KH_CAP_ATOMIC_WRITE;
  // EUI-64 of the permanent MAC.
  const auto& mac = hca_.options_.mac.bytes;
  std::array<uint8_t, 8> guid = {
      static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  std::memcpy(&attr.node_guid, guid.data(), guid.size());
  attr.max_mr_size = uint64_t{DeviceLimits::max_page_list} << KH_PAGE_SHIFT_MIN;
  attr.page_size_cap = (uint64_t{2} << KH_PAGE_SHIFT_MAX) - (uint64_t{1} << KH_PAGE_SHIFT_MIN);
  attr.max_qp = DeviceLimits::max_qp;
  attr.max_qp_wr = 1u << DeviceLimits::max_log_rq;
  attr.max_sge = KH_MAX_SGE;
  attr.max_inline = KH_MAX_INLINE;
  attr.max_cq = DeviceLimits::max_cq;
  attr.max_cqe = 1u << DeviceLimits::max_log_cq;
  attr.max_mkey = DeviceLimits::max_mkey;
  attr.max_pd = DeviceLimits::max_pd;
  attr.max_srq = DeviceLimits::max_srq;
  attr.max_srq_wr = 1u << DeviceLimits::max_log_rq;
  attr.max_rd_atomic = KH_MAX_RD_ATOMIC;
  attr.max_mcast_grp = DeviceLimits::max_mcast_groups;
  attr.max_mcast_qp = DeviceLimits::max_mcast_qps;
  attr.gid_table_len = DeviceLimits::gid_table_len;
  attr.max_msg_size = KH_MAX_MSG_SIZE;
  attr.local_dma_lkey = MkeyTable::local_dma_lkey;
  attr.clock_khz = 1'000'000;  // nanoseconds
  attr.max_contexts = static_cast<uint32_t>(hca_.contexts_.size());
  attr.max_eq = DeviceLimits::max_eq;
  attr.max_fast_reg_pages = 0;
  attr.max_indirect = KH_MAX_INDIRECT;
  attr.max_inline_entries = KH_MAX_INLINE_ENTRIES;
  attr.max_depth = KH_MAX_DEPTH;
  output(attr);
  return AdminResult::done();
}

AdminResult Admin::query_stats() {
  output(hca_.stats_.counters);
  return AdminResult::done();
}

AdminResult Admin::set_port() {
  const kh_cmd_set_port& body = cmd_.set_port;
  if (body.flags & ~(KH_PORT_UP | KH_PORT_RDMA | KH_PORT_PROMISC))
    return AdminResult::refuse(offsetof(kh_cmd_set_port, flags));
  Mac mac = Mac::at(body.mac);
  if (mac.value() == 0 || mac.multicast())
    return AdminResult::refuse(offsetof(kh_cmd_set_port, mac));
  if (body.mtu < 68 || body.mtu > 9216) return AdminResult::refuse(offsetof(kh_cmd_set_port, mtu));
  bool was_up = hca_.port_up();
  hca_.port_flags_ = body.flags;
  hca_.mac_ = mac;
  hca_.mtu_ = body.mtu;
  if (hca_.link_) hca_.link_->changed(hca_);
  if (was_up != hca_.port_up())
    hca_.report(hca_.port_events_, hca_.port_up() ? KH_EV_PORT_UP : KH_EV_PORT_DOWN);
  return AdminResult::done();
}

AdminResult Admin::set_gid() {
  const kh_cmd_set_gid& body = cmd_.set_gid;
  if (body.index >= hca_.gids_.size()) return AdminResult::refuse(offsetof(kh_cmd_set_gid, index));
  if (body.valid > 1) return AdminResult::refuse(offsetof(kh_cmd_set_gid, valid));
  GidEntry entry;
  if (body.valid) {
    if (body.vlan != KH_VLAN_NONE && body.vlan > 4094)
      return AdminResult::refuse(offsetof(kh_cmd_set_gid, vlan));
    std::memcpy(entry.gid.data(), body.gid, entry.gid.size());
    entry.mac = Mac::at(body.mac);
    entry.vlan = body.vlan;
    entry.valid = true;
  }
  hca_.gids_[body.index] = entry;
  ++hca_.gid_generation_;
  return AdminResult::done();
}

AdminResult Admin::create_eq() {
  const kh_cmd_create_eq& body = cmd_.create_eq;
  if (body.log_size < 4 || body.log_size > 16)
    return AdminResult::refuse(offsetof(kh_cmd_create_eq, log_size));
  if (body.type > KH_EQ_COMPLETION) return AdminResult::refuse(offsetof(kh_cmd_create_eq, type));
  if (body.vector >= hca_.options_.vectors)
    return AdminResult::refuse(offsetof(kh_cmd_create_eq, vector));
  if (auto no = refuse_piece(pages_, body.ring_offset, sizeof(kh_eqe) << body.log_size, 64,
                             offsetof(kh_cmd_create_eq, ring_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_cq_db), 64,
                             offsetof(kh_cmd_create_eq, db_offset)))
    return *no;
  if (body.type == KH_EQ_ASYNC && hca_.notifier_.async_eq())
    return AdminResult::refuse(offsetof(kh_cmd_create_eq, type), KH_ST_EXIST);
  auto eqn = hca_.eqs_.reserve();
  if (!eqn) return AdminResult{KH_ST_NOMEM, 0, {}};
  Eq::Config config;
  config.eqn = *eqn;
  config.type = static_cast<kh_eq_type>(body.type);
  config.memory = std::move(pages_);
  config.ring_offset = body.ring_offset;
  config.db_offset = body.db_offset;
  config.log_size = body.log_size;
  config.vector = body.vector;
  hca_.eqs_.put(*eqn, std::make_unique<Eq>(hca_.notifier_, std::move(config)));
  return AdminResult::done(*eqn);
}

AdminResult Admin::destroy_eq() {
  Eq* eq = hca_.eqs_.find(cmd_.hdr.handle);
  if (!eq) return AdminResult::handle(KH_ST_NOENT);
  if (eq->users > 0) return AdminResult::handle(KH_ST_BUSY);
  hca_.eqs_.erase(cmd_.hdr.handle);
  return AdminResult::done();
}

AdminResult Admin::create_context() {
  uint32_t number = cmd_.hdr.handle;
  if (number >= hca_.contexts_.size()) return AdminResult::handle(KH_ST_INVAL);
  if (hca_.contexts_[number]) return AdminResult::handle(KH_ST_EXIST);
  hca_.make_context(number);
  return AdminResult::done();
}

AdminResult Admin::destroy_context() {
  uint32_t number = cmd_.hdr.handle;
  Context* context = hca_.context(number);
  if (!context) return AdminResult::handle(KH_ST_NOENT);
  // Context 0 is there for as long as the HCA is enabled: this queue rings in it.
  if (number == 0) return AdminResult::handle(KH_ST_PERM);
  if (context->objects > 0) return AdminResult::handle(KH_ST_BUSY);
  hca_.drop_context(number);
  return AdminResult::done();
}

AdminResult Admin::create_pd() {
  auto pdn = hca_.pds_.reserve();
  if (!pdn) return AdminResult{KH_ST_NOMEM, 0, {}};
  hca_.pds_.put(*pdn, std::make_unique<Hca::Pd>());
  return AdminResult::done(*pdn);
}

AdminResult Admin::destroy_pd() {
  Hca::Pd* pd = hca_.pds_.find(cmd_.hdr.handle);
  if (!pd) return AdminResult::handle(KH_ST_NOENT);
  if (pd->objects > 0) return AdminResult::handle(KH_ST_BUSY);
  hca_.pds_.erase(cmd_.hdr.handle);
  return AdminResult::done();
}

AdminResult Admin::create_nic() {
  const kh_cmd_create_nic& body = cmd_.create_nic;
  if (hca_.nic_) return AdminResult{KH_ST_EXIST, 0, {}};
  if (body.log_tx_size < 4 || body.log_tx_size > 12)
    return AdminResult::refuse(offsetof(kh_cmd_create_nic, log_tx_size));
  if (body.log_rx_size < 4 || body.log_rx_size > 12)
    return AdminResult::refuse(offsetof(kh_cmd_create_nic, log_rx_size));
  if (body.vector >= hca_.options_.vectors)
    return AdminResult::refuse(offsetof(kh_cmd_create_nic, vector));
  if (body.db_slot >= KH_DB_SLOTS) return AdminResult::refuse(offsetof(kh_cmd_create_nic, db_slot));
  if (auto no = refuse_piece(pages_, body.tx_offset, sizeof(kh_nic_desc) << body.log_tx_size, 64,
                             offsetof(kh_cmd_create_nic, tx_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.rx_offset, sizeof(kh_nic_desc) << body.log_rx_size, 64,
                             offsetof(kh_cmd_create_nic, rx_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.rxc_offset, sizeof(kh_nic_cqe) << body.log_rx_size, 64,
                             offsetof(kh_cmd_create_nic, rxc_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_nic_db), 64,
                             offsetof(kh_cmd_create_nic, db_offset)))
    return *no;
  Nic::Config config;
  config.memory = std::move(pages_);
  config.tx_offset = body.tx_offset;
  config.rx_offset = body.rx_offset;
  config.rxc_offset = body.rxc_offset;
  config.db_offset = body.db_offset;
  config.log_tx_size = body.log_tx_size;
  config.log_rx_size = body.log_rx_size;
  config.vector = body.vector;
  config.db_slot = body.db_slot;
  hca_.nic_ = std::make_unique<Nic>(hca_, std::move(config));
  hca_.context(0)->attach(body.db_slot, *hca_.nic_);
  return AdminResult::done();
}

AdminResult Admin::destroy_nic() {
  if (!hca_.nic_) return AdminResult{KH_ST_NOENT, 0, {}};
  hca_.context(0)->detach(hca_.nic_->config().db_slot, *hca_.nic_);
  hca_.nic_.reset();
  return AdminResult::done();
}

}  // namespace keyhole
