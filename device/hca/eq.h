// SPDX-License-Identifier: BSD-2-Clause
//
// Event queues: rings in guest memory that the device writes, with an MSI-X vector each.
//
// A ring can be full when the driver is slow. Nothing is lost then and nothing grows: each object
// that reports events is an EventSource, which remembers one bit for each kind of event it can
// report, and waits in the queue's line until the driver has made room. That the same event of the
// same object happens twice while it waits, tells the driver nothing that once does not.

#pragma once

#include <cstdint>

#include "hca/page_list.h"
#include "hca/run_queue.h"
#include "keyhole_hw.h"

namespace keyhole {

class Eq;
class Notifier;

class EventSource {
 public:
  explicit EventSource(uint32_t id) : id_(id) {}
  ~EventSource() { forget(); }
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  uint32_t id() const { return id_; }
  bool waiting() const { return eq_ != nullptr; }
  // Drops what is held back.
  void forget();

 private:
  friend class Eq;

  uint32_t id_;
  uint32_t data_ = 0;
  uint32_t pending_ = 0;  // a bit for each kind, see Eq::bit_of
  Eq* eq_ = nullptr;      // in whose line it stands
  EventSource* next_ = nullptr;
  EventSource* previous_ = nullptr;
};

class Eq {
 public:
  struct Config {
    uint32_t eqn = 0;
    kh_eq_type type = KH_EQ_ASYNC;
    PageList memory;
    uint64_t ring_offset = 0;
    uint64_t db_offset = 0;
    uint8_t log_size = 0;
    uint16_t vector = 0;
  };

  Eq(Notifier& notifier, Config config);
  ~Eq();
  Eq(const Eq&) = delete;
  Eq& operator=(const Eq&) = delete;

  // Writes the event, or holds it back. The interrupt comes with the next Notifier::flush().
  void post(EventSource& source, kh_event kind, uint32_t data = 0);

  // Writes what was held back, as far as there is room now.
  void drain();

  // After the flush's fence: raises the vector if the driver has armed the queue and not yet taken
  // what is in it.
  void fire();

  uint32_t eqn() const { return config_.eqn; }
  kh_eq_type type() const { return config_.type; }
  bool holding() const { return first_ != nullptr; }

  uint32_t users = 0;  // CQs that report here

 private:
  friend class EventSource;
  friend class Notifier;

  static uint32_t bit_of(kh_event kind) { return 1u << ((kind >> 4) * 6 + (kind & 0xf)); }
  static kh_event kind_of(uint32_t bit);

  bool write(kh_event kind, uint32_t id, uint32_t data);
  void hold(EventSource& source);
  void release(EventSource& source);

  Notifier& notifier_;
  Config config_;
  uint32_t pi_ = 0;
  uint32_t ci_ = 0;     // as last read
  uint32_t fired_ = 0;  // sn
  EventSource* first_ = nullptr;
  EventSource* last_ = nullptr;
  Eq* next_dirty_ = nullptr;
  bool dirty_ = false;
};

}  // namespace keyhole
