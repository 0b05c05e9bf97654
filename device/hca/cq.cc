// SPDX-License-Identifier: BSD-2-Clause

#include "hca/cq.h"

#include <spdlog/spdlog.h>

#include "hca/names.h"

namespace keyhole {

Cq::Cq(Notifier& notifier, uint32_t cqn, Ring ring, Eq& eq, uint16_t context, uint8_t flags)
    : notifier_(notifier),
      size_(1u << ring.log_size),
      flags_(flags),
      ring_(std::move(ring)),
      cqn_(cqn),
      context_(context),
      eq_(eq),
      period_(notifier.timers(), period_over, this),
      completion_(cqn),
      async_(cqn) {
  ++eq_.users;
}

Cq::~Cq() {
  notifier_.forget(*this);
  --eq_.users;
}

// The ring is full as far as we know: look again.
bool Cq::make_room() {
  std::byte* db = ring_.memory.at(ring_.db_offset);
  if (!db) {
    fail();
    return false;
  }
  ci_ = load_acquire<uint32_t>(db + offsetof(kh_cq_db, ci));
  if (pi_ - ci_ < size_ || (flags_ & KH_CQ_IGNORE_OVERRUN)) return true;
  fail();
  return false;
}

void Cq::fail() {
  failed_ = true;
  spdlog::debug("{}: CQ {} fails: {} written, {} consumed, {} entries", notifier_.name, cqn_, pi_,
                ci_, size_);
  notifier_.failed(*this);
}

void Cq::note_error(const kh_cqe& cqe) {
  Stats& stats = notifier_.stats();
  solicited_ = true;  // an unsuccessful completion counts as one
  if (cqe.status == KH_WC_WR_FLUSH_ERR) {
    ++stats[KH_STAT_FLUSHED_CQES];
    return;
  }
  ++stats[KH_STAT_ERROR_CQES];
  switch (cqe.status) {
    case KH_WC_LOC_LEN_ERR:
    case KH_WC_LOC_QP_OP_ERR:
    case KH_WC_LOC_PROT_ERR:
    case KH_WC_LOC_ACCESS_ERR:
      ++stats[KH_STAT_LOCAL_ERRORS];
      break;
    case KH_WC_MW_BIND_ERR:
      ++stats[KH_STAT_MW_BIND_ERRORS];
      break;
    case KH_WC_REM_INV_REQ_ERR:
      ++stats[KH_STAT_REMOTE_INVALID_REQUESTS];
      break;
    case KH_WC_REM_ACCESS_ERR:
      ++stats[KH_STAT_REMOTE_ACCESS_ERRORS];
      break;
    case KH_WC_REM_OP_ERR:
      ++stats[KH_STAT_REMOTE_OP_ERRORS];
      break;
    case KH_WC_RETRY_EXC_ERR:
      ++stats[KH_STAT_RETRY_EXCEEDED];
      break;
    case KH_WC_RNR_RETRY_EXC_ERR:
      ++stats[KH_STAT_RNR_RETRY_EXCEEDED];
      break;
    default:
      break;
  }
  spdlog::debug("{}: QP {:#x}: {} of wr_id {:#x} fails: {}, {}", notifier_.name, uint32_t{cqe.qpn},
                cqe_opcode_name(cqe.opcode), uint64_t{cqe.wr_id}, wc_status_name(cqe.status),
                syndrome_name(cqe.syndrome));
}

void Cq::fire() {
  if (failed_) return;
  std::byte* db = ring_.memory.at(ring_.db_offset);
  if (!db) return fail();
  auto arm = load_acquire<uint32_t>(db + offsetof(kh_cq_db, arm));
  uint32_t type = arm & KH_ARM_TYPE_MASK;
  uint32_t sn = arm >> KH_ARM_SN_SHIFT;
  bool armed = sn != fired_ && (type == KH_ARM_NEXT || (type == KH_ARM_SOLICITED && solicited_));
  if (!armed) {
    // Software arms first and then looks at the ring, so it will see these by itself.
    unreported_ = 0;
    solicited_ = false;
    return;
  }
  if (unreported_ < count_ || (count_ == 0 && period_us_ > 0)) {
    if (period_us_ > 0 && !period_.running())
      period_.start(notifier_.clock_ns() + uint64_t{period_us_} * 1000);
    return;
  }
  report(sn);
}

void Cq::report(uint32_t sn) {
  fired_ = sn;
  unreported_ = 0;
  solicited_ = false;
  period_.stop();
  eq_.post(completion_, KH_EV_COMPLETION);
}

// The period after the first CQE that moderation held back is over. Nobody arms between then and
// now without looking at the ring, so an arm that is there is answered.
void Cq::period_over(void* self, uint64_t /*now*/) {
  Cq& cq = *static_cast<Cq*>(self);
  if (cq.failed_ || cq.unreported_ == 0) return;
  std::byte* db = cq.ring_.memory.at(cq.ring_.db_offset);
  if (!db) return cq.fail();
  auto arm = load_acquire<uint32_t>(db + offsetof(kh_cq_db, arm));
  uint32_t sn = arm >> KH_ARM_SN_SHIFT;
  if ((arm & KH_ARM_TYPE_MASK) != 0 && sn != cq.fired_) cq.report(sn);
}

void Cq::moderate(uint16_t count, uint16_t period_us) {
  count_ = count;
  period_us_ = period_us;
  // What the former setting holds back is answered by the new one.
  if (unreported_ > 0) notifier_.note(*this);
}

AdminResult Cq::resize(Ring ring) {
  std::byte* old_db = ring_.memory.at(ring_.db_offset);
  std::byte* new_db = ring.memory.at(ring.db_offset);
  if (!old_db || !new_db)
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, pages), KH_ST_FAULT);
  auto ci = load_acquire<uint32_t>(old_db + offsetof(kh_cq_db, ci));
  uint32_t unread = pi_ - ci;
  uint32_t new_size = 1u << ring.log_size;
  // A consumer index that cannot be true is as good as a ring too small.
  if (unread > size_ || unread > new_size)
    return AdminResult::refuse(offsetof(kh_cmd_create_cq, log_size));

  auto slot = [](const Ring& in, uint32_t index) {
    uint64_t entry = index & ((1u << in.log_size) - 1);
    return in.memory.at(in.ring_offset + (entry << KH_CQE_SHIFT));
  };
  for (uint32_t index = ci; index != pi_; ++index) {
    const std::byte* from = slot(ring_, index);
    std::byte* to = slot(ring, index);
    if (!from || !to) return AdminResult::refuse(offsetof(kh_cmd_create_cq, pages), KH_ST_FAULT);
    kh_cqe cqe;
    copy_out(cqe, from);
    cqe.phase = phase_of(index, ring.log_size);
    std::memcpy(to, &cqe, sizeof(cqe));
  }
  // The rest of the new ring must look old to software, whose index does not begin at zero here.
  for (uint32_t index = pi_; index != ci + new_size; ++index) {
    std::byte* to = slot(ring, index);
    if (!to) return AdminResult::refuse(offsetof(kh_cmd_create_cq, pages), KH_ST_FAULT);
    to[offsetof(kh_cqe, phase)] = std::byte(phase_of(index, ring.log_size) ^ 1);
  }
  store_release(new_db + offsetof(kh_cq_db, ci), ci);
  store_release(new_db + offsetof(kh_cq_db, arm),
                load_acquire<uint32_t>(old_db + offsetof(kh_cq_db, arm)));
  ci_ = ci;
  size_ = new_size;
  ring_ = std::move(ring);
  return AdminResult::done();
}

}  // namespace keyhole
