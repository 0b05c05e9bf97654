// SPDX-License-Identifier: BSD-2-Clause
//
// What a process may send to the kernel driver and no provider would: queues that do not fit their memory,
// pages that are not its own, regions out of range, and each time the errno that it must get.
//
//   bad_commands DEVICE
//
// The commands are written to the device file as they are. What was made on the way is left for the kernel to
// clean up when the process ends.

#include <rdma/ib_user_verbs.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernel_version.h"
#include "uapi/keyhole_hw.h"
#include "uapi/rdma/keyhole-abi.h"

namespace {

int fd;
int failures = 0;
int checks = 0;

void want(int wanted, int got, const std::string& what) {
  ++checks;
  failures += got != wanted;
  std::printf("%-6s %s: %s", got == wanted ? "ok" : "WRONG", what.c_str(), wanted ? strerrorname_np(wanted) : "no error");
  if (got != wanted) std::printf(", not %s", got ? strerrorname_np(got) : "no error");
  std::printf("\n");
}

// Room for any answer: the core's part, then the driver's.
struct Answer {
  alignas(8) uint8_t bytes[256] = {};
  template <typename T>
  T get(size_t offset = 0) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof(value));
    return value;
  }
};

struct None {};

// Every command's first field is where its answer goes.
template <typename Core, typename Driver = None>
int send(uint32_t command, const Core& core, Answer& answer, const Driver& driver = {}, size_t driver_bytes = sizeof(Driver)) {
  alignas(8) uint8_t buffer[1024] = {};
  if constexpr (std::is_same_v<Driver, None>) driver_bytes = 0;
  ib_uverbs_cmd_hdr header{};
  header.command = command;
  header.in_words = static_cast<uint16_t>((sizeof(header) + sizeof(core) + driver_bytes) / 4);
  header.out_words = sizeof(answer.bytes) / 4;
  uint8_t* to = buffer + sizeof(header);
  std::memcpy(buffer, &header, sizeof(header));
  std::memcpy(to, &core, sizeof(core));
  const uint64_t where = reinterpret_cast<uint64_t>(answer.bytes);
  std::memcpy(to, &where, sizeof(where));
  std::memcpy(to + sizeof(core), &driver, std::min(sizeof(driver), driver_bytes));
  return write(fd, buffer, header.in_words * 4) < 0 ? errno : 0;
}

uint32_t new_pd() {
  Answer answer;
  errno = send(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, answer);
  if (errno) {
    std::perror("ALLOC_PD");
    std::exit(2);
  }
  return answer.get<ib_uverbs_alloc_pd_resp>().pd_handle;
}

uint8_t* map(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::exit(2);
  return static_cast<uint8_t*>(memory);
}

int map_device(int protection, int flags, uint64_t offset, size_t bytes, void** memory = nullptr) {
  void* mapped = mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (memory) *memory = mapped;
  return mapped == MAP_FAILED ? errno : 0;
}

void pages(const keyhole_alloc_ucontext_resp& context) {
  void *status, *doorbells, *wake;
  want(EPERM, map_device(PROT_READ | PROT_WRITE, MAP_SHARED, context.status_mmap, 4096), "status page, writable");
  want(EINVAL, map_device(PROT_READ, MAP_PRIVATE, context.status_mmap, 4096), "status page, private");
  want(EINVAL, map_device(PROT_READ, MAP_SHARED, context.status_mmap, 8192), "status page and its neighbour");
  want(EINVAL, map_device(PROT_READ, MAP_SHARED, context.wake_mmap + 4096, 4096), "a page that was not given");
  want(0, map_device(PROT_READ, MAP_SHARED, context.status_mmap, 4096, &status), "status page, as it should be");
  want(EACCES, mprotect(status, 4096, PROT_READ | PROT_WRITE) ? errno : 0, "status page, made writable later");
  want(0, map_device(PROT_READ | PROT_WRITE, MAP_SHARED, context.db_mmap, 4096, &doorbells), "doorbell page");
  want(0, map_device(PROT_READ | PROT_WRITE, MAP_SHARED, context.wake_mmap, 4096, &wake), "wake page");
  std::memset(doorbells, 1, 4096);  // every mark there is, and no queue behind any
  *static_cast<volatile uint32_t*>(wake) = 1;
  (void)*static_cast<volatile uint32_t*>(wake);
}

uint32_t completion_queues(uint64_t memory) {
  keyhole_create_cq_req good{};
  good.buf_addr = memory;
  good.buf_len = 8192;
  good.db_offset = 4096;
  good.log_size = 6;
  uint32_t handle = 0;
  const auto create = [&handle](const keyhole_create_cq_req& request, uint32_t cqe = 64,
                                size_t bytes = sizeof(keyhole_create_cq_req)) {
    ib_uverbs_create_cq core{};
    core.cqe = cqe;
    core.comp_channel = -1;
    Answer answer;
    const int error = send(IB_USER_VERBS_CMD_CREATE_CQ, core, answer, request, bytes);
    if (!error) handle = answer.get<ib_uverbs_create_cq_resp>().cq_handle;
    return error;
  };
  struct {
    const char* what;
    int wanted;
    void (*spoil)(keyhole_create_cq_req&);
  } const rows[] = {
      {"unaligned", EINVAL, [](auto& r) { r.buf_addr += 64; }},
      {"of half a page", EINVAL, [](auto& r) { r.buf_len = 8191; }},
      {"of no bytes", EINVAL, [](auto& r) { r.buf_len = 0; }},
      {"of 4 GiB", EINVAL, [](auto& r) { r.buf_len = 0xfffff000; }},
      {"of 2^23 entries", EINVAL, [](auto& r) { r.log_size = 23; }},
      {"of 2^255 entries", EINVAL, [](auto& r) { r.log_size = 255; }},
      {"of one entry", EINVAL, [](auto& r) { r.log_size = 0; }},
      {"of fewer entries than asked for", EINVAL, [](auto& r) { r.log_size = 5; }},
      {"its ring unaligned", EINVAL, [](auto& r) { r.ring_offset = 4097; }},
      {"its ring behind the buffer", EINVAL, [](auto& r) { r.ring_offset = 8192; }},
      {"its ring wraps", EINVAL, [](auto& r) { r.ring_offset = 0xffffffc0; }},
      {"its record behind the buffer", EINVAL, [](auto& r) { r.db_offset = 8192; }},
      {"its record unaligned", EINVAL, [](auto& r) { r.db_offset = 4100; }},
      {"its record wraps", EINVAL, [](auto& r) { r.db_offset = 0xffffffc0; }},
      {"unknown flags", EOPNOTSUPP, [](auto& r) { r.flags = 4; }},
      {"reserved field", EOPNOTSUPP, [](auto& r) { r.reserved = 1; }},
      {"where nothing is mapped", EFAULT, [](auto& r) { r.buf_addr = 0x1000; }},
      {"in the kernel", EFAULT, [](auto& r) { r.buf_addr = 0xffff888000000000; }},
  };
  for (const auto& row : rows) {
    keyhole_create_cq_req bad = good;
    row.spoil(bad);
    want(row.wanted, create(bad), std::string("CQ ") + row.what);
  }
  want(EINVAL, create(good, 64, sizeof(good) - 8), "CQ with a short request");
  want(EINVAL, create(good, 0), "CQ for no entry");
  want(EINVAL, create(good, UINT32_MAX), "CQ for 2^32 - 1 entries");
  want(0, create(good, 64, sizeof(good) + 16), "CQ with a longer request that ends in zeroes");
  return handle;
}

void queue_pairs(uint64_t memory, uint32_t pd, uint32_t cq) {
  ib_uverbs_create_qp core{};
  core.pd_handle = pd;
  core.send_cq_handle = core.recv_cq_handle = cq;
  core.max_send_wr = core.max_recv_wr = 16;
  core.max_send_sge = core.max_recv_sge = 2;
  core.max_inline_data = 32;
  core.qp_type = 2;  // RC
  keyhole_create_qp_req good{};
  good.buf_addr = memory;
  good.buf_len = 8192;
  good.rq_offset = 2048;
  good.db_offset = 4096;
  good.log_sq_blocks = 5;
  good.log_rq_size = 4;
  good.log_rq_stride = 6;
  good.has_sq = good.has_rq = 1;
  const auto create = [](const ib_uverbs_create_qp& c, const keyhole_create_qp_req& r) {
    Answer answer;
    return send(IB_USER_VERBS_CMD_CREATE_QP, c, answer, r);
  };
  struct {
    const char* what;
    int wanted;
    void (*spoil)(ib_uverbs_create_qp&, keyhole_create_qp_req&);
  } const rows[] = {
      {"as it should be", 0, [](auto&, auto&) {}},
      {"of type GSI", EINVAL, [](auto& c, auto&) { c.qp_type = 1; }},
      {"of type RD", EINVAL, [](auto& c, auto&) { c.qp_type = 5; }},
      {"of type raw packet", EOPNOTSUPP, [](auto& c, auto&) { c.qp_type = 8; }},
      {"for 2^32 - 1 sends", EINVAL, [](auto& c, auto&) { c.max_send_wr = UINT32_MAX; }},
      {"for 33 send SGEs", EINVAL, [](auto& c, auto&) { c.max_send_sge = 33; }},
      {"for 33 receive SGEs", EINVAL, [](auto& c, auto&) { c.max_recv_sge = 33; }},
      {"for 1 KiB + 1 inline", EINVAL, [](auto& c, auto&) { c.max_inline_data = 1025; }},
      {"for more sends than blocks", EINVAL, [](auto& c, auto&) { c.max_send_wr = 33; }},
      {"for more SGEs than the stride holds", EINVAL, [](auto& c, auto&) { c.max_recv_sge = 4; }},
      {"for more receives than the ring holds", EINVAL, [](auto& c, auto&) { c.max_recv_wr = 17; }},
      {"its SQ behind the buffer", EINVAL, [](auto&, auto& r) { r.sq_offset = 8192 - 1024; }},
      {"its SQ unaligned", EINVAL, [](auto&, auto& r) { r.sq_offset = 32; }},
      {"its SQ of 2^21 blocks", EINVAL, [](auto&, auto& r) { r.log_sq_blocks = 21; }},
      {"its SQ of 2^255 blocks", EINVAL, [](auto&, auto& r) { r.log_sq_blocks = 255; }},
      {"its RQ behind the buffer", EINVAL, [](auto&, auto& r) { r.rq_offset = 7680; }},
      {"its RQ unaligned", EINVAL, [](auto&, auto& r) { r.rq_offset = 2080; }},
      {"its RQ of 2^16 entries", EINVAL, [](auto&, auto& r) { r.log_rq_size = 16; }},
      {"its RQ of 2^255 entries", EINVAL, [](auto&, auto& r) { r.log_rq_size = 255; }},
      {"a stride of 16 bytes", EINVAL, [](auto&, auto& r) { r.log_rq_stride = 4; }},
      {"a stride of 2 KiB", EINVAL, [](auto&, auto& r) { r.log_rq_stride = 11; }},
      {"a stride of 2^255 bytes", EINVAL, [](auto&, auto& r) { r.log_rq_stride = 255; }},
      {"its record behind the buffer", EINVAL, [](auto&, auto& r) { r.db_offset = 8128; }},
      {"its record wraps", EINVAL, [](auto&, auto& r) { r.db_offset = 0xffffff80; }},
      {"two SQs", EOPNOTSUPP, [](auto&, auto& r) { r.has_sq = 2; }},
      {"sends without an SQ", EINVAL, [](auto&, auto& r) { r.has_sq = 0; }},
      {"receives without an RQ", EINVAL, [](auto&, auto& r) { r.has_rq = 0; }},
      {"reserved field", EOPNOTSUPP, [](auto&, auto& r) { r.reserved[2] = 1; }},
  };
  for (const auto& row : rows) {
    ib_uverbs_create_qp c = core;
    keyhole_create_qp_req r = good;
    row.spoil(c, r);
    want(row.wanted, create(c, r), std::string("QP ") + row.what);
  }
}

// The kernel's core takes two LIDs for two groups; to the device, and to RoCE, it is one.
void groups(uint64_t memory, uint32_t pd, uint32_t cq) {
  ib_uverbs_create_qp core{};
  core.pd_handle = pd;
  core.send_cq_handle = core.recv_cq_handle = cq;
  core.max_send_wr = core.max_send_sge = 1;
  core.qp_type = 4;  // UD
  keyhole_create_qp_req request{};
  request.buf_addr = memory;
  request.buf_len = 8192;
  request.db_offset = 4096;
  request.log_sq_blocks = 5;
  request.has_sq = 1;
  Answer answer;
  want(0, send(IB_USER_VERBS_CMD_CREATE_QP, core, answer, request), "UD QP");
  const uint32_t qp = answer.get<ib_uverbs_create_qp_resp>().qp_handle;
  // These have no answer, so that nothing may be put into their first field.
  const auto group = [qp](uint32_t command, uint16_t lid) {
    struct {
      ib_uverbs_cmd_hdr header;
      ib_uverbs_attach_mcast core;
    } call{};
    call.header.command = command;
    call.header.in_words = sizeof(call) / 4;
    call.core.gid[0] = 0xff;
    call.core.gid[1] = 0x0e;
    call.core.gid[15] = 1;
    call.core.qp_handle = qp;
    call.core.mlid = lid;
    return write(fd, &call, sizeof(call)) < 0 ? errno : 0;
  };
  want(0, group(IB_USER_VERBS_CMD_ATTACH_MCAST, 1), "group by one LID");
  want(0, group(IB_USER_VERBS_CMD_ATTACH_MCAST, 2), "the same group by another LID");
  want(0, group(IB_USER_VERBS_CMD_DETACH_MCAST, 1), "leaving it by the one");
  want(0, group(IB_USER_VERBS_CMD_DETACH_MCAST, 2), "leaving it by the other");
  want(EINVAL, group(IB_USER_VERBS_CMD_DETACH_MCAST, 2), "leaving it once more");
  ib_uverbs_destroy_qp destroy{};
  destroy.qp_handle = qp;
  want(0, send(IB_USER_VERBS_CMD_DESTROY_QP, destroy, answer), "destroying a QP that was in a group twice");
}

int reg(uint32_t pd, uint64_t start, uint64_t length, uint64_t address, uint32_t access, uint32_t* handle = nullptr) {
  ib_uverbs_reg_mr core{};
  core.start = start;
  core.length = length;
  core.hca_va = address;
  core.pd_handle = pd;
  core.access_flags = access;
  Answer answer;
  const int error = send(IB_USER_VERBS_CMD_REG_MR, core, answer);
  if (handle) *handle = answer.get<ib_uverbs_reg_mr_resp>().mr_handle;
  return error;
}

int rereg(uint32_t mr, uint32_t flags, uint64_t start, uint64_t length, uint64_t address, uint32_t access, uint32_t pd) {
  ib_uverbs_rereg_mr core{};
  core.mr_handle = mr;
  core.flags = flags;
  core.start = start;
  core.length = length;
  core.hca_va = address;
  core.access_flags = access;
  core.pd_handle = pd;
  Answer answer;
  return send(IB_USER_VERBS_CMD_REREG_MR, core, answer);
}

void regions(uint64_t a, uint32_t pd, uint32_t other_pd) {
  constexpr uint32_t kWrite = 1, kRemoteWrite = 2, kRemoteRead = 4, kOnDemand = 64;
  constexpr uint64_t kKernel = 0xffff888000000000;
  want(EINVAL, reg(pd, a, 0, a, kWrite), "region of no bytes");
  want(EINVAL, reg(pd, a, -4096ull, a, kWrite), "region whose memory wraps");
  want(EINVAL, reg(pd, a, 8192, -4096ull, kWrite), "region whose addresses wrap");
  want(EINVAL, reg(pd, a, 4096, a + 1, kWrite), "region whose offsets in a page differ");
  want(EINVAL, reg(pd, a, 4096, a, kRemoteWrite), "region for remote write alone");
  const int not_on_demand = kernel_is_before(6, 2) ? EINVAL : EOPNOTSUPP;  // the core refuses it
  want(not_on_demand, reg(pd, a, 4096, a, kWrite | kOnDemand), "region on demand");
  want(EINVAL, reg(pd, a, 4096, a, kWrite | 1 << 12), "region with an unknown right");
  want(EFAULT, reg(pd, 0x1000, 4096, 0x1000, kWrite), "region where nothing is mapped");
  want(EFAULT, reg(pd, kKernel, 4096, kKernel, kWrite), "region in the kernel");

  uint32_t mr = 0;
  want(0, reg(pd, a, 65536, a, kWrite | kRemoteWrite | kRemoteRead, &mr), "region as it should be");
  want(EINVAL, rereg(mr, 0, 0, 0, 0, 0, 0), "change of nothing");
  want(EINVAL, rereg(mr, 4, 0, 0, 0, kRemoteWrite, 0), "change to remote write alone");
  want(not_on_demand, rereg(mr, 4, 0, 0, 0, kWrite | kOnDemand, 0), "change to on demand");
  want(0, rereg(mr, 2, 0, 0, 0, 0, other_pd), "change to another PD");
  want(EINVAL, rereg(mr, 1, a, 0, a, 0, 0), "change to no bytes");
  want(EFAULT, rereg(mr, 1, 0x1000, 4096, 0x1000, 0, 0), "change to where nothing is mapped");
  want(0, rereg(mr, 1, a + 65536, 4096, a + 65536, 0, 0), "change to other memory");

  const uint64_t read_only = reinterpret_cast<uint64_t>(map(8192, PROT_READ));
  uint32_t shared = 0;
  want(EFAULT, reg(pd, read_only, 8192, read_only, kWrite), "region for writing in memory for reading");
  want(0, reg(pd, read_only, 8192, read_only, kRemoteRead, &shared), "region for reading there");
  want(EFAULT, rereg(shared, 4, 0, 0, 0, kWrite, 0), "change to writing there");
}

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bad_commands DEVICE\n");
    return 2;
  }
  const std::string path = uverbs_of(argv[1]);
  fd = open(path.c_str(), O_RDWR);
  if (fd < 0) {
    std::perror(path.c_str());
    return 2;
  }
  Answer answer;
  want(0, send(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, answer), "context");
  pages(answer.get<keyhole_alloc_ucontext_resp>(sizeof(ib_uverbs_get_context_resp)));
  const uint32_t pd = new_pd(), other_pd = new_pd();
  const uint64_t memory = reinterpret_cast<uint64_t>(map(1 << 22));
  const uint32_t cq = completion_queues(memory);
  queue_pairs(memory + 16384, pd, cq);
  groups(memory + 65536, pd, cq);
  regions(memory + (1 << 20), pd, other_pd);
  std::printf("%d checks, %d wrong\n", checks, failures);
  return failures ? 1 : 0;
}
