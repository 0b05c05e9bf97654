// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Making, arming and destroying shared receive queues: ibv_create_srq(3), ibv_modify_srq(3).

#include <memory>
#include <mutex>
#include <new>

#include "buffer.h"
#include "cmd.h"
#include "context.h"
#include "control.h"
#include "domain.h"
#include "fast_path/fast_path.h"
#include "fast_path/shared_memory.h"
#include "geometry.h"

namespace keyhole {
namespace {

struct SrqObject : verbs::Srq {
  DomainUse domain;  // outlives the buffer, which returns to its allocator
  QueueBuffer buffer;
};
static_assert(sizeof(verbs_srq) <= offsetof(verbs::Srq, ring));
static_assert(offsetof(verbs_srq, srq_type) == offsetof(verbs::Srq, verbs_type));

SrqObject& object_of(ibv_srq* srq) { return static_cast<SrqObject&>(verbs::srq_of(srq)); }

}  // namespace

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  Pd& domain = pd_of(pd);
  if (attr->attr.max_wr == 0) return fail(EINVAL);
  const auto recv =
      recv_geometry(attr->attr.max_wr, attr->attr.max_sge, context_of(pd->context).limits);
  if (!recv) return fail(recv.error());
  const auto layout = srq_layout(*recv, page_size());
  if (!layout) return fail(layout.error());

  std::unique_ptr<SrqObject> srq(new (std::nothrow) SrqObject());
  if (!srq) return fail(ENOMEM);
  auto buffer = QueueBuffer::allocate(layout->length, &domain, ResourceType::kSrq);
  if (!buffer) return fail(buffer.error());
  srq->buffer = std::move(*buffer);
  srq->domain = DomainUse(&domain);

  srq->verbs_type = IBV_SRQT_BASIC;
  srq->ring = srq->buffer.at<std::byte>(layout->rq_offset);
  srq->mask = (1u << recv->log_size) - 1;
  srq->capacity = recv->max_wr;
  srq->log_stride = recv->log_stride;
  srq->max_sge = static_cast<uint8_t>(recv->max_sge);
  srq->db = srq->buffer.at<kh_srq_db>(layout->db_offset);
  srq->lock.elide(domain.single_threaded());

  keyhole_create_srq_req req{};
  req.buf_addr = reinterpret_cast<uintptr_t>(srq->buffer.data());
  req.buf_len = layout->length;
  req.ring_offset = layout->rq_offset;
  req.db_offset = layout->db_offset;
  req.log_size = recv->log_size;
  req.log_stride = recv->log_stride;

  // The kernel is told what the queue really holds, and the application afterwards.
  ibv_srq_init_attr real = *attr;
  real.attr.max_wr = recv->max_wr;
  real.attr.max_sge = recv->max_sge;
  if (int err = kh_cmd_create_srq(pd, &srq->ibv, &real, &req, &srq->srq_num)) return fail(err);
  attr->attr.max_wr = recv->max_wr;
  attr->attr.max_sge = recv->max_sge;
  return &srq.release()->ibv;
}

namespace {

// Moves the queue to a ring of at least `max_wr` requests of the same stride. The device copies the
// requests that it has not taken to the same indices of the new ring; nobody posts meanwhile, since
// the queue's lock is held. A queue of one thread has no lock and needs none.
int resize(SrqObject& srq, uint32_t max_wr) {
  auto recv = recv_geometry(max_wr, srq.max_sge, context_of(srq.ibv.context).limits);
  if (!recv || max_wr == 0) return EINVAL;
  recv->log_stride = srq.log_stride;
  const auto layout = srq_layout(*recv, page_size());
  if (!layout) return layout.error();
  auto buffer = QueueBuffer::allocate(layout->length, srq.domain.parent(), ResourceType::kSrq);
  if (!buffer) return buffer.error();

  keyhole_modify_srq_req req{};
  req.buf_addr = reinterpret_cast<uintptr_t>(buffer->data());
  req.buf_len = layout->length;
  req.ring_offset = layout->rq_offset;
  req.db_offset = layout->db_offset;
  req.log_size = recv->log_size;

  std::lock_guard guard(srq.lock);
  // What has been taken and not polled is outstanding too: below it the queue cannot go.
  const uint32_t completed = verbs::load_acquire(srq.completed);
  if (srq.pi - completed > recv->max_wr + srq.lost) return EINVAL;
  if (int err = kh_cmd_resize_srq(&srq.ibv, recv->max_wr, &req)) return err;
  srq.ring = buffer->at<std::byte>(layout->rq_offset);
  srq.mask = (1u << recv->log_size) - 1;
  srq.capacity = recv->max_wr;
  srq.db = buffer->at<kh_srq_db>(layout->db_offset);
  srq.buffer.swap(*buffer);
  return 0;
}

}  // namespace

// Two commands where both are asked for, so that a failure of the second leaves no doubt about the
// first; but what is wrong with either is found before any: "none of the attributes will be
// modified" (ibv_modify_srq(3)).
int modify_srq(ibv_srq* ibsrq, ibv_srq_attr* attr, int mask) {
  SrqObject& srq = object_of(ibsrq);
  if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) return EINVAL;
  const uint32_t size = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq.capacity;
  if (mask & IBV_SRQ_LIMIT && attr->srq_limit > size) return EINVAL;

  if (mask & IBV_SRQ_MAX_WR) {
    if (int err = resize(srq, attr->max_wr)) return err;
    attr->max_wr = srq.capacity;
  }
  return mask & IBV_SRQ_LIMIT ? kh_cmd_modify_srq(ibsrq, attr, IBV_SRQ_LIMIT) : 0;
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (int err = kh_cmd_query_srq(srq, attr)) return err;
  attr->max_wr = object_of(srq).capacity;
  attr->max_sge = object_of(srq).max_sge;
  return 0;
}

int destroy_srq(ibv_srq* srq) {
  if (int err = ibv_cmd_destroy_srq(srq)) return err;
  delete &object_of(srq);
  return 0;
}

}  // namespace keyhole
