// SPDX-License-Identifier: BSD-2-Clause
//
// Creates many RC queue pairs, says so, and keeps them until its input ends: for whoever wants to see what
// they cost the device.
//
//   many_qps DEVICE COUNT
//
// Prints `ready` when all exist, and `gone` when all have been destroyed.

#include "verbs.h"

using guest::need;

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "usage: many_qps DEVICE COUNT\n");
    return 2;
  }
  guest::End end(argv[1], 0, 4096);
  std::vector<guest::Owned<ibv_qp, ibv_destroy_qp>> qps;
  for (int i = 0; i < count; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = need(end.qp(), "a QP")->send_cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    qps.emplace_back(need(ibv_create_qp(end.pd(), &init), "ibv_create_qp " + std::to_string(i)));
  }
  std::printf("ready\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  qps.clear();
  std::printf("gone\n");
  return 0;
}
