// SPDX-License-Identifier: BSD-2-Clause

#include "vfio_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "input.h"

namespace keyhole::fuzz {

using vfio_user::Header;

namespace {

// No reply is longer than a read of the longest transfer.
constexpr uint32_t max_reply = (1 << 20) + 4096;

// Where two major versions meet, the server hangs up.
bool speaks_another_version(uint16_t command, std::span<const std::byte> payload) {
  vfio_user::VersionPayload version;
  if (command != static_cast<uint16_t>(vfio_user::Command::version) ||
      payload.size() < sizeof version)
    return false;
  std::memcpy(&version, payload.data(), sizeof version);
  return version.major != vfio_user::protocol_major;
}

}  // namespace

VfioClient::VfioClient(const std::string& path, std::function<void()> pump)
    : pump_(std::move(pump)),
      socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  require(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "the server does not accept a client");
  pump_();
}

VfioClient::~VfioClient() {
  socket_.reset();
  pump_();
}

void VfioClient::put(std::span<const std::byte> bytes, std::span<const int> fds) {
  while (!bytes.empty() && !gone_) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(64 * sizeof(int))> control{};
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    }
    const ssize_t sent = sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
      fds = {};
      continue;
    }
    if (errno != EAGAIN) {
      gone_ = true;
      break;
    }
    // The server reads on only when its replies are taken.
    pump_();
    receive();
  }
}

void VfioClient::send(uint16_t command, std::span<const std::byte> payload,
                      std::span<const int> fds, uint32_t flags, std::optional<uint32_t> size) {
  Header header;
  header.id = next_id_++;
  header.command = command;
  header.size = size.value_or(static_cast<uint32_t>(sizeof header + payload.size()));
  header.flags = flags;
  if (header.size != sizeof header + payload.size()) framing_known_ = false;
  if (speaks_another_version(command, payload)) may_be_dropped();
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  if (size_t first = std::min(cut_.value_or(0), bytes.size() - 1); first > 0) {
    put(std::span(bytes).first(first), fds);
    settle();
    put(std::span(bytes).subspan(first), {});
  } else {
    put(bytes, fds);
  }
  cut_.reset();
  const bool is_reply = (flags & vfio_user::flag_type_mask) == vfio_user::type_reply;
  if (!is_reply && (flags & vfio_user::flag_no_reply) == 0) owed_.push_back({header.id, command});
}

void VfioClient::send_noise(std::span<const std::byte> bytes) {
  framing_known_ = false;
  put(bytes, {});
}

void VfioClient::receive() {
  std::array<std::byte, 16384> buffer;
  for (;;) {
    iovec part{buffer.data(), buffer.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(16 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0) {
      gone_ |= got == 0 || errno != EAGAIN;
      break;
    }
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, reinterpret_cast<std::byte*>(c) + at, sizeof fd);
        close(fd);
      }
    }
    received_.insert(received_.end(), buffer.begin(), buffer.begin() + got);
  }
  take_replies();
}

void VfioClient::take_replies() {
  size_t at = 0;
  for (;;) {
    Header header;
    if (received_.size() - at < sizeof header) break;
    std::memcpy(&header, received_.data() + at, sizeof header);
    require(header.size >= sizeof header && header.size <= max_reply, "a reply of no such size");
    if (received_.size() - at < header.size) break;
    const bool error = (header.flags & vfio_user::flag_error) != 0;
    require((header.flags & vfio_user::flag_type_mask) == vfio_user::type_reply,
            "a message that is no reply");
    require(!error || (header.size == sizeof header && header.error != 0), "a strange error reply");
    if (framing_known_) {
      require(!owed_.empty(), "a reply that nobody asked for");
      require(owed_.front().id == header.id && owed_.front().command == header.command,
              "a reply to another message");
      owed_.pop_front();
    }
    last_.reset();
    if (!error)
      last_.emplace(received_.begin() + static_cast<long>(at + sizeof header),
                    received_.begin() + static_cast<long>(at + header.size));
    at += header.size;
  }
  received_.erase(received_.begin(), received_.begin() + static_cast<long>(at));
}

void VfioClient::settle() {
  // One of these may be long, and come in parts.
  for (size_t before = SIZE_MAX; !gone_ && before != owed_.size() + received_.size();) {
    before = owed_.size() + received_.size();
    pump_();
    receive();
  }
  if (!framing_known_) return;
  require(!gone_, "the server has hung up without a reason");
  require(owed_.empty(), "a message without its reply");
}

}  // namespace keyhole::fuzz
