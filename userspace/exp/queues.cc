// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Making and modifying queues: ibv_exp_create_cq(3), ibv_exp_modify_cq(3), ibv_exp_create_qp(3),
// ibv_exp_modify_qp(3), ibv_exp_create_srq(3), ibv_exp_create_res_domain(3).
//
// Programs set comp_mask to all bits there are and leave at zero what they do not want. So a bit of
// comp_mask asks for nothing by itself: its field does, if it is not zero.

#include <algorithm>
#include <new>

#include "queues.h"
#include "tables.h"

namespace keyhole::exp {

Objects<ExtendedCq>& extended_cqs() {
  static Objects<ExtendedCq> table;
  return table;
}

namespace {

struct Domain {
  ibv_exp_res_domain shown;
  bool single_threaded;
};

bool single_threaded(const ibv_exp_res_domain* domain) {
  return domain && reinterpret_cast<const Domain*>(domain)->single_threaded;
}

// A field counts only if comp_mask names it.
template <class T>
T if_named(uint32_t comp_mask, uint32_t bit, T value) {
  return comp_mask & bit ? value : T{};
}

// What comp_mask names and nothing here has.
bool asks_for_what_is_not_served(const ibv_exp_qp_init_attr& attr) {
  const uint32_t mask = attr.comp_mask;
  return if_named(mask, IBV_EXP_QP_INIT_ATTR_QPG, attr.qpg.qpg_type) != IBV_EXP_QPG_NONE ||
         if_named(mask, IBV_EXP_QP_INIT_ATTR_RX_HASH, attr.rx_hash_conf) ||
         if_named(mask, IBV_EXP_QP_INIT_ATTR_PEER_DIRECT, attr.peer_direct_attrs) ||
         if_named(mask, IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN, attr.associated_qpn);
}

}  // namespace
}  // namespace keyhole::exp

using namespace keyhole::exp;

extern "C" {

ibv_exp_res_domain* ibv_exp_create_res_domain(ibv_context* context,
                                              ibv_exp_res_domain_init_attr* attr) {
  if (!context || !attr) return fail(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_RES_DOMAIN_RESERVED)) return fail(EINVAL);
  const auto threads =
      if_named(attr->comp_mask, IBV_EXP_RES_DOMAIN_THREAD_MODEL, number_in(attr->thread_model));
  const auto messages =
      if_named(attr->comp_mask, IBV_EXP_RES_DOMAIN_MSG_MODEL, number_in(attr->msg_model));
  if (threads > IBV_EXP_THREAD_SINGLE || messages > IBV_EXP_MSG_FORCE_LOW_LATENCY)
    return fail(EINVAL);
  auto* domain = new (std::nothrow) Domain;
  if (!domain) return fail(ENOMEM);
  *domain = {.shown = {.context = context}, .single_threaded = threads != IBV_EXP_THREAD_SAFE};
  return &domain->shown;
}

int ibv_exp_destroy_res_domain(ibv_context* context, ibv_exp_res_domain* res_dom,
                               ibv_exp_destroy_res_domain_attr* attr) {
  if (!context || !res_dom || res_dom->context != context) return fail_int(EINVAL);
  if (attr && !mask_is_known(attr->comp_mask, IBV_EXP_DESTROY_RES_DOMAIN_RESERVED))
    return fail_int(EINVAL);
  delete reinterpret_cast<Domain*>(res_dom);
  return 0;
}

ibv_cq* ibv_exp_create_cq(ibv_context* context, int cqe, void* cq_context,
                          ibv_comp_channel* channel, int comp_vector, ibv_exp_cq_init_attr* attr) {
  if (!context || !attr || cqe <= 0 || comp_vector < 0) return fail(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_CQ_INIT_ATTR_RESERVED1)) return fail(EINVAL);
  const auto flags = if_named(attr->comp_mask, IBV_EXP_CQ_INIT_ATTR_FLAGS, attr->flags);
  const auto* domain = if_named(attr->comp_mask, IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN, attr->res_domain);
  if (flags & ~uint32_t{IBV_EXP_CQ_CREATE_FLAGS_MASK}) return fail(EINVAL);
  if (domain && domain->context != context) return fail(EINVAL);
  if (flags & (IBV_EXP_CQ_CREATE_CROSS_CHANNEL | IBV_EXP_CQ_COMPRESSED_CQE | IBV_EXP_CQ_AS_NOTIFY))
    return fail(ENOSYS);
  if (if_named(attr->comp_mask, IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT, attr->peer_direct_attrs))
    return fail(ENOSYS);

  const bool wallclock = flags & IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME;
  const bool timestamps = wallclock || (flags & IBV_EXP_CQ_TIMESTAMP);
  errno = 0;
  if (!timestamps && !single_threaded(domain)) {
    ibv_cq* cq = ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
    return cq ? cq : fail_as_provider();
  }

  ibv_cq_init_attr_ex init{};
  init.cqe = static_cast<uint32_t>(cqe);
  init.cq_context = cq_context;
  init.channel = channel;
  init.comp_vector = static_cast<uint32_t>(comp_vector);
  init.wc_flags = kPolledFields;
  if (timestamps)
    init.wc_flags |= wallclock ? uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}
                               : uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
  if (single_threaded(domain)) {
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  }
  if (!timestamps) {
    ibv_cq_ex* cq = ibv_create_cq_ex(context, &init);
    if (cq) return ibv_cq_ex_to_cq(cq);
    errno = 0;  // the domain is a hint: a provider without such CQs makes another
    ibv_cq* plain = ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
    return plain ? plain : fail_as_provider();
  }

  auto* record = new (std::nothrow) ExtendedCq;
  if (!record) return fail(ENOMEM);
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &init);
  if (!cq) {
    delete record;
    return fail_as_provider();
  }
  *record = {.key = ibv_cq_ex_to_cq(cq), .next = nullptr, .cq = cq, .wallclock = wallclock};
  extended_cqs().put(record);
  return ibv_cq_ex_to_cq(cq);
}

// ibv_destroy_cq() of a program: of CQs that are polled in another way, the record goes first.
int ibv_exp_destroy_any_cq(ibv_cq* cq) {
  if (!cq) return fail_int(EINVAL);
  ExtendedCq* record = extended_cqs().take(cq);
  const int err = ibv_destroy_cq(cq);
  if (record) {
    if (err)
      extended_cqs().put(record);
    else
      delete record;
  }
  return err;
}

int ibv_exp_modify_cq(ibv_cq* cq, ibv_exp_cq_attr* cq_attr, int cq_attr_mask) {
  if (!cq || !cq_attr) return fail_int(EINVAL);
  if (!mask_is_known(cq_attr->comp_mask, IBV_EXP_CQ_ATTR_RESERVED)) return fail_int(EINVAL);
  if (cq_attr_mask & ~(IBV_EXP_CQ_MODERATION | IBV_EXP_CQ_CAP_FLAGS)) return fail_int(EINVAL);
  if (cq_attr_mask & IBV_EXP_CQ_CAP_FLAGS) {
    if (cq_attr->cq_cap_flags & ~uint32_t{IBV_EXP_CQ_CAP_MASK}) return fail_int(EINVAL);
    if (cq_attr->cq_cap_flags) return fail_int(ENOSYS);
  }
  if (!(cq_attr_mask & IBV_EXP_CQ_MODERATION)) return 0;
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate.cq_count = cq_attr->moderation.cq_count;
  attr.moderate.cq_period = cq_attr->moderation.cq_period;
  const int err = ibv_modify_cq(cq, &attr);
  return err ? fail_int(as_enosys(err)) : 0;
}

ibv_qp* ibv_exp_create_qp(ibv_context* context, ibv_exp_qp_init_attr* qp_init_attr) {
  if (!context || !qp_init_attr) return fail(EINVAL);
  ibv_exp_qp_init_attr& attr = *qp_init_attr;
  const uint32_t mask = attr.comp_mask;
  if (!mask_is_known(mask, IBV_EXP_QP_INIT_ATTR_RESERVED1)) return fail(EINVAL);

  ibv_pd* const pd = if_named(mask, IBV_EXP_QP_INIT_ATTR_PD, attr.pd);
  ibv_xrcd* const xrcd = if_named(mask, IBV_EXP_QP_INIT_ATTR_XRCD, attr.xrcd);
  if (attr.qp_type == IBV_QPT_XRC_RECV ? !xrcd : !pd) return fail(EINVAL);
  if (pd && pd->context != context) return fail(EINVAL);
  const auto flags = if_named(mask, IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS, attr.exp_create_flags);
  const auto create = map_bits(kQpCreateFlags, flags);
  if (!create) return fail(create.error());
  const auto* domain = if_named(mask, IBV_EXP_QP_INIT_ATTR_RES_DOMAIN, attr.res_domain);
  if (domain && domain->context != context) return fail(EINVAL);
  if (attr.qp_type == IBV_EXP_QPT_DC_INI || asks_for_what_is_not_served(attr)) return fail(ENOSYS);

  const auto caps = keyhole_caps(context);
  const bool mkeys = caps && (caps->flags & KEYHOLEDV_CAP_INDIRECT_MKEY);
  const auto klms = if_named(mask, IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS, attr.max_inl_send_klms);
  if ((klms || (flags & IBV_EXP_QP_CREATE_UMR)) && !mkeys) return fail(ENOSYS);
  if (klms && (!caps || klms > caps->max_inline_entries)) return fail(EINVAL);
  if (klms && attr.qp_type != IBV_QPT_RC) return fail(EINVAL);
  const auto atomic = if_named(mask, IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG, attr.max_atomic_arg);
  if (atomic > sizeof(uint64_t)) return fail(EINVAL);

  ibv_qp_init_attr_ex init{};
  init.qp_context = attr.qp_context;
  init.send_cq = attr.send_cq;
  init.recv_cq = attr.recv_cq;
  init.srq = attr.srq;
  init.cap = attr.cap;
  init.qp_type = attr.qp_type;
  init.sq_sig_all = attr.sq_sig_all;
  if (pd) {
    init.comp_mask |= IBV_QP_INIT_ATTR_PD;
    init.pd = pd;
  }
  if (xrcd && attr.qp_type == IBV_QPT_XRC_RECV) {
    init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
  }
  if (*create) {
    init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    init.create_flags = static_cast<uint32_t>(*create);
  }
  if (uint16_t header = if_named(mask, IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER, attr.max_tso_header)) {
    init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    init.max_tso_header = header;
  }

  errno = 0;
  ibv_qp* qp = nullptr;
  // Room for max_send_wr of the largest request that the program has announced: an inline fill of
  // so many entries; or one that is not inline, or a masked atomic, for which one entry's does.
  const bool larger = mkeys && attr.qp_type == IBV_QPT_RC &&
                      (klms || atomic || (flags & IBV_EXP_QP_CREATE_UMR));
  if (larger) {
    keyholedv_qp_init_attr own{};
    own.max_inline_entries = klms ? klms : 1;
    qp = keyholedv_create_qp(context, &init, &own);
  } else {
    qp = ibv_create_qp_ex(context, &init);
  }
  if (!qp) return fail_as_provider();
  attr.cap = init.cap;
  if (mask & IBV_EXP_QP_INIT_ATTR_INL_RECV) {
    const uint32_t most = caps ? kMaxInlineReceive : 0;
    attr.max_inl_recv = std::min(attr.max_inl_recv, most);
  }
  return qp;
}

int ibv_exp_modify_qp(ibv_qp* qp, ibv_exp_qp_attr* attr, uint64_t exp_attr_mask) {
  if (!qp || !attr) return fail_int(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_QP_ATTR_RESERVED)) return fail_int(EINVAL);
  const auto mask = map_bits(kQpAttributes, exp_attr_mask);
  if (!mask) return fail_int(mask.error());
  if ((attr->comp_mask & IBV_EXP_QP_ATTR_BURST_INFO) && attr->burst_info.max_burst_sz) {
    if (!(*mask & IBV_QP_RATE_LIMIT) || !attr->rate_limit) return fail_int(EINVAL);
    return fail_int(ENOSYS);
  }

  ibv_qp_attr to{};
  to.qp_state = attr->qp_state;
  to.cur_qp_state = attr->cur_qp_state;
  to.path_mtu = attr->path_mtu;
  to.path_mig_state = attr->path_mig_state;
  to.qkey = attr->qkey;
  to.rq_psn = attr->rq_psn;
  to.sq_psn = attr->sq_psn;
  to.dest_qp_num = attr->dest_qp_num;
  to.qp_access_flags = static_cast<unsigned>(attr->qp_access_flags);
  to.cap = attr->cap;
  to.ah_attr = attr->ah_attr;
  to.alt_ah_attr = attr->alt_ah_attr;
  to.pkey_index = attr->pkey_index;
  to.alt_pkey_index = attr->alt_pkey_index;
  to.en_sqd_async_notify = attr->en_sqd_async_notify;
  to.sq_draining = attr->sq_draining;
  to.max_rd_atomic = attr->max_rd_atomic;
  to.max_dest_rd_atomic = attr->max_dest_rd_atomic;
  to.min_rnr_timer = attr->min_rnr_timer;
  to.port_num = attr->port_num;
  to.timeout = attr->timeout;
  to.retry_cnt = attr->retry_cnt;
  to.rnr_retry = attr->rnr_retry;
  to.alt_port_num = attr->alt_port_num;
  to.alt_timeout = attr->alt_timeout;
  to.rate_limit = attr->rate_limit;
  const int err = ibv_modify_qp(qp, &to, static_cast<int>(*mask));
  if (err) return fail_int(as_enosys(err));
  if (*mask & IBV_QP_CAP) attr->cap = to.cap;
  return 0;
}

ibv_srq* ibv_exp_create_srq(ibv_context* context, ibv_exp_create_srq_attr* attr) {
  if (!context || !attr || !attr->pd || attr->pd->context != context) return fail(EINVAL);
  const uint32_t mask = attr->comp_mask;
  if (!mask_is_known(mask, IBV_EXP_CREATE_SRQ_RESERVED)) return fail(EINVAL);
  const auto tags = if_named(mask, IBV_EXP_CREATE_SRQ_TM, attr->tm_cap);
  const auto strides = if_named(mask, IBV_EXP_CREATE_SRQ_MP_WR, attr->mp_wr);
  const uint32_t type = number_in(attr->srq_type);
  if (type == IBV_EXP_SRQT_TAG_MATCHING || tags.max_num_tags || tags.max_ops ||
      strides.log_num_of_strides || strides.log_stride_size ||
      if_named(mask, IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS, attr->dc_offload_params))
    return fail(ENOSYS);

  errno = 0;
  ibv_srq* srq = nullptr;
  if (type == IBV_EXP_SRQT_BASIC) {
    srq = ibv_create_srq(attr->pd, &attr->base);
  } else if (type == IBV_EXP_SRQT_XRC) {
    ibv_srq_init_attr_ex init{};
    init.srq_context = attr->base.srq_context;
    init.attr = attr->base.attr;
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = attr->pd;
    init.xrcd = if_named(mask, IBV_EXP_CREATE_SRQ_XRCD, attr->xrcd);
    init.cq = if_named(mask, IBV_EXP_CREATE_SRQ_CQ, attr->cq);
    if (!init.xrcd || !init.cq) return fail(EINVAL);
    srq = ibv_create_srq_ex(context, &init);
    if (srq) attr->base.attr = init.attr;
  } else {
    return fail(EINVAL);
  }
  return srq ? srq : fail_as_provider();
}

}  // extern "C"
