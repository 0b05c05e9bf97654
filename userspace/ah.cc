// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_create_ah(3). The kernel resolves the path (destination MAC, hop limit) and answers with the
// address vector as work requests carry it, so that posting to it copies 32 bytes.

#include <new>

#include "cmd.h"
#include "control.h"
#include "fast_path/queues.h"

namespace keyhole {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  static_assert(sizeof(kh_av) == sizeof(keyhole_create_ah_resp::av));
  auto* ah = new (std::nothrow) verbs::Ah();
  if (!ah) return fail(ENOMEM);
  if (int err = kh_cmd_create_ah(pd, &ah->ibv, attr, &ah->av)) {
    delete ah;
    return fail(err);
  }
  return &ah->ibv;
}

int destroy_ah(ibv_ah* ah) {
  if (int err = ibv_cmd_destroy_ah(ah)) return err;
  delete &verbs::ah_of(ah);
  return 0;
}

}  // namespace keyhole
