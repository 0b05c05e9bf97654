// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_user/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace keyhole::vfio_user {

namespace {

// The kernel's own limit on descriptors in one sendmsg() (SCM_MAX_FD).
constexpr size_t kernel_max_fds = 253;

}  // namespace

Stream::Stream(Fd socket, size_t max_payload, size_t max_fds)
    : socket_(std::move(socket)), max_payload_(max_payload), max_fds_(max_fds) {}

Stream::Status Stream::receive(Message& message) {
  while (true) {
    std::byte* to = nullptr;
    size_t size = 0;
    std::array<std::byte, 4096> nowhere;

    if (header_got_ < sizeof(Header)) {
      to = reinterpret_cast<std::byte*>(&incoming_.header) + header_got_;
      size = sizeof(Header) - header_got_;
    } else if (to_skip_ > 0) {
      to = nowhere.data();
      size = std::min(to_skip_, nowhere.size());
    } else if (payload_got_ < incoming_.payload.size()) {
      to = incoming_.payload.data() + payload_got_;
      size = incoming_.payload.size() - payload_got_;
    } else {
      break;
    }

    long got = read_some(to, size);
    if (got == -EAGAIN) return Status::would_block;
    if (got <= 0) return Status::closed;

    if (to_skip_ > 0) {
      to_skip_ -= static_cast<size_t>(got);
    } else if (header_got_ == sizeof(Header)) {
      payload_got_ += static_cast<size_t>(got);
    } else if (header_got_ += static_cast<size_t>(got); header_got_ == sizeof(Header)) {
      if (incoming_.header.size < sizeof(Header)) return Status::lost;
      size_t payload = incoming_.header.size - sizeof(Header);
      incoming_.too_long = payload > max_payload_;
      if (incoming_.too_long)
        to_skip_ = payload;
      else
        incoming_.payload.resize(payload);
    }
  }

  message = std::exchange(incoming_, Message{});
  header_got_ = 0;
  payload_got_ = 0;
  return Status::message;
}

long Stream::read_some(std::byte* to, size_t size) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kernel_max_fds * sizeof(int))> control;
  iovec part{to, size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();

  ssize_t got = 0;
  do {
    got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
  keep_fds(header);
  return got;
}

void Stream::keep_fds(msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      Fd owned(fd);
      if (incoming_.fds.size() < max_fds_)
        incoming_.fds.push_back(std::move(owned));
      else
        incoming_.too_many_fds = true;
    }
  }
  // Some did not fit into this process, for which no table of ours is to blame.
  if ((header.msg_flags & MSG_CTRUNC) != 0) incoming_.too_many_fds = true;
  if (incoming_.too_many_fds) incoming_.fds.clear();
}

bool Stream::send(const Header& header, std::span<const std::byte> payload, int fd) {
  Outgoing out;
  out.bytes.resize(sizeof header + payload.size());
  std::memcpy(out.bytes.data(), &header, sizeof header);
  std::ranges::copy(payload, out.bytes.begin() + sizeof header);
  out.fd = fd;
  unsent_ += out.bytes.size();
  outgoing_.push_back(std::move(out));
  return flush();
}

bool Stream::flush() {
  while (!outgoing_.empty()) {
    Outgoing& out = outgoing_.front();
    iovec part{out.bytes.data() + out.sent, out.bytes.size() - out.sent};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;

    // The descriptor goes with the first byte, and so only once.
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    if (out.fd >= 0 && out.sent == 0) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &out.fd, sizeof out.fd);
    }

    ssize_t sent = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    out.sent += static_cast<size_t>(sent);
    unsent_ -= static_cast<size_t>(sent);
    if (out.sent == out.bytes.size()) outgoing_.pop_front();
  }
  return true;
}

}  // namespace keyhole::vfio_user
