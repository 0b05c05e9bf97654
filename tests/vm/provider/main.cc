// SPDX-License-Identifier: BSD-2-Clause
//
//   provider_vm_test DEVICE GID-INDEX DEVICE GID-INDEX [quiet]
//
// Runs every test between two devices, prints a line for each check, and exits with 0 when all
// held. With `quiet`, only posts and polls, for strace to look at.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "rig.h"

namespace rig {

int checks = 0;
int failures = 0;

void check(bool right, const std::string& what) {
  checks++;
  failures += !right;
  std::printf("%-6s %s\n", right ? "ok" : "WRONG", what.c_str());
  std::fflush(stdout);
}

void same(int64_t got, int64_t wanted, const std::string& what) {
  check(got == wanted, got == wanted ? what
                                     : what + ": got " + std::to_string(got) + ", wanted " +
                                           std::to_string(wanted));
}

Side::Side(const std::string& device, int index, size_t bytes) : gid_index(index) {
  int count = 0;
  ibv_device** list = need(ibv_get_device_list(&count), "ibv_get_device_list");
  for (int i = 0; i < count; i++)
    if (device == ibv_get_device_name(list[i])) context.reset(ibv_open_device(list[i]));
  ibv_free_device_list(list);
  need(context.get(), "opening " + device);
  pd.reset(need(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
  cq.reset(need(ibv_create_cq(context.get(), 4096, nullptr, nullptr, 0), "ibv_create_cq"));
  memory.assign(bytes, 0);
  mr.reset(
      need(ibv_reg_mr(pd.get(), memory.data(), bytes,
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND),
           "ibv_reg_mr"));
  need_zero(ibv_query_gid(context.get(), 1, gid_index, &gid), "ibv_query_gid");
}

Qp make_qp(ibv_pd* pd, ibv_cq* cq, ibv_qp_init_attr init) {
  if (!init.send_cq) init.send_cq = cq;
  if (!init.recv_cq) init.recv_cq = cq;
  if (!init.cap.max_send_wr)
    init.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  if (init.qp_type == ibv_qp_type{}) init.qp_type = IBV_QPT_RC;
  return Qp(need(ibv_create_qp(pd, &init), "ibv_create_qp"));
}

void to_reset(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  need_zero(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "modify to RESET");
}

void to_ready(ibv_qp* qp, const Side& here, const Side& there, uint32_t peer_qpn) {
  const bool ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 0x1234;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
  need_zero(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
            "modify to INIT");

  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer_qpn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = there.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(here.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE;
  if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  need_zero(ibv_modify_qp(qp, &attr, mask), "modify to RTR");

  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  need_zero(ibv_modify_qp(qp, &attr, mask), "modify to RTS");
}

void connect(ibv_qp* a, const Side& side_a, ibv_qp* b, const Side& side_b) {
  to_reset(a);
  to_reset(b);
  to_ready(a, side_a, side_b, b->qp_num);
  to_ready(b, side_b, side_a, a->qp_num);
}

ibv_send_wr write_request(ibv_sge& sge, const Side& there, uint64_t wr_id) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = there.address();
  wr.wr.rdma.rkey = there.mr->rkey;
  return wr;
}

int post(ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int post_receive(ibv_qp* qp, ibv_sge* sge, uint64_t wr_id) {
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = sge, .num_sge = sge ? 1 : 0};
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

namespace {
constexpr uint64_t kManyPolls = 300'000'000;  // minutes, even when emulated
constexpr uint64_t kSomePolls = 3'000'000;
}  // namespace

ibv_wc next(ibv_cq* cq) {
  ibv_wc wc{};
  for (uint64_t i = 0; i < kManyPolls; i++) {
    const int got = ibv_poll_cq(cq, 1, &wc);
    if (got < 0) die("ibv_poll_cq");
    if (got) return wc;
  }
  std::fprintf(stderr, "no completion\n");
  std::exit(2);
}

std::vector<ibv_wc> collect(ibv_cq* cq, size_t count) {
  std::vector<ibv_wc> all;
  ibv_wc wc{};
  for (uint64_t idle = 0; idle < kSomePolls && all.size() < count; idle++) {
    if (ibv_poll_cq(cq, 1, &wc) <= 0) continue;
    all.push_back(wc);
    idle = 0;
  }
  return all;
}

}  // namespace rig

int main(int argc, char** argv) {
  using namespace rig;
  const bool only_quiet = argc == 6 && !std::strcmp(argv[5], "quiet");
  if (argc != 5 && !only_quiet) {
    std::fprintf(stderr, "usage: %s DEVICE GID-INDEX DEVICE GID-INDEX [quiet]\n", argv[0]);
    return 2;
  }
  const auto side = [&](int i) { return Side(argv[i], std::atoi(argv[i + 1])); };
  if (only_quiet) {
    Side a = side(1), b = side(3);
    run_quietly({a, b}, false);
  }

  // First, and in a process of its own, since it gives up system calls for good.
  const pid_t child = fork();
  if (child == 0) {
    Side a = side(1), b = side(3);
    run_quietly({a, b}, true);
  }
  int status = 0;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
            ? "data path: a system call was made (killed by seccomp)"
            : "data path: every kind of request and poll, without one system call");

  Side a = side(1), b = side(3);
  const Pair pair{a, b};
  test_domains(pair);
  test_overflow(pair);
  test_cleaning(pair);
  test_shared_receive(pair);
  test_completions(pair);
  test_errors(pair);
  test_regions(pair);
  std::printf("%d checks, %d wrong\n", checks, failures);
  return failures != 0;
}
