// SPDX-License-Identifier: BSD-2-Clause

#include "claims.h"

namespace keyhole::fuzz {

namespace {

std::vector<Extent> operator+(std::vector<Extent> a, const std::vector<Extent>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

size_t output_size(uint8_t opcode) {
  switch (opcode) {
    case KH_ADM_QUERY_DEVICE:
      return sizeof(kh_device_attr);
    case KH_ADM_QUERY_STATS:
      return KH_NUM_STATS * sizeof(uint64_t);
    case KH_ADM_QUERY_MKEY:
      return sizeof(kh_mkey_attr);
    case KH_ADM_QUERY_QP:
      return sizeof(kh_qp_attr);
    default:
      return 0;
  }
}

}  // namespace

void Claims::prepare(const kh_admin_cmd& command) {
  switch (command.hdr.opcode) {
    case KH_ADM_CREATE_MKEY:
      pages_ = guest_.expand(command.create_mkey.pages);
      break;
    case KH_ADM_MODIFY_MKEY:
      pages_ = guest_.expand(command.modify_mkey.pages);
      break;
    default:
      // All the others have them at the start of the body.
      pages_ = guest_.expand(command.create_cq.pages);
  }
}

void Claims::executed(const kh_admin_cmd& command, const kh_admin_cqe& result) {
  const uint8_t opcode = command.hdr.opcode;
  const uint32_t handle = command.hdr.handle;
  const bool ok = result.status == KH_ST_OK;
  const kh_cmd_create_cq& cq = command.create_cq;
  const kh_cmd_create_srq& srq = command.create_srq;
  auto whole_cq = [&] { return part(cq.ring_offset, sizeof(kh_cqe) << (cq.log_size & 31)); };
  auto whole_srq = [&] {
    return part(srq.ring_offset, uint64_t{1} << ((srq.log_size + srq.log_stride) & 63)) +
           part(srq.db_offset, sizeof(uint32_t));
  };
  auto wrote = [&](const std::vector<Extent>& extents) {
    for (const Extent& extent : extents)
      if (guest_.may_write(extent.offset, extent.size))
        guest_.oracle().wrote(guest_.at(extent.offset), extent.size);
  };
  // A resize writes the new ring, once, even one that it then refuses.
  if (opcode == KH_ADM_RESIZE_CQ) wrote(whole_cq() + part(cq.db_offset, sizeof(kh_cq_db)));
  if (opcode == KH_ADM_RESIZE_SRQ)
    wrote(whole_srq() + part(srq.db_offset + offsetof(kh_srq_db, ci), sizeof(uint32_t)));
  if (!ok) return;

  if (size_t size = output_size(opcode); size > 0)
    wrote(guest_.extents({{command.hdr.out_addr, size}}, 0, size));
  switch (opcode) {
    case KH_ADM_CREATE_EQ:
      claim({opcode, result.result[0]},
            part(command.create_eq.ring_offset, sizeof(kh_eqe) << command.create_eq.log_size));
      break;
    case KH_ADM_CREATE_CQ:
      claim({opcode, result.result[0]}, whole_cq());
      break;
    case KH_ADM_RESIZE_CQ:
      release({KH_ADM_CREATE_CQ, handle});
      claim({KH_ADM_CREATE_CQ, handle}, whole_cq());
      break;
    case KH_ADM_CREATE_SRQ:
      claim({opcode, result.result[0]},
            part(srq.db_offset + offsetof(kh_srq_db, ci), sizeof(uint32_t)));
      break;
    case KH_ADM_RESIZE_SRQ:
      release({KH_ADM_CREATE_SRQ, handle});
      claim({KH_ADM_CREATE_SRQ, handle},
            part(srq.db_offset + offsetof(kh_srq_db, ci), sizeof(uint32_t)));
      break;
    case KH_ADM_CREATE_QP:
      claim({opcode, result.result[0]},
            part(command.create_qp.db_offset + offsetof(kh_qp_db, rq_notify), sizeof(uint32_t)));
      break;
    case KH_ADM_CREATE_NIC:
      claim({opcode, 0},
            part(command.create_nic.rxc_offset, sizeof(kh_nic_cqe)
                                                    << command.create_nic.log_rx_size) +
                part(command.create_nic.db_offset + offsetof(kh_nic_db, tx_ci), sizeof(uint32_t)));
      break;
    case KH_ADM_DESTROY_EQ:
    case KH_ADM_DESTROY_CQ:
    case KH_ADM_DESTROY_SRQ:
    case KH_ADM_DESTROY_QP:
    case KH_ADM_DESTROY_NIC:
      release({static_cast<uint8_t>(opcode - 1), handle});
      break;
    default:
      if (keys_count_) executed_on_key(command, result);
  }
}

void Claims::executed_on_key(const kh_admin_cmd& command, const kh_admin_cqe& result) {
  const uint32_t handle = command.hdr.handle;
  const kh_cmd_create_mkey& create = command.create_mkey;
  const kh_cmd_modify_mkey& modify = command.modify_mkey;
  switch (command.hdr.opcode) {
    case KH_ADM_CREATE_MKEY:
      if (create.kind == KH_MKEY_PHYS) {
        claim({KH_ADM_CREATE_MKEY, result.result[0]}, {{0, guest_.size()}});
      } else if (create.kind == KH_MKEY_DIRECT) {
        keep(result.result[0], {part(create.offset, create.length), create.access, create.pdn});
      }
      break;
    case KH_ADM_DESTROY_MKEY:
      release({KH_ADM_CREATE_MKEY, handle});
      keys_.erase(handle);
      break;
    case KH_ADM_MODIFY_MKEY: {
      release({KH_ADM_CREATE_MKEY, handle});
      Key key = keys_[handle];
      keys_.erase(handle);
      if (modify.mask & KH_MKEY_MOD_TRANSLATION) key.extents = part(modify.offset, modify.length);
      if (modify.mask & KH_MKEY_MOD_ACCESS) key.access = modify.access;
      if (modify.mask & KH_MKEY_MOD_PD) key.pdn = modify.pdn;
      keep(result.result[0], key);
      break;
    }
    default:
      break;
  }
}

void Claims::keep(uint32_t number, Key key) {
  if ((key.access & KH_ACCESS_LOCAL_WRITE) != 0 && only_pd_.value_or(key.pdn) == key.pdn)
    claim({KH_ADM_CREATE_MKEY, number}, key.extents);
  keys_[number] = std::move(key);
}

void Claims::claim(Name name, std::vector<Extent> extents) {
  guest_.oracle().allow(extents);
  std::vector<Extent>& of = claims_[name];
  of.insert(of.end(), extents.begin(), extents.end());
}

void Claims::release(Name name) {
  auto found = claims_.find(name);
  if (found == claims_.end()) return;
  guest_.oracle().forbid(found->second);
  claims_.erase(found);
}

void Claims::drop_all() {
  for (auto& [name, extents] : claims_)
    guest_.oracle().forbid(extents);
  claims_.clear();
  keys_.clear();
}

}  // namespace keyhole::fuzz
