// SPDX-License-Identifier: BSD-2-Clause
//
// Two connected ends of the engine rig, as nearly every test of provider and engine begins.

#pragma once

#include <gtest/gtest.h>

#include "engine_rig.h"

namespace keyhole::verbs {

// Two stations with a connected QP, a CQ for both directions, and a region each.
struct Pair {
  EngineRig rig;
  Station& a = rig.at(0);
  Station& b = rig.at(1);
  EngineCq cq_a{a, 7}, cq_b{b, 7};
  EngineQp qp_a, qp_b;
  EngineMr mr_a{a, 16384, kAllAccess, 1}, mr_b{b, 16384, kAllAccess, 2};

  explicit Pair(EngineQpOptions o = {}) : qp_a(a, cq_a, cq_a, o), qp_b(b, cq_b, cq_b, o) {
    if (o.type == IBV_QPT_UD) {
      qp_a.bring_up_ud(0x1234);
      qp_b.bring_up_ud(0x1234);
    } else {
      qp_a.connect(qp_b);
      qp_b.connect(qp_a);
    }
  }

  // The only completion of a's CQ, after the engine has come to rest.
  ibv_wc one(EngineCq& cq) {
    rig.run();
    const auto wcs = cq.poll();
    EXPECT_EQ(wcs.size(), 1u);
    return wcs.empty() ? ibv_wc{} : wcs[0];
  }
  bool same(std::size_t at_a, std::size_t at_b, std::size_t size) {
    return std::memcmp(mr_a.data() + at_a, mr_b.data() + at_b, size) == 0;
  }
};

inline ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_sge* sge,
                           int num_sge = 1) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.wr_id = wr_id;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sge;
  wr.num_sge = num_sge;
  return wr;
}

}  // namespace keyhole::verbs
