// SPDX-License-Identifier: BSD-2-Clause

#include "hca/srq.h"

#include <algorithm>

#include "hca/guest_access.h"

namespace keyhole {

Srq::Srq(Notifier& notifier, Config config)
    : notifier_(notifier),
      config_(std::move(config)),
      size_(1u << config_.log_size),
      max_sge_(std::min<uint32_t>(KH_MAX_SGE,
                                  ((1u << config_.log_stride) - sizeof(kh_rwqe)) / sizeof(kh_sge))),
      events_(config_.srqn) {}

Srq::Taken Srq::fail() {
  if (!failed_ && notifier_.async_eq())
    notifier_.async_eq()->post(events_, KH_EV_SRQ_ERR, KH_SYN_WQE_RING);
  failed_ = true;
  return Taken::failed;
}

Srq::Taken Srq::take(ReceiveWqe& to) {
  if (failed_) return Taken::failed;
  std::byte* db = config_.memory.at(config_.db_offset);
  if (!db) return fail();
  auto pi = load_acquire<uint32_t>(db + offsetof(kh_srq_db, pi));
  if (pi == ci_) return Taken::empty;
  if (pi - ci_ > size_) return fail();
  std::byte* slot =
      config_.memory.at(config_.ring_offset + (uint64_t{ci_ & (size_ - 1)} << config_.log_stride));
  if (!slot) return fail();
  bool well_formed = read_receive_wqe(to, slot, max_sge_);
  ++ci_;
  store_release(db + offsetof(kh_srq_db, ci), ci_);
  look_at_limit(pi);
  return well_formed ? Taken::ok : Taken::malformed;
}

AdminResult Srq::resize(PageList memory, uint64_t ring_offset, uint64_t db_offset,
                        uint8_t log_size) {
  auto fault = [] { return AdminResult::refuse(offsetof(kh_cmd_create_srq, pages), KH_ST_FAULT); };
  std::byte* old_db = config_.memory.at(config_.db_offset);
  std::byte* new_db = memory.at(db_offset);
  if (!old_db || !new_db) return fault();
  auto pi = load_acquire<uint32_t>(old_db + offsetof(kh_srq_db, pi));
  uint32_t new_size = 1u << log_size;
  // A producer index that cannot be true is as good as a ring too small.
  if (pi - ci_ > size_ || pi - ci_ > new_size)
    return AdminResult::refuse(offsetof(kh_cmd_create_srq, log_size));
  for (uint32_t index = ci_; index != pi; ++index) {
    const std::byte* from = config_.memory.at(
        config_.ring_offset + (uint64_t{index & (size_ - 1)} << config_.log_stride));
    std::byte* to =
        memory.at(ring_offset + (uint64_t{index & (new_size - 1)} << config_.log_stride));
    if (!from || !to) return fault();
    std::memcpy(to, from, size_t{1} << config_.log_stride);
  }
  store_release(new_db + offsetof(kh_srq_db, pi), pi);
  store_release(new_db + offsetof(kh_srq_db, ci), ci_);
  config_.memory = std::move(memory);
  config_.ring_offset = ring_offset;
  config_.db_offset = db_offset;
  config_.log_size = log_size;
  size_ = new_size;
  // A limit beyond the new size would always be passed.
  limit_ = std::min(limit_, size_);
  return AdminResult::done();
}

void Srq::look_at_limit(uint32_t pi) {
  if (limit_ == 0 || pi - ci_ >= limit_) return;
  limit_ = 0;
  if (Eq* eq = notifier_.async_eq()) eq->post(events_, KH_EV_SRQ_LIMIT);
}

void Srq::arm_limit(uint32_t limit) {
  limit_ = limit;
  std::byte* db = config_.memory.at(config_.db_offset);
  if (!db || failed_) return;
  auto pi = load_acquire<uint32_t>(db + offsetof(kh_srq_db, pi));
  // It may be below the limit already; then the event comes at once.
  if (pi - ci_ <= size_) look_at_limit(pi);
}

}  // namespace keyhole
