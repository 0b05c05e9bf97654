// SPDX-License-Identifier: BSD-2-Clause
//
// Everything that the HCA engine knows of the world outside: guest memory, interrupts, the time,
// and the pages of its doorbell BAR. The engine has no sockets, no threads and no clock; whoever
// owns it (the daemon, a test, a fuzzer, a benchmark) implements these and calls Hca::run() from
// one thread.
//
// Frames leave and arrive through Link (link.h).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace keyhole {

// Bytes of guest memory that lie contiguously in this process. `host` is null where there are none.
struct HostSpan {
  std::byte* host = nullptr;
  uint64_t size = 0;

  explicit operator bool() const { return host != nullptr; }
};

// Guest memory, by I/O virtual address (IOVA). The implementation knows the maps; this class keeps
// the few that were used last, since guest RAM is one or two big maps and nearly every translation
// hits them: then it costs two comparisons and no call.
//
// A host pointer is good until the owner's next call of changed(), which never happens during
// Hca::run(). Who keeps one longer keeps generation() beside it and translates again when it moved.
class GuestMemory {
 public:
  virtual ~GuestMemory() = default;

  // A map, or any part of one that holds the address asked for. `last` is its last byte.
  struct Region {
    uint64_t first = 1;
    uint64_t last = 0;
    std::byte* host = nullptr;  // of `first`; null: nothing there
    bool writable = false;
  };

  // The bytes at `iova`, at most `length` of them (fewer at the end of a map; the rest is another
  // call). None when nothing is mapped there, or when `write` is asked of read-only memory.
  HostSpan translate(uint64_t iova, uint64_t length, bool write) {
    for (const Region& region : recent_) {
      if (iova >= region.first && iova <= region.last) [[likely]]
        return part(region, iova, length, write);
    }
    return translate_slowly(iova, length, write);
  }

  // Never 0, so that 0 can stand for "not translated yet".
  uint64_t generation() const { return generation_; }

  // The maps have changed: host pointers from before are void.
  void changed() {
    ++generation_;
    recent_.fill({});
  }

 protected:
  // What is mapped at `iova`; a Region with no host when nothing is.
  virtual Region find(uint64_t iova) = 0;

 private:
  static HostSpan part(const Region& region, uint64_t iova, uint64_t length, bool write) {
    if (write && !region.writable) return {};
    uint64_t behind = region.last - iova;  // bytes after this one: cannot overflow, unlike a size
    return {region.host + (iova - region.first), length - 1 > behind ? behind + 1 : length};
  }

  HostSpan translate_slowly(uint64_t iova, uint64_t length, bool write);

  std::array<Region, 4> recent_{};
  uint32_t oldest_ = 0;
  uint64_t generation_ = 1;
};

// MSI-X. Whether the guest lets it through (masks, bus mastering) is the implementation's matter.
class Interrupts {
 public:
  virtual ~Interrupts() = default;
  virtual void raise(uint16_t vector) = 0;
};

// Nanoseconds, monotonic, from any origin. The device clock that the guest sees.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() = 0;
};

// What one HCA is given when it is made. All of it outlives the HCA.
struct Host {
  GuestMemory* memory = nullptr;
  Interrupts* interrupts = nullptr;
  Clock* clock = nullptr;
  // The memory of BAR 2, page aligned: as many doorbell pages as there are contexts, and as many
  // status pages. The guest writes the first at any time and never the second.
  std::span<std::byte> doorbells;
  std::span<std::byte> status;
};

}  // namespace keyhole
