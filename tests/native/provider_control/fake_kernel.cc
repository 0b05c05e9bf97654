// SPDX-License-Identifier: BSD-2-Clause

#include "fake_kernel.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "cmd.h"
#include "entry.h"

namespace keyhole::test {

FakeKernel kernel;

namespace {
int allocations_left = -1;
bool failed = false;

bool refuse_allocation() {
  if (allocations_left < 0) return false;
  if (allocations_left-- > 0) return false;
  failed = true;
  return true;
}
}  // namespace

void fail_allocation(int skip) {
  allocations_left = skip;
  failed = false;
}
bool allocation_failed() { return failed; }

namespace {
const verbs_device_ops our_ops{}, other_ops{};
verbs_device our_device{}, other_device{};
}  // namespace

Device::Device(bool ours) {
  our_device.ops = &our_ops;
  other_device.ops = &other_ops;
  const int fd = memfd_create("device", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 3 * KH_PAGE_SIZE)) throw std::runtime_error("memfd");
  verbs_context* core = kh_alloc_context(&(ours ? our_device : other_device).device, fd, nullptr);
  if (!core) throw std::runtime_error(std::strerror(errno));
  context_ = &core->context;
}

Device::~Device() { kh_free_context(context_); }

}  // namespace keyhole::test

using keyhole::test::kernel;

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return keyhole::test::refuse_allocation() ? nullptr : std::malloc(size);
}
void* operator new(size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  if (keyhole::test::refuse_allocation()) return nullptr;
  const auto a = static_cast<size_t>(align);
  return std::aligned_alloc(a, (size + a - 1) & ~(a - 1));
}
void* operator new(size_t size) {
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t align) {
  const auto a = static_cast<size_t>(align);
  if (void* memory = std::aligned_alloc(a, (size + a - 1) & ~(a - 1))) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

// 0, or the errno value that the test asked this command to fail with.
int begin(const char* command) {
  auto it = kernel.failures.find(command);
  if (it == kernel.failures.end()) return 0;
  const int err = it->second;
  kernel.failures.erase(it);
  return err;
}

int create(const char* command, const char* kind) {
  if (int err = begin(command)) return err;
  kernel.live[kind]++;
  return 0;
}

int destroy(const char* command, const char* kind) {
  if (int err = begin(command)) return err;
  kernel.live[kind]--;
  return 0;
}

}  // namespace

extern "C" {

void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, size_t size, verbs_context*,
                                    uint32_t) {
  if (begin("init_context")) {
    close(cmd_fd);
    errno = ENOMEM;
    return nullptr;
  }
  auto* context = static_cast<verbs_context*>(std::calloc(1, size));
  context->context.device = device;
  context->context.cmd_fd = cmd_fd;
  kernel.live["context"]++;
  return context;
}

void verbs_uninit_context(verbs_context* context) {
  close(context->context.cmd_fd);
  kernel.live["context"]--;
}

bool kh_serves(const ibv_device* device) {
  return device == &keyhole::test::our_device.device;
}

void verbs_set_ops(verbs_context*, const verbs_context_ops*) {}
void __verbs_log(verbs_context*, uint32_t, const char*, ...) {}

int ibv_dontfork_range(void*, size_t) {
  if (int err = begin("dontfork")) return err;
  kernel.dontfork_ranges++;
  return 0;
}
int ibv_dofork_range(void*, size_t) {
  kernel.dontfork_ranges--;
  return 0;
}

int kh_cmd_get_context(verbs_context*, keyhole_alloc_ucontext_resp* out) {
  if (int err = begin("get_context")) return err;
  *out = {};
  out->db_mmap = 0;
  out->status_mmap = KH_PAGE_SIZE;
  out->wake_mmap = begin("bad_mmap") ? 1 : 2 * KH_PAGE_SIZE;
  out->hw_version = kernel.hw_version;
  out->max_send_sge = KH_MAX_SGE;
  out->max_recv_sge = KH_MAX_SGE;
  out->max_inline = KH_MAX_INLINE;
  out->max_send_blocks = 1 << 16;
  out->max_recv_wr = 1 << 15;
  out->clock_khz = 1000000;
  out->caps = kernel.caps;
  out->max_indirect = kernel.max_indirect;
  out->max_klm_list = kernel.max_klm_list;
  out->max_inline_entries = kernel.max_inline_entries;
  out->max_depth = KH_MAX_DEPTH;
  return 0;
}

int kh_cmd_query_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr,
                        size_t size, uint64_t* fw, keyhole_query_device_resp* out) {
  if (int err = begin("query_device")) return err;
  std::memset(attr, 0, size);
  *fw = uint64_t{1} << 32 | 2 << 16 | 3;
  *out = {};
  out->clock = kernel.clock;
  out->clock_khz = kernel.clock_khz;
  return 0;
}
int kh_cmd_query_port(ibv_context*, uint8_t, ibv_port_attr*) { return begin("query_port"); }

int kh_cmd_alloc_pd(ibv_context* context, ibv_pd* pd, uint32_t* pdn) {
  pd->context = context;
  pd->handle = 5;
  *pdn = 1;
  return create("alloc_pd", "pd");
}
int ibv_cmd_dealloc_pd(ibv_pd*) { return destroy("dealloc_pd", "pd"); }

int kh_cmd_reg_mr(ibv_pd*, void*, size_t, uint64_t, int access, verbs_mr* mr) {
  mr->access = access;
  mr->ibv_mr.lkey = mr->ibv_mr.rkey = 0x100;
  return create("reg_mr", "mr");
}
int kh_cmd_rereg_mr(verbs_mr* mr, uint32_t, ibv_pd*, void*, size_t, int) {
  if (int err = begin("rereg_mr")) return err;
  mr->ibv_mr.lkey = mr->ibv_mr.rkey = mr->ibv_mr.lkey + 1;
  return 0;
}
int ibv_cmd_dereg_mr(verbs_mr*) { return destroy("dereg_mr", "mr"); }

int kh_cmd_alloc_mw(ibv_pd*, ibv_mw_type, ibv_mw*) { return create("alloc_mw", "mw"); }
int ibv_cmd_dealloc_mw(ibv_mw*) { return destroy("dealloc_mw", "mw"); }

int kh_cmd_create_mkey(ibv_pd* pd, uint32_t max_entries, uint32_t access, uint32_t* handle,
                       uint32_t* key) {
  kernel.mkey_pd = pd->handle;
  kernel.mkey_entries = max_entries;
  kernel.mkey_access = access;
  *handle = 41;
  *key = 0x12300;
  return create("create_mkey", "mkey");
}
int kh_cmd_query_mkey(ibv_context*, uint32_t handle, keyhole_mkey_attr* attr) {
  kernel.mkey_handle = handle;
  *attr = kernel.mkey_attr;
  return begin("query_mkey");
}
int kh_cmd_destroy_mkey(ibv_context*, uint32_t handle) {
  kernel.mkey_handle = handle;
  return destroy("destroy_mkey", "mkey");
}
int kh_cmd_create_klm_list(ibv_pd*, void* addr, uint64_t length, uint32_t* handle, uint32_t* key) {
  kernel.list_addr = reinterpret_cast<uintptr_t>(addr);
  kernel.list_length = length;
  *handle = 42;
  *key = 0x45600;
  return create("create_klm_list", "klm_list");
}
int kh_cmd_destroy_klm_list(ibv_context*, uint32_t handle) {
  kernel.list_handle = handle;
  return destroy("destroy_klm_list", "klm_list");
}

int kh_cmd_create_ah(ibv_pd*, ibv_ah*, ibv_ah_attr*, void* av) {
  std::memset(av, 0xab, sizeof(kh_av));
  return create("create_ah", "ah");
}
int ibv_cmd_destroy_ah(ibv_ah*) { return destroy("destroy_ah", "ah"); }

int kh_cmd_create_cq(ibv_context* context, const ibv_cq_init_attr_ex* attr, verbs_cq* cq,
                     const keyhole_create_cq_req* req, uint32_t* cqn) {
  kernel.cq = *req;
  kernel.cqe = static_cast<int>(attr->cqe);
  cq->cq.context = context;
  *cqn = 3;
  return create("create_cq", "cq");
}
int kh_cmd_resize_cq(ibv_cq*, int cqe, const keyhole_resize_cq_req* req) {
  kernel.resize = *req;
  kernel.cqe = cqe;
  return begin("resize_cq");
}
int kh_cmd_modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return begin("modify_cq"); }
int ibv_cmd_destroy_cq(ibv_cq*) { return destroy("destroy_cq", "cq"); }

int kh_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr* attr,
                      const keyhole_create_srq_req* req, uint32_t* srqn) {
  kernel.srq = *req;
  kernel.srq_attr = attr->attr;
  srq->context = pd->context;
  *srqn = 9;
  return create("create_srq", "srq");
}
int kh_cmd_modify_srq(ibv_srq*, ibv_srq_attr* attr, int) {
  kernel.srq_attr.srq_limit = attr->srq_limit;
  return begin("modify_srq");
}
int kh_cmd_resize_srq(ibv_srq*, uint32_t max_wr, const keyhole_modify_srq_req* req) {
  kernel.srq_resize = *req;
  kernel.srq_attr.max_wr = max_wr;
  return begin("resize_srq");
}
int kh_cmd_query_srq(ibv_srq*, ibv_srq_attr* attr) {
  attr->srq_limit = kernel.srq_attr.srq_limit;
  return begin("query_srq");
}
int ibv_cmd_destroy_srq(ibv_srq*) { return destroy("destroy_srq", "srq"); }

// As libibverbs: the extended object's mask is cleared, the QP starts in RESET.
int kh_cmd_create_qp(ibv_context* context, verbs_qp* qp, ibv_qp_init_attr_ex* attr,
                     const keyhole_create_qp_req* req, uint16_t* db_slot) {
  kernel.qp = *req;
  kernel.qp_cap = attr->cap;
  if (int err = create("create_qp", "qp")) return err;
  qp->qp.context = context;
  qp->qp.qp_num = kernel.next_qpn++;
  qp->qp.qp_type = attr->qp_type;
  qp->comp_mask = 0;
  *db_slot = kernel.db_slot;
  return 0;
}
int kh_cmd_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return begin("modify_qp"); }
int kh_cmd_query_qp(ibv_qp*, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  *attr = {};
  *init = {};
  return begin("query_qp");
}
int ibv_cmd_destroy_qp(ibv_qp*) { return destroy("destroy_qp", "qp"); }

int ibv_cmd_attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return 0; }
int ibv_cmd_detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) { return 0; }
}
