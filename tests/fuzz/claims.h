// SPDX-License-Identifier: BSD-2-Clause
//
// What each admin command gives the device to write, read from the command and the contract alone:
// rings that the device fills, the words of doorbell records that are its own, output, and memory
// behind keys with local write. Send, receive and shared receive rings it only reads.

#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "guest.h"

namespace keyhole::fuzz {

class Claims {
 public:
  // With keys_ignored it is the caller who knows what is written through keys.
  enum Keys { keys_count, keys_ignored };
  Claims(Guest& guest, Keys keys) : guest_(guest), keys_count_(keys == keys_count) {}
  Claims(const Claims&) = delete;

  // Keys of other PDs count for nothing: no queue pair is in those.
  void only_pd(uint32_t pdn) { only_pd_ = pdn; }

  // All commands of the driver from now on, while this lives.
  void follow(test::FakeDriver& driver) {
    driver.before = [this](const kh_admin_cmd& command) { prepare(command); };
    driver.after = [this](const kh_admin_cmd& command, const kh_admin_cqe& result) {
      executed(command, result);
    };
  }
  // After a reset: nothing is anybody's.
  void drop_all();

 private:
  struct Key {
    std::vector<Extent> extents;
    uint32_t access = 0;
    uint32_t pdn = 0;
  };
  // The opcode that creates such an object, and its number.
  using Name = std::pair<uint8_t, uint32_t>;

  // The page lists are read before the command runs, as the device will.
  void prepare(const kh_admin_cmd& command);
  void executed(const kh_admin_cmd& command, const kh_admin_cqe& result);
  void claim(Name name, std::vector<Extent> extents);
  void release(Name name);
  void keep(uint32_t number, Key key);
  void executed_on_key(const kh_admin_cmd& command, const kh_admin_cqe& result);
  std::vector<Extent> part(uint64_t offset, uint64_t size) const {
    return guest_.extents(pages_, offset, size);
  }

  Guest& guest_;
  bool keys_count_;
  std::optional<uint32_t> only_pd_;
  std::vector<Guest::Piece> pages_;  // of the command that is under way
  std::map<Name, std::vector<Extent>> claims_;
  std::map<uint32_t, Key> keys_;
};

}  // namespace keyhole::fuzz
