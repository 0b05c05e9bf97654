// SPDX-License-Identifier: BSD-2-Clause
//
// Admin commands about CQs, SRQs, QPs and multicast groups: what they name must exist, their rings
// must lie in their pages, and who is used by others stays.

#include <algorithm>
#include <cstring>

#include "hca/admin.h"
#include "hca/geometry.h"
#include "hca/hca.h"
#include "hca/transport/qp.h"

namespace keyhole {

namespace {

// A receive ring of either kind of queue.
constexpr uint8_t min_log_stride = 5;
constexpr uint8_t max_log_stride = 10;

bool is_multicast_group(const Gid& gid) {
  if (gid[0] == 0xff) return true;
  // 224.0.0.0/4, IPv4-mapped.
  constexpr Gid mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(mapped.begin(), mapped.begin() + 12, gid.begin()) && (gid[12] & 0xf0) == 0xe0;
}

}  // namespace

// --- CQ ---------------------------------------------------------------------------------------

AdminResult Admin::create_cq() {
  const kh_cmd_create_cq& body = cmd_.create_cq;
  if (body.log_size < 1 || body.log_size > DeviceLimits::max_log_cq)
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, log_size));
  if (body.flags & ~(KH_CQ_TIMESTAMP | KH_CQ_IGNORE_OVERRUN))
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, flags));
  if (auto no = refuse_piece(pages_, body.ring_offset, sizeof(kh_cqe) << body.log_size, 64,
                             offsetof(kh_cmd_create_cq, ring_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_cq_db), 64,
                             offsetof(kh_cmd_create_cq, db_offset)))
    return *no;
  Context* context = hca_.context(body.ctx);
  if (!context) return AdminResult::refuse(offsetof(kh_cmd_create_cq, ctx), KH_ST_NOENT);
  Eq* eq = hca_.eqs_.find(body.eqn);
  if (!eq || eq->type() != KH_EQ_COMPLETION)
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, eqn), KH_ST_NOENT);
  if (!hca_.budget_.take(sizeof(Cq))) return AdminResult{KH_ST_NOMEM, 0, {}};
  auto cqn = hca_.cqs_.reserve();
  if (!cqn) {
    hca_.budget_.give(sizeof(Cq));
    return AdminResult{KH_ST_NOMEM, 0, {}};
  }
  Cq::Ring ring{std::move(pages_), body.ring_offset, body.db_offset, body.log_size};
  hca_.cqs_.put(
      *cqn, std::make_unique<Cq>(hca_.notifier_, *cqn, std::move(ring), *eq, body.ctx, body.flags));
  ++context->objects;
  return AdminResult::done(*cqn);
}

AdminResult Admin::destroy_cq() {
  Cq* cq = hca_.cqs_.find(cmd_.hdr.handle);
  if (!cq) return AdminResult::handle(KH_ST_NOENT);
  if (cq->users > 0) return AdminResult::handle(KH_ST_BUSY);
  --hca_.context(cq->context())->objects;
  hca_.cqs_.erase(cmd_.hdr.handle);
  hca_.budget_.give(sizeof(Cq));
  return AdminResult::done();
}

AdminResult Admin::resize_cq() {
  const kh_cmd_create_cq& body = cmd_.create_cq;
  Cq* cq = hca_.cqs_.find(cmd_.hdr.handle);
  if (!cq) return AdminResult::handle(KH_ST_NOENT);
  if (body.log_size < 1 || body.log_size > DeviceLimits::max_log_cq)
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, log_size));
  if (body.eqn != 0) return AdminResult::refuse(offsetof(kh_cmd_create_cq, eqn));
  if (body.ctx != 0) return AdminResult::refuse(offsetof(kh_cmd_create_cq, ctx));
  if (body.flags != 0) return AdminResult::refuse(offsetof(kh_cmd_create_cq, flags));
  if (auto no = refuse_piece(pages_, body.ring_offset, sizeof(kh_cqe) << body.log_size, 64,
                             offsetof(kh_cmd_create_cq, ring_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_cq_db), 64,
                             offsetof(kh_cmd_create_cq, db_offset)))
    return *no;
  return cq->resize({std::move(pages_), body.ring_offset, body.db_offset, body.log_size});
}

AdminResult Admin::modify_cq() {
  Cq* cq = hca_.cqs_.find(cmd_.hdr.handle);
  if (!cq) return AdminResult::handle(KH_ST_NOENT);
  cq->moderate(cmd_.modify_cq.count, cmd_.modify_cq.period);
  return AdminResult::done();
}

// --- SRQ --------------------------------------------------------------------------------------

AdminResult Admin::create_srq() {
  const kh_cmd_create_srq& body = cmd_.create_srq;
  if (body.log_size > DeviceLimits::max_log_rq)
    return AdminResult::refuse(offsetof(kh_cmd_create_srq, log_size));
  if (body.log_stride < min_log_stride || body.log_stride > max_log_stride)
    return AdminResult::refuse(offsetof(kh_cmd_create_srq, log_stride));
  if (auto no =
          refuse_piece(pages_, body.ring_offset, uint64_t{1} << (body.log_size + body.log_stride),
                       uint64_t{1} << body.log_stride, offsetof(kh_cmd_create_srq, ring_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_srq_db), 64,
                             offsetof(kh_cmd_create_srq, db_offset)))
    return *no;
  Context* context = hca_.context(body.ctx);
  if (!context) return AdminResult::refuse(offsetof(kh_cmd_create_srq, ctx), KH_ST_NOENT);
  Hca::Pd* pd = hca_.pds_.find(body.pdn);
  if (!pd) return AdminResult::refuse(offsetof(kh_cmd_create_srq, pdn), KH_ST_NOENT);
  auto srqn = hca_.srqs_.reserve();
  if (!srqn) return AdminResult{KH_ST_NOMEM, 0, {}};
  Srq::Config config;
  config.srqn = *srqn;
  config.pdn = body.pdn;
  config.context = body.ctx;
  config.memory = std::move(pages_);
  config.ring_offset = body.ring_offset;
  config.db_offset = body.db_offset;
  config.log_size = body.log_size;
  config.log_stride = body.log_stride;
  hca_.srqs_.put(*srqn, std::make_unique<Srq>(hca_.notifier_, std::move(config)));
  ++context->objects;
  ++pd->objects;
  return AdminResult::done(*srqn);
}

AdminResult Admin::destroy_srq() {
  Srq* srq = hca_.srqs_.find(cmd_.hdr.handle);
  if (!srq) return AdminResult::handle(KH_ST_NOENT);
  if (srq->users > 0) return AdminResult::handle(KH_ST_BUSY);
  --hca_.context(srq->context())->objects;
  --hca_.pds_.find(srq->pdn())->objects;
  hca_.srqs_.erase(cmd_.hdr.handle);
  return AdminResult::done();
}

AdminResult Admin::modify_srq() {
  Srq* srq = hca_.srqs_.find(cmd_.hdr.handle);
  if (!srq) return AdminResult::handle(KH_ST_NOENT);
  if (cmd_.modify_srq.limit > srq->size())
    return AdminResult::refuse(offsetof(kh_cmd_modify_srq, limit));
  srq->arm_limit(cmd_.modify_srq.limit);
  return AdminResult::done();
}

AdminResult Admin::query_srq() {
  Srq* srq = hca_.srqs_.find(cmd_.hdr.handle);
  if (!srq) return AdminResult::handle(KH_ST_NOENT);
  return AdminResult::done(srq->limit());
}

AdminResult Admin::resize_srq() {
  const kh_cmd_create_srq& body = cmd_.create_srq;
  Srq* srq = hca_.srqs_.find(cmd_.hdr.handle);
  if (!srq) return AdminResult::handle(KH_ST_NOENT);
  if (body.log_size > DeviceLimits::max_log_rq)
    return AdminResult::refuse(offsetof(kh_cmd_create_srq, log_size));
  if (body.log_stride != srq->log_stride())
    return AdminResult::refuse(offsetof(kh_cmd_create_srq, log_stride));
  if (body.pdn != 0) return AdminResult::refuse(offsetof(kh_cmd_create_srq, pdn));
  if (body.ctx != 0) return AdminResult::refuse(offsetof(kh_cmd_create_srq, ctx));
  if (auto no =
          refuse_piece(pages_, body.ring_offset, uint64_t{1} << (body.log_size + body.log_stride),
                       uint64_t{1} << body.log_stride, offsetof(kh_cmd_create_srq, ring_offset)))
    return *no;
  if (auto no = refuse_piece(pages_, body.db_offset, sizeof(kh_srq_db), 64,
                             offsetof(kh_cmd_create_srq, db_offset)))
    return *no;
  return srq->resize(std::move(pages_), body.ring_offset, body.db_offset, body.log_size);
}

// --- QP ---------------------------------------------------------------------------------------

namespace {

using Refused = std::optional<AdminResult>;

// The rings and the record against each other, the pages and the limits.
Refused refuse_rings(const kh_cmd_create_qp& body, const PageList& pages) {
  auto refuse = [](size_t field) { return AdminResult::refuse(field); };
  if (body.has_sq > 1) return refuse(offsetof(kh_cmd_create_qp, has_sq));
  if (body.has_rq > 1 || (body.has_rq && body.srqn != KH_NO_SRQ))
    return refuse(offsetof(kh_cmd_create_qp, has_rq));
  if (body.max_send_sge > KH_MAX_SGE) return refuse(offsetof(kh_cmd_create_qp, max_send_sge));
  if (body.max_recv_sge > KH_MAX_SGE) return refuse(offsetof(kh_cmd_create_qp, max_recv_sge));
  if (body.has_sq) {
    if (body.log_sq_blocks > DeviceLimits::max_log_sq)
      return refuse(offsetof(kh_cmd_create_qp, log_sq_blocks));
    if (auto no = refuse_piece(pages, body.sq_offset, uint64_t{KH_WQE_BLOCK} << body.log_sq_blocks,
                               KH_WQE_BLOCK, offsetof(kh_cmd_create_qp, sq_offset)))
      return no;
  }
  if (body.has_rq) {
    if (body.log_rq_size > DeviceLimits::max_log_rq)
      return refuse(offsetof(kh_cmd_create_qp, log_rq_size));
    if (body.log_rq_stride < min_log_stride || body.log_rq_stride > max_log_stride)
      return refuse(offsetof(kh_cmd_create_qp, log_rq_stride));
    uint64_t stride = uint64_t{1} << body.log_rq_stride;
    if (sizeof(kh_rwqe) + body.max_recv_sge * sizeof(kh_sge) > stride)
      return refuse(offsetof(kh_cmd_create_qp, max_recv_sge));
    if (auto no = refuse_piece(pages, body.rq_offset, stride << body.log_rq_size, stride,
                               offsetof(kh_cmd_create_qp, rq_offset)))
      return no;
  }
  return refuse_piece(pages, body.db_offset, sizeof(kh_qp_db), 64,
                      offsetof(kh_cmd_create_qp, db_offset));
}

}  // namespace

AdminResult Admin::create_qp() {
  const kh_cmd_create_qp& body = cmd_.create_qp;
  auto missing = [](size_t field) { return AdminResult::refuse(field, KH_ST_NOENT); };
  if (body.type > KH_QPT_GSI) return AdminResult::refuse(offsetof(kh_cmd_create_qp, type));
  bool gsi = body.type == KH_QPT_GSI;
  if (gsi && body.ctx != 0) return AdminResult::refuse(offsetof(kh_cmd_create_qp, ctx), KH_ST_PERM);
  if (body.db_slot >= KH_DB_SLOTS) return AdminResult::refuse(offsetof(kh_cmd_create_qp, db_slot));
  if (auto no = refuse_rings(body, pages_)) return *no;
  Context* context = hca_.context(body.ctx);
  if (!context) return missing(offsetof(kh_cmd_create_qp, ctx));
  Hca::Pd* pd = hca_.pds_.find(body.pdn);
  if (!pd) return missing(offsetof(kh_cmd_create_qp, pdn));
  Cq* send_cq = hca_.find_cq(body.send_cqn);
  if (!send_cq) return missing(offsetof(kh_cmd_create_qp, send_cqn));
  Cq* recv_cq = hca_.find_cq(body.recv_cqn);
  if (!recv_cq) return missing(offsetof(kh_cmd_create_qp, recv_cqn));
  Srq* srq = nullptr;
  if (body.srqn != KH_NO_SRQ) {
    srq = hca_.find_srq(body.srqn);
    if (!srq) return missing(offsetof(kh_cmd_create_qp, srqn));
  }
  if (gsi && hca_.find_qp(Hca::gsi_qpn))
    return AdminResult::refuse(offsetof(kh_cmd_create_qp, type), KH_ST_EXIST);
  if (!hca_.budget_.take(sizeof(Qp))) return AdminResult{KH_ST_NOMEM, 0, {}};
  std::optional<uint32_t> qpn = gsi ? Hca::gsi_qpn : hca_.qps_.reserve();
  if (!qpn) {
    hca_.budget_.give(sizeof(Qp));
    return AdminResult{KH_ST_NOMEM, 0, {}};
  }

  QpConfig config;
  config.qpn = *qpn;
  config.type = static_cast<kh_qp_type>(body.type);
  config.pdn = body.pdn;
  config.context = body.ctx;
  config.db_slot = body.db_slot;
  config.send_cq = send_cq;
  config.recv_cq = recv_cq;
  config.srq = srq;
  config.memory = std::move(pages_);
  config.sq_offset = body.sq_offset;
  config.rq_offset = body.rq_offset;
  config.db_offset = body.db_offset;
  config.log_sq_blocks = body.log_sq_blocks;
  config.log_rq_size = body.log_rq_size;
  config.log_rq_stride = body.log_rq_stride;
  config.has_sq = body.has_sq;
  config.has_rq = body.has_rq;
  config.max_send_sge = body.max_send_sge;
  config.max_recv_sge = body.max_recv_sge;
  Qp& qp = hca_.qps_.put(*qpn, std::make_unique<Qp>(hca_, std::move(config)));
  context->attach(body.db_slot, qp);
  ++context->objects;
  ++pd->objects;
  ++send_cq->users;
  ++recv_cq->users;
  if (srq) ++srq->users;
  return AdminResult::done(*qpn);
}

AdminResult Admin::destroy_qp() {
  Qp* qp = hca_.find_qp(cmd_.hdr.handle);
  if (!qp) return AdminResult::handle(KH_ST_NOENT);
  hca_.leave_groups(*qp);
  const QpConfig& config = qp->config();
  Context* context = hca_.context(config.context);
  context->detach(config.db_slot, *qp);
  --context->objects;
  --hca_.pds_.find(config.pdn)->objects;
  --config.send_cq->users;
  --config.recv_cq->users;
  if (config.srq) --config.srq->users;
  hca_.qps_.erase(cmd_.hdr.handle);
  hca_.budget_.give(sizeof(Qp));
  return AdminResult::done();
}

AdminResult Admin::modify_qp() {
  Qp* qp = hca_.find_qp(cmd_.hdr.handle);
  if (!qp) return AdminResult::handle(KH_ST_NOENT);
  return qp->modify(cmd_.modify_qp);
}

AdminResult Admin::query_qp() {
  Qp* qp = hca_.find_qp(cmd_.hdr.handle);
  if (!qp) return AdminResult::handle(KH_ST_NOENT);
  kh_qp_attr attr{};
  qp->query(attr);
  output(attr);
  return AdminResult::done();
}

// --- Multicast --------------------------------------------------------------------------------

AdminResult Admin::attach_mcast() {
  Qp* qp = hca_.find_qp(cmd_.hdr.handle);
  if (!qp) return AdminResult::handle(KH_ST_NOENT);
  if (qp->config().type != KH_QPT_UD) return AdminResult::handle(KH_ST_INVAL);
  Gid group;
  std::memcpy(group.data(), cmd_.mcast.mgid, group.size());
  if (!is_multicast_group(group)) return AdminResult::refuse(offsetof(kh_cmd_mcast, mgid));
  auto found = hca_.mcast_.find(group);
  if (found == hca_.mcast_.end()) {
    if (hca_.mcast_.size() >= DeviceLimits::max_mcast_groups)
      return AdminResult{KH_ST_NOMEM, 0, {}};
    found = hca_.mcast_.emplace(group, std::vector<Qp*>{}).first;
  }
  std::vector<Qp*>& members = found->second;
  // To attach twice is to be attached.
  if (std::ranges::find(members, qp) != members.end()) return AdminResult::done();
  if (members.size() >= DeviceLimits::max_mcast_qps) return AdminResult{KH_ST_NOMEM, 0, {}};
  members.push_back(qp);
  return AdminResult::done();
}

AdminResult Admin::detach_mcast() {
  Qp* qp = hca_.find_qp(cmd_.hdr.handle);
  if (!qp) return AdminResult::handle(KH_ST_NOENT);
  Gid group;
  std::memcpy(group.data(), cmd_.mcast.mgid, group.size());
  auto found = hca_.mcast_.find(group);
  if (found == hca_.mcast_.end() || std::erase(found->second, qp) == 0)
    return AdminResult::refuse(offsetof(kh_cmd_mcast, mgid), KH_ST_NOENT);
  if (found->second.empty()) hca_.mcast_.erase(found);
  return AdminResult::done();
}

}  // namespace keyhole
