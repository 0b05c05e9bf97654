// SPDX-License-Identifier: BSD-2-Clause
//
// What the examples share: two adapters in one process, and a queue pair on each that talks to the
// other.
//
// A real program has one End, and its peer is on another machine; what the two tell each other
// there (QP number, GID, addresses, keys) these programs simply read from the other End. All that
// an End opens is closed with it. What must not fail ends the program with a message; completion
// statuses are returned, as an example may well expect an error.

#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// The pointer, which must not be null.
template <typename T>
T* need(T* object, const char* what) {
  if (!object) fail(std::string(what) + ": " + std::strerror(errno));
  return object;
}

// What returns 0 or a value of errno, and must not fail.
inline void done(int error, const char* what) {
  if (error) fail(std::string(what) + ": " + std::strerror(error < 0 ? errno : error));
}

template <auto close>
struct Close {
  void operator()(auto* object) const { close(object); }
};
template <typename T, auto close>
using Owned = std::unique_ptr<T, Close<close>>;

using Region = Owned<ibv_mr, ibv_dereg_mr>;
using Window = Owned<ibv_mw, ibv_dealloc_mw>;

// A device and one of its GIDs.
struct Where {
  std::string device;
  unsigned gid_index;
};

class End {
 public:
  explicit End(const Where& where, ibv_qp_type type = IBV_QPT_RC) : gid_index(where.gid_index) {
    int count = 0;
    ibv_device** list = need(ibv_get_device_list(&count), "ibv_get_device_list");
    for (int i = 0; i < count; ++i)
      if (where.device == ibv_get_device_name(list[i])) context.reset(ibv_open_device(list[i]));
    ibv_free_device_list(list);
    need(context.get(), ("opening " + where.device).c_str());
    done(ibv_query_gid(context.get(), 1, static_cast<int>(gid_index), &gid), "ibv_query_gid");
    pd.reset(need(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    cq.reset(need(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0), "ibv_create_cq"));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.cap = {8, 8, 1, 1, 0};  // send and receive requests, entries of each, inline data
    init.qp_type = type;
    qp.reset(need(ibv_create_qp(pd.get(), &init), "ibv_create_qp"));
  }

  template <typename T>
  Region region(std::vector<T>& memory, int access) const {
    return Region(need(ibv_reg_mr(pd.get(), memory.data(), memory.size() * sizeof(T), access),
                       "ibv_reg_mr"));
  }

  // The next completion.
  ibv_wc wait() const {
    ibv_wc wc{};
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    int got = 0;
    while ((got = ibv_poll_cq(cq.get(), 1, &wc)) != 1) {
      if (got < 0) fail("ibv_poll_cq failed");
      if (std::chrono::steady_clock::now() > patience) fail("no completion within 30 s");
      std::this_thread::yield();
    }
    return wc;
  }

  // Posts one request and waits for it.
  ibv_wc_status post(ibv_send_wr wr) const {
    wr.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    done(ibv_post_send(qp.get(), &wr, &bad), "ibv_post_send");
    return wait().status;
  }

  void receive(ibv_sge* buffer) const {
    ibv_recv_wr wr{};
    wr.sg_list = buffer;
    wr.num_sge = buffer ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    done(ibv_post_recv(qp.get(), &wr, &bad), "ibv_post_recv");
  }

  // From whatever state to ready, with `peer` at the other end; what was posted is forgotten.
  void connect(const End& peer) const {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RESET;
    done(ibv_modify_qp(qp.get(), &to, IBV_QP_STATE), "to RESET");
    for (ibv_wc wc; ibv_poll_cq(cq.get(), 1, &wc) > 0;) {
    }
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    to.qkey = kQkey;
    const bool ud = qp->qp_type == IBV_QPT_UD;
    done(ibv_modify_qp(qp.get(), &to,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
         "to INIT");
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = peer.qp->qp_num;
    to.max_dest_rd_atomic = to.max_rd_atomic = 1;
    to.min_rnr_timer = 12;
    to.ah_attr = path_to(peer.gid);
    constexpr int rc_ready = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    done(ibv_modify_qp(qp.get(), &to, IBV_QP_STATE | (ud ? 0 : rc_ready)), "to RTR");
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = to.rnr_retry = 7;
    constexpr int rc_send =
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    done(ibv_modify_qp(qp.get(), &to, IBV_QP_STATE | IBV_QP_SQ_PSN | (ud ? 0 : rc_send)), "to RTS");
  }

  ibv_ah_attr path_to(const ibv_gid& destination) const {
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = destination;
    path.grh.sgid_index = static_cast<uint8_t>(gid_index);
    path.grh.hop_limit = 64;
    return path;
  }

  static constexpr uint32_t kQkey = 0x11111111;
  unsigned gid_index;
  ibv_gid gid{};
  Owned<ibv_context, ibv_close_device> context;
  Owned<ibv_pd, ibv_dealloc_pd> pd;
  Owned<ibv_cq, ibv_destroy_cq> cq;
  Owned<ibv_qp, ibv_destroy_qp> qp;
};

inline void connect(const End& one, const End& two) {
  one.connect(two);
  two.connect(one);
}

// The two ends: from DEVICE GID-INDEX DEVICE GID-INDEX, or the first two devices that have a RoCE
// v2 GID made from an IPv4 address.
inline std::pair<Where, Where> two_ends(int argc, char** argv) {
  const auto where = [argv](int i) {
    return Where{argv[i], static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 10))};
  };
  if (argc == 5) return {where(1), where(3)};
  if (argc != 1) fail(std::string("usage: ") + argv[0] + " [DEVICE GID-INDEX DEVICE GID-INDEX]");
  constexpr uint8_t ipv4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::vector<Where> found;
  int count = 0;
  ibv_device** list = need(ibv_get_device_list(&count), "ibv_get_device_list");
  for (int i = 0; i < count; ++i) {
    const Owned<ibv_context, ibv_close_device> context(ibv_open_device(list[i]));
    ibv_gid_entry gids[256];
    const auto gid_count = context ? ibv_query_gid_table(context.get(), gids, 256, 0) : 0;
    for (ssize_t g = 0; g < gid_count; ++g)
      if (gids[g].port_num == 1 && gids[g].gid_type == IBV_GID_TYPE_ROCE_V2 &&
          std::memcmp(gids[g].gid.raw, ipv4_mapped, sizeof ipv4_mapped) == 0) {
        found.push_back({ibv_get_device_name(list[i]), gids[g].gid_index});
        break;
      }
  }
  ibv_free_device_list(list);
  if (found.size() < 2) fail("two RDMA devices with a RoCE v2 GID of an IPv4 address are needed");
  return {found[0], found[1]};
}
