// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile process: calls of uverbs' ioctl and write interfaces that are nearly right, at random,
// from two threads.
//
//   random_uverbs DEVICE SECONDS SEED
//
// A call is first made as a provider would make it, from handles that calls before it were given;
// half of all calls are then spoilt in one or two places: attributes missing, doubled, renamed, of
// wrong length, values and handles out of the air, pointers to nowhere. Both threads share what
// they know of a descriptor, so that one destroys what the other uses. An episode is some hundreds
// of calls on one descriptor for both or on one for each, and ends with closing it, whatever is
// still there or under way.
//
// What the calls return is only counted: what must hold is said by the kernel's log and by who
// counts afterwards what is left. But each kind of call must have succeeded now and then, or
// nothing deep was reached.

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "uapi/keyhole_hw.h"
#include "uapi/rdma/keyhole-abi.h"

namespace {

enum Kind { kPd, kCq, kQp, kSrq, kMr, kMw, kAh, kMkey, kList, kChannel, kKinds };
const char* const kNames[] = {"PD", "CQ", "QP",   "SRQ",      "MR",
                              "MW", "AH", "MKEY", "KLM_LIST", "channel"};

constexpr size_t kPage = 4096;
constexpr size_t kArena = 256 * kPage;  // of each thread: queues, regions, answers
constexpr int kSlots = 12;              // handles of a kind that are remembered
constexpr int kCalls = 300;             // in an episode, of each thread

std::array<std::atomic<uint64_t>, kKinds> made, unmade;
std::atomic<uint64_t> calls, succeeded, mapped;

// A descriptor and what its users know of it.
struct Descriptor {
  explicit Descriptor(const std::string& path) : fd(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    for (auto& kind : handles)
      for (auto& handle : kind)
        handle = ~0u;
  }
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() { close(fd); }
  int fd;
  std::array<std::array<std::atomic<uint32_t>, kSlots>, kKinds> handles;
  std::atomic<uint64_t> pages[3] = {};
};

class Process {
 public:
  Process(Descriptor& descriptor, uint64_t seed, uint8_t* arena)
      : d_(descriptor), random_(seed), arena_(arena) {}

  void get_context() {
    begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    auto* answer = new (room()) keyhole_alloc_ucontext_resp;
    out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, room(), 4);
    out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, room(), 8);
    out(UVERBS_ATTR_UHW_OUT, answer, sizeof(*answer));
    if (call()) return;
    d_.pages[0] = answer->db_mmap;
    d_.pages[1] = answer->status_mmap;
    d_.pages[2] = answer->wake_mmap;
  }

  void anything() {
    hostile_ = one_in(2);
    // Deep calls need what the shallow ones make: of those first, and making comes more often than
    // unmaking.
    if (started_++ < 8) return started_ % 2 ? alloc_pd() : create_cq();
    switch (pick(24)) {
      case 0:
        return alloc_pd();
      case 1:
      case 2:
        return create_cq();
      case 3:
      case 4:
        return create_qp();
      case 5:
        return create_srq();
      case 6:
        return reg_mr();
      case 7:
        return rereg_mr();
      case 8:
        return alloc_mw();
      case 9:
        return create_ah();
      case 10:
        return create_mkey();
      case 11:
        return create_list();
      case 12:
      case 13:
        return modify_qp();
      case 14:
        return query_qp();
      case 15:
        return resize_cq();
      case 16:
        return change_srq();
      case 17:
        return group();
      case 18:
        return channel();
      case 19:
        return map_page();
      case 20:
        return query();
      case 21:
        return shuffle_memory();
      default:
        return destroy();
    }
  }

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool one_in(uint32_t n) { return pick(n) == 0; }

  // ---- where things are ----

  uint8_t* room() { return arena_ + pick(kArena / kPage / 2) * kPage; }
  // Memory for `pages` pages, in the other half of the arena.
  uint64_t memory(uint32_t pages) {
    return reinterpret_cast<uint64_t>(arena_ + kArena / 2 +
                                      pick(kArena / kPage / 2 - pages) * kPage);
  }
  uint64_t nowhere() {
    const uint64_t places[] = {0,
                               8,
                               0x1000,
                               0xffff888000000000,
                               0x800000000000,
                               ~0ull,
                               ~0ull << 12,
                               reinterpret_cast<uint64_t>(arena_) + kArena - 8,
                               reinterpret_cast<uint64_t>(arena_) + pick(kArena)};
    return places[pick(std::size(places))];
  }
  uint64_t wild() {
    const uint64_t values[] = {0,          1,          2,          7,          8,
                               63,         255,        4095,       4096,       4097,
                               65535,      0x7fffffff, 0x80000000, 0xffffffff, 0xfffff000,
                               1ull << 32, 1ull << 63, ~0ull,      random_(),  random_() & 0xff};
    return values[pick(std::size(values))];
  }
  // One that was given, most often.
  uint32_t handle(Kind kind) {
    uint32_t handle = ~0u;
    for (int tries = 0; tries < 20 && handle == ~0u; ++tries)
      handle = d_.handles[kind][pick(kSlots)];
    return handle;
  }
  void remember(Kind kind, uint32_t handle) {
    ++made[kind];
    d_.handles[kind][pick(kSlots)] = handle;
  }

  // ---- a call by ioctl ----

  void begin(uint16_t object, uint16_t method) {
    attributes_.clear();
    object_ = object;
    method_ = method;
  }
  void attribute(uint16_t id, uint64_t data, size_t bytes) {
    ib_uverbs_attr& a = attributes_.emplace_back();
    std::memset(&a, 0, sizeof(a));
    a.attr_id = id;
    a.len = static_cast<uint16_t>(bytes);
    a.flags = UVERBS_ATTR_F_MANDATORY;
    a.data = data;
  }
  void object(uint16_t id, uint32_t handle = 0) { attribute(id, handle, 0); }
  template <typename T>
  void in(uint16_t id, T value) {
    attribute(id, static_cast<uint64_t>(value), sizeof(T));
  }
  void out(uint16_t id, void* to, size_t bytes) {
    attribute(id, reinterpret_cast<uint64_t>(to), bytes);
  }
  // Something of more than 8 bytes, which lies in memory.
  template <typename T>
  void in_memory(uint16_t id, const T& value) {
    uint8_t* at = room();
    std::memcpy(at, &value, sizeof(value));
    attribute(id, reinterpret_cast<uint64_t>(at), sizeof(value));
  }

  void spoil() {
    if (attributes_.empty()) return;
    ib_uverbs_attr& a = attributes_[pick(static_cast<uint32_t>(attributes_.size()))];
    switch (pick(9)) {
      case 0:
        attributes_.erase(attributes_.begin() + (&a - attributes_.data()));
        break;
      case 1:
        attributes_.push_back(ib_uverbs_attr(a));
        break;
      case 2:
        a.len = static_cast<uint16_t>(one_in(2) ? wild() : a.len + pick(17) - 8);
        break;
      case 3:
        a.attr_id = static_cast<uint16_t>(one_in(2) ? wild() : a.attr_id + pick(5) - 2);
        break;
      case 4:
        a.data = wild();
        break;
      case 5:
        a.data = nowhere();
        break;
      case 6:
        a.flags = static_cast<uint16_t>(wild());
        break;
      case 7:
        a.attr_data.reserved = static_cast<uint16_t>(wild());
        break;
      default:
        a.attr_id ^= 1U << UVERBS_ID_NS_SHIFT;
        break;
    }
  }

  // 0 or the errno; what the kernel wrote into the attributes is in them.
  int call() {
    const bool spoilt = hostile_ && !one_in(4);
    for (uint32_t n = spoilt ? 1 + pick(2) : 0; n; --n)
      spoil();
    const size_t bytes = sizeof(ib_uverbs_ioctl_hdr) + attributes_.size() * sizeof(ib_uverbs_attr);
    alignas(8) uint8_t buffer[sizeof(ib_uverbs_ioctl_hdr) + 32 * sizeof(ib_uverbs_attr)] = {};
    auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(buffer);
    header->length = static_cast<uint16_t>(bytes);
    header->object_id = object_;
    header->method_id = method_;
    header->num_attrs = static_cast<uint16_t>(attributes_.size());
    std::memcpy(header->attrs, attributes_.data(), attributes_.size() * sizeof(ib_uverbs_attr));
    if (spoilt && one_in(8)) {
      uint16_t* const fields[] = {&header->length, &header->object_id, &header->method_id,
                                  &header->num_attrs};
      *fields[pick(4)] = static_cast<uint16_t>(one_in(2) ? wild() : pick(24));
    }
    if (spoilt && one_in(40)) header->reserved1 = wild();
    const int error = ioctl(d_.fd, RDMA_VERBS_IOCTL, header) ? errno : 0;
    std::memcpy(attributes_.data(), header->attrs, attributes_.size() * sizeof(ib_uverbs_attr));
    ++calls;
    succeeded += error == 0;
    return error;
  }
  void call_for(Kind kind, uint16_t id) {
    if (call()) return;
    for (const ib_uverbs_attr& a : attributes_)
      if (a.attr_id == id) return remember(kind, static_cast<uint32_t>(a.data));
  }

  // ---- a command of the write interface, by write() or by the ioctl that carries it ----

  struct None {};
  template <typename Core, typename Driver = None>
  int command(uint32_t number, const Core& core, uint8_t* answer, const Driver& driver = {},
              size_t response = 64) {
    uint8_t bytes[512] = {};
    size_t core_bytes = sizeof(core),
           driver_bytes = std::is_same_v<Driver, None> ? 0 : sizeof(driver);
    std::memcpy(bytes, &core, core_bytes);
    if (driver_bytes) std::memcpy(bytes + core_bytes, &driver, driver_bytes);
    if (hostile_ && one_in(2)) {  // a field of it
      const size_t at = pick(static_cast<uint32_t>(core_bytes + driver_bytes)) & ~3u;
      const uint64_t value = one_in(3) ? nowhere() : wild();
      std::memcpy(bytes + at, &value, one_in(2) ? 4 : one_in(2) ? 8 : 1);
    }
    if (hostile_ && one_in(6)) driver_bytes = pick(64) & ~3u;
    if (hostile_ && one_in(20))
      number = pick(64) | (one_in(4) ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
    if (one_in(2)) return write_command(number, bytes, core_bytes, driver_bytes, answer, response);

    begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    uint8_t* request = room();
    std::memcpy(request, bytes, sizeof(bytes));
    // The driver's part of the answer follows the core's, as write() has it.
    out(UVERBS_ATTR_CORE_IN, request, core_bytes);
    out(UVERBS_ATTR_CORE_OUT, answer, response);
    attribute(UVERBS_ATTR_WRITE_CMD, number, 4);
    if (driver_bytes) out(UVERBS_ATTR_UHW_IN, request + core_bytes, driver_bytes);
    out(UVERBS_ATTR_UHW_OUT, answer + response, 64);
    return call();
  }
  int write_command(uint32_t number, const uint8_t* bytes, size_t core_bytes, size_t driver_bytes,
                    uint8_t* answer, size_t response) {
    alignas(8) uint8_t buffer[640] = {};
    const bool extended = number & IB_USER_VERBS_CMD_FLAG_EXTENDED;
    auto* header = reinterpret_cast<ib_uverbs_cmd_hdr*>(buffer);
    size_t at = sizeof(*header);
    const uint64_t to = reinterpret_cast<uint64_t>(answer);
    header->command = number;
    if (extended) {
      ib_uverbs_ex_cmd_hdr more{};
      more.response = to;
      more.provider_in_words = static_cast<uint16_t>(driver_bytes / 8);
      more.provider_out_words = 8;
      std::memcpy(buffer + at, &more, sizeof(more));
      at += sizeof(more);
      header->in_words = static_cast<uint16_t>(core_bytes / 8);
      header->out_words = static_cast<uint16_t>(response / 8);
    } else {
      header->in_words = static_cast<uint16_t>((at + core_bytes + driver_bytes) / 4);
      header->out_words = static_cast<uint16_t>((response + 64) / 4);
    }
    std::memcpy(buffer + at, bytes, core_bytes + driver_bytes);
    // The first field says where the answer goes, of those commands that have one.
    if (!extended && number != IB_USER_VERBS_CMD_MODIFY_QP &&
        number != IB_USER_VERBS_CMD_MODIFY_SRQ && number != IB_USER_VERBS_CMD_ATTACH_MCAST &&
        number != IB_USER_VERBS_CMD_DETACH_MCAST && !(hostile_ && one_in(10)))
      std::memcpy(buffer + at, &to, 8);
    size_t length = at + core_bytes + driver_bytes;
    if (hostile_ && one_in(15)) length = pick(sizeof(buffer));
    if (hostile_ && one_in(15)) header->in_words = static_cast<uint16_t>(wild());
    if (hostile_ && one_in(15)) header->out_words = static_cast<uint16_t>(wild());
    const int error = write(d_.fd, buffer, length) < 0 ? errno : 0;
    ++calls;
    succeeded += error == 0;
    return error;
  }
  // The handle is the first word of every answer but REG_MR's and its like, where it comes first
  // too.
  template <typename Core, typename Driver = None>
  void command_for(Kind kind, uint32_t number, const Core& core, const Driver& driver = {}) {
    uint8_t* answer = room();
    if (command(number, core, answer, driver)) return;
    uint32_t handle;
    std::memcpy(&handle, answer, 4);
    remember(kind, handle);
  }

  // ---- the calls ----

  void alloc_pd() { command_for(kPd, IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}); }

  void create_cq() {
    keyhole_create_cq_req request{};
    request.buf_addr = memory(2);
    request.buf_len = 2 * kPage;
    request.db_offset = kPage;
    request.log_size = 6;
    if (one_in(2)) {
      ib_uverbs_create_cq core{};
      core.cqe = 1 + pick(64);
      core.comp_vector = pick(3);
      core.comp_channel = one_in(2) ? -1 : static_cast<int>(handle(kChannel));
      return command_for(kCq, IB_USER_VERBS_CMD_CREATE_CQ, core, request);
    }
    begin(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    object(UVERBS_ATTR_CREATE_CQ_HANDLE);
    in<uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE, 64);
    in<uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 77);
    in<uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0);
    if (one_in(3)) attribute(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, handle(kChannel), 0);
    if (one_in(3)) in<uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS, pick(4));
    out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, room(), 4);
    in_memory(UVERBS_ATTR_UHW_IN, request);
    out(UVERBS_ATTR_UHW_OUT, room(), sizeof(keyhole_create_cq_resp));
    call_for(kCq, UVERBS_ATTR_CREATE_CQ_HANDLE);
  }

  void resize_cq() {
    if (one_in(3)) {
      ib_uverbs_ex_modify_cq core{};
      core.cq_handle = handle(kCq);
      core.attr_mask = 1;
      core.attr = {.cq_count = 4, .cq_period = 10};
      command(IB_USER_VERBS_EX_CMD_MODIFY_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED, core, room());
      return;
    }
    ib_uverbs_resize_cq core{};
    core.cq_handle = handle(kCq);
    core.cqe = 1 + pick(100);
    keyhole_resize_cq_req request{};
    request.buf_addr = memory(2);
    request.buf_len = 2 * kPage;
    request.db_offset = kPage;
    request.log_size = static_cast<uint8_t>(5 + pick(2));
    command(IB_USER_VERBS_CMD_RESIZE_CQ, core, room(), request);
  }

  keyhole_create_qp_req qp_request() {
    keyhole_create_qp_req request{};
    request.buf_addr = memory(2);
    request.buf_len = 2 * kPage;
    request.rq_offset = 2048;
    request.db_offset = kPage;
    request.log_sq_blocks = 5;
    request.log_rq_size = 4;
    request.log_rq_stride = 6;
    request.has_sq = request.has_rq = 1;
    return request;
  }

  void create_qp() {
    const auto request = qp_request();
    const uint8_t types[] = {2, 3, 4};  // RC, UC, UD
    const uint8_t type = types[pick(3)];
    if (one_in(2)) {
      ib_uverbs_create_qp core{};
      core.pd_handle = handle(kPd);
      core.send_cq_handle = handle(kCq);
      core.recv_cq_handle = one_in(2) ? core.send_cq_handle : handle(kCq);
      core.max_send_wr = core.max_recv_wr = 16;
      core.max_send_sge = core.max_recv_sge = 2;
      core.max_inline_data = 32;
      core.qp_type = type;
      return command_for(kQp, IB_USER_VERBS_CMD_CREATE_QP, core, request);
    }
    begin(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    object(UVERBS_ATTR_CREATE_QP_HANDLE);
    object(UVERBS_ATTR_CREATE_QP_PD_HANDLE, handle(kPd));
    object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, handle(kCq));
    object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, handle(kCq));
    in<uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 5);
    in_memory(UVERBS_ATTR_CREATE_QP_CAP, ib_uverbs_qp_cap{16, 16, 2, 2, 32});
    in<uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE, type);
    out(UVERBS_ATTR_CREATE_QP_RESP_CAP, room(), sizeof(ib_uverbs_qp_cap));
    out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, room(), 4);
    if (one_in(4)) object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, handle(kSrq));
    in_memory(UVERBS_ATTR_UHW_IN, request);
    out(UVERBS_ATTR_UHW_OUT, room(), sizeof(keyhole_create_qp_resp));
    call_for(kQp, UVERBS_ATTR_CREATE_QP_HANDLE);
  }

  void modify_qp() {
    // The next state of one that is new, most often, so that some get to RTS.
    constexpr uint32_t kState = 1, kAccess = 8, kPkey = 16, kPort = 32, kQkey = 64, kAv = 128,
                       kMtu = 256, kTimeout = 512, kRetry = 1024, kRnr = 2048, kRqPsn = 4096,
                       kRd = 8192, kRnrTimer = 32768, kSqPsn = 65536, kDestRd = 131072,
                       kDest = 1048576;
    const uint32_t masks[] = {kState | kPkey | kPort | kAccess,
                              kState | kPkey | kPort | kQkey,
                              kState | kAv | kMtu | kDest | kRqPsn | kDestRd | kRnrTimer,
                              kState | kAv | kMtu | kDest | kRqPsn,
                              kState,
                              kState | kTimeout | kRetry | kRnr | kSqPsn | kRd,
                              kState | kSqPsn,
                              static_cast<uint32_t>(random_())};
    const uint8_t states[] = {
        1, 1, 2, 2, static_cast<uint8_t>(pick(8)), 3, 3, static_cast<uint8_t>(pick(9))};
    const uint32_t which = pick(std::size(masks));
    ib_uverbs_modify_qp core{};
    core.qp_handle = handle(kQp);
    core.attr_mask = masks[which];
    core.qp_state = states[which];
    core.port_num = 1;
    core.path_mtu = 3;
    core.dest_qp_num = pick(64);
    core.qp_access_flags = pick(16);
    core.timeout = 14;
    core.retry_cnt = core.rnr_retry = 7;
    core.max_rd_atomic = core.max_dest_rd_atomic = 1;
    core.dest = {};
    core.dest.dgid[10] = core.dest.dgid[11] = 0xff;
    core.dest.dgid[12] = 192;
    core.dest.dgid[13] = 168;
    core.dest.dgid[14] = 75;
    core.dest.dgid[15] = static_cast<uint8_t>(1 + pick(2));
    core.dest.sgid_index = static_cast<uint8_t>(pick(4));
    core.dest.hop_limit = 64;
    core.dest.is_global = core.dest.port_num = 1;
    command(IB_USER_VERBS_CMD_MODIFY_QP, core, room());
  }

  void query_qp() {
    ib_uverbs_query_qp core{};
    core.qp_handle = handle(kQp);
    core.attr_mask = 1;
    command(IB_USER_VERBS_CMD_QUERY_QP, core, room(), None{}, sizeof(ib_uverbs_query_qp_resp));
  }

  void group() {
    ib_uverbs_attach_mcast core{};
    core.gid[0] = 0xff;
    core.gid[1] = 0x0e;
    core.gid[15] = static_cast<uint8_t>(pick(4));
    core.qp_handle = handle(kQp);
    command(one_in(2) ? IB_USER_VERBS_CMD_ATTACH_MCAST : IB_USER_VERBS_CMD_DETACH_MCAST, core,
            room());
  }

  void create_srq() {
    ib_uverbs_create_srq core{};
    core.pd_handle = handle(kPd);
    core.max_wr = 16;
    core.max_sge = 2;
    keyhole_create_srq_req request{};
    request.buf_addr = memory(2);
    request.buf_len = 2 * kPage;
    request.db_offset = kPage;
    request.log_size = 4;
    request.log_stride = 6;
    command_for(kSrq, IB_USER_VERBS_CMD_CREATE_SRQ, core, request);
  }

  void change_srq() {
    if (one_in(3)) {
      ib_uverbs_query_srq core{};
      core.srq_handle = handle(kSrq);
      command(IB_USER_VERBS_CMD_QUERY_SRQ, core, room());
      return;
    }
    ib_uverbs_modify_srq core{};
    core.srq_handle = handle(kSrq);
    core.attr_mask = 1 + pick(3);
    core.max_wr = 1 + pick(64);
    core.srq_limit = pick(20);
    keyhole_modify_srq_req request{};
    request.buf_addr = memory(2);
    request.buf_len = 2 * kPage;
    request.db_offset = kPage;
    request.log_size = static_cast<uint8_t>(4 + pick(3));
    if (core.attr_mask & 1)
      command(IB_USER_VERBS_CMD_MODIFY_SRQ, core, room(), request);
    else
      command(IB_USER_VERBS_CMD_MODIFY_SRQ, core, room());
  }

  void reg_mr() {
    const uint32_t pages = 1 + pick(60);
    ib_uverbs_reg_mr core{};
    core.start = core.hca_va = memory(pages) + (one_in(2) ? pick(kPage) : 0);
    core.length = one_in(4) ? 1 + pick(100) : pages * kPage;
    core.pd_handle = handle(kPd);
    core.access_flags = one_in(2) ? 7 : pick(128);
    command_for(kMr, IB_USER_VERBS_CMD_REG_MR, core);
  }

  void rereg_mr() {
    ib_uverbs_rereg_mr core{};
    core.mr_handle = handle(kMr);
    core.flags = one_in(8) ? pick(16) : 1 + pick(7);
    core.start = core.hca_va = memory(16);
    core.length = (1 + pick(16)) * kPage;
    core.pd_handle = handle(kPd);
    core.access_flags = one_in(2) ? 1 : pick(128);
    command(IB_USER_VERBS_CMD_REREG_MR, core, room());
  }

  void alloc_mw() {
    ib_uverbs_alloc_mw core{};
    core.pd_handle = handle(kPd);
    core.mw_type = static_cast<uint8_t>(1 + pick(2));
    command_for(kMw, IB_USER_VERBS_CMD_ALLOC_MW, core);
  }

  void create_ah() {
    ib_uverbs_create_ah core{};
    core.pd_handle = handle(kPd);
    auto& grh = core.attr.grh;
    if (one_in(2)) {  // a group: nobody need answer for its MAC
      grh.dgid[0] = 0xff;
      grh.dgid[1] = 0x0e;
      grh.dgid[15] = 1;
    } else {
      grh.dgid[10] = grh.dgid[11] = 0xff;
      grh.dgid[12] = 192;
      grh.dgid[13] = 168;
      grh.dgid[14] = 75;
      grh.dgid[15] = 1;
    }
    grh.sgid_index = static_cast<uint8_t>(pick(4));
    grh.hop_limit = 64;
    core.attr.is_global = core.attr.port_num = 1;
    command_for(kAh, IB_USER_VERBS_CMD_CREATE_AH, core);
  }

  void channel() {
    if (!one_in(4)) return;
    ib_uverbs_create_comp_channel core{};
    uint8_t* answer = room();
    if (command(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, core, answer)) return;
    uint32_t fd;
    std::memcpy(&fd, answer, 4);
    if (fd < 3 || fd > 200) return;  // answers may go anywhere: only what can be one of these
    remember(kChannel, fd);
    if (one_in(2) && fd != static_cast<uint32_t>(d_.fd)) channels_.push_back(static_cast<int>(fd));
  }

  void create_mkey() {
    if (one_in(4)) {
      begin(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_QUERY);
      object(KEYHOLE_ATTR_MKEY_QUERY_HANDLE, handle(kMkey));
      out(KEYHOLE_ATTR_MKEY_QUERY_RESP, room(), sizeof(keyhole_mkey_attr));
      call();
      return;
    }
    begin(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_CREATE);
    object(KEYHOLE_ATTR_MKEY_CREATE_HANDLE);
    object(KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE, handle(kPd));
    in<uint32_t>(KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES, 1 + pick(32));
    in<uint32_t>(KEYHOLE_ATTR_MKEY_CREATE_ACCESS, one_in(2) ? 16 : 0);
    out(KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY, room(), 4);
    call_for(kMkey, KEYHOLE_ATTR_MKEY_CREATE_HANDLE);
  }

  void create_list() {
    if (one_in(4)) {
      begin(KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_QUERY);
      object(KEYHOLE_ATTR_KLM_LIST_QUERY_HANDLE, handle(kList));
      out(KEYHOLE_ATTR_KLM_LIST_QUERY_RESP, room(), sizeof(keyhole_klm_list_attr));
      call();
      return;
    }
    begin(KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_CREATE);
    object(KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE);
    object(KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE, handle(kPd));
    in<uint64_t>(KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR, memory(4) + pick(64) * 8);
    in<uint64_t>(KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH, 8 * (1 + pick(1500)));
    out(KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY, room(), 4);
    call_for(kList, KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE);
  }

  void map_page() {
    const int protections[] = {PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE, PROT_NONE,
                               PROT_READ | PROT_EXEC};
    const uint64_t offset = one_in(6) ? wild() & ~(kPage - 1) : d_.pages[pick(3)].load();
    const size_t bytes = one_in(6) ? kPage * (1 + pick(3)) : kPage;
    void* page = mmap(nullptr, bytes, protections[pick(5)], one_in(8) ? MAP_PRIVATE : MAP_SHARED,
                      d_.fd, static_cast<off_t>(offset));
    if (page == MAP_FAILED) return;
    ++mapped;
    if (one_in(3)) mprotect(page, bytes, protections[pick(5)]);
    // Some mappings are left when the descriptor is closed.
    if (one_in(2))
      munmap(page, bytes);
    else
      mappings_.push_back({page, bytes});
  }

  void query() {
    switch (pick(4)) {
      case 0:
        begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
        in<uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, sizeof(ib_uverbs_gid_entry));
        in<uint32_t>(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0);
        out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, room(), 64 * sizeof(ib_uverbs_gid_entry));
        out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, room(), 8);
        call();
        return;
      case 1:
        begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
        in<uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1);
        out(UVERBS_ATTR_QUERY_PORT_RESP, room(), sizeof(ib_uverbs_query_port_resp_ex));
        call();
        return;
      case 2:
        begin(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
        object(UVERBS_ATTR_QUERY_MR_HANDLE, handle(kMr));
        out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, room(), 4);
        out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, room(), 4);
        out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, room(), 8);
        call();
        return;
      default: {
        ib_uverbs_ex_query_device core{};
        command(IB_USER_VERBS_EX_CMD_QUERY_DEVICE | IB_USER_VERBS_CMD_FLAG_EXTENDED, core, room(),
                None{}, sizeof(ib_uverbs_ex_query_device_resp));
      }
    }
  }

  // Memory that is registered goes away under it.
  void shuffle_memory() { madvise(reinterpret_cast<void*>(memory(20)), 20 * kPage, MADV_DONTNEED); }

  void destroy() {
    const struct {
      Kind kind;
      uint16_t object, method, attribute;
      uint32_t command;
    } rows[] = {
        {kPd, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE,
         IB_USER_VERBS_CMD_DEALLOC_PD},
        {kCq, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, UVERBS_ATTR_DESTROY_CQ_HANDLE,
         IB_USER_VERBS_CMD_DESTROY_CQ},
        {kQp, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, UVERBS_ATTR_DESTROY_QP_HANDLE,
         IB_USER_VERBS_CMD_DESTROY_QP},
        {kSrq, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, UVERBS_ATTR_DESTROY_SRQ_HANDLE,
         IB_USER_VERBS_CMD_DESTROY_SRQ},
        {kMr, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_ATTR_DESTROY_MR_HANDLE,
         IB_USER_VERBS_CMD_DEREG_MR},
        {kMw, UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE,
         IB_USER_VERBS_CMD_DEALLOC_MW},
        {kAh, UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE,
         IB_USER_VERBS_CMD_DESTROY_AH},
        {kMkey, KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_DESTROY, KEYHOLE_ATTR_MKEY_DESTROY_HANDLE,
         0},
        {kList, KEYHOLE_OBJECT_KLM_LIST, KEYHOLE_METHOD_KLM_LIST_DESTROY,
         KEYHOLE_ATTR_KLM_LIST_DESTROY_HANDLE, 0},
    };
    const auto& row = rows[pick(std::size(rows))];
    // A handle of another kind, too: the numbers are all from one table.
    const uint32_t what = handle(one_in(10) ? static_cast<Kind>(pick(kChannel)) : row.kind);
    int error;
    if (row.command && one_in(2)) {
      ib_uverbs_destroy_qp core{};  // the longest; the others have the handle in the same place
      core.qp_handle = what;
      error = command(row.command, core, room());
    } else {
      begin(row.object, row.method);
      object(row.attribute, what);
      if (row.kind == kCq)
        out(UVERBS_ATTR_DESTROY_CQ_RESP, room(), sizeof(ib_uverbs_destroy_cq_resp));
      if (row.kind == kQp)
        out(UVERBS_ATTR_DESTROY_QP_RESP, room(), sizeof(ib_uverbs_destroy_qp_resp));
      if (row.kind == kSrq)
        out(UVERBS_ATTR_DESTROY_SRQ_RESP, room(), sizeof(ib_uverbs_destroy_srq_resp));
      error = call();
    }
    unmade[row.kind] += error == 0;
  }

  Descriptor& d_;
  std::mt19937_64 random_;
  uint8_t* arena_;
  uint16_t object_ = 0, method_ = 0;
  std::vector<ib_uverbs_attr> attributes_;
  bool hostile_ = false;  // this call may be spoilt
  int started_ = 0;

 public:
  struct Mapping {
    void* at;
    size_t bytes;
  };
  std::vector<Mapping> mappings_;
  std::vector<int> channels_;
};

std::string uverbs_of(const std::string& device) {
  const std::string folder = "/sys/class/infiniband/" + device + "/device/infiniband_verbs";
  std::string name;
  if (DIR* d = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(d))
      if (entry->d_name[0] != '.') name = entry->d_name;
    closedir(d);
  }
  return "/dev/infiniband/" + name;
}

uint8_t* new_arena() {
  void* memory = mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::exit(2);
  return static_cast<uint8_t*>(memory);
}

void episode(const std::string& path, std::mt19937_64& random, uint8_t* const arenas[2]) {
  Descriptor one(path), other(path);
  if (one.fd < 0 || other.fd < 0) {
    std::perror(path.c_str());
    std::exit(2);
  }
  const bool shared = random() & 1;
  Process first(one, random(), arenas[0]), second(shared ? one : other, random(), arenas[1]);
  first.get_context();
  if (!shared) second.get_context();
  const auto run = [](Process& process) {
    for (int i = 0; i < kCalls; ++i)
      process.anything();
  };
  std::thread thread(run, std::ref(second));
  run(first);
  thread.join();
  for (Process* process : {&first, &second}) {
    for (const auto& mapping : process->mappings_)
      munmap(mapping.at, mapping.bytes);
    for (const int fd : process->channels_)
      close(fd);
  }
  // Channels that were not closed, and descriptors that a spoilt call made without our knowing.
  close_range(static_cast<unsigned>(std::max(one.fd, other.fd)) + 1, ~0u, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: random_uverbs DEVICE SECONDS SEED\n");
    return 2;
  }
  const std::string path = uverbs_of(argv[1]);
  std::mt19937_64 random(std::strtoull(argv[3], nullptr, 0));
  uint8_t* const arenas[] = {new_arena(), new_arena()};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[2]));
  int episodes = 0;
  for (; std::chrono::steady_clock::now() < end; ++episodes)
    episode(path, random, arenas);

  std::printf("seed %s: %d episodes, %lu calls, %lu succeeded, %lu pages mapped\n", argv[3],
              episodes, calls.load(), succeeded.load(), mapped.load());
  int never = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    std::printf("%-8s %lu made, %lu unmade\n", kNames[kind], made[kind].load(),
                unmade[kind].load());
    never += !made[kind] || (kind != kChannel && !unmade[kind]);
  }
  if (never)
    std::printf("WRONG  %d kinds were never made or never unmade: nothing deep was reached\n",
                never);
  return never || !mapped;
}
