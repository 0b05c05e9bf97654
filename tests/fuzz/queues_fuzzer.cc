// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile guest with everything that a process and its driver have: queue pairs of all types on
// each other and on another HCA's, a shared receive queue, regions of every kind, windows, indirect
// keys and KLM lists. It posts requests that are nearly right, requests that are noise, changes
// rings under the device's eyes, says that it posted more than there is, takes keys and memory away
// in the middle of a transfer.
//
// The oracle: its own memory changes only where one of its keys with write access lies, or a queue
// that the device fills (claims.h); nothing that is unmapped is touched; the memory of its peer
// changes only where the peer has opened it (victim.h); and the device comes to rest.

#include <array>
#include <optional>

#include "claims.h"
#include "hca/guest_access.h"
#include "input.h"
#include "victim.h"
#include "work.h"

namespace keyhole::fuzz {
namespace {

using test::TestQp;
using test::Work;

constexpr size_t memory = 512 << 10;
constexpr uint32_t all_access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;

class Session {
 public:
  explicit Session(Input input)
      : in_(input),
        rig_(options()),
        guest_(rig_.host(0)),
        claims_(guest_, Claims::keys_count),
        driver_(rig_.driver(0)),
        victim_(rig_, 1) {
    claims_.follow(driver_);
    set_up();
  }

  void run() {
    while (!in_.empty()) {
      step();
      check();
    }
    end();
  }

 private:
  static test::Rig::Options options() {
    test::Rig::Options options;
    options.host.memory = memory;
    options.host.guarded = true;
    options.hca.memory_budget = 64 << 20;
    return options;
  }

  void check() {
    guest_.oracle().check();
    victim_.guest().oracle().check();
  }

  // --- What there is -------------------------------------------------------------------------

  enum QpName { loop_a, loop_b, to_victim, datagram, unreliable_a, unreliable_b, qps };
  using Named = Victim::Named;

  void set_up() {
    pdn_ = driver_.create_pd();
    other_pdn_ = driver_.create_pd();
    claims_.only_pd(pdn_);
    cq_ = driver_.create_cq(6);
    srq_ = driver_.create_srq(pdn_, 4);
    srq_memory_ = srq_.ring;
    for (size_t i = 0; i < qps; ++i) {
      test::QpOptions options;
      options.type = i == datagram ? KH_QPT_UD : i >= unreliable_a ? KH_QPT_UC : KH_QPT_RC;
      options.pdn = pdn_;
      options.send_cqn = options.recv_cqn = cq_.cqn;
      options.log_sq_blocks = 5;
      options.log_rq_size = 3;
      if (i == loop_b) options.srqn = srq_.srqn;
      qp_[i] = driver_.create_qp(options);
    }
    connect(loop_a);
    connect(to_victim);
    connect(datagram);
    connect(unreliable_a);

    test::FakeHost& host = guest_.host();
    ground_ = host.allocate(ground_pages * KH_PAGE_SIZE);
    for (size_t i = 0; i < ground_pages * KH_PAGE_SIZE; ++i)
      ground_[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    list_ = host.allocate(list_pages * KH_PAGE_SIZE);
    page_list_ = host.allocate(KH_PAGE_SIZE);
    // A region whose pages lie in the wrong order.
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t page = host.iova(ground_ + (15 - i) * KH_PAGE_SIZE);
      std::memcpy(page_list_ + i * sizeof(page), &page, sizeof(page));
    }
    guest_.oracle().wrote(ground_, ground_pages * KH_PAGE_SIZE);
    guest_.oracle().wrote(page_list_, KH_PAGE_SIZE);
    for (size_t i = 0; i < keys; ++i)
      create_key(i);
  }

  // Makes the key anew.
  void create_key(size_t i) {
    kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_CREATE_MKEY);
    kh_cmd_create_mkey& body = cmd.create_mkey;
    body.kind = i < windows_1   ? KH_MKEY_DIRECT
                : i < windows_2 ? KH_MKEY_MW1
                : i < indirects ? KH_MKEY_MW2
                : i < klm_lists ? KH_MKEY_INDIRECT
                                : KH_MKEY_KLM_LIST;
    body.pdn = i == 2 ? other_pdn_ : pdn_;
    if (body.kind == KH_MKEY_DIRECT) {
      static constexpr uint32_t access[] = {all_access, KH_ACCESS_REMOTE_READ | KH_ACCESS_MW_BIND,
                                            all_access, KH_ACCESS_LOCAL_WRITE,
                                            all_access | KH_ACCESS_ZERO_BASED};
      static constexpr size_t first_page[] = {0, 4, 6, 12, 10};
      body.access = access[i];
      body.offset = 100;
      body.length = i == 0 || i == 3 ? 3 * KH_PAGE_SIZE + 50 : KH_PAGE_SIZE + 200;
      const std::byte* from = ground_ + first_page[i] * KH_PAGE_SIZE;
      if (i == 3)
        body.pages = {guest_.host().iova(page_list_), 4, KH_PAGE_SHIFT, 1, 0};
      else
        body.pages = guest_.host().pages(from, body.length + body.offset, 0);
      body.start = i == 4 ? 0 : reinterpret_cast<uint64_t>(from) + body.offset;
    } else if (body.kind == KH_MKEY_INDIRECT) {
      body.access = all_access;
      body.max_entries = i == indirects ? 4 : 64;
    } else if (body.kind == KH_MKEY_KLM_LIST) {
      body.length = list_pages * KH_PAGE_SIZE;
      body.pages = guest_.host().pages(list_, body.length, 0);
    }
    const std::optional<kh_admin_cqe> made = command(cmd);
    if (made && made->status == KH_ST_OK) key_[i] = {made->result[0], body.start, body.length};
  }

  std::optional<kh_admin_cqe> command(const kh_admin_cmd& cmd) {
    try {
      return driver_.command(cmd);
    } catch (const std::runtime_error& error) {
      if (rig_.hca(0).ready()) fail(error.what());
      return std::nullopt;  // it has stopped, since memory of an EQ is gone
    }
  }

  TestQp& peer_of(size_t i) {
    static constexpr size_t peers[] = {loop_b, loop_a, 0, 0, unreliable_b, unreliable_a};
    return i == to_victim ? victim_.qp() : qp_[peers[i]];
  }
  test::FakeDriver& driver_of_peer(size_t i) { return i == to_victim ? victim_.driver() : driver_; }

  // Both ends, from the beginning.
  void connect(size_t i) {
    if (!writable(qp_[i])) return;
    reset(qp_[i]);
    try {
      if (i == datagram) return driver_.bring_up_ud(qp_[i], 0x1234);
      TestQp& peer = peer_of(i);
      if (i == to_victim)
        victim_.reset();
      else if (writable(peer))
        reset(peer);
      else
        return;
      driver_.bring_up(qp_[i], driver_of_peer(i), peer);
      driver_of_peer(i).bring_up(peer, driver_, qp_[i]);
      if (i == to_victim) victim_.connected = true;
      // NOLINTNEXTLINE(bugprone-empty-catch): the fuzzer goes on with what there is
    } catch (const std::runtime_error&) {
      // Not all of it is possible any more: the memory of a queue is gone, or the HCA is.
    }
  }
  void reset(TestQp& qp) {
    kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_MODIFY_QP, qp.qpn);
    cmd.modify_qp.mask = KH_QP_STATE;
    cmd.modify_qp.state = KH_QPS_RESET;
    command(cmd);
    qp.sq_pi = qp.rq_pi = 0;
    qp.db->sq_pi = qp.db->rq_pi = 0;
    wrote(qp);
  }

  bool writable(const void* at, size_t size) {
    const Extent extent = guest_.oracle().extent(at, size);
    return guest_.may_write(extent.offset, extent.size);
  }
  bool writable(const TestQp& qp) { return writable(qp.memory, qp.memory_size); }
  void wrote(const TestQp& qp) { guest_.oracle().wrote(qp.memory, qp.memory_size); }

  // --- What the guest does -------------------------------------------------------------------

  void step() {
    switch (in_.u8() % 20) {
      case 0:
        return post_noise();
      case 1:
        return lie_about_index();
      case 2:
        return mark();
      case 3:
        return rewrite_ring();
      case 4:
        for (unsigned n = in_.below(32); n > 0; --n)
          rig_.fabric().run();
        return;
      case 5:
        return rig_.run();
      case 6:
        return rig_.run_for(uint64_t{in_.u16()} * 1000);
      case 7:
        return write_list();
      case 8:
        return renew_key();
      case 9:
        return change_state();
      case 10:
        return flip_memory();
      case 11:
        return poll();
      case 12:
        return victim_.act(in_);
      case 13:
      case 14:
        return post_receive();
      case 15:
        return try_stale_key();
      default:
        return post();
    }
  }

  // A key of the victim's that was or will be: all 32 bits count, so it reaches nothing.
  void try_stale_key() {
    connect(to_victim);  // and nothing else is under way there
    const std::vector<Named> theirs = victim_.keys();
    Named key = theirs[in_.u8() % theirs.size()];
    key.key = (key.key & ~0xffu) | ((key.key + 1 + in_.u8() % 255) & 0xff);
    Work work;
    work.opcode = in_.below(2) ? KH_OP_WRITE : KH_OP_FETCH_ADD;
    work.rkey = key.key;
    work.remote_addr = (key.start + in_.u8() % 64 + 7) & ~uint64_t{7};
    work.swap_add = 0x0101010101010101;
    work.sge = {{key_[0].start, 8, key_[0].key}};
    rig_.run();
    victim_.forbid_all();
    put(qp_[to_victim], test::lay_out(work, false), true);
    rig_.run();
    check();
    victim_.allow_all();
  }

  Named some_key() {
    const uint8_t which = in_.u8();
    if (which < 0xc0) return key_[which % keys];
    if (which == 0xff) return {in_.u32(), 0, 0};
    if (which >= 0xf0) {
      Named near = key_[which % keys];
      near.key += in_.u8();
      return near;
    }
    const std::vector<Named> theirs = victim_.keys();
    return theirs[which % theirs.size()];
  }
  uint64_t some_address(const Named& key) {
    switch (in_.below(16)) {
      case 0:
        return in_.u64();
      default:
        return key.start + in_.u16() % (key.length ? key.length : 4096);
    }
  }
  uint32_t some_length() {
    switch (in_.below(16)) {
      case 0:
        return in_.u32();
      case 1:
        return 0;
      case 2:
      case 3:
        return in_.u16();
      default:
        return in_.u8();
    }
  }
  // Where checks are off by one it is at an edge.
  kh_sge some_sge() {
    const uint8_t how = in_.below(8);
    const Named key = some_key();
    if (how == 0) {
      const uint32_t inside = in_.u8();
      return {key.start + key.length - inside, inside + in_.below(3), key.key};
    }
    if (how == 1) return {key.start - in_.below(3), in_.u8(), key.key};
    return {some_address(key), some_length(), key.key};
  }

  Work some_work(size_t on) {
    static constexpr uint8_t opcodes[] = {KH_OP_SEND,
                                          KH_OP_SEND_IMM,
                                          KH_OP_SEND_INV,
                                          KH_OP_WRITE,
                                          KH_OP_WRITE,
                                          KH_OP_WRITE_IMM,
                                          KH_OP_READ,
                                          KH_OP_READ,
                                          KH_OP_CMP_SWAP,
                                          KH_OP_FETCH_ADD,
                                          KH_OP_MASKED_CMP_SWAP,
                                          KH_OP_MASKED_FETCH_ADD,
                                          KH_OP_FLUSH,
                                          KH_OP_LOCAL_INV,
                                          KH_OP_BIND_MW,
                                          KH_OP_BIND_MW,
                                          KH_OP_REG_MR,
                                          KH_OP_UMR_FILL,
                                          KH_OP_UMR_FILL,
                                          KH_OP_UMR_INV,
                                          KH_OP_NOP,
                                          KH_OP_ATOMIC_WRITE};
    Work work;
    work.opcode = in_.one_of(opcodes);
    work.flags =
        in_.below(8) ? KH_WQE_SIGNALED | (in_.u8() & (KH_WQE_FENCE | KH_WQE_SOLICITED)) : in_.u8();
    work.wr_id = 1;
    switch (work.opcode) {
      case KH_OP_BIND_MW:
        some_bind(work.bind);
        break;
      case KH_OP_UMR_FILL:
        some_fill(work);
        break;
      case KH_OP_LOCAL_INV:
      case KH_OP_UMR_INV:
        work.imm = some_key().key;
        break;
      default:
        some_data(work, on);
    }
    if (in_.below(16) == 0) work.nblocks = in_.u8();
    if (in_.below(16) == 0) work.num_sge = in_.u8();
    return work;
  }

  void some_data(Work& work, size_t on) {
    if (work.opcode == KH_OP_SEND_INV || in_.below(4) == 0) work.imm = some_key().key;
    const Named remote = some_key();
    work.rkey = remote.key;
    work.remote_addr = some_address(remote);
    work.swap_add = in_.u8();
    work.masked = {in_.u8(), 0, in_.u64(), 0};
    const bool atomic = work.opcode >= KH_OP_CMP_SWAP && work.opcode != KH_OP_FLUSH;
    if (atomic && in_.below(8)) work.remote_addr &= ~uint64_t{7};
    if (work.opcode == KH_OP_FLUSH) {
      work.flush = {in_.below(4), in_.below(3), {}};
      work.flush_length = some_length();
    } else if (work.opcode == KH_OP_ATOMIC_WRITE) {
      work.flags |= KH_WQE_INLINE;
      work.inline_data.resize(8);
    } else if ((work.flags & KH_WQE_INLINE) != 0) {
      work.inline_data.resize(in_.u8());
    } else {
      for (unsigned n = atomic ? 1 : in_.below(5); n > 0; --n) {
        work.sge.push_back(some_sge());
        if (atomic && in_.below(8)) work.sge.back().length = 8;
      }
    }
    if (in_.below(4) == 0) {
      uint64_t total = atomic ? 8 : work.inline_data.size();
      for (const kh_sge& sge : work.sge)
        total += atomic ? 0 : sge.length;
      work.remote_addr =
          remote.start + (in_.below(4) ? remote.length - total : 0) + in_.below(3) - 1;
    }
    if (on != datagram) return;
    work.av = driver_.path_to(in_.below(2) ? victim_.driver() : driver_);
    if (in_.below(8) == 0) work.av.sgid_index = in_.u8();
    work.dest_qpn = in_.below(8) ? qp_[datagram].qpn : in_.u32();
    work.qkey = in_.below(8) ? 0x1234 : in_.u32();
  }

  void some_bind(kh_wqe_bind& bind) {
    Named& window = key_[windows_1 + in_.u8() % (indirects - windows_1)];
    const Named on = some_key();
    bind.mw_key = in_.below(16) ? window.key : some_key().key;
    bind.new_key = (bind.mw_key & ~0xffu) | ((bind.mw_key + (in_.below(8) ? 1 : in_.u8())) & 0xff);
    bind.mr_key = on.key;
    bind.access = in_.u8() % 64;
    bind.addr = some_address(on);
    bind.length = in_.below(8) ? in_.u16() : in_.u64();
    // Most likely it will work out.
    if (bind.mw_key == window.key)
      window = {bind.new_key, bind.access & KH_ACCESS_ZERO_BASED ? 0 : bind.addr, bind.length};
  }

  void some_fill(Work& work) {
    Named& key = key_[indirects + in_.u8() % (klm_lists - indirects)];
    work.umr.key = in_.below(16) ? key.key : some_key().key;
    work.umr.access = in_.below(4) ? all_access : in_.u8();
    work.umr.start = in_.below(8) ? 0 : in_.u64();
    work.umr.repeat_count = in_.below(2) ? 0 : in_.below(8) ? 1 + in_.u8() : in_.u32();
    if (in_.below(3) == 0) {
      work.umr.list_key = in_.below(8) ? key_[klm_lists].key : some_key().key;
      work.umr.list_offset = in_.below(4) ? in_.u8() * 8u : in_.u32();
      work.umr.num_entries = in_.below(8) ? 1 + in_.u8() % 64 : in_.u32();
    } else {
      work.flags |= KH_WQE_INLINE;
      const unsigned n = 1 + in_.below(6);
      work.umr.num_entries = in_.below(16) ? n : in_.u32();
      for (unsigned i = 0; i < n; ++i) {
        const kh_sge sge = some_sge();
        const kh_stride entry{sge.addr, sge.length, sge.lkey,
                              work.umr.repeat_count && in_.below(8) == 0 ? in_.u64() : in_.u8()};
        const auto* bytes = reinterpret_cast<const std::byte*>(&entry);
        work.inline_data.insert(
            work.inline_data.end(), bytes,
            bytes + (work.umr.repeat_count ? sizeof(kh_stride) : sizeof(kh_klm)));
      }
    }
    key.start = work.umr.start;
    key.length = 256;
  }

  void post() {
    const size_t on = in_.u8() % qps;
    TestQp& qp = qp_[on];
    const Work work = some_work(on);
    std::vector<std::byte> wqe = test::lay_out(work, on == datagram);
    for (unsigned n = in_.below(16); n > 13; --n)
      wqe[in_.u8() % wqe.size()] = std::byte{in_.u8()};
    put(qp, wqe, in_.below(4) != 0);
  }

  void post_noise() {
    TestQp& qp = qp_[in_.u8() % qps];
    std::vector<std::byte> wqe = in_.bytes(64 * (1 + in_.below(4)));
    wqe.resize((wqe.size() + KH_WQE_BLOCK) / KH_WQE_BLOCK * KH_WQE_BLOCK);
    put(qp, wqe, true);
  }

  void put(TestQp& qp, std::span<const std::byte> wqe, bool ring) {
    if (!writable(qp)) return;
    if (wqe.size() > size_t{KH_WQE_BLOCK} << qp.log_sq_blocks) return;
    qp.put(wqe);
    if (ring) qp.ring();
    wrote(qp);
  }

  void post_receive() {
    const uint8_t which = in_.u8();
    std::array<kh_sge, 3> sges;
    const size_t n = in_.below(4);
    for (size_t i = 0; i < n; ++i)
      sges[i] = some_sge();
    const std::span<const kh_sge> sge(sges.data(), n);
    if (which % 3 == 0) {
      const size_t size = (size_t{1} << (srq_.log_size + srq_.log_stride)) + sizeof(kh_srq_db);
      if (!writable(srq_memory_, size)) return;
      srq_.post(1, sge);
      guest_.oracle().wrote(srq_memory_, size);
      return;
    }
    TestQp& qp = qp_[which % qps];
    if (&qp == &qp_[loop_b] || !writable(qp)) return;
    qp.post_receive(1, sge);
    wrote(qp);
  }

  void lie_about_index() {
    TestQp& qp = qp_[in_.u8() % qps];
    if (!writable(qp)) return;
    const uint32_t by = in_.below(4) ? in_.u8() : in_.u32();
    (in_.below(4) ? qp.sq_pi : qp.rq_pi) += by;
    qp.db->rq_pi = qp.rq_pi;
    qp.ring();
    wrote(qp);
  }

  void mark() {
    guest_.host().doorbell_page(in_.below(4))[in_.u16() % KH_DB_SLOTS] = std::byte{in_.u8()};
    rig_.hca(0).wake(in_.below(5));
  }

  // What has been posted is changed under way: a ring, a record, a receive.
  void rewrite_ring() {
    const TestQp& qp = qp_[in_.u8() % qps];
    const size_t at = in_.u16() % qp.memory_size;
    const std::vector<std::byte> bytes = in_.bytes(in_.below(32));
    if (bytes.empty() || at + bytes.size() > qp.memory_size) return;
    guest_.write(guest_.oracle().extent(qp.memory, 0).offset + at, bytes.data(), bytes.size());
  }

  void write_list() {
    size_t at = guest_.oracle().extent(list_, 0).offset + in_.u8() * 8;
    const bool strided = in_.u8() & 1;
    for (unsigned n = 1 + in_.below(16); n > 0; --n) {
      const kh_sge sge = some_sge();
      const kh_stride entry{sge.addr, sge.length, sge.lkey, strided ? in_.u8() : uint64_t{0}};
      const size_t size = strided ? sizeof(kh_stride) : sizeof(kh_klm);
      guest_.write(at, &entry, size);
      at += size;
    }
  }

  void renew_key() {
    const size_t which = in_.u8() % keys;
    if (in_.below(4) == 0) {
      kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_MODIFY_MKEY, key_[which].key);
      cmd.modify_mkey.mask = in_.u8() & (KH_MKEY_MOD_PD | KH_MKEY_MOD_ACCESS);
      if (cmd.modify_mkey.mask & KH_MKEY_MOD_PD)
        cmd.modify_mkey.pdn = in_.below(2) ? pdn_ : other_pdn_;
      if (cmd.modify_mkey.mask & KH_MKEY_MOD_ACCESS) cmd.modify_mkey.access = in_.u8() & 0x1f;
      const std::optional<kh_admin_cqe> changed = command(cmd);
      if (changed && changed->status == KH_ST_OK) key_[which].key = changed->result[0];
      return;
    }
    const std::optional<kh_admin_cqe> gone =
        command(test::FakeDriver::make(KH_ADM_DESTROY_MKEY, key_[which].key));
    check();
    // A window's key is a guess; one that is lost is lost.
    if (gone && gone->status == KH_ST_OK && in_.below(4)) create_key(which);
  }

  void change_state() {
    const size_t which = in_.u8() % qps;
    if (in_.below(4)) return connect(which);
    kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_MODIFY_QP, qp_[which].qpn);
    cmd.modify_qp.mask = KH_QP_STATE | (in_.below(4) ? 0 : in_.u32());
    cmd.modify_qp.state = in_.below(8);
    cmd.modify_qp.access = in_.u8() & KH_ACCESS_REMOTE;
    cmd.modify_qp.path_mtu = in_.below(7);
    command(cmd);
  }

  // Any page that is the guest's own: data, lists or queues.
  void flip_memory() {
    const size_t first = guest_.first() / KH_PAGE_SIZE;
    const size_t page = first + in_.u8() % (memory / KH_PAGE_SIZE - first);
    switch (in_.below(4)) {
      case 0:
        return guest_.unmap(page);
      case 1:
        return guest_.write_protect(page);
      default:
        return guest_.map_all();
    }
  }

  void poll() {
    if (!writable(cq_.memory, cq_.memory_size)) return;
    kh_cqe cqe{};
    while (cq_.poll(cqe)) {
    }
    cq_.arm(in_.u8() % 3);
    guest_.oracle().wrote(cq_.db, sizeof(kh_cq_db));
    kh_eqe eqe{};
    while (driver_.async_eq.poll(eqe) || driver_.completion_eq.poll(eqe)) {
    }
    driver_.async_eq.arm();
    driver_.completion_eq.arm();
  }

  void end() {
    rig_.run_for(10'000'000);
    check();
    driver_.disable();
    claims_.drop_all();
    rig_.run_for(10'000'000);
    check();
    require(rig_.hca(0).snapshot().qps == 0, "a queue pair outlives a reset");
    require(victim_.driver().command(test::FakeDriver::make(KH_ADM_NOP)).status == KH_ST_OK,
            "the other HCA no longer answers");
  }

  // Keys by index: direct ones first.
  static constexpr size_t windows_1 = 5, windows_2 = 7, indirects = 9, klm_lists = 12, keys = 13;
  static constexpr size_t ground_pages = 16, list_pages = 2;

  Input in_;
  test::Rig rig_;
  Guest guest_;
  Claims claims_;
  test::FakeDriver& driver_;
  Victim victim_;
  uint32_t pdn_ = 0, other_pdn_ = 0;
  test::TestCq cq_;
  test::TestSrq srq_;
  std::byte* srq_memory_ = nullptr;
  std::array<TestQp, qps> qp_;
  std::byte* ground_ = nullptr;
  std::byte* list_ = nullptr;
  std::byte* page_list_ = nullptr;
  std::array<Named, keys> key_;
};

}  // namespace
}  // namespace keyhole::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keyhole::fuzz::Session(keyhole::fuzz::Input(data, size)).run();
  return 0;
}
