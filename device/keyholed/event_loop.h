// SPDX-License-Identifier: BSD-2-Clause
//
// The descriptors that keyholed waits for, on epoll: sockets of the virtual machines, the control
// socket, signals.
//
// Every handler runs on the one thread that also owns the HCAs, so that nothing here needs a lock.
// A handler may add and remove descriptors, its own among them: an event that epoll had already
// reported for a descriptor that is gone, or that has been given to someone else since, is dropped.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "vfio_user/fd.h"

namespace keyhole {

class EventLoop {
 public:
  using Ready = std::function<void(uint32_t events)>;

  EventLoop();

  // `events` is EPOLLIN and EPOLLOUT; hang-ups are always reported. A descriptor that is watched
  // already gets new events and a new handler.
  void watch(int fd, uint32_t events, Ready ready);
  void forget(int fd);

  // Handles what is ready, waiting for at most `timeout_ns` nanoseconds; 0 only looks, a negative
  // number waits for as long as it takes. True when anything was handled.
  bool wait(int64_t timeout_ns);

 private:
  struct Watch {
    uint32_t serial = 0;  // 0: not watched
    std::shared_ptr<Ready> ready;
  };

  vfio_user::Fd epoll_;
  std::vector<Watch> watches_;  // by descriptor
  uint32_t next_serial_ = 1;
};

}  // namespace keyhole
