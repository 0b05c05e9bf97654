// SPDX-License-Identifier: BSD-2-Clause
//
// Parent domains and thread domains on the real stack: the application's allocator backs every
// queue, traffic runs through that memory, and every piece comes back.

#include <algorithm>
#include <map>
#include <set>

#include "rig.h"

namespace rig {
namespace {

struct Application {
  std::map<void*, size_t> held;
  std::map<uint64_t, int> allocations, frees;  // by resource type
  bool use_default = false;

  static void* alloc(ibv_pd*, void* context, size_t size, size_t align, uint64_t type) {
    auto& app = *static_cast<Application*>(context);
    app.allocations[type]++;
    if (app.use_default) return IBV_ALLOCATOR_USE_DEFAULT;
    void* memory = std::aligned_alloc(align, (size + align - 1) / align * align);
    std::memset(memory, 0, size);
    app.held[memory] = size;
    return memory;
  }
  static void free(ibv_pd*, void* context, void* memory, uint64_t type) {
    auto& app = *static_cast<Application*>(context);
    app.frees[type]++;
    check(app.held.erase(memory) == 1, "parent domain: what is freed had been allocated");
    std::free(memory);
  }
  int total(const std::map<uint64_t, int>& counts) const {
    int sum = 0;
    for (const auto& [type, count] : counts)
      sum += count;
    return sum;
  }
  bool written(const void* where) const {
    const auto* bytes = static_cast<const uint8_t*>(where);
    return std::any_of(bytes, bytes + held.at(const_cast<void*>(where)),
                       [](uint8_t byte) { return byte != 0; });
  }
};

Pd parent(const Side& side, Application* app, ibv_td* td) {
  ibv_parent_domain_init_attr attr{};
  attr.pd = side.pd.get();
  attr.td = td;
  if (app) {
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Application::alloc;
    attr.free = Application::free;
    attr.pd_context = app;
  }
  return Pd(need(ibv_alloc_parent_domain(side.context.get(), &attr), "ibv_alloc_parent_domain"));
}

Cq domain_cq(const Side& side, ibv_pd* domain) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 100;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain;
  return Cq(ibv_cq_ex_to_cq(need(ibv_create_cq_ex(side.context.get(), &attr), "ibv_create_cq_ex")));
}

Srq domain_srq(ibv_pd* domain) {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  return Srq(need(ibv_create_srq(domain, &attr), "ibv_create_srq"));
}

// Sends by every way of posting and polling through queues of `domain`; true when the bytes arrive.
bool traffic(Pair pair, ibv_pd* domain, ibv_cq* cq, ibv_srq* srq, int rounds) {
  ibv_qp_init_attr init{};
  init.srq = srq;
  Qp here = make_qp(domain, cq, init);
  Qp there = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(here.get(), pair.a, there.get(), pair.b);

  bool right = true;
  for (int i = 0; i < rounds; i++) {
    const auto fresh = static_cast<uint8_t>(i + 1);
    std::memset(pair.a.memory.data(), fresh, 512);
    std::memset(pair.b.memory.data(), 0, 512);
    ibv_sge out = pair.a.sge(512);
    right &= post(here.get(), write_request(out, pair.b, i)) == 0;
    right &= next(cq).status == IBV_WC_SUCCESS && pair.b.memory[511] == fresh;

    ibv_sge in = pair.a.sge(64, 4096);
    ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = &in, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    right &= (srq ? ibv_post_srq_recv(srq, &receive, &bad)
                  : ibv_post_recv(here.get(), &receive, &bad)) == 0;
    ibv_sge back = pair.b.sge(64);
    ibv_send_wr send{};
    send.sg_list = &back;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    right &= post(there.get(), send) == 0;
    const ibv_wc got = next(cq);
    right &= got.status == IBV_WC_SUCCESS && got.wr_id == 7 && got.byte_len == 64;
    right &= pair.a.memory[4096 + 63] == fresh;
    right &= next(pair.b.cq.get()).status == IBV_WC_SUCCESS;
  }
  return right;
}

void allocators(Pair pair) {
  Application app;
  Pd domain = parent(pair.a, &app, nullptr);
  {
    Cq cq = domain_cq(pair.a, domain.get());
    same(app.total(app.allocations), 1, "parent domain: a CQ is one allocation");
    void* ring = app.held.begin()->first;
    Srq srq = domain_srq(domain.get());
    same(app.total(app.allocations), 2, "parent domain: an SRQ is one more");
    check(traffic(pair, domain.get(), cq.get(), srq.get(), 20),
          "parent domain: traffic through the application's memory, with an SRQ");
    same(app.total(app.allocations), 3, "parent domain: a QP is one more");
    same(app.total(app.frees), 1, "parent domain: the QP's came back with it");
    check(traffic(pair, domain.get(), cq.get(), nullptr, 20),
          "parent domain: traffic through the application's memory, with an own receive queue");
    same(app.total(app.allocations), 4, "parent domain: a QP with a receive queue is one, too");
    same(static_cast<int>(app.allocations.size()), 3,
         "parent domain: QP, CQ and SRQ are three resource types");
    check(app.written(ring), "parent domain: the device wrote its completions there");

    same(ibv_dealloc_pd(domain.get()), EBUSY, "parent domain: busy while it has queues");
    same(ibv_dealloc_pd(pair.a.pd.get()), EBUSY, "parent domain: and so is what it stands on");

    same(ibv_resize_cq(cq.get(), 500), 0, "parent domain: its CQ can be resized");
    same(app.total(app.allocations), 5, "parent domain: which allocates once");
    same(app.total(app.frees), 3, "parent domain: and returns the old ring");
  }
  same(app.total(app.frees), 5, "parent domain: every allocation came back");
  check(app.held.empty() && app.frees == app.allocations, "parent domain: with its resource type");

  app.use_default = true;
  {
    Cq cq = domain_cq(pair.a, domain.get());
    check(traffic(pair, domain.get(), cq.get(), nullptr, 5),
          "parent domain: IBV_ALLOCATOR_USE_DEFAULT is taken at its word");
  }
  same(app.total(app.allocations), 7, "parent domain: having asked once for each queue");
  same(app.total(app.frees), 5, "parent domain: and freed none of what was not the application's");
}

void thread_domain(Pair pair) {
  ibv_td_init_attr attr{};
  Td td(need(ibv_alloc_td(pair.a.context.get(), &attr), "ibv_alloc_td"));
  Pd domain = parent(pair.a, nullptr, td.get());
  same(ibv_dealloc_td(td.get()), EBUSY, "thread domain: busy while a parent domain has it");
  Cq cq = domain_cq(pair.a, domain.get());
  Srq srq = domain_srq(domain.get());
  check(traffic(pair, domain.get(), cq.get(), srq.get(), 200),
        "thread domain: traffic with an SRQ");
  check(traffic(pair, domain.get(), cq.get(), nullptr, 200), "thread domain: traffic with an RQ");
}

}  // namespace

void test_domains(Pair pair) {
  allocators(pair);
  thread_domain(pair);
}

}  // namespace rig
