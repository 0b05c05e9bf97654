// SPDX-License-Identifier: BSD-2-Clause
//
// The table of client memory: which I/O virtual address (IOVA; without a vIOMMU, the guest's
// physical address) is which host address.
//
// A client's maps never overlap, so the table is a vector sorted by address; a lookup is a binary
// search, and most lookups hit the map that the last one hit: guest RAM is one or two big maps.
//
// Maps come and go at any time between two turns of the owner's loop. generation() changes with
// each change, so that a cached host pointer can be kept together with the generation it was looked
// up in, and is looked up again when they differ.

#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <limits>
#include <string>
#include <vector>

#include "vfio_user/pci_model.h"
#include "vfio_user/sigbus.h"

namespace keyhole::vfio_user {

struct DmaLimits {
  // How many maps may exist at once. Each costs a mapping of this process, of which the kernel
  // allows 65530 for all devices together.
  uint32_t maps = 4096;
  // Address space that all maps together may take, in bytes.
  uint64_t bytes = uint64_t{16} << 40;
};

// A piece of client memory in this process. `host` is null where there is none.
struct DmaSpan {
  std::byte* host = nullptr;
  uint64_t size = 0;
};

class DmaTable {
 public:
  // `name` stands before what this table logs.
  explicit DmaTable(std::string name = "dma", DmaLimits limits = {});
  ~DmaTable();
  DmaTable(const DmaTable&) = delete;
  DmaTable& operator=(const DmaTable&) = delete;

  // Adds a map. Errors: EINVAL for a size of zero, addresses or offsets that are not 4 KiB aligned
  // or overflow, a descriptor that is no regular file, or a file shorter than offset + size; EEXIST
  // for an overlap; ENOMEM at the limits; else what mmap() says. A map without a descriptor takes
  // its place in the table, and lookups in it fail.
  std::expected<void, int> map(const DmaMapping& mapping);

  // Removes the maps inside [iova, iova + size). Errors: ENOENT when there is none, EINVAL when the
  // range would cut one in two.
  std::expected<void, int> unmap(uint64_t iova, uint64_t size);
  void unmap_all();

  // The host address of [iova, iova + size), which must lie in one map that grants `wanted`; null
  // if it does not. `size` of zero counts as one byte.
  std::byte* find(uint64_t iova, uint64_t size, DmaAccess wanted) {
    const Map* map = lookup(iova);
    if (map == nullptr || !map->host || !allows(map->access, wanted)) return nullptr;
    if (size != 0 && size - 1 > map->last - iova) return nullptr;
    return map->host + (iova - map->iova);
  }

  // What is at `iova`, to the end of its map: for ranges that may run over several maps.
  DmaSpan at(uint64_t iova, DmaAccess wanted) {
    const Map* map = lookup(iova);
    if (map == nullptr || !map->host || !allows(map->access, wanted)) return {};
    uint64_t rest = map->last - iova;
    // The one map of 2^64 bytes is not worth a wider type: it is too big to be mapped.
    return {map->host + (iova - map->iova), rest + 1};
  }

  // The whole map that `iova` lies in, for an owner that keeps a cache of its own; `host` is null
  // where there is none to reach.
  struct Whole {
    uint64_t first = 0;
    uint64_t last = 0;
    std::byte* host = nullptr;
    bool writable = false;
  };
  Whole whole(uint64_t iova) {
    const Map* map = lookup(iova);
    if (map == nullptr || !map->host || !allows(map->access, DmaAccess::read)) return {};
    return {map->iova, map->last, map->host, allows(map->access, DmaAccess::write)};
  }

  // Never zero, so that zero can stand for "not looked up yet".
  uint64_t generation() const { return generation_; }

  // True when a client has truncated a file under one of the maps (see sigbus.h). What was read
  // from there since is zeroes; the owner should disconnect this client.
  bool damaged();

  size_t count() const { return maps_.size(); }
  // Bytes in maps that can be reached, and in maps that came without a descriptor.
  uint64_t reachable_bytes() const { return reachable_bytes_; }
  uint64_t unreachable_bytes() const { return unreachable_bytes_; }

 private:
  struct Map {
    uint64_t iova = 0;
    uint64_t last = 0;  // the last byte, so that a map may end at 2^64
    std::byte* host = nullptr;
    DmaAccess access = DmaAccess::read;
    // What mmap() gave: `host` lies in it, behind the start of its (huge) page.
    std::byte* base = nullptr;
    uint64_t length = 0;
    SigbusGuard guard;
  };

  const Map* lookup(uint64_t iova) {
    if (last_hit_ < maps_.size()) [[likely]] {
      const Map& hit = maps_[last_hit_];
      if (iova >= hit.iova && iova <= hit.last) [[likely]]
        return &hit;
    }
    return search(iova);
  }

  const Map* search(uint64_t iova);
  std::vector<Map>::iterator first_behind(uint64_t iova);
  std::expected<void, int> map_file(const DmaMapping& mapping, Map& map) const;
  void note_unreachable(const DmaMapping& mapping);
  void drop(Map& map);

  std::string name_;
  DmaLimits limits_;
  std::vector<Map> maps_;
  size_t last_hit_ = 0;
  uint64_t generation_ = 1;
  uint64_t reachable_bytes_ = 0;
  uint64_t unreachable_bytes_ = 0;
  uint64_t faults_seen_ = 0;
  bool damaged_ = false;
  bool told_unreachable_ = false;
};

}  // namespace keyhole::vfio_user
