// SPDX-License-Identifier: BSD-2-Clause
//
// When a verb fails, at whatever step, it says why and nothing of what it began is left: no kernel
// object, no memory (LeakSanitizer tells), no range kept from fork. And a destroy that the kernel
// refuses leaves the object usable.

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "entry.h"
#include "fake_kernel.h"

namespace keyhole::test {
namespace {

struct Verb {
  const char* name;
  const char* command;  // that it sends
  std::function<void*()> make;
  std::function<int(void*)> destroy;
  const char* destroy_command;
};

class Unwind : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel = {};
    device.emplace();
    pd = alloc_pd(device->context());
    cq = create_cq(device->context(), 10, nullptr, 0);
  }
  void TearDown() override {
    fail_allocation(-1);
    destroy_cq(cq);
    dealloc_pd(pd);
    device.reset();
    EXPECT_EQ(kernel.alive(), 0);
    EXPECT_EQ(kernel.dontfork_ranges, 0);
  }

  std::vector<Verb> verbs() {
    return {
        {"alloc_pd", "alloc_pd", [&] { return alloc_pd(device->context()); },
         [](void* p) { return dealloc_pd(static_cast<ibv_pd*>(p)); }, "dealloc_pd"},
        {"reg_mr", "reg_mr", [&] { return reg_mr(pd, this, 1, 0, 0); },
         [](void* p) { return dereg_mr(verbs_get_mr(static_cast<ibv_mr*>(p))); }, "dereg_mr"},
        {"alloc_mw", "alloc_mw", [&] { return alloc_mw(pd, IBV_MW_TYPE_1); },
         [](void* p) { return dealloc_mw(static_cast<ibv_mw*>(p)); }, "dealloc_mw"},
        {"create_ah", "create_ah",
         [&] {
           ibv_ah_attr attr{};
           return create_ah(pd, &attr);
         },
         [](void* p) { return destroy_ah(static_cast<ibv_ah*>(p)); }, "destroy_ah"},
        {"create_cq", "create_cq", [&] { return create_cq(device->context(), 10, nullptr, 0); },
         [](void* p) { return destroy_cq(static_cast<ibv_cq*>(p)); }, "destroy_cq"},
        {"create_srq", "create_srq",
         [&] {
           ibv_srq_init_attr attr{};
           attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
           return create_srq(pd, &attr);
         },
         [](void* p) { return destroy_srq(static_cast<ibv_srq*>(p)); }, "destroy_srq"},
        {"create_qp", "create_qp",
         [&] {
           ibv_qp_init_attr attr{};
           attr.qp_type = IBV_QPT_RC;
           attr.send_cq = attr.recv_cq = cq;
           attr.cap = {.max_send_wr = 4,
                       .max_recv_wr = 4,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
           return create_qp(pd, &attr);
         },
         [](void* p) { return destroy_qp(static_cast<ibv_qp*>(p)); }, "destroy_qp"},
        {"create_mkey", "create_mkey",
         [&] {
           keyholedv_mkey_init_attr attr{};
           attr.pd = pd;
           attr.max_entries = 4;
           return keyholedv_create_mkey(&attr);
         },
         [](void* p) { return keyholedv_destroy_mkey(static_cast<keyholedv_mkey*>(p)); },
         "destroy_mkey"},
        {"alloc_klm_list", "create_klm_list", [&] { return keyholedv_alloc_klm_list(pd, 1000); },
         [](void* p) { return keyholedv_free_klm_list(static_cast<keyholedv_klm_list*>(p)); },
         "destroy_klm_list"},
        {"create_qp_dv", "create_qp",
         [&] {
           ibv_qp_init_attr_ex attr{};
           attr.qp_type = IBV_QPT_RC;
           attr.send_cq = attr.recv_cq = cq;
           attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
           attr.pd = pd;
           attr.cap.max_send_wr = 4;
           keyholedv_qp_init_attr dv{};
           dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_LIST;
           return keyholedv_create_qp(device->context(), &attr, &dv);
         },
         [](void* p) { return destroy_qp(static_cast<ibv_qp*>(p)); }, "destroy_qp"},
    };
  }

  std::optional<Device> device;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
};

TEST_F(Unwind, ACommandThatFailsGivesItsErrnoAndLeavesNothing) {
  for (const Verb& verb : verbs()) {
    SCOPED_TRACE(verb.name);
    const int alive = kernel.alive(), ranges = kernel.dontfork_ranges;
    kernel.failures[verb.command] = ENODEV;
    errno = 0;
    EXPECT_EQ(verb.make(), nullptr);
    EXPECT_EQ(errno, ENODEV);
    EXPECT_EQ(kernel.alive(), alive);
    EXPECT_EQ(kernel.dontfork_ranges, ranges);
  }
}

TEST_F(Unwind, EveryAllocationThatFailsIsEnomemAndLeavesNothing) {
  for (const Verb& verb : verbs()) {
    SCOPED_TRACE(verb.name);
    const int alive = kernel.alive(), ranges = kernel.dontfork_ranges;
    int failures = 0;
    for (;; failures++) {
      fail_allocation(failures);
      errno = 0;
      void* object = verb.make();
      const bool injected = allocation_failed();
      fail_allocation(-1);
      if (object) {
        EXPECT_FALSE(injected);
        EXPECT_EQ(verb.destroy(object), 0);
        break;
      }
      ASSERT_TRUE(injected);
      EXPECT_EQ(errno, ENOMEM);
      EXPECT_EQ(kernel.alive(), alive);
      EXPECT_EQ(kernel.dontfork_ranges, ranges);
    }
    EXPECT_GE(failures, 1);
    EXPECT_EQ(kernel.alive(), alive);
  }
}

TEST_F(Unwind, AQueueThatCannotBeKeptFromForkIsNotMade) {
  for (const Verb& verb : verbs()) {
    const std::string name = verb.name;
    if (name != "create_cq" && name != "create_srq" && name != "create_qp" &&
        name != "alloc_klm_list" && name != "create_qp_dv")
      continue;
    SCOPED_TRACE(name);
    const int alive = kernel.alive();
    kernel.failures["dontfork"] = EINVAL;
    EXPECT_EQ(verb.make(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(kernel.alive(), alive);
  }
}

TEST_F(Unwind, ADestroyThatIsRefusedLeavesTheObject) {
  for (const Verb& verb : verbs()) {
    SCOPED_TRACE(verb.name);
    void* object = verb.make();
    ASSERT_TRUE(object);
    kernel.failures[verb.destroy_command] = EBUSY;
    EXPECT_EQ(verb.destroy(object), EBUSY);
    EXPECT_EQ(verb.destroy(object), 0);
  }
}

TEST_F(Unwind, AReregisteredRegionHasTheNewKeyOnlyIfItSucceeded) {
  ibv_mr* mr = reg_mr(pd, this, 1, 0, 0);
  ASSERT_TRUE(mr);
  kernel.failures["rereg_mr"] = EBUSY;
  EXPECT_EQ(rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_ACCESS, pd, nullptr, 0, 7), EBUSY);
  EXPECT_EQ(mr->lkey, 0x100u);
  EXPECT_EQ(verbs_get_mr(mr)->access, 0);
  EXPECT_EQ(rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_ACCESS, pd, nullptr, 0, 7), 0);
  EXPECT_EQ(mr->lkey, 0x101u);
  EXPECT_EQ(verbs_get_mr(mr)->access, 7);
  EXPECT_EQ(dereg_mr(verbs_get_mr(mr)), 0);
}

TEST_F(Unwind, AWindowIsOfTypeOneOrTwo) {
  EXPECT_EQ(alloc_mw(pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Open, EveryStepOfOpeningThatFailsClosesTheDevice) {
  const auto open_fails_with = [](int err) {
    const int fd = memfd_create("device", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 3 * KH_PAGE_SIZE), 0);
    errno = 0;
    EXPECT_EQ(kh_alloc_context(nullptr, fd, nullptr), nullptr);
    EXPECT_EQ(errno, err);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);  // closed
    EXPECT_EQ(kernel.alive(), 0);
  };
  kernel = {};
  kernel.failures["init_context"] = 1;
  open_fails_with(ENOMEM);
  kernel.failures["get_context"] = ENODEV;
  open_fails_with(ENODEV);
  kernel.failures["bad_mmap"] = 1;
  open_fails_with(EINVAL);
  fail_allocation(0);
  open_fails_with(ENOMEM);
  fail_allocation(-1);
}

}  // namespace
}  // namespace keyhole::test
