// SPDX-License-Identifier: BSD-2-Clause
//
// What the verbs that make and move queues tell the kernel, tell the application, and refuse.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

#include "buffer.h"
#include "fake_kernel.h"
#include "fast_path/queues.h"
#include "geometry.h"

namespace keyhole::test {
namespace {

class Queues : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel = {};
    device.emplace();
    pd = alloc_pd(device->context());
    cq = create_cq(device->context(), 100, nullptr, 0);
    ASSERT_TRUE(pd && cq);
  }
  void TearDown() override {
    EXPECT_EQ(destroy_cq(cq), 0);
    EXPECT_EQ(dealloc_pd(pd), 0);
    device.reset();
    EXPECT_EQ(kernel.alive(), 0);
    EXPECT_EQ(kernel.dontfork_ranges, 0);
  }

  ibv_qp_init_attr_ex qp_attr(ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = type;
    attr.send_cq = attr.recv_cq = cq;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd;
    attr.cap = {.max_send_wr = 100,
                .max_recv_wr = 50,
                .max_send_sge = 3,
                .max_recv_sge = 2,
                .max_inline_data = 100};
    return attr;
  }

  // Expects create_qp_ex() to refuse with this errno value and to leave nothing.
  void refuses(ibv_qp_init_attr_ex attr, int err) {
    const int before = kernel.alive();
    errno = 0;
    ibv_qp* qp = create_qp_ex(device->context(), &attr);
    EXPECT_EQ(qp, nullptr);
    EXPECT_EQ(errno, err);
    EXPECT_EQ(kernel.alive(), before);
    if (qp) destroy_qp(qp);
  }

  std::optional<Device> device;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
};

TEST_F(Queues, ACqHasTheEntriesThatItSaysAndAtLeastThoseAskedFor) {
  EXPECT_EQ(cq->cqe, 128);
  EXPECT_EQ(kernel.cqe, 100);
  EXPECT_EQ(kernel.cq.log_size, 7);
  EXPECT_EQ(kernel.cq.flags, 0);
  EXPECT_EQ(kernel.cq.buf_addr % page_size(), 0u);
  EXPECT_EQ(kernel.cq.buf_len % page_size(), 0u);
  EXPECT_GE(kernel.cq.buf_len, kernel.cq.db_offset + sizeof(kh_cq_db));
}

TEST_F(Queues, AQpIsToldToTheKernelAsItLiesInMemory) {
  auto attr = qp_attr();
  ibv_qp* qp = create_qp_ex(device->context(), &attr);
  ASSERT_TRUE(qp);
  // 32 bytes of head and 100 inline are 3 blocks.
  EXPECT_EQ(kernel.qp.log_sq_blocks, 9);
  EXPECT_EQ(kernel.qp.log_rq_size, 6);
  EXPECT_EQ(kernel.qp.log_rq_stride, 6);
  EXPECT_TRUE(kernel.qp.has_sq && kernel.qp.has_rq);
  EXPECT_EQ(attr.cap.max_send_wr, 512u / 3);
  EXPECT_EQ(attr.cap.max_recv_wr, 64u);
  EXPECT_EQ(attr.cap.max_send_sge, 10u);
  EXPECT_EQ(attr.cap.max_recv_sge, 3u);
  EXPECT_EQ(attr.cap.max_inline_data, 160u);
  // The kernel and the device hold the application to what it was told.
  EXPECT_EQ(kernel.qp_cap.max_send_sge, attr.cap.max_send_sge);
  EXPECT_EQ(kernel.qp_cap.max_recv_sge, attr.cap.max_recv_sge);

  auto& fast = verbs::qp_of(qp);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.sq.ring), kernel.qp.buf_addr + kernel.qp.sq_offset);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.rq.ring), kernel.qp.buf_addr + kernel.qp.rq_offset);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.sq.db), kernel.qp.buf_addr + kernel.qp.db_offset);
  EXPECT_EQ(fast.bell.mark, static_cast<uint8_t*>(device->state().doorbell_page) + 7);
  EXPECT_EQ(device->state().qps->find(qp->qp_num), &fast);
  const uint32_t qpn = qp->qp_num;
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(device->state().qps->find(qpn), nullptr);
}

TEST_F(Queues, QueryQpGivesTheCapabilitiesThatCreationGave) {
  auto attr = qp_attr(IBV_QPT_UD);
  ibv_qp* qp = create_qp_ex(device->context(), &attr);
  ASSERT_TRUE(qp);
  ibv_qp_attr a;
  ibv_qp_init_attr init;
  EXPECT_EQ(query_qp(qp, &a, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(init.cap.max_send_wr, attr.cap.max_send_wr);
  EXPECT_EQ(a.cap.max_inline_data, attr.cap.max_inline_data);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(Queues, WithAnSrqTheReceiveAttributesOfAQpAreIgnored) {
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 10, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = create_srq(pd, &srq_attr);
  ASSERT_TRUE(srq);
  EXPECT_EQ(srq_attr.attr.max_wr, 16u);
  EXPECT_EQ(srq_attr.attr.max_sge, 1u);
  srq->context = device->context();

  auto attr = qp_attr();
  attr.srq = srq;
  attr.cap.max_recv_sge = 1000;
  ibv_qp* qp = create_qp_ex(device->context(), &attr);
  ASSERT_TRUE(qp);
  EXPECT_FALSE(kernel.qp.has_rq);
  EXPECT_EQ(attr.cap.max_recv_wr, 0u);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(Queues, WhatAQpCannotBeIsRefusedWithTheErrnoOfTheManPages) {
  auto attr = qp_attr();
  attr.qp_type = IBV_QPT_RAW_PACKET;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr();
  attr.qp_type = IBV_QPT_XRC_SEND;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr();
  attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr();
  attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr();
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_TSO;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr(IBV_QPT_UD);
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  refuses(attr, EOPNOTSUPP);
  attr = qp_attr();
  attr.comp_mask = 0;
  refuses(attr, EINVAL);
  attr = qp_attr();
  attr.send_cq = nullptr;
  refuses(attr, EINVAL);
  attr = qp_attr();
  attr.recv_cq = nullptr;
  refuses(attr, EINVAL);
  attr = qp_attr();
  attr.cap.max_send_sge = KH_MAX_SGE + 1;
  refuses(attr, EINVAL);
  attr = qp_attr();
  attr.cap.max_inline_data = KH_MAX_INLINE + 1;
  refuses(attr, EINVAL);
  attr = qp_attr();
  attr.cap.max_recv_wr = 1 << 20;
  refuses(attr, EINVAL);
}

TEST_F(Queues, ObjectsOfAnotherContextAreRefused) {
  Device other;
  ibv_cq* foreign = create_cq(other.context(), 10, nullptr, 0);
  ASSERT_TRUE(foreign);
  auto attr = qp_attr();
  attr.recv_cq = foreign;
  refuses(attr, EINVAL);
  EXPECT_EQ(destroy_cq(foreign), 0);
}

TEST_F(Queues, AnExtendedQpIsMarkedAndAPlainOneIsNot) {
  auto attr = qp_attr();
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW;
  ibv_qp* qp = create_qp_ex(device->context(), &attr);
  ASSERT_TRUE(qp);
  EXPECT_EQ(verbs::qp_of(qp).verbs_comp_mask, uint32_t{VERBS_QP_EX});
  EXPECT_TRUE(verbs::qp_of(qp).ex.wr_rdma_write);
  EXPECT_EQ(destroy_qp(qp), 0);

  auto plain = qp_attr();
  qp = create_qp_ex(device->context(), &plain);
  ASSERT_TRUE(qp);
  EXPECT_EQ(verbs::qp_of(qp).verbs_comp_mask, 0u);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(Queues, ADoorbellSlotBeyondThePageIsNotBelieved) {
  kernel.db_slot = KH_DB_SLOTS;
  refuses(qp_attr(), EPROTO);
}

TEST_F(Queues, ExtendedCqsGiveTheFieldsThatTheDeviceHasAndRefuseOthers) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 10;
  attr.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  ibv_cq_ex* ex = create_cq_ex(device->context(), &attr);
  ASSERT_TRUE(ex);
  EXPECT_EQ(kernel.cq.flags, KH_CQ_TIMESTAMP | KH_CQ_IGNORE_OVERRUN);
  EXPECT_TRUE(verbs::cq_of(ex).lock.elided());
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(ex)), 0);

  const auto refuse = [&](int err) {
    errno = 0;
    EXPECT_EQ(create_cq_ex(device->context(), &attr), nullptr);
    EXPECT_EQ(errno, err);
  };
  attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
  refuse(EOPNOTSUPP);
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  refuse(EOPNOTSUPP);
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  attr.flags = 1 << 5;
  refuse(EOPNOTSUPP);
  attr.flags = 0;
  attr.comp_mask = 1 << 7;
  refuse(EOPNOTSUPP);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = pd;  // a plain one
  refuse(EINVAL);
  attr.comp_mask = 0;
  attr.cqe = 0;
  refuse(EINVAL);
}

TEST_F(Queues, AResizedCqIsInNewMemoryAndAFailedResizeChangesNothing) {
  auto& fast = verbs::cq_of(cq);
  const auto* ring = fast.ring;
  kernel.failures["resize_cq"] = EINVAL;
  EXPECT_EQ(resize_cq(cq, 1000), EINVAL);
  EXPECT_EQ(fast.ring, ring);
  EXPECT_EQ(cq->cqe, 128);

  EXPECT_EQ(resize_cq(cq, 1000), 0);
  EXPECT_EQ(cq->cqe, 1024);
  EXPECT_EQ(fast.mask, 1023u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.ring),
            kernel.resize.buf_addr + kernel.resize.ring_offset);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.db), kernel.resize.buf_addr + kernel.resize.db_offset);
  EXPECT_EQ(kernel.dontfork_ranges, 1);
  EXPECT_EQ(resize_cq(cq, 0), EINVAL);
}

TEST_F(Queues, LargeQueuesStartAtAHugePage) {
  ibv_cq* large = create_cq(device->context(), 1 << 16, nullptr, 0);
  ASSERT_TRUE(large);
  EXPECT_EQ(kernel.cq.buf_addr % (2 << 20), 0u);
  EXPECT_EQ(destroy_cq(large), 0);
}

TEST_F(Queues, AnSrqsLimitIsWithinItsSize) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 0, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(create_srq(pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.attr.max_wr = 16;
  ibv_srq* srq = create_srq(pd, &init);
  ASSERT_TRUE(srq);
  ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 17};
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(modify_srq(srq, &attr, 1 << 9), EINVAL);
  attr.srq_limit = 16;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ibv_srq_attr out{};
  EXPECT_EQ(query_srq(srq, &out), 0);
  EXPECT_EQ(out.max_wr, 16u);
  EXPECT_EQ(out.srq_limit, 16u);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(Queues, AResizedSrqIsInNewMemoryWithTheSameStrideAndAFailureChangesNothing) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 3, .srq_limit = 0};
  ibv_srq* srq = create_srq(pd, &init);
  ASSERT_TRUE(srq);
  srq->context = device->context();
  auto& fast = verbs::srq_of(srq);
  const auto* ring = fast.ring;
  const auto stride = fast.log_stride;
  ibv_srq_attr attr{.max_wr = 100, .max_sge = 0, .srq_limit = 0};
  kernel.failures["resize_srq"] = EOPNOTSUPP;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(fast.ring, ring);
  EXPECT_EQ(fast.capacity, 16u);

  attr.srq_limit = 101;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(fast.ring, ring);  // the one fault kept both from happening

  attr.srq_limit = 90;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(attr.max_wr, 128u);
  EXPECT_EQ(fast.capacity, 128u);
  EXPECT_EQ(fast.mask, 127u);
  EXPECT_EQ(fast.log_stride, stride);
  EXPECT_EQ(kernel.srq_attr.srq_limit, 90u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.ring),
            kernel.srq_resize.buf_addr + kernel.srq_resize.ring_offset);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fast.db),
            kernel.srq_resize.buf_addr + kernel.srq_resize.db_offset);
  EXPECT_EQ(kernel.srq_resize.log_size, 7);

  // Below what is outstanding it cannot go, though the device may have taken all of it.
  fast.pi = 20;
  attr.max_wr = 16;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.max_wr = 0;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.max_wr = 1 << 20;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(fast.capacity, 128u);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(Queues, TheRawClockIsTheDevicesOrNotSupported) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(query_rt_values(device->context(), &values), 0);
  EXPECT_EQ(values.raw_clock.tv_nsec, 123456789);
  kernel.clock_khz = 0;
  EXPECT_EQ(query_rt_values(device->context(), &values), EOPNOTSUPP);
  values.comp_mask = 1 << 4;
  EXPECT_EQ(query_rt_values(device->context(), &values), EINVAL);
}

TEST_F(Queues, TheFirmwareVersionIsReadable) {
  ibv_device_attr_ex attr;
  EXPECT_EQ(query_device_ex(device->context(), nullptr, &attr, sizeof(attr)), 0);
  EXPECT_STREQ(attr.orig_attr.fw_ver, "1.2.3");
}

}  // namespace
}  // namespace keyhole::test
