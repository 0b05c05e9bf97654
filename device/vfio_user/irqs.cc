// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/irqs.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

namespace keyhole::vfio_user {
namespace {

// The kernel names what an anonymous descriptor is where /proc shows it.
bool is_eventfd(int fd) {
  std::array<char, 64> target{};
  ssize_t length = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), target.data(), 64);
  return length > 0 &&
         std::string_view(target.data(), static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

// An eventfd blocks its writer only when its count is about to overflow, which nobody's interrupts
// bring about: but a client could, so ours must not block. The flag belongs to the open file, which
// the client shares; one that takes it away again and fills the count stops the server.
bool make_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && ((flags & O_NONBLOCK) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

}  // namespace

bool Irqs::usable(const Fd& fd) { return is_eventfd(fd.get()) && make_nonblocking(fd.get()); }

void Irqs::assign(uint32_t vector, Fd fd) {
  if (vector >= vectors_.size()) return;
  Vector& v = vectors_[vector];
  v.eventfd = std::move(fd);
  if (v.pending) deliver(v);
}

void Irqs::raise(uint32_t vector) {
  if (vector < vectors_.size()) deliver(vectors_[vector]);
}

void Irqs::deliver(Vector& vector) {
  vector.pending = vector.masked || !vector.eventfd;
  if (vector.pending) return;

  // The only failure is EAGAIN at a full count, and then the other side has a signal waiting
  // anyway.
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(vector.eventfd.get(), &one, sizeof one);
}

void Irqs::mask(uint32_t vector) {
  if (vector < vectors_.size()) vectors_[vector].masked = true;
}

void Irqs::unmask(uint32_t vector) {
  if (vector >= vectors_.size()) return;
  Vector& v = vectors_[vector];
  v.masked = false;
  if (v.pending) deliver(v);
}

void Irqs::clear_pending() {
  for (Vector& v : vectors_)
    v.pending = false;
}

void Irqs::clear() {
  for (Vector& v : vectors_)
    v = Vector{};
}

}  // namespace keyhole::vfio_user
