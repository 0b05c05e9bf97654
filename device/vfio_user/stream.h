// SPDX-License-Identifier: BSD-2-Clause
//
// vfio-user messages on a non-blocking stream socket.
//
// A stream has no message boundaries, and file descriptors travel beside its bytes: the kernel
// hands them over with the first byte of the sendmsg() that carried them. If we read ahead, a
// descriptor could belong to either of two messages. So no read goes past the end of the current
// message (the header first, which has the size, and then the rest), and every descriptor that
// arrives belongs to the message being read, however the sender cut it up.

#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "vfio_user/fd.h"
#include "vfio_user/protocol.h"

namespace keyhole::vfio_user {

struct Message {
  Header header;
  std::vector<std::byte> payload;
  std::vector<Fd> fds;
  bool too_long = false;      // over the limit: the payload was skipped
  bool too_many_fds = false;  // over the limit (or over this process's): none were kept
};

class Stream {
 public:
  enum class Status {
    message,      // one was read
    would_block,  // more must arrive first
    closed,       // by the peer, or an error on the socket
    lost          // the size in a header cannot be: no telling where the next message starts
  };

  // `socket` is a connected, non-blocking stream socket.
  Stream(Fd socket, size_t max_payload, size_t max_fds);

  int fd() const { return socket_.get(); }

  Status receive(Message& message);

  // Queues a message and tries to send. `fd`, if not -1, goes with it and must stay open until it
  // is sent: for as long as this object lives. False: the socket is dead.
  bool send(const Header& header, std::span<const std::byte> payload, int fd = -1);
  bool flush();
  size_t unsent() const { return unsent_; }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    size_t sent = 0;
    int fd = -1;
  };

  // Reads up to `size` bytes and keeps the descriptors. > 0, or 0 at the end, or -errno.
  long read_some(std::byte* to, size_t size);
  void keep_fds(msghdr& header);

  Fd socket_;
  size_t max_payload_;
  size_t max_fds_;

  Message incoming_;
  size_t header_got_ = 0;
  size_t payload_got_ = 0;
  size_t to_skip_ = 0;

  std::deque<Outgoing> outgoing_;
  size_t unsent_ = 0;
};

}  // namespace keyhole::vfio_user
