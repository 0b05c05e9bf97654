// SPDX-License-Identifier: BSD-2-Clause
//
// Parent domains: the application's allocator really backs the queues, each of its allocations is
// returned to it, and a thread domain elides the locks of what is created under it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "buffer.h"
#include "domain.h"
#include "fake_kernel.h"
#include "fast_path/queues.h"

namespace keyhole::test {
namespace {

// An allocator that an application might bring. Memory comes dirty, as malloc's does.
struct Application {
  std::set<void*> held;
  std::map<uint64_t, int> allocations;
  std::map<uint64_t, int> frees;
  ibv_pd* seen_pd = nullptr;
  enum { kOwn, kDefault, kNull, kUnaligned } mode = kOwn;

  static void* alloc(ibv_pd* pd, void* context, size_t size, size_t align, uint64_t type) {
    auto& app = *static_cast<Application*>(context);
    app.seen_pd = pd;
    app.allocations[type]++;
    if (app.mode == kDefault) return IBV_ALLOCATOR_USE_DEFAULT;
    if (app.mode == kNull) return nullptr;
    void* memory = std::aligned_alloc(align, size + align);
    std::memset(memory, 0xff, size + align);
    app.held.insert(memory);
    return app.mode == kUnaligned ? static_cast<char*>(memory) + 64 : memory;
  }
  static void free(ibv_pd*, void* context, void* memory, uint64_t type) {
    auto& app = *static_cast<Application*>(context);
    app.frees[type]++;
    if (app.mode == kUnaligned) memory = static_cast<char*>(memory) - 64;
    ASSERT_EQ(app.held.erase(memory), 1u);
    std::free(memory);
  }
};

constexpr auto kQpType = static_cast<uint64_t>(ResourceType::kQp);
constexpr auto kCqType = static_cast<uint64_t>(ResourceType::kCq);
constexpr auto kSrqType = static_cast<uint64_t>(ResourceType::kSrq);

class Allocators : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel = {};
    device.emplace();
    pd = alloc_pd(device->context());
    ASSERT_TRUE(pd);
  }
  void TearDown() override {
    EXPECT_EQ(dealloc_pd(pd), 0);
    device.reset();
    EXPECT_EQ(kernel.alive(), 0);
    EXPECT_TRUE(app.held.empty());
    EXPECT_EQ(kernel.dontfork_ranges, 0);
  }

  ibv_pd* parent(ibv_td* td = nullptr, bool allocators = true) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = td;
    if (allocators) {
      attr.comp_mask =
          IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
      attr.alloc = Application::alloc;
      attr.free = Application::free;
      attr.pd_context = &app;
    }
    return alloc_parent_domain(device->context(), &attr);
  }

  ibv_cq* make_cq(ibv_pd* domain) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = domain;
    ibv_cq_ex* cq = create_cq_ex(device->context(), &attr);
    return cq ? ibv_cq_ex_to_cq(cq) : nullptr;
  }

  ibv_srq* make_srq(ibv_pd* domain) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 10, .max_sge = 2, .srq_limit = 0};
    return create_srq(domain, &attr);
  }

  ibv_qp* make_qp(ibv_pd* domain, ibv_cq* cq, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {.max_send_wr = 10,
                .max_recv_wr = 10,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return create_qp(domain, &attr);
  }

  std::optional<Device> device;
  Application app;
  ibv_pd* pd = nullptr;
};

TEST_F(Allocators, EachQueueIsOneAllocationOfTheApplicationAndGoesBackToIt) {
  ibv_pd* domain = parent();
  ASSERT_TRUE(domain);
  ibv_cq* cq = make_cq(domain);
  ASSERT_TRUE(cq);
  EXPECT_EQ(app.held.count(reinterpret_cast<void*>(kernel.cq.buf_addr)), 1u);
  ibv_srq* srq = make_srq(domain);
  ASSERT_TRUE(srq);
  EXPECT_EQ(app.held.count(reinterpret_cast<void*>(kernel.srq.buf_addr)), 1u);
  ibv_qp* qp = make_qp(domain, cq, srq);
  ASSERT_TRUE(qp);
  EXPECT_EQ(app.held.count(reinterpret_cast<void*>(kernel.qp.buf_addr)), 1u);
  EXPECT_EQ(app.seen_pd, domain);
  EXPECT_EQ(app.allocations, (std::map<uint64_t, int>{{kQpType, 1}, {kCqType, 1}, {kSrqType, 1}}));
  EXPECT_TRUE(app.frees.empty());
  EXPECT_EQ(kernel.dontfork_ranges, 0);  // the application's own business

  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(app.frees, app.allocations);
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, MemoryThatCameDirtyIsCleaned) {
  ibv_pd* domain = parent();
  ibv_cq* cq = make_cq(domain);
  ASSERT_TRUE(cq);
  const auto* bytes = reinterpret_cast<const uint8_t*>(kernel.cq.buf_addr);
  EXPECT_EQ(std::count(bytes, bytes + kernel.cq.buf_len, 0), kernel.cq.buf_len);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, AResizedCqTakesNewMemoryAndReturnsTheOld) {
  ibv_pd* domain = parent();
  ibv_cq* cq = make_cq(domain);
  ASSERT_TRUE(cq);
  EXPECT_EQ(resize_cq(cq, 200), 0);
  EXPECT_EQ(app.allocations[kCqType], 2);
  EXPECT_EQ(app.frees[kCqType], 1);
  EXPECT_EQ(app.held.count(reinterpret_cast<void*>(kernel.resize.buf_addr)), 1u);
  kernel.failures["resize_cq"] = ENOMEM;
  EXPECT_EQ(resize_cq(cq, 400), ENOMEM);
  EXPECT_EQ(app.allocations[kCqType], 3);
  EXPECT_EQ(app.frees[kCqType], 2);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, UseDefaultIsAskedOnceAndNeverFreed) {
  app.mode = Application::kDefault;
  ibv_pd* domain = parent();
  ibv_cq* cq = make_cq(domain);
  ASSERT_TRUE(cq);
  EXPECT_EQ(app.allocations[kCqType], 1);
  EXPECT_EQ(kernel.dontfork_ranges, 1);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_TRUE(app.frees.empty());
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, AnAllocatorThatRefusesIsEnomem) {
  app.mode = Application::kNull;
  ibv_pd* domain = parent();
  EXPECT_EQ(make_cq(domain), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(make_srq(domain), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, MemoryThatIsNotAlignedAsAskedIsReturnedAndRefused) {
  app.mode = Application::kUnaligned;
  ibv_pd* domain = parent();
  EXPECT_EQ(make_cq(domain), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(app.frees[kCqType], 1);
  EXPECT_EQ(dealloc_pd(domain), 0);
}

TEST_F(Allocators, AThreadDomainElidesEveryLockAndNothingElseDoes) {
  ibv_td_init_attr td_attr{};
  ibv_td* td = alloc_td(device->context(), &td_attr);
  ASSERT_TRUE(td);
  for (const bool with_td : {true, false}) {
    ibv_pd* domain = parent(with_td ? td : nullptr, false);
    ASSERT_TRUE(domain);
    ibv_cq* cq = make_cq(domain);
    ibv_srq* srq = make_srq(domain);
    ASSERT_TRUE(cq && srq);
    ibv_qp* qp = make_qp(domain, cq);
    ASSERT_TRUE(qp);
    EXPECT_EQ(verbs::cq_of(cq).lock.elided(), with_td);
    EXPECT_EQ(verbs::srq_of(srq).lock.elided(), with_td);
    EXPECT_EQ(verbs::qp_of(qp).sq.lock.elided(), with_td);
    EXPECT_EQ(verbs::qp_of(qp).rq.lock.elided(), with_td);
    EXPECT_EQ(destroy_qp(qp), 0);
    EXPECT_EQ(destroy_srq(srq), 0);
    EXPECT_EQ(destroy_cq(cq), 0);
    EXPECT_EQ(dealloc_pd(domain), 0);
  }
  EXPECT_EQ(dealloc_td(td), 0);
}

TEST_F(Allocators, DomainsInUseAreBusy) {
  ibv_td_init_attr td_attr{};
  ibv_td* td = alloc_td(device->context(), &td_attr);
  ibv_pd* domain = parent(td);
  ASSERT_TRUE(domain);
  EXPECT_EQ(dealloc_td(td), EBUSY);
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  ibv_srq* srq = make_srq(domain);
  ASSERT_TRUE(srq);
  EXPECT_EQ(dealloc_pd(domain), EBUSY);
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_EQ(dealloc_pd(domain), 0);
  EXPECT_EQ(dealloc_td(td), 0);
}

TEST_F(Allocators, AParentDomainIsThePdOfTheKernel) {
  ibv_pd* domain = parent();
  ASSERT_TRUE(domain);
  EXPECT_EQ(domain->handle, pd->handle);
  EXPECT_EQ(domain->context, pd->context);
  EXPECT_EQ(kernel.live["pd"], 1);
  EXPECT_EQ(dealloc_pd(domain), 0);
  EXPECT_EQ(kernel.live["pd"], 1);
}

TEST_F(Allocators, BadParentDomainsAreRefused) {
  const auto refuse = [&](ibv_parent_domain_init_attr attr, int err) {
    errno = 0;
    EXPECT_EQ(alloc_parent_domain(device->context(), &attr), nullptr);
    EXPECT_EQ(errno, err);
  };
  refuse({}, EINVAL);
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd;
  attr.comp_mask = 1 << 5;
  refuse(attr, EOPNOTSUPP);
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  attr.alloc = Application::alloc;
  refuse(attr, EINVAL);
  ibv_td_init_attr td{.comp_mask = 1};
  EXPECT_EQ(alloc_td(device->context(), &td), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace keyhole::test
