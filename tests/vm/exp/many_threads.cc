// SPDX-License-Identifier: BSD-2-Clause
//
// The experimental verbs from many threads at once, and while their program forks and executes others.
//
//   exp_many_threads DEVICE [SECONDS]    a line for each check; 3 seconds a race
//
// Threads share a context and a PD and make, query and destroy everything that the library keeps a record
// of, standard objects among them by the same calls. Each thread looks only at its own objects: whatever
// is wrong with those, another's record was taken for it. In the end the PD must be free.

#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

int failures = 0;
double duration = 3;

void check(bool right, const std::string& what) {
  failures += !right;
  std::printf("%-6s %s\n", right ? "ok" : "WRONG", what.c_str());
  std::fflush(stdout);
}

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** list = ibv_exp_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (!std::strcmp(name, ibv_get_device_name(list[i]))) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (!context) {
    std::fprintf(stderr, "cannot open %s\n", name);
    std::exit(2);
  }
  return context;
}

// One thread's doings. An object that cannot be had counts as wrong: there is room for all.
struct Worker {
  ibv_context* context;
  ibv_pd* pd;
  std::minstd_rand random;
  unsigned done = 0, wrong = 0;
  std::string first;

  void expect(bool right, const char* what) {
    ++done;
    if (!right && !wrong++) first = std::string(what) + ": " + std::strerror(errno);
  }

  void mkey() {
    ibv_exp_create_mr_in in{};
    in.pd = pd;
    in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
    in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
    in.attr.max_klm_list_size = 1 + random() % 64;
    ibv_mr* mr = ibv_exp_create_mr(&in);
    expect(mr, "ibv_exp_create_mr");
    if (!mr) return;
    ibv_exp_mkey_attr attr{};
    expect(ibv_exp_query_mkey(mr, &attr) == 0 && attr.max_klm_list_size == in.attr.max_klm_list_size,
           "ibv_exp_query_mkey");
    mr->addr = nullptr;  // as programs do
    mr->length = 12345;
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr of an mkey");
  }

  void region() {
    ibv_exp_reg_mr_in in{};
    in.pd = pd;
    in.length = 4096 + random() % 8192;
    in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
    ibv_mr* mr = ibv_exp_reg_mr(&in);
    expect(mr && mr->addr, "ibv_exp_reg_mr");
    if (!mr) return;
    std::memset(mr->addr, 0x5a, in.length);
    ibv_exp_mkey_attr attr{};
    expect(ibv_exp_query_mkey(mr, &attr) == EINVAL, "ibv_exp_query_mkey of a region");
    expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr of a region");
    std::vector<char> own(4096);
    mr = ibv_reg_mr(pd, own.data(), own.size(), IBV_ACCESS_LOCAL_WRITE);
    expect(mr, "ibv_reg_mr");
    if (mr) expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr of a standard region");
  }

  void container() {
    ibv_exp_mkey_list_container_attr attr{};
    attr.pd = pd;
    attr.mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR;
    attr.max_klm_list_size = 1 + random() % 256;
    ibv_exp_mkey_list_container* list = ibv_exp_alloc_mkey_list_memory(&attr);
    expect(list, "ibv_exp_alloc_mkey_list_memory");
    if (list) expect(ibv_exp_dealloc_mkey_list_memory(list) == 0, "ibv_exp_dealloc_mkey_list_memory");
  }

  void queues() {
    ibv_exp_res_domain_init_attr domain_attr{};
    domain_attr.comp_mask = IBV_EXP_RES_DOMAIN_THREAD_MODEL;
    domain_attr.thread_model = IBV_EXP_THREAD_SINGLE;
    ibv_exp_res_domain* domain = ibv_exp_create_res_domain(context, &domain_attr);
    expect(domain, "ibv_exp_create_res_domain");
    ibv_exp_cq_init_attr cq_attr{};
    cq_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS | (domain ? IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN : 0);
    cq_attr.flags = random() % 2 ? IBV_EXP_CQ_TIMESTAMP : 0;
    cq_attr.res_domain = domain;
    ibv_cq* cq = ibv_exp_create_cq(context, 16, nullptr, nullptr, 0, &cq_attr);
    expect(cq, "ibv_exp_create_cq");
    ibv_cq* plain = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    expect(plain, "ibv_create_cq");
    if (cq && plain) {
      ibv_exp_qp_init_attr init{};
      init.send_cq = cq;
      init.recv_cq = plain;
      init.qp_type = IBV_QPT_RC;
      init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      init.pd = pd;
      init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
      init.exp_create_flags = random() % 2 ? IBV_EXP_QP_CREATE_UMR : 0;
      ibv_qp* qp = ibv_exp_create_qp(context, &init);
      expect(qp, "ibv_exp_create_qp");
      ibv_exp_wc wc[2];
      expect(ibv_exp_poll_cq(cq, 2, wc, sizeof(wc[0])) == 0, "ibv_exp_poll_cq");
      expect(ibv_exp_poll_cq(plain, 2, wc, sizeof(wc[0])) == 0, "ibv_exp_poll_cq of a standard CQ");
      if (qp) expect(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
    }
    if (plain) expect(ibv_destroy_cq(plain) == 0, "ibv_destroy_cq of a standard CQ");
    if (cq) expect(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
    ibv_exp_destroy_res_domain_attr none{};
    if (domain) expect(ibv_exp_destroy_res_domain(context, domain, &none) == 0, "ibv_exp_destroy_res_domain");
  }

  void step() {
    switch (random() % 4) {
      case 0: return mkey();
      case 1: return region();
      case 2: return container();
      default: return queues();
    }
  }
};

// With `forking`, the first thread forks and executes all the while: fork(2) under threads that hold locks.
void race(const char* device, bool forking) {
  ibv_context* context = open_device(device);
  ibv_pd* pd = ibv_alloc_pd(context);
  std::atomic<bool> over{false};
  std::vector<Worker> workers;
  for (unsigned i = 0; i < 4; ++i) workers.push_back({context, pd, std::minstd_rand(i + 1), 0, 0, {}});
  std::vector<std::thread> threads;
  for (Worker& worker : workers)
    threads.emplace_back([&] {
      while (!over) worker.step();
    });
  unsigned children = 0, bad = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(duration);
  while (std::chrono::steady_clock::now() < end) {
    if (!forking) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const pid_t child = fork();
    if (!child) {
      execl("/bin/true", "true", nullptr);
      _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ++children;
    bad += !WIFEXITED(status) || WEXITSTATUS(status);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  unsigned done = 0, wrong = 0;
  std::string first;
  for (const Worker& worker : workers) {
    done += worker.done;
    wrong += worker.wrong;
    if (worker.wrong && first.empty()) first = ", first " + worker.first;
  }
  const std::string name = forking ? "forking: " : "threads: ";
  check(done > 0 && !wrong, name + std::to_string(done) + " calls, " + std::to_string(wrong) + " wrong" + first);
  if (forking) check(children && !bad, name + std::to_string(children) + " children, " + std::to_string(bad) + " bad");
  check(ibv_dealloc_pd(pd) == 0, name + "the PD is free afterwards");
  check(ibv_close_device(context) == 0, name + "and the context can be closed");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: exp_many_threads DEVICE [SECONDS]\n");
    return 2;
  }
  if (argc == 3) duration = std::atof(argv[2]);
  race(argv[1], false);
  race(argv[1], true);
  return failures != 0;
}
