// SPDX-License-Identifier: BSD-2-Clause
//
// Posting receives to a QP and to an SRQ.

#include <gtest/gtest.h>

#include "rig.h"

namespace keyhole::verbs {
namespace {

template <class Rig>
kh_rwqe rwqe_at(const Rig& ring, unsigned slot) {
  return part<kh_rwqe>(ring, slot * 64);
}

TEST(PostRecv, writes_the_wqe_publishes_the_index_and_does_not_ring) {
  QpTest t;
  std::array<ibv_sge, 3> sges = {ibv_sge{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  ibv_recv_wr wr{.wr_id = 42, .next = nullptr, .sg_list = sges.data(), .num_sge = 3};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(rwqe_at(t.qp.rq_ring, 0).wr_id, 42u);
  EXPECT_EQ(rwqe_at(t.qp.rq_ring, 0).num_sge, 3u);
  EXPECT_EQ(rwqe_at(t.qp.rq_ring, 0).rsvd, 0u);
  EXPECT_EQ(std::memcmp(t.qp.rq_ring.data() + 16, sges.data(), sizeof(sges)), 0);
  EXPECT_EQ(t.qp.db.rq_pi, 1u);
  EXPECT_FALSE(t.qp.rung());
}

TEST(PostRecv, rings_when_the_device_asks_for_it) {
  QpTest t;
  t.qp.db.rq_notify = 1;
  ibv_recv_wr wr{.wr_id = 1, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_TRUE(t.qp.rung());
}

TEST(PostRecv, gives_enomem_when_full_and_takes_one_more_for_each_completion_polled) {
  QpTest t;
  std::array<ibv_recv_wr, 10> chain{};
  for (unsigned i = 0; i < 10; i++)
    chain[i] = {
        .wr_id = i, .next = i < 9 ? &chain[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[8]);
  EXPECT_EQ(t.qp.db.rq_pi, 8u);

  t.recv_cq.put(t.qp.recv_cqe(0));
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &chain[8], &bad), ENOMEM) << "not polled yet";
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(t.recv_cq.ibv(), 1, &wc), 1);
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &chain[8], &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[9]);
  EXPECT_EQ(t.qp.db.rq_pi, 9u);
  EXPECT_EQ(rwqe_at(t.qp.rq_ring, 0).wr_id, 8u);
}

TEST(PostRecv, capacity_may_be_less_than_the_ring) {
  QpTest t;
  t.qp.qp.rq.capacity = 5;
  std::array<ibv_recv_wr, 6> chain{};
  for (unsigned i = 0; i < 6; i++)
    chain[i] = {
        .wr_id = i, .next = i < 5 ? &chain[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[5]);
}

TEST(PostRecv, too_many_sges_and_reset_and_srq_give_einval) {
  QpTest t;
  std::array<ibv_sge, 4> sges{};
  ibv_recv_wr good{.wr_id = 1, .next = nullptr, .sg_list = sges.data(), .num_sge = 1};
  for (int count : {4, -1}) {
    ibv_recv_wr refused{.wr_id = 2, .next = nullptr, .sg_list = sges.data(), .num_sge = count};
    good.next = &refused;
    ibv_recv_wr* bad = nullptr;
    const std::uint32_t before = t.qp.db.rq_pi;
    EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &good, &bad), EINVAL);
    EXPECT_EQ(bad, &refused);
    EXPECT_EQ(t.qp.db.rq_pi, before + 1);
  }
  good.next = nullptr;
  ibv_recv_wr* bad = nullptr;
  set_qp_state(t.qp.qp, IBV_QPS_RESET);
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &good, &bad), EINVAL);
  EXPECT_EQ(bad, &good);
  set_qp_state(t.qp.qp, IBV_QPS_INIT);
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &good, &bad), 0);

  SrqRig srq(3);
  QpRig with_srq(t.qps, t.send_cq, t.recv_cq, 0x99, {}, &srq.srq);
  bad = nullptr;
  EXPECT_EQ(ibv_post_recv(with_srq.ibv(), &good, &bad), EINVAL);
  EXPECT_EQ(bad, &good);
}

struct SrqTest {
  QpTable qps;
  CqRig cq_a{qps, 4}, cq_b{qps, 4};
  SrqRig srq{2};
  QpRig a{qps, cq_a, cq_a, 0x10, {}, &srq.srq};
  QpRig b{qps, cq_b, cq_b, 0x11, {}, &srq.srq};

  int post(std::uint64_t wr_id) {
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_srq_recv(&srq.srq.ibv, &wr, &bad);
    EXPECT_EQ(bad, error ? &wr : nullptr);
    return error;
  }
};

TEST(SrqPost, a_receive_is_outstanding_until_its_completion_is_polled_on_whatever_cq) {
  SrqTest t;
  for (unsigned i = 0; i < 4; i++)
    ASSERT_EQ(t.post(i), 0);
  EXPECT_EQ(t.srq.db.pi, 4u);
  EXPECT_EQ(rwqe_at(t.srq.ring, 3).wr_id, 3u);
  EXPECT_EQ(t.post(4), ENOMEM);

  t.srq.db.ci = 2;  // taken by the device, and done, but not polled
  t.cq_a.put(t.a.recv_cqe(0));
  t.cq_b.put(t.b.recv_cqe(1));
  EXPECT_EQ(t.post(4), ENOMEM);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(t.cq_a.ibv(), 1, &wc), 1);
  EXPECT_EQ(t.post(4), 0);
  EXPECT_EQ(t.post(5), ENOMEM);
  ASSERT_EQ(ibv_poll_cq(t.cq_b.ibv(), 1, &wc), 1);
  EXPECT_EQ(t.post(5), 0);
  EXPECT_EQ(t.post(6), ENOMEM);
}

TEST(SrqPost, completions_dropped_with_their_qp_count_as_polled) {
  SrqTest t;
  for (unsigned i = 0; i < 4; i++)
    ASSERT_EQ(t.post(i), 0);
  t.srq.db.ci = 2;
  t.cq_a.put(t.a.recv_cqe(0));
  t.cq_a.put(t.a.recv_cqe(1));
  set_qp_state(t.a.qp, IBV_QPS_ERR);
  clean_qp(t.a.qp);
  EXPECT_EQ(t.post(4), 0);
  EXPECT_EQ(t.post(5), 0);
  EXPECT_EQ(t.post(6), ENOMEM);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(t.cq_a.ibv(), 1, &wc), 0);
}

TEST(SrqPost, a_receive_lost_with_its_qp_does_not_shrink_the_srq_and_the_ring_is_never_overrun) {
  SrqTest t;
  for (unsigned i = 0; i < 4; i++)
    ASSERT_EQ(t.post(i), 0);
  clean_qp(t.a.qp);  // in mid-message, for all we know
  EXPECT_EQ(t.post(4), ENOMEM) << "the device has taken nothing yet";
  t.srq.db.ci = 1;
  EXPECT_EQ(t.post(4), 0);
  EXPECT_EQ(t.post(5), ENOMEM);
}

TEST(SrqPost, too_many_sges_give_einval) {
  SrqTest t;
  std::array<ibv_sge, 4> sges{};
  ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = sges.data(), .num_sge = 4};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(&t.srq.srq.ibv, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(t.srq.db.pi, 0u);
}

}  // namespace
}  // namespace keyhole::verbs
