// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// The queues as the fast path sees them: plain structs over memory that the control path allocated
// and the device was told of. They depend on the public verbs types (keyholedv.h among them) and on
// keyhole_hw.h alone, so the same code runs inside libibverbs and in a native test that plays the
// kernel.
//
// Each object begins with the verbs object that applications hold (and Qp and Srq with the fields
// that rdma-core's private struct verbs_qp and struct verbs_srq add to it), so that the pointer an
// application passes is the pointer to our object.
//
// Who writes what: a queue's producer side is written under its own lock by who posts. The consumer
// side (ci) is written under the lock of the CQ that reports on the queue, by who polls, and lies
// in a cache line of its own. All indices run freely and are compared by subtraction.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <infiniband/verbs.h>

#include "keyhole_hw.h"
#include "keyholedv.h"
#include "lock.h"

namespace keyhole::verbs {

inline constexpr std::size_t kCacheLine = 64;

class QpTable;
struct Cq;
struct Srq;

// How a queue makes the device look at it: see "Doorbells" in keyhole_hw.h.
struct Doorbell {
  std::uint8_t* mark = nullptr;            // the queue's slot in the doorbell page
  const kh_status_page* status = nullptr;  // read only
  std::uint32_t* wake = nullptr;           // first word of the context's wake page
};

// A ring of 64 byte blocks.
struct alignas(kCacheLine) SendQueue {
  std::byte* ring = nullptr;
  std::uint32_t mask = 0;  // blocks - 1
  std::uint32_t pi = 0;    // blocks posted
  Lock lock;
  std::uint32_t allowed = 0;       // bit n: opcode n of enum ibv_wr_opcode may be posted now
  std::uint32_t direct = 0;        // of these, the ones that put_direct() in post_send.cc knows
  std::uint32_t always_flags = 0;  // KH_WQE_SIGNALED with sq_sig_all
  std::uint16_t max_inline = 0;    // bytes
  std::uint8_t max_sge = 0;
  std::uint8_t direct_inline = 0;  // bytes of inline data that put_direct() may copy
  bool ud = false;
  std::uint8_t dv_allowed = 0;          // bit n: opcode n of enum keyholedv_wr_opcode, likewise
  std::uint8_t dv_type_allows = 0;      // what it becomes in RTS: set by set_dv_limits()
  std::uint8_t max_inline_entries = 0;  // of a fill
  std::uint32_t max_list_entries = 0;   // of a fill from a KLM list
  std::uint32_t type_allows = 0;        // what `allowed` becomes in RTS: set by init_qp()
  kh_qp_db* db = nullptr;

  // The WQE that the ibv_wr_* builder is at work on, between wr_start and wr_complete.
  struct Build {
    std::byte* wqe = nullptr;
    std::byte* data = nullptr;  // where SGEs or inline data begin; null: a setter has no place now
    std::uint32_t index = 0;    // of the WQE
    std::uint32_t end = 0;      // blocks posted once this batch is rung
    std::uint32_t limit = 0;    // end may not pass this; equal to it once the batch has failed
    int error = 0;
    std::uint32_t address_missing = false;  // UD: wr_set_ud_addr has still to come
  };
  alignas(kCacheLine) Build build;

  alignas(kCacheLine) std::uint32_t ci = 0;  // blocks done, as polled
};

// A ring of WQEs of one size: kh_rwqe and its SGEs.
struct alignas(kCacheLine) ReceiveQueue {
  std::byte* ring = nullptr;
  std::uint32_t mask = 0;  // WQEs - 1
  std::uint32_t pi = 0;    // WQEs posted
  Lock lock;
  std::uint32_t capacity = 0;  // receives that may be outstanding, at most mask + 1
  std::uint8_t log_stride = 0;
  std::uint8_t max_sge = 0;
  bool open = false;  // posting is allowed: not in RESET, and there is an RQ
  kh_qp_db* db = nullptr;

  alignas(kCacheLine) std::uint32_t ci = 0;  // receives completed, as polled
};

struct Qp {
  union {
    ibv_qp_ex ex{};
    ibv_qp ibv;
  };
  std::uint32_t verbs_comp_mask = 0;  // these two as in struct verbs_qp
  void* verbs_xrcd = nullptr;

  SendQueue sq;
  ReceiveQueue rq;
  Doorbell bell;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  ibv_qp_state state = IBV_QPS_RESET;  // as last commanded
  keyholedv_qp_ex dv{};                // empty unless created with keyholedv's send_ops_flags
};

struct Srq {
  ibv_srq ibv{};  // up to srq_num as in struct verbs_srq
  ibv_srq_type verbs_type{};
  void* verbs_xrcd = nullptr;
  ibv_cq* verbs_cq = nullptr;
  std::uint32_t srq_num = 0;

  alignas(kCacheLine) std::byte* ring = nullptr;
  std::uint32_t mask = 0;
  std::uint32_t pi = 0;
  Lock lock;
  std::uint32_t capacity = 0;  // receives outstanding: posted and not yet polled
  std::uint8_t log_stride = 0;
  std::uint8_t max_sge = 0;
  kh_srq_db* db = nullptr;
  // A QP that is destroyed or reset in mid-message takes the receive that it was filling with it,
  // and no CQE says so. Each such end may therefore have cost one unit of capacity, which is
  // granted again; the ring itself is guarded by the device's own index.
  std::uint32_t lost = 0;

  // Polled from any of the CQs whose QPs use the SRQ: changed by atomic addition.
  alignas(kCacheLine) std::uint32_t completed = 0;
};

struct Cq {
  union {
    ibv_cq_ex ex{};
    ibv_cq ibv;
  };

  alignas(kCacheLine) kh_cqe* ring = nullptr;
  std::uint32_t mask = 0;  // entries - 1
  std::uint32_t ci = 0;
  Lock lock;
  std::uint8_t log_size = 0;
  kh_cq_db* db = nullptr;  // written under both locks
  QpTable* qps = nullptr;
  const kh_cqe* current = nullptr;  // of start_poll and next_poll

  // Arming has a lock of its own, which is never elided: a thread may arm between start_poll and
  // end_poll, and the thread that takes the events from the channel is often not the one that
  // polls.
  alignas(kCacheLine) Lock arm_lock;
  std::uint32_t arm_sn = 0;
  std::uint8_t arm_pending = 0;  // KH_ARM_*, 0 when the last one has fired
};

// An address handle carries its address vector ready for the WQE.
struct Ah {
  ibv_ah ibv{};
  kh_av av{};
};

static_assert(sizeof(kh_sge) == sizeof(ibv_sge));
static_assert(offsetof(kh_sge, addr) == offsetof(ibv_sge, addr));
static_assert(offsetof(kh_sge, length) == offsetof(ibv_sge, length));
static_assert(offsetof(kh_sge, lkey) == offsetof(ibv_sge, lkey));
static_assert(KH_WQE_FENCE == IBV_SEND_FENCE && KH_WQE_SIGNALED == IBV_SEND_SIGNALED);
static_assert(KH_WQE_SOLICITED == IBV_SEND_SOLICITED && KH_WQE_INLINE == IBV_SEND_INLINE);

// From what the application holds to what it is. The verbs object is the first member of each.
inline Qp& qp_of(ibv_qp* qp) { return *reinterpret_cast<Qp*>(qp); }
inline Qp& qp_of(ibv_qp_ex* qp) { return *reinterpret_cast<Qp*>(qp); }
inline Qp& qp_of(keyholedv_qp_ex* qp) {
  return *reinterpret_cast<Qp*>(reinterpret_cast<std::byte*>(qp) - offsetof(Qp, dv));
}
inline Cq& cq_of(ibv_cq* cq) { return *reinterpret_cast<Cq*>(cq); }
inline Cq& cq_of(ibv_cq_ex* cq) { return *reinterpret_cast<Cq*>(cq); }
inline Srq& srq_of(ibv_srq* srq) { return *reinterpret_cast<Srq*>(srq); }
inline Ah& ah_of(ibv_ah* ah) { return *reinterpret_cast<Ah*>(ah); }

static_assert(std::is_standard_layout_v<Qp> && std::is_standard_layout_v<Cq>);
static_assert(std::is_standard_layout_v<Srq> && std::is_standard_layout_v<Ah>);

}  // namespace keyhole::verbs
