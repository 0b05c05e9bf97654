// SPDX-License-Identifier: BSD-2-Clause
//
// An HCA in one process with its test: guest memory that is an arena of this process, a clock that
// stands still unless told otherwise, interrupts that are counted, and a small driver that speaks
// the admin queue as kernel/ does. What is made with it are the raw objects of keyhole_hw.h: rings,
// records and marks, to be used by a test or by the provider's fast path.
//
// The arena is contiguous in this process. What the device sees is up to FakeHost::Options: one
// map, or every page somewhere else.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fabric/switch.h"
#include "hca/hca.h"
#include "hca/host.h"
#include "keyhole_hw.h"

namespace keyhole::test {

class FakeHost final : public GuestMemory, public Interrupts, public Clock {
 public:
  struct Options {
    size_t memory = 16 << 20;  // a power of two
    bool scattered = false;    // each page at an IOVA of its own, none beside its neighbour
    uint32_t contexts = 16;
    bool real_clock = false;
    // What is unmapped or write protected is so for this process too: whoever touches it dies. The
    // memory that the HCA is given lies between pages that nobody may touch, in any case.
    bool guarded = false;
    uint64_t iova_base = uint64_t{1} << 32;
  };
  explicit FakeHost(const Options& options);
  FakeHost() : FakeHost(Options{}) {}
  ~FakeHost() override;

  Host host();

  // Zeroed memory of the arena, page aligned; never empty-handed (throws std::bad_alloc).
  std::byte* allocate(size_t size);
  // For another allocate() of the same size.
  void release(std::byte* memory, size_t size);
  std::span<std::byte> arena() { return {arena_, options_.memory}; }

  uint64_t iova(const void* memory) const;
  // Describes [memory, memory + size), which begins on a page; lists are allocated as needed.
  // `levels` below 0: as few as will do.
  kh_pages pages(const void* memory, size_t size, int levels = -1);

  // Takes pages away from the device and gives them back.
  void unmap(const void* memory, size_t size);
  void map(const void* memory, size_t size);
  // From now on the device may only read these pages.
  void write_protect(const void* memory, size_t size);

  uint64_t now_ns() override;
  void advance(uint64_t ns) { now_ += ns; }

  void raise(uint16_t vector) override { ++raised.at(vector); }
  std::vector<uint32_t> raised = std::vector<uint32_t>(KH_MAX_VECTORS);

  std::byte* doorbell_page(uint32_t context) { return doorbells_.data() + context * KH_PAGE_SIZE; }
  kh_status_page* status_page(uint32_t context) {
    return reinterpret_cast<kh_status_page*>(status_.data() + context * KH_PAGE_SIZE);
  }

 protected:
  Region find(uint64_t iova) override;

 private:
  size_t page_of(const void* memory) const;
  void protect(size_t page, int protection);
  bool whole() const { return !options_.scattered && unmapped_.empty() && protected_.empty(); }

  Options options_;
  std::byte* arena_ = nullptr;
  size_t used_ = 0;
  std::vector<std::pair<std::byte*, size_t>> free_;
  std::vector<uint32_t> place_of_page_;  // in IOVA space
  std::vector<uint32_t> page_at_place_;
  std::set<size_t> unmapped_;
  std::set<size_t> protected_;
  std::span<std::byte> doorbells_;
  std::span<std::byte> status_;
  uint64_t now_ = 1'000'000;
};

// A completion queue as software has it.
struct TestCq {
  uint32_t cqn = 0;
  uint8_t log_size = 0;
  kh_cqe* ring = nullptr;
  kh_cq_db* db = nullptr;
  std::byte* memory = nullptr;
  size_t memory_size = 0;
  uint32_t ci = 0;
  uint32_t arm_sn = 0;

  // True and the CQE, when there is a new one; the record's ci moves.
  bool poll(kh_cqe& to);
  void arm(uint32_t type);  // KH_ARM_*
};

struct TestEq {
  uint32_t eqn = 0;
  uint8_t log_size = 0;
  kh_eqe* ring = nullptr;
  kh_cq_db* db = nullptr;
  std::byte* memory = nullptr;
  uint32_t ci = 0;
  uint32_t arm_sn = 0;

  bool poll(kh_eqe& to);
  void arm();
};

struct TestSrq {
  uint32_t srqn = 0;
  uint8_t log_size = 0;
  uint8_t log_stride = 0;
  std::byte* ring = nullptr;
  kh_srq_db* db = nullptr;
  uint32_t pi = 0;

  void post(uint64_t wr_id, std::span<const kh_sge> sge);
};

class FakeDriver;

struct TestQp {
  FakeDriver* driver = nullptr;
  uint32_t qpn = 0;
  uint16_t context = 0;
  uint16_t slot = 0;
  uint8_t type = KH_QPT_RC;
  uint8_t log_sq_blocks = 0;
  uint8_t log_rq_size = 0;
  uint8_t log_rq_stride = 0;
  std::byte* sq = nullptr;
  std::byte* rq = nullptr;
  kh_qp_db* db = nullptr;
  std::byte* memory = nullptr;
  size_t memory_size = 0;
  uint32_t sq_pi = 0;
  uint32_t rq_pi = 0;

  // Puts a WQE of whole blocks into the SQ (it may wrap). Not visible before ring().
  void put(std::span<const std::byte> wqe);
  // Publishes sq_pi and marks the slot, as the contract says.
  void ring();
  // Posts a receive (and rings when the device asks for it).
  void post_receive(uint64_t wr_id, std::span<const kh_sge> sge);
};

struct QpOptions {
  uint8_t type = KH_QPT_RC;
  uint32_t pdn = 0;
  uint32_t send_cqn = 0;
  uint32_t recv_cqn = 0;
  uint32_t srqn = KH_NO_SRQ;
  uint16_t context = 1;
  int slot = -1;  // the next one
  uint8_t log_sq_blocks = 8;
  uint8_t log_rq_size = 6;
  uint8_t log_rq_stride = 6;
  uint8_t max_send_sge = 16;
  uint8_t max_recv_sge = 3;
};

struct TestRegion {
  uint32_t key = 0;
  std::byte* memory = nullptr;
  uint64_t start = 0;  // the address to use with the key
  size_t size = 0;
};

// Plays the kernel driver to one HCA. Functions that create something throw std::runtime_error,
// with the command's name, status and syndrome, when the device refuses; command() itself does not.
class FakeDriver {
 public:
  // `run` gives the device turns until it has nothing to do.
  FakeDriver(FakeHost& host, Hca& hca, std::function<void()> run);

  FakeHost& host() { return host_; }
  Hca& hca() { return hca_; }
  void run() { run_(); }

  // Starts the HCA; makes the async EQ (vector 0), one completion EQ (vector 1), contexts 1 and 2;
  // brings the port up with one GID (index 0): IPv4 10.0.0.`station`.
  void start(uint8_t station);
  // Only this: STATUS after the store.
  uint32_t enable();
  void disable();

  kh_admin_cqe command(const kh_admin_cmd& command);
  // For who keeps a book of all commands: called before the device sees one, and after its answer.
  std::function<void(const kh_admin_cmd&)> before;
  std::function<void(const kh_admin_cmd&, const kh_admin_cqe&)> after;
  static kh_admin_cmd make(kh_admin_op opcode, uint32_t handle = 0, uint64_t out_addr = 0);
  // As command(), but the status must be `OK`.
  kh_admin_cqe must(const kh_admin_cmd& command);

  void ring(uint32_t context, uint32_t slot);

  TestEq create_eq(kh_eq_type type, uint16_t vector, uint8_t log_size = 7);
  void create_context(uint16_t context);
  uint32_t create_pd();
  TestRegion create_region(uint32_t pdn, size_t size, uint32_t access);
  TestRegion register_memory(uint32_t pdn, std::byte* memory, size_t size, uint32_t access,
                             uint64_t start);
  uint32_t create_window(uint32_t pdn, kh_mkey_kind kind);
  uint32_t create_indirect(uint32_t pdn, uint32_t max_entries, uint32_t access = 0);
  // Of whole pages.
  uint32_t create_klm_list(uint32_t pdn, const std::byte* memory, size_t size);
  kh_mkey_attr query_mkey(uint32_t key);
  TestCq create_cq(uint8_t log_size, uint16_t context = 1, uint8_t flags = 0);
  TestSrq create_srq(uint32_t pdn, uint8_t log_size, uint8_t log_stride = 6, uint16_t context = 1);
  TestQp create_qp(const QpOptions& options);
  uint8_t destroy(kh_admin_op opcode, uint32_t handle);  // the status
  uint8_t modify_qp(const TestQp& qp, const kh_qp_attr& attr);
  kh_qp_attr query_qp(const TestQp& qp);

  // The address vector from here to `peer`'s GID 0.
  kh_av path_to(FakeDriver& peer) const;
  // RESET to RTS. RC and UC: connected to `peer`.
  void bring_up(TestQp& qp, FakeDriver& peer_driver, const TestQp& peer,
                uint32_t access = KH_ACCESS_REMOTE);
  void bring_up_ud(TestQp& qp, uint32_t qkey);

  uint16_t next_slot(uint16_t context);

  TestEq async_eq;
  TestEq completion_eq;
  Gid gid{};
  Mac mac{};

 private:
  FakeHost& host_;
  Hca& hca_;
  std::function<void()> run_;
  kh_admin_cmd* admin_sq_ = nullptr;
  kh_admin_cqe* admin_cq_ = nullptr;
  kh_admin_db* admin_db_ = nullptr;
  std::byte* out_ = nullptr;  // a page for output
  uint32_t admin_pi_ = 0;
  uint32_t admin_ci_ = 0;
  uint16_t tag_ = 0;
  std::vector<uint16_t> slots_;
};

// `stations` HCAs on one switch, each with a host and a started driver.
class Rig {
 public:
  struct Options {
    uint32_t stations = 2;
    FakeHost::Options host{};
    HcaOptions hca{};
    bool start = true;
  };
  explicit Rig(Options options);
  Rig() : Rig(Options{}) {}
  ~Rig();

  // Turns for all until nobody has anything to do. Time does not move.
  void run();
  // The same, and then on to the next deadline, until `ns` have passed.
  void run_for(uint64_t ns);

  struct Station {
    std::unique_ptr<FakeHost> host;
    std::unique_ptr<Hca> hca;
    std::unique_ptr<FakeDriver> driver;
  };
  FakeHost& host(size_t station) { return *stations_.at(station).host; }
  Hca& hca(size_t station) { return *stations_.at(station).hca; }
  FakeDriver& driver(size_t station) { return *stations_.at(station).driver; }
  Switch& fabric() { return *switch_; }

 private:
  struct FabricClock final : Clock {
    Rig* rig = nullptr;
    uint64_t now_ns() override { return rig->host(0).now_ns(); }
  };
  FabricClock clock_;
  std::unique_ptr<Switch> switch_;
  std::vector<Station> stations_;
};

}  // namespace keyhole::test
