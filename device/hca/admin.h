// SPDX-License-Identifier: BSD-2-Clause
//
// The admin queue: commands come from a ring in guest memory, one at a time and in order.
//
// Each command is read once into device memory. A table says what a command may carry: its output,
// whether it has a handle, where its page list is, which bytes are reserved. All that is checked
// here, for every command alike; the functions behind the table check the fields that only they
// understand. A page list may be long, so it is read over several turns before the command itself
// runs.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "hca/admin_result.h"
#include "hca/page_list.h"
#include "hca/run_queue.h"
#include "keyhole_hw.h"

namespace keyhole {

class Hca;

class Admin final : public Runnable {
 public:
  Admin(Hca& hca, PageList sq, PageList cq, PageList db, uint8_t log_size);

  bool run(Quantum& quantum) override;

 private:
  struct Reserved {
    uint8_t from = 0;
    uint8_t size = 0;
  };
  using Execute = AdminResult (Admin::*)();
  struct Command {
    Execute execute = nullptr;  // null: no such command
    uint16_t out_size = 0;
    bool has_handle = false;
    uint8_t pages = 0;  // offset of its kh_pages in the command; 0: none
    bool flat = false;  // its pages must be one contiguous piece (levels 0)
    std::array<Reserved, 3> reserved{};
  };
  static const std::array<Command, 64> commands;

  bool fetch();
  std::optional<AdminResult> check();
  std::optional<AdminResult> proceed(Quantum& quantum);
  void complete(const AdminResult& result);
  bool wants_pages() const;
  bool output_mapped(uint64_t size);
  void write_output(uint64_t size);
  void fire();
  template <typename T>
  void output(const T& value) {
    static_assert(sizeof(T) <= max_output);
    std::memcpy(out_.data(), &value, sizeof(value));
  }

  // admin_device.cc
  AdminResult nop();
  AdminResult query_device();
  AdminResult query_stats();
  AdminResult set_port();
  AdminResult set_gid();
  AdminResult create_eq();
  AdminResult destroy_eq();
  AdminResult create_context();
  AdminResult destroy_context();
  AdminResult create_pd();
  AdminResult destroy_pd();
  AdminResult create_nic();
  AdminResult destroy_nic();
  // admin_mkey.cc
  AdminResult create_mkey();
  AdminResult destroy_mkey();
  AdminResult modify_mkey();
  AdminResult query_mkey();
  // admin_queues.cc
  AdminResult create_cq();
  AdminResult destroy_cq();
  AdminResult resize_cq();
  AdminResult modify_cq();
  AdminResult create_srq();
  AdminResult destroy_srq();
  AdminResult modify_srq();
  AdminResult query_srq();
  AdminResult resize_srq();
  AdminResult create_qp();
  AdminResult destroy_qp();
  AdminResult modify_qp();
  AdminResult query_qp();
  AdminResult attach_mcast();
  AdminResult detach_mcast();

  static constexpr size_t max_output = 320;

  Hca& hca_;
  PageList sq_;
  PageList cq_;
  PageList db_;
  uint8_t log_size_;
  uint32_t done_ = 0;   // commands taken, and completions written
  uint32_t fired_ = 0;  // sn
  bool unfired_ = false;

  // The command at work.
  bool busy_ = false;
  kh_admin_cmd cmd_{};
  std::optional<PageListReader> reader_;
  PageList pages_;
  std::array<std::byte, max_output> out_{};
};

// A sentence of a command's fields, for the log.
std::string describe(const kh_admin_cmd& command);

}  // namespace keyhole
