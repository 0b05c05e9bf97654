// SPDX-License-Identifier: BSD-2-Clause

#include "victim.h"

#include <algorithm>

namespace keyhole::fuzz {

using test::Work;

namespace {

constexpr uint32_t remote_write = KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC;

}  // namespace

Victim::Victim(test::Rig& rig, size_t station)
    : rig_(rig),
      driver_(rig.driver(station)),
      guest_(rig.host(station)),
      claims_(guest_, Claims::keys_ignored) {
  claims_.follow(driver_);
  pdn_ = driver_.create_pd();
  send_cq_ = driver_.create_cq(5);
  recv_cq_ = driver_.create_cq(5);
  test::QpOptions options;
  options.pdn = pdn_;
  options.send_cqn = send_cq_.cqn;
  options.recv_cqn = recv_cq_.cqn;
  options.log_sq_blocks = 4;
  options.log_rq_size = 3;
  qp_ = driver_.create_qp(options);

  // Neither begins nor ends on a page.
  test::FakeHost& host = guest_.host();
  auto region = [&](size_t pages, size_t before, size_t size, uint32_t access) {
    std::byte* memory = host.allocate(pages * KH_PAGE_SIZE) + before;
    return driver_.register_memory(pdn_, memory, size, access, reinterpret_cast<uint64_t>(memory));
  };
  open_region_ = region(2, 1000, 5000, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE);
  receives_ = region(1, 64, 2048, KH_ACCESS_LOCAL_WRITE);
  hidden_ = region(4, 256, hidden_size, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_MW_BIND);
  for (const test::TestRegion* r : {&open_region_, &receives_})
    guest_.oracle().allow(guest_.oracle().extent(r->memory, r->size));

  for (size_t i = 0; i < openings_.size(); ++i) {
    Opening& opening = openings_[i];
    opening.window2 = i < windows && i % 2;
    opening.key = i < windows
                      ? driver_.create_window(pdn_, opening.window2 ? KH_MKEY_MW2 : KH_MKEY_MW1)
                      : driver_.create_indirect(pdn_, 16, KH_ACCESS_MW_BIND);
  }
}

std::vector<Victim::Named> Victim::keys() const {
  std::vector<Named> keys;
  for (const test::TestRegion* r : {&open_region_, &receives_, &hidden_})
    keys.push_back({r->key, r->start, r->size});
  for (const Opening& opening : openings_) {
    uint64_t length = 0;
    for (const Extent& extent : opening.extents)
      length += extent.size;
    keys.push_back({opening.key, opening.start, length});
  }
  return keys;
}

void Victim::wrote_queues() { guest_.oracle().wrote(qp_.memory, qp_.memory_size); }

bool Victim::done(const Work& work) {
  Work posted = work;
  posted.wr_id = next_id_++;
  qp_.put(test::lay_out(posted, false));
  qp_.ring();
  wrote_queues();
  rig_.run();
  kh_cqe cqe{};
  bool success = false;
  while (send_cq_.poll(cqe))
    success |= cqe.wr_id == posted.wr_id && cqe.status == KH_WC_SUCCESS;
  guest_.oracle().wrote(send_cq_.db, sizeof(kh_cq_db));
  return success;
}

void Victim::act(Input& in) {
  if (!connected) return;
  take_receives();
  const uint8_t what = in.u8();
  const size_t which = in.u8() % openings_.size();
  switch (what % 8) {
    case 0:
      return post_receive(in);
    case 1:
      return invalidate(which);
    default:
      return which < windows ? bind(in, which) : fill(in, which);
  }
}

void Victim::post_receive(Input& in) {
  kh_sge sge{receives_.start + in.u16() % 1024, in.u16() % 1024u, receives_.key};
  qp_.post_receive(next_id_++, {&sge, 1});
  wrote_queues();
}

void Victim::take_receives() {
  kh_cqe cqe{};
  while (recv_cq_.poll(cqe)) {
    if (cqe.status != KH_WC_SUCCESS || !(cqe.flags & KH_CQE_INV)) continue;
    for (Opening& opening : openings_)
      if (opening.key == cqe.imm) close(opening);
  }
  guest_.oracle().wrote(recv_cq_.db, sizeof(kh_cq_db));
}

// In the region, or in what an indirect key names.
void Victim::bind(Input& in, size_t which) {
  Opening& window = openings_[which];
  static constexpr uint32_t rights[] = {KH_ACCESS_REMOTE_WRITE, KH_ACCESS_REMOTE_READ,
                                        KH_ACCESS_REMOTE_ATOMIC, KH_ACCESS_REMOTE};
  const uint32_t access = in.one_of(rights) | (in.below(4) == 0 ? KH_ACCESS_ZERO_BASED : 0);
  const uint8_t on = in.below(6);
  std::vector<Extent> under = {guest_.oracle().extent(hidden_.memory, hidden_.size)};
  uint64_t under_start = hidden_.start, size = hidden_.size;
  uint32_t key = hidden_.key;
  if (on < 2) {
    const Opening& indirect = openings_[windows + on];
    under = indirect.extents;
    under_start = indirect.start;
    key = indirect.key;
    size = 0;
    for (const Extent& extent : under)
      size += extent.size;
  }
  if (size == 0) return;
  const uint64_t offset = in.u16() % size;
  const uint64_t length = std::min<uint64_t>(in.u16(), size - offset);
  Work work;
  work.opcode = KH_OP_BIND_MW;
  work.bind.mw_key = window.key;
  work.bind.new_key = (window.key & ~0xffu) | ((window.key + 1) & 0xff);
  work.bind.mr_key = length ? key : 0;
  work.bind.access = access;
  work.bind.addr = under_start + offset;
  work.bind.length = length;
  // Until it is done the old range may still be written, and as soon as it is, the new one.
  std::vector<Extent> bytes = slice(under, offset, length);
  Opening fresh;
  open(fresh, bytes, (access & remote_write) != 0);
  if (!done(work)) return close(fresh);
  close(window);
  fresh.window2 = window.window2;
  fresh.key = work.bind.new_key;
  fresh.start = access & KH_ACCESS_ZERO_BASED ? 0 : under_start + offset;
  window = fresh;
}

void Victim::invalidate(size_t which) {
  Opening& opening = openings_[which];
  Work work;
  if (which < windows && !opening.window2) {  // type 1: by a bind of nothing
    work.opcode = KH_OP_BIND_MW;
    work.bind.mw_key = opening.key;
    work.bind.new_key = (opening.key & ~0xffu) | ((opening.key + 1) & 0xff);
    if (!done(work)) return;
    close(opening);
    opening.key = work.bind.new_key;
    return;
  }
  work.opcode = which < windows ? KH_OP_LOCAL_INV : KH_OP_UMR_INV;
  work.imm = opening.key;
  if (done(work)) close(opening);
}

void Victim::fill(Input& in, size_t which) {
  Opening& key = openings_[which];
  Work work;
  work.opcode = KH_OP_UMR_FILL;
  work.flags |= KH_WQE_INLINE;
  work.umr.key = key.key;
  static constexpr uint32_t rights[] = {
      KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE, KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_WRITE,
      KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND,
      KH_ACCESS_REMOTE_READ | KH_ACCESS_MW_BIND};
  work.umr.access = in.one_of(rights);
  work.umr.start = in.below(2) ? 0 : 0x1234567;
  const uint32_t rounds = in.below(3) ? 0 : 1 + in.below(6);
  work.umr.repeat_count = rounds;
  work.umr.num_entries = 1 + in.below(5);
  const Extent all = guest_.oracle().extent(hidden_.memory, hidden_.size);
  std::vector<kh_stride> entries;
  for (uint32_t i = 0; i < work.umr.num_entries; ++i) {
    kh_stride entry{};
    entry.lkey = hidden_.key;
    entry.length = in.u8();
    entry.stride = rounds ? in.u8() : 0;
    const uint64_t reach = entry.length + entry.stride * (rounds ? rounds - 1 : 0);
    entry.addr = hidden_.start + in.u16() % (hidden_.size - reach);
    entries.push_back(entry);
    const auto* bytes = reinterpret_cast<const std::byte*>(&entry);
    work.inline_data.insert(work.inline_data.end(), bytes,
                            bytes + (rounds ? sizeof(kh_stride) : sizeof(kh_klm)));
  }
  std::vector<Extent> extents;
  for (uint32_t round = 0; round < std::max(rounds, 1u); ++round)
    for (const kh_stride& entry : entries)
      if (entry.length > 0)
        extents.push_back(
            {all.offset + (entry.addr - hidden_.start) + round * entry.stride, entry.length});
  Opening fresh;
  open(fresh, extents, (work.umr.access & remote_write) != 0);
  if (!done(work)) return close(fresh);
  close(key);
  fresh.key = key.key;
  fresh.start = work.umr.start;
  key = fresh;
}

void Victim::open(Opening& opening, std::vector<Extent> extents, bool writable) {
  opening.extents = std::move(extents);
  opening.counted = writable;
  if (writable) guest_.oracle().allow(opening.extents);
}

void Victim::close(Opening& opening) {
  if (opening.counted) guest_.oracle().forbid(opening.extents);
  opening.counted = false;
  opening.extents.clear();
}

void Victim::forbid_all() {
  guest_.oracle().forbid(guest_.oracle().extent(open_region_.memory, open_region_.size));
  for (const Opening& opening : openings_)
    if (opening.counted) guest_.oracle().forbid(opening.extents);
}

void Victim::allow_all() {
  guest_.oracle().allow(guest_.oracle().extent(open_region_.memory, open_region_.size));
  for (const Opening& opening : openings_)
    if (opening.counted) guest_.oracle().allow(opening.extents);
}

std::vector<Extent> Victim::slice(const std::vector<Extent>& extents, uint64_t offset,
                                  uint64_t size) {
  std::vector<Extent> out;
  for (const Extent& extent : extents) {
    if (size == 0) break;
    if (offset >= extent.size) {
      offset -= extent.size;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(size, extent.size - offset);
    out.push_back({extent.offset + offset, static_cast<size_t>(n)});
    size -= n;
    offset = 0;
  }
  return out;
}

void Victim::reset() {
  connected = false;
  take_receives();
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE;
  attr.state = KH_QPS_RESET;
  driver_.modify_qp(qp_, attr);
  qp_.sq_pi = qp_.rq_pi = 0;
  qp_.db->sq_pi = qp_.db->rq_pi = 0;
  wrote_queues();
  kh_cqe cqe{};
  while (send_cq_.poll(cqe)) {
  }
  while (recv_cq_.poll(cqe)) {
  }
  guest_.oracle().wrote(send_cq_.db, sizeof(kh_cq_db));
  guest_.oracle().wrote(recv_cq_.db, sizeof(kh_cq_db));
}

}  // namespace keyhole::fuzz
