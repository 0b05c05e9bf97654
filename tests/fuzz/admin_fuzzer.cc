// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile driver on the admin queue: any command with any payload in any order.
//
// Random bytes alone are refused at the first check and reach nothing, so a command begins as one
// that is right, made of objects that exist, and the input then changes bytes of it. Or it is 128
// bytes of the input. Page lists are written by the input too, and pages come and go.
//
// The oracle: the device writes only what a command gave it and not what it took back (claims.h);
// each command is answered; a reset leaves no object and no byte of memory spent; and the other HCA
// of the process serves on.

#include <array>
#include <optional>

#include "claims.h"
#include "hca/guest_access.h"
#include "input.h"

namespace keyhole::fuzz {
namespace {

constexpr size_t memory = 256 << 10;

class Session {
 public:
  explicit Session(Input input)
      : in_(input), rig_(options()), guest_(rig_.host(0)), claims_(guest_, Claims::keys_count) {
    claims_.follow(rig_.driver(0));
    know_eqs();
  }

  void run() {
    while (!in_.empty()) {
      step();
      guest_.oracle().check();
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

  enum Kind { pd, mkey, eq, cq, srq, qp, kinds };

  // What an HCA holds that has been enabled before and has nothing.
  static const Hca::Snapshot& empty() {
    static const Hca::Snapshot snapshot = [] {
      test::Rig rig(options());
      rig.driver(0).disable();
      return rig.hca(0).snapshot();
    }();
    return snapshot;
  }

  void know_eqs() {
    for (auto& numbers : known_)
      numbers.clear();
    known_[eq] = {rig_.driver(0).async_eq.eqn, rig_.driver(0).completion_eq.eqn};
  }

  void step() {
    switch (in_.below(16)) {
      case 0:
        scribble();
        break;
      case 1:
        flip_memory();
        break;
      case 2:
        rig_.run_for(uint64_t{in_.u16()} * 100);
        break;
      case 3:
        ring();
        break;
      case 4:
        write_register();
        break;
      case 5:
        // Seldom: it ends what the input has built so far.
        if (in_.below(4) == 0) restart();
        break;
      case 6:
        send(in_.take<kh_admin_cmd>());
        break;
      case 7:
        take_events();
        break;
      default:
        send(command());
    }
  }

  // --- Memory ------------------------------------------------------------------------------

  size_t pages() const { return (memory - guest_.first()) / KH_PAGE_SIZE; }
  size_t page_offset() { return guest_.first() + in_.u8() % pages() * KH_PAGE_SIZE; }

  uint64_t address() {
    switch (in_.below(8)) {
      case 0:
        return in_.u64();
      case 1:
        return ~uint64_t{0} - in_.u16();
      case 2:
        return guest_.iova(page_offset()) + in_.u16() % KH_PAGE_SIZE;
      default:
        return guest_.iova(page_offset());
    }
  }

  void scribble() {
    const size_t at = guest_.first() + (in_.u32() % (memory - guest_.first() - 64) & ~size_t{7});
    for (unsigned n = 1 + in_.below(8), i = 0; i < n; ++i)
      guest_.put(at + i * 8, in_.below(3) ? address() : in_.u16());
  }

  void flip_memory() {
    const size_t page = page_offset() / KH_PAGE_SIZE;
    switch (in_.below(4)) {
      case 0:
        guest_.unmap(page);
        break;
      case 1:
        guest_.write_protect(page);
        break;
      default:
        guest_.map_all();
    }
  }

  // --- Doorbells and registers --------------------------------------------------------------

  void ring() {
    const uint32_t context = in_.below(4);
    rig_.host(0).doorbell_page(context)[in_.u16() % KH_DB_SLOTS] = std::byte{in_.u8()};
    rig_.hca(0).wake(in_.u8());
    rig_.run();
  }

  // Not those that say where the admin queue is or start it: see restart().
  void write_register() {
    const uint16_t offset = in_.u16() % KH_MSIX_TABLE_OFFSET;
    const uint32_t value = in_.u32();
    if (offset >= KH_REG_CONTROL && offset < KH_REG_ADMIN_SIZE + 4) {
      rig_.hca(0).read_register(offset);
      return;
    }
    rig_.hca(0).write_register(offset, value);
    rig_.hca(0).read_register(offset);
  }

  void restart() {
    rig_.driver(0).disable();
    require_empty();
    claims_.drop_all();
    // An admin queue anywhere; then one that is right.
    for (unsigned n = in_.below(4); n > 0; --n) {
      const uint32_t offset = KH_REG_ADMIN_SQ + in_.u8() % 7 * 4;
      rig_.hca(0).write_register(offset,
                                 in_.below(2) ? static_cast<uint32_t>(address()) : in_.u32());
    }
    rig_.hca(0).write_register(KH_REG_CONTROL, KH_CONTROL_ENABLE);
    guest_.oracle().check();
    rig_.hca(0).write_register(KH_REG_CONTROL, 0);
    require_empty();
    guest_.map_all();
    start();
  }

  // The driver takes new EQs, which are new pages: after many restarts there are none.
  void start() {
    try {
      rig_.driver(0).start(1);
    } catch (const std::bad_alloc&) {
      in_ = Input(nullptr, 0);
      return;
    }
    for (const test::TestEq* made : {&rig_.driver(0).async_eq, &rig_.driver(0).completion_eq})
      guest_.give_to_driver(made->memory);
    know_eqs();
  }

  void require_empty() {
    const Hca::Snapshot now = rig_.hca(0).snapshot();
    const Hca::Snapshot& was = empty();
    require(now.pds == was.pds && now.eqs == was.eqs && now.cqs == was.cqs &&
                now.srqs == was.srqs && now.qps == was.qps && now.mkeys == was.mkeys,
            "objects outlive a reset");
    require(now.memory_used == was.memory_used, "memory is spent after a reset");
  }

  void take_events() {
    kh_eqe eqe;
    while (rig_.driver(0).async_eq.poll(eqe)) {
    }
    while (rig_.driver(0).completion_eq.poll(eqe)) {
    }
    rig_.driver(0).async_eq.arm();
  }

  // --- Commands ------------------------------------------------------------------------------

  uint32_t number(Kind kind) {
    const uint8_t which = in_.u8();
    const auto& known = known_[kind];
    if (which == 0xff) return in_.u32();
    if (known.empty()) return which;
    return known[which % known.size()];
  }

  kh_pages some_pages() {
    kh_pages pages{};
    pages.page_shift = KH_PAGE_SHIFT;
    pages.levels = in_.u8() % 8 < 5 ? 0 : in_.below(4);
    pages.addr = address();
    pages.npages = 1 + in_.u8() % 64;
    return pages;
  }
  uint32_t offset() { return uint32_t{in_.u8()} * 64; }

  kh_admin_cmd command() {
    static constexpr kh_admin_op opcodes[] = {
        KH_ADM_NOP,          KH_ADM_QUERY_DEVICE,    KH_ADM_QUERY_STATS, KH_ADM_SET_PORT,
        KH_ADM_SET_GID,      KH_ADM_CREATE_EQ,       KH_ADM_DESTROY_EQ,  KH_ADM_CREATE_CONTEXT,
        KH_ADM_CREATE_PD,    KH_ADM_DESTROY_CONTEXT, KH_ADM_DESTROY_PD,  KH_ADM_CREATE_MKEY,
        KH_ADM_DESTROY_MKEY, KH_ADM_MODIFY_MKEY,     KH_ADM_QUERY_MKEY,  KH_ADM_CREATE_CQ,
        KH_ADM_DESTROY_CQ,   KH_ADM_RESIZE_CQ,       KH_ADM_MODIFY_CQ,   KH_ADM_CREATE_SRQ,
        KH_ADM_DESTROY_SRQ,  KH_ADM_MODIFY_SRQ,      KH_ADM_QUERY_SRQ,   KH_ADM_RESIZE_SRQ,
        KH_ADM_CREATE_QP,    KH_ADM_DESTROY_QP,      KH_ADM_MODIFY_QP,   KH_ADM_QUERY_QP,
        KH_ADM_ATTACH_MCAST, KH_ADM_DETACH_MCAST,    KH_ADM_CREATE_NIC,  KH_ADM_DESTROY_NIC,
    };
    kh_admin_cmd cmd = test::FakeDriver::make(in_.one_of(opcodes));
    fill_in(cmd);
    // 0 to 3 changes of it.
    for (unsigned n = in_.below(8); n > 4; --n) {
      const uint8_t at = in_.u8() % sizeof(cmd);
      reinterpret_cast<uint8_t*>(&cmd)[at] = in_.u8();
    }
    return cmd;
  }

  void fill_in(kh_admin_cmd& cmd) {
    uint32_t no_handle = 0;
    switch (cmd.hdr.opcode) {
      case KH_ADM_QUERY_DEVICE:
      case KH_ADM_QUERY_STATS:
        cmd.hdr.out_addr = address() & ~uint64_t{63};
        break;
      case KH_ADM_SET_PORT:
        cmd.set_port.flags = in_.u8() & 7;
        cmd.set_port.mtu = in_.below(2) ? 1500 : in_.u16();
        cmd.set_port.mac[0] = 2;
        cmd.set_port.mac[5] = in_.u8();
        break;
      case KH_ADM_SET_GID:
        cmd.set_gid.gid[10] = cmd.set_gid.gid[11] = 0xff;
        cmd.set_gid.gid[12] = 10;
        cmd.set_gid.gid[15] = in_.u8();
        cmd.set_gid.mac[0] = 2;
        cmd.set_gid.vlan = in_.below(2) ? KH_VLAN_NONE : in_.u16();
        cmd.set_gid.index = in_.u8();
        cmd.set_gid.valid = in_.u8() & 1;
        break;
      case KH_ADM_CREATE_EQ:
        cmd.create_eq.pages = some_pages();
        cmd.create_eq.pages.levels = 0;
        cmd.create_eq.ring_offset = offset();
        cmd.create_eq.db_offset = offset();
        cmd.create_eq.log_size = 4 + in_.below(6);
        cmd.create_eq.type = in_.u8() & 1;
        cmd.create_eq.vector = in_.below(16);
        break;
      case KH_ADM_CREATE_CONTEXT:
      case KH_ADM_DESTROY_CONTEXT:
        cmd.hdr.handle = in_.u8() % 20;
        break;
      case KH_ADM_CREATE_MKEY:
        create_mkey(cmd.create_mkey);
        break;
      case KH_ADM_MODIFY_MKEY:
        cmd.hdr.handle = number(mkey);
        modify_mkey(cmd.modify_mkey);
        break;
      case KH_ADM_QUERY_MKEY:
        cmd.hdr.handle = number(mkey);
        cmd.hdr.out_addr = address() & ~uint64_t{63};
        break;
      case KH_ADM_RESIZE_CQ:
        cmd.hdr.handle = number(cq);
        cmd.create_cq.pages = some_pages();
        cmd.create_cq.ring_offset = offset();
        cmd.create_cq.db_offset = offset();
        cmd.create_cq.log_size = 1 + in_.below(8);
        break;
      case KH_ADM_CREATE_CQ:
        cmd.create_cq.pages = some_pages();
        cmd.create_cq.ring_offset = offset();
        cmd.create_cq.db_offset = offset();
        cmd.create_cq.eqn = number(eq);
        cmd.create_cq.ctx = in_.below(3);
        cmd.create_cq.log_size = 1 + in_.below(8);
        cmd.create_cq.flags = in_.u8() & 3;
        break;
      case KH_ADM_MODIFY_CQ:
        cmd.hdr.handle = number(cq);
        cmd.modify_cq.count = in_.u16();
        cmd.modify_cq.period = in_.u16();
        break;
      case KH_ADM_RESIZE_SRQ:
        cmd.hdr.handle = number(srq);
        no_handle = 1;
        [[fallthrough]];
      case KH_ADM_CREATE_SRQ:
        cmd.create_srq.pages = some_pages();
        cmd.create_srq.ring_offset = offset();
        cmd.create_srq.db_offset = offset();
        cmd.create_srq.log_size = in_.below(8);
        cmd.create_srq.log_stride = 5 + in_.below(6);
        if (no_handle) break;
        cmd.create_srq.pdn = number(pd);
        cmd.create_srq.ctx = in_.below(3);
        break;
      case KH_ADM_MODIFY_SRQ:
        cmd.hdr.handle = number(srq);
        cmd.modify_srq.limit = in_.u8();
        break;
      case KH_ADM_CREATE_QP:
        create_qp(cmd.create_qp);
        break;
      case KH_ADM_MODIFY_QP:
        cmd.hdr.handle = number(qp);
        modify_qp(cmd.modify_qp);
        break;
      case KH_ADM_QUERY_QP:
        cmd.hdr.handle = number(qp);
        cmd.hdr.out_addr = address() & ~uint64_t{63};
        break;
      case KH_ADM_ATTACH_MCAST:
      case KH_ADM_DETACH_MCAST:
        cmd.hdr.handle = number(qp);
        cmd.mcast.mgid[0] = 0xff;
        cmd.mcast.mgid[15] = in_.below(4);
        break;
      case KH_ADM_CREATE_NIC:
        cmd.create_nic.pages = some_pages();
        cmd.create_nic.pages.levels = 0;
        cmd.create_nic.tx_offset = offset();
        cmd.create_nic.rx_offset = offset();
        cmd.create_nic.rxc_offset = offset();
        cmd.create_nic.db_offset = offset();
        cmd.create_nic.vector = in_.below(16);
        cmd.create_nic.db_slot = in_.u8();
        cmd.create_nic.log_tx_size = 4 + in_.below(3);
        cmd.create_nic.log_rx_size = 4 + in_.below(3);
        break;
      case KH_ADM_DESTROY_EQ:
        cmd.hdr.handle = number(eq);
        break;
      case KH_ADM_DESTROY_PD:
        cmd.hdr.handle = number(pd);
        break;
      case KH_ADM_DESTROY_MKEY:
        cmd.hdr.handle = number(mkey);
        break;
      case KH_ADM_DESTROY_CQ:
        cmd.hdr.handle = number(cq);
        break;
      case KH_ADM_DESTROY_SRQ:
      case KH_ADM_QUERY_SRQ:
        cmd.hdr.handle = number(srq);
        break;
      case KH_ADM_DESTROY_QP:
        cmd.hdr.handle = number(qp);
        break;
      default:
        break;
    }
  }

  void create_mkey(kh_cmd_create_mkey& body) {
    body.kind = in_.below(8);
    body.pdn = number(pd);
    const bool memory_key = body.kind == KH_MKEY_DIRECT || body.kind == KH_MKEY_KLM_LIST;
    if (body.kind == KH_MKEY_DIRECT || body.kind == KH_MKEY_INDIRECT)
      body.access = in_.u8() & KH_ACCESS_MASK;
    if (body.kind == KH_MKEY_FREE || body.kind == KH_MKEY_INDIRECT)
      body.max_entries = in_.below(4) ? in_.u16() : in_.u32();
    if (!memory_key) return;
    body.pages = some_pages();
    body.length = in_.u16();
    body.offset = in_.below(2) ? 0 : in_.u16() % KH_PAGE_SIZE;
    if (body.kind == KH_MKEY_DIRECT && !(body.access & KH_ACCESS_ZERO_BASED))
      body.start = in_.below(4) ? 0x10000 : in_.u64();
  }

  void modify_mkey(kh_cmd_modify_mkey& body) {
    body.mask = in_.u8() & 7;
    if (body.mask & KH_MKEY_MOD_PD) body.pdn = number(pd);
    if (body.mask & KH_MKEY_MOD_ACCESS) body.access = in_.u8() & KH_ACCESS_MASK;
    if (!(body.mask & KH_MKEY_MOD_TRANSLATION)) return;
    body.pages = some_pages();
    body.length = in_.u16();
    body.offset = in_.below(2) ? 0 : in_.u16() % KH_PAGE_SIZE;
    body.start = in_.below(4) ? 0x10000 : in_.u64();
  }

  void create_qp(kh_cmd_create_qp& body) {
    body.pages = some_pages();
    body.sq_offset = offset();
    body.rq_offset = offset();
    body.db_offset = offset();
    body.pdn = number(pd);
    body.send_cqn = number(cq);
    body.recv_cqn = number(cq);
    const uint8_t shape = in_.u8();
    body.srqn = shape & 1 ? number(srq) : KH_NO_SRQ;
    body.has_sq = (shape & 2) != 0;
    body.has_rq = (shape & 5) == 4;
    body.ctx = in_.below(3);
    body.db_slot = in_.u8();
    body.type = in_.below(4);
    body.log_sq_blocks = in_.below(8);
    if (body.has_rq) {
      body.log_rq_size = in_.below(6);
      body.log_rq_stride = 5 + in_.below(6);
      body.max_recv_sge = ((1u << body.log_rq_stride) - sizeof(kh_rwqe)) / sizeof(kh_sge);
    }
    body.max_send_sge = in_.below(33);
  }

  void modify_qp(kh_qp_attr& attr) {
    attr.state = in_.below(7);
    attr.mask = KH_QP_STATE;
    attr.port = 1;
    attr.path_mtu = 1 + in_.below(5);
    attr.dest_qpn = number(qp);
    attr.av.dgid[10] = attr.av.dgid[11] = 0xff;
    attr.av.dgid[12] = 10;
    attr.av.dgid[15] = 1 + in_.below(2);
    attr.av.dmac[0] = 2;
    attr.av.dmac[5] = attr.av.dgid[15];
    attr.timeout = in_.below(32);
    attr.retry_cnt = attr.rnr_retry = in_.below(8);
    attr.max_rd_atomic = attr.max_dest_rd_atomic = in_.below(17);
    attr.access = in_.u8() & KH_ACCESS_REMOTE;
    // What the transition asks for, RC's first; or anything.
    static constexpr uint32_t init = KH_QP_PKEY_INDEX | KH_QP_PORT;
    static constexpr uint32_t rtr = KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN;
    switch (in_.below(5)) {
      case 0:
        attr.mask |= in_.u32();
        return;
      case 1:
        if (attr.state == KH_QPS_INIT) attr.mask |= init | KH_QP_QKEY;
        if (attr.state == KH_QPS_RTS) attr.mask |= KH_QP_SQ_PSN;
        return;
      case 2:
        if (attr.state == KH_QPS_INIT) attr.mask |= init | KH_QP_ACCESS_FLAGS;
        if (attr.state == KH_QPS_RTR) attr.mask |= rtr;
        if (attr.state == KH_QPS_RTS) attr.mask |= KH_QP_SQ_PSN;
        return;
      default:
        if (attr.state == KH_QPS_INIT) attr.mask |= init | KH_QP_ACCESS_FLAGS;
        if (attr.state == KH_QPS_RTR)
          attr.mask |= rtr | KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_MIN_RNR_TIMER;
        if (attr.state == KH_QPS_RTS)
          attr.mask |= KH_QP_SQ_PSN | KH_QP_TIMEOUT | KH_QP_RETRY_CNT | KH_QP_RNR_RETRY |
                       KH_QP_MAX_QP_RD_ATOMIC;
    }
  }

  void send(const kh_admin_cmd& command) {
    kh_admin_cqe result{};
    try {
      result = rig_.driver(0).command(command);
    } catch (const std::runtime_error& error) {
      // The HCA may stop, when memory of an EQ has gone; then nobody answers.
      if (rig_.hca(0).ready()) fail(error.what());
      guest_.oracle().check();
      rig_.driver(0).disable();
      guest_.map_all();
      claims_.drop_all();
      return start();
    }
    if (result.status == KH_ST_OK) remember(command, result.result[0]);
  }

  void remember(const kh_admin_cmd& command, uint32_t number) {
    auto add = [&](Kind kind) {
      if (known_[kind].size() < 64) known_[kind].push_back(number);
    };
    auto remove = [&](Kind kind) { std::erase(known_[kind], command.hdr.handle); };
    switch (command.hdr.opcode) {
      case KH_ADM_CREATE_PD:
        return add(pd);
      case KH_ADM_CREATE_MKEY:
        return add(mkey);
      case KH_ADM_MODIFY_MKEY:
        remove(mkey);
        return add(mkey);
      case KH_ADM_CREATE_EQ:
        return add(eq);
      case KH_ADM_CREATE_CQ:
        return add(cq);
      case KH_ADM_CREATE_SRQ:
        return add(srq);
      case KH_ADM_CREATE_QP:
        return add(qp);
      case KH_ADM_DESTROY_PD:
        return remove(pd);
      case KH_ADM_DESTROY_MKEY:
        return remove(mkey);
      case KH_ADM_DESTROY_EQ:
        return remove(eq);
      case KH_ADM_DESTROY_CQ:
        return remove(cq);
      case KH_ADM_DESTROY_SRQ:
        return remove(srq);
      case KH_ADM_DESTROY_QP:
        return remove(qp);
      default:
        return;
    }
  }

  void end() {
    rig_.run_for(1'000'000);
    guest_.oracle().check();
    rig_.driver(0).disable();
    require_empty();
    claims_.drop_all();
    rig_.run_for(1'000'000);
    guest_.oracle().check();
    const kh_admin_cmd nop = test::FakeDriver::make(KH_ADM_NOP);
    require(rig_.driver(1).command(nop).status == KH_ST_OK, "the other HCA no longer answers");
  }

  Input in_;
  test::Rig rig_;
  Guest guest_;
  Claims claims_;
  std::array<std::vector<uint32_t>, kinds> known_;
};

}  // namespace
}  // namespace keyhole::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keyhole::fuzz::Session(keyhole::fuzz::Input(data, size)).run();
  return 0;
}
