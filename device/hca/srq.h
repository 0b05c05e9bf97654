// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues. A WQE is copied out when a QP takes it, and its place in the ring is
// given back at once (the record's ci), so that software may post again in posting order whatever
// the order in which messages finish.

#pragma once

#include <cstdint>

#include "hca/admin_result.h"
#include "hca/eq.h"
#include "hca/notifier.h"
#include "hca/page_list.h"
#include "hca/receive_wqe.h"
#include "keyhole_hw.h"

namespace keyhole {

class Srq {
 public:
  struct Config {
    uint32_t srqn = 0;
    uint32_t pdn = 0;
    uint16_t context = 0;
    PageList memory;
    uint64_t ring_offset = 0;
    uint64_t db_offset = 0;
    uint8_t log_size = 0;
    uint8_t log_stride = 0;
  };

  Srq(Notifier& notifier, Config config);

  enum class Taken : uint8_t {
    ok,
    empty,      // nothing is posted
    malformed,  // consumed, with more entries than it can have: complete it with an error
    failed,     // its producer index or memory is nonsense (SRQ_ERR is reported): QP to error
  };
  Taken take(ReceiveWqe& to);

  // RESIZE_SRQ: moves the WQEs that are posted and not taken to the same indexes of the new ring,
  // and writes both indexes to the new record. INVAL when they do not fit; nothing has changed
  // then.
  AdminResult resize(PageList memory, uint64_t ring_offset, uint64_t db_offset, uint8_t log_size);

  // The limit event comes once, when fewer than `limit` are left; 0: not armed.
  void arm_limit(uint32_t limit);
  uint32_t limit() const { return limit_; }

  uint32_t srqn() const { return config_.srqn; }
  uint32_t pdn() const { return config_.pdn; }
  uint16_t context() const { return config_.context; }
  uint32_t size() const { return size_; }
  uint8_t log_stride() const { return config_.log_stride; }

  uint32_t users = 0;  // QPs

 private:
  Taken fail();
  void look_at_limit(uint32_t pi);

  Notifier& notifier_;
  Config config_;
  uint32_t size_;
  uint32_t max_sge_;
  uint32_t ci_ = 0;
  uint32_t limit_ = 0;
  bool failed_ = false;
  EventSource events_;
};

}  // namespace keyhole
