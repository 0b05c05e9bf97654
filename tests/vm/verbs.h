// SPDX-License-Identifier: BSD-2-Clause
//
// Two ends of one RC connection in one process, on plain verbs, for test programs in the guest.
//
// Each End owns a device context, a PD, a CQ, a QP and a buffer with one memory region. A completion with
// an error takes a QP to the error state, and such errors are what these programs provoke; so connect()
// can be called again at any time and brings both QPs from wherever they are back to RTS.

#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace guest {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

template <typename T>
T* need(T* object, const std::string& what) {
  if (!object) die(what);
  return object;
}

inline void need_zero(int error, const std::string& what) {
  if (error) {
    errno = error > 0 ? error : -error;
    die(what);
  }
}

template <auto Function>
struct Closer {
  void operator()(auto* object) const { Function(object); }
};
template <typename T, auto Function>
using Owned = std::unique_ptr<T, Closer<Function>>;

class End {
 public:
  // sends: requests that the send queue holds; its CQ has room for as many.
  End(const std::string& device, int gid_index, size_t bytes, uint32_t sends = 16) : gid_index_(gid_index) {
    int count = 0;
    ibv_device** list = need(ibv_get_device_list(&count), "ibv_get_device_list");
    for (int i = 0; i < count; ++i)
      if (device == ibv_get_device_name(list[i])) context_.reset(ibv_open_device(list[i]));
    ibv_free_device_list(list);
    need(context_.get(), "opening " + device);
    pd_.reset(need(ibv_alloc_pd(context_.get()), "ibv_alloc_pd"));
    cq_.reset(need(ibv_create_cq(context_.get(), static_cast<int>(sends) + 48, nullptr, nullptr, 0), "ibv_create_cq"));
    memory.assign(bytes, 0);
    mr_.reset(need(ibv_reg_mr(pd_.get(), memory.data(), bytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND),
                   "ibv_reg_mr"));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = sends, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    qp_.reset(need(ibv_create_qp(pd_.get(), &init), "ibv_create_qp"));
    need_zero(ibv_query_gid(context_.get(), 1, gid_index_, &gid_), "ibv_query_gid");
  }

  std::vector<uint8_t> memory;

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_qp* qp() const { return qp_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_mr* mr() const { return mr_.get(); }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(memory.data()) + offset; }

  // Posts one signalled work request and returns the status of its completion.
  ibv_wc_status post(ibv_send_wr wr) {
    wr.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    need_zero(ibv_post_send(qp_.get(), &wr, &bad), "ibv_post_send");
    return wait().status;
  }

  void post_receive() {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    need_zero(ibv_post_recv(qp_.get(), &wr, &bad), "ibv_post_recv");
  }

  // The next completion; ends the program if none comes.
  ibv_wc wait() {
    ibv_wc wc{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      const int got = ibv_poll_cq(cq_.get(), 1, &wc);
      if (got < 0) die("ibv_poll_cq");
      if (got > 0) return wc;
      if (std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr, "no completion within 60 s\n");
        std::exit(2);
      }
    }
  }

  void drop_completions() {
    ibv_wc wc{};
    while (ibv_poll_cq(cq_.get(), 1, &wc) > 0) {
    }
  }

  // An RDMA WRITE or READ of `length` bytes between this end's memory (from its start) and the peer's.
  ibv_wc_status rdma(ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey, uint32_t length) {
    ibv_sge sge{.addr = address(), .length = length, .lkey = mr_->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return post(wr);
  }

  void connect_to(const End& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    need_zero(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE), "modify to RESET");
    drop_completions();
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    need_zero(ibv_modify_qp(qp_.get(), &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "modify to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp_->qp_num;
    attr.rq_psn = 0;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid_;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    need_zero(ibv_modify_qp(qp_.get(), &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "modify to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.sq_psn = 0;
    attr.max_rd_atomic = 1;
    need_zero(ibv_modify_qp(qp_.get(), &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                IBV_QP_MAX_QP_RD_ATOMIC),
              "modify to RTS");
  }

 private:
  // Destroyed from the last to the first.
  int gid_index_;
  ibv_gid gid_{};
  Owned<ibv_context, ibv_close_device> context_;
  Owned<ibv_pd, ibv_dealloc_pd> pd_;
  Owned<ibv_cq, ibv_destroy_cq> cq_;
  Owned<ibv_mr, ibv_dereg_mr> mr_;
  Owned<ibv_qp, ibv_destroy_qp> qp_;
};

inline void connect(End& one, End& two) {
  one.connect_to(two);
  two.connect_to(one);
}

}  // namespace guest
