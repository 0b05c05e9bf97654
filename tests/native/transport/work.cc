// SPDX-License-Identifier: BSD-2-Clause

#include "work.h"

#include <cstring>

namespace keyhole::test {

std::vector<std::byte> lay_out(const Work& work, bool datagram) {
  std::vector<std::byte> out(sizeof(kh_wqe_ctrl));
  auto append = [&](const void* what, size_t size) {
    auto* from = static_cast<const std::byte*>(what);
    out.insert(out.end(), from, from + size);
  };
  auto inline_len = static_cast<uint32_t>(work.inline_data.size());
  switch (work.opcode) {
    case KH_OP_BIND_MW:
      append(&work.bind, sizeof(work.bind));
      break;
    case KH_OP_UMR_FILL:
      append(&work.umr, sizeof(work.umr));
      break;
    case KH_OP_LOCAL_INV:
    case KH_OP_UMR_INV:
    case KH_OP_NOP:
      break;
    case KH_OP_REG_MR: {
      kh_wqe_reg reg{};
      append(&reg, sizeof(reg));
      break;
    }
    default:
      if (datagram) {
        kh_wqe_ud ud{};
        ud.av = work.av;
        ud.dest_qpn = work.dest_qpn;
        ud.qkey = work.qkey;
        ud.inline_len = inline_len;
        append(&ud, sizeof(ud));
      } else {
        kh_wqe_rdma rdma{work.remote_addr, work.rkey, inline_len};
        append(&rdma, sizeof(rdma));
      }
      if (work.opcode == KH_OP_FLUSH) {
        reinterpret_cast<kh_wqe_rdma*>(out.data() + sizeof(kh_wqe_ctrl))->inline_len =
            work.flush_length;
        append(&work.flush, sizeof(work.flush));
      }
      if (work.opcode == KH_OP_CMP_SWAP || work.opcode == KH_OP_FETCH_ADD) {
        kh_wqe_atomic atomic{work.swap_add, work.compare};
        append(&atomic, sizeof(atomic));
      }
      if (work.opcode == KH_OP_MASKED_CMP_SWAP || work.opcode == KH_OP_MASKED_FETCH_ADD)
        append(&work.masked, sizeof(work.masked));
  }
  append(work.sge.data(), work.sge.size() * sizeof(kh_sge));
  append(work.inline_data.data(), work.inline_data.size());
  out.resize((out.size() + KH_WQE_BLOCK - 1) / KH_WQE_BLOCK * KH_WQE_BLOCK);

  kh_wqe_ctrl ctrl{};
  ctrl.opcode = work.opcode;
  ctrl.flags = work.flags;
  ctrl.nblocks = static_cast<uint8_t>(work.nblocks >= 0 ? work.nblocks : out.size() / KH_WQE_BLOCK);
  ctrl.num_sge = static_cast<uint8_t>(work.num_sge >= 0 ? work.num_sge : work.sge.size());
  ctrl.imm = work.imm;
  ctrl.wr_id = work.wr_id;
  std::memcpy(out.data(), &ctrl, sizeof(ctrl));
  return out;
}

}  // namespace keyhole::test
