// SPDX-License-Identifier: BSD-2-Clause
//
// Many threads on the same queues, with a thread that plays the device. Run under ThreadSanitizer
// this shows that what has to be locked is; run plainly, that nothing is lost or done twice.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "rig.h"

namespace keyhole::verbs {
namespace {

constexpr unsigned kPosters = 3;
constexpr unsigned kEach = 2000;

// Consumes the send queues of some QPs as the device would, completing each request; the CQ has
// room for all that can be outstanding.
class Device {
 public:
  Device(std::vector<QpRig*> qps, CqRig& cq) : qps_(std::move(qps)), cq_(cq), ci_(qps_.size()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Device() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!stop_) {
      bool idle = true;
      for (std::size_t i = 0; i < qps_.size(); i++) {
        QpRig& qp = *qps_[i];
        if (!__atomic_exchange_n(qp.qp.bell.mark, 0, __ATOMIC_ACQ_REL)) continue;
        idle = false;
        const std::uint32_t pi = load_acquire(qp.db.sq_pi);
        while (ci_[i] != pi) {
          const auto ctrl = part<kh_wqe_ctrl>(qp.wqe(ci_[i]), 0);
          ci_[i] += ctrl.nblocks;
          cq_.put(qp.send_cqe(ci_[i], ctrl.wr_id, ctrl.opcode));
        }
      }
      if (idle) std::this_thread::yield();
    }
  }

  std::vector<QpRig*> qps_;
  CqRig& cq_;
  std::vector<std::uint32_t> ci_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Posts one signaled request, waiting for room. Even ones by ibv_post_send, odd ones by the
// builder.
void post_one(QpRig& qp, std::uint64_t wr_id) {
  for (int error = ENOMEM; error == ENOMEM;) {
    if (wr_id % 2 == 0) {
      std::array<ibv_sge, 8> sges{};
      ibv_send_wr wr{};
      wr.wr_id = wr_id;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = sges.data();
      wr.num_sge = static_cast<int>(wr_id / 2 % 9);  // one to three blocks
      ibv_send_wr* bad = nullptr;
      error = ibv_post_send(qp.ibv(), &wr, &bad);
    } else {
      ibv_qp_ex* ex = qp.ex();
      ibv_wr_start(ex);
      ex->wr_id = wr_id;
      ex->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(ex, 1, 2);
      ibv_wr_set_sge(ex, 3, 4, 5);
      error = ibv_wr_complete(ex);
    }
    if (error == ENOMEM)
      std::this_thread::yield();
    else
      EXPECT_EQ(error, 0);
  }
}

unsigned poll_some(CqRig& cq, std::vector<std::atomic<int>>& seen, bool ex) {
  unsigned count = 0;
  if (!ex) {
    std::array<ibv_wc, 4> wcs{};
    const int polled = ibv_poll_cq(cq.ibv(), 4, wcs.data());
    for (int i = 0; i < polled; i++)
      seen[wcs[i].wr_id]++;
    return static_cast<unsigned>(polled);
  }
  ibv_poll_cq_attr attr{};
  if (ibv_start_poll(&cq.cq.ex, &attr) != 0) return 0;
  do {
    seen[cq.cq.ex.wr_id]++;
    EXPECT_NE(ibv_wc_read_qp_num(&cq.cq.ex), 0u);
    count++;
  } while (count < 4 && ibv_next_poll(&cq.cq.ex) == 0);
  ibv_end_poll(&cq.cq.ex);
  return count;
}

TEST(Threads, shared_qps_and_a_shared_cq_lose_nothing_and_double_nothing) {
  QpTable qps;
  CqRig cq(qps, 8);
  QpRig a(qps, cq, cq, 10), b(qps, cq, cq, 11);
  std::vector<std::atomic<int>> seen(kPosters * kEach);
  std::atomic<unsigned> total = 0;
  {
    const Device device({&a, &b}, cq);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kPosters; t++)
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < kEach; i++)
          post_one(i % 3 ? a : b, t * kEach + i);
      });
    for (bool ex : {false, true})
      threads.emplace_back([&, ex] {
        while (total < kPosters * kEach) {
          const unsigned polled = poll_some(cq, seen, ex);
          total += polled;
          if (polled == 0) {
            ibv_req_notify_cq(cq.ibv(), ex);
            std::this_thread::yield();
          }
        }
      });
    for (auto& thread : threads)
      thread.join();
  }
  EXPECT_EQ(total, kPosters * kEach);
  for (std::size_t i = 0; i < seen.size(); i++)
    ASSERT_EQ(seen[i], 1) << i;
}

TEST(Threads, a_thread_alone_on_its_unlocked_queues_works_beside_others) {
  QpTable qps;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; t++)
    threads.emplace_back([&, t] {
      CqRig cq(qps, 8, true);
      QpRig qp(qps, cq, cq, 100 + t * 5000, {.log_sq_blocks = 6, .single_threaded = true});
      std::vector<std::atomic<int>> seen(kEach);
      unsigned total = 0;
      const Device device({&qp}, cq);
      unsigned posted = 0;
      while (total < kEach) {
        // One thread does both, so it must not wait for room that only its own polling makes.
        while (posted < kEach && posted - total < 20)
          post_one(qp, posted++);
        total += poll_some(cq, seen, total % 2 != 0);
        std::this_thread::yield();
      }
      for (unsigned i = 0; i < kEach; i++)
        ASSERT_EQ(seen[i], 1) << i;
    });
  for (auto& thread : threads)
    thread.join();
}

TEST(Threads, an_srq_fed_and_drained_through_two_cqs_keeps_its_count) {
  QpTable qps;
  CqRig cq_a(qps, 8), cq_b(qps, 8);
  SrqRig srq(5);
  QpRig a(qps, cq_a, cq_a, 20, {}, &srq.srq), b(qps, cq_b, cq_b, 21, {}, &srq.srq);
  constexpr unsigned all = 2 * kEach;
  std::vector<std::atomic<int>> seen(all);
  std::atomic<unsigned> total = 0;
  std::atomic<bool> stop = false;

  std::thread device([&] {
    std::uint32_t ci = 0;
    while (!stop) {
      if (ci == load_acquire(srq.db.pi)) {
        std::this_thread::yield();
        continue;
      }
      const auto rwqe = part<kh_rwqe>(srq.ring, (ci & srq.srq.mask) * 64ul);
      store_release(srq.db.ci, ++ci);
      if (ci % 2)
        cq_a.put(a.recv_cqe(rwqe.wr_id));
      else
        cq_b.put(b.recv_cqe(rwqe.wr_id));
    }
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; t++)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kEach; i++) {
        ibv_recv_wr wr{.wr_id = t * kEach + i, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
        ibv_recv_wr* bad = nullptr;
        while (ibv_post_srq_recv(&srq.srq.ibv, &wr, &bad) == ENOMEM)
          std::this_thread::yield();
      }
    });
  for (CqRig* cq : {&cq_a, &cq_b})
    threads.emplace_back([&, cq] {
      while (total < all) {
        const unsigned polled = poll_some(*cq, seen, false);
        total += polled;
        if (polled == 0) std::this_thread::yield();
      }
    });
  for (auto& thread : threads)
    thread.join();
  stop = true;
  device.join();
  for (unsigned i = 0; i < all; i++)
    ASSERT_EQ(seen[i], 1) << i;
  EXPECT_EQ(srq.srq.pi, all);
  EXPECT_EQ(srq.srq.completed, all);
}

TEST(Threads, qps_come_and_go_while_another_thread_polls_their_cq) {
  QpTable qps;
  CqRig cq(qps, 4);
  QpRig lasting(qps, cq, cq, 7);
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> last_dead = 0;
  std::atomic<unsigned> of_the_dead = 0, seen = 0;
  std::thread poller([&] {
    while (!stop) {
      std::array<ibv_wc, 4> wcs{};
      const std::uint64_t dead = last_dead;
      const int polled = ibv_poll_cq(cq.ibv(), 4, wcs.data());
      for (int i = 0; i < polled; i++)
        if (wcs[i].wr_id != 0 && wcs[i].wr_id <= dead) of_the_dead++;
      seen += static_cast<unsigned>(polled);
      if (polled == 0) std::this_thread::yield();
    }
  });
  for (unsigned i = 1; seen < 1000; i++) {
    QpRig qp(qps, cq, cq, 8 + i * 4096 % 0xfff000);  // each in a leaf of its own
    if (cq.written - load_acquire(cq.db.ci) < 8) {
      cq.put(lasting.recv_cqe(0));
      cq.put(qp.recv_cqe(i));
    } else {
      std::this_thread::yield();
    }
    clean_qp(qp.qp);
    last_dead = i;
  }
  stop = true;
  poller.join();
  EXPECT_EQ(of_the_dead, 0u);
}

TEST(Lock, a_waiter_that_had_to_sleep_is_woken) {
  Lock lock;
  lock.lock();
  std::atomic<int> through = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&] {
      lock.lock();
      through++;
      lock.unlock();
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(through, 0);
  lock.unlock();
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(through, 3);
}

}  // namespace
}  // namespace keyhole::verbs
