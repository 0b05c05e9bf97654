// SPDX-License-Identifier: BSD-2-Clause
//
// The data path makes no system call. After the queues are set up the process gives up system calls
// (seccomp's strict mode: the kernel kills it at the first one but read, write and exit), and then
// posts and polls in every way there is. Under strace (../no_system_calls.py) it keeps them, and
// marks with getppid() where that begins and ends.

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rig.h"

namespace rig {
namespace {

// exit(2) alone is allowed; what the C library calls is exit_group(2).
[[noreturn]] void leave(int status, const char* why) {
  if (status) (void)!write(2, why, std::strlen(why));
  for (;;)
    syscall(SYS_exit, status);
}

ibv_wc expect(ibv_cq* cq, ibv_wc_opcode opcode) {
  for (uint64_t i = 0; i < 300'000'000; i++) {
    ibv_wc wc{};
    if (!ibv_poll_cq(cq, 1, &wc)) continue;
    if (wc.status != IBV_WC_SUCCESS) leave(1, "quiet: completion with error\n");
    if (wc.opcode != opcode) leave(1, "quiet: wrong opcode\n");
    return wc;
  }
  leave(1, "quiet: no completion\n");
}

void expect_ex(ibv_cq_ex* cq, ibv_wc_opcode opcode) {
  ibv_poll_cq_attr attr{};
  for (uint64_t i = 0; i < 300'000'000; i++) {
    if (ibv_start_poll(cq, &attr)) continue;
    const bool right = cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == opcode;
    ibv_end_poll(cq);
    if (!right) leave(1, "quiet: extended completion\n");
    return;
  }
  leave(1, "quiet: no extended completion\n");
}

void go(bool ok) {
  if (!ok) leave(1, "quiet: posting failed\n");
}

}  // namespace

void run_quietly(Pair pair, bool forbid) {
  Side &a = pair.a, &b = pair.b;
  Qp here = make_qp(a.pd.get(), a.cq.get());
  Qp there = make_qp(b.pd.get(), b.cq.get());
  connect(here.get(), a, there.get(), b);

  // The work request builder, and an extended CQ.
  ibv_cq_init_attr_ex cq_attr{};
  cq_attr.cqe = 64;
  cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq_ex = need(ibv_create_cq_ex(a.context.get(), &cq_attr), "ibv_create_cq_ex");
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_ex);
  init.cap = {.max_send_wr = 16,
              .max_recv_wr = 16,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 32};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = a.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  ibv_qp* built = need(ibv_create_qp_ex(a.context.get(), &init), "ibv_create_qp_ex");
  ibv_qp_ex* builder = need(ibv_qp_to_qp_ex(built), "ibv_qp_to_qp_ex");
  Qp built_peer = make_qp(b.pd.get(), b.cq.get());
  connect(built, a, built_peer.get(), b);

  ibv_qp_init_attr ud_init{};
  ud_init.qp_type = IBV_QPT_UD;
  Qp ud_here = make_qp(a.pd.get(), a.cq.get(), ud_init);
  Qp ud_there = make_qp(b.pd.get(), b.cq.get(), ud_init);
  connect(ud_here.get(), a, ud_there.get(), b);
  ibv_ah_attr ah_attr{};
  ah_attr.is_global = 1;
  ah_attr.port_num = 1;
  ah_attr.grh.dgid = b.gid;
  ah_attr.grh.sgid_index = static_cast<uint8_t>(a.gid_index);
  ah_attr.grh.hop_limit = 64;
  ibv_ah* ah = need(ibv_create_ah(a.pd.get(), &ah_attr), "ibv_create_ah");
  ibv_mw* window = need(ibv_alloc_mw(a.pd.get(), IBV_MW_TYPE_1), "ibv_alloc_mw");

  // Long enough that the device goes to sleep between two of them: waking it is no system call.
  volatile uint64_t spin = 0;

  if (forbid)
    need_zero(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) ? errno : 0, "seccomp");
  else
    getppid();

  ibv_sge sge = a.sge(64), in = b.sge(128, 4096);
  for (int round = 0; round < 50; round++) {
    go(post(here.get(), write_request(sge, b)) == 0);
    expect(a.cq.get(), IBV_WC_RDMA_WRITE);
    ibv_send_wr wr = write_request(sge, b);
    wr.opcode = IBV_WR_RDMA_READ;
    go(post(here.get(), wr) == 0);
    expect(a.cq.get(), IBV_WC_RDMA_READ);
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    ibv_sge eight = a.sge(8);
    wr.sg_list = &eight;
    wr.wr.atomic = {.remote_addr = b.address(), .compare_add = 1, .swap = 0, .rkey = b.mr->rkey};
    go(post(here.get(), wr) == 0);
    expect(a.cq.get(), IBV_WC_FETCH_ADD);

    go(post_receive(there.get(), &in) == 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    send.sg_list = &sge;
    send.num_sge = 1;
    go(post(here.get(), send) == 0);
    expect(a.cq.get(), IBV_WC_SEND);
    expect(b.cq.get(), IBV_WC_RECV);

    go(post_receive(ud_there.get(), &in) == 0);
    send.wr.ud = {.ah = ah, .remote_qpn = ud_there->qp_num, .remote_qkey = 0x1234};
    go(post(ud_here.get(), send) == 0);
    expect(a.cq.get(), IBV_WC_SEND);
    expect(b.cq.get(), IBV_WC_RECV);

    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {.mr = a.mr.get(),
                      .addr = a.address(),
                      .length = 64,
                      .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    go(ibv_bind_mw(here.get(), window, &bind) == 0);
    expect(a.cq.get(), IBV_WC_BIND_MW);

    ibv_wr_start(builder);
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(builder, b.mr->rkey, b.address());
    ibv_wr_set_sge(builder, a.mr->lkey, a.address(), 64);
    ibv_wr_rdma_write(builder, b.mr->rkey, b.address());
    ibv_wr_set_inline_data(builder, a.memory.data(), 32);
    go(ibv_wr_complete(builder) == 0);
    expect_ex(cq_ex, IBV_WC_RDMA_WRITE);
    expect_ex(cq_ex, IBV_WC_RDMA_WRITE);

    go(ibv_req_notify_cq(a.cq.get(), 0) == 0);
    if (round % 10 == 0)
      for (spin = 0; spin < 20'000'000;)
        spin = spin + 1;
  }
  if (!forbid) getppid();
  leave(0, "");
}

}  // namespace rig
