// SPDX-License-Identifier: BSD-2-Clause
//
// Many threads and a device that runs beside them: on queues, windows and a shared receive queue
// that they share, and on ones that each has for itself, whose locks are elided. Under
// ThreadSanitizer this shows that each hand-over of memory between program, provider and device is
// ordered by what the contract says orders it; run plainly, that nothing is lost or done twice.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "../provider/pair.h"

namespace keyhole::verbs {
namespace {

constexpr unsigned kEach = 400;

test::Rig::Options beside() {
  test::Rig::Options options;
  options.host.real_clock = true;
  options.hca.idle_ns = 20'000;  // it sleeps often, so that it has to be woken often
  return options;
}

void join(std::vector<std::thread>& threads) {
  for (auto& thread : threads)
    thread.join();
}

// Posts until there is room.
void post(EngineQp& qp, const ibv_send_wr& wr) {
  int error = ENOMEM;
  while ((error = qp.post_send(wr)) == ENOMEM)
    std::this_thread::yield();
  ASSERT_EQ(error, 0);
}

// Waits for completions of a CQ that is this thread's own.
unsigned wait(EngineCq& cq, unsigned count) {
  unsigned failed = 0;
  for (unsigned done = 0; done < count;) {
    const auto wcs = cq.poll();
    for (const auto& wc : wcs)
      failed += wc.status != IBV_WC_SUCCESS;
    done += static_cast<unsigned>(wcs.size());
    if (wcs.empty()) std::this_thread::yield();
  }
  return failed;
}

ibv_send_wr write_to(ibv_sge& sge, std::uint64_t addr, std::uint32_t rkey,
                     std::uint64_t wr_id = 1) {
  auto wr = request(IBV_WR_RDMA_WRITE, wr_id, &sge);
  wr.wr.rdma = {addr, rkey};
  return wr;
}

// Two connected QPs and their CQs.
struct Link {
  EngineCq cq_a, cq_b;
  EngineQp qp_a, qp_b;

  Link(EngineRig& rig, bool single_threaded, unsigned log_cq = 8)
      : cq_a(rig.at(0), log_cq, 0, single_threaded),
        cq_b(rig.at(1), log_cq, 0, single_threaded),
        qp_a(rig.at(0), cq_a, cq_a, options(single_threaded)),
        qp_b(rig.at(1), cq_b, cq_b, options(single_threaded)) {
    qp_a.connect(qp_b);
    qp_b.connect(qp_a);
  }
  static EngineQpOptions options(bool single_threaded) {
    EngineQpOptions options;
    options.single_threaded = single_threaded;
    return options;
  }
};

TEST(ThreadsAndEngine, one_qp_and_one_cq_serve_posters_of_every_kind_and_two_pollers) {
  EngineRig rig(beside());
  Link link(rig, false);
  EngineMr mr_a(rig.at(0), 65536, kAllAccess, 1), mr_b(rig.at(1), 65536, kAllAccess, 2);
  EngineMw window(rig.at(0), IBV_MW_TYPE_1);
  EngineMkey key(rig.at(0), 4);
  const ibv_mw_bind bind{.wr_id = 3 * kEach,
                         .send_flags = IBV_SEND_SIGNALED,
                         .bind_info = {&mr_a.mr, mr_a.addr(4096), 512, IBV_ACCESS_REMOTE_WRITE}};
  constexpr unsigned kinds = 5, all = kinds * kEach;
  std::vector<std::atomic<int>> seen(all);
  std::atomic<unsigned> done = 0, failed = 0;
  {
    const EngineThread engine(rig);
    std::vector<std::thread> threads;
    auto poster = [&](unsigned kind, std::function<int(std::uint64_t)> post_one) {
      threads.emplace_back([=] {
        for (unsigned i = 0; i < kEach; i++) {
          int error = ENOMEM;
          while ((error = post_one(kind * kEach + i)) == ENOMEM)
            std::this_thread::yield();
          ASSERT_EQ(error, 0);
        }
      });
    };
    poster(0, [&](std::uint64_t id) {
      ibv_sge sge = mr_a.sge(id % 64 * 8, 100);
      return link.qp_a.post_send(write_to(sge, mr_b.addr(1024), mr_b.mr.rkey, id));
    });
    poster(1, [&](std::uint64_t id) {
      ibv_sge sge = mr_a.sge(1024, 8);
      auto wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, id, &sge);
      wr.wr.atomic = {
          .remote_addr = mr_b.addr(), .compare_add = 1, .swap = 0, .rkey = mr_b.mr.rkey};
      return link.qp_a.post_send(wr);
    });
    poster(2, [&](std::uint64_t id) {
      ibv_qp_ex* ex = link.qp_a.ex();
      ibv_wr_start(ex);
      ex->wr_id = id;
      ex->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_read(ex, mr_b.mr.rkey, mr_b.addr(8192));
      ibv_wr_set_sge(ex, mr_a.mr.lkey, mr_a.addr(8192), 64);
      if (id % 7 == 0) {  // and thinks better of it, once
        ibv_wr_abort(ex);
        ibv_wr_start(ex);
        ibv_wr_rdma_write(ex, mr_b.mr.rkey, mr_b.addr(2048));
        ibv_wr_set_sge(ex, mr_a.mr.lkey, mr_a.addr(2048), 64);
      }
      return ibv_wr_complete(ex);
    });
    poster(3, [&](std::uint64_t id) {
      ibv_mw_bind one = bind;
      one.wr_id = id;
      return ibv_bind_mw(link.qp_a.ibv(), &window.mw, &one);
    });
    poster(4, [&](std::uint64_t id) {
      ibv_sge entry = mr_a.sge(512, 64);
      keyholedv_send_wr wr{};
      wr.wr_id = id;
      wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
      wr.opcode = KEYHOLEDV_WR_FILL;
      wr.fill.mkey = key.dv.lkey;
      wr.fill.access = IBV_ACCESS_LOCAL_WRITE;
      wr.fill.num_entries = 1;
      wr.fill.list = &entry;
      return link.qp_a.post_dv(wr);
    });
    for (int poller = 0; poller < 2; poller++)
      threads.emplace_back([&] {
        while (done < all) {
          const auto wcs = link.cq_a.poll(8);
          for (const auto& wc : wcs) {
            failed += wc.status != IBV_WC_SUCCESS;
            seen[wc.wr_id]++;
          }
          done += static_cast<unsigned>(wcs.size());
          if (wcs.empty()) std::this_thread::yield();
        }
      });
    join(threads);
  }
  EXPECT_EQ(failed, 0u);
  for (unsigned i = 0; i < all; i++)
    ASSERT_EQ(seen[i], 1) << i;
  std::uint64_t word = 0;
  std::memcpy(&word, mr_b.data(), sizeof(word));
  std::uint64_t began = 0;
  const auto first = pattern(sizeof(began), 2);
  std::memcpy(&began, first.data(), sizeof(began));
  EXPECT_EQ(word - began, kEach);
}

TEST(ThreadsAndEngine, threads_with_queues_and_windows_of_their_own_need_no_lock) {
  EngineRig rig(beside());
  constexpr unsigned count = 3;
  struct Own {
    Link link;
    EngineMr mr_a, mr_b;
    EngineMw window1, window2;
    explicit Own(EngineRig& rig, unsigned seed)
        : link(rig, true),
          mr_a(rig.at(0), 8192, kAllAccess, seed),
          mr_b(rig.at(1), 8192, kAllAccess, seed + 10),
          window1(rig.at(0), IBV_MW_TYPE_1),
          window2(rig.at(0), IBV_MW_TYPE_2) {}
  };
  std::vector<std::unique_ptr<Own>> owns;
  for (unsigned i = 0; i < count; i++)
    owns.push_back(std::make_unique<Own>(rig, i + 1));
  std::atomic<unsigned> failed = 0;
  {
    const EngineThread engine(rig);
    std::vector<std::thread> threads;
    for (auto& own : owns)
      threads.emplace_back([&failed, &o = *own] {
        for (unsigned i = 0; i < kEach / 4; i++) {
          // Type 1, in and out.
          ibv_mw_bind bind{.wr_id = 1,
                           .send_flags = IBV_SEND_SIGNALED,
                           .bind_info = {&o.mr_a.mr, o.mr_a.addr(), 4096, IBV_ACCESS_REMOTE_WRITE}};
          ASSERT_EQ(ibv_bind_mw(o.link.qp_a.ibv(), &o.window1.mw, &bind), 0);
          failed += wait(o.link.cq_a, 1);
          ibv_sge sge = o.mr_b.sge(64, 256);
          post(o.link.qp_b, write_to(sge, o.mr_a.addr(i), o.window1.mw.rkey));
          failed += wait(o.link.cq_b, 1);
          failed += std::memcmp(o.mr_a.data() + i, o.mr_b.data() + 64, 256) != 0;
          bind.bind_info.length = 0;
          ASSERT_EQ(ibv_bind_mw(o.link.qp_a.ibv(), &o.window1.mw, &bind), 0);
          failed += wait(o.link.cq_a, 1);

          // Type 2, by the builder, and invalidated.
          ibv_qp_ex* ex = o.link.qp_a.ex();
          const std::uint32_t rkey = ibv_inc_rkey(o.window2.mw.rkey);
          ibv_wr_start(ex);
          ex->wr_id = 2;
          ex->wr_flags = IBV_SEND_SIGNALED;
          const ibv_mw_bind_info info{&o.mr_a.mr, o.mr_a.addr(), 4096, IBV_ACCESS_REMOTE_WRITE};
          ibv_wr_bind_mw(ex, &o.window2.mw, rkey, &info);
          ASSERT_EQ(ibv_wr_complete(ex), 0);
          failed += wait(o.link.cq_a, 1);
          o.window2.mw.rkey = rkey;
          post(o.link.qp_b, write_to(sge, o.mr_a.addr(1000), rkey));
          failed += wait(o.link.cq_b, 1);
          ibv_send_wr invalidate = request(IBV_WR_LOCAL_INV, 3, nullptr, 0);
          invalidate.invalidate_rkey = rkey;
          post(o.link.qp_a, invalidate);
          failed += wait(o.link.cq_a, 1);
        }
      });
    join(threads);
  }
  EXPECT_EQ(failed, 0u);
}

TEST(ThreadsAndEngine, a_window_goes_from_the_thread_that_binds_it_to_the_one_that_uses_it) {
  EngineRig rig(beside());
  Link link(rig, false);
  EngineMr mr_a(rig.at(0), 4096, kAllAccess, 1), mr_b(rig.at(1), 4096, kAllAccess, 2);
  EngineMw window(rig.at(0), IBV_MW_TYPE_1);
  std::atomic<std::uint32_t> key = 0;  // 0: the binder's turn
  std::atomic<unsigned> failed = 0;
  {
    const EngineThread engine(rig);
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      for (unsigned i = 0; i < kEach / 2; i++) {
        ibv_mw_bind bind{.wr_id = 1,
                         .send_flags = IBV_SEND_SIGNALED,
                         .bind_info = {&mr_a.mr, mr_a.addr(i), 64, IBV_ACCESS_REMOTE_WRITE}};
        ASSERT_EQ(ibv_bind_mw(link.qp_a.ibv(), &window.mw, &bind), 0);
        failed += wait(link.cq_a, 1);
        key = window.mw.rkey;
        while (key != 0)
          std::this_thread::yield();
        // What the other thread's WRITE left is this thread's to read.
        failed += std::memcmp(mr_a.data() + i, mr_b.data() + i, 64) != 0;
      }
    });
    threads.emplace_back([&] {
      for (unsigned i = 0; i < kEach / 2; i++) {
        while (key == 0)
          std::this_thread::yield();
        ibv_sge sge = mr_b.sge(i, 64);
        post(link.qp_b, write_to(sge, mr_a.addr(i), key));
        failed += wait(link.cq_b, 1);
        key = 0;
      }
    });
    join(threads);
  }
  EXPECT_EQ(failed, 0u);
}

TEST(ThreadsAndEngine, an_srq_is_fed_by_two_threads_and_drained_through_two_cqs) {
  EngineRig rig(beside());
  Station &a = rig.at(0), &b = rig.at(1);
  EngineSrq srq(b, 5);
  EngineCq from(a, 8), into_x(b, 8), into_y(b, 8);
  EngineQp ax(a, from, from), ay(a, from, from);
  EngineQp bx(b, into_x, into_x, {}, &srq), by(b, into_y, into_y, {}, &srq);
  ax.connect(bx), bx.connect(ax), ay.connect(by), by.connect(ay);
  EngineMr mr_a(a, 4096, kAllAccess, 1), mr_b(b, 65536, kAllAccess, 2);
  constexpr unsigned all = 2 * kEach;
  std::atomic<unsigned> received = 0, failed = 0;
  std::vector<std::atomic<int>> seen(all);
  {
    const EngineThread engine(rig);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; t++)
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < kEach; i++) {
          ibv_sge sge = mr_b.sge((t * kEach + i) % 512 * 64, 64);
          ibv_recv_wr wr{.wr_id = t * kEach + i, .next = nullptr, .sg_list = &sge, .num_sge = 1};
          ibv_recv_wr* bad = nullptr;
          while (ibv_post_srq_recv(&srq.srq.ibv, &wr, &bad) == ENOMEM)
            std::this_thread::yield();
        }
      });
    for (EngineQp* qp : {&ax, &ay})
      threads.emplace_back([&, qp] {
        for (unsigned i = 0; i < kEach; i++) {
          ibv_sge sge = mr_a.sge(i, 32);
          post(*qp, request(IBV_WR_SEND, i, &sge));
        }
      });
    threads.emplace_back([&] { failed += wait(from, all); });
    for (EngineCq* cq : {&into_x, &into_y})
      threads.emplace_back([&, cq] {
        while (received < all) {
          const auto wcs = cq->poll(4);
          for (const auto& wc : wcs) {
            failed += wc.status != IBV_WC_SUCCESS;
            seen[wc.wr_id]++;
          }
          received += static_cast<unsigned>(wcs.size());
          if (wcs.empty()) std::this_thread::yield();
        }
      });
    join(threads);
  }
  EXPECT_EQ(failed, 0u);
  for (unsigned i = 0; i < all; i++)
    ASSERT_EQ(seen[i], 1) << i;
}

// The CQ is one thread's, its lock elided; the events are taken by another, which arms it: that has
// a lock of its own.
TEST(ThreadsAndEngine, a_thread_takes_events_of_a_cq_that_another_polls_without_a_lock) {
  EngineRig rig(beside());
  Link link(rig, true);
  EngineMr mr_a(rig.at(0), 4096, kAllAccess, 1), mr_b(rig.at(1), 4096, kAllAccess, 2);
  test::TestEq& eq = rig.at(0).driver().completion_eq;
  eq.arm();
  std::atomic<bool> stop = false;
  std::atomic<unsigned> events = 0;
  unsigned failed = 0;
  {
    const EngineThread engine(rig);
    std::thread taker([&] {
      ibv_req_notify_cq(link.cq_a.ibv(), 0);
      while (!stop) {
        kh_eqe eqe{};
        if (!eq.poll(eqe)) {
          std::this_thread::yield();
          continue;
        }
        eq.arm();
        events++;
        cq_event(link.cq_a.ibv());
        ibv_req_notify_cq(link.cq_a.ibv(), 0);
      }
    });
    for (unsigned i = 0; i < kEach; i++) {
      ibv_sge sge = mr_a.sge(i, 16);
      post(link.qp_a, write_to(sge, mr_b.addr(i), mr_b.mr.rkey));
      failed += wait(link.cq_a, 1);
      // Arming from the polling thread too, as programs do before they sleep.
      if (i % 5 == 0) ibv_req_notify_cq(link.cq_a.ibv(), 1);
    }
    while (events == 0)
      std::this_thread::yield();
    stop = true;
    taker.join();
  }
  EXPECT_EQ(failed, 0u);
  EXPECT_GT(events, 0u);
}

}  // namespace
}  // namespace keyhole::verbs
