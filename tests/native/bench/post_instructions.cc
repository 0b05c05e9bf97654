// SPDX-License-Identifier: BSD-2-Clause
//
// Posts one kind of work request over and over, for callgrind to count what the call alone costs
// (see count_instructions.py). No device: completions are written by hand, outside the counted
// calls.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "../provider/rig.h"

using namespace keyhole::verbs;

// What is counted: everything from the application's call to its return, the doorbell included.
// Not inlined, so that callgrind can switch its collection on at their entry and off at their
// return.
extern "C" {
[[gnu::noinline]] int counted_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return ibv_post_send(qp, wr, bad);
}
[[gnu::noinline]] int counted_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  return ibv_bind_mw(qp, mw, bind);
}
[[gnu::noinline]] int counted_wr_write(ibv_qp_ex* qp, std::uint64_t addr) {
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, 0x100, 0x1000);
  ibv_wr_set_sge(qp, 0x200, addr, 64);
  return ibv_wr_complete(qp);
}
[[gnu::noinline]] int counted_wr_mr_list(ibv_qp_ex* qp, keyholedv_qp_ex* dv, keyholedv_mkey* mkey,
                                         const ibv_sge* list) {
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  keyholedv_wr_mr_list(dv, mkey, IBV_ACCESS_LOCAL_WRITE, 4, list);
  return ibv_wr_complete(qp);
}
[[gnu::noinline]] int counted_post_fill(ibv_qp* qp, keyholedv_send_wr* wr,
                                        keyholedv_send_wr** bad) {
  return post_dv(qp, wr, bad);
}
[[gnu::noinline]] int counted_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return ibv_post_recv(qp, wr, bad);
}
[[gnu::noinline]] int counted_poll_cq(ibv_cq* cq, ibv_wc* wc) { return ibv_poll_cq(cq, 1, wc); }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CASE locked|unlocked COUNT\n", argv[0]);
    return 2;
  }
  const std::string which = argv[1];
  const bool unlocked = std::string(argv[2]) == "unlocked";
  const long count = std::strtol(argv[3], nullptr, 10);

  QpTable qps;
  CqRig cq(qps, 4, unlocked);
  QpRig qp(qps, cq, cq, 0x123, {.single_threaded = unlocked});
  std::array<std::byte, 64> buffer{};
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer.data()), 64, 0x200};
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {0x1000, 0x100};
  ibv_recv_wr rwr{.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad_recv = nullptr;
  ibv_pd pd{};
  ibv_mr mr{};
  ibv_mw mw{
      .context = test_context(), .pd = &pd, .rkey = 0x500, .handle = 0, .type = IBV_MW_TYPE_1};
  mr.pd = &pd;
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {&mr, 0x1000, 64, IBV_ACCESS_REMOTE_WRITE}};
  ibv_wc wc{};
  keyholedv_mkey mkey{.lkey = 0x600, .rkey = 0x600};
  const std::array<ibv_sge, 4> pieces = {sge, sge, sge, sge};
  std::array<std::byte, 64> list_memory{};
  keyholedv_klm_list list{
      .addr = list_memory.data(), .length = list_memory.size(), .max_entries = 4, .key = 0x800};
  keyholedv_send_wr fill{};
  keyholedv_send_wr* bad_fill = nullptr;
  fill.opcode = KEYHOLEDV_WR_FILL;
  fill.send_flags = IBV_SEND_SIGNALED;
  fill.fill.mkey = mkey.lkey;
  fill.fill.access = IBV_ACCESS_LOCAL_WRITE;
  fill.fill.num_entries = 4;
  fill.fill.list = pieces.data();
  fill.fill.klm_list = &list;

  const std::map<std::string, std::function<int()>> cases = {
      {"write",
       [&] {
         wr.opcode = IBV_WR_RDMA_WRITE;
         return counted_post_send(qp.ibv(), &wr, &bad);
       }},
      {"inline_send",
       [&] {
         wr.opcode = IBV_WR_SEND;
         wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
         sge.length = 32;
         return counted_post_send(qp.ibv(), &wr, &bad);
       }},
      {"bind_mw", [&] { return counted_bind_mw(qp.ibv(), &mw, &bind); }},
      {"local_inv",
       [&] {
         wr.opcode = IBV_WR_LOCAL_INV;
         wr.invalidate_rkey = 0x700;
         return counted_post_send(qp.ibv(), &wr, &bad);
       }},
      {"wr_write", [&] { return counted_wr_write(qp.ex(), sge.addr); }},
      {"wr_mr_list",
       [&] { return counted_wr_mr_list(qp.ex(), qp.dv(), &mkey, pieces.data()); }},
      {"post_fill", [&] { return counted_post_fill(qp.ibv(), &fill, &bad_fill); }},
      {"post_recv", [&] { return counted_post_recv(qp.ibv(), &rwr, &bad_recv); }},
      {"poll_cq",
       [&] {
         cq.put(qp.send_cqe(0, 1));
         return counted_poll_cq(cq.ibv(), &wc) - 1;
       }},
  };
  const auto found = cases.find(which);
  if (found == cases.end()) return 2;

  for (long i = 0; i < count; i++) {
    if (const int error = found->second()) {
      std::fprintf(stderr, "%s: error %d\n", which.c_str(), error);
      return 1;
    }
    qp.qp.sq.ci = qp.qp.sq.pi;  // as if all were polled
    qp.qp.rq.ci = qp.qp.rq.pi;
  }
  return 0;
}
