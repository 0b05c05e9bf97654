// SPDX-License-Identifier: BSD-2-Clause
//
// A command in words, for the log.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>

#include "hca/admin.h"
#include "hca/names.h"

namespace keyhole {

namespace {

std::string mac(const uint8_t (&bytes)[6]) { return fmt::format("{:02x}", fmt::join(bytes, ":")); }

std::string gid(const uint8_t (&bytes)[16]) {
  std::string text;
  for (int i = 0; i < 16; i += 2)
    text += fmt::format("{}{:02x}{:02x}", i ? ":" : "", bytes[i], bytes[i + 1]);
  return text;
}

std::string pages(const kh_pages& pages) {
  return fmt::format("{} pages of {:#x} at {:#x} levels {}", uint32_t{pages.npages},
                     uint64_t{1} << (pages.page_shift & 63), uint64_t{pages.addr}, pages.levels);
}

std::string access(uint32_t bits) {
  constexpr const char* names[] = {"lw", "rw", "rr", "ra", "mw", "zb"};
  std::string text;
  for (int bit = 0; bit < 6; ++bit) {
    if (bits >> bit & 1) text += std::string(text.empty() ? "" : "|") + names[bit];
  }
  if (bits >> 6) text += fmt::format("|{:#x}", bits & ~0x3fu);
  return text.empty() ? "0" : text;
}

std::string mkey_kind(uint8_t kind) {
  constexpr const char* names[] = {"DIRECT", "PHYS",     "FREE",    "MW1",
                                   "MW2",    "INDIRECT", "KLM_LIST"};
  return kind < std::size(names) ? names[kind] : fmt::format("{}", kind);
}

std::string qp_attr(const kh_qp_attr& attr) {
  std::string text = fmt::format("mask {:#x}", uint32_t{attr.mask});
  auto add = [&](uint32_t bit, const std::string& what) {
    if (attr.mask & bit) text += " " + what;
  };
  add(KH_QP_STATE, fmt::format("to {}", qp_state_name(attr.state)));
  add(KH_QP_CUR_STATE, fmt::format("from {}", qp_state_name(attr.cur_state)));
  add(KH_QP_ACCESS_FLAGS, fmt::format("access {}", access(attr.access)));
  add(KH_QP_QKEY, fmt::format("qkey {:#x}", uint32_t{attr.qkey}));
  add(KH_QP_AV, fmt::format("dgid {} dmac {} sgid_index {}", gid(attr.av.dgid), mac(attr.av.dmac),
                            attr.av.sgid_index));
  add(KH_QP_PATH_MTU, fmt::format("path_mtu {}", attr.path_mtu));
  add(KH_QP_DEST_QPN, fmt::format("dest_qpn {:#x}", uint32_t{attr.dest_qpn}));
  add(KH_QP_RQ_PSN, fmt::format("rq_psn {:#x}", uint32_t{attr.rq_psn}));
  add(KH_QP_SQ_PSN, fmt::format("sq_psn {:#x}", uint32_t{attr.sq_psn}));
  add(KH_QP_TIMEOUT, fmt::format("timeout {}", attr.timeout));
  add(KH_QP_RETRY_CNT, fmt::format("retry_cnt {}", attr.retry_cnt));
  add(KH_QP_RNR_RETRY, fmt::format("rnr_retry {}", attr.rnr_retry));
  add(KH_QP_MIN_RNR_TIMER, fmt::format("min_rnr_timer {}", attr.min_rnr_timer));
  add(KH_QP_MAX_QP_RD_ATOMIC, fmt::format("max_rd_atomic {}", attr.max_rd_atomic));
  add(KH_QP_MAX_DEST_RD_ATOMIC, fmt::format("max_dest_rd_atomic {}", attr.max_dest_rd_atomic));
  return text;
}

std::string fields_of(const kh_admin_cmd& c) {
  switch (c.hdr.opcode) {
    case KH_ADM_SET_PORT:
      return fmt::format("{}{}{}mac {} mtu {}", c.set_port.flags & KH_PORT_UP ? "up " : "down ",
                         c.set_port.flags & KH_PORT_RDMA ? "rdma " : "",
                         c.set_port.flags & KH_PORT_PROMISC ? "promiscuous " : "",
                         mac(c.set_port.mac), uint16_t{c.set_port.mtu});
    case KH_ADM_SET_GID:
      return fmt::format("index {} {} mac {} vlan {:#x} valid {}", uint16_t{c.set_gid.index},
                         gid(c.set_gid.gid), mac(c.set_gid.mac), uint16_t{c.set_gid.vlan},
                         c.set_gid.valid);
    case KH_ADM_CREATE_EQ:
      return fmt::format("type {} vector {} size {} in {}", c.create_eq.type,
                         uint16_t{c.create_eq.vector}, uint64_t{1} << (c.create_eq.log_size & 63),
                         pages(c.create_eq.pages));
    case KH_ADM_CREATE_MKEY:
      return fmt::format(
          "{} pdn {} access {} start {:#x} length {:#x} offset {:#x} entries {} in {}",
          mkey_kind(c.create_mkey.kind), uint32_t{c.create_mkey.pdn}, access(c.create_mkey.access),
          uint64_t{c.create_mkey.start}, uint64_t{c.create_mkey.length},
          uint64_t{c.create_mkey.offset}, uint32_t{c.create_mkey.max_entries},
          pages(c.create_mkey.pages));
    case KH_ADM_MODIFY_MKEY:
      return fmt::format("mask {:#x} pdn {} access {} start {:#x} length {:#x} offset {:#x} in {}",
                         c.modify_mkey.mask, uint32_t{c.modify_mkey.pdn},
                         access(c.modify_mkey.access), uint64_t{c.modify_mkey.start},
                         uint64_t{c.modify_mkey.length}, uint64_t{c.modify_mkey.offset},
                         pages(c.modify_mkey.pages));
    case KH_ADM_CREATE_CQ:
    case KH_ADM_RESIZE_CQ:
      return fmt::format("size {} eqn {} ctx {} flags {:#x} ring at {:#x} record at {:#x} in {}",
                         uint64_t{1} << (c.create_cq.log_size & 63), uint32_t{c.create_cq.eqn},
                         uint16_t{c.create_cq.ctx}, c.create_cq.flags,
                         uint32_t{c.create_cq.ring_offset}, uint32_t{c.create_cq.db_offset},
                         pages(c.create_cq.pages));
    case KH_ADM_MODIFY_CQ:
      return fmt::format("count {} period {} us", uint16_t{c.modify_cq.count},
                         uint16_t{c.modify_cq.period});
    case KH_ADM_CREATE_SRQ:
    case KH_ADM_RESIZE_SRQ:
      return fmt::format("size {} stride {} pdn {} ctx {} ring at {:#x} record at {:#x} in {}",
                         uint64_t{1} << (c.create_srq.log_size & 63),
                         uint64_t{1} << (c.create_srq.log_stride & 63), uint32_t{c.create_srq.pdn},
                         uint16_t{c.create_srq.ctx}, uint32_t{c.create_srq.ring_offset},
                         uint32_t{c.create_srq.db_offset}, pages(c.create_srq.pages));
    case KH_ADM_MODIFY_SRQ:
      return fmt::format("limit {}", uint32_t{c.modify_srq.limit});
    case KH_ADM_CREATE_QP:
      return fmt::format(
          "{} pdn {} ctx {} slot {} send_cqn {} recv_cqn {} srqn {:#x} sq {} blocks at {:#x} rq {} "
          "of "
          "{} bytes at {:#x} record at {:#x} sge {}/{} in {}",
          qp_type_name(c.create_qp.type), uint32_t{c.create_qp.pdn}, uint16_t{c.create_qp.ctx},
          uint16_t{c.create_qp.db_slot}, uint32_t{c.create_qp.send_cqn},
          uint32_t{c.create_qp.recv_cqn}, uint32_t{c.create_qp.srqn},
          c.create_qp.has_sq ? uint64_t{1} << (c.create_qp.log_sq_blocks & 63) : 0,
          uint32_t{c.create_qp.sq_offset},
          c.create_qp.has_rq ? uint64_t{1} << (c.create_qp.log_rq_size & 63) : 0,
          uint64_t{1} << (c.create_qp.log_rq_stride & 63), uint32_t{c.create_qp.rq_offset},
          uint32_t{c.create_qp.db_offset}, c.create_qp.max_send_sge, c.create_qp.max_recv_sge,
          pages(c.create_qp.pages));
    case KH_ADM_MODIFY_QP:
      return qp_attr(c.modify_qp);
    case KH_ADM_ATTACH_MCAST:
    case KH_ADM_DETACH_MCAST:
      return fmt::format("group {}", gid(c.mcast.mgid));
    case KH_ADM_CREATE_NIC:
      return fmt::format(
          "tx {} rx {} vector {} slot {} in {}", uint64_t{1} << (c.create_nic.log_tx_size & 63),
          uint64_t{1} << (c.create_nic.log_rx_size & 63), uint16_t{c.create_nic.vector},
          uint16_t{c.create_nic.db_slot}, pages(c.create_nic.pages));
    default:
      return {};
  }
}

}  // namespace

std::string describe(const kh_admin_cmd& command) {
  std::string text = fmt::format("{} ({:#x}) {:#x}", admin_op_name(command.hdr.opcode),
                                 command.hdr.opcode, uint32_t{command.hdr.handle});
  std::string fields = fields_of(command);
  if (!fields.empty()) text += " " + fields;
  return text;
}

}  // namespace keyhole
