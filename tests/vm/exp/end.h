// SPDX-License-Identifier: BSD-2-Clause
//
// One end of an RC connection, made by experimental verbs throughout. As an old program would, it
// includes infiniband/verbs.h only.

#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace guest {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

template <typename T>
T* need(T* object, const char* what) {
  if (!object) die(what);
  return object;
}

inline void need_zero(int error, const char* what) {
  if (!error) return;
  errno = error;
  die(what);
}

class End {
 public:
  End(const std::string& device, int gid_index, size_t bytes) : memory(bytes), gid_index_(gid_index) {
    ibv_device** list = need(ibv_exp_get_device_list(nullptr), "ibv_exp_get_device_list");
    for (ibv_device** it = list; *it; ++it)
      if (device == ibv_get_device_name(*it)) context = ibv_open_device(*it);
    ibv_free_device_list(list);
    need(context, "opening the device");
    device_attr.comp_mask = static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_RESERVED - 1);
    need_zero(ibv_exp_query_device(context, &device_attr), "ibv_exp_query_device");

    pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
    ibv_exp_cq_init_attr cq_attr{};
    cq_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    if (device_attr.comp_mask & IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK)
      cq_attr.flags = IBV_EXP_CQ_TIMESTAMP;
    cq = need(ibv_exp_create_cq(context, 256, nullptr, nullptr, 0, &cq_attr), "ibv_exp_create_cq");

    ibv_exp_reg_mr_in reg{};
    reg.pd = pd;
    reg.addr = memory.data();
    reg.length = bytes;
    reg.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_WRITE |
                     IBV_EXP_ACCESS_REMOTE_ATOMIC | IBV_EXP_ACCESS_MW_BIND;
    mr = need(ibv_exp_reg_mr(&reg), "ibv_exp_reg_mr");

    ibv_exp_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 0};
    init.pd = pd;
    init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_INL_RECV;
    init.max_inl_recv = 64;
    if (device_attr.comp_mask & IBV_EXP_DEVICE_ATTR_UMR) {
      init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
      init.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
      init.max_inl_send_klms = device_attr.umr_caps.max_send_wqe_inline_klms;
    }
    qp = need(ibv_exp_create_qp(context, &init), "ibv_exp_create_qp");
    inline_receive = init.max_inl_recv;

    ibv_exp_gid_attr gid_attr{};
    gid_attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_GID | IBV_EXP_QUERY_GID_ATTR_TYPE;
    need_zero(ibv_exp_query_gid_attr(context, 1, static_cast<unsigned>(gid_index), &gid_attr),
              "ibv_exp_query_gid_attr");
    gid_ = gid_attr.gid;
  }

  ~End() {
    need_zero(ibv_destroy_qp(qp), "ibv_destroy_qp");
    need_zero(ibv_dereg_mr(mr), "ibv_dereg_mr");
    need_zero(ibv_destroy_cq(cq), "ibv_destroy_cq");
    need_zero(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    need_zero(ibv_close_device(context), "ibv_close_device");
  }
  End(const End&) = delete;

  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(memory.data()) + offset; }

  void connect_to(const End& peer) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    need_zero(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE), "modify to RESET");
    ibv_exp_wc wc;
    while (ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)) > 0) {
    }
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    need_zero(ibv_exp_modify_qp(qp, &attr,
                                IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                                    IBV_EXP_QP_ACCESS_FLAGS),
              "modify to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid_;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    need_zero(ibv_exp_modify_qp(qp, &attr,
                                IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_DEST_QPN |
                                    IBV_EXP_QP_RQ_PSN | IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER),
              "modify to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    need_zero(ibv_exp_modify_qp(qp, &attr,
                                IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                    IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_MAX_QP_RD_ATOMIC),
              "modify to RTS");
  }

  // The next completion; ends the program if none comes.
  ibv_exp_wc wait() {
    ibv_exp_wc wc{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      const int got = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
      if (got < 0) die("ibv_exp_poll_cq");
      if (got > 0) return wc;
      if (std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr, "no completion within 60 s\n");
        std::exit(2);
      }
    }
  }

  // Posts one signalled request and returns its completion.
  ibv_exp_wc post(ibv_exp_send_wr wr) {
    wr.exp_send_flags |= IBV_EXP_SEND_SIGNALED;
    ibv_exp_send_wr* bad = nullptr;
    need_zero(ibv_exp_post_send(qp, &wr, &bad), "ibv_exp_post_send");
    return wait();
  }

  // RDMA between this end's memory, from `offset` on, and the peer's.
  ibv_wc_status rdma(ibv_exp_wr_opcode opcode, size_t offset, uint64_t remote, uint32_t rkey, uint32_t length) {
    ibv_sge sge{.addr = address(offset), .length = length, .lkey = mr->lkey};
    ibv_exp_send_wr wr{};
    wr.exp_opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return post(wr).status;
  }

  std::vector<uint8_t> memory;
  ibv_context* context = nullptr;
  ibv_exp_device_attr device_attr{};
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  uint32_t inline_receive = 0;

 private:
  int gid_index_;
  ibv_gid gid_{};
};

inline void connect(End& one, End& two) {
  one.connect_to(two);
  two.connect_to(one);
}

}  // namespace guest
