// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Making, resizing and destroying completion queues: ibv_create_cq(3), ibv_create_cq_ex(3),
// ibv_resize_cq(3), ibv_modify_cq(3).

#include <memory>
#include <new>

#include "buffer.h"
#include "cmd.h"
#include "context.h"
#include "control.h"
#include "domain.h"
#include "fast_path/fast_path.h"
#include "geometry.h"

namespace keyhole {
namespace {

struct CqObject : verbs::Cq {
  DomainUse domain;  // outlives the buffer, which returns to its allocator
  QueueBuffer buffer;
};
static_assert(sizeof(verbs_cq) <= offsetof(verbs::Cq, ring));

CqObject& object_of(ibv_cq* cq) { return static_cast<CqObject&>(verbs::cq_of(cq)); }

// The attributes are checked. Null with errno set on failure.
std::unique_ptr<CqObject> make(ibv_context* ibcontext, const ibv_cq_init_attr_ex& attr, Pd* domain,
                               uint8_t flags, bool single_threaded) {
  Context& context = context_of(ibcontext);
  const auto log_size = cq_log_size(attr.cqe);
  if (!log_size) return fail(log_size.error());
  const auto layout = cq_layout(*log_size, page_size());
  if (!layout) return fail(layout.error());

  std::unique_ptr<CqObject> cq(new (std::nothrow) CqObject());
  if (!cq) return fail(ENOMEM);
  auto buffer = QueueBuffer::allocate(layout->length, domain, ResourceType::kCq);
  if (!buffer) return fail(buffer.error());
  cq->buffer = std::move(*buffer);
  cq->domain = DomainUse(domain);

  verbs::init_cq(*cq, cq->buffer.at<kh_cqe>(layout->rq_offset), *log_size, single_threaded);
  cq->db = cq->buffer.at<kh_cq_db>(layout->db_offset);
  cq->qps = context.qps;

  keyhole_create_cq_req req{};
  req.buf_addr = reinterpret_cast<uintptr_t>(cq->buffer.data());
  req.buf_len = layout->length;
  req.ring_offset = layout->rq_offset;
  req.db_offset = layout->db_offset;
  req.log_size = *log_size;
  req.flags = flags;
  uint32_t cqn = 0;
  if (int err =
          kh_cmd_create_cq(ibcontext, &attr, reinterpret_cast<verbs_cq*>(cq.get()), &req, &cqn))
    return fail(err);
  cq->ibv.cqe = 1 << *log_size;
  return cq;
}

}  // namespace

ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = cqe;
  attr.channel = channel;
  attr.comp_vector = comp_vector;
  auto cq = make(context, attr, nullptr, 0, false);
  return cq ? &cq.release()->ibv : nullptr;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t known_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr uint32_t known_flags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if (!check_comp_mask(attr->comp_mask, known_mask)) return fail(EOPNOTSUPP);
  if (!check_comp_mask(attr->wc_flags, verbs::kCqWcFlags)) return fail(EOPNOTSUPP);
  const uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
  if (!check_comp_mask(flags, known_flags)) return fail(EOPNOTSUPP);

  Pd* domain = nullptr;
  if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
    if (!attr->parent_domain || attr->parent_domain->context != context) return fail(EINVAL);
    domain = &pd_of(attr->parent_domain);
    if (!domain->is_parent()) return fail(EINVAL);
  }

  uint8_t device_flags = 0;
  if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) device_flags |= KH_CQ_TIMESTAMP;
  if (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) device_flags |= KH_CQ_IGNORE_OVERRUN;
  const bool single_threaded =
      flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED || (domain && domain->single_threaded());

  auto cq = make(context, *attr, domain, device_flags, single_threaded);
  if (!cq) return nullptr;
  verbs::set_cq_ops(*cq, attr->wc_flags);
  return &cq.release()->ex;
}

// Unread completions are in the new ring when the command returns. Nobody polls or arms the ring
// that is going away: CqResize holds the CQ meanwhile.
int resize_cq(ibv_cq* ibcq, int cqe) {
  CqObject& cq = object_of(ibcq);
  const auto log_size = cq_log_size(cqe);
  if (!log_size) return log_size.error();
  const auto layout = cq_layout(*log_size, page_size());
  if (!layout) return layout.error();
  auto buffer = QueueBuffer::allocate(layout->length, cq.domain.parent(), ResourceType::kCq);
  if (!buffer) return buffer.error();

  keyhole_resize_cq_req req{};
  req.buf_addr = reinterpret_cast<uintptr_t>(buffer->data());
  req.buf_len = layout->length;
  req.ring_offset = layout->rq_offset;
  req.db_offset = layout->db_offset;
  req.log_size = *log_size;

  verbs::CqResize resize(cq, buffer->at<kh_cq_db>(layout->db_offset));
  if (int err = kh_cmd_resize_cq(ibcq, cqe, &req)) return err;
  resize.commit(buffer->at<kh_cqe>(layout->rq_offset), *log_size);
  ibcq->cqe = 1 << *log_size;
  cq.buffer.swap(*buffer);
  return 0;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) { return kh_cmd_modify_cq(cq, attr); }

int destroy_cq(ibv_cq* cq) {
  if (int err = ibv_cmd_destroy_cq(cq)) return err;
  delete &object_of(cq);
  return 0;
}

}  // namespace keyhole
