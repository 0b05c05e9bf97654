// SPDX-License-Identifier: BSD-2-Clause
//
// Every verb of the control path as a table: how to come to where it can be called, the call, and
// how to undo it.
//
// What walks the table decides what happens to the call: fail_nth.cpp makes its allocations fail
// one after the other, cycles.cpp repeats all of them thousands of times. In both nothing may stay
// behind, which holds only if each row leaves the world as it found it.

#pragma once

#include <infiniband/verbs.h>
#include <keyholedv.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "uapi/keyhole_hw.h"
#include "uapi/rdma/keyhole-abi.h"
#include "verbs.h"

namespace guest {

struct Verb {
  std::string name;
  std::function<void()> before;
  std::function<int()> call;  // 0, or the errno; after an error it may be called again
  std::function<void()> after;
  // How others on the way say that there is no memory: the neighbour table when a GID's MAC is
  // looked for, and libibverbs when it cannot open a device and looks for another.
  int also = 0;
};

// For functions that return an object and set errno, and for those that return -1 and set it.
inline int error_of(const void* object) { return object ? 0 : (errno ? errno : EPROTO); }
inline int error_of(int result) { return result < 0 ? (errno ? errno : EPROTO) : result; }

// What the rows share. Objects that a row makes are dropped by it.
struct World {
  World(const std::string& device, int gid_index) : name(device), gid_index(gid_index) {
    int count = 0;
    list = need(ibv_get_device_list(&count), "ibv_get_device_list");
    for (int i = 0; i < count; ++i)
      if (name == ibv_get_device_name(list[i])) self = list[i];
    if (!self) die("no device " + name);
    context = need(ibv_open_device(self), "opening " + name);
    pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
    other_pd = need(ibv_alloc_pd(context), "ibv_alloc_pd");
    channel = need(ibv_create_comp_channel(context), "ibv_create_comp_channel");
    cq = need(ibv_create_cq(context, 64, nullptr, channel, 0), "ibv_create_cq");
    memory.assign(4 << 20, 1);
    need_zero(ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
  }
  World(const World&) = delete;
  ~World() {
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
    ibv_dealloc_pd(other_pd);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(list);
  }

  ibv_ah_attr address(bool multicast = false) const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    if (multicast) attr.grh.dgid = group();
    attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
    attr.grh.hop_limit = 64;
    return attr;
  }
  static ibv_gid group() {
    ibv_gid group{};
    group.raw[10] = group.raw[11] = 0xff;
    group.raw[12] = 239;
    group.raw[15] = 7;
    return group;
  }

  std::string name;
  int gid_index;
  ibv_device** list;
  ibv_device* self = nullptr;
  ibv_context* context;
  ibv_pd *pd, *other_pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  std::vector<uint8_t> memory;
  ibv_gid gid{};

  // Of the row that runs.
  ibv_context* new_context = nullptr;
  ibv_pd* new_pd = nullptr;
  ibv_comp_channel* new_channel = nullptr;
  ibv_cq* new_cq = nullptr;
  ibv_cq_ex* new_cq_ex = nullptr;
  ibv_mr* mr = nullptr;
  ibv_mw* mw = nullptr;
  ibv_ah* ah = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  keyholedv_mkey* mkey = nullptr;
  keyholedv_klm_list* klms = nullptr;
  ibv_async_event event{};
  int fd = -1;
  void* mapped = nullptr;
};

inline int modify_to(World& w, ibv_qp_state state) {
  ibv_qp_attr attr{};
  int mask = IBV_QP_STATE;
  const bool ud = w.qp->qp_type == IBV_QPT_UD, rc = w.qp->qp_type == IBV_QPT_RC;
  attr.qp_state = state;
  switch (state) {
    case IBV_QPS_INIT:
      attr.port_num = 1;
      attr.qkey = 0x1234;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
      break;
    case IBV_QPS_RTR:
      if (ud) break;
      attr.path_mtu = IBV_MTU_1024;
      attr.dest_qp_num = w.qp->qp_num;
      attr.ah_attr = w.address();
      attr.min_rnr_timer = 12;
      attr.max_dest_rd_atomic = 1;
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      break;
    case IBV_QPS_RTS:
      attr.timeout = 14;
      attr.retry_cnt = attr.rnr_retry = 7;
      attr.max_rd_atomic = 1;
      mask |= IBV_QP_SQ_PSN;
      if (rc)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      break;
    case IBV_QPS_SQD:
      attr.en_sqd_async_notify = 1;
      mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
      break;
    default:
      break;
  }
  return ibv_modify_qp(w.qp, &attr, mask);
}

// GET_CONTEXT by ioctl on a descriptor of our own, as the provider does it: what can be mapped is
// in the answer.
inline int raw_context(int fd, keyhole_alloc_ucontext_resp& answer) {
  alignas(8) uint8_t buffer[sizeof(ib_uverbs_ioctl_hdr) + 3 * sizeof(ib_uverbs_attr)] = {};
  uint32_t vectors = 0;
  uint64_t support = 0;
  auto* call = reinterpret_cast<ib_uverbs_ioctl_hdr*>(buffer);
  call->length = sizeof(buffer);
  call->object_id = UVERBS_OBJECT_DEVICE;
  call->method_id = UVERBS_METHOD_GET_CONTEXT;
  const auto out = [call](uint16_t id, void* to, size_t bytes) {
    ib_uverbs_attr& attr = call->attrs[call->num_attrs++];
    attr.attr_id = id;
    attr.len = static_cast<uint16_t>(bytes);
    attr.flags = UVERBS_ATTR_F_MANDATORY;
    attr.data = reinterpret_cast<uint64_t>(to);
  };
  out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof(vectors));
  out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support, sizeof(support));
  out(UVERBS_ATTR_UHW_OUT, &answer, sizeof(answer));
  return ioctl(fd, RDMA_VERBS_IOCTL, call) ? errno : 0;
}

inline int open_raw(const World& w) {
  const std::string path = std::string("/dev/infiniband/") + w.self->dev_name;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) die(path);
  return fd;
}

class Verbs {
 public:
  explicit Verbs(World& world) : w(world) {
    contexts();
    memory();
    completion_queues();
    receive_queues();
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
      queue_pairs(type);
    datagrams();
    keys();
  }
  const std::vector<Verb>& rows() const { return rows_; }

 private:
  using Do = std::function<void()>;
  void row(std::string name, Do before, std::function<int()> call, Do after, int also = 0) {
    rows_.push_back({std::move(name), std::move(before), std::move(call), std::move(after), also});
  }
  // Three of a kind: an object is made, looked at perhaps, and unmade.
  void life(const std::string& what, Do before, std::function<int()> make,
            std::function<int()> unmake, Do after, int also = 0) {
    row(
        "create " + what, before, make,
        [unmake, after] { need_zero(unmake(), "undoing"), after(); }, also);
    row(
        "destroy " + what, [before, make] { before(), need_zero(make(), "making"); }, unmake,
        after);
  }
  static void nothing() {}

  void contexts() {
    life(
        "context", nothing, [this] { return error_of(w.new_context = ibv_open_device(w.self)); },
        [this] { return error_of(ibv_close_device(w.new_context)); }, nothing, ENOENT);
    row(
        "get context by ioctl", [this] { w.fd = open_raw(w); },
        [this] {
          keyhole_alloc_ucontext_resp answer{};
          return raw_context(w.fd, answer);
        },
        [this] { close(w.fd); });
    row(
        "map status page",
        [this] {
          w.fd = open_raw(w);
          need_zero(raw_context(w.fd, pages_), "GET_CONTEXT");
        },
        [this] {
          w.mapped = mmap(nullptr, KH_PAGE_SIZE, PROT_READ, MAP_SHARED, w.fd,
                          static_cast<off_t>(pages_.status_mmap));
          return w.mapped == MAP_FAILED ? errno : 0;
        },
        [this] {
          munmap(w.mapped, KH_PAGE_SIZE);
          close(w.fd);
        });
    row(
        "query device", nothing,
        [this] {
          ibv_device_attr_ex attr;
          return error_of(ibv_query_device_ex(w.context, nullptr, &attr));
        },
        nothing);
    row(
        "query port", nothing,
        [this] {
          ibv_port_attr attr;
          return error_of(ibv_query_port(w.context, 1, &attr));
        },
        nothing);
    row(
        "query GID table", nothing,
        [this] {
          ibv_gid_entry entries[64];
          const ssize_t got = ibv_query_gid_table(w.context, entries, 64, 0);
          return got < 0 ? static_cast<int>(-got) : 0;
        },
        nothing);
    row(
        "query P_Key", nothing,
        [this] {
          __be16 key;
          return error_of(ibv_query_pkey(w.context, 1, 0, &key));
        },
        nothing);
    life(
        "PD", nothing, [this] { return error_of(w.new_pd = ibv_alloc_pd(w.context)); },
        [this] { return ibv_dealloc_pd(w.new_pd); }, nothing);
  }

  int reg(size_t bytes, int access) {
    return error_of(w.mr = ibv_reg_mr(w.pd, w.memory.data(), bytes, access));
  }
  void rereg(const char* what, int flags) {
    row(
        std::string("change MR's ") + what, [this] { need_zero(reg(8192, kWrite), "ibv_reg_mr"); },
        [this, flags] {
          const int access = flags & IBV_REREG_MR_CHANGE_ACCESS
                                 ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ
                                 : 0;
          const int result =
              ibv_rereg_mr(w.mr, flags, w.other_pd, w.memory.data() + (1 << 20), 3 << 20, access);
          // IBV_REREG_MR_ERR_CMD and its like: the old region is as it was, and errno says why.
          return result ? error_of(nullptr) : 0;
        },
        [this] { need_zero(ibv_dereg_mr(w.mr), "ibv_dereg_mr"); });
  }
  void memory() {
    const auto dereg = [this] { return ibv_dereg_mr(w.mr); };
    life("MR", nothing, [this] { return reg(100, kWrite); }, dereg, nothing);
    life(
        "MR of a thousand pages", nothing, [this] { return reg(w.memory.size(), kWrite); }, dereg,
        nothing);
    rereg("access", IBV_REREG_MR_CHANGE_ACCESS);
    rereg("PD", IBV_REREG_MR_CHANGE_PD);
    rereg("memory", IBV_REREG_MR_CHANGE_TRANSLATION);
    rereg("all",
          IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS);
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2})
      life(
          type == IBV_MW_TYPE_1 ? "MW of type 1" : "MW of type 2", nothing,
          [this, type] { return error_of(w.mw = ibv_alloc_mw(w.pd, type)); },
          [this] { return ibv_dealloc_mw(w.mw); }, nothing);
  }

  void completion_queues() {
    life(
        "completion channel", nothing,
        [this] { return error_of(w.new_channel = ibv_create_comp_channel(w.context)); },
        [this] { return ibv_destroy_comp_channel(w.new_channel); }, nothing);
    const auto create = [this] {
      return error_of(w.new_cq = ibv_create_cq(w.context, 200, nullptr, w.channel, 0));
    };
    const auto destroy = [this] { return ibv_destroy_cq(w.new_cq); };
    life("CQ", nothing, create, destroy, nothing);
    life(
        "extended CQ", nothing,
        [this] {
          ibv_cq_init_attr_ex attr{};
          attr.cqe = 100;
          attr.channel = w.channel;
          attr.wc_flags =
              static_cast<uint64_t>(IBV_WC_STANDARD_FLAGS) | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
          return error_of(w.new_cq_ex = ibv_create_cq_ex(w.context, &attr));
        },
        [this] { return ibv_destroy_cq(ibv_cq_ex_to_cq(w.new_cq_ex)); }, nothing);
    const Do before = [create] { need_zero(create(), "ibv_create_cq"); };
    const Do after = [destroy] { need_zero(destroy(), "ibv_destroy_cq"); };
    row("resize CQ", before, [this] { return ibv_resize_cq(w.new_cq, 1000); }, after);
    row(
        "moderate CQ", before,
        [this] {
          ibv_modify_cq_attr attr{};
          attr.attr_mask = IBV_CQ_ATTR_MODERATE;
          attr.moderate = {.cq_count = 4, .cq_period = 10};
          return ibv_modify_cq(w.new_cq, &attr);
        },
        after);
  }

  void receive_queues() {
    const auto create = [this] {
      ibv_srq_init_attr init{};
      init.attr = {.max_wr = 32, .max_sge = 2, .srq_limit = 0};
      return error_of(w.srq = ibv_create_srq(w.pd, &init));
    };
    const auto destroy = [this] { return ibv_destroy_srq(w.srq); };
    life("SRQ", nothing, create, destroy, nothing);
    const Do before = [create] { need_zero(create(), "ibv_create_srq"); };
    const Do after = [destroy] { need_zero(destroy(), "ibv_destroy_srq"); };
    const auto modify = [this](uint32_t max_wr, uint32_t limit, int mask) {
      ibv_srq_attr attr{.max_wr = max_wr, .max_sge = 2, .srq_limit = limit};
      return ibv_modify_srq(w.srq, &attr, mask);
    };
    row("set SRQ's limit", before, [modify] { return modify(0, 0, IBV_SRQ_LIMIT); }, after);
    row("resize SRQ", before, [modify] { return modify(300, 0, IBV_SRQ_MAX_WR); }, after);
    row(
        "query SRQ", before,
        [this] {
          ibv_srq_attr attr;
          return ibv_query_srq(w.srq, &attr);
        },
        after);
  }

  int create_qp(ibv_qp_type type) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = w.cq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 16,
                .max_recv_wr = 16,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    return error_of(w.qp = ibv_create_qp(w.pd, &init));
  }
  void destroy_qp() { need_zero(ibv_destroy_qp(w.qp), "ibv_destroy_qp"); }
  // A QP that has come as far as `state`.
  Do up_to(ibv_qp_type type, ibv_qp_state state) {
    return [this, type, state] {
      need_zero(create_qp(type), "ibv_create_qp");
      for (int s = IBV_QPS_INIT; s <= state; ++s)
        need_zero(modify_to(w, static_cast<ibv_qp_state>(s)), "ibv_modify_qp");
    };
  }
  void queue_pairs(ibv_qp_type type) {
    const std::string kind = type == IBV_QPT_RC ? "RC QP" : type == IBV_QPT_UC ? "UC QP" : "UD QP";
    const Do destroy = [this] { destroy_qp(); };
    const auto to = [this](ibv_qp_state state) {
      return [this, state] { return modify_to(w, state); };
    };
    life(
        kind, nothing, [this, type] { return create_qp(type); },
        [this] { return ibv_destroy_qp(w.qp); }, nothing);
    row(kind + " to INIT", up_to(type, IBV_QPS_RESET), to(IBV_QPS_INIT), destroy);
    row(kind + " to RTR", up_to(type, IBV_QPS_INIT), to(IBV_QPS_RTR), destroy, ENOBUFS);
    row(kind + " to RTS", up_to(type, IBV_QPS_RTR), to(IBV_QPS_RTS), destroy);
    row(kind + " to error", up_to(type, IBV_QPS_RTS), to(IBV_QPS_ERR), destroy);
    row(kind + " to RESET", up_to(type, IBV_QPS_RTS), to(IBV_QPS_RESET), destroy);
    row(
        "query " + kind, up_to(type, IBV_QPS_RTS),
        [this] {
          ibv_qp_attr attr;
          ibv_qp_init_attr init;
          return ibv_query_qp(w.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &init);
        },
        destroy);
    if (type != IBV_QPT_RC) return;
    row(
        "read the event of a drained SQ",
        [this, up = up_to(type, IBV_QPS_RTS)] {
          up();
          need_zero(modify_to(w, IBV_QPS_SQD), "ibv_modify_qp");
          pollfd ready{.fd = w.context->async_fd, .events = POLLIN, .revents = 0};
          if (poll(&ready, 1, 60000) != 1) die("the event of a drained SQ");
        },
        [this] { return error_of(ibv_get_async_event(w.context, &w.event)); },
        [this] {
          ibv_ack_async_event(&w.event);
          destroy_qp();
        });
  }

  void datagrams() {
    const auto create = [this](bool multicast) {
      ibv_ah_attr attr = w.address(multicast);
      return error_of(w.ah = ibv_create_ah(w.pd, &attr));
    };
    const auto destroy = [this] { return ibv_destroy_ah(w.ah); };
    life("AH", nothing, [create] { return create(false); }, destroy, nothing, ENOBUFS);
    life("AH of a group", nothing, [create] { return create(true); }, destroy, nothing);
    const auto attach = [this] {
      const ibv_gid group = World::group();
      return ibv_attach_mcast(w.qp, &group, 0);
    };
    const auto detach = [this] {
      const ibv_gid group = World::group();
      return ibv_detach_mcast(w.qp, &group, 0);
    };
    const Do up = up_to(IBV_QPT_UD, IBV_QPS_RTS);
    row("attach to a group", up, attach, [this, detach] {
      need_zero(detach(), "ibv_detach_mcast");
      destroy_qp();
    });
    row(
        "detach from a group", [up, attach] { up(), need_zero(attach(), "ibv_attach_mcast"); },
        detach, [this] { destroy_qp(); });
  }

  void keys() {
    const auto create = [this] {
      keyholedv_mkey_init_attr attr{};
      attr.pd = w.pd;
      attr.max_entries = 8;
      return error_of(w.mkey = keyholedv_create_mkey(&attr));
    };
    const auto destroy = [this] { return error_of(keyholedv_destroy_mkey(w.mkey)); };
    life("mkey", nothing, create, destroy, nothing);
    row(
        "query mkey", [create] { need_zero(create(), "keyholedv_create_mkey"); },
        [this] {
          keyholedv_mkey_attr attr{};
          return error_of(keyholedv_query_mkey(w.mkey, &attr));
        },
        [destroy] { need_zero(destroy(), "keyholedv_destroy_mkey"); });
    life(
        "KLM list", nothing,
        [this] { return error_of(w.klms = keyholedv_alloc_klm_list(w.pd, 1000)); },
        [this] { return error_of(keyholedv_free_klm_list(w.klms)); }, nothing);
  }

  static constexpr int kWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  World& w;
  std::vector<Verb> rows_;
  keyhole_alloc_ucontext_resp pages_{};
};

}  // namespace guest
