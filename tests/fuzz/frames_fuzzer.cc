// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile guest's netdev: descriptors of any address and length, indexes that cannot be, rings
// that change under way, memory that goes, and frames of any bytes to another guest's netdev and
// through the switch between them.
//
// The oracle: the sender's memory changes only in receive buffers that it has posted and that no
// completion has given back, in the completion ring and in the record's word; the receiver's
// likewise; and a completion never names more bytes than its buffer has.

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "claims.h"
#include "hca/guest_access.h"
#include "input.h"

namespace keyhole::fuzz {
namespace {

constexpr size_t memory = 128 << 10;
constexpr uint8_t log_ring = 4;
constexpr uint32_t entries = 1u << log_ring;

// A netdev's rings, in one page, and what has been posted to be filled.
class Netdev {
 public:
  static constexpr uint16_t slot = 9;

  Netdev(test::FakeDriver& driver, Guest& guest) : driver_(driver), guest_(guest) {
    rings_ = guest.host().allocate(KH_PAGE_SIZE);
    kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_CREATE_NIC);
    cmd.create_nic.pages = guest.host().pages(rings_, KH_PAGE_SIZE, 0);
    cmd.create_nic.tx_offset = tx_offset;
    cmd.create_nic.rx_offset = rx_offset;
    cmd.create_nic.rxc_offset = rxc_offset;
    cmd.create_nic.db_offset = db_offset;
    cmd.create_nic.db_slot = slot;
    cmd.create_nic.log_tx_size = cmd.create_nic.log_rx_size = log_ring;
    driver.must(cmd);
  }

  std::byte* rings() { return rings_; }
  bool reachable() {
    const Extent extent = guest_.oracle().extent(rings_, KH_PAGE_SIZE);
    return guest_.may_write(extent.offset, extent.size);
  }

  void post_tx(uint64_t addr, uint32_t len) {
    put(tx_offset + tx_pi_++ % entries * sizeof(kh_nic_desc), kh_nic_desc{addr, len, 0});
    publish();
    driver_.ring(0, slot);
  }
  // At most as many as the ring holds; what is posted may be written from now on.
  void post_rx(Extent where, uint64_t addr, uint32_t len) {
    if (rx_pi_ - rx_ci_ == entries || !reachable()) return;
    ring_[rx_pi_ % entries] = where;
    posted_.push_back(where);
    guest_.oracle().allow(where);
    put(rx_offset + rx_pi_++ % entries * sizeof(kh_nic_desc), kh_nic_desc{addr, len, 0});
    publish();
  }
  struct Received {
    Extent where;
    uint32_t len = 0;
  };
  // Takes the next completion; its buffer is the guest's own again.
  bool take(Received& received) {
    if (posted_.empty()) return false;
    const auto word = load_acquire<uint64_t>(rings_ + rxc_offset +
                                             rx_ci_ % entries * sizeof(kh_nic_cqe));
    kh_nic_cqe cqe;
    std::memcpy(&cqe, &word, sizeof(cqe));
    if ((cqe.phase & 1) == ((rx_ci_ >> log_ring) & 1)) return false;
    received = {posted_.front(), cqe.len};
    guest_.oracle().forbid(posted_.front());
    posted_.pop_front();
    ++rx_ci_;
    publish();
    return true;
  }

  // Who says that there are more buffers than were posted gives those away that were there before.
  void lie(uint32_t tx, uint32_t rx, uint32_t consumed, uint32_t arm) {
    guest_.oracle().allow(ring_);
    put(db_offset + offsetof(kh_nic_db, tx_pi), tx_pi_ + tx);
    put(db_offset + offsetof(kh_nic_db, rx_pi), rx_pi_ + rx);
    put(db_offset + offsetof(kh_nic_db, rx_ci), rx_ci_ + consumed);
    put(db_offset + offsetof(kh_nic_db, arm), arm);
    driver_.ring(0, slot);
  }

 private:
  static constexpr size_t tx_offset = 0, rx_offset = 512, rxc_offset = 1024, db_offset = 2048;

  template <typename T>
  void put(size_t offset, const T& value) {
    guest_.put(guest_.oracle().extent(rings_, 0).offset + offset, value);
  }
  void publish() {
    put(db_offset + offsetof(kh_nic_db, rx_pi), rx_pi_);
    put(db_offset + offsetof(kh_nic_db, rx_ci), rx_ci_);
    put(db_offset + offsetof(kh_nic_db, tx_pi), tx_pi_);
  }

  test::FakeDriver& driver_;
  Guest& guest_;
  std::byte* rings_;
  std::deque<Extent> posted_;
  std::array<Extent, entries> ring_{};
  uint32_t tx_pi_ = 0, rx_pi_ = 0, rx_ci_ = 0;
};

class Session {
 public:
  explicit Session(Input input)
      : in_(input),
        rig_(options()),
        guest_(rig_.host(0)),
        peer_(rig_.host(1)),
        claims_(guest_, Claims::keys_count),
        peer_claims_(peer_, Claims::keys_count) {
    claims_.follow(rig_.driver(0));
    peer_claims_.follow(rig_.driver(1));
    netdev_.emplace(rig_.driver(0), guest_);
    peer_netdev_.emplace(rig_.driver(1), peer_);
    buffers_ = guest_.host().allocate(buffer_pages * KH_PAGE_SIZE);
    peer_buffers_ = peer_.host().allocate(buffer_pages * KH_PAGE_SIZE);
    refill_peer();
  }

  void run() {
    while (!in_.empty()) {
      step();
      rig_.run();
      check();
    }
    rig_.driver(0).disable();
    claims_.drop_all();
    check();
    // Frames still go to and fro for the others.
    require(rig_.driver(1).command(test::FakeDriver::make(KH_ADM_NOP)).status == KH_ST_OK,
            "the other HCA no longer answers");
  }

 private:
  static test::Rig::Options options() {
    test::Rig::Options options;
    options.host.memory = memory;
    options.host.guarded = true;
    return options;
  }

  static constexpr size_t buffer_pages = 6;
  static constexpr size_t peer_buffer = 1536;

  void check() {
    guest_.oracle().check();
    peer_.oracle().check();
    require(rig_.fabric().learned() <= Switch::max_learned, "the switch has learned too much");
    Netdev::Received received;
    while (peer_netdev_->take(received))
      require(received.len >= 14 && received.len <= received.where.size,
              "a frame of a length that its buffer has not");
    refill_peer();
  }

  void refill_peer() {
    for (size_t i = 0; i < 8; ++i) {
      const std::byte* at = peer_buffers_ + (next_buffer_++ % 12) * peer_buffer;
      peer_netdev_->post_rx(peer_.oracle().extent(at, peer_buffer), peer_.host().iova(at),
                            peer_buffer);
    }
  }

  void step() {
    if (!netdev_->reachable() && in_.below(8)) return guest_.map_all();
    switch (in_.u8() % 12) {
      case 0:
        return flip_memory();
      case 1:
        return rewrite_sends();
      case 2:
        return netdev_->lie(in_.below(4) ? in_.u8() : in_.u32(), in_.below(4) ? in_.u8() : in_.u32(),
                            in_.below(4) ? in_.u8() : in_.u32(), in_.u8());
      case 3:
        return set_port();
      case 4:
        return peer_sends();
      case 5:
      case 6:
        return post_rx();
      case 7:
        take();
        return;
      default:
        return send();
    }
  }

  uint64_t some_address() {
    if (in_.below(16) == 0) return in_.u64();
    return guest_.host().iova(buffers_ + in_.u16() % (buffer_pages * KH_PAGE_SIZE));
  }
  Extent extent_of(uint64_t iova, uint64_t size) {
    const std::vector<Extent> extents = guest_.extents({{iova, size}}, 0, size);
    return extents.empty() ? Extent{} : extents.front();
  }
  uint32_t some_length() {
    switch (in_.below(8)) {
      case 0:
        return in_.u32();
      case 1:
        return in_.u16();
      default:
        return 14 + in_.u8() * 8u;
    }
  }

  void send() {
    const uint64_t iova = some_address();
    std::vector<std::byte> head = in_.bytes(in_.u8() % 64);
    head.resize(std::max<size_t>(head.size(), 14));
    switch (in_.below(4)) {
      case 0:
        break;  // wherever it says
      case 1:
        std::fill_n(head.begin(), 6, std::byte{0xff});
        break;
      default:
        std::ranges::copy(std::as_bytes(std::span(rig_.driver(1).mac.bytes)), head.begin());
    }
    // (A rewrite of the rings here would be one that the oracle does not know.)
    const Extent at = extent_of(iova, head.size());
    const size_t buffers = guest_.oracle().extent(buffers_, 0).offset;
    if (at.offset >= buffers) guest_.write(at.offset, head.data(), head.size());
    netdev_->post_tx(iova, some_length());
  }

  void post_rx() {
    const uint64_t iova = some_address();
    const uint32_t len = some_length();
    netdev_->post_rx(extent_of(iova, len), iova, len);
  }
  void take() {
    if (!netdev_->reachable()) return;
    Netdev::Received received;
    while (netdev_->take(received)) {
    }
  }

  void peer_sends() {
    std::byte* at = peer_buffers_ + (buffer_pages - 1) * KH_PAGE_SIZE;
    std::vector<std::byte> frame = in_.bytes(in_.u8());
    frame.resize(std::max<size_t>(frame.size(), 14));
    if (in_.below(2))
      std::fill_n(frame.begin(), 6, std::byte{0xff});
    else
      std::ranges::copy(std::as_bytes(std::span(rig_.driver(0).mac.bytes)), frame.begin());
    std::memcpy(at, frame.data(), frame.size());
    peer_.oracle().wrote(at, frame.size());
    peer_netdev_->post_tx(peer_.host().iova(at), static_cast<uint32_t>(frame.size() + in_.u8() * 4));
  }

  void rewrite_sends() {
    // The send ring alone: what the receive ring names may be written, and the oracle has to know it.
    const size_t at = in_.u8();
    const std::vector<std::byte> bytes = in_.bytes(in_.below(32));
    if (bytes.empty()) return;
    guest_.write(guest_.oracle().extent(netdev_->rings(), 0).offset + at, bytes.data(),
                 bytes.size());
    rig_.driver(0).ring(0, Netdev::slot);
  }

  void set_port() {
    const size_t station = in_.below(2);
    kh_admin_cmd cmd = test::FakeDriver::make(KH_ADM_SET_PORT);
    cmd.set_port.flags = in_.u8() & (KH_PORT_UP | KH_PORT_RDMA | KH_PORT_PROMISC);
    cmd.set_port.mtu = 68 + in_.u16() % 9000;
    std::memcpy(cmd.set_port.mac, rig_.driver(station).mac.bytes.data(), 6);
    if (in_.below(4) == 0) cmd.set_port.mac[5] = in_.u8();
    rig_.driver(station).command(cmd);
  }

  void flip_memory() {
    const size_t first = guest_.first() / KH_PAGE_SIZE;
    const size_t page = first + in_.u8() % (memory / KH_PAGE_SIZE - first);
    switch (in_.below(4)) {
      case 0:
        return guest_.unmap(page);
      case 1:
        return guest_.write_protect(page);
      default:
        return guest_.map_all();
    }
  }

  Input in_;
  test::Rig rig_;
  Guest guest_, peer_;
  Claims claims_, peer_claims_;
  std::optional<Netdev> netdev_, peer_netdev_;
  std::byte* buffers_ = nullptr;
  std::byte* peer_buffers_ = nullptr;
  size_t next_buffer_ = 0;
};

}  // namespace
}  // namespace keyhole::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keyhole::fuzz::Session(keyhole::fuzz::Input(data, size)).run();
  return 0;
}
