// SPDX-License-Identifier: BSD-2-Clause
//
// One HCA: its registers and all of its objects, and the loop that gives each queue its turns.
//
// The owner calls run() from one thread, at least when deadline() says so, after wake(), and as
// often as it likes while polling() is true. Register and wake page stores, reset() and
// GuestMemory::changed() come from the same thread, between two calls of run(). In run() the HCA
// may also be called by other HCAs of its fabric: by reference, as the target of RDMA.
//
// After reset() (or a store of 0 to CONTROL) every object is gone, and no guest memory is touched
// until the driver enables the HCA again.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hca/admin_result.h"
#include "hca/context.h"
#include "hca/cq.h"
#include "hca/eq.h"
#include "hca/host.h"
#include "hca/id_table.h"
#include "hca/link.h"
#include "hca/memory_budget.h"
#include "hca/mkey_table.h"
#include "hca/notifier.h"
#include "hca/page_list.h"
#include "hca/run_queue.h"
#include "hca/srq.h"
#include "hca/stats.h"
#include "hca/timers.h"
#include "keyhole_hw.h"

namespace keyhole {

class Admin;
class Nic;
class Qp;

struct HcaOptions {
  std::string name = "hca";
  Mac mac{};
  uint16_t vectors = 16;                       // MSI-X, 1..KH_MAX_VECTORS
  uint64_t memory_budget = uint64_t{1} << 30;  // bytes that its guest may make us spend
  uint64_t idle_ns = 500'000;  // without a mark for so long, a context goes to sleep
};

// Limits that QUERY_DEVICE reports and the commands enforce.
struct DeviceLimits {
  static constexpr uint32_t max_qp = 16384 - 2;  // QPN 0 is nobody, 1 is the GSI QP on top
  static constexpr uint32_t max_cq = 32768;
  static constexpr uint32_t max_srq = 4096;
  static constexpr uint32_t max_pd = 16384;
  static constexpr uint32_t max_mkey = 1u << 20;
  static constexpr uint32_t max_eq = KH_MAX_VECTORS + 1;
  static constexpr uint8_t max_log_cq = 22;
  static constexpr uint8_t max_log_sq = 20;  // blocks
  static constexpr uint8_t max_log_rq = 15;
  static constexpr uint32_t gid_table_len = 128;
  static constexpr uint32_t max_mcast_groups = 1024;
  static constexpr uint32_t max_mcast_qps = 256;
  // Entries of one kh_pages that is not contiguous.
  static constexpr uint32_t max_page_list = PageListReader::max_scattered_pages;
};

struct GidEntry {
  std::array<uint8_t, 16> gid{};
  Mac mac;
  uint16_t vlan = KH_VLAN_NONE;
  bool valid = false;
};

using Gid = std::array<uint8_t, 16>;

class Hca {
 public:
  static constexpr uint32_t gsi_qpn = 1;

  // `link` may be null: then nothing is plugged in. Host::doorbells gives the number of contexts.
  Hca(HcaOptions options, Host host, Link* link);
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  // --- For the owner -------------------------------------------------------------------------

  // BAR 0, 32 bit accesses at 4 byte aligned offsets below KH_MSIX_TABLE_OFFSET. Others read as
  // zero and write nothing.
  uint32_t read_register(uint64_t offset);
  void write_register(uint64_t offset, uint32_t value);

  // A store to the wake page of the context `number`.
  void wake(uint32_t number);

  // Function-level reset: everything is as at power-on.
  void reset();

  // Does a bounded amount of work. True: there is more to do at once.
  bool run();
  // How often a queue has had its turn, ever: what run() did, also when it left nothing to do.
  uint64_t turns() const { return turns_; }

  // Work is waiting, without the marks being looked at.
  bool has_work() const { return ready() && (!run_queue_.empty() || !notifier_.empty()); }
  // A context is awake: its marks must be looked at (by run()) soon and again.
  bool polling() const { return !awake_.empty(); }
  // When run() has to be called, at the latest, if nothing else happens.
  uint64_t deadline() const { return ready() ? timers_.next_deadline() : Timers::never; }

  void set_idle_ns(uint64_t idle_ns) { options_.idle_ns = idle_ns; }

  // A frame for this HCA from the link. Called by the switch, during run() of any HCA.
  void receive(std::span<const std::byte> frame);

  // What a person may want to see; numbers of objects that exist.
  struct Snapshot {
    std::string name;
    Mac mac;
    uint32_t status = 0;  // KH_STATUS_*
    uint32_t contexts = 0, awake = 0, pds = 0, eqs = 0, cqs = 0, srqs = 0, qps = 0, mkeys = 0;
    uint64_t memory_used = 0, memory_limit = 0;
    bool port_up = false, rdma_up = false;
    Stats stats;
  };
  Snapshot snapshot() const;

  // --- For the transport ---------------------------------------------------------------------

  const std::string& name() const { return options_.name; }
  GuestMemory& memory() const { return *host_.memory; }
  MkeyTable& mkeys() { return *mkeys_; }
  Timers& timers() { return timers_; }
  Notifier& notifier() { return notifier_; }
  Stats& stats() { return stats_; }
  Link* link() { return link_; }
  // The time at the start of this turn, good enough for timers; notifier().clock_ns() is exact.
  uint64_t now() const { return now_; }

  // Gives the queue a turn. A QP of another HCA, too, is scheduled at its own HCA.
  void schedule(Runnable& queue) { run_queue_.add(queue); }

  Qp* find_qp(uint32_t qpn) const { return qps_.find(qpn); }
  Cq* find_cq(uint32_t cqn) const { return cqs_.find(cqn); }
  Srq* find_srq(uint32_t srqn) const { return srqs_.find(srqn); }

  // Null when the index is out of range or the entry is not valid.
  const GidEntry* gid(uint32_t index) const {
    if (index >= gids_.size() || !gids_[index].valid) return nullptr;
    return &gids_[index];
  }
  // The index of the valid entry with this GID and VLAN; -1: none.
  int find_gid(const Gid& gid, uint16_t vlan) const;
  // Moves when the table changes, so that what a QP has looked up can be kept. Never 0.
  uint64_t gid_generation() const { return gid_generation_; }

  // QPs attached to the group.
  std::span<Qp* const> mcast_members(const Gid& mgid) const;

  // Reports an asynchronous event of an object; goes nowhere when the driver has no async EQ.
  void report(EventSource& source, kh_event kind, uint32_t data = 0) {
    if (Eq* eq = notifier_.async_eq()) eq->post(source, kind, data);
  }

  bool ready() const { return status_ == KH_STATUS_READY; }
  bool port_up() const { return (port_flags_ & KH_PORT_UP) != 0; }
  // Takes RDMA packets: enabled, up, and KH_PORT_RDMA.
  bool rdma_up() const {
    return ready() && (port_flags_ & (KH_PORT_UP | KH_PORT_RDMA)) == (KH_PORT_UP | KH_PORT_RDMA);
  }
  uint16_t mtu() const { return mtu_; }
  bool promiscuous() const { return (port_flags_ & KH_PORT_PROMISC) != 0; }
  const Mac& mac() const { return mac_; }

  // The HCA stops: KH_STATUS_FATAL, and the event if there is an async EQ.
  void fatal(kh_fatal why);

 private:
  friend class Admin;

  static void beat(void* self, uint64_t now);
  static void look_at_held_events(void* self, uint64_t now);
  void enable();
  void disable();
  void scan();
  void let_sleep();
  void fail_qps_of_failed_cqs();
  void flush();
  Context* context(uint32_t number) const {
    return number < contexts_.size() ? contexts_[number].get() : nullptr;
  }
  Context& make_context(uint32_t number);
  void drop_context(uint32_t number);
  void leave_groups(Qp& qp);

  HcaOptions options_;
  Host host_;
  Link* link_;
  MemoryBudget budget_;
  uint64_t now_ = 0;
  Stats stats_;
  Timers timers_;
  Notifier notifier_;
  RunQueue run_queue_;
  uint64_t turns_ = 0;

  // Registers.
  uint32_t status_ = 0;
  uint32_t control_ = 0;
  uint64_t admin_sq_ = 0;
  uint64_t admin_cq_ = 0;
  uint64_t admin_db_ = 0;
  uint32_t admin_size_ = 0;
  uint32_t clock_high_ = 0;

  // Port.
  Mac mac_;
  uint8_t port_flags_ = 0;
  uint16_t mtu_ = 1500;
  std::vector<GidEntry> gids_;
  uint64_t gid_generation_ = 1;
  EventSource port_events_{1};

  // Objects, in an order in which they can be taken down from the last to the first.
  struct Pd {
    uint32_t objects = 0;  // keys, SRQs and QPs
  };
  std::unique_ptr<MkeyTable> mkeys_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<Context*> awake_;
  IdTable<Pd> pds_;
  IdTable<Eq> eqs_;
  IdTable<Cq> cqs_;
  IdTable<Srq> srqs_;
  IdTable<Qp> qps_;
  std::map<Gid, std::vector<Qp*>> mcast_;
  std::unique_ptr<Nic> nic_;
  std::unique_ptr<Admin> admin_;

  Timer heartbeat_;
  Timer held_events_;
  uint64_t beats_ = 0;
};

}  // namespace keyhole
