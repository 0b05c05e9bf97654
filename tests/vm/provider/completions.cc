// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: resizing with unread entries, events, moderation, timestamps.

#include <poll.h>

#include "rig.h"

namespace rig {
namespace {

using Channel = Owned<ibv_comp_channel, ibv_destroy_comp_channel>;

void resize(Pair pair) {
  Cq cq(need(ibv_create_cq(pair.a.context.get(), 64, nullptr, nullptr, 0), "ibv_create_cq"));
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 64,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  Qp qp = make_qp(pair.a.pd.get(), cq.get(), init);
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);

  ibv_sge sge = pair.a.sge(16);
  uint64_t posted = 0, polled = 0;
  bool right = true;
  const auto post_some = [&](int count) {
    for (int i = 0; i < count; i++)
      right &= post(qp.get(), write_request(sge, pair.b, posted++)) == 0;
  };
  const auto poll_some = [&](int count) {
    for (int i = 0; i < count; i++)
      right &= next(cq.get()).wr_id == polled++;
  };
  post_some(50);
  poll_some(20);
  // The device may still be writing completions meanwhile: none is lost and none comes twice.
  for (const int size : {400, 40, 3000, 64}) {
    same(ibv_resize_cq(cq.get(), size), 0, "resize to " + std::to_string(size));
    check(cq->cqe >= size, "resize: at least as many entries");
    post_some(20);
    poll_some(20);
  }
  poll_some(30);
  check(right && collect(cq.get(), 1).empty(),
        "resize: unread completions stay, in order, once each");

  post_some(40);
  poll_some(1);
  poll(nullptr, 0, 1000);  // the other 39 are done long since, and unread
  same(ibv_resize_cq(cq.get(), 16), EINVAL, "resize: below what is unread is EINVAL");
  poll_some(39);
  check(right, "resize: which leaves the queue as it was");
  same(ibv_resize_cq(cq.get(), 0), EINVAL, "resize: to nothing is EINVAL");
  same(ibv_resize_cq(cq.get(), 1 << 30), EINVAL, "resize: to too much is EINVAL");
}

void events(Pair pair) {
  Channel channel(need(ibv_create_comp_channel(pair.a.context.get()), "ibv_create_comp_channel"));
  Cq cq(
      need(ibv_create_cq(pair.a.context.get(), 100, &channel, channel.get(), 0), "ibv_create_cq"));
  Qp qp = make_qp(pair.a.pd.get(), cq.get());
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);
  ibv_sge sge = pair.a.sge(16);
  const auto event = [&](int ms) {
    pollfd fd{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (poll(&fd, 1, ms) <= 0) return false;
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel.get(), &which, &context)) return false;
    ibv_ack_cq_events(which, 1);
    return which == cq.get() && context == &channel;
  };
  const auto go = [&] { need_zero(post(qp.get(), write_request(sge, pair.b)), "post"); };

  go();
  check(!event(300), "events: none when nobody asked");
  next(cq.get());
  need_zero(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
  go();
  check(event(10000), "events: one when asked");
  go();
  check(!event(300), "events: one only");
  next(cq.get());
  next(cq.get());
  need_zero(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
  same(ibv_resize_cq(cq.get(), 300), 0, "events: a CQ resized while armed");
  go();
  check(event(10000), "events: stays armed");
  next(cq.get());

  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {.cq_count = 4, .cq_period = 60000};
  same(ibv_modify_cq(cq.get(), &attr), 0, "moderation: four completions or 60 ms");
  need_zero(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
  for (int i = 0; i < 4; i++)
    go();
  check(event(10000), "moderation: the event after four");
  for (int i = 0; i < 4; i++)
    next(cq.get());
  need_zero(ibv_req_notify_cq(cq.get(), 0), "ibv_req_notify_cq");
  go();
  check(event(10000), "moderation: the event after the period");
  next(cq.get());
}

void timestamps(Pair pair) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 100;
  attr.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* ex = need(ibv_create_cq_ex(pair.a.context.get(), &attr), "ibv_create_cq_ex");
  Cq cq(ibv_cq_ex_to_cq(ex));
  Qp qp = make_qp(pair.a.pd.get(), cq.get());
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);

  const auto clock = [&] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    need_zero(ibv_query_rt_values_ex(pair.a.context.get(), &values), "ibv_query_rt_values_ex");
    return static_cast<uint64_t>(values.raw_clock.tv_nsec);
  };
  const uint64_t before = clock();
  ibv_sge sge = pair.a.sge(16);
  for (uint64_t i = 0; i < 10; i++)
    need_zero(post(qp.get(), write_request(sge, pair.b, i)), "post");
  uint64_t last = before;
  bool right = true;
  ibv_poll_cq_attr poll_attr{};
  for (uint64_t i = 0; i < 10; i++) {
    while (ibv_start_poll(ex, &poll_attr) == ENOENT) {
    }
    const uint64_t at = ibv_wc_read_completion_ts(ex);
    right &= ex->wr_id == i && ex->status == IBV_WC_SUCCESS;
    right &= ibv_wc_read_opcode(ex) == IBV_WC_RDMA_WRITE;
    right &= at >= last;
    last = at;
    ibv_end_poll(ex);
  }
  check(right, "timestamps: they grow, from the raw clock before");
  check(clock() >= last, "timestamps: to the raw clock after");
  ibv_device_attr_ex device{};
  need_zero(ibv_query_device_ex(pair.a.context.get(), nullptr, &device), "ibv_query_device_ex");
  check(device.completion_timestamp_mask != 0 && device.hca_core_clock != 0,
        "timestamps: the device says how fast its clock is");
}

}  // namespace

void test_completions(Pair pair) {
  resize(pair);
  events(pair);
  timestamps(pair);
}

}  // namespace rig
