// SPDX-License-Identifier: BSD-2-Clause
//
// Queues that are full: ENOMEM, *bad_wr is the first request not posted, those before it are done
// once each and in order, and once they have been polled there is room again.

#include "rig.h"

namespace rig {
namespace {

std::vector<ibv_send_wr> chain(ibv_sge& sge, const Side& there, size_t count) {
  std::vector<ibv_send_wr> list(count);
  for (size_t i = 0; i < count; i++) {
    list[i] = write_request(sge, there, i);
    if (i) list[i - 1].next = &list[i];
  }
  return list;
}

void send_queue(Pair pair) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = pair.a.cq.get();
  init.cap = {.max_send_wr = 50,
              .max_recv_wr = 1,
              .max_send_sge = 2,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  Qp qp(need(ibv_create_qp(pair.a.pd.get(), &init), "ibv_create_qp"));
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);
  check(init.cap.max_send_wr >= 50, "send overflow: at least the requests asked for");

  // One-entry requests here take a block each, as two-entry ones do, so that max_send_wr is exact.
  const size_t room = init.cap.max_send_wr;
  for (int round = 0; round < 3; round++) {
    ibv_sge sge = pair.a.sge(16);
    auto list = chain(sge, pair.b, room + 3);
    ibv_send_wr* bad = nullptr;
    same(ibv_post_send(qp.get(), list.data(), &bad), ENOMEM, "send overflow: ENOMEM");
    check(bad == &list[room], "send overflow: bad_wr is the first that had no room");
    bad = nullptr;
    same(ibv_post_send(qp.get(), &list[room], &bad), ENOMEM,
         "send overflow: still ENOMEM before anything is polled");
    check(bad == &list[room], "send overflow: bad_wr again");

    const auto done = collect(pair.a.cq.get(), room + 1);
    bool order = done.size() == room;
    for (size_t i = 0; i < done.size(); i++)
      order &= done[i].wr_id == i && done[i].status == IBV_WC_SUCCESS;
    check(order, "send overflow: those posted completed once each, in order");
  }

  // An unsignaled request is done when a later one is.
  ibv_sge sge = pair.a.sge(16);
  auto list = chain(sge, pair.b, room);
  for (size_t i = 0; i + 1 < room; i++)
    list[i].send_flags = 0;
  ibv_send_wr* bad = nullptr;
  same(ibv_post_send(qp.get(), list.data(), &bad), 0, "send overflow: a full ring, one signaled");
  same(post(qp.get(), list[0]), ENOMEM, "send overflow: full");
  same(static_cast<int64_t>(next(pair.a.cq.get()).wr_id), static_cast<int64_t>(room - 1),
       "send overflow: its completion");
  same(ibv_post_send(qp.get(), list.data(), &bad), 0, "send overflow: frees the whole ring");
  next(pair.a.cq.get());
}

void receive_queue(Pair pair) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = pair.a.cq.get();
  init.cap = {.max_send_wr = 1,
              .max_recv_wr = 10,
              .max_send_sge = 1,
              .max_recv_sge = 2,
              .max_inline_data = 0};
  Qp qp(need(ibv_create_qp(pair.a.pd.get(), &init), "ibv_create_qp"));
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);
  check(init.cap.max_recv_wr >= 10, "receive overflow: at least the requests asked for");

  const size_t room = init.cap.max_recv_wr;
  ibv_sge sge = pair.a.sge(64);
  for (int round = 0; round < 3; round++) {
    std::vector<ibv_recv_wr> list(room + 2);
    for (size_t i = 0; i < list.size(); i++)
      list[i] = {.wr_id = i,
                 .next = i + 1 < list.size() ? &list[i + 1] : nullptr,
                 .sg_list = &sge,
                 .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    same(ibv_post_recv(qp.get(), list.data(), &bad), ENOMEM, "receive overflow: ENOMEM");
    check(bad == &list[room], "receive overflow: bad_wr is the first that had no room");

    bool right = true;
    for (size_t i = 0; i < room; i++) {
      ibv_send_wr send{};
      send.opcode = IBV_WR_SEND;
      send.send_flags = IBV_SEND_SIGNALED;
      right &= post(peer.get(), send) == 0;
      right &= next(pair.b.cq.get()).status == IBV_WC_SUCCESS;
    }
    same(post_receive(qp.get(), &sge), ENOMEM,
         "receive overflow: what is done but not polled is outstanding");
    for (size_t i = 0; i < room; i++)
      right &= next(pair.a.cq.get()).wr_id == i;
    check(right, "receive overflow: those posted were used once each, in order");
  }
}

void too_many_entries(Pair pair) {
  Qp qp = make_qp(pair.a.pd.get(), pair.a.cq.get());
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);

  std::vector<ibv_sge> many(64, pair.a.sge(1));
  ibv_send_wr good = write_request(many[0], pair.b, 1);
  ibv_send_wr wrong = write_request(many[0], pair.b, 2);
  wrong.num_sge = 64;
  ibv_send_wr after = write_request(many[0], pair.b, 3);
  good.next = &wrong;
  wrong.next = &after;
  ibv_send_wr* bad = nullptr;
  same(ibv_post_send(qp.get(), &good, &bad), EINVAL, "too many entries: EINVAL");
  check(bad == &wrong, "too many entries: bad_wr is the one");
  const auto done = collect(pair.a.cq.get(), 2);
  check(done.size() == 1 && done[0].wr_id == 1, "too many entries: the one before it was posted");

  ibv_recv_wr receive{.wr_id = 0, .next = nullptr, .sg_list = many.data(), .num_sge = 64};
  ibv_recv_wr* bad_receive = nullptr;
  same(ibv_post_recv(qp.get(), &receive, &bad_receive), EINVAL, "too many receive entries: EINVAL");
  check(bad_receive == &receive, "too many receive entries: bad_wr");
}

}  // namespace

void test_overflow(Pair pair) {
  send_queue(pair);
  receive_queue(pair);
  too_many_entries(pair);
}

}  // namespace rig
