// SPDX-License-Identifier: BSD-2-Clause

#define LIBIBVERBS_EXP_SOURCE
#include "fake_verbs.h"

#include <cstring>
#include <map>
#include <utility>

namespace fake {

World* world = nullptr;

namespace {

std::map<keyholedv_mkey*, uint32_t> mkey_entries;
size_t extended_at = 0;

int refused(uint64_t wr_id) {
  return world->refuse_wr_id >= 0 && wr_id == static_cast<uint64_t>(world->refuse_wr_id)
             ? world->refuse_with
             : 0;
}

int post_send(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad) {
  int length = 0;
  for (; wr; wr = wr->next, ++length) {
    if (int err = refused(wr->wr_id)) {
      *bad = wr;
      return err;
    }
    Posted posted;
    posted.standard = *wr;
    if (wr->num_sge) posted.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    world->posted.push_back(posted);
  }
  world->chain_lengths.push_back(length);
  return 0;
}

int poll_cq(ibv_cq*, int count, ibv_wc* wc) {
  int got = 0;
  for (; got < count && !world->completions.empty(); ++got) {
    wc[got] = world->completions.front();
    world->completions.pop_front();
  }
  return got;
}

int bind_mw(ibv_qp*, ibv_mw* mw, ibv_mw_bind* bind) {
  ++world->calls;
  ++world->binds;
  world->bound = *bind;
  mw->rkey = mw->rkey + 1;
  return 0;
}

int query_device_ex(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr,
                    size_t size) {
  if (!world->extended_query) return EOPNOTSUPP;
  std::memcpy(attr, &world->attributes, std::min(size, sizeof(*attr)));
  return 0;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  if (!world->clock) return EOPNOTSUPP;
  values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(world->clock)};
  return 0;
}

int query_port(ibv_context*, uint8_t port, ibv_port_attr* attr, size_t size) {
  if (port != 1) return EINVAL;
  std::memset(attr, 0, size);
  attr->lid = 77;
  attr->state = IBV_PORT_ACTIVE;
  return 0;
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr* attr) {
  ++world->calls;
  world->last_moderation = *attr;
  return 0;
}

// The completion at hand of an extended CQ is the front of the queue.
const ibv_wc& at_hand() { return world->completions[extended_at]; }
void show(ibv_cq_ex* cq) {
  cq->wr_id = at_hand().wr_id;
  cq->status = at_hand().status;
}
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr*) {
  if (world->completions.empty()) return ENOENT;
  extended_at = 0;
  show(cq);
  return 0;
}
int next_poll(ibv_cq_ex* cq) {
  if (extended_at + 1 == world->completions.size()) return ENOENT;
  ++extended_at;
  show(cq);
  return 0;
}
void end_poll(ibv_cq_ex*) {
  for (size_t i = 0; i <= extended_at; ++i) {
    world->completions.pop_front();
    world->timestamps.pop_front();
  }
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  ++world->calls;
  if (world->provider_fails || !world->cq_ex_works) {
    errno = world->provider_fails ? ENOMEM : EOPNOTSUPP;
    return nullptr;
  }
  world->last_cq = *attr;
  ++world->cqs;
  ibv_cq_ex* cq = world->allocate_cq();
  cq->context = context;
  cq->channel = attr->channel;
  cq->cq_context = attr->cq_context;
  cq->cqe = static_cast<int>(attr->cqe);
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  cq->end_poll = end_poll;
  cq->read_opcode = [](ibv_cq_ex*) { return at_hand().opcode; };
  cq->read_vendor_err = [](ibv_cq_ex*) { return at_hand().vendor_err; };
  cq->read_byte_len = [](ibv_cq_ex*) { return at_hand().byte_len; };
  cq->read_imm_data = [](ibv_cq_ex*) { return at_hand().imm_data; };
  cq->read_qp_num = [](ibv_cq_ex*) { return at_hand().qp_num; };
  cq->read_src_qp = [](ibv_cq_ex*) { return at_hand().src_qp; };
  cq->read_wc_flags = [](ibv_cq_ex*) { return at_hand().wc_flags; };
  cq->read_slid = [](ibv_cq_ex*) { return uint32_t{at_hand().slid}; };
  cq->read_sl = [](ibv_cq_ex*) { return at_hand().sl; };
  cq->read_dlid_path_bits = [](ibv_cq_ex*) { return at_hand().dlid_path_bits; };
  cq->read_completion_ts = [](ibv_cq_ex*) { return world->timestamps[extended_at]; };
  cq->read_completion_wallclock_ns = [](ibv_cq_ex*) { return world->timestamps[extended_at] + 1; };
  return cq;
}

ibv_qp* make_qp(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  ++world->calls;
  if (world->provider_fails) {
    errno = ENOMEM;
    return nullptr;
  }
  world->last_qp = *attr;
  attr->cap.max_send_wr *= 2;  // more than was asked for
  world->qp.context = context;
  world->qp.qp_type = attr->qp_type;
  return &world->qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  world->qp_by_direct_verbs = false;
  return make_qp(context, attr);
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  static ibv_srq srq;
  ++world->calls;
  srq = {};
  srq.context = context;
  attr->attr.max_wr *= 2;
  return &srq;
}

}  // namespace

void World::set_operations(verbs_context& verbs) {
  verbs.sz = sizeof(verbs);
  verbs.query_port = query_port;
  verbs.query_device_ex = query_device_ex;
  verbs.query_rt_values = query_rt_values;
  verbs.modify_cq = modify_cq;
  verbs.create_cq_ex = create_cq_ex;
  verbs.create_qp_ex = create_qp_ex;
  verbs.create_srq_ex = create_srq_ex;
  verbs.context.device = &device_;
  verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  verbs.context.ops.post_send = post_send;
  verbs.context.ops.poll_cq = poll_cq;
  verbs.context.ops.bind_mw = bind_mw;
}

World::World() {
  world = this;
  set_operations(verbs_);
  set_operations(other_verbs_);
  pd.context = context();
  foreign_pd.context = other_context();
  qp.context = context();
  qp.pd = &pd;
  qp.qp_type = IBV_QPT_RC;
  mw.context = context();
  mw.pd = &pd;
  mw.type = IBV_MW_TYPE_1;
  mw.rkey = 0x500;
  caps.flags = KEYHOLEDV_CAP_INDIRECT_MKEY | KEYHOLEDV_CAP_MASKED_ATOMIC | KEYHOLEDV_CAP_NOP;
  caps.max_mkey_entries = 65536;
  caps.max_inline_entries = 64;
  caps.max_mkey_depth = 4;
}

World::~World() {
  delete spare_cq_;
  world = nullptr;
}

ibv_cq_ex* World::allocate_cq() {
  ibv_cq_ex* cq = spare_cq_ ? std::exchange(spare_cq_, nullptr) : new ibv_cq_ex;
  *cq = {};
  return cq;
}

void World::free_cq(ibv_cq_ex* cq) { delete std::exchange(spare_cq_, cq); }

}  // namespace fake

using fake::world;

extern "C" {

// verbs.h makes macros of these.
#undef ibv_reg_mr
#undef ibv_query_port

static ibv_mr* registered(ibv_pd* pd, void* addr, size_t length, unsigned access) {
  ++world->calls;
  if (world->provider_fails) {
    errno = ENOMEM;
    return nullptr;
  }
  ++world->regions;
  auto* mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->lkey = mr->rkey = 0x1000 + static_cast<uint32_t>(world->regions);
  world->last_region = *mr;
  world->last_access = access;
  return mr;
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return registered(pd, addr, length, static_cast<unsigned>(access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t, unsigned access) {
  return registered(pd, addr, length, access);
}
int ibv_dereg_mr(ibv_mr* mr) {
  ++world->calls;
  --world->regions;
  delete mr;
  return 0;
}
int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  ++world->rereg_calls;
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int) {
  ++world->calls;
  if (world->provider_fails) {
    errno = ENOMEM;
    return nullptr;
  }
  ++world->cqs;
  ibv_cq_ex* cq = world->allocate_cq();
  cq->context = context;
  cq->cq_context = cq_context;
  cq->channel = channel;
  cq->cqe = cqe;
  return ibv_cq_ex_to_cq(cq);
}
int ibv_destroy_cq(ibv_cq* cq) {
  ++world->calls;
  --world->cqs;
  world->free_cq(reinterpret_cast<ibv_cq_ex*>(cq));
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex all{};
  std::memcpy(&all, attr, sizeof(*attr));
  all.pd = pd;
  all.comp_mask = IBV_QP_INIT_ATTR_PD;
  ibv_qp* qp = fake::create_qp_ex(pd->context, &all);
  attr->cap = all.cap;
  return qp;
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr* attr, int mask) {
  ++world->calls;
  world->last_modify = *attr;
  world->last_modify_mask = mask;
  return 0;
}
ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq_init_attr_ex all{};
  all.attr = attr->attr;
  ibv_srq* srq = fake::create_srq_ex(pd->context, &all);
  attr->attr = all.attr;
  return srq;
}
ibv_device** ibv_get_device_list(int* count) {
  static ibv_device* list[2];
  list[0] = world->device();
  if (count) *count = 1;
  return list;
}
ibv_context* ibv_open_device(ibv_device*) {
  ++world->calls;
  return world->context();
}
int ibv_query_device(ibv_context*, ibv_device_attr* attr) {
  *attr = world->attributes.orig_attr;
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t,
                      size_t) {
  if (port != 1) return EINVAL;
  if (index != 0) return ENODATA;
  *entry = world->gid;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr*) { return ENOSYS; }

bool keyholedv_is_supported(ibv_device*) { return world->keyhole; }
int keyholedv_query_device(ibv_context*, keyholedv_context* attr) {
  if (attr->comp_mask) return EINVAL;
  *attr = world->caps;
  return 0;
}
keyholedv_mkey* keyholedv_create_mkey(keyholedv_mkey_init_attr* attr) {
  ++world->calls;
  if (world->provider_fails) {
    errno = ENOMEM;
    return nullptr;
  }
  world->last_mkey = *attr;
  ++world->mkeys;
  const auto key = 0x70000 + static_cast<uint32_t>(world->mkeys);
  auto* mkey = new keyholedv_mkey{.lkey = key, .rkey = key};
  fake::mkey_entries[mkey] = attr->max_entries;
  return mkey;
}
int keyholedv_destroy_mkey(keyholedv_mkey* mkey) {
  ++world->calls;
  if (world->while_destroying) world->while_destroying();
  if (world->windows_on_mkeys) return EBUSY;
  --world->mkeys;
  fake::mkey_entries.erase(mkey);
  delete mkey;
  return 0;
}
int keyholedv_query_mkey(keyholedv_mkey* mkey, keyholedv_mkey_attr* attr) {
  *attr = {};
  attr->max_entries = fake::mkey_entries.at(mkey);
  return 0;
}
keyholedv_klm_list* keyholedv_alloc_klm_list(ibv_pd*, uint32_t entries) {
  ++world->calls;
  if (world->provider_fails) {
    errno = ENOMEM;
    return nullptr;
  }
  ++world->klm_lists;
  return new keyholedv_klm_list{.addr = nullptr, .length = 0, .max_entries = entries, .key = 9};
}
int keyholedv_free_klm_list(keyholedv_klm_list* list) {
  ++world->calls;
  --world->klm_lists;
  delete list;
  return 0;
}
ibv_qp* keyholedv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                            keyholedv_qp_init_attr* own) {
  world->qp_by_direct_verbs = true;
  world->last_own_qp = *own;
  return fake::make_qp(context, attr);
}
int keyholedv_post_send(ibv_qp*, keyholedv_send_wr* wr, keyholedv_send_wr** bad) {
  for (; wr; wr = wr->next) {
    if (int err = fake::refused(wr->wr_id)) {
      *bad = wr;
      return err;
    }
    fake::Posted posted;
    posted.by_direct_verbs = true;
    posted.own = *wr;
    if (wr->opcode == KEYHOLEDV_WR_FILL) {
      const keyholedv_fill& fill = wr->fill;
      if (fill.repeat_count)
        posted.interleaved.assign(fill.interleaved, fill.interleaved + fill.num_entries);
      else
        posted.sges.assign(fill.list, fill.list + fill.num_entries);
    }
    world->posted.push_back(posted);
  }
  return 0;
}

}  // extern "C"
