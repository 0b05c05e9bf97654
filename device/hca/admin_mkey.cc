// SPDX-License-Identifier: BSD-2-Clause
//
// Admin commands about memory keys. The table (mkey_table.h) has the rules; here the fields are
// checked.

#include "hca/admin.h"
#include "hca/hca.h"

namespace keyhole {

namespace {

// What a direct key may grant. FLUSH to persistence nobody grants.
constexpr uint32_t direct_access = KH_ACCESS_MASK | KH_ACCESS_FLUSH_GLOBAL;

bool write_without_local_write(uint32_t access) {
  return (access & (KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC)) != 0 &&
         (access & KH_ACCESS_LOCAL_WRITE) == 0;
}

bool zero(const kh_pages& pages) {
  return pages.addr == 0 && pages.npages == 0 && pages.page_shift == 0 && pages.levels == 0 &&
         pages.rsvd == 0;
}

// start, length and offset of a region against its pages; the names of the fields are the same in
// both commands. Nothing: they are well.
template <typename Body>
std::optional<AdminResult> refuse_range(const Body& body, const PageList& pages, bool zero_based) {
  if (body.length == 0) return AdminResult::refuse(offsetof(Body, length));
  if (zero_based ? body.start != 0 : body.start + (body.length - 1) < body.start)
    return AdminResult::refuse(offsetof(Body, start));
  if (body.offset >= pages.size()) return AdminResult::refuse(offsetof(Body, offset));
  if (body.length > pages.size() - body.offset) return AdminResult::refuse(offsetof(Body, length));
  return std::nullopt;
}

}  // namespace

AdminResult Admin::create_mkey() {
  const kh_cmd_create_mkey& body = cmd_.create_mkey;
  auto refuse = [](size_t field) { return AdminResult::refuse(field); };
  switch (body.kind) {
    case KH_MKEY_DIRECT:
    case KH_MKEY_PHYS:
    case KH_MKEY_FREE:
    case KH_MKEY_MW1:
    case KH_MKEY_MW2:
    case KH_MKEY_INDIRECT:
    case KH_MKEY_KLM_LIST:
      break;
    default:
      return refuse(offsetof(kh_cmd_create_mkey, kind));
  }
  auto kind = static_cast<MkeyKind>(body.kind);
  bool direct = kind == MkeyKind::direct;
  bool indirect = kind == MkeyKind::indirect;
  bool list = kind == MkeyKind::klm_list;
  if (is_window(kind) || list ? body.access != 0
                      : (body.access & ~(direct ? direct_access : KH_ACCESS_MASK)) != 0 ||
                            write_without_local_write(body.access))
    return refuse(offsetof(kh_cmd_create_mkey, access));
  // An indirect key has no addresses before its fill.
  if (indirect && (body.access & KH_ACCESS_ZERO_BASED))
    return refuse(offsetof(kh_cmd_create_mkey, access));
  const uint32_t most = indirect                 ? KH_MAX_INDIRECT
                        : kind == MkeyKind::free ? KH_PAGES_PER_LIST * KH_PAGES_PER_LIST
                                                 : 0;
  if (body.max_entries > most || (most > 0 && body.max_entries == 0))
    return refuse(offsetof(kh_cmd_create_mkey, max_entries));
  if (direct || list) {
    // Its entries are read as 8 byte numbers.
    if (list && (body.offset & 7)) return refuse(offsetof(kh_cmd_create_mkey, offset));
    if (auto no = refuse_range(body, pages_, (body.access & KH_ACCESS_ZERO_BASED) != 0)) return *no;
  } else {
    if (body.start != 0) return refuse(offsetof(kh_cmd_create_mkey, start));
    if (body.length != 0) return refuse(offsetof(kh_cmd_create_mkey, length));
    if (!zero(body.pages)) return refuse(offsetof(kh_cmd_create_mkey, pages));
    if (body.offset != 0) return refuse(offsetof(kh_cmd_create_mkey, offset));
  }
  Hca::Pd* pd = hca_.pds_.find(body.pdn);
  if (!pd) return AdminResult::refuse(offsetof(kh_cmd_create_mkey, pdn), KH_ST_NOENT);

  MkeyTable::Attributes attributes;
  attributes.kind = kind;
  attributes.pdn = body.pdn;
  attributes.access = body.access;
  attributes.max_entries = body.max_entries;
  attributes.start = body.start;
  attributes.length = body.length;
  attributes.offset = body.offset;
  attributes.pages = std::move(pages_);
  auto key = hca_.mkeys_->create(std::move(attributes));
  if (!key) return AdminResult{key.error(), 0, {}};
  ++pd->objects;
  return AdminResult::done(*key);
}

AdminResult Admin::destroy_mkey() {
  const Mkey* mkey = hca_.mkeys_->query(cmd_.hdr.handle);
  if (!mkey) return AdminResult::handle(KH_ST_NOENT);
  uint32_t pdn = mkey->pdn;
  if (auto destroyed = hca_.mkeys_->destroy(cmd_.hdr.handle); !destroyed)
    return AdminResult::handle(destroyed.error());
  --hca_.pds_.find(pdn)->objects;
  return AdminResult::done();
}

AdminResult Admin::modify_mkey() {
  const kh_cmd_modify_mkey& body = cmd_.modify_mkey;
  auto refuse = [](size_t field, uint8_t status = KH_ST_INVAL) {
    return AdminResult::refuse(field, status);
  };
  constexpr uint8_t all = KH_MKEY_MOD_TRANSLATION | KH_MKEY_MOD_PD | KH_MKEY_MOD_ACCESS;
  if (body.mask == 0 || (body.mask & ~all) != 0) return refuse(offsetof(kh_cmd_modify_mkey, mask));
  const Mkey* mkey = hca_.mkeys_->query(cmd_.hdr.handle);
  if (!mkey) return AdminResult::handle(KH_ST_NOENT);
  if (mkey->kind != MkeyKind::direct) return AdminResult::handle(KH_ST_INVAL);

  bool new_access = (body.mask & KH_MKEY_MOD_ACCESS) != 0;
  if (new_access ? (body.access & ~direct_access) != 0 || write_without_local_write(body.access)
                 : body.access != 0)
    return refuse(offsetof(kh_cmd_modify_mkey, access));
  uint32_t access = new_access ? body.access : mkey->access;
  bool zero_based = (access & KH_ACCESS_ZERO_BASED) != 0;
  if (body.mask & KH_MKEY_MOD_TRANSLATION) {
    if (auto no = refuse_range(body, pages_, zero_based)) return *no;
  } else {
    if (body.start != 0) return refuse(offsetof(kh_cmd_modify_mkey, start));
    if (body.length != 0) return refuse(offsetof(kh_cmd_modify_mkey, length));
    if (!zero(body.pages)) return refuse(offsetof(kh_cmd_modify_mkey, pages));
    if (body.offset != 0) return refuse(offsetof(kh_cmd_modify_mkey, offset));
    // Its addresses would have to change with it.
    if (zero_based != ((mkey->access & KH_ACCESS_ZERO_BASED) != 0))
      return refuse(offsetof(kh_cmd_modify_mkey, access));
  }
  Hca::Pd* old_pd = hca_.pds_.find(mkey->pdn);
  Hca::Pd* new_pd = old_pd;
  if (body.mask & KH_MKEY_MOD_PD) {
    new_pd = hca_.pds_.find(body.pdn);
    if (!new_pd) return refuse(offsetof(kh_cmd_modify_mkey, pdn), KH_ST_NOENT);
  } else if (body.pdn != 0) {
    return refuse(offsetof(kh_cmd_modify_mkey, pdn));
  }
  MkeyTable::Attributes attributes;
  attributes.pdn = body.pdn;
  attributes.access = body.access;
  attributes.start = body.start;
  attributes.length = body.length;
  attributes.offset = body.offset;
  attributes.pages = std::move(pages_);
  auto key = hca_.mkeys_->modify(cmd_.hdr.handle, body.mask, std::move(attributes));
  if (!key) return AdminResult::handle(key.error());
  --old_pd->objects;
  ++new_pd->objects;
  return AdminResult::done(*key);
}

AdminResult Admin::query_mkey() {
  const Mkey* mkey = hca_.mkeys_->query(cmd_.hdr.handle);
  if (!mkey) return AdminResult::handle(KH_ST_NOENT);
  kh_mkey_attr attr{};
  attr.kind = static_cast<uint8_t>(mkey->kind);
  attr.valid = mkey->valid;
  attr.key = mkey->key;
  attr.pdn = mkey->pdn;
  attr.access = mkey->access;
  attr.start = mkey->start;
  attr.length = mkey->length;
  attr.max_entries = mkey->max_entries;
  attr.windows = mkey->windows;
  attr.bound_to = mkey->bound_to;
  attr.bound_qpn = mkey->bound_qpn;
  if (mkey->indirect && mkey->valid) {
    const EntryTable& table = mkey->indirect->table;
    attr.num_entries = static_cast<uint32_t>(table.entries.size());
    attr.repeat_count = table.rounds;
    attr.depth = table.depth;
  }
  output(attr);
  return AdminResult::done();
}

}  // namespace keyhole
