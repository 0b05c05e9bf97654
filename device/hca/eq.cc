// SPDX-License-Identifier: BSD-2-Clause

#include "hca/eq.h"

#include <spdlog/spdlog.h>

#include <bit>

#include "hca/guest_access.h"
#include "hca/names.h"
#include "hca/notifier.h"

namespace keyhole {

void EventSource::forget() {
  pending_ = 0;
  if (eq_) eq_->release(*this);
}

Eq::Eq(Notifier& notifier, Config config) : notifier_(notifier), config_(std::move(config)) {
  if (config_.type == KH_EQ_ASYNC) notifier_.set_async_eq(this);
}

Eq::~Eq() {
  while (first_)
    first_->forget();
  if (notifier_.async_eq() == this) notifier_.set_async_eq(nullptr);
  notifier_.forget(*this);
}

kh_event Eq::kind_of(uint32_t bit) {
  int at = std::countr_zero(bit);
  return static_cast<kh_event>(((at / 6) << 4) | (at % 6));
}

void Eq::post(EventSource& source, kh_event kind, uint32_t data) {
  if (first_ || !write(kind, source.id_, data)) {
    source.pending_ |= bit_of(kind);
    source.data_ = data;
    hold(source);
  }
}

// False when the ring is full.
bool Eq::write(kh_event kind, uint32_t id, uint32_t data) {
  uint32_t size = 1u << config_.log_size;
  if (pi_ - ci_ >= size) {
    std::byte* db = config_.memory.at(config_.db_offset);
    if (!db) {
      notifier_.lose_eq();
      return true;
    }
    ci_ = load_acquire<uint32_t>(db + offsetof(kh_cq_db, ci));
    // An index that cannot be true looks like a full ring, and stays so.
    if (pi_ - ci_ >= size) return false;
  }
  std::byte* slot =
      config_.memory.at(config_.ring_offset + uint64_t{pi_ & (size - 1)} * sizeof(kh_eqe));
  if (!slot) {
    notifier_.lose_eq();
    return true;
  }
  kh_eqe eqe{};
  eqe.type = kind;
  eqe.id = id;
  eqe.data = data;
  eqe.phase = ((pi_ >> config_.log_size) & 1) ^ 1;
  uint64_t halves[2];
  std::memcpy(halves, &eqe, sizeof(halves));
  store_relaxed(slot, halves[0]);
  store_release(slot + 8, halves[1]);
  ++pi_;
  ++notifier_.stats()[KH_STAT_EVENTS];
  if (kind != KH_EV_COMPLETION)
    spdlog::debug("{}: event {} of {}, {}", notifier_.name, event_name(kind), id,
                  syndrome_name(data));
  notifier_.note(*this);
  return true;
}

void Eq::hold(EventSource& source) {
  if (source.eq_) return;
  source.eq_ = this;
  source.previous_ = last_;
  source.next_ = nullptr;
  if (last_) {
    last_->next_ = &source;
  } else {
    first_ = &source;
    ++notifier_.holding;
  }
  last_ = &source;
}

void Eq::release(EventSource& source) {
  (source.previous_ ? source.previous_->next_ : first_) = source.next_;
  (source.next_ ? source.next_->previous_ : last_) = source.previous_;
  source.eq_ = nullptr;
  source.next_ = source.previous_ = nullptr;
  if (!first_) --notifier_.holding;
}

void Eq::drain() {
  while (first_) {
    EventSource& source = *first_;
    uint32_t bit = source.pending_ & -source.pending_;
    if (!write(kind_of(bit), source.id_, source.data_)) break;
    source.pending_ &= ~bit;
    if (source.pending_ == 0) release(source);
  }
}

void Eq::fire() {
  std::byte* db = config_.memory.at(config_.db_offset);
  if (!db) {
    notifier_.lose_eq();
    return;
  }
  auto arm = load_acquire<uint32_t>(db + offsetof(kh_cq_db, arm));
  uint32_t sn = arm >> KH_ARM_SN_SHIFT;
  if ((arm & KH_ARM_TYPE_MASK) == 0 || sn == fired_) return;
  // The driver may have taken all entries since they were written, and have armed after that: this
  // arm is for what comes next. It publishes ci before it arms, so ci is not older than the arm.
  if (load_acquire<uint32_t>(db + offsetof(kh_cq_db, ci)) == pi_) return;
  fired_ = sn;
  notifier_.raise(config_.vector);
}

}  // namespace keyhole
