// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_reg_mr(3), ibv_rereg_mr(3), ibv_alloc_mw(3). Keys, pinning and the rules between regions and
// windows are the kernel's and the device's; here is only the object that the application holds.

#include <new>

#include "cmd.h"
#include "control.h"

namespace keyhole {

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t hca_va, int access) {
  auto* mr = new (std::nothrow) verbs_mr();
  if (!mr) return fail(ENOMEM);
  if (int err = kh_cmd_reg_mr(pd, addr, length, hca_va, access, mr)) {
    delete mr;
    return fail(err);
  }
  return &mr->ibv_mr;
}

// The device gives a new key (same index, next variant), which the command stores in the object.
int rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  if (int err = kh_cmd_rereg_mr(mr, static_cast<uint32_t>(flags), pd, addr, length, access))
    return err;
  if (flags & IBV_REREG_MR_CHANGE_ACCESS) mr->access = access;
  return 0;
}

int dereg_mr(verbs_mr* mr) {
  if (int err = ibv_cmd_dereg_mr(mr)) return err;
  delete mr;
  return 0;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
  auto* mw = new (std::nothrow) ibv_mw();
  if (!mw) return fail(ENOMEM);
  if (int err = kh_cmd_alloc_mw(pd, type, mw)) {
    delete mw;
    return fail(err);
  }
  return mw;
}

int dealloc_mw(ibv_mw* mw) {
  if (int err = ibv_cmd_dealloc_mw(mw)) return err;
  delete mw;
  return 0;
}

}  // namespace keyhole
