// SPDX-License-Identifier: BSD-2-Clause

#include "hca/notifier.h"

#include "hca/cq.h"
#include "hca/eq.h"
#include "hca/guest_access.h"

namespace keyhole {

namespace {

template <typename Queue>
void unlink(Queue*& first, Queue& queue, Queue* Queue::*next) {
  for (Queue** at = &first; *at; at = &((*at)->*next)) {
    if (*at != &queue) continue;
    *at = queue.*next;
    return;
  }
}

}  // namespace

void Notifier::note(Cq& cq) {
  if (cq.dirty_) return;
  cq.dirty_ = true;
  cq.next_dirty_ = first_cq_;
  first_cq_ = &cq;
}

void Notifier::note(Eq& eq) {
  if (eq.dirty_) return;
  eq.dirty_ = true;
  eq.next_dirty_ = first_eq_;
  first_eq_ = &eq;
}

void Notifier::forget(Cq& cq) {
  if (cq.dirty_) unlink(first_cq_, cq, &Cq::next_dirty_);
  cq.dirty_ = false;
}

void Notifier::forget(Eq& eq) {
  if (eq.dirty_) unlink(first_eq_, eq, &Eq::next_dirty_);
  eq.dirty_ = false;
}

void Notifier::flush() {
  if (first_cq_) {
    full_fence();
    while (Cq* cq = first_cq_) {
      first_cq_ = cq->next_dirty_;
      cq->dirty_ = false;
      cq->fire();
    }
  }
  if (first_eq_) {
    full_fence();
    while (Eq* eq = first_eq_) {
      first_eq_ = eq->next_dirty_;
      eq->dirty_ = false;
      eq->fire();
    }
  }
}

void Notifier::failed(Cq& cq) {
  any_failed_ = true;
  if (async_eq_) async_eq_->post(cq.async_, KH_EV_CQ_ERR, KH_SYN_CQ_OVERRUN);
}

void Notifier::raise(uint16_t vector) {
  ++stats_[KH_STAT_INTERRUPTS];
  interrupts_.raise(vector);
}

}  // namespace keyhole
