// SPDX-License-Identifier: BSD-2-Clause
//
// A process that goes on using what the driver has mapped into it when the adapter is gone.
//
//   mappings DEVICE
//
// Prints "ready" when it has the device open, with a CQ and a QP. For a line of its input it reads every word of each
// mapping of the device, and stores to those that may be stored to; then it asks the device something. It
// says how many mappings there were and what the device answered. Whether the device is there is the caller's affair: a mapping whose
// adapter went away is to be memory like any other, and never a signal.

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <fstream>
#include <iostream>

#include "verbs.h"

namespace {

struct Mapping {
  uintptr_t begin, end;
  bool writable;
};

// Those of /dev/infiniband/uverbs*.
std::vector<Mapping> mappings_of_the_device() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/infiniband/uverbs") == std::string::npos) continue;
    Mapping mapping{};
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &mapping.begin, &mapping.end, rights) != 3) continue;
    mapping.writable = rights[1] == 'w';
    found.push_back(mapping);
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: mappings DEVICE\n");
    return 2;
  }
  guest::End end(argv[1], 0, 4096);
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) return 2;

  const std::vector<Mapping> found = mappings_of_the_device();
  int writable = 0;
  for (const Mapping& mapping : found) {
    for (uintptr_t at = mapping.begin; at < mapping.end; at += sizeof(uint32_t)) {
      auto* word = reinterpret_cast<volatile uint32_t*>(at);
      const uint32_t value = *word;
      if (mapping.writable) *word = value;
    }
    writable += mapping.writable;
  }
  ibv_device_attr attributes{};
  const int error = ibv_query_device(end.context(), &attributes);
  std::cout << found.size() << " mappings, " << writable << " writable; query: " << std::strerror(error) << std::endl;
  return 0;
}
