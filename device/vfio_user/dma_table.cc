// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/dma_table.h"

#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace keyhole::vfio_user {

namespace {

constexpr uint64_t iova_page = 4096;

// Maps without a descriptor are normal when they are a device's BAR or the BIOS. One as big as this
// is the guest's RAM, and nothing will work.
constexpr uint64_t ram_sized = uint64_t{64} << 20;

bool aligned(uint64_t value) { return value % iova_page == 0; }

// The size of the pages that a mapping of this file consists of.
uint64_t page_size_of(int fd) {
  struct statfs fs {};
  if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC)
    return static_cast<uint64_t>(fs.f_bsize);
  return static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int protection(DmaAccess access) {
  // A page that can be written but not read is beyond most CPUs; that one is kept in the table.
  return access == DmaAccess::read ? PROT_READ : PROT_READ | PROT_WRITE;
}

}  // namespace

DmaTable::DmaTable(std::string name, DmaLimits limits) : name_(std::move(name)), limits_(limits) {}

DmaTable::~DmaTable() { unmap_all(); }

std::expected<void, int> DmaTable::map(const DmaMapping& mapping) {
  uint64_t last = mapping.iova + mapping.size - 1;
  if (mapping.size == 0 || last < mapping.iova || !aligned(mapping.iova) || !aligned(mapping.size))
    return std::unexpected(EINVAL);

  auto next = first_behind(mapping.iova);
  if (next != maps_.begin() && std::prev(next)->last >= mapping.iova)
    return std::unexpected(EEXIST);
  if (next != maps_.end() && next->iova <= last) return std::unexpected(EEXIST);
  if (maps_.size() >= limits_.maps) return std::unexpected(ENOMEM);

  Map map;
  map.iova = mapping.iova;
  map.last = last;
  map.access = mapping.access;
  if (mapping.fd) {
    if (auto mapped = map_file(mapping, map); !mapped) return mapped;
    reachable_bytes_ += mapping.size;
  } else {
    note_unreachable(mapping);
  }

  maps_.insert(next, std::move(map));
  ++generation_;
  return {};
}

std::expected<void, int> DmaTable::map_file(const DmaMapping& mapping, Map& map) const {
  struct stat file {};
  if (fstat(mapping.fd.get(), &file) != 0) return std::unexpected(errno);
  uint64_t end = mapping.offset + mapping.size;
  if (!S_ISREG(file.st_mode) || !aligned(mapping.offset) || end < mapping.offset ||
      end > static_cast<uint64_t>(file.st_size))
    return std::unexpected(EINVAL);
  if (mapping.size > limits_.bytes - std::min(limits_.bytes, reachable_bytes_))
    return std::unexpected(ENOMEM);

  // Whole pages of the file: they may be larger than the pages that IOVAs count in.
  uint64_t page = page_size_of(mapping.fd.get());
  uint64_t before = mapping.offset % page;
  map.length = (before + mapping.size + page - 1) / page * page;
  void* base = mmap(nullptr, map.length, protection(mapping.access), MAP_SHARED, mapping.fd.get(),
                    static_cast<off_t>(mapping.offset - before));
  if (base == MAP_FAILED) return std::unexpected(errno);
  map.base = static_cast<std::byte*>(base);
  map.host = map.base + before;

  map.guard = SigbusGuard({map.base, map.length}, page);
  if (!map.guard) {
    munmap(map.base, map.length);
    return std::unexpected(ENOMEM);
  }
  return {};
}

void DmaTable::note_unreachable(const DmaMapping& mapping) {
  unreachable_bytes_ += mapping.size;
  if (mapping.size < ram_sized || !allows(mapping.access, DmaAccess::write) || told_unreachable_)
    return;
  told_unreachable_ = true;
  spdlog::error(
      "{}: {} MiB of guest memory at {:#x} came without a file descriptor: the device cannot reach "
      "it. Start QEMU with shared memory: -object memory-backend-memfd,id=mem,size=...,share=on "
      "-machine memory-backend=mem",
      name_, mapping.size >> 20, mapping.iova);
}

std::expected<void, int> DmaTable::unmap(uint64_t iova, uint64_t size) {
  uint64_t last = iova + size - 1;
  if (size == 0 || last < iova) return std::unexpected(EINVAL);

  auto begin = first_behind(iova);
  if (begin != maps_.begin() && std::prev(begin)->iova == iova) --begin;
  if (begin != maps_.begin() && std::prev(begin)->last >= iova) return std::unexpected(EINVAL);
  auto end = first_behind(last);
  if (begin == end) return std::unexpected(ENOENT);
  if (std::prev(end)->last > last) return std::unexpected(EINVAL);

  for (auto map = begin; map != end; ++map)
    drop(*map);
  maps_.erase(begin, end);
  ++generation_;
  return {};
}

void DmaTable::unmap_all() {
  for (Map& map : maps_)
    drop(map);
  maps_.clear();
  ++generation_;
  damaged_ = false;
  told_unreachable_ = false;
}

void DmaTable::drop(Map& map) {
  uint64_t size = map.last - map.iova + 1;
  if (map.base == nullptr) {
    unreachable_bytes_ -= size;
    return;
  }
  reachable_bytes_ -= size;
  damaged_ = damaged_ || map.guard.damaged();
  map.guard = {};
  munmap(map.base, map.length);
}

// The first map that starts behind `iova`.
std::vector<DmaTable::Map>::iterator DmaTable::first_behind(uint64_t iova) {
  return std::ranges::upper_bound(maps_, iova, {}, &Map::iova);
}

const DmaTable::Map* DmaTable::search(uint64_t iova) {
  auto next = first_behind(iova);
  if (next == maps_.begin()) return nullptr;
  const Map& map = *std::prev(next);
  if (iova > map.last) return nullptr;
  last_hit_ = static_cast<size_t>(std::prev(next) - maps_.begin());
  return &map;
}

bool DmaTable::damaged() {
  if (uint64_t faults = SigbusGuard::faults(); faults != faults_seen_) {
    faults_seen_ = faults;
    for (const Map& map : maps_)
      damaged_ = damaged_ || map.guard.damaged();
  }
  return damaged_;
}

}  // namespace keyhole::vfio_user
