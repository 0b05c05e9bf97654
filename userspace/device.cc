// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Opening and closing the device, and asking it about itself.

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cmd.h"
#include "context.h"
#include "control.h"
#include "entry.h"
#include "fast_path/dv.h"
#include "fast_path/fast_path.h"

namespace keyhole {
namespace {

// verbs_set_ops() copies what is set; what is not answers EOPNOTSUPP.
constexpr verbs_context_ops make_ops() {
  verbs_context_ops ops{};
  ops.alloc_mw = alloc_mw;
  ops.alloc_parent_domain = alloc_parent_domain;
  ops.alloc_pd = alloc_pd;
  ops.alloc_td = alloc_td;
  ops.attach_mcast = ibv_cmd_attach_mcast;
  ops.bind_mw = verbs::bind_mw;
  ops.cq_event = verbs::cq_event;
  ops.create_ah = create_ah;
  ops.create_cq = create_cq;
  ops.create_cq_ex = create_cq_ex;
  ops.create_qp = create_qp;
  ops.create_qp_ex = create_qp_ex;
  ops.create_srq = create_srq;
  ops.dealloc_mw = dealloc_mw;
  ops.dealloc_pd = dealloc_pd;
  ops.dealloc_td = dealloc_td;
  ops.dereg_mr = dereg_mr;
  ops.destroy_ah = destroy_ah;
  ops.destroy_cq = destroy_cq;
  ops.destroy_qp = destroy_qp;
  ops.destroy_srq = destroy_srq;
  ops.detach_mcast = ibv_cmd_detach_mcast;
  ops.free_context = kh_free_context;
  ops.modify_cq = modify_cq;
  ops.modify_qp = modify_qp;
  ops.modify_srq = modify_srq;
  ops.poll_cq = verbs::poll_cq;
  ops.post_recv = verbs::post_recv;
  ops.post_send = verbs::post_send;
  ops.post_srq_recv = verbs::post_srq_recv;
  ops.query_device_ex = query_device_ex;
  ops.query_port = query_port;
  ops.query_qp = query_qp;
  ops.query_rt_values = query_rt_values;
  ops.query_srq = query_srq;
  ops.reg_mr = reg_mr;
  ops.req_notify_cq = verbs::req_notify_cq;
  ops.rereg_mr = rereg_mr;
  ops.resize_cq = resize_cq;
  return ops;
}
constexpr verbs_context_ops kOps = make_ops();

// One page of the device at `offset`, or null with errno set.
void* map_page(int fd, int protection, uint64_t offset) {
  void* page = mmap(nullptr, KH_PAGE_SIZE, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  return page == MAP_FAILED ? nullptr : page;
}

void unmap_page(const void* page) {
  if (page) munmap(const_cast<void*>(page), KH_PAGE_SIZE);
}

void close(Context* context) {
  unmap_page(context->wake_page);
  unmap_page(context->status_page);
  unmap_page(context->doorbell_page);
  delete context->qps;
  verbs_uninit_context(&context->core);
  std::free(context);  // allocated by rdma-core, in C
}

// Fills a context that rdma-core has just made. 0 or an errno value.
int open(Context* context, int fd) {
  keyhole_alloc_ucontext_resp resp{};
  if (int err = kh_cmd_get_context(&context->core, &resp)) return err;

  // The queues are built by us and read by the device, so it is the device's version that counts
  // here; the kernel's own ABI version libibverbs has compared already.
  if (resp.hw_version >> 16 != KH_HW_MAJOR) {
    verbs_err(&context->core, "device speaks version %u.%u of the queues, this provider %u.x\n",
              resp.hw_version >> 16, resp.hw_version & 0xffff, unsigned{KH_HW_MAJOR});
    return EPROTONOSUPPORT;
  }
  context->limits = {.max_send_sge = resp.max_send_sge,
                     .max_recv_sge = resp.max_recv_sge,
                     .max_inline = resp.max_inline,
                     .max_send_blocks = resp.max_send_blocks,
                     .max_recv_wr = resp.max_recv_wr};

  context->extras = {.caps = resp.caps,
                     .max_mkey_entries = resp.max_indirect,
                     .max_inline_entries =
                         std::min(resp.max_inline_entries, verbs::kMostInlineEntries),
                     .max_mkey_depth = resp.max_depth,
                     .max_klm_list = resp.max_klm_list};

  context->qps = new (std::nothrow) verbs::QpTable;
  if (!context->qps) return ENOMEM;

  context->doorbell_page = map_page(fd, PROT_READ | PROT_WRITE, resp.db_mmap);
  if (!context->doorbell_page) return errno;
  context->status_page = map_page(fd, PROT_READ, resp.status_mmap);
  if (!context->status_page) return errno;
  context->wake_page = map_page(fd, PROT_READ | PROT_WRITE, resp.wake_mmap);
  if (!context->wake_page) return errno;

  verbs_set_ops(&context->core, &kOps);
  return 0;
}

}  // namespace

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t attr_size) {
  uint64_t fw = 0;
  keyhole_query_device_resp extra{};
  if (int err = kh_cmd_query_device(context, input, attr, attr_size, &fw, &extra)) return err;
  std::snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
                static_cast<unsigned>(fw >> 32), static_cast<unsigned>(fw >> 16 & 0xffff),
                static_cast<unsigned>(fw & 0xffff));
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return kh_cmd_query_port(context, port, attr);
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (!check_comp_mask(values->comp_mask, IBV_VALUES_MASK_RAW_CLOCK)) return EINVAL;
  if (!(values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)) return 0;

  ibv_device_attr_ex attr;
  uint64_t fw = 0;
  keyhole_query_device_resp extra{};
  if (int err = kh_cmd_query_device(context, nullptr, &attr, sizeof(attr), &fw, &extra)) return err;
  if (!extra.clock_khz) return EOPNOTSUPP;  // a kernel driver that does not read the clock

  // Ticks, as in the timestamps of completions; tv_sec is not part of a raw clock.
  values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(extra.clock)};
  return 0;
}

}  // namespace keyhole

extern "C" {

verbs_context* kh_alloc_context(ibv_device* device, int cmd_fd, void*) {
  using keyhole::Context;
  static_assert(std::is_trivially_default_constructible_v<verbs_context>);
  static_assert(offsetof(Context, core) == 0);

  // As the macro verbs_init_and_alloc_context() does, which is C. The memory is zeroed.
  auto* context = static_cast<Context*>(
      _verbs_init_and_alloc_context(device, cmd_fd, sizeof(Context), nullptr, RDMA_DRIVER_UNKNOWN));
  if (!context) return nullptr;
  if (int err = keyhole::open(context, cmd_fd)) {
    keyhole::close(context);
    errno = err;
    return nullptr;
  }
  return &context->core;
}

void kh_free_context(ibv_context* context) { keyhole::close(&keyhole::context_of(context)); }

verbs_device* kh_alloc_device(verbs_sysfs_dev*) {
  return static_cast<verbs_device*>(std::calloc(1, sizeof(verbs_device)));
}

void kh_uninit_device(verbs_device* device) { std::free(device); }
}
