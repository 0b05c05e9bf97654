// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>

#include "vfio_user/fd.h"

namespace keyhole::vfio_user {

// Memory that a client may map too: a memfd, mapped here, zero at first, whose size is sealed, so
// that a client which holds the descriptor cannot truncate it under us.
class SharedMemory {
 public:
  // `size` in bytes, a multiple of the page size. `name` shows in /proc/PID/maps.
  static std::expected<SharedMemory, int> create(const std::string& name, uint64_t size);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  auto bytes() const { return std::span(data_, size_); }

 private:
  SharedMemory(Fd fd, std::byte* data, uint64_t size)
      : fd_(std::move(fd)), data_(data), size_(size) {}

  Fd fd_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace keyhole::vfio_user
