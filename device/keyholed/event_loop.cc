// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/event_loop.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

namespace keyhole {

namespace {

constexpr int64_t ns_per_second = 1'000'000'000;

// What epoll gives back: the descriptor, and which of its watches this was.
uint64_t token(int fd, uint32_t serial) {
  return uint64_t{serial} << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

void EventLoop::watch(int fd, uint32_t events, Ready ready) {
  if (static_cast<size_t>(fd) >= watches_.size()) watches_.resize(static_cast<size_t>(fd) + 1);
  Watch& watch = watches_[static_cast<size_t>(fd)];
  int operation = watch.serial == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  watch.serial = next_serial_++;
  if (next_serial_ == 0) next_serial_ = 1;
  watch.ready = std::make_shared<Ready>(std::move(ready));

  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, watch.serial);
  if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) {
    watch = {};
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

void EventLoop::forget(int fd) {
  if (static_cast<size_t>(fd) >= watches_.size()) return;
  Watch& watch = watches_[static_cast<size_t>(fd)];
  if (watch.serial == 0) return;
  watch = {};
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool EventLoop::wait(int64_t timeout_ns) {
  std::array<epoll_event, 32> events;
  timespec timeout{timeout_ns / ns_per_second, timeout_ns % ns_per_second};
  int count = epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           timeout_ns < 0 ? nullptr : &timeout, nullptr);
  if (count < 0) {
    if (errno == EINTR) return false;
    throw std::system_error(errno, std::generic_category(), "epoll_pwait2");
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    auto fd = static_cast<uint32_t>(event.data.u64);
    auto serial = static_cast<uint32_t>(event.data.u64 >> 32);
    if (watches_[fd].serial != serial) continue;
    // Kept alive here: the handler may forget its own descriptor.
    std::shared_ptr<Ready> ready = watches_[fd].ready;
    (*ready)(event.events);
  }
  return count > 0;
}

}  // namespace keyhole
