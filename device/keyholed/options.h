// SPDX-License-Identifier: BSD-2-Clause
//
// The command line of keyholed.

#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "hca/link.h"

namespace keyhole {

struct HcaSpec {
  std::string name;    // of its own; names the HCA in logs and statistics
  std::string socket;  // where QEMU's vfio-user-pci connects
  Mac mac{};           // unicast and of its own
};

struct Options {
  std::vector<HcaSpec> hcas;
  std::string control;  // empty: none
  std::string log_level = "info";
  bool may_spin = true;
  uint32_t contexts = 1024;  // for each HCA: processes that may have it open, and the kernel
};

// What to do when there is nothing to run: the text goes to stdout (status 0) or stderr.
struct Exit {
  int status = 0;
  std::string text;
};

std::expected<Options, Exit> parse_options(int argc, const char* const* argv);

// "name=kh0,socket=/run/kh0.sock,mac=52:54:00:4b:48:01", the mac optional: the `ordinal`th HCA then
// has 52:54:00:4b:48:ordinal + 1. The error is a sentence for a person.
std::expected<HcaSpec, std::string> parse_hca(const std::string& text, size_t ordinal);

std::string to_string(const Mac& mac);

}  // namespace keyhole
