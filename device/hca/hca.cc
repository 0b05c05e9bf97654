// SPDX-License-Identifier: BSD-2-Clause
//
// The life of an HCA, and its loop.

#include "hca/hca.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>

#include "hca/admin.h"
#include "hca/frame.h"
#include "hca/nic.h"
#include "hca/transport/qp.h"

namespace keyhole {

namespace {

// The driver is promised one a second.
constexpr uint64_t beat_every_ns = 400'000'000;
// How soon room in a full event queue is noticed: software does not ring when it makes room.
constexpr uint64_t look_at_held_events_every_ns = 500'000;
// One run() ends after so much, so that its owner can look after others.
constexpr uint32_t turns_per_run = 16;
constexpr int64_t bytes_per_run = 1024 * 1024;
constexpr uint32_t timers_per_run = 64;

}  // namespace

Hca::Hca(HcaOptions options, Host host, Link* link)
    : options_(std::move(options)),
      host_(host),
      link_(link),
      budget_(options_.memory_budget),
      notifier_(*host.interrupts, *host.clock, timers_, stats_),
      mac_(options_.mac),
      contexts_(host.doorbells.size() / KH_PAGE_SIZE),
      pds_(1, DeviceLimits::max_pd, 16, 16),
      eqs_(0, DeviceLimits::max_eq, 8, 8),
      cqs_(0, DeviceLimits::max_cq, 16, 16),
      srqs_(0, DeviceLimits::max_srq, 16, 16),
      qps_(gsi_qpn + 1, DeviceLimits::max_qp, 14, 24),
      heartbeat_(timers_, beat, this),
      held_events_(timers_, look_at_held_events, this) {
  if (contexts_.empty() || host.status.size() < host.doorbells.size())
    throw std::invalid_argument("an HCA needs a doorbell page and a status page per context");
  if (options_.vectors == 0 || options_.vectors > KH_MAX_VECTORS)
    throw std::invalid_argument("an HCA has 1 to KH_MAX_VECTORS vectors");
  notifier_.name = options_.name.c_str();
}

Hca::~Hca() { disable(); }

// --- Registers --------------------------------------------------------------------------------

uint32_t Hca::read_register(uint64_t offset) {
  auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
  switch (offset) {
    case KH_REG_MAGIC:
      return KH_HW_MAGIC;
    case KH_REG_VERSION:
      return KH_HW_MAJOR << 16 | KH_HW_MINOR;
    case KH_REG_STATUS:
      return status_;
    case KH_REG_CONTROL:
      return control_;
    case KH_REG_ADMIN_SQ:
      return low(admin_sq_);
    case KH_REG_ADMIN_SQ + 4:
      return high(admin_sq_);
    case KH_REG_ADMIN_CQ:
      return low(admin_cq_);
    case KH_REG_ADMIN_CQ + 4:
      return high(admin_cq_);
    case KH_REG_ADMIN_DB:
      return low(admin_db_);
    case KH_REG_ADMIN_DB + 4:
      return high(admin_db_);
    case KH_REG_ADMIN_SIZE:
      return admin_size_;
    case KH_REG_NUM_CONTEXTS:
      return static_cast<uint32_t>(contexts_.size());
    case KH_REG_NUM_VECTORS:
      return options_.vectors;
    case KH_REG_CLOCK_LO: {
      uint64_t now = host_.clock->now_ns();
      clock_high_ = high(now);
      return low(now);
    }
    case KH_REG_CLOCK_HI:
      return clock_high_;
    case KH_REG_MAC_LO:
      return low(options_.mac.value());
    case KH_REG_MAC_HI:
      return high(options_.mac.value());
    default:
      return 0;
  }
}

void Hca::write_register(uint64_t offset, uint32_t value) {
  auto set_low = [&](uint64_t& reg) { reg = (reg & ~uint64_t{0xffffffff}) | value; };
  auto set_high = [&](uint64_t& reg) { reg = (reg & 0xffffffff) | uint64_t{value} << 32; };
  switch (offset) {
    case KH_REG_CONTROL: {
      bool was = (control_ & KH_CONTROL_ENABLE) != 0;
      control_ = value & KH_CONTROL_ENABLE;
      if (!was && control_) enable();
      if (was && !control_) disable();
      break;
    }
    case KH_REG_ADMIN_SQ:
      set_low(admin_sq_);
      break;
    case KH_REG_ADMIN_SQ + 4:
      set_high(admin_sq_);
      break;
    case KH_REG_ADMIN_CQ:
      set_low(admin_cq_);
      break;
    case KH_REG_ADMIN_CQ + 4:
      set_high(admin_cq_);
      break;
    case KH_REG_ADMIN_DB:
      set_low(admin_db_);
      break;
    case KH_REG_ADMIN_DB + 4:
      set_high(admin_db_);
      break;
    case KH_REG_ADMIN_SIZE:
      admin_size_ = value;
      break;
    default:
      break;
  }
}

void Hca::enable() {
  auto fail = [&](kh_fatal why) {
    status_ = KH_STATUS_FATAL | why << KH_STATUS_FATAL_SHIFT;
    spdlog::warn("{}: cannot start: admin queue at {:#x}, {:#x}, {:#x}, log2 size {}", name(),
                 admin_sq_, admin_cq_, admin_db_, admin_size_);
  };
  if (admin_size_ < 1 || admin_size_ > KH_ADMIN_MAX_LOG || admin_sq_ % KH_PAGE_SIZE != 0 ||
      admin_cq_ % KH_PAGE_SIZE != 0 || admin_db_ % 64 != 0)
    return fail(KH_FATAL_ADMIN_ADDR);
  PageList sq(memory(), admin_sq_, sizeof(kh_admin_cmd) << admin_size_);
  PageList cq(memory(), admin_cq_, sizeof(kh_admin_cqe) << admin_size_);
  PageList db(memory(), admin_db_, sizeof(kh_admin_db));
  for (const PageList* piece : {&sq, &cq, &db}) {
    if (!piece->mapped(0, piece->size(), true)) return fail(KH_FATAL_ADMIN_ADDR);
  }
  now_ = host_.clock->now_ns();
  mkeys_ = std::make_unique<MkeyTable>(memory(), budget_, DeviceLimits::max_mkey);
  gids_.assign(DeviceLimits::gid_table_len, {});
  ++gid_generation_;
  admin_ = std::make_unique<Admin>(*this, std::move(sq), std::move(cq), std::move(db),
                                   static_cast<uint8_t>(admin_size_));
  make_context(0).attach(KH_DB_SLOT_ADMIN, *admin_);
  status_ = KH_STATUS_READY;
  beat(this, now_);
  spdlog::info("{}: enabled by the driver", name());
}

// From the users to the used.
void Hca::disable() {
  if (status_ == KH_STATUS_READY) spdlog::info("{}: reset", name());
  bool was_on_link = port_up();
  status_ = 0;
  control_ = 0;
  port_flags_ = 0;
  mac_ = options_.mac;
  mtu_ = 1500;
  if (link_ && was_on_link) link_->changed(*this);
  heartbeat_.stop();
  held_events_.stop();
  port_events_.forget();
  awake_.clear();
  mcast_.clear();
  nic_.reset();
  admin_.reset();
  qps_.clear();
  srqs_.clear();
  cqs_.clear();
  eqs_.clear();
  for (auto& context : contexts_)
    context.reset();
  pds_.clear();
  mkeys_.reset();
  gids_.clear();
  ++gid_generation_;
  budget_ = MemoryBudget(options_.memory_budget);
  stats_ = {};
  notifier_.start_over();
}

void Hca::reset() {
  disable();
  admin_sq_ = admin_cq_ = admin_db_ = 0;
  admin_size_ = 0;
  clock_high_ = 0;
}

void Hca::fatal(kh_fatal why) {
  if (!ready()) return;
  spdlog::warn("{}: fatal error {}", name(), static_cast<uint32_t>(why));
  report(port_events_, KH_EV_FATAL, why);
  // The event goes out with this turn's flush; after it the HCA does nothing more.
  status_ = KH_STATUS_FATAL | why << KH_STATUS_FATAL_SHIFT;
  if (link_) link_->changed(*this);
}

void Hca::beat(void* self, uint64_t now) {
  Hca& hca = *static_cast<Hca*>(self);
  auto* page = reinterpret_cast<kh_status_page*>(hca.host_.status.data());
  store_relaxed<uint64_t>(&page->clock, now);
  store_release<uint64_t>(&page->heartbeat, ++hca.beats_);
  hca.heartbeat_.start(now + beat_every_ns);
}

// --- Contexts ---------------------------------------------------------------------------------

Context& Hca::make_context(uint32_t number) {
  size_t at = size_t{number} * KH_PAGE_SIZE;
  contexts_[number] =
      std::make_unique<Context>(number, host_.doorbells.data() + at, host_.status.data() + at);
  return *contexts_[number];
}

void Hca::drop_context(uint32_t number) {
  std::erase(awake_, contexts_[number].get());
  contexts_[number].reset();
}

void Hca::wake(uint32_t number) {
  Context* sleeper = context(number);
  if (!ready() || !sleeper) return;
  ++stats_[KH_STAT_WAKES];
  if (sleeper->awake()) return;
  sleeper->wake();
  sleeper->last_mark = host_.clock->now_ns();
  awake_.push_back(sleeper);
}

void Hca::scan() {
  for (Context* context : awake_) {
    uint32_t taken = context->scan(run_queue_);
    if (taken == 0) continue;
    context->last_mark = now_;
    stats_[KH_STAT_DOORBELLS] += taken;
  }
}

void Hca::let_sleep() {
  std::erase_if(awake_, [&](Context* context) {
    if (now_ < context->last_mark + options_.idle_ns) return false;
    uint32_t taken = context->sleep(run_queue_);
    if (taken > 0) {
      context->last_mark = now_;
      stats_[KH_STAT_DOORBELLS] += taken;
    }
    return taken == 0;
  });
}

// --- The loop ---------------------------------------------------------------------------------

bool Hca::run() {
  if (!ready()) return false;
  now_ = host_.clock->now_ns();
  uint32_t expired = timers_.expire(now_, timers_per_run);
  scan();
  int64_t bytes = bytes_per_run;
  for (uint32_t turn = 0; turn < turns_per_run && bytes > 0 && ready(); ++turn) {
    Runnable* queue = run_queue_.take();
    if (!queue) break;
    ++turns_;
    Quantum quantum;
    bool more = queue->run(quantum);
    bytes -= Quantum{}.bytes - quantum.bytes;
    if (more) run_queue_.add(*queue);
  }
  flush();
  if (!ready()) {
    // Fatal. Nothing moves any more; the objects stay until the driver's reset.
    awake_.clear();
    return false;
  }
  let_sleep();
  return has_work() || expired == timers_per_run;
}

void Hca::flush() {
  if (notifier_.any_failed()) fail_qps_of_failed_cqs();
  if (notifier_.nic_wants_flush) {
    notifier_.nic_wants_flush = false;
    full_fence();
    if (nic_) nic_->fire();
  }
  notifier_.flush();
  if (notifier_.holding > 0 && !held_events_.running())
    held_events_.start(now_ + look_at_held_events_every_ns);
  if (notifier_.eq_lost()) fatal(KH_FATAL_EQ_MEMORY);
}

void Hca::fail_qps_of_failed_cqs() {
  notifier_.failures_done();
  qps_.each([](Qp& qp) {
    if (qp.config().send_cq->failed() || qp.config().recv_cq->failed()) qp.cq_failed();
  });
}

void Hca::look_at_held_events(void* self, uint64_t /*now*/) {
  Hca& hca = *static_cast<Hca*>(self);
  // What is still held starts the timer again at the end of this run().
  hca.eqs_.each([](Eq& eq) {
    if (eq.holding()) eq.drain();
  });
}

// --- Port and groups --------------------------------------------------------------------------

void Hca::receive(std::span<const std::byte> frame) {
  if (!ready() || !port_up()) return;
  if (rdma_up() && is_roce(frame)) {
    // RDMA between HCAs of one fabric does not travel as frames, and there is no other yet.
    ++stats_[KH_STAT_DROPPED];
    return;
  }
  if (!nic_ || !nic_->receive(frame)) {
    ++stats_[KH_STAT_NIC_RX_DROPPED];
    return;
  }
  ++stats_[KH_STAT_NIC_RX_FRAMES];
  stats_[KH_STAT_NIC_RX_BYTES] += frame.size();
}

int Hca::find_gid(const Gid& gid, uint16_t vlan) const {
  auto found = std::ranges::find_if(gids_, [&](const GidEntry& entry) {
    return entry.valid && entry.gid == gid && entry.vlan == vlan;
  });
  return found == gids_.end() ? -1 : static_cast<int>(found - gids_.begin());
}

std::span<Qp* const> Hca::mcast_members(const Gid& mgid) const {
  auto found = mcast_.find(mgid);
  if (found == mcast_.end()) return {};
  return found->second;
}

void Hca::leave_groups(Qp& qp) {
  for (auto& [mgid, members] : mcast_)
    std::erase(members, &qp);
  std::erase_if(mcast_, [](const auto& group) { return group.second.empty(); });
}

Hca::Snapshot Hca::snapshot() const {
  Snapshot snapshot;
  snapshot.name = options_.name;
  snapshot.mac = mac_;
  snapshot.status = status_;
  for (const auto& context : contexts_)
    snapshot.contexts += context != nullptr;
  snapshot.awake = static_cast<uint32_t>(awake_.size());
  snapshot.pds = pds_.count();
  snapshot.eqs = eqs_.count();
  snapshot.cqs = cqs_.count();
  snapshot.srqs = srqs_.count();
  snapshot.qps = qps_.count();
  snapshot.mkeys = mkeys_ ? mkeys_->count() : 0;
  snapshot.memory_used = budget_.used();
  snapshot.memory_limit = budget_.limit();
  snapshot.port_up = port_up();
  snapshot.rdma_up = rdma_up();
  snapshot.stats = stats_;
  return snapshot;
}

}  // namespace keyhole
