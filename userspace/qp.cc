// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Making, moving and destroying queue pairs: ibv_create_qp(3), ibv_create_qp_ex(3),
// ibv_modify_qp(3), ibv_query_qp(3), keyholedv_create_qp().

#include <memory>
#include <new>

#include "buffer.h"
#include "cmd.h"
#include "context.h"
#include "control.h"
#include "domain.h"
#include "fast_path/dv.h"
#include "fast_path/fast_path.h"
#include "geometry.h"

namespace keyhole {
namespace {

struct QpObject : verbs::Qp {
  ibv_qp_cap cap;    // what the queues can do, as the application was told
  DomainUse domain;  // outlives the buffer, which returns to its allocator
  QueueBuffer buffer;
};
static_assert(sizeof(verbs_qp) <= offsetof(verbs::Qp, sq));
static_assert(offsetof(verbs_qp, comp_mask) == offsetof(verbs::Qp, verbs_comp_mask));
static_assert(offsetof(verbs_qp, xrcd) == offsetof(verbs::Qp, verbs_xrcd));

QpObject& object_of(ibv_qp* qp) { return static_cast<QpObject&>(verbs::qp_of(qp)); }

// What precedes the data in the largest request of the type.
uint32_t head_size(ibv_qp_type type) {
  return type == IBV_QPT_UD ? sizeof(kh_wqe_ctrl) + sizeof(kh_wqe_ud)
                            : sizeof(kh_wqe_ctrl) + sizeof(kh_wqe_rdma);
}

// 0, or the errno value that ibv_create_qp(3) answers to these attributes.
int check(ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t known =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (!check_comp_mask(attr.comp_mask, known)) return EOPNOTSUPP;
  if (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr.create_flags) return EOPNOTSUPP;
  if (attr.qp_type != IBV_QPT_RC && attr.qp_type != IBV_QPT_UC && attr.qp_type != IBV_QPT_UD)
    return EOPNOTSUPP;
  if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || !attr.pd || !attr.send_cq || !attr.recv_cq)
    return EINVAL;
  // A handle means something in its own context only.
  if (attr.pd->context != context || attr.send_cq->context != context ||
      attr.recv_cq->context != context || (attr.srq && attr.srq->context != context))
    return EINVAL;
  return 0;
}

// Likewise for what keyholedv_create_qp() adds.
int check_dv(const Context& context, const ibv_qp_init_attr_ex& attr,
             const keyholedv_qp_init_attr& dv) {
  if (dv.comp_mask || dv.reserved) return EINVAL;
  if (dv.send_ops_flags && !(attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return EINVAL;
  if (dv.max_inline_entries > context.extras.max_inline_entries) return EINVAL;
  if (dv.max_inline_entries && attr.qp_type != IBV_QPT_RC) return EINVAL;
  return 0;
}

// Bytes of the largest request that the queue is to have room for max_send_wr times, beside
// messages: a fill with its entries, and a masked atomic.
uint32_t largest_request(const keyholedv_qp_init_attr& dv) {
  uint32_t bytes = 0;
  if (dv.max_inline_entries)
    bytes = static_cast<uint32_t>(verbs::kUmrBytes + dv.max_inline_entries * sizeof(kh_stride));
  if (dv.send_ops_flags & KEYHOLEDV_QP_EX_WITH_MASKED_ATOMIC)
    bytes = std::max<uint32_t>(bytes, verbs::kMaskedBlocks * KH_WQE_BLOCK);
  return bytes;
}

// Points the queues of a new QP into its buffer.
void set_rings(QpObject& qp, const SendGeometry& send, const RecvGeometry& recv,
               const Layout& layout) {
  auto* db = qp.buffer.at<kh_qp_db>(layout.db_offset);
  if (send.present) {
    qp.sq.ring = qp.buffer.at<std::byte>(layout.sq_offset);
    qp.sq.mask = (1u << send.log_blocks) - 1;
  }
  qp.sq.db = db;
  if (recv.present) {
    qp.rq.ring = qp.buffer.at<std::byte>(layout.rq_offset);
    qp.rq.mask = (1u << recv.log_size) - 1;
    qp.rq.capacity = recv.max_wr;
    qp.rq.log_stride = recv.log_stride;
  }
  qp.rq.db = db;
}

keyhole_create_qp_req make_request(const QpObject& qp, const SendGeometry& send,
                                   const RecvGeometry& recv, const Layout& layout) {
  keyhole_create_qp_req req{};
  req.buf_addr = reinterpret_cast<uintptr_t>(qp.buffer.data());
  req.buf_len = layout.length;
  req.sq_offset = layout.sq_offset;
  req.rq_offset = layout.rq_offset;
  req.db_offset = layout.db_offset;
  req.log_sq_blocks = send.log_blocks;
  req.log_rq_size = recv.log_size;
  req.log_rq_stride = recv.log_stride;
  req.has_sq = send.present;
  req.has_rq = recv.present;
  return req;
}

// Null with errno set on failure. On success attr.cap says what the QP can do.
ibv_qp* create(ibv_context* ibcontext, ibv_qp_init_attr_ex& attr,
               const keyholedv_qp_init_attr& dv = {}) {
  if (int err = check(ibcontext, attr)) return fail(err);
  Context& context = context_of(ibcontext);
  if (int err = check_dv(context, attr, dv)) return fail(err);
  Pd& domain = pd_of(attr.pd);

  const ibv_qp_cap& cap = attr.cap;
  const auto send = send_geometry(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data,
                                  head_size(attr.qp_type), context.limits, largest_request(dv));
  if (!send) return fail(send.error());
  // With an SRQ the attributes of the QP's own receive queue are ignored: ibv_create_qp(3).
  const auto recv =
      attr.srq ? RecvGeometry{} : recv_geometry(cap.max_recv_wr, cap.max_recv_sge, context.limits);
  if (!recv) return fail(recv.error());
  const auto layout = qp_layout(*send, *recv, page_size());
  if (!layout) return fail(layout.error());

  std::unique_ptr<QpObject> qp(new (std::nothrow) QpObject());
  if (!qp) return fail(ENOMEM);
  auto buffer = QueueBuffer::allocate(layout->length, &domain, ResourceType::kQp);
  if (!buffer) return fail(buffer.error());
  qp->buffer = std::move(*buffer);
  qp->domain = DomainUse(&domain);
  qp->cap = {.max_send_wr = send->max_wr,
             .max_recv_wr = recv->max_wr,
             .max_send_sge = send->max_sge,
             .max_recv_sge = recv->max_sge,
             .max_inline_data = send->max_inline};

  set_rings(*qp, *send, *recv, *layout);
  qp->send_cq = &verbs::cq_of(attr.send_cq);
  qp->recv_cq = &verbs::cq_of(attr.recv_cq);
  qp->srq = attr.srq ? &verbs::srq_of(attr.srq) : nullptr;
  verbs::init_qp(*qp, attr.qp_type, attr.sq_sig_all, send->max_sge, recv->max_sge, send->max_inline,
                 domain.single_threaded());
  verbs::set_dv_limits(*qp, attr.qp_type,
                       {.indirect = context.extras.indirect(),
                        .masked_atomic = context.extras.masked_atomic(),
                        .max_inline_entries = context.extras.max_inline_entries,
                        .max_entries = context.extras.max_mkey_entries});
  const bool extended = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (extended) {
    if (int err = verbs::set_wr_ops(*qp, attr.qp_type, attr.send_ops_flags)) return fail(err);
  }
  if (dv.send_ops_flags) {
    if (int err = verbs::set_dv_ops(*qp, dv.send_ops_flags)) return fail(err);
  }

  // The kernel is told how many entries a request may really have, since the device checks against
  // it; the number of requests stays the application's, which is what the device's limit is about.
  ibv_qp_init_attr_ex real = attr;
  real.cap.max_send_sge = send->max_sge;
  real.cap.max_recv_sge = recv->max_sge;
  real.cap.max_inline_data = send->max_inline;
  const keyhole_create_qp_req req = make_request(*qp, *send, *recv, *layout);
  uint16_t db_slot = 0;
  if (int err =
          kh_cmd_create_qp(ibcontext, reinterpret_cast<verbs_qp*>(qp.get()), &real, &req, &db_slot))
    return fail(err);
  // A slot beyond the page would be a fault of the kernel's; it must not become a stray store.
  if (db_slot >= KH_DB_SLOTS || !context.qps->insert(qp->ibv.qp_num, qp.get())) {
    ibv_cmd_destroy_qp(&qp->ibv);
    return fail(db_slot >= KH_DB_SLOTS ? EPROTO : ENOMEM);
  }
  qp->bell = context.bell(db_slot);
  if (extended) qp->verbs_comp_mask |= VERBS_QP_EX;
  verbs::set_qp_state(*qp, IBV_QPS_RESET);
  attr.cap = qp->cap;
  return &qp.release()->ibv;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attr->qp_context;
  extended.send_cq = attr->send_cq;
  extended.recv_cq = attr->recv_cq;
  extended.srq = attr->srq;
  extended.cap = attr->cap;
  extended.qp_type = attr->qp_type;
  extended.sq_sig_all = attr->sq_sig_all;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  ibv_qp* qp = create(pd->context, extended);
  if (qp) attr->cap = extended.cap;
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return create(context, *attr);
}

ibv_qp* create_qp_dv(ibv_context* context, ibv_qp_init_attr_ex* attr,
                     const keyholedv_qp_init_attr& dv_attr) {
  return create(context, *attr, dv_attr);
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (int err = kh_cmd_modify_qp(qp, attr, mask)) return err;
  if (mask & IBV_QP_STATE) {
    if (attr->qp_state == IBV_QPS_RESET)
      verbs::reset_qp(verbs::qp_of(qp));
    else
      verbs::set_qp_state(verbs::qp_of(qp), attr->qp_state);
  }
  return 0;
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  if (int err = kh_cmd_query_qp(qp, attr, mask, init_attr)) return err;
  attr->cap = init_attr->cap = object_of(qp).cap;
  return 0;
}

int destroy_qp(ibv_qp* ibqp) {
  QpObject& qp = object_of(ibqp);
  if (int err = ibv_cmd_destroy_qp(ibqp)) return err;
  // The device writes no more completions for it, and those unread are dropped before the table
  // forgets the number, so that no poller meets a number without a QP.
  verbs::clean_qp(qp);
  context_of(ibqp->context).qps->remove(ibqp->qp_num);
  delete &qp;
  return 0;
}

}  // namespace keyhole
