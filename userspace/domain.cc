// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_alloc_pd(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3).

#include "domain.h"

#include <cerrno>
#include <new>

#include "cmd.h"
#include "control.h"

namespace keyhole {

ibv_pd* alloc_pd(ibv_context* context) {
  auto* pd = new (std::nothrow) Pd;
  if (!pd) return fail(ENOMEM);
  uint32_t pdn = 0;
  if (int err = kh_cmd_alloc_pd(context, &pd->ibv, &pdn)) {
    delete pd;
    return fail(err);
  }
  return &pd->ibv;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t known =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (!attr->pd) return fail(EINVAL);
  if (!check_comp_mask(attr->comp_mask, known)) return fail(EOPNOTSUPP);
  const bool allocators = attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  if (allocators && (!attr->alloc || !attr->free)) return fail(EINVAL);
  if (attr->pd->context != context || (attr->td && attr->td->context != context))
    return fail(EINVAL);

  auto* parent = new (std::nothrow) Pd;
  if (!parent) return fail(ENOMEM);

  // A parent domain made from a parent domain stands on the same protection domain; it inherits
  // neither allocators nor thread domain.
  Pd& given = pd_of(attr->pd);
  parent->protection_domain = given.is_parent() ? given.protection_domain : &given;
  parent->protection_domain->users.fetch_add(1, std::memory_order_relaxed);
  if (attr->td) {
    parent->thread_domain = &td_of(attr->td);
    parent->thread_domain->users.fetch_add(1, std::memory_order_relaxed);
  }
  if (allocators) {
    parent->alloc = attr->alloc;
    parent->free = attr->free;
  }
  if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) parent->context = attr->pd_context;

  ibv_initialize_parent_domain(&parent->ibv, &parent->protection_domain->ibv);
  return &parent->ibv;
}

int dealloc_pd(ibv_pd* ibpd) {
  Pd& pd = pd_of(ibpd);
  if (pd.users.load(std::memory_order_acquire)) return EBUSY;
  if (pd.is_parent()) {
    pd.protection_domain->users.fetch_sub(1, std::memory_order_release);
    if (pd.thread_domain) pd.thread_domain->users.fetch_sub(1, std::memory_order_release);
  } else if (int err = ibv_cmd_dealloc_pd(ibpd)) {
    return err;
  }
  delete &pd;
  return 0;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask) return fail(EOPNOTSUPP);
  auto* td = new (std::nothrow) ThreadDomain;
  if (!td) return fail(ENOMEM);
  td->ibv.context = context;
  return &td->ibv;
}

int dealloc_td(ibv_td* ibtd) {
  ThreadDomain& td = td_of(ibtd);
  if (td.users.load(std::memory_order_acquire)) return EBUSY;
  delete &td;
  return 0;
}

}  // namespace keyhole
