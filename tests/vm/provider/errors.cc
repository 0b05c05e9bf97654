// SPDX-License-Identifier: BSD-2-Clause
//
// Wrong attributes and wrong order get the errno that the man pages name, and change nothing.

#include "rig.h"

namespace rig {
namespace {

template <class T>
void refused(T* object, int err, const std::string& what) {
  const int got = errno;
  check(!object, what + ": refused");
  if (!object) same(got, err, what + ": errno");
}

void creation(Pair pair) {
  ibv_context* context = pair.a.context.get();
  ibv_pd* pd = pair.a.pd.get();
  ibv_device_attr device{};
  need_zero(ibv_query_device(context, &device), "ibv_query_device");

  refused(ibv_create_cq(context, 0, nullptr, nullptr, 0), EINVAL, "CQ of no entries");
  refused(ibv_create_cq(context, device.max_cqe + 1, nullptr, nullptr, 0), EINVAL, "CQ too large");
  refused(ibv_create_cq(context, 8, nullptr, nullptr, context->num_comp_vectors), EINVAL,
          "CQ on a vector that is not there");
  ibv_cq_init_attr_ex ex{};
  ex.cqe = 8;
  ex.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
  refused(ibv_create_cq_ex(context, &ex), EOPNOTSUPP, "CQ with a field that the device lacks");

  const auto qp = [&](auto change, int err, const std::string& what) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = pair.a.cq.get();
    init.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    change(init);
    refused(ibv_create_qp(pd, &init), err, what);
  };
  const auto large = static_cast<uint32_t>(device.max_qp_wr) + 1;
  qp([&](auto& i) { i.cap.max_send_wr = large; }, EINVAL, "QP with too many sends");
  qp([&](auto& i) { i.cap.max_recv_wr = large; }, EINVAL, "QP with too many receives");
  qp([&](auto& i) { i.cap.max_send_sge = device.max_sge + 1; }, EINVAL, "QP with too many entries");
  qp([&](auto& i) { i.cap.max_inline_data = 1 << 20; }, EINVAL, "QP with too much inline");
  qp([&](auto& i) { i.send_cq = nullptr; }, EINVAL, "QP without a send CQ");
  qp([&](auto& i) { i.recv_cq = pair.b.cq.get(); }, EINVAL, "QP with another device's CQ");
  qp([&](auto& i) { i.qp_type = IBV_QPT_RAW_PACKET; }, EOPNOTSUPP, "raw packet QP");

  ibv_srq_init_attr srq{};
  srq.attr = {.max_wr = static_cast<uint32_t>(device.max_srq_wr) + 1, .max_sge = 1, .srq_limit = 0};
  refused(ibv_create_srq(pd, &srq), EINVAL, "SRQ too large");
  srq.attr = {.max_wr = 0, .max_sge = 1, .srq_limit = 0};
  refused(ibv_create_srq(pd, &srq), EINVAL, "SRQ of no entries");

  ibv_ah_attr ah{};
  ah.port_num = 1;
  refused(ibv_create_ah(pd, &ah), EINVAL, "address handle without a GRH");
  ah.is_global = 1;
  ah.grh.dgid = pair.b.gid;
  ah.grh.sgid_index = 255;
  refused(ibv_create_ah(pd, &ah), EINVAL, "address handle with a GID index that is not there");

  refused(ibv_reg_mr(pd, pair.a.memory.data(), 64, IBV_ACCESS_REMOTE_WRITE), EINVAL,
          "region with remote but no local write");
  refused(ibv_reg_mr(pd, reinterpret_cast<void*>(0x1000), 64, 0), EFAULT, "region of no memory");
}

void order(Pair pair) {
  Context other(need(ibv_open_device(pair.a.context->device), "ibv_open_device"));
  Pd pd(need(ibv_alloc_pd(other.get()), "ibv_alloc_pd"));
  Cq cq(need(ibv_create_cq(other.get(), 8, nullptr, nullptr, 0), "ibv_create_cq"));
  std::vector<uint8_t> bytes(4096);
  {
    Mr mr(need(ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), 0), "ibv_reg_mr"));
    same(ibv_dealloc_pd(pd.get()), EBUSY, "PD with a region is busy");
    Qp qp = make_qp(pd.get(), cq.get());
    same(ibv_destroy_cq(cq.get()), EBUSY, "CQ with a QP is busy");
  }
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  Srq srq(need(ibv_create_srq(pd.get(), &init), "ibv_create_srq"));
  ibv_qp_init_attr with{};
  with.srq = srq.get();
  Qp qp = make_qp(pd.get(), cq.get(), with);
  same(ibv_destroy_srq(srq.get()), EBUSY, "SRQ with a QP is busy");

  ibv_sge sge = pair.a.sge(1);
  same(post(qp.get(), write_request(sge, pair.b)), EINVAL, "a send in RESET is EINVAL");
  same(post_receive(qp.get(), &sge), EINVAL, "a receive on a QP with an SRQ is EINVAL");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  same(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), EINVAL, "RESET to RTS is EINVAL");
}

}  // namespace

void test_errors(Pair pair) {
  creation(pair);
  order(pair);
}

}  // namespace rig
