// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The direct verbs of keyholedv.h that make, ask and destroy: indirect mkeys, the memory that fills
// take their entries from, QPs that post fills. Programs call these by name, with whatever they
// have, so each first makes sure that the device is one of ours.
//
// An mkey and a KLM list are objects of the kernel's, destroyed with the process; the device
// decides about each of them (a destroy while windows are bound is EBUSY), so nothing is kept here
// but the handle.

#include <new>

#include "buffer.h"
#include "cmd.h"
#include "context.h"
#include "control.h"
#include "entry.h"
#include "fast_path/dv.h"
#include "fast_path/fast_path.h"

namespace keyhole {
namespace {

struct Mkey {
  keyholedv_mkey dv{};  // first: what the application holds
  ibv_context* context = nullptr;
  uint32_t handle = 0;
};

struct KlmList {
  keyholedv_klm_list dv{};
  ibv_context* context = nullptr;
  uint32_t handle = 0;
  QueueBuffer memory;
};

Mkey& mkey_of(keyholedv_mkey* mkey) { return *reinterpret_cast<Mkey*>(mkey); }
KlmList& list_of(keyholedv_klm_list* list) { return *reinterpret_cast<KlmList*>(list); }

bool ours(const ibv_context* context) { return context && kh_serves(context->device); }

// Null with errno set when indirect mkeys cannot be had under this PD.
Context* context_with_mkeys(ibv_pd* pd) {
  if (!pd) return fail(EINVAL);
  if (!ours(pd->context)) return fail(EOPNOTSUPP);
  Context& context = context_of(pd->context);
  if (!context.extras.indirect()) return fail(EOPNOTSUPP);
  return &context;
}

// What an mkey may be created with. All but MW_BIND are replaced by each fill; hints in the
// optional range say nothing here.
constexpr uint32_t kMkeyAccess = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;

keyholedv_mkey* create_mkey(const keyholedv_mkey_init_attr& attr) {
  Context* context = context_with_mkeys(attr.pd);
  if (!context) return nullptr;
  const uint32_t access = attr.access & ~static_cast<uint32_t>(IBV_ACCESS_OPTIONAL_RANGE);
  if (attr.comp_mask || (access & ~kMkeyAccess) || attr.max_entries == 0 ||
      attr.max_entries > context->extras.max_mkey_entries)
    return fail(EINVAL);

  auto* mkey = new (std::nothrow) Mkey;
  if (!mkey) return fail(ENOMEM);
  mkey->context = attr.pd->context;
  uint32_t key = 0;
  if (int err = kh_cmd_create_mkey(attr.pd, attr.max_entries, access, &mkey->handle, &key)) {
    delete mkey;
    return fail(err);
  }
  mkey->dv = {.lkey = key, .rkey = key};
  return &mkey->dv;
}

keyholedv_klm_list* alloc_klm_list(ibv_pd* pd, uint32_t max_entries) {
  Context* context = context_with_mkeys(pd);
  if (!context) return nullptr;
  const uint64_t length = uint64_t{max_entries} * sizeof(kh_stride);  // the larger kind
  if (max_entries == 0 || length > context->extras.max_klm_list) return fail(EINVAL);

  auto* list = new (std::nothrow) KlmList;
  if (!list) return fail(ENOMEM);
  auto memory =
      QueueBuffer::allocate(align_up(length, page_size()), nullptr, ResourceType::kKlmList);
  if (!memory) {
    delete list;
    return fail(memory.error());
  }
  list->memory = std::move(*memory);
  list->context = pd->context;
  list->dv = {.addr = list->memory.data(), .length = length, .max_entries = max_entries, .key = 0};
  if (int err = kh_cmd_create_klm_list(pd, list->dv.addr, length, &list->handle, &list->dv.key)) {
    delete list;
    return fail(err);
  }
  return &list->dv;
}

}  // namespace
}  // namespace keyhole

#define KEYHOLEDV_EXPORT __attribute__((visibility("default")))

extern "C" {

KEYHOLEDV_EXPORT bool keyholedv_is_supported(ibv_device* device) {
  return device && kh_serves(device);
}

KEYHOLEDV_EXPORT int keyholedv_query_device(ibv_context* context, keyholedv_context* attr) {
  if (!context || !attr) return EINVAL;
  if (!keyhole::ours(context)) return EOPNOTSUPP;
  if (attr->comp_mask) return EINVAL;
  const keyhole::DeviceExtras& extras = keyhole::context_of(context).extras;
  *attr = {};
  attr->flags = KEYHOLEDV_CAP_NOP;  // every version of the device has it
  if (extras.masked_atomic()) attr->flags |= KEYHOLEDV_CAP_MASKED_ATOMIC;
  if (extras.indirect()) {
    attr->flags |= KEYHOLEDV_CAP_INDIRECT_MKEY;
    attr->max_mkey_entries = extras.max_mkey_entries;
    attr->max_inline_entries = extras.max_inline_entries;
    attr->max_mkey_depth = extras.max_mkey_depth;
    attr->max_klm_list = extras.max_klm_list;
  }
  return 0;
}

KEYHOLEDV_EXPORT keyholedv_mkey* keyholedv_create_mkey(keyholedv_mkey_init_attr* attr) {
  if (!attr) return keyhole::fail(EINVAL);
  return keyhole::create_mkey(*attr);
}

KEYHOLEDV_EXPORT int keyholedv_destroy_mkey(keyholedv_mkey* mkey) {
  if (!mkey) return EINVAL;
  keyhole::Mkey& own = keyhole::mkey_of(mkey);
  if (int err = kh_cmd_destroy_mkey(own.context, own.handle)) return err;
  delete &own;
  return 0;
}

KEYHOLEDV_EXPORT int keyholedv_query_mkey(keyholedv_mkey* mkey, keyholedv_mkey_attr* attr) {
  if (!mkey || !attr) return EINVAL;
  keyhole::Mkey& own = keyhole::mkey_of(mkey);
  keyhole_mkey_attr now{};
  if (int err = kh_cmd_query_mkey(own.context, own.handle, &now)) return err;
  *attr = {};
  attr->start = now.start;
  attr->length = now.length;
  attr->access = now.access;
  attr->max_entries = now.max_entries;
  attr->num_entries = now.num_entries;
  attr->repeat_count = now.repeat_count;
  attr->windows = now.windows;
  attr->valid = now.valid;
  attr->depth = now.depth;
  return 0;
}

KEYHOLEDV_EXPORT keyholedv_klm_list* keyholedv_alloc_klm_list(ibv_pd* pd, uint32_t max_entries) {
  return keyhole::alloc_klm_list(pd, max_entries);
}

KEYHOLEDV_EXPORT int keyholedv_free_klm_list(keyholedv_klm_list* list) {
  if (!list) return EINVAL;
  keyhole::KlmList& own = keyhole::list_of(list);
  if (int err = kh_cmd_destroy_klm_list(own.context, own.handle)) return err;
  delete &own;
  return 0;
}

KEYHOLEDV_EXPORT ibv_qp* keyholedv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                                             keyholedv_qp_init_attr* dv_attr) {
  if (!context || !attr) return keyhole::fail(EINVAL);
  if (!keyhole::ours(context)) return keyhole::fail(EOPNOTSUPP);
  return keyhole::create_qp_dv(context, attr, dv_attr ? *dv_attr : keyholedv_qp_init_attr{});
}

KEYHOLEDV_EXPORT keyholedv_qp_ex* keyholedv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
  if (!qp || !keyhole::ours(qp->qp_base.context)) return nullptr;
  keyholedv_qp_ex& dv = keyhole::verbs::qp_of(qp).dv;
  return dv.wr_nop ? &dv : nullptr;  // set, if any is: see set_dv_ops()
}

KEYHOLEDV_EXPORT int keyholedv_post_send(ibv_qp* qp, keyholedv_send_wr* wr,
                                         keyholedv_send_wr** bad_wr) {
  if (!qp || !keyhole::ours(qp->context)) [[unlikely]] {
    if (bad_wr) *bad_wr = wr;
    return qp ? EOPNOTSUPP : EINVAL;
  }
  return keyhole::verbs::post_dv(qp, wr, bad_wr);
}
}
