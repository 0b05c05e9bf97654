// SPDX-License-Identifier: BSD-2-Clause
//
// What bad input gets, a row each: the errno, and nothing done. Work requests have a table of their own in
// post_test.cc.

#include <gtest/gtest.h>

#include <functional>

#include "fake_verbs.h"

namespace {

struct Stage {
  fake::World world;
  ibv_exp_reg_mr_in reg{};
  ibv_exp_create_mr_in mkey{};
  ibv_exp_mkey_list_container_attr list{};
  ibv_exp_mw_bind bind{};
  ibv_mr region{};
  ibv_cq cq{};
  ibv_exp_cq_init_attr cq_init{};
  ibv_exp_cq_attr cq_attr{};
  ibv_exp_qp_init_attr qp_init{};
  ibv_exp_qp_attr qp_attr{};
  ibv_exp_create_srq_attr srq{};
  ibv_exp_res_domain_init_attr domain{};
  ibv_exp_res_domain foreign_domain{};
  ibv_exp_open_device_attr open{};
  ibv_exp_device_attr device{};
  ibv_exp_port_attr port{};
  ibv_exp_gid_attr gid{};
  ibv_exp_values values{};
  ibv_exp_mkey_attr mkey_attr{};
  char buffer[64];

  Stage() {
    reg = {.pd = &world.pd, .addr = buffer, .length = 64, .exp_access = 1, .comp_mask = 0,
           .create_flags = 0, .dm = nullptr};
    mkey.pd = &world.pd;
    mkey.attr = {.max_klm_list_size = 4, .create_flags = IBV_EXP_MR_INDIRECT_KLMS, .exp_access_flags = 1};
    list = {.pd = &world.pd, .mkey_list_type = 0, .max_klm_list_size = 4, .comp_mask = 0};
    region.context = world.context();
    region.pd = &world.pd;
    bind.qp = &world.qp;
    bind.mw = &world.mw;
    bind.bind_info = {.mr = &region, .addr = 0, .length = 8, .exp_mw_access_flags = 0};
    cq.context = world.context();
    cq_init.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    qp_init.qp_type = IBV_QPT_RC;
    qp_init.send_cq = qp_init.recv_cq = &cq;
    qp_init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    qp_init.pd = &world.pd;
    srq.pd = &world.pd;
    foreign_domain.context = world.other_context();
    world.clock = 1;
    world.attributes.hca_core_clock = 1000;
    world.attributes.completion_timestamp_mask = ~0ull;
  }

  // What each call says: 0, or errno (checked to be in errno too).
  static int pointer(const void* made) { return made ? 0 : errno; }
  int number(int err) const {
    if (err > 0) {
      EXPECT_EQ(errno, err);
    }
    return err;
  }
  int reg_mr() { return pointer(ibv_exp_reg_mr(&reg)); }
  int create_mr() { return pointer(ibv_exp_create_mr(&mkey)); }
  int alloc_list() { return pointer(ibv_exp_alloc_mkey_list_memory(&list)); }
  int bind_mw() { return number(ibv_exp_bind_mw(&bind)); }
  int create_cq(int cqe = 8, int vector = 0) {
    return pointer(ibv_exp_create_cq(world.context(), cqe, nullptr, nullptr, vector, &cq_init));
  }
  int modify_cq(int mask) { return number(ibv_exp_modify_cq(&cq, &cq_attr, mask)); }
  int create_qp() { return pointer(ibv_exp_create_qp(world.context(), &qp_init)); }
  int modify_qp(uint64_t mask) { return number(ibv_exp_modify_qp(&world.qp, &qp_attr, mask)); }
  int create_srq() { return pointer(ibv_exp_create_srq(world.context(), &srq)); }
  int create_domain() { return pointer(ibv_exp_create_res_domain(world.context(), &domain)); }
  int open_device() { return pointer(ibv_exp_open_device(world.device(), &open)); }
};

struct Row {
  const char* what;
  int want;
  std::function<int(Stage&)> call;
};

#define ROW(what, want, ...) {what, want, [](Stage& s) -> int { __VA_ARGS__ }}

const Row kRows[] = {
    // ibv_exp_reg_mr
    ROW("reg_mr: NULL", EINVAL, (void)s; return s.pointer(ibv_exp_reg_mr(nullptr));),
    ROW("reg_mr: no PD", EINVAL, s.reg.pd = nullptr; return s.reg_mr();),
    ROW("reg_mr: reserved comp_mask", EINVAL, s.reg.comp_mask = IBV_EXP_REG_MR_RESERVED; return s.reg_mr();),
    ROW("reg_mr: highest comp_mask", EINVAL, s.reg.comp_mask = 1u << 31; return s.reg_mr();),
    ROW("reg_mr: unknown right", EINVAL, s.reg.exp_access = 1 << 20; return s.reg_mr();),
    ROW("reg_mr: reserved right", EINVAL, s.reg.exp_access = IBV_EXP_ACCESS_RESERVED; return s.reg_mr();),
    ROW("reg_mr: a window's right", EINVAL, s.reg.exp_access = IBV_EXP_ACCESS_MW_ZERO_BASED; return s.reg_mr();),
    ROW("reg_mr: remote write without local", EINVAL, s.reg.exp_access = IBV_EXP_ACCESS_REMOTE_WRITE; return s.reg_mr();),
    ROW("reg_mr: remote atomic without local", EINVAL, s.reg.exp_access = IBV_EXP_ACCESS_REMOTE_ATOMIC; return s.reg_mr();),
    ROW("reg_mr: relaxed without on-demand", EINVAL, s.reg.exp_access = IBV_EXP_ACCESS_RELAXED; return s.reg_mr();),
    ROW("reg_mr: allocate at an address", EINVAL, s.reg.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR; return s.reg_mr();),
    ROW("reg_mr: allocate nothing", EINVAL, s.reg.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR; s.reg.addr = nullptr; s.reg.length = 0; return s.reg_mr();),
    ROW("reg_mr: allocate all there is", EINVAL, s.reg.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR; s.reg.addr = nullptr; s.reg.length = SIZE_MAX; return s.reg_mr();),
    ROW("reg_mr: allocate more than can be", ENOMEM, s.reg.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR; s.reg.addr = nullptr; s.reg.length = SIZE_MAX / 2; return s.reg_mr();),
    ROW("reg_mr: allocate and contiguous", EINVAL, s.reg.exp_access |= IBV_EXP_ACCESS_ALLOCATE_MR; s.reg.addr = nullptr; s.reg.comp_mask = 1; s.reg.create_flags = 1; return s.reg_mr();),
    ROW("reg_mr: unknown create flag", EINVAL, s.reg.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS; s.reg.create_flags = 2; return s.reg_mr();),
    ROW("reg_mr: device memory", ENOSYS, s.reg.comp_mask = IBV_EXP_REG_MR_DM; s.reg.dm = reinterpret_cast<ibv_exp_dm*>(8); return s.reg_mr();),
    ROW("reg_mr: shared", ENOSYS, s.reg.exp_access |= IBV_EXP_ACCESS_SHARED_MR_USER_READ; return s.reg_mr();),
    ROW("reg_mr: physical", ENOSYS, s.reg.exp_access |= IBV_EXP_ACCESS_PHYSICAL_ADDR; return s.reg_mr();),
    ROW("reg_mr: tunnelled atomics", ENOSYS, s.reg.exp_access |= IBV_EXP_ACCESS_TUNNELED_ATOMIC; return s.reg_mr();),
    ROW("reg_mr: the provider fails", ENOMEM, s.world.provider_fails = true; return s.reg_mr();),
    // ibv_exp_create_mr
    ROW("create_mr: NULL", EINVAL, return s.pointer(ibv_exp_create_mr(nullptr));),
    ROW("create_mr: no PD", EINVAL, s.mkey.pd = nullptr; return s.create_mr();),
    ROW("create_mr: reserved comp_mask", EINVAL, s.mkey.comp_mask = 1; return s.create_mr();),
    ROW("create_mr: no entries", EINVAL, s.mkey.attr.max_klm_list_size = 0; return s.create_mr();),
    ROW("create_mr: too many entries", EINVAL, s.mkey.attr.max_klm_list_size = 65537; return s.create_mr();),
    ROW("create_mr: no kind", EINVAL, s.mkey.attr.create_flags = 0; return s.create_mr();),
    ROW("create_mr: unknown kind", EINVAL, s.mkey.attr.create_flags |= 8; return s.create_mr();),
    ROW("create_mr: signatures", ENOSYS, s.mkey.attr.create_flags |= IBV_EXP_MR_SIGNATURE_EN; return s.create_mr();),
    ROW("create_mr: fixed size", ENOSYS, s.mkey.attr.create_flags |= IBV_EXP_MR_FIXED_BUFFER_SIZE; return s.create_mr();),
    ROW("create_mr: unknown right", EINVAL, s.mkey.attr.exp_access_flags = 1 << 5; return s.create_mr();),
    ROW("create_mr: right of another kind", EINVAL, s.mkey.attr.exp_access_flags = IBV_EXP_ACCESS_PHYSICAL_ADDR; return s.create_mr();),
    ROW("create_mr: on demand", ENOSYS, s.mkey.attr.exp_access_flags = IBV_EXP_ACCESS_ON_DEMAND; return s.create_mr();),
    ROW("create_mr: with memory", ENOSYS, s.mkey.attr.exp_access_flags = IBV_EXP_ACCESS_ALLOCATE_MR; return s.create_mr();),
    ROW("create_mr: remote write without local", EINVAL, s.mkey.attr.exp_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE; return s.create_mr();),
    ROW("create_mr: another provider", ENOSYS, s.world.keyhole = false; return s.create_mr();),
    ROW("create_mr: a device without", ENOSYS, s.world.caps.flags = 0; return s.create_mr();),
    ROW("create_mr: the provider fails", ENOMEM, s.world.provider_fails = true; return s.create_mr();),
    // ibv_exp_query_mkey, ibv_dereg_mr
    ROW("query_mkey: NULL", EINVAL, return s.number(ibv_exp_query_mkey(nullptr, &s.mkey_attr));),
    ROW("query_mkey: nowhere to", EINVAL, return s.number(ibv_exp_query_mkey(&s.region, nullptr));),
    ROW("query_mkey: reserved comp_mask", EINVAL, s.mkey_attr.comp_mask = 1; return s.number(ibv_exp_query_mkey(&s.region, &s.mkey_attr));),
    ROW("query_mkey: a region", EINVAL, return s.number(ibv_exp_query_mkey(&s.region, &s.mkey_attr));),
    ROW("query_mkey: another provider", ENOSYS, s.world.keyhole = false; return s.number(ibv_exp_query_mkey(&s.region, &s.mkey_attr));),
    ROW("dereg_mr: NULL", EINVAL, return s.number(ibv_dereg_mr(nullptr));),
    ROW("destroy_cq: NULL", EINVAL, return s.number(ibv_destroy_cq(nullptr));),
    // ibv_exp_alloc_mkey_list_memory
    ROW("alloc_mkey_list: NULL", EINVAL, return s.pointer(ibv_exp_alloc_mkey_list_memory(nullptr));),
    ROW("alloc_mkey_list: no PD", EINVAL, s.list.pd = nullptr; return s.alloc_list();),
    ROW("alloc_mkey_list: reserved comp_mask", EINVAL, s.list.comp_mask = 1; return s.alloc_list();),
    ROW("alloc_mkey_list: unknown type", EINVAL, s.list.mkey_list_type = 1; return s.alloc_list();),
    ROW("alloc_mkey_list: nothing", EINVAL, s.list.max_klm_list_size = 0; return s.alloc_list();),
    ROW("alloc_mkey_list: too much", EINVAL, s.list.max_klm_list_size = UINT32_MAX; return s.alloc_list();),
    ROW("alloc_mkey_list: another provider", ENOSYS, s.world.keyhole = false; return s.alloc_list();),
    ROW("alloc_mkey_list: the provider fails", ENOMEM, s.world.provider_fails = true; return s.alloc_list();),
    ROW("dealloc_mkey_list: NULL", EINVAL, return s.number(ibv_exp_dealloc_mkey_list_memory(nullptr));),
    // ibv_exp_bind_mw
    ROW("bind_mw: NULL", EINVAL, return s.number(ibv_exp_bind_mw(nullptr));),
    ROW("bind_mw: no QP", EINVAL, s.bind.qp = nullptr; return s.bind_mw();),
    ROW("bind_mw: no window", EINVAL, s.bind.mw = nullptr; return s.bind_mw();),
    ROW("bind_mw: reserved comp_mask", EINVAL, s.bind.comp_mask = 1; return s.bind_mw();),
    ROW("bind_mw: a type 2 window", EINVAL, s.world.mw.type = IBV_MW_TYPE_2; return s.bind_mw();),
    ROW("bind_mw: a UD QP", EINVAL, s.world.qp.qp_type = IBV_QPT_UD; return s.bind_mw();),
    ROW("bind_mw: a QP of another HCA", EINVAL, s.world.qp.context = s.world.other_context(); return s.bind_mw();),
    ROW("bind_mw: a foreign PD", EPERM, s.region.pd = &s.world.foreign_pd; return s.bind_mw();),
    ROW("bind_mw: a range without a region", EINVAL, s.bind.bind_info.mr = nullptr; return s.bind_mw();),
    ROW("bind_mw: inline", EINVAL, s.bind.exp_send_flags = IBV_EXP_SEND_INLINE; return s.bind_mw();),
    ROW("bind_mw: unknown flag", EINVAL, s.bind.exp_send_flags = 1ull << 63; return s.bind_mw();),
    ROW("bind_mw: unknown right", EINVAL, s.bind.bind_info.exp_mw_access_flags = 1ull << 63; return s.bind_mw();),
    ROW("bind_mw: a region's right", EINVAL, s.bind.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_MW_BIND; return s.bind_mw();),
    ROW("bind_mw: the standard number of zero based", EINVAL, s.bind.bind_info.exp_mw_access_flags = IBV_ACCESS_ZERO_BASED; return s.bind_mw();),
    // ibv_exp_create_cq, ibv_exp_modify_cq
    ROW("create_cq: no context", EINVAL, return s.pointer(ibv_exp_create_cq(nullptr, 8, nullptr, nullptr, 0, &s.cq_init));),
    ROW("create_cq: no attributes", EINVAL, return s.pointer(ibv_exp_create_cq(s.world.context(), 8, nullptr, nullptr, 0, nullptr));),
    ROW("create_cq: no entries", EINVAL, return s.create_cq(0);),
    ROW("create_cq: fewer", EINVAL, return s.create_cq(-1);),
    ROW("create_cq: a negative vector", EINVAL, return s.create_cq(8, -1);),
    ROW("create_cq: reserved comp_mask", EINVAL, s.cq_init.comp_mask = IBV_EXP_CQ_INIT_ATTR_RESERVED1; return s.create_cq();),
    ROW("create_cq: unknown flag", EINVAL, s.cq_init.flags = 1 << 5; return s.create_cq();),
    ROW("create_cq: cross channel", ENOSYS, s.cq_init.flags = IBV_EXP_CQ_CREATE_CROSS_CHANNEL; return s.create_cq();),
    ROW("create_cq: compressed", ENOSYS, s.cq_init.flags = IBV_EXP_CQ_COMPRESSED_CQE; return s.create_cq();),
    ROW("create_cq: as_notify", ENOSYS, s.cq_init.flags = IBV_EXP_CQ_AS_NOTIFY; return s.create_cq();),
    ROW("create_cq: peer direct", ENOSYS, s.cq_init.comp_mask = IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT; s.cq_init.peer_direct_attrs = reinterpret_cast<ibv_exp_peer_direct_attr*>(8); return s.create_cq();),
    ROW("create_cq: another HCA's domain", EINVAL, s.cq_init.comp_mask = IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN; s.cq_init.res_domain = &s.foreign_domain; return s.create_cq();),
    ROW("create_cq: the provider fails", ENOMEM, s.world.provider_fails = true; return s.create_cq();),
    ROW("create_cq: the provider fails with timestamps", ENOMEM, s.world.provider_fails = true; s.cq_init.flags = IBV_EXP_CQ_TIMESTAMP; return s.create_cq();),
    ROW("modify_cq: no CQ", EINVAL, return s.number(ibv_exp_modify_cq(nullptr, &s.cq_attr, 1));),
    ROW("modify_cq: no attributes", EINVAL, return s.number(ibv_exp_modify_cq(&s.cq, nullptr, 1));),
    ROW("modify_cq: reserved comp_mask", EINVAL, s.cq_attr.comp_mask = IBV_EXP_CQ_ATTR_RESERVED; return s.modify_cq(1);),
    ROW("modify_cq: unknown attribute", EINVAL, return s.modify_cq(4);),
    ROW("modify_cq: unknown capability", EINVAL, s.cq_attr.cq_cap_flags = 2; return s.modify_cq(3);),
    ROW("modify_cq: ignoring overruns", ENOSYS, s.cq_attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN; return s.modify_cq(3);),
    // ibv_exp_create_qp, ibv_exp_modify_qp
    ROW("create_qp: no context", EINVAL, return s.pointer(ibv_exp_create_qp(nullptr, &s.qp_init));),
    ROW("create_qp: no attributes", EINVAL, return s.pointer(ibv_exp_create_qp(s.world.context(), nullptr));),
    ROW("create_qp: reserved comp_mask", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_RESERVED1; return s.create_qp();),
    ROW("create_qp: no PD", EINVAL, s.qp_init.pd = nullptr; return s.create_qp();),
    ROW("create_qp: a PD that is not named", EINVAL, s.qp_init.comp_mask = 0; return s.create_qp();),
    ROW("create_qp: another HCA's PD", EINVAL, s.qp_init.pd = &s.world.foreign_pd; return s.create_qp();),
    ROW("create_qp: XRC without its domain", EINVAL, s.qp_init.qp_type = IBV_QPT_XRC_RECV; return s.create_qp();),
    ROW("create_qp: DC", ENOSYS, s.qp_init.qp_type = IBV_EXP_QPT_DC_INI; return s.create_qp();),
    ROW("create_qp: unknown flag", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS; s.qp_init.exp_create_flags = 1; return s.create_qp();),
    ROW("create_qp: internal flag", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS; s.qp_init.exp_create_flags = IBV_EXP_QP_CREATE_INTERNAL_USE; return s.create_qp();),
    ROW("create_qp: managed send", ENOSYS, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS; s.qp_init.exp_create_flags = IBV_EXP_QP_CREATE_MANAGED_SEND; return s.create_qp();),
    ROW("create_qp: UMR on another provider", ENOSYS, s.world.keyhole = false; s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS; s.qp_init.exp_create_flags = IBV_EXP_QP_CREATE_UMR; return s.create_qp();),
    ROW("create_qp: inline fills on another provider", ENOSYS, s.world.keyhole = false; s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS; s.qp_init.max_inl_send_klms = 1; return s.create_qp();),
    ROW("create_qp: longer inline fills than can be", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS; s.qp_init.max_inl_send_klms = 65; return s.create_qp();),
    ROW("create_qp: inline fills on UD", EINVAL, s.qp_init.qp_type = IBV_QPT_UD; s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS; s.qp_init.max_inl_send_klms = 4; return s.create_qp();),
    ROW("create_qp: larger atomics than can be", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG; s.qp_init.max_atomic_arg = 16; return s.create_qp();),
    ROW("create_qp: a group", ENOSYS, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_QPG; s.qp_init.qpg.qpg_type = IBV_EXP_QPG_PARENT; return s.create_qp();),
    ROW("create_qp: receive hashing", ENOSYS, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_RX_HASH; s.qp_init.rx_hash_conf = reinterpret_cast<ibv_exp_rx_hash_conf*>(8); return s.create_qp();),
    ROW("create_qp: peer direct", ENOSYS, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_PEER_DIRECT; s.qp_init.peer_direct_attrs = reinterpret_cast<ibv_exp_peer_direct_attr*>(8); return s.create_qp();),
    ROW("create_qp: an associated QP", ENOSYS, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN; s.qp_init.associated_qpn = 8; return s.create_qp();),
    ROW("create_qp: another HCA's domain", EINVAL, s.qp_init.comp_mask |= IBV_EXP_QP_INIT_ATTR_RES_DOMAIN; s.qp_init.res_domain = &s.foreign_domain; return s.create_qp();),
    ROW("modify_qp: no QP", EINVAL, return s.number(ibv_exp_modify_qp(nullptr, &s.qp_attr, 1));),
    ROW("modify_qp: no attributes", EINVAL, return s.number(ibv_exp_modify_qp(&s.world.qp, nullptr, 1));),
    ROW("modify_qp: reserved comp_mask", EINVAL, s.qp_attr.comp_mask = IBV_EXP_QP_ATTR_RESERVED; return s.modify_qp(1);),
    ROW("modify_qp: unknown attribute", EINVAL, return s.modify_qp(1ull << 40);),
    ROW("modify_qp: DC key", ENOSYS, return s.modify_qp(IBV_EXP_QP_STATE | IBV_EXP_QP_DC_KEY);),
    ROW("modify_qp: bursts without a rate", EINVAL, s.qp_attr.comp_mask = IBV_EXP_QP_ATTR_BURST_INFO; s.qp_attr.burst_info.max_burst_sz = 1; return s.modify_qp(1);),
    ROW("modify_qp: bursts", ENOSYS, s.qp_attr.comp_mask = IBV_EXP_QP_ATTR_BURST_INFO; s.qp_attr.burst_info.max_burst_sz = 1; s.qp_attr.rate_limit = 1; return s.modify_qp(IBV_EXP_QP_RATE_LIMIT);),
    // ibv_exp_create_srq
    ROW("create_srq: no context", EINVAL, return s.pointer(ibv_exp_create_srq(nullptr, &s.srq));),
    ROW("create_srq: no attributes", EINVAL, return s.pointer(ibv_exp_create_srq(s.world.context(), nullptr));),
    ROW("create_srq: no PD", EINVAL, s.srq.pd = nullptr; return s.create_srq();),
    ROW("create_srq: another HCA's PD", EINVAL, s.srq.pd = &s.world.foreign_pd; return s.create_srq();),
    ROW("create_srq: reserved comp_mask", EINVAL, s.srq.comp_mask = IBV_EXP_CREATE_SRQ_RESERVED; return s.create_srq();),
    ROW("create_srq: unknown type", EINVAL, s.srq.srq_type = ibv_exp_srq_type(2); return s.create_srq();),
    ROW("create_srq: tag matching", ENOSYS, s.srq.srq_type = IBV_EXP_SRQT_TAG_MATCHING; return s.create_srq();),
    ROW("create_srq: strides", ENOSYS, s.srq.comp_mask = IBV_EXP_CREATE_SRQ_MP_WR; s.srq.mp_wr.log_stride_size = 6; return s.create_srq();),
    ROW("create_srq: XRC without its domain", EINVAL, s.srq.srq_type = IBV_EXP_SRQT_XRC; return s.create_srq();),
    // Domains
    ROW("create_res_domain: no context", EINVAL, return s.pointer(ibv_exp_create_res_domain(nullptr, &s.domain));),
    ROW("create_res_domain: no attributes", EINVAL, return s.pointer(ibv_exp_create_res_domain(s.world.context(), nullptr));),
    ROW("create_res_domain: reserved comp_mask", EINVAL, s.domain.comp_mask = IBV_EXP_RES_DOMAIN_RESERVED; return s.create_domain();),
    ROW("create_res_domain: unknown threads", EINVAL, s.domain.comp_mask = 3; s.domain.thread_model = ibv_exp_thread_model(3); return s.create_domain();),
    ROW("create_res_domain: unknown messages", EINVAL, s.domain.comp_mask = 3; s.domain.msg_model = ibv_exp_msg_model(4); return s.create_domain();),
    ROW("destroy_res_domain: none", EINVAL, return s.number(ibv_exp_destroy_res_domain(s.world.context(), nullptr, nullptr));),
    ROW("destroy_res_domain: another HCA's", EINVAL, return s.number(ibv_exp_destroy_res_domain(s.world.context(), &s.foreign_domain, nullptr));),
    ROW("destroy_res_domain: reserved comp_mask", EINVAL, ibv_exp_destroy_res_domain_attr attr{1}; return s.number(ibv_exp_destroy_res_domain(s.world.other_context(), &s.foreign_domain, &attr));),
    // Devices
    ROW("open_device: no device", EINVAL, s.open.comp_mask = 1; return s.pointer(ibv_exp_open_device(nullptr, &s.open));),
    ROW("open_device: no attributes", EINVAL, return s.pointer(ibv_exp_open_device(s.world.device(), nullptr));),
    ROW("open_device: nothing to set", EINVAL, return s.open_device();),
    ROW("open_device: reserved comp_mask", EINVAL, s.open.comp_mask = IBV_EXP_SET_CONTEXT_ATTR_RESERVED; return s.open_device();),
    ROW("open_device: a peer", ENOSYS, s.open.comp_mask = IBV_EXP_SET_ATTR_PEER_INFO; s.open.peer_info.peer_id = 1; return s.open_device();),
    ROW("query_device: no context", EINVAL, return s.number(ibv_exp_query_device(nullptr, &s.device));),
    ROW("query_device: nowhere to", EINVAL, return s.number(ibv_exp_query_device(s.world.context(), nullptr));),
    ROW("query_device: reserved comp_mask_2", EINVAL, s.device.comp_mask = static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2); s.device.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2; return s.number(ibv_exp_query_device(s.world.context(), &s.device));),
    ROW("query_port: no context", EINVAL, return s.number(ibv_exp_query_port(nullptr, 1, &s.port));),
    ROW("query_port: nowhere to", EINVAL, return s.number(ibv_exp_query_port(s.world.context(), 1, nullptr));),
    ROW("query_port: reserved comp_mask", EINVAL, s.port.comp_mask = IBV_EXP_QUERY_PORT_ATTR_RESERVED; return s.number(ibv_exp_query_port(s.world.context(), 1, &s.port));),
    ROW("query_port: reserved mask1", EINVAL, s.port.comp_mask = 1; s.port.mask1 = 1 << 20; return s.number(ibv_exp_query_port(s.world.context(), 1, &s.port));),
    ROW("query_gid_attr: no context", EINVAL, return s.number(ibv_exp_query_gid_attr(nullptr, 1, 0, &s.gid));),
    ROW("query_gid_attr: nowhere to", EINVAL, return s.number(ibv_exp_query_gid_attr(s.world.context(), 1, 0, nullptr));),
    ROW("query_gid_attr: reserved comp_mask", EINVAL, s.gid.comp_mask = IBV_EXP_QUERY_GID_ATTR_RESERVED; return s.number(ibv_exp_query_gid_attr(s.world.context(), 1, 0, &s.gid));),
    ROW("query_gid_attr: no such port", EINVAL, return s.number(ibv_exp_query_gid_attr(s.world.context(), 2, 0, &s.gid));),
    ROW("query_values: no context", EINVAL, return s.number(ibv_exp_query_values(nullptr, 1, &s.values));),
    ROW("query_values: nowhere to", EINVAL, return s.number(ibv_exp_query_values(s.world.context(), 1, nullptr));),
    ROW("query_values: unknown value", EINVAL, return s.number(ibv_exp_query_values(s.world.context(), IBV_EXP_VALUES_RESERVED, &s.values));),
    ROW("query_values: a negative mask", EINVAL, return s.number(ibv_exp_query_values(s.world.context(), -1, &s.values));),
    ROW("query_values: reserved comp_mask", EINVAL, s.values.comp_mask = IBV_EXP_VALUES_RESERVED; return s.number(ibv_exp_query_values(s.world.context(), 1, &s.values));),
    ROW("get_provider_func: no context", EINVAL, return s.pointer(ibv_exp_get_provider_func(nullptr, IBV_EXP_POLL_CQ_FUNC));),
    ROW("get_provider_func: unknown", ENOSYS, return s.pointer(ibv_exp_get_provider_func(s.world.context(), ibv_exp_func_name(5)));),
};

class Arguments : public ::testing::TestWithParam<int> {};

TEST_P(Arguments, GetTheirErrnoAndLeaveNothingBehind) {
  const Row& row = kRows[GetParam()];
  SCOPED_TRACE(row.what);
  Stage stage;
  errno = 0;
  EXPECT_EQ(row.call(stage), row.want);
  EXPECT_EQ(stage.world.regions + stage.world.mkeys + stage.world.klm_lists + stage.world.cqs, 0);
  EXPECT_EQ(stage.world.binds, 0);
  if (!stage.world.provider_fails) {
    EXPECT_EQ(stage.world.calls, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Arguments, ::testing::Range(0, static_cast<int>(std::size(kRows))));

// The rows are wrong in one thing only: without it each call does its work.
TEST(GoodArguments, AreAccepted) {
  Stage s;
  s.open.comp_mask = IBV_EXP_SET_ATTR_PEER_INFO;
  ibv_mr* region = ibv_exp_reg_mr(&s.reg);
  ibv_mr* mkey = ibv_exp_create_mr(&s.mkey);
  auto* list = ibv_exp_alloc_mkey_list_memory(&s.list);
  auto* domain = ibv_exp_create_res_domain(s.world.context(), &s.domain);
  ibv_cq* cq = ibv_exp_create_cq(s.world.context(), 8, nullptr, nullptr, 0, &s.cq_init);
  EXPECT_TRUE(region && mkey && list && domain && cq);
  EXPECT_EQ(s.bind_mw(), 0);
  EXPECT_EQ(s.modify_cq(3), 0);
  EXPECT_EQ(s.create_qp(), 0);
  EXPECT_EQ(s.modify_qp(1), 0);
  EXPECT_EQ(s.create_srq(), 0);
  EXPECT_EQ(s.open_device(), 0);
  EXPECT_EQ(ibv_exp_query_device(s.world.context(), &s.device), 0);
  EXPECT_EQ(ibv_exp_query_port(s.world.context(), 1, &s.port), 0);
  EXPECT_EQ(ibv_exp_query_gid_attr(s.world.context(), 1, 0, &s.gid), 0);
  EXPECT_EQ(ibv_exp_query_values(s.world.context(), 7, &s.values), 0);
  EXPECT_EQ(ibv_exp_query_mkey(mkey, &s.mkey_attr), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dereg_mr(mkey), 0);
  EXPECT_EQ(ibv_exp_dealloc_mkey_list_memory(list), 0);
  EXPECT_EQ(ibv_exp_destroy_res_domain(s.world.context(), domain, nullptr), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

}  // namespace
