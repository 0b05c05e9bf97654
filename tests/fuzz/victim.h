// SPDX-License-Identifier: BSD-2-Clause
//
// The other side of a hostile guest's connection: well-behaved, and watched byte by byte. It has
// one region that the peer may reach by its own key, one for its receives, and one that nobody may
// reach but through the windows and the indirect keys that the victim opens and closes on it.
// What it opened is computed here from its own requests and their completions alone, so that each
// byte that the peer changes beyond that is a find: outside a window, behind one that was closed,
// or through a key whose entries are others.

#pragma once

#include <array>
#include <vector>

#include "claims.h"
#include "input.h"
#include "work.h"

namespace keyhole::fuzz {

class Victim {
 public:
  Victim(test::Rig& rig, size_t station);

  test::TestQp& qp() { return qp_; }
  test::FakeDriver& driver() { return driver_; }
  Guest& guest() { return guest_; }

  // Something that a program does with its keys, to its end.
  void act(Input& in);
  // Takes the completions of receives: one of them may say that the peer has invalidated a window.
  void take_receives();
  // The queue pair is as new: the connection has to be made again.
  void reset();
  // Else it does nothing: what it posted would be done at a time unknown.
  bool connected = false;

  // Nothing is open to the peer, or all that was: for a peer that uses a key which is not one.
  void forbid_all();
  void allow_all();

  struct Named {
    uint32_t key = 0;
    uint64_t start = 0;
    uint64_t length = 0;
  };
  // What the peer may know: all keys, open or not.
  std::vector<Named> keys() const;

 private:
  // A window or an indirect key, and the bytes that it names, in order.
  struct Opening {
    uint32_t key = 0;
    bool window2 = false;
    uint64_t start = 0;
    std::vector<Extent> extents;
    bool counted = false;  // the oracle knows: it is open for writing
  };

  // Posts it, and runs until all is quiet. True when it was done.
  bool done(const test::Work& work);
  void bind(Input& in, size_t which);
  void invalidate(size_t which);
  void fill(Input& in, size_t which);
  void post_receive(Input& in);
  void open(Opening& opening, std::vector<Extent> extents, bool writable);
  void close(Opening& opening);
  // The bytes [offset, offset + size) of what the extents name together.
  static std::vector<Extent> slice(const std::vector<Extent>& extents, uint64_t offset,
                                   uint64_t size);
  void wrote_queues();

  static constexpr size_t windows = 4;
  static constexpr uint64_t hidden_size = 3 * 4096 + 512;

  test::Rig& rig_;
  test::FakeDriver& driver_;
  Guest guest_;
  Claims claims_;
  uint32_t pdn_ = 0;
  test::TestCq send_cq_, recv_cq_;
  test::TestQp qp_;
  test::TestRegion open_region_, receives_, hidden_;
  // Windows of type 1, of type 2, then indirect keys.
  std::array<Opening, windows + 2> openings_;
  uint64_t next_id_ = 1;
};

}  // namespace keyhole::fuzz
