// SPDX-License-Identifier: BSD-2-Clause
//
// Every way in which a program promises that one thread alone uses a queue, by the verbs that make
// queues: what is made so has no lock, and nothing else has none. Then threads that keep their
// promise go through every function that would take the lock, each on queues of its own, beside a
// device; ThreadSanitizer would tell of anything that they share after all.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "../provider_control/fake_kernel.h"
#include "domain.h"
#include "fast_path/dv.h"
#include "fast_path/fast_path.h"
#include "fast_path/shared_memory.h"

namespace keyhole::test {
namespace {

using verbs::load_acquire;
using verbs::store_release;

constexpr unsigned kRounds = 300;

class Elision : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel = {};
    device.emplace();
    pd = alloc_pd(device->context());
    ibv_td_init_attr td_attr{};
    td = alloc_td(device->context(), &td_attr);
    ASSERT_TRUE(pd && td);
    with_td = parent(td);
    without_td = parent(nullptr);
    ASSERT_TRUE(with_td && without_td);
  }
  void TearDown() override {
    EXPECT_EQ(dealloc_pd(with_td), 0);
    EXPECT_EQ(dealloc_pd(without_td), 0);
    EXPECT_EQ(dealloc_td(td), 0);
    EXPECT_EQ(dealloc_pd(pd), 0);
    device.reset();
    EXPECT_EQ(kernel.alive(), 0);
  }

  ibv_pd* parent(ibv_td* of) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.td = of;
    return alloc_parent_domain(device->context(), &attr);
  }
  verbs::Cq& make_cq(std::uint32_t flags, ibv_pd* domain) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 200;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | (domain ? IBV_CQ_INIT_ATTR_MASK_PD : 0);
    attr.flags = flags;
    attr.parent_domain = domain;
    ibv_cq_ex* cq = create_cq_ex(device->context(), &attr);
    if (!cq) throw std::runtime_error("no CQ");
    return verbs::cq_of(cq);
  }
  verbs::Srq& make_srq(ibv_pd* domain) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 32, .max_sge = 1, .srq_limit = 0};
    ibv_srq* srq = create_srq(domain, &attr);
    if (!srq) throw std::runtime_error("no SRQ");
    return verbs::srq_of(srq);
  }
  verbs::Qp& make_qp(ibv_pd* domain, verbs::Cq& cq, verbs::Srq* srq = nullptr) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = &cq.ibv;
    attr.srq = srq ? &srq->ibv : nullptr;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
    attr.pd = domain;
    attr.cap = {.max_send_wr = 32,
                .max_recv_wr = 32,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    kernel.db_slot = next_slot++;
    ibv_qp* qp = create_qp_ex(device->context(), &attr);
    if (!qp) throw std::runtime_error("no QP");
    return verbs::qp_of(qp);
  }
  void modify(verbs::Qp& qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    ASSERT_EQ(modify_qp(&qp.ibv, &attr, IBV_QP_STATE), 0);
  }

  std::optional<Device> device;
  ibv_pd *pd = nullptr, *with_td = nullptr, *without_td = nullptr;
  ibv_td* td = nullptr;
  std::uint16_t next_slot = 1;
};

TEST_F(Elision, OnlyAPromiseOfOneThreadTakesALockAway) {
  verbs::Cq& plain = make_cq(0, nullptr);
  verbs::Cq& single = make_cq(IBV_CREATE_CQ_ATTR_SINGLE_THREADED, nullptr);
  verbs::Cq& in_td = make_cq(0, with_td);
  verbs::Cq& in_parent = make_cq(0, without_td);
  ibv_cq* old = create_cq(device->context(), 10, nullptr, 0);
  ASSERT_TRUE(old);
  EXPECT_FALSE(plain.lock.elided());
  EXPECT_TRUE(single.lock.elided());
  EXPECT_TRUE(in_td.lock.elided());
  EXPECT_FALSE(in_parent.lock.elided());
  EXPECT_FALSE(verbs::cq_of(old).lock.elided());
  // Who takes events is often not who polls.
  for (verbs::Cq* cq : {&plain, &single, &in_td, &in_parent})
    EXPECT_FALSE(cq->arm_lock.elided());

  for (auto [domain, elided] : {std::pair{pd, false}, {with_td, true}, {without_td, false}}) {
    verbs::Srq& srq = make_srq(domain);
    verbs::Qp& qp = make_qp(domain, single);
    // The CQ's promise is not the QP's.
    EXPECT_EQ(srq.lock.elided(), elided);
    EXPECT_EQ(qp.sq.lock.elided(), elided);
    EXPECT_EQ(qp.rq.lock.elided(), elided);
    EXPECT_EQ(destroy_qp(&qp.ibv), 0);
    EXPECT_EQ(destroy_srq(&srq.ibv), 0);
  }
  for (verbs::Cq* cq : {&plain, &single, &in_td, &in_parent})
    EXPECT_EQ(destroy_cq(&cq->ibv), 0);
  EXPECT_EQ(destroy_cq(old), 0);
}

// What one thread has for itself, and the device's side of it.
struct Own {
  verbs::Cq* cq;
  verbs::Srq* srq;
  verbs::Qp* qp;           // with a receive queue of its own
  verbs::Qp* qp_with_srq;  // and one without

  // The device's.
  std::array<std::uint32_t, 2> sq_ci{};
  std::uint32_t rq_ci = 0, srq_ci = 0, cq_pi = 0;

  // The memory as it was when the device was told of it.
  struct Memory {
    const std::byte *sq[2], *rq, *srq;
    const kh_qp_db *db[2], *rq_db;
    kh_srq_db* srq_db;
    std::uint32_t sq_mask[2], rq_mask, srq_mask, qpn[2];
    kh_cqe* cqes;
    kh_cq_db* cq_db;
    unsigned log_cq;
  } memory{};

  void tell_device() {
    memory = {.sq = {qp->sq.ring, qp_with_srq->sq.ring},
              .rq = qp->rq.ring,
              .srq = srq->ring,
              .db = {qp->sq.db, qp_with_srq->sq.db},
              .rq_db = qp->rq.db,
              .srq_db = srq->db,
              .sq_mask = {qp->sq.mask, qp_with_srq->sq.mask},
              .rq_mask = qp->rq.mask,
              .srq_mask = srq->mask,
              .qpn = {qp->ibv.qp_num, qp_with_srq->ibv.qp_num},
              .cqes = cq->ring,
              .cq_db = cq->db,
              .log_cq = cq->log_size};
  }

  bool room() const { return cq_pi - load_acquire(memory.cq_db->ci) < (1u << memory.log_cq) - 1; }
  void put(kh_cqe cqe) {
    cqe.phase = static_cast<std::uint8_t>(~(cq_pi >> memory.log_cq) & 1);
    std::array<std::uint64_t, 8> words{};
    std::memcpy(words.data(), &cqe, sizeof(cqe));
    auto* slot =
        reinterpret_cast<std::uint64_t*>(&memory.cqes[cq_pi & ((1u << memory.log_cq) - 1)]);
    for (std::size_t i = 0; i < 7; i++)
      slot[i] = words[i];
    store_release(slot[7], words[7]);
    cq_pi++;
  }
  // One look at each queue.
  void serve() {
    for (unsigned i = 0; i < 2; i++) {
      const std::uint32_t pi = load_acquire(memory.db[i]->sq_pi);
      if (sq_ci[i] == pi || !room()) continue;
      kh_wqe_ctrl ctrl{};
      std::memcpy(&ctrl, memory.sq[i] + std::size_t{sq_ci[i] & memory.sq_mask[i]} * KH_WQE_BLOCK,
                  sizeof(ctrl));
      sq_ci[i] += ctrl.nblocks;
      kh_cqe cqe{};
      cqe.wr_id = ctrl.wr_id;
      cqe.qpn = memory.qpn[i];
      cqe.opcode = ctrl.opcode;
      cqe.sq_index = sq_ci[i];
      put(cqe);
    }
    if (rq_ci != load_acquire(memory.rq_db->rq_pi) && room()) {
      kh_cqe cqe{};
      cqe.qpn = memory.qpn[0];
      cqe.opcode = KH_CQE_RECV;
      rq_ci++;
      put(cqe);
    }
    if (srq_ci != load_acquire(memory.srq_db->pi) && room()) {
      kh_cqe cqe{};
      cqe.qpn = memory.qpn[1];
      cqe.opcode = KH_CQE_RECV;
      store_release(memory.srq_db->ci, ++srq_ci);
      put(cqe);
    }
  }
};

// Everything that takes a queue's lock, where it has one.
void use(Own& own, unsigned round, unsigned& posted, unsigned& polled) {
  std::array<ibv_sge, 2> sges{};
  for (verbs::Qp* qp : {own.qp, own.qp_with_srq}) {
    ibv_send_wr second{}, first{};
    second.opcode = first.opcode = IBV_WR_RDMA_WRITE;
    second.send_flags = first.send_flags = IBV_SEND_SIGNALED;
    first.sg_list = second.sg_list = sges.data();
    first.num_sge = 1;
    second.num_sge = 2;
    first.next = round % 2 ? &second : nullptr;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(verbs::post_send(&qp->ibv, &first, &bad), 0);
    posted += 1 + round % 2;

    ibv_wr_start(&qp->ex);
    qp->ex.wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(&qp->ex, 1, 2);
    ibv_wr_set_sge(&qp->ex, 3, 4, 5);
    if (round % 5 == 0) {
      ibv_wr_abort(&qp->ex);
    } else {
      ASSERT_EQ(ibv_wr_complete(&qp->ex), 0);
      posted++;
    }

    ibv_mw mw{};
    mw.type = IBV_MW_TYPE_1;
    ibv_mw_bind unbind{};
    unbind.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(verbs::bind_mw(&qp->ibv, &mw, &unbind), 0);
    posted++;

    keyholedv_send_wr nop{};
    nop.opcode = KEYHOLEDV_WR_NOP;
    nop.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(verbs::post_dv(&qp->ibv, &nop, nullptr), 0);
    posted++;
  }
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(verbs::post_recv(&own.qp->ibv, &receive, &bad), 0);
  ASSERT_EQ(verbs::post_srq_recv(&own.srq->ibv, &receive, &bad), 0);
  posted += 2;

  while (polled < posted) {
    const unsigned before = polled;
    if (polled % 2) {
      std::array<ibv_wc, 4> wcs{};
      polled += static_cast<unsigned>(verbs::poll_cq(&own.cq->ibv, 4, wcs.data()));
    } else {
      ibv_poll_cq_attr attr{};
      if (ibv_start_poll(&own.cq->ex, &attr) == 0) {
        do {
          polled++;
        } while (polled % 3 && ibv_next_poll(&own.cq->ex) == 0);
        ibv_end_poll(&own.cq->ex);
      }
    }
    if (polled == before) {
      verbs::req_notify_cq(&own.cq->ibv, 0);
      verbs::cq_event(&own.cq->ibv);
      std::this_thread::yield();
    }
  }
}

TEST_F(Elision, ThreadsThatKeepThePromiseShareNothingThatALockWouldGuard) {
  constexpr unsigned count = 3;
  std::vector<ibv_td*> tds;
  std::vector<ibv_pd*> domains;
  std::vector<Own> owns;
  for (unsigned i = 0; i < count; i++) {
    ibv_td_init_attr attr{};
    tds.push_back(alloc_td(device->context(), &attr));
    domains.push_back(parent(tds.back()));
    ASSERT_TRUE(tds.back() && domains.back());
    Own own{};
    // Either promise.
    own.cq = &(i % 2 ? make_cq(IBV_CREATE_CQ_ATTR_SINGLE_THREADED, nullptr)
                     : make_cq(0, domains.back()));
    own.srq = &make_srq(domains.back());
    own.qp = &make_qp(domains.back(), *own.cq);
    own.qp_with_srq = &make_qp(domains.back(), *own.cq, own.srq);
    ASSERT_TRUE(own.cq->lock.elided() && own.srq->lock.elided());
    for (verbs::Qp* qp : {own.qp, own.qp_with_srq}) {
      ASSERT_TRUE(qp->sq.lock.elided() && qp->rq.lock.elided());
      for (ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
        modify(*qp, state);
    }
    own.tell_device();
    owns.push_back(own);
  }
  std::atomic<bool> stop = false;
  std::thread engine([&] {
    while (!stop) {
      for (Own& own : owns)
        own.serve();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (Own& own : owns)
    threads.emplace_back([&own] {
      unsigned posted = 0, polled = 0;
      for (unsigned round = 0; round < kRounds && !HasFatalFailure(); round++)
        use(own, round, posted, polled);
      EXPECT_EQ(polled, posted);
    });
  for (auto& thread : threads)
    thread.join();
  stop = true;
  engine.join();

  // The rest of a queue's life has locks as well.
  for (Own& own : owns) {
    EXPECT_EQ(resize_cq(&own.cq->ibv, 500), 0);
    ibv_srq_attr attr{.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    EXPECT_EQ(modify_srq(&own.srq->ibv, &attr, IBV_SRQ_MAX_WR), 0);
    modify(*own.qp, IBV_QPS_ERR);
    modify(*own.qp, IBV_QPS_RESET);
    EXPECT_EQ(destroy_qp(&own.qp->ibv), 0);
    EXPECT_EQ(destroy_qp(&own.qp_with_srq->ibv), 0);
    EXPECT_EQ(destroy_srq(&own.srq->ibv), 0);
    EXPECT_EQ(destroy_cq(&own.cq->ibv), 0);
  }
  for (unsigned i = 0; i < count; i++) {
    EXPECT_EQ(dealloc_pd(domains[i]), 0);
    EXPECT_EQ(dealloc_td(tds[i]), 0);
  }
}

}  // namespace
}  // namespace keyhole::test
