// SPDX-License-Identifier: BSD-2-Clause
//
// Two queue pairs on two HCAs (or on one), with what a test of the transport says again and again:
// work requests by name, completions one by one, and a wire that loses what it is told to lose.

#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "harness.h"
#include "hca/transport/qp.h"
#include "work.h"

namespace keyhole::test {

// One side: everything that belongs to one queue pair.
struct End {
  FakeDriver* driver = nullptr;
  FakeHost* host = nullptr;
  Hca* hca = nullptr;
  uint32_t pdn = 0;
  TestCq send_cq;
  TestCq recv_cq;
  TestRegion region;
  TestQp qp;

  void post(const Work& work) { post_unrung(work), qp.ring(); }
  void post_unrung(const Work& work) { qp.put(lay_out(work, qp.type >= KH_QPT_UD)); }
  // An entry of the region.
  kh_sge at(uint64_t offset, uint32_t length) const {
    return {region.start + offset, length, region.key};
  }
  std::byte* bytes(uint64_t offset = 0) const { return region.memory + offset; }
  uint64_t& word(uint64_t offset) const { return *reinterpret_cast<uint64_t*>(bytes(offset)); }
  void fill(uint64_t offset, size_t size, uint8_t seed) const;
  bool holds(uint64_t offset, size_t size, uint8_t seed) const;
  void post_receive(uint64_t wr_id, uint64_t offset, uint32_t length) {
    kh_sge sge = at(offset, length);
    qp.post_receive(wr_id, {&sge, 1});
  }
  Qp& object() const { return *hca->find_qp(qp.qpn); }
  uint8_t state() const { return static_cast<uint8_t>(object().state()); }
  uint64_t stat(kh_stat which) const { return hca->stats()[which]; }
};

struct Connection {
  uint8_t path_mtu = 3;  // 1024
  uint8_t timeout = 14;
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 12;  // 640 us
  uint8_t max_rd_atomic = KH_MAX_RD_ATOMIC;
  uint8_t max_dest_rd_atomic = KH_MAX_RD_ATOMIC;
  uint32_t access = KH_ACCESS_REMOTE;
  uint32_t psn_forth = 0x100;  // from the first end to the second
  uint32_t psn_back = 0x900;
};

// What happens to segments, by rule. Replies are never lost unless `reply` says so.
class Wire : public Faults {
 public:
  std::function<Fate(const Segment&)> segment = [](const Segment&) { return Fate::delivered; };
  std::function<Fate(const Segment&, const Reply&)> reply = [](const Segment&, const Reply&) {
    return Fate::delivered;
  };
  Fate on_segment(const Segment& s) override {
    ++segments;
    return segment(s);
  }
  Fate on_reply(const Segment& s, const Reply& r) override { return reply(s, r); }
  int segments = 0;
};

// A segment with its payload, kept to be delivered later.
struct Held {
  explicit Held(const Segment& from);
  Held(const Held&) = delete;
  std::vector<std::byte> bytes;
  HostSpan span;
  Segment segment;
};

class TransportTest : public ::testing::Test {
 protected:
  struct EndOptions {
    uint8_t type = KH_QPT_RC;
    uint8_t log_sq_blocks = 8;
    uint8_t log_rq_size = 6;
    uint8_t log_cq = 8;
    uint8_t max_send_sge = 16;
    uint8_t max_recv_sge = 3;
    size_t region = 1 << 20;
    uint32_t access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;
    uint32_t srqn = KH_NO_SRQ;
    bool one_cq = false;
    uint32_t pdn = 0;
    uint16_t context = 1;
  };

  explicit TransportTest(const Rig::Options& options = roomy()) : rig(options) {}
  static Rig::Options roomy() {
    Rig::Options options;
    options.host.memory = 128 << 20;  // nothing that is not touched
    return options;
  }

  End make_end(size_t station, const EndOptions& options);
  End make_end(size_t station) { return make_end(station, EndOptions{}); }

  kh_qp_attr init_attr(const End& end, const Connection& link) const;
  kh_qp_attr rtr_attr(const End& end, const End& peer, const Connection& link, uint32_t psn) const;
  kh_qp_attr rts_attr(const End& end, const Connection& link, uint32_t psn) const;
  void connect(End& a, End& b, const Connection& link = {});
  void to_rtr(End& a, End& b, const Connection& link, uint32_t rq_psn);
  void to_rts(End& a, const Connection& link, uint32_t sq_psn);
  void start_datagrams(End& end, uint32_t qkey) { end.driver->bring_up_ud(end.qp, qkey); }
  uint8_t set_state(End& end, uint8_t state, uint32_t more = 0);

  // Two connected ends on stations 0 and 1.
  void make_pair(const EndOptions& options, const Connection& link = {});
  void make_pair() { make_pair(EndOptions{}); }

  static Work write(End& from, uint64_t at, uint32_t length, End& to, uint64_t to_at,
                    uint64_t wr_id = 1);
  static Work read(End& to, uint64_t at, uint32_t length, End& from, uint64_t from_at,
                   uint64_t wr_id = 1);
  static Work send(End& from, uint64_t at, uint32_t length, uint64_t wr_id = 1);
  static Work fetch_add(End& from, uint64_t at, End& to, uint64_t to_at, uint64_t add,
                        uint64_t wr_id = 1);

  // Runs, and takes the next completion; fails the test when there is none.
  kh_cqe sent(End& end);
  kh_cqe received(End& end);
  bool nothing_sent(End& end);
  bool nothing_received(End& end);
  // Runs, and takes the next asynchronous event of this kind, dropping others.
  std::optional<kh_eqe> event(End& end, kh_event kind);

  Rig rig;
  End a, b;
  Wire wire;
};

#define EXPECT_DONE(cqe, id)                                              \
  do {                                                                    \
    kh_cqe expect_done = (cqe);                                           \
    EXPECT_EQ(expect_done.status, KH_WC_SUCCESS) << expect_done.syndrome; \
    EXPECT_EQ(expect_done.wr_id, uint64_t(id));                           \
  } while (0)
#define EXPECT_ERROR(cqe, id, what, why)             \
  do {                                               \
    kh_cqe expect_error = (cqe);                     \
    EXPECT_EQ(int(expect_error.status), int(what));  \
    EXPECT_EQ(expect_error.wr_id, uint64_t(id));     \
    EXPECT_EQ(expect_error.syndrome, uint32_t(why)); \
  } while (0)

}  // namespace keyhole::test
