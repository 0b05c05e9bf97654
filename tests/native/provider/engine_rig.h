// SPDX-License-Identifier: BSD-2-Clause
//
// The provider's queues on real HCAs: the harness of tests/native/hca plays the kernel driver, the
// fast path posts and polls as it does in a process, and the engine works either when the test says
// so (run()) or in a thread of its own (EngineThread). Everything is used through the public inline
// functions of verbs.h.

#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../hca/harness.h"
#include "rig.h"

namespace keyhole::verbs {

// One adapter as a process has it open: context 1 of a station of the rig.
class Station {
 public:
  static constexpr std::uint16_t kContext = 1;

  Station(test::FakeHost& host, Hca& hca, test::FakeDriver& driver)
      : host_(host), hca_(hca), driver_(driver), pdn_(driver.create_pd()) {
    pd_.context = test_context();
    pd_.handle = pdn_;
  }

  ibv_pd* pd() { return &pd_; }
  std::uint32_t pdn() const { return pdn_; }
  test::FakeDriver& driver() { return driver_; }
  QpTable& qps() { return qps_; }
  Hca& hca() { return hca_; }

  Doorbell bell(std::uint16_t slot) {
    return {.mark = reinterpret_cast<std::uint8_t*>(host_.doorbell_page(kContext)) + slot,
            .status = host_.status_page(kContext),
            .wake = &wake_};
  }
  // Carries a store to the wake page to the HCA, which is not trapped here.
  void deliver_wake() {
    if (__atomic_exchange_n(&wake_, 0, __ATOMIC_ACQ_REL)) hca_.wake(kContext);
  }

 private:
  test::FakeHost& host_;
  Hca& hca_;
  test::FakeDriver& driver_;
  std::uint32_t pdn_;
  ibv_pd pd_{};
  QpTable qps_;
  std::uint32_t wake_ = 0;
};

class EngineRig {
 public:
  explicit EngineRig(const test::Rig::Options& options = {}) : rig_(options) {
    for (std::size_t i = 0; i < options.stations; i++)
      stations_.push_back(std::make_unique<Station>(rig_.host(i), rig_.hca(i), rig_.driver(i)));
  }

  Station& at(std::size_t i) { return *stations_.at(i); }

  // Turns until nobody has anything to do; time stands still.
  void run() {
    for (auto& station : stations_)
      station->deliver_wake();
    rig_.run();
  }
  void run_for(std::uint64_t ns) {
    for (auto& station : stations_)
      station->deliver_wake();
    rig_.run_for(ns);
  }
  // One turn of each; true: there is more to do at once.
  bool turn() {
    for (auto& station : stations_)
      station->deliver_wake();
    return rig_.fabric().run();
  }
  std::uint64_t turns() { return rig_.fabric().turns(); }

 private:
  test::Rig rig_;
  std::vector<std::unique_ptr<Station>> stations_;
};

// Runs the engine beside the test. The clock has to be real: Rig::Options.host.real_clock.
class EngineThread {
 public:
  explicit EngineThread(EngineRig& rig)
      : thread_([this, &rig] {
          while (!stop_.load(std::memory_order_relaxed))
            if (!rig.turn()) std::this_thread::yield();
        }) {}
  ~EngineThread() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

struct EngineCq {
  test::TestCq hw;
  Cq cq;

  EngineCq(Station& station, unsigned log_size, std::uint8_t flags = 0,
           bool single_threaded = false)
      : hw(station.driver().create_cq(static_cast<std::uint8_t>(log_size), Station::kContext,
                                      flags)) {
    cq.ex.context = test_context();
    cq.db = hw.db;
    cq.qps = &station.qps();
    init_cq(cq, hw.ring, log_size, single_threaded);
    set_cq_ops(cq, kCqWcFlags);
  }
  ibv_cq* ibv() { return &cq.ibv; }

  std::vector<ibv_wc> poll(int most = 64) {
    std::vector<ibv_wc> wcs(most);
    wcs.resize(ibv_poll_cq(ibv(), most, wcs.data()));
    return wcs;
  }
};

struct EngineSrq {
  test::TestSrq hw;
  Srq srq;

  EngineSrq(Station& station, unsigned log_size)
      : hw(station.driver().create_srq(station.pdn(), static_cast<std::uint8_t>(log_size))) {
    srq.ibv.context = test_context();
    srq.ring = hw.ring;
    srq.mask = (1u << log_size) - 1;
    srq.capacity = 1u << log_size;
    srq.log_stride = hw.log_stride;
    srq.max_sge = 3;
    srq.db = hw.db;
  }
};

struct EngineQpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned log_sq_blocks = 6;
  unsigned log_rq_size = 5;
  unsigned max_send_sge = 8;
  unsigned max_inline = 256;
  bool sq_sig_all = false;
  bool single_threaded = false;
  DvLimits dv = {.indirect = true,
                 .masked_atomic = true,
                 .max_inline_entries = KH_MAX_INLINE_ENTRIES,
                 .max_entries = KH_MAX_INDIRECT};
};

struct EngineQp {
  Station& station;
  test::TestQp hw;
  Qp qp;

  EngineQp(Station& at, EngineCq& send_cq, EngineCq& recv_cq, EngineQpOptions o = {},
           EngineSrq* srq = nullptr)
      : station(at), hw(at.driver().create_qp(hw_options(at, send_cq, recv_cq, o, srq))) {
    qp.ibv.context = test_context();
    qp.ibv.pd = at.pd();
    qp.ibv.qp_num = hw.qpn;
    qp.ibv.qp_type = o.type;
    qp.sq.ring = hw.sq;
    qp.sq.mask = (1u << o.log_sq_blocks) - 1;
    qp.sq.db = hw.db;
    if (!srq) {
      qp.rq.ring = hw.rq;
      qp.rq.mask = (1u << o.log_rq_size) - 1;
      qp.rq.capacity = 1u << o.log_rq_size;
      qp.rq.log_stride = 6;
    }
    qp.rq.db = hw.db;
    qp.bell = at.bell(hw.slot);
    qp.send_cq = &send_cq.cq;
    qp.recv_cq = &recv_cq.cq;
    qp.srq = srq ? &srq->srq : nullptr;
    init_qp(qp, o.type, o.sq_sig_all, o.max_send_sge, 3, o.max_inline, o.single_threaded);
    set_dv_limits(qp, o.type, o.dv);
    if (set_wr_ops(qp, o.type, 0) || set_dv_ops(qp, 0) || !at.qps().insert(hw.qpn, &qp))
      throw std::runtime_error("a QP could not be set up");
  }
  ~EngineQp() { station.qps().remove(hw.qpn); }

  ibv_qp* ibv() { return &qp.ibv; }
  ibv_qp_ex* ex() { return &qp.ex; }
  keyholedv_qp_ex* dv() { return &qp.dv; }
  int post_dv(keyholedv_send_wr& wr) { return verbs::post_dv(ibv(), &wr, nullptr); }

  void connect(EngineQp& peer, std::uint32_t access = KH_ACCESS_REMOTE) {
    station.driver().bring_up(hw, peer.station.driver(), peer.hw, access);
    set_qp_state(qp, IBV_QPS_RTS);
  }
  void bring_up_ud(std::uint32_t qkey) {
    station.driver().bring_up_ud(hw, qkey);
    set_qp_state(qp, IBV_QPS_RTS);
  }
  void modify(ibv_qp_state state) {
    kh_qp_attr attr{};
    attr.mask = KH_QP_STATE;
    attr.state = static_cast<std::uint8_t>(state);
    if (station.driver().modify_qp(hw, attr) != KH_ST_OK)
      throw std::runtime_error("MODIFY_QP was refused");
    if (state == IBV_QPS_RESET)
      reset_qp(qp);
    else
      set_qp_state(qp, state);
  }
  // As ibv_destroy_qp: after this only the destructor.
  void destroy() {
    if (station.driver().destroy(KH_ADM_DESTROY_QP, hw.qpn) != KH_ST_OK)
      throw std::runtime_error("DESTROY_QP was refused");
    clean_qp(qp);
  }

  int post_send(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(ibv(), &wr, &bad);
  }
  int post_recv(std::uint64_t wr_id, ibv_sge sge) {
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(ibv(), &wr, &bad);
  }

 private:
  static test::QpOptions hw_options(Station& at, EngineCq& send_cq, EngineCq& recv_cq,
                                    const EngineQpOptions& o, EngineSrq* srq) {
    test::QpOptions options;
    options.type = o.type == IBV_QPT_RC ? KH_QPT_RC : o.type == IBV_QPT_UC ? KH_QPT_UC : KH_QPT_UD;
    options.pdn = at.pdn();
    options.send_cqn = send_cq.hw.cqn;
    options.recv_cqn = recv_cq.hw.cqn;
    if (srq) options.srqn = srq->hw.srqn;
    options.context = Station::kContext;
    options.log_sq_blocks = static_cast<std::uint8_t>(o.log_sq_blocks);
    options.log_rq_size = static_cast<std::uint8_t>(o.log_rq_size);
    options.log_rq_stride = 6;
    options.max_send_sge = static_cast<std::uint8_t>(o.max_send_sge);
    options.max_recv_sge = 3;
    return options;
  }
};

// A registered region, filled with a pattern.
struct EngineMr {
  test::TestRegion hw;
  ibv_mr mr{};

  EngineMr(Station& station, std::size_t size, std::uint32_t access, unsigned seed = 1)
      : hw(station.driver().create_region(station.pdn(), size, access)) {
    mr.context = test_context();
    mr.pd = station.pd();
    mr.addr = hw.memory;
    mr.length = size;
    mr.lkey = mr.rkey = hw.key;
    const auto bytes = pattern(size, seed);
    std::memcpy(hw.memory, bytes.data(), size);
  }
  std::byte* data() { return hw.memory; }
  std::uint64_t addr(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(hw.memory) + offset;
  }
  ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {addr(offset), static_cast<std::uint32_t>(length), mr.lkey};
  }
};

struct EngineMw {
  ibv_mw mw{};

  EngineMw(Station& station, ibv_mw_type type) {
    mw.context = test_context();
    mw.pd = station.pd();
    mw.type = type;
    mw.rkey = station.driver().create_window(station.pdn(),
                                             type == IBV_MW_TYPE_1 ? KH_MKEY_MW1 : KH_MKEY_MW2);
  }
};

inline constexpr std::uint32_t kAllAccess =
    KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;

struct EngineMkey {
  keyholedv_mkey dv{};

  EngineMkey(Station& station, std::uint32_t max_entries, std::uint32_t access = 0) {
    dv.lkey = dv.rkey = station.driver().create_indirect(station.pdn(), max_entries, access);
  }
};

struct EngineKlmList {
  keyholedv_klm_list dv{};

  EngineKlmList(Station& station, std::uint32_t max_entries) {
    const std::size_t length = max_entries * sizeof(kh_stride);
    const std::size_t pages = (length + 4095) & ~std::size_t{4095};
    std::byte* memory = station.driver().host().allocate(pages);
    dv = {.addr = memory,
          .length = length,
          .max_entries = max_entries,
          .key = station.driver().create_klm_list(station.pdn(), memory, pages)};
  }
};

}  // namespace keyhole::verbs
