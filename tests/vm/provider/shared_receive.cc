// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues: the limit and its event, the size, and the order.

#include <poll.h>

#include "rig.h"

namespace rig {
namespace {

// The next asynchronous event of the device, or -1 when none comes in `ms`.
int next_event(ibv_context* context, ibv_srq* srq, int ms) {
  pollfd fd{.fd = context->async_fd, .events = POLLIN, .revents = 0};
  if (poll(&fd, 1, ms) <= 0) return -1;
  ibv_async_event event{};
  if (ibv_get_async_event(context, &event)) return -1;
  if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq != srq) return -2;
  ibv_ack_async_event(&event);
  return event.event_type;
}

struct Shared {
  explicit Shared(Pair p) : pair(p) {
    init.attr = {.max_wr = 30, .max_sge = 1, .srq_limit = 0};
    srq.reset(need(ibv_create_srq(pair.a.pd.get(), &init), "ibv_create_srq"));
    ibv_qp_init_attr with_srq{};
    with_srq.srq = srq.get();
    for (int i = 0; i < 2; i++) {
      qps[i] = make_qp(pair.a.pd.get(), pair.a.cq.get(), with_srq);
      peers[i] = make_qp(pair.b.pd.get(), pair.b.cq.get());
      connect(qps[i].get(), pair.a, peers[i].get(), pair.b);
    }
  }

  int receive(uint64_t wr_id) {
    ibv_sge sge = pair.a.sge(64);
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq.get(), &wr, &bad);
  }

  // One message, by either of the two QPs in turn; the wr_id of the receive that took it.
  uint64_t send() {
    ibv_qp* peer = peers[turn++ % 2].get();
    ibv_sge sge = pair.b.sge(64);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    need_zero(post(peer, wr), "post");
    check_quietly(next(pair.b.cq.get()).status == IBV_WC_SUCCESS);
    const ibv_wc wc = next(pair.a.cq.get());
    check_quietly(wc.status == IBV_WC_SUCCESS);
    return wc.wr_id;
  }

  void check_quietly(bool ok) { right &= ok; }

  Pair pair;
  ibv_srq_init_attr init{};
  Srq srq;
  Qp qps[2], peers[2];
  unsigned turn = 0;
  bool right = true;
};

void order_and_size(Shared& s) {
  const uint32_t room = s.init.attr.max_wr;
  check(room >= 30, "SRQ: at least the size asked for");
  ibv_srq_attr attr{};
  need_zero(ibv_query_srq(s.srq.get(), &attr), "ibv_query_srq");
  same(attr.max_wr, room, "SRQ: the query says the same size");

  for (uint32_t i = 0; i < room; i++)
    s.check_quietly(s.receive(i) == 0);
  same(s.receive(room), ENOMEM, "SRQ: full is ENOMEM");
  for (uint32_t i = 0; i < room; i++)
    s.check_quietly(s.send() == i);
  check(s.right, "SRQ: two QPs take receives in the order in which they were posted");
  // Around the ring, many times.
  for (uint32_t i = 0; i < room * 5; i++)
    s.check_quietly(s.receive(1000 + i) == 0 && s.send() == 1000 + i);
  check(s.right, "SRQ: around the ring five times");
}

void limit(Shared& s) {
  ibv_context* context = s.pair.a.context.get();
  for (uint32_t i = 0; i < 10; i++)
    s.check_quietly(s.receive(i) == 0);
  ibv_srq_attr attr{};
  attr.srq_limit = s.init.attr.max_wr + 1;
  same(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_LIMIT), EINVAL,
       "SRQ limit: above the size is EINVAL");
  attr.srq_limit = 5;
  need_zero(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_LIMIT), "ibv_modify_srq");
  ibv_srq_attr query{};
  need_zero(ibv_query_srq(s.srq.get(), &query), "ibv_query_srq");
  same(query.srq_limit, 5, "SRQ limit: is what was set");

  for (int i = 0; i < 5; i++)
    s.send();  // five left: not below the limit
  same(next_event(context, s.srq.get(), 300), -1, "SRQ limit: no event at the limit");
  s.send();  // four left
  same(next_event(context, s.srq.get(), 10000), IBV_EVENT_SRQ_LIMIT_REACHED,
       "SRQ limit: the event when fewer are left");
  s.send();
  same(next_event(context, s.srq.get(), 300), -1, "SRQ limit: once");
  need_zero(ibv_query_srq(s.srq.get(), &query), "ibv_query_srq");
  same(query.srq_limit, 0, "SRQ limit: disarmed by its event");
  for (int i = 0; i < 3; i++)
    s.send();
  check(s.right, "SRQ limit: traffic went on");
}

// A QP of the SRQ that dies gives back what its unread completions held.
void death(Pair pair) {
  Shared s(pair);
  const uint32_t room = s.init.attr.max_wr;
  for (uint32_t i = 0; i < room; i++)
    s.check_quietly(s.receive(i) == 0);
  for (int i = 0; i < 4; i++) {
    ibv_sge sge = pair.b.sge(64);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    need_zero(post(s.peers[0].get(), wr), "post");
    s.check_quietly(next(pair.b.cq.get()).status == IBV_WC_SUCCESS);
  }
  same(s.receive(room), ENOMEM, "SRQ: taken and unread receives are outstanding");
  s.qps[0].reset();
  for (uint32_t i = 0; i < 4; i++)
    s.check_quietly(s.receive(room + i) == 0);
  check(s.right, "SRQ: a QP's death frees what its unread completions held");
  same(s.receive(room + 4), ENOMEM, "SRQ: and no more than that");
}

// Grown and shrunk with receives in it, which keep their order.
void resize(Pair pair) {
  Shared s(pair);
  ibv_device_attr device{};
  need_zero(ibv_query_device(pair.a.context.get(), &device), "ibv_query_device");
  ibv_srq_attr attr{};
  attr.max_wr = 200;
  if (!(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE)) {
    same(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP,
         "SRQ resize: not claimed, not supported");
    return;
  }
  uint64_t posted = 0, taken = 0;
  for (int i = 0; i < 20; i++)
    s.check_quietly(s.receive(posted++) == 0);
  for (int i = 0; i < 5; i++)
    s.check_quietly(s.send() == taken++);
  same(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_MAX_WR), 0, "SRQ resize: to 200");
  check(attr.max_wr >= 200, "SRQ resize: at least that");
  ibv_srq_attr query{};
  need_zero(ibv_query_srq(s.srq.get(), &query), "ibv_query_srq");
  same(query.max_wr, attr.max_wr, "SRQ resize: and the query says so");
  while (posted - taken < attr.max_wr)
    s.check_quietly(s.receive(posted++) == 0);
  same(s.receive(posted), ENOMEM, "SRQ resize: full at its new size");
  for (int i = 0; i < 100; i++)
    s.check_quietly(s.send() == taken++);

  attr.max_wr = 16;
  same(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_MAX_WR), EINVAL,
       "SRQ resize: below what is posted is EINVAL");
  while (posted - taken > 10)
    s.check_quietly(s.send() == taken++);
  attr.max_wr = 16;
  same(ibv_modify_srq(s.srq.get(), &attr, IBV_SRQ_MAX_WR), 0, "SRQ resize: smaller");
  for (int i = 0; i < 60; i++)
    s.check_quietly(s.receive(posted++) == 0 && s.send() == taken++);
  check(s.right, "SRQ resize: receives keep their order through both");
}

}  // namespace

void test_shared_receive(Pair pair) {
  {
    Shared s(pair);
    order_and_size(s);
    limit(s);
  }
  death(pair);
  resize(pair);
}

}  // namespace rig
