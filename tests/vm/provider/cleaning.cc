// SPDX-License-Identifier: BSD-2-Clause
//
// A QP that is reset or destroyed takes its unread completions with it, and nobody else's.

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "rig.h"

namespace rig {
namespace {

struct TwoPairs {
  explicit TwoPairs(Pair pair)
      : doomed(make_qp(pair.a.pd.get(), pair.a.cq.get())),
        kept(make_qp(pair.a.pd.get(), pair.a.cq.get())),
        peer_of_doomed(make_qp(pair.b.pd.get(), pair.b.cq.get())),
        peer_of_kept(make_qp(pair.b.pd.get(), pair.b.cq.get())) {
    connect(doomed.get(), pair.a, peer_of_doomed.get(), pair.b);
    connect(kept.get(), pair.a, peer_of_kept.get(), pair.b);
  }

  // Eight requests on each, mixed, done and unread.
  void fill(Pair pair) {
    ibv_sge sge = pair.a.sge(16);
    for (uint64_t i = 0; i < 8; i++) {
      need_zero(post(doomed.get(), write_request(sge, pair.b, 100 + i)), "post");
      need_zero(post(kept.get(), write_request(sge, pair.b, 200 + i)), "post");
    }
    usleep(300'000);
  }

  // True when the completions unread are those of `kept` alone, all eight, in order.
  bool only_kept(Pair pair) const {
    const auto rest = collect(pair.a.cq.get(), 16);
    bool right = rest.size() == 8;
    for (size_t i = 0; i < rest.size(); i++)
      right &= rest[i].wr_id == 200 + i && rest[i].qp_num == kept->qp_num;
    return right;
  }

  Qp doomed, kept, peer_of_doomed, peer_of_kept;
};

void on_destroy(Pair pair) {
  TwoPairs pairs(pair);
  pairs.fill(pair);
  pairs.doomed.reset();
  check(pairs.only_kept(pair), "destroy: unread completions go with their QP, and only they");
}

void on_reset(Pair pair) {
  TwoPairs pairs(pair);
  pairs.fill(pair);
  to_reset(pairs.doomed.get());
  check(pairs.only_kept(pair), "reset: unread completions go with their QP, and only they");

  // After a reset the rings are empty: a whole ring of requests fits and is done, from index 0.
  connect(pairs.doomed.get(), pair.a, pairs.peer_of_doomed.get(), pair.b);
  ibv_sge sge = pair.a.sge(16);
  bool right = true;
  for (uint64_t i = 0; i < 16; i++)
    right &= post(pairs.doomed.get(), write_request(sge, pair.b, i)) == 0;
  const auto done = collect(pair.a.cq.get(), 17);
  right &= done.size() == 16;
  for (size_t i = 0; i < done.size(); i++)
    right &= done[i].wr_id == i && done[i].status == IBV_WC_SUCCESS;
  check(right, "reset: afterwards a whole ring of requests fits and is done");
}

// Receives are dropped on reset as well, and the queue takes as many as before.
void receives_on_reset(Pair pair) {
  Qp qp = make_qp(pair.a.pd.get(), pair.a.cq.get());
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  ibv_sge in = pair.a.sge(64), out = pair.b.sge(64);
  bool right = true;
  for (uint64_t round = 0; round < 3; round++) {
    connect(qp.get(), pair.a, peer.get(), pair.b);
    for (uint64_t i = 0; i < 16; i++)
      right &= post_receive(qp.get(), &in, round * 16 + i) == 0;
    right &= post_receive(qp.get(), &in, 0) == ENOMEM;
    for (uint64_t i = 0; i < 5; i++) {
      ibv_send_wr send{};
      send.sg_list = &out;
      send.num_sge = 1;
      send.opcode = IBV_WR_SEND;
      send.send_flags = IBV_SEND_SIGNALED;
      right &= post(peer.get(), send) == 0 && next(pair.b.cq.get()).status == IBV_WC_SUCCESS;
    }
    for (uint64_t i = 0; i < 3; i++)
      right &= next(pair.a.cq.get()).wr_id == round * 16 + i;
  }
  to_reset(qp.get());
  right &= collect(pair.a.cq.get(), 1).empty();
  check(right, "reset: receives are dropped, and the queue takes as many as before");
}

void flushed(Pair pair) {
  Qp qp = make_qp(pair.a.pd.get(), pair.a.cq.get());
  Qp peer = make_qp(pair.b.pd.get(), pair.b.cq.get());
  connect(qp.get(), pair.a, peer.get(), pair.b);
  ibv_sge sge = pair.a.sge(16);
  for (uint64_t i = 0; i < 4; i++)
    need_zero(post_receive(qp.get(), &sge, i), "post_receive");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  need_zero(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), "modify to ERR");
  need_zero(post_receive(qp.get(), &sge, 4), "a receive in the error state");
  need_zero(post(qp.get(), write_request(sge, pair.b, 5)), "a send in the error state");
  bool seen[6] = {};
  uint64_t last_receive = 0;
  bool right = true;
  const auto done = collect(pair.a.cq.get(), 6);
  for (const ibv_wc& wc : done) {
    right &= wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id < 6 && !seen[wc.wr_id];
    if (wc.wr_id < 6) seen[wc.wr_id] = true;
    if (wc.wr_id < 5) {
      right &= wc.wr_id >= last_receive;
      last_receive = wc.wr_id;
    }
  }
  check(right && done.size() == 6,
        "error state: everything posted, then and before, is flushed once");
}

// True when this process has a page of an HCA in its address space.
bool maps_a_device() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/infiniband/uverbs") != std::string::npos) return true;
  return false;
}

void forked() {
  const bool here = maps_a_device();
  const pid_t child = fork();
  if (child == 0) _exit(maps_a_device());
  int status = -1;
  waitpid(child, &status, 0);
  check(here && child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "fork: the doorbells stay with the process that opened the device");
}

}  // namespace

void test_cleaning(Pair pair) {
  on_destroy(pair);
  on_reset(pair);
  receives_on_reset(pair);
  flushed(pair);
  forked();
}

}  // namespace rig
