// SPDX-License-Identifier: BSD-2-Clause
//
// Regions that share a page: each has a key of its own, and one's end is not the others'.

#include "rig.h"

namespace rig {

// More than the seven mappings of a page that the kernel's DMA debugging can count.
constexpr size_t kRegions = 20;
constexpr size_t kBytes = 64;

void test_regions(Pair pair) {
  std::vector<uint8_t> target(kRegions * kBytes);
  std::vector<Mr> regions;
  for (size_t i = 0; i < kRegions; i++)
    regions.emplace_back(need(ibv_reg_mr(pair.b.pd.get(), &target[i * kBytes], kBytes,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                              "ibv_reg_mr"));
  Qp a = make_qp(pair.a.pd.get(), pair.a.cq.get());
  Qp b = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(a.get(), pair.a, b.get(), pair.b);

  const auto write = [&](size_t i, uint32_t rkey) {
    pair.a.memory[0] = static_cast<uint8_t>(i + 1);
    ibv_sge sge = pair.a.sge(1);
    ibv_send_wr wr = write_request(sge, pair.b);
    wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(&target[i * kBytes]);
    wr.wr.rdma.rkey = rkey;
    need_zero(post(a.get(), wr), "post");
    return next(pair.a.cq.get()).status;
  };
  bool right = true;
  for (size_t i = 0; i < kRegions; i++)
    right &= write(i, regions[i]->rkey) == IBV_WC_SUCCESS && target[i * kBytes] == i + 1;
  check(right, "regions of one page: each is written by its key");

  const uint32_t dead = regions[0]->rkey;
  for (size_t i = 0; i < kRegions - 1; i++)
    regions[i].reset();
  check(write(kRegions - 1, regions.back()->rkey) == IBV_WC_SUCCESS,
        "regions of one page: the last outlives the others");
  same(write(0, dead), IBV_WC_REM_ACCESS_ERR, "regions of one page: a dead one is refused");
}

}  // namespace rig
