// SPDX-License-Identifier: BSD-2-Clause

#include "hca/admin.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "hca/guest_access.h"
#include "hca/hca.h"
#include "hca/names.h"

namespace keyhole {

namespace {

// Page addresses that count as one entry of the quantum.
constexpr uint32_t pages_per_entry = 64;

constexpr size_t body = sizeof(kh_admin_hdr);

}  // namespace

#define RESERVED(type, field) \
  Reserved { body + offsetof(type, field), sizeof(type::field) }

// Designators out of order keep the table short: what is absent is zero.
const std::array<Admin::Command, 64> Admin::commands = [] {
  constexpr Reserved all{body, sizeof(kh_cmd_empty)};
  std::array<Command, 64> table{};
  table[KH_ADM_NOP] = {.execute = &Admin::nop, .reserved = {all}};
  table[KH_ADM_QUERY_DEVICE] = {
      .execute = &Admin::query_device, .out_size = sizeof(kh_device_attr), .reserved = {all}};
  table[KH_ADM_QUERY_STATS] = {.execute = &Admin::query_stats,
                               .out_size = KH_NUM_STATS * sizeof(uint64_t),
                               .reserved = {all}};
  table[KH_ADM_SET_PORT] = {
      .execute = &Admin::set_port,
      .reserved = {RESERVED(kh_cmd_set_port, rsvd0), RESERVED(kh_cmd_set_port, rsvd1)}};
  table[KH_ADM_SET_GID] = {.execute = &Admin::set_gid,
                           .reserved = {RESERVED(kh_cmd_set_gid, rsvd)}};
  table[KH_ADM_CREATE_EQ] = {.execute = &Admin::create_eq,
                             .pages = body + offsetof(kh_cmd_create_eq, pages),
                             .flat = true,
                             .reserved = {RESERVED(kh_cmd_create_eq, rsvd)}};
  table[KH_ADM_DESTROY_EQ] = {.execute = &Admin::destroy_eq, .has_handle = true, .reserved = {all}};
  table[KH_ADM_CREATE_CONTEXT] = {
      .execute = &Admin::create_context, .has_handle = true, .reserved = {all}};
  table[KH_ADM_DESTROY_CONTEXT] = {
      .execute = &Admin::destroy_context, .has_handle = true, .reserved = {all}};
  table[KH_ADM_CREATE_PD] = {.execute = &Admin::create_pd, .reserved = {all}};
  table[KH_ADM_DESTROY_PD] = {.execute = &Admin::destroy_pd, .has_handle = true, .reserved = {all}};
  table[KH_ADM_CREATE_MKEY] = {
      .execute = &Admin::create_mkey,
      .pages = body + offsetof(kh_cmd_create_mkey, pages),
      .reserved = {RESERVED(kh_cmd_create_mkey, rsvd0), RESERVED(kh_cmd_create_mkey, rsvd1)}};
  table[KH_ADM_DESTROY_MKEY] = {
      .execute = &Admin::destroy_mkey, .has_handle = true, .reserved = {all}};
  table[KH_ADM_MODIFY_MKEY] = {
      .execute = &Admin::modify_mkey,
      .has_handle = true,
      .pages = body + offsetof(kh_cmd_modify_mkey, pages),
      .reserved = {RESERVED(kh_cmd_modify_mkey, rsvd0), RESERVED(kh_cmd_modify_mkey, rsvd1),
                   RESERVED(kh_cmd_modify_mkey, rsvd2)}};
  table[KH_ADM_QUERY_MKEY] = {.execute = &Admin::query_mkey,
                              .out_size = sizeof(kh_mkey_attr),
                              .has_handle = true,
                              .reserved = {all}};
  table[KH_ADM_CREATE_CQ] = {.execute = &Admin::create_cq,
                             .pages = body + offsetof(kh_cmd_create_cq, pages),
                             .reserved = {RESERVED(kh_cmd_create_cq, rsvd)}};
  table[KH_ADM_DESTROY_CQ] = {.execute = &Admin::destroy_cq, .has_handle = true, .reserved = {all}};
  table[KH_ADM_RESIZE_CQ] = {.execute = &Admin::resize_cq,
                             .has_handle = true,
                             .pages = body + offsetof(kh_cmd_create_cq, pages),
                             .reserved = {RESERVED(kh_cmd_create_cq, rsvd)}};
  table[KH_ADM_MODIFY_CQ] = {.execute = &Admin::modify_cq,
                             .has_handle = true,
                             .reserved = {RESERVED(kh_cmd_modify_cq, rsvd)}};
  table[KH_ADM_CREATE_SRQ] = {.execute = &Admin::create_srq,
                              .pages = body + offsetof(kh_cmd_create_srq, pages),
                              .reserved = {RESERVED(kh_cmd_create_srq, rsvd)}};
  table[KH_ADM_DESTROY_SRQ] = {
      .execute = &Admin::destroy_srq, .has_handle = true, .reserved = {all}};
  table[KH_ADM_MODIFY_SRQ] = {.execute = &Admin::modify_srq,
                              .has_handle = true,
                              .reserved = {RESERVED(kh_cmd_modify_srq, rsvd)}};
  table[KH_ADM_QUERY_SRQ] = {.execute = &Admin::query_srq, .has_handle = true, .reserved = {all}};
  table[KH_ADM_RESIZE_SRQ] = {.execute = &Admin::resize_srq,
                              .has_handle = true,
                              .pages = body + offsetof(kh_cmd_create_srq, pages),
                              .reserved = {RESERVED(kh_cmd_create_srq, rsvd)}};
  table[KH_ADM_CREATE_QP] = {.execute = &Admin::create_qp,
                             .pages = body + offsetof(kh_cmd_create_qp, pages),
                             .reserved = {RESERVED(kh_cmd_create_qp, rsvd)}};
  table[KH_ADM_DESTROY_QP] = {.execute = &Admin::destroy_qp, .has_handle = true, .reserved = {all}};
  table[KH_ADM_MODIFY_QP] = {
      .execute = &Admin::modify_qp,
      .has_handle = true,
      .reserved = {RESERVED(kh_qp_attr, sq_draining), RESERVED(kh_qp_attr, rsvd0),
                   RESERVED(kh_qp_attr, rsvd1)}};
  table[KH_ADM_QUERY_QP] = {.execute = &Admin::query_qp,
                            .out_size = sizeof(kh_qp_attr),
                            .has_handle = true,
                            .reserved = {all}};
  table[KH_ADM_ATTACH_MCAST] = {.execute = &Admin::attach_mcast,
                                .has_handle = true,
                                .reserved = {RESERVED(kh_cmd_mcast, rsvd)}};
  table[KH_ADM_DETACH_MCAST] = {.execute = &Admin::detach_mcast,
                                .has_handle = true,
                                .reserved = {RESERVED(kh_cmd_mcast, rsvd)}};
  table[KH_ADM_CREATE_NIC] = {.execute = &Admin::create_nic,
                              .pages = body + offsetof(kh_cmd_create_nic, pages),
                              .flat = true,
                              .reserved = {RESERVED(kh_cmd_create_nic, rsvd)}};
  table[KH_ADM_DESTROY_NIC] = {.execute = &Admin::destroy_nic, .reserved = {all}};
  return table;
}();

#undef RESERVED

Admin::Admin(Hca& hca, PageList sq, PageList cq, PageList db, uint8_t log_size)
    : hca_(hca), sq_(std::move(sq)), cq_(std::move(cq)), db_(std::move(db)), log_size_(log_size) {}

bool Admin::run(Quantum& quantum) {
  while (hca_.ready() && (busy_ || fetch())) {
    if (!quantum.left()) {
      fire();
      return true;
    }
    --quantum.entries;
    if (auto result = proceed(quantum)) complete(*result);
  }
  if (hca_.ready()) fire();
  return false;
}

// Reads the next command. False when there is none, or when the queue has broken down.
bool Admin::fetch() {
  std::byte* db = db_.at(0);
  uint32_t size = 1u << log_size_;
  if (!db) {
    hca_.fatal(KH_FATAL_ADMIN_ADDR);
    return false;
  }
  auto pi = load_acquire<uint32_t>(db + offsetof(kh_admin_db, pi));
  if (pi == done_) return false;
  if (pi - done_ > size) {
    hca_.fatal(KH_FATAL_ADMIN_RING);
    return false;
  }
  // A completion is written for each command taken, so room is looked for before.
  if (done_ - load_acquire<uint32_t>(db + offsetof(kh_admin_db, ci)) >= size) {
    hca_.fatal(KH_FATAL_ADMIN_CQ);
    return false;
  }
  std::byte* from = sq_.at(uint64_t{done_ & (size - 1)} * sizeof(kh_admin_cmd));
  if (!from) {
    hca_.fatal(KH_FATAL_ADMIN_ADDR);
    return false;
  }
  copy_out(cmd_, from);
  out_.fill({});
  pages_ = {};
  reader_.reset();
  return true;
}

// Some steps of the command; its result when it is done.
std::optional<AdminResult> Admin::proceed(Quantum& quantum) {
  if (!busy_) {
    if (auto refused = check()) return refused;
    const Command& command = commands[cmd_.hdr.opcode];
    if (command.pages != 0 && wants_pages()) {
      kh_pages pages;
      std::memcpy(&pages, reinterpret_cast<const std::byte*>(&cmd_) + command.pages, sizeof(pages));
      reader_.emplace(hca_.memory(), hca_.budget_, pages);
    }
    busy_ = true;
  }
  const Command& command = commands[cmd_.hdr.opcode];
  if (reader_) {
    uint32_t share = static_cast<uint32_t>(std::max(quantum.entries, 1));
    auto complete = reader_->step(share * pages_per_entry);
    if (!complete)
      return AdminResult{
          complete.error().status, uint32_t{command.pages} + complete.error().field_offset, {}};
    if (!*complete) {
      quantum.entries = 0;
      quantum.bytes = 0;
      return std::nullopt;
    }
    pages_ = reader_->take();
    reader_.reset();
  }
  return (this->*command.execute)();
}

// What can be said of a command by the table alone.
std::optional<AdminResult> Admin::check() {
  const kh_admin_hdr& head = cmd_.hdr;
  if (head.opcode >= commands.size() || !commands[head.opcode].execute)
    return AdminResult{KH_ST_NOSUPP, offsetof(kh_admin_hdr, opcode), {}};
  const Command& command = commands[head.opcode];
  auto refuse = [](size_t at, uint8_t status = KH_ST_INVAL) {
    return AdminResult{status, static_cast<uint32_t>(at), {}};
  };
  if (head.rsvd0 != 0) return refuse(offsetof(kh_admin_hdr, rsvd0));
  if (!command.has_handle && head.handle != 0) return refuse(offsetof(kh_admin_hdr, handle));
  const auto* bytes = reinterpret_cast<const std::byte*>(&cmd_);
  for (const Reserved& reserved : command.reserved) {
    for (size_t at = reserved.from; at < size_t{reserved.from} + reserved.size; ++at) {
      if (bytes[at] != std::byte{0}) return refuse(at);
    }
  }
  if (command.flat) {
    size_t levels = command.pages + offsetof(kh_pages, levels);
    if (bytes[levels] != std::byte{0}) return refuse(levels);
  }
  if (command.out_size == 0) {
    if (head.out_addr != 0) return refuse(offsetof(kh_admin_hdr, out_addr));
  } else {
    if (head.out_addr & 63) return refuse(offsetof(kh_admin_hdr, out_addr));
    if (!output_mapped(command.out_size))
      return refuse(offsetof(kh_admin_hdr, out_addr), KH_ST_FAULT);
  }
  return std::nullopt;
}

// Whether a command that may have pages has them this time.
bool Admin::wants_pages() const {
  switch (cmd_.hdr.opcode) {
    case KH_ADM_CREATE_MKEY:
      return cmd_.create_mkey.kind == KH_MKEY_DIRECT || cmd_.create_mkey.kind == KH_MKEY_KLM_LIST;
    case KH_ADM_MODIFY_MKEY:
      return (cmd_.modify_mkey.mask & KH_MKEY_MOD_TRANSLATION) != 0;
    default:
      return true;
  }
}

bool Admin::output_mapped(uint64_t size) {
  uint64_t at = cmd_.hdr.out_addr;
  if (at + (size - 1) < at) return false;
  while (size > 0) {
    HostSpan span = hca_.memory().translate(at, size, true);
    if (!span) return false;
    at += span.size;
    size -= span.size;
  }
  return true;
}

void Admin::write_output(uint64_t size) {
  uint64_t at = cmd_.hdr.out_addr;
  const std::byte* from = out_.data();
  while (size > 0) {
    HostSpan span = hca_.memory().translate(at, size, true);
    if (!span) return;
    std::memcpy(span.host, from, span.size);
    from += span.size;
    at += span.size;
    size -= span.size;
  }
}

void Admin::complete(const AdminResult& result) {
  ++hca_.stats_[KH_STAT_ADMIN_COMMANDS];
  if (!result.ok()) ++hca_.stats_[KH_STAT_ADMIN_ERRORS];
  if (spdlog::should_log(spdlog::level::debug)) {
    std::string outcome =
        result.ok()
            ? fmt::format("OK {:#x}", result.result[0])
            : fmt::format("{} at byte {}", admin_status_name(result.status), result.syndrome);
    spdlog::debug("{}: {} -> {}", hca_.name(), describe(cmd_), outcome);
  }
  busy_ = false;
  pages_ = {};
  reader_.reset();
  if (result.ok()) write_output(commands[cmd_.hdr.opcode].out_size);

  std::byte* slot = cq_.at(uint64_t{done_ & ((1u << log_size_) - 1)} * sizeof(kh_admin_cqe));
  if (!slot) return hca_.fatal(KH_FATAL_ADMIN_ADDR);
  kh_admin_cqe cqe{};
  cqe.tag = cmd_.hdr.tag;
  cqe.status = result.status;
  cqe.syndrome = result.syndrome;
  std::ranges::copy(result.result, cqe.result);
  cqe.phase = ((done_ >> log_size_) & 1) ^ 1;
  uint64_t tail = 0;
  std::memcpy(&tail, reinterpret_cast<const std::byte*>(&cqe) + 56, sizeof(tail));
  std::memcpy(slot, &cqe, 56);
  store_release(slot + 56, tail);
  ++done_;
  unfired_ = true;
}

void Admin::fire() {
  if (!unfired_) return;
  unfired_ = false;
  full_fence();
  std::byte* db = db_.at(0);
  if (!db) return hca_.fatal(KH_FATAL_ADMIN_ADDR);
  auto arm = load_acquire<uint32_t>(db + offsetof(kh_admin_db, arm));
  uint32_t sn = arm >> KH_ARM_SN_SHIFT;
  if ((arm & KH_ARM_TYPE_MASK) == 0 || sn == fired_) return;
  fired_ = sn;
  hca_.notifier_.raise(0);
}

}  // namespace keyhole
