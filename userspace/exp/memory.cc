// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Regions, indirect mkeys and windows: ibv_exp_reg_mr(3), ibv_exp_create_mr(3),
// ibv_exp_query_mkey(3), ibv_exp_alloc_mkey_list_memory(3), ibv_exp_bind_mw(3).
//
// An indirect mkey is shown as a struct ibv_mr that only this library knows; a region with memory
// of the library's is the provider's own struct ibv_mr, and the memory is remembered beside it.
// ibv_dereg_mr() of a program leads here (infiniband/verbs.h), takes what is known, and hands on
// what is not.

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "klm_list.h"
#include "objects.h"
#include "tables.h"

namespace keyhole::exp {
namespace {

struct Region {
  const void* key = nullptr;
  Region* next = nullptr;
  keyholedv_mkey* mkey = nullptr;  // an indirect one, whose struct ibv_mr is `shown`
  ibv_mr shown{};
  void* memory = nullptr;  // a region's, to be unmapped
  size_t length = 0;
};

Objects<Region>& regions() {
  static Objects<Region> table;
  return table;
}

struct Container {
  ibv_exp_mkey_list_container shown;
  keyholedv_klm_list* list;
};

constexpr uint64_t kNeedLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

bool remote_without_local(uint64_t access) {
  return (access & kNeedLocalWrite) && !(access & IBV_ACCESS_LOCAL_WRITE);
}

size_t page_rounded(size_t length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return length > SIZE_MAX - page ? 0 : (length + page - 1) / page * page;
}

// A region whose memory is mapped here: anywhere, or at `addr` if that is free.
ibv_mr* register_own_memory(ibv_exp_reg_mr_in* in, unsigned access) {
  const size_t length = page_rounded(in->length);
  if (!length) return fail(EINVAL);
  auto* region = new (std::nothrow) Region;
  if (!region) return fail(ENOMEM);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (in->addr ? MAP_FIXED_NOREPLACE : 0);
  void* memory = mmap(in->addr, length, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory != MAP_FAILED && in->addr && memory != in->addr) {  // a kernel without NOREPLACE
    munmap(memory, length);
    memory = MAP_FAILED;
    errno = EEXIST;
  }
  if (memory == MAP_FAILED) {
    delete region;
    return nullptr;
  }
  ibv_mr* mr = ibv_reg_mr(in->pd, memory, in->length, access);
  if (!mr) {
    const int err = errno;
    munmap(memory, length);
    delete region;
    return fail(as_enosys(err));
  }
  region->key = mr;
  region->memory = memory;
  region->length = length;
  regions().put(region);
  in->addr = memory;
  return mr;
}

}  // namespace

std::expected<keyholedv_klm_list*, int> klm_list_of(ibv_exp_mkey_list_container* container,
                                                    const ibv_context* context) {
  if (!container || container->context != context) return std::unexpected(EINVAL);
  return reinterpret_cast<Container*>(container)->list;
}

}  // namespace keyhole::exp

using namespace keyhole::exp;

extern "C" {

ibv_mr* ibv_exp_reg_mr(ibv_exp_reg_mr_in* in) {
  if (!in || !in->pd) return fail(EINVAL);
  if (!mask_is_known(in->comp_mask, IBV_EXP_REG_MR_RESERVED)) return fail(EINVAL);
  const auto access = map_bits(kRegionAccess, in->exp_access);
  if (!access) return fail(access.error());
  if (remote_without_local(*access)) return fail(EINVAL);
  if ((in->exp_access & IBV_EXP_ACCESS_RELAXED) && !(in->exp_access & IBV_EXP_ACCESS_ON_DEMAND))
    return fail(EINVAL);

  const uint32_t create = in->comp_mask & IBV_EXP_REG_MR_CREATE_FLAGS ? in->create_flags : 0;
  if (create & ~uint32_t{IBV_EXP_REG_MR_CREATE_CONTIG}) return fail(EINVAL);
  if ((in->comp_mask & IBV_EXP_REG_MR_DM) && in->dm) return fail(ENOSYS);

  const bool allocate = in->exp_access & IBV_EXP_ACCESS_ALLOCATE_MR;
  if (allocate && (create || in->addr)) return fail(EINVAL);
  if (allocate || create) return register_own_memory(in, static_cast<unsigned>(*access));

  errno = 0;
  ibv_mr* mr = ibv_reg_mr(in->pd, in->addr, in->length, static_cast<unsigned>(*access));
  return mr ? mr : fail_as_provider();
}

ibv_mr* ibv_exp_create_mr(ibv_exp_create_mr_in* in) {
  if (!in || !in->pd) return fail(EINVAL);
  if (!mask_is_known(in->comp_mask, IBV_EXP_CREATE_MR_IN_RESERVED)) return fail(EINVAL);
  const auto access = map_bits(kMkeyAccess, in->attr.exp_access_flags);
  if (!access) return fail(access.error());
  if (remote_without_local(*access)) return fail(EINVAL);
  constexpr uint32_t kOther = IBV_EXP_MR_SIGNATURE_EN | IBV_EXP_MR_FIXED_BUFFER_SIZE;
  if (in->attr.create_flags & ~(kOther | IBV_EXP_MR_INDIRECT_KLMS)) return fail(EINVAL);
  if (in->attr.create_flags & kOther) return fail(ENOSYS);
  if (in->attr.create_flags != IBV_EXP_MR_INDIRECT_KLMS) return fail(EINVAL);

  const auto caps = keyhole_caps(in->pd->context);
  if (!caps || !(caps->flags & KEYHOLEDV_CAP_INDIRECT_MKEY)) return fail(ENOSYS);
  if (!in->attr.max_klm_list_size || in->attr.max_klm_list_size > caps->max_mkey_entries)
    return fail(EINVAL);

  auto* region = new (std::nothrow) Region;
  if (!region) return fail(ENOMEM);
  keyholedv_mkey_init_attr init{};
  init.pd = in->pd;
  init.max_entries = in->attr.max_klm_list_size;
  init.access = static_cast<uint32_t>(*access);
  errno = 0;
  region->mkey = keyholedv_create_mkey(&init);
  if (!region->mkey) {
    delete region;
    return fail_as_provider();
  }
  region->shown.context = in->pd->context;
  region->shown.pd = in->pd;
  region->shown.lkey = region->mkey->lkey;
  region->shown.rkey = region->mkey->rkey;
  region->key = &region->shown;
  regions().put(region);
  return &region->shown;
}

int ibv_exp_query_mkey(ibv_mr* mr, ibv_exp_mkey_attr* attr) {
  if (!mr || !attr) return fail_int(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_MKEY_ATTR_RESERVED)) return fail_int(EINVAL);
  Region* region = regions().find(mr);
  if (!region || !region->mkey) {
    // On other providers nothing is an indirect mkey; on a Keyhole HCA this one is not.
    return fail_int(keyhole_caps(mr->context) ? EINVAL : ENOSYS);
  }
  keyholedv_mkey_attr now{};
  if (int err = keyholedv_query_mkey(region->mkey, &now)) return fail_int(as_enosys(err));
  attr->max_klm_list_size = now.max_entries;
  return 0;
}

// ibv_dereg_mr() of a program.
int ibv_exp_dereg_any_mr(ibv_mr* mr) {
  if (!mr) return fail_int(EINVAL);
  Region* region = regions().find(mr);
  if (region && region->mkey) {
    // Known until it is gone: where it stays, as windows are bound to it, no other thread that uses it
    // meanwhile sees a difference. Its pointer is the record's own, which nobody else can be given.
    if (const int err = keyholedv_destroy_mkey(region->mkey)) return fail_int(err);
    regions().take(mr);
    delete region;
    return 0;
  }
  // Unknown before it is gone: then its pointer may be another region's at once.
  region = regions().take(mr);
  if (!region) return ibv_dereg_mr(mr);
  if (const int err = ibv_dereg_mr(mr)) {
    regions().put(region);
    return fail_int(err);
  }
  if (region->memory) munmap(region->memory, region->length);
  delete region;
  return 0;
}

// ibv_rereg_mr() of a program. Contents of an indirect mkey change by fills only.
int ibv_exp_rereg_any_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  if (!mr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Region* region = regions().find(mr);
  if (region && region->mkey) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  return ibv_rereg_mr(mr, flags, pd, addr, length, access);
}

ibv_exp_mkey_list_container* ibv_exp_alloc_mkey_list_memory(
    ibv_exp_mkey_list_container_attr* attr) {
  if (!attr || !attr->pd) return fail(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_MKEY_LIST_CONTAINER_RESERVED)) return fail(EINVAL);
  if (attr->mkey_list_type != IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR || !attr->max_klm_list_size)
    return fail(EINVAL);
  const auto caps = keyhole_caps(attr->pd->context);
  if (!caps || !(caps->flags & KEYHOLEDV_CAP_INDIRECT_MKEY)) return fail(ENOSYS);
  if (attr->max_klm_list_size > caps->max_mkey_entries) return fail(EINVAL);

  auto* container = new (std::nothrow) Container;
  if (!container) return fail(ENOMEM);
  errno = 0;
  container->list = keyholedv_alloc_klm_list(attr->pd, attr->max_klm_list_size);
  if (!container->list) {
    delete container;
    return fail_as_provider();
  }
  container->shown = {.max_klm_list_size = attr->max_klm_list_size,
                      .context = attr->pd->context};
  return &container->shown;
}

int ibv_exp_dealloc_mkey_list_memory(ibv_exp_mkey_list_container* mem) {
  if (!mem) return fail_int(EINVAL);
  auto* container = reinterpret_cast<Container*>(mem);
  if (int err = keyholedv_free_klm_list(container->list)) return fail_int(err);
  delete container;
  return 0;
}

int ibv_exp_bind_mw(ibv_exp_mw_bind* mw_bind) {
  if (!mw_bind || !mw_bind->qp || !mw_bind->mw) return fail_int(EINVAL);
  if (!mask_is_known(mw_bind->comp_mask, IBV_EXP_BIND_MW_RESERVED)) return fail_int(EINVAL);
  if (mw_bind->qp->qp_type != IBV_QPT_RC && mw_bind->qp->qp_type != IBV_QPT_UC)
    return fail_int(EINVAL);
  if (mw_bind->qp->context != mw_bind->mw->context) return fail_int(EINVAL);

  constexpr uint64_t kFlags = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;
  if (mw_bind->exp_send_flags & ~kFlags) return fail_int(EINVAL);
  const auto flags = map_bits(kSendFlags, mw_bind->exp_send_flags);
  const auto access = map_bits(kWindowAccess, mw_bind->bind_info.exp_mw_access_flags);
  if (!access) return fail_int(access.error());

  ibv_mw_bind bind{};
  bind.wr_id = mw_bind->wr_id;
  bind.send_flags = static_cast<unsigned>(*flags);
  bind.bind_info.mr = mw_bind->bind_info.mr;
  bind.bind_info.addr = mw_bind->bind_info.addr;
  bind.bind_info.length = mw_bind->bind_info.length;
  bind.bind_info.mw_access_flags = static_cast<unsigned>(*access);
  // Type 1 only, and the region's PD is the window's: checked there.
  const int err = ibv_bind_mw(mw_bind->qp, mw_bind->mw, &bind);
  return err ? fail_int(as_enosys(err)) : 0;
}

}  // extern "C"
