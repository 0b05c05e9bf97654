// SPDX-License-Identifier: BSD-2-Clause
//
// The driver's part of the contract, at its smallest.

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "harness.h"
#include "hca/guest_access.h"
#include "hca/names.h"

namespace keyhole::test {

namespace {

constexpr uint8_t admin_log = KH_ADMIN_MAX_LOG;

uint8_t new_phase(uint32_t index, uint8_t log_size) { return ((index >> log_size) & 1) ^ 1; }

// The phase is the last byte of an entry, and the device stores it with the seven before it: it is
// read as it is written, in one word.
template <typename Entry>
bool is_new(const Entry& entry, uint32_t index, uint8_t log_size) {
  static_assert(offsetof(Entry, phase) == sizeof(Entry) - 1);
  const auto* end = reinterpret_cast<const std::byte*>(&entry + 1);
  const uint64_t word = load_acquire<uint64_t>(end - sizeof(word));
  return (word >> 56 & 1) == new_phase(index, log_size);
}

}  // namespace

bool TestCq::poll(kh_cqe& to) {
  kh_cqe* cqe = &ring[ci & ((1u << log_size) - 1)];
  if (!is_new(*cqe, ci, log_size)) return false;
  to = *cqe;
  ++ci;
  store_release(&db->ci, ci);
  return true;
}

void TestCq::arm(uint32_t type) {
  ++arm_sn;
  store_release(&db->arm, arm_sn << KH_ARM_SN_SHIFT | type);
  full_fence();
}

bool TestEq::poll(kh_eqe& to) {
  kh_eqe* eqe = &ring[ci & ((1u << log_size) - 1)];
  if (!is_new(*eqe, ci, log_size)) return false;
  to = *eqe;
  ++ci;
  store_release(&db->ci, ci);
  return true;
}

void TestEq::arm() {
  ++arm_sn;
  store_release(&db->arm, arm_sn << KH_ARM_SN_SHIFT | KH_ARM_NEXT);
  full_fence();
}

namespace {

void write_receive(std::byte* to, uint64_t wr_id, std::span<const kh_sge> sge) {
  kh_rwqe head{};
  head.wr_id = wr_id;
  head.num_sge = static_cast<uint32_t>(sge.size());
  std::memcpy(to, &head, sizeof(head));
  if (!sge.empty()) std::memcpy(to + sizeof(head), sge.data(), sge.size_bytes());
}

}  // namespace

void TestSrq::post(uint64_t wr_id, std::span<const kh_sge> sge) {
  write_receive(ring + (size_t{pi & ((1u << log_size) - 1)} << log_stride), wr_id, sge);
  ++pi;
  store_release(&db->pi, pi);
}

void TestQp::put(std::span<const std::byte> wqe) {
  for (size_t at = 0; at < wqe.size(); at += KH_WQE_BLOCK) {
    size_t n = std::min<size_t>(KH_WQE_BLOCK, wqe.size() - at);
    std::memcpy(sq + size_t{sq_pi & ((1u << log_sq_blocks) - 1)} * KH_WQE_BLOCK, wqe.data() + at,
                n);
    ++sq_pi;
  }
}

void TestQp::ring() {
  store_release(&db->sq_pi, sq_pi);
  driver->ring(context, slot);
}

void TestQp::post_receive(uint64_t wr_id, std::span<const kh_sge> sge) {
  write_receive(rq + (size_t{rq_pi & ((1u << log_rq_size) - 1)} << log_rq_stride), wr_id, sge);
  ++rq_pi;
  store_release(&db->rq_pi, rq_pi);
  full_fence();
  if (load_relaxed<uint32_t>(&db->rq_notify) != 0) driver->ring(context, slot);
}

FakeDriver::FakeDriver(FakeHost& host, Hca& hca, std::function<void()> run)
    : host_(host), hca_(hca), run_(std::move(run)) {
  admin_sq_ = reinterpret_cast<kh_admin_cmd*>(host_.allocate(KH_PAGE_SIZE));
  admin_cq_ = reinterpret_cast<kh_admin_cqe*>(host_.allocate(KH_PAGE_SIZE));
  admin_db_ = reinterpret_cast<kh_admin_db*>(host_.allocate(KH_PAGE_SIZE));
  out_ = host_.allocate(KH_PAGE_SIZE);
}

uint32_t FakeDriver::enable() {
  std::memset(admin_cq_, 0, KH_PAGE_SIZE);
  std::memset(admin_db_, 0, sizeof(*admin_db_));
  admin_pi_ = admin_ci_ = 0;
  slots_.clear();
  auto put = [&](uint32_t reg, uint64_t value) {
    hca_.write_register(reg, static_cast<uint32_t>(value));
    hca_.write_register(reg + 4, static_cast<uint32_t>(value >> 32));
  };
  put(KH_REG_ADMIN_SQ, host_.iova(admin_sq_));
  put(KH_REG_ADMIN_CQ, host_.iova(admin_cq_));
  put(KH_REG_ADMIN_DB, host_.iova(admin_db_));
  hca_.write_register(KH_REG_ADMIN_SIZE, admin_log);
  hca_.write_register(KH_REG_CONTROL, KH_CONTROL_ENABLE);
  return hca_.read_register(KH_REG_STATUS);
}

void FakeDriver::disable() { hca_.write_register(KH_REG_CONTROL, 0); }

void FakeDriver::start(uint8_t station) {
  if (enable() != KH_STATUS_READY) throw std::runtime_error("the HCA did not become ready");
  async_eq = create_eq(KH_EQ_ASYNC, 0);
  completion_eq = create_eq(KH_EQ_COMPLETION, 1);
  create_context(1);
  create_context(2);
  mac = {{0x02, 0, 0, 0, 0, station}};
  kh_admin_cmd port = make(KH_ADM_SET_PORT);
  port.set_port.flags = KH_PORT_UP | KH_PORT_RDMA;
  std::memcpy(port.set_port.mac, mac.bytes.data(), 6);
  port.set_port.mtu = 9000;
  must(port);
  gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, station};
  kh_admin_cmd set = make(KH_ADM_SET_GID);
  std::memcpy(set.set_gid.gid, gid.data(), 16);
  std::memcpy(set.set_gid.mac, mac.bytes.data(), 6);
  set.set_gid.vlan = KH_VLAN_NONE;
  set.set_gid.valid = 1;
  must(set);
}

kh_admin_cmd FakeDriver::make(kh_admin_op opcode, uint32_t handle, uint64_t out_addr) {
  kh_admin_cmd command;
  std::memset(&command, 0, sizeof(command));
  command.hdr.opcode = opcode;
  command.hdr.handle = handle;
  command.hdr.out_addr = out_addr;
  return command;
}

kh_admin_cqe FakeDriver::command(const kh_admin_cmd& command) {
  if (before) before(command);
  kh_admin_cmd* slot = &admin_sq_[admin_pi_ & ((1u << admin_log) - 1)];
  *slot = command;
  slot->hdr.tag = ++tag_;
  ++admin_pi_;
  store_release(&admin_db_->pi, admin_pi_);
  ring(0, KH_DB_SLOT_ADMIN);
  run_();
  kh_admin_cqe* cqe = &admin_cq_[admin_ci_ & ((1u << admin_log) - 1)];
  if (!is_new(*cqe, admin_ci_, admin_log))
    throw std::runtime_error(fmt::format("no completion of {}", admin_op_name(command.hdr.opcode)));
  kh_admin_cqe copy = *cqe;
  ++admin_ci_;
  store_release(&admin_db_->ci, admin_ci_);
  if (copy.tag != tag_) throw std::runtime_error("a completion with another command's tag");
  if (after) after(command, copy);
  return copy;
}

kh_admin_cqe FakeDriver::must(const kh_admin_cmd& cmd) {
  kh_admin_cqe cqe = command(cmd);
  if (cqe.status != KH_ST_OK)
    throw std::runtime_error(fmt::format("{}: {} at byte {}", admin_op_name(cmd.hdr.opcode),
                                         admin_status_name(cqe.status), uint32_t{cqe.syndrome}));
  return cqe;
}

void FakeDriver::ring(uint32_t context, uint32_t slot) {
  store_relaxed<uint8_t>(host_.doorbell_page(context) + slot, KH_DB_MARK);
  full_fence();
  if (load_relaxed<uint32_t>(&host_.status_page(context)->sleeping) != 0) hca_.wake(context);
}

TestEq FakeDriver::create_eq(kh_eq_type type, uint16_t vector, uint8_t log_size) {
  TestEq eq;
  size_t ring_size = sizeof(kh_eqe) << log_size;
  size_t db_offset = (ring_size + 63) & ~size_t{63};
  eq.memory = host_.allocate(db_offset + sizeof(kh_cq_db));
  eq.log_size = log_size;
  eq.ring = reinterpret_cast<kh_eqe*>(eq.memory);
  eq.db = reinterpret_cast<kh_cq_db*>(eq.memory + db_offset);
  kh_admin_cmd command = make(KH_ADM_CREATE_EQ);
  // Levels 0: with scattered pages only a ring of less than a page will do.
  command.create_eq.pages = host_.pages(eq.memory, db_offset + sizeof(kh_cq_db), 0);
  command.create_eq.ring_offset = 0;
  command.create_eq.db_offset = static_cast<uint32_t>(db_offset);
  command.create_eq.log_size = log_size;
  command.create_eq.type = type;
  command.create_eq.vector = vector;
  eq.eqn = must(command).result[0];
  return eq;
}

void FakeDriver::create_context(uint16_t context) { must(make(KH_ADM_CREATE_CONTEXT, context)); }

uint32_t FakeDriver::create_pd() { return must(make(KH_ADM_CREATE_PD)).result[0]; }

TestRegion FakeDriver::create_region(uint32_t pdn, size_t size, uint32_t access) {
  std::byte* memory = host_.allocate(size);
  return register_memory(pdn, memory, size, access,
                         access & KH_ACCESS_ZERO_BASED ? 0 : reinterpret_cast<uint64_t>(memory));
}

TestRegion FakeDriver::register_memory(uint32_t pdn, std::byte* memory, size_t size,
                                       uint32_t access, uint64_t start) {
  size_t within = reinterpret_cast<uintptr_t>(memory) % KH_PAGE_SIZE;
  kh_admin_cmd command = make(KH_ADM_CREATE_MKEY);
  command.create_mkey.kind = KH_MKEY_DIRECT;
  command.create_mkey.pdn = pdn;
  command.create_mkey.access = access;
  command.create_mkey.start = start;
  command.create_mkey.length = size;
  command.create_mkey.pages = host_.pages(memory - within, size + within);
  command.create_mkey.offset = within;
  return {must(command).result[0], memory, start, size};
}

uint32_t FakeDriver::create_indirect(uint32_t pdn, uint32_t max_entries, uint32_t access) {
  kh_admin_cmd create = make(KH_ADM_CREATE_MKEY);
  create.create_mkey.kind = KH_MKEY_INDIRECT;
  create.create_mkey.pdn = pdn;
  create.create_mkey.access = access;
  create.create_mkey.max_entries = max_entries;
  return must(create).result[0];
}

uint32_t FakeDriver::create_klm_list(uint32_t pdn, const std::byte* memory, size_t size) {
  kh_admin_cmd create = make(KH_ADM_CREATE_MKEY);
  create.create_mkey.kind = KH_MKEY_KLM_LIST;
  create.create_mkey.pdn = pdn;
  create.create_mkey.length = size;
  create.create_mkey.pages = host_.pages(memory, size);
  return must(create).result[0];
}

uint32_t FakeDriver::create_window(uint32_t pdn, kh_mkey_kind kind) {
  kh_admin_cmd command = make(KH_ADM_CREATE_MKEY);
  command.create_mkey.kind = kind;
  command.create_mkey.pdn = pdn;
  return must(command).result[0];
}

kh_mkey_attr FakeDriver::query_mkey(uint32_t key) {
  must(make(KH_ADM_QUERY_MKEY, key, host_.iova(out_)));
  kh_mkey_attr attr;
  std::memcpy(&attr, out_, sizeof(attr));
  return attr;
}

TestCq FakeDriver::create_cq(uint8_t log_size, uint16_t context, uint8_t flags) {
  TestCq cq;
  size_t ring_size = sizeof(kh_cqe) << log_size;
  cq.memory_size = ring_size + sizeof(kh_cq_db);
  cq.memory = host_.allocate(cq.memory_size);
  cq.log_size = log_size;
  cq.ring = reinterpret_cast<kh_cqe*>(cq.memory);
  cq.db = reinterpret_cast<kh_cq_db*>(cq.memory + ring_size);
  kh_admin_cmd command = make(KH_ADM_CREATE_CQ);
  command.create_cq.pages = host_.pages(cq.memory, cq.memory_size);
  command.create_cq.ring_offset = 0;
  command.create_cq.db_offset = static_cast<uint32_t>(ring_size);
  command.create_cq.eqn = completion_eq.eqn;
  command.create_cq.ctx = context;
  command.create_cq.log_size = log_size;
  command.create_cq.flags = flags;
  cq.cqn = must(command).result[0];
  return cq;
}

TestSrq FakeDriver::create_srq(uint32_t pdn, uint8_t log_size, uint8_t log_stride,
                               uint16_t context) {
  TestSrq srq;
  size_t ring_size = size_t{1} << (log_size + log_stride);
  size_t db_offset = (ring_size + 63) & ~size_t{63};
  size_t size = db_offset + sizeof(kh_srq_db);
  std::byte* memory = host_.allocate(size);
  srq.log_size = log_size;
  srq.log_stride = log_stride;
  srq.ring = memory;
  srq.db = reinterpret_cast<kh_srq_db*>(memory + db_offset);
  kh_admin_cmd command = make(KH_ADM_CREATE_SRQ);
  command.create_srq.pages = host_.pages(memory, size);
  command.create_srq.db_offset = static_cast<uint32_t>(db_offset);
  command.create_srq.pdn = pdn;
  command.create_srq.ctx = context;
  command.create_srq.log_size = log_size;
  command.create_srq.log_stride = log_stride;
  srq.srqn = must(command).result[0];
  return srq;
}

uint16_t FakeDriver::next_slot(uint16_t context) {
  // Slot 0 of context 0 is the admin queue's.
  if (slots_.size() <= context) slots_.resize(context + 1u, 1);
  return slots_[context]++;
}

TestQp FakeDriver::create_qp(const QpOptions& options) {
  TestQp qp;
  bool has_rq = options.srqn == KH_NO_SRQ;
  size_t sq_size = size_t{KH_WQE_BLOCK} << options.log_sq_blocks;
  size_t rq_size = has_rq ? size_t{1} << (options.log_rq_size + options.log_rq_stride) : 0;
  size_t rq_offset = (sq_size + 1023) & ~size_t{1023};
  size_t db_offset = (rq_offset + rq_size + 63) & ~size_t{63};
  qp.memory_size = db_offset + sizeof(kh_qp_db);
  qp.memory = host_.allocate(qp.memory_size);
  qp.driver = this;
  qp.context = options.context;
  qp.slot = options.slot >= 0 ? static_cast<uint16_t>(options.slot) : next_slot(options.context);
  qp.type = options.type;
  qp.log_sq_blocks = options.log_sq_blocks;
  qp.log_rq_size = options.log_rq_size;
  qp.log_rq_stride = options.log_rq_stride;
  qp.sq = qp.memory;
  qp.rq = qp.memory + rq_offset;
  qp.db = reinterpret_cast<kh_qp_db*>(qp.memory + db_offset);
  kh_admin_cmd command = make(KH_ADM_CREATE_QP);
  kh_cmd_create_qp& body = command.create_qp;
  body.pages = host_.pages(qp.memory, qp.memory_size);
  body.sq_offset = 0;
  body.rq_offset = has_rq ? static_cast<uint32_t>(rq_offset) : 0;
  body.db_offset = static_cast<uint32_t>(db_offset);
  body.pdn = options.pdn;
  body.send_cqn = options.send_cqn;
  body.recv_cqn = options.recv_cqn;
  body.srqn = options.srqn;
  body.ctx = options.context;
  body.db_slot = qp.slot;
  body.type = options.type;
  body.log_sq_blocks = options.log_sq_blocks;
  body.log_rq_size = has_rq ? options.log_rq_size : 0;
  body.log_rq_stride = has_rq ? options.log_rq_stride : 0;
  body.has_sq = 1;
  body.has_rq = has_rq;
  body.max_send_sge = options.max_send_sge;
  body.max_recv_sge = has_rq ? options.max_recv_sge : 0;
  qp.qpn = must(command).result[0];
  return qp;
}

uint8_t FakeDriver::destroy(kh_admin_op opcode, uint32_t handle) {
  return command(make(opcode, handle)).status;
}

uint8_t FakeDriver::modify_qp(const TestQp& qp, const kh_qp_attr& attr) {
  kh_admin_cmd modify = make(KH_ADM_MODIFY_QP, qp.qpn);
  modify.modify_qp = attr;
  return command(modify).status;
}

kh_qp_attr FakeDriver::query_qp(const TestQp& qp) {
  must(make(KH_ADM_QUERY_QP, qp.qpn, host_.iova(out_)));
  kh_qp_attr attr;
  std::memcpy(&attr, out_, sizeof(attr));
  return attr;
}

kh_av FakeDriver::path_to(FakeDriver& peer) const {
  kh_av av{};
  std::memcpy(av.dgid, peer.gid.data(), 16);
  std::memcpy(av.dmac, peer.mac.bytes.data(), 6);
  av.sgid_index = 0;
  av.hop_limit = 64;
  return av;
}

void FakeDriver::bring_up(TestQp& qp, FakeDriver& peer_driver, const TestQp& peer,
                          uint32_t access) {
  auto step = [&](const kh_qp_attr& attr) {
    kh_admin_cmd modify = make(KH_ADM_MODIFY_QP, qp.qpn);
    modify.modify_qp = attr;
    must(modify);
  };
  bool rc = qp.type == KH_QPT_RC;
  kh_qp_attr init{};
  init.mask = KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_ACCESS_FLAGS;
  init.state = KH_QPS_INIT;
  init.port = 1;
  init.access = static_cast<uint8_t>(rc ? access : access & KH_ACCESS_REMOTE_WRITE);
  step(init);
  kh_qp_attr rtr{};
  rtr.mask = KH_QP_STATE | KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN;
  rtr.state = KH_QPS_RTR;
  rtr.av = path_to(peer_driver);
  rtr.path_mtu = 3;
  rtr.dest_qpn = peer.qpn;
  rtr.rq_psn = 0x100;
  if (rc) {
    rtr.mask |= KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_MIN_RNR_TIMER;
    rtr.max_dest_rd_atomic = KH_MAX_RD_ATOMIC;
    rtr.min_rnr_timer = 12;
  }
  step(rtr);
  kh_qp_attr rts{};
  rts.mask = KH_QP_STATE | KH_QP_SQ_PSN;
  rts.state = KH_QPS_RTS;
  rts.sq_psn = 0x100;
  if (rc) {
    rts.mask |= KH_QP_TIMEOUT | KH_QP_RETRY_CNT | KH_QP_RNR_RETRY | KH_QP_MAX_QP_RD_ATOMIC;
    rts.timeout = 14;
    rts.retry_cnt = 7;
    rts.rnr_retry = 7;
    rts.max_rd_atomic = KH_MAX_RD_ATOMIC;
  }
  step(rts);
}

void FakeDriver::bring_up_ud(TestQp& qp, uint32_t qkey) {
  auto step = [&](const kh_qp_attr& attr) {
    kh_admin_cmd modify = make(KH_ADM_MODIFY_QP, qp.qpn);
    modify.modify_qp = attr;
    must(modify);
  };
  kh_qp_attr init{};
  init.mask = KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT | KH_QP_QKEY;
  init.state = KH_QPS_INIT;
  init.port = 1;
  init.qkey = qkey;
  step(init);
  kh_qp_attr rtr{};
  rtr.mask = KH_QP_STATE;
  rtr.state = KH_QPS_RTR;
  step(rtr);
  kh_qp_attr rts{};
  rts.mask = KH_QP_STATE | KH_QP_SQ_PSN;
  rts.state = KH_QPS_RTS;
  step(rts);
}

}  // namespace keyhole::test
