// SPDX-License-Identifier: BSD-2-Clause
//
// The life of a connection: listen, accept, take messages apart and send their replies. What each
// message means is in commands.cc.

#include "vfio_user/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "vfio_user/reply.h"

namespace keyhole::vfio_user {

namespace {

// A guest that hammers a trapped register must not keep the owner's other work waiting.
constexpr int messages_in_one_turn = 64;

// A client that lets this much of its replies lie unread gets no further requests read.
constexpr size_t max_unsent = 256 << 10;

// A client that sends nonsense is told each time; the log is told a few times.
constexpr uint32_t max_complaints = 20;

std::expected<sockaddr_un, std::string> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return std::unexpected(fmt::format("socket path '{}' has {} bytes, and must have 1 to {}", path,
                                       path.size(), sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// A socket file whose server is dead stays behind and is in the way; one that answers is another
// server's.
bool left_behind(const sockaddr_un& address) {
  struct stat file {};
  if (stat(address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

Fd open_spare() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void check_region(const Region& region) {
  auto require = [&](bool condition, const char* rule) {
    if (!condition) throw std::invalid_argument(fmt::format("region {}: {}", region.index, rule));
  };
  auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  require(region.index < VFIO_PCI_NUM_REGIONS, "no such index");
  require(region.areas.empty() || region.memory, "mappable areas need memory");
  require(!region.memory || region.memory->size() == region.size, "memory of another size");
  for (const MappableArea& area : region.areas)
    require(area.size != 0 && area.offset % page == 0 && area.size % page == 0 &&
                area.size <= region.size && area.offset <= region.size - area.size,
            "a mappable area lies outside or off the page grid");
}

}  // namespace

std::expected<std::unique_ptr<Server>, std::string> Server::listen(ServerOptions options,
                                                                   PciModel& model, Poll& poll) {
  auto address = address_of(options.socket_path);
  if (!address) return std::unexpected(address.error());
  for (const Region& region : options.regions)
    check_region(region);

  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (left_behind(*address)) unlink(address->sun_path);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::listen(listener.get(), 4) != 0)
    return std::unexpected(
        fmt::format("cannot listen on {}: {}", options.socket_path, std::strerror(errno)));

  return std::unique_ptr<Server>(new Server(std::move(options), model, poll, std::move(listener)));
}

Server::Server(ServerOptions options, PciModel& model, Poll& poll, Fd listener)
    : options_(std::move(options)),
      model_(model),
      poll_(poll),
      listener_(std::move(listener)),
      spare_(open_spare()),
      regions_(VFIO_PCI_NUM_REGIONS),
      msix_(options_.msix_vectors) {
  for (uint32_t index = 0; index < regions_.size(); ++index)
    regions_[index].index = index;
  for (Region& region : options_.regions)
    regions_[region.index] = region;
  poll_.watch(listener_.get(), true, false);
}

Server::~Server() {
  if (stream_) poll_.forget(stream_->fd());
  poll_.forget(listener_.get());
  unlink(options_.socket_path.c_str());
}

void Server::on_ready(int fd) {
  if (fd == listener_.get())
    accept_client();
  else if (stream_ && fd == stream_->fd())
    serve_client();
}

// A connection that cannot be accepted for want of descriptors would stay in the queue, and its
// readiness keep the owner's loop from sleeping. So it is accepted with the spare one and closed.
Fd Server::accept_connection() {
  auto accept_one = [this] {
    return Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  };
  Fd socket = accept_one();
  if (socket || (errno != EMFILE && errno != ENFILE)) return socket;
  spdlog::error("{}: turned a client away: no file descriptor left", options_.name);
  spare_.reset();
  accept_one().reset();
  spare_ = open_spare();
  return {};
}

void Server::accept_client() {
  Fd socket = accept_connection();
  if (!socket) return;

  if (stream_) {
    // Its successor may be seen before its own end is.
    pollfd current{stream_->fd(), 0, 0};
    ::poll(&current, 1, 0);
    if ((current.revents & (POLLHUP | POLLERR)) == 0) {
      if (complaints_++ < max_complaints)
        spdlog::warn("{}: turned a second client away: one is connected", options_.name);
      return;
    }
    leaving_ = "it closed the connection";
    drop_client();
  }

  // The longest message is a write of max_transfer bytes, or what a version may say.
  size_t max_payload = std::max<size_t>(options_.max_transfer, 4096) + sizeof(RegionAccessPayload);
  stream_ = std::make_unique<Stream>(std::move(socket), max_payload, max_message_fds);
  negotiated_ = false;
  client_takes_fds_ = true;
  complaints_ = 0;
  leaving_.reset();
  spdlog::debug("{}: a client connected", options_.name);
  watched_readable_ = watched_writable_ = false;
  watch_client();
}

void Server::serve_client() {
  if (!stream_->flush()) leaving_ = "the connection broke";

  for (int i = 0; !leaving_ && i < messages_in_one_turn && stream_->unsent() <= max_unsent; ++i) {
    Message message;
    Stream::Status status = stream_->receive(message);
    if (status == Stream::Status::would_block) break;
    if (status == Stream::Status::closed)
      leaving_ = "it closed the connection";
    else if (status == Stream::Status::lost)
      leaving_ = "it sent a message shorter than its header";
    else if (!answer(message) && !leaving_)
      leaving_ = "the connection broke";
  }

  if (leaving_)
    drop_client();
  else
    watch_client();
}

void Server::watch_client() {
  bool readable = stream_->unsent() <= max_unsent;
  bool writable = stream_->unsent() > 0;
  if (readable == watched_readable_ && writable == watched_writable_) return;
  watched_readable_ = readable;
  watched_writable_ = writable;
  poll_.watch(stream_->fd(), readable, writable);
}

void Server::disconnect(const std::string& why) {
  if (!stream_) return;
  leaving_ = why;
  if (!in_message_) drop_client();
}

void Server::drop_client() {
  spdlog::info("{}: client gone: {}", options_.name, leaving_.value_or(""));
  poll_.forget(stream_->fd());
  stream_.reset();
  leaving_.reset();
  msix_.clear();
  unplug_.clear();
  errors_.clear();
  // One that never got as far as a version has not touched the model.
  if (std::exchange(negotiated_, false)) model_.client_gone();
}

// Does what a message asks for and replies. False: the connection is broken.
bool Server::answer(Message& message) {
  const Header request = message.header;
  // A reply to a request of ours: there are none.
  if ((request.flags & flag_type_mask) == type_reply) return true;

  in_message_ = true;
  Answer answer = dispatch(message);
  in_message_ = false;
  if (!answer) complain(request, answer.error());
  if ((request.flags & flag_no_reply) != 0) return true;

  Header header;
  header.id = request.id;
  header.command = request.command;
  header.flags = type_reply;
  if (!answer) {
    header.size = sizeof header;
    header.flags |= flag_error;
    header.error = static_cast<uint32_t>(answer.error());
    return stream_->send(header, {});
  }
  header.size = static_cast<uint32_t>(sizeof header + answer->payload.size());
  return stream_->send(header, answer->payload, answer->fd);
}

void Server::complain(const Header& header, int error) {
  // Probing for what is not there is how a client finds out.
  bool probing = error == ENOTSUP;
  if (!probing && complaints_ < max_complaints) {
    ++complaints_;
    spdlog::warn("{}: refused message {} (command {}, {} bytes, flags {:#x}): {}{}", options_.name,
                 header.id, header.command, header.size, header.flags, std::strerror(error),
                 complaints_ == max_complaints ? "; further ones are not logged" : "");
  } else {
    spdlog::debug("{}: refused command {}: {}", options_.name, header.command,
                  std::strerror(error));
  }
}

Server::Answer Server::dispatch(Message& message) {
  if (message.too_long || message.too_many_fds) return std::unexpected(E2BIG);
  if ((message.header.flags & flag_type_mask) != type_command) return std::unexpected(EINVAL);

  auto command = static_cast<Command>(message.header.command);
  if (negotiated_ == (command == Command::version)) return std::unexpected(EINVAL);

  // Descriptors come with two commands; with any other, they are a mistake.
  bool takes_fds = command == Command::dma_map || command == Command::device_set_irqs;
  if (!takes_fds && !message.fds.empty()) return std::unexpected(EINVAL);

  switch (command) {
    case Command::version:
      return version(message);
    case Command::dma_map:
      return dma_map(message);
    case Command::dma_unmap:
      return dma_unmap(message);
    case Command::device_get_info:
      return device_info(message);
    case Command::device_get_region_info:
      return region_info(message);
    case Command::device_get_region_io_fds:
      return region_io_fds(message);
    case Command::device_get_irq_info:
      return irq_info(message);
    case Command::device_set_irqs:
      return set_irqs(message);
    case Command::region_read:
      return region_read(message);
    case Command::region_write:
      return region_write(message);
    case Command::region_write_multi:
      return region_write_multi(message);
    case Command::device_reset:
      return device_reset(message);
    case Command::dma_read:
    case Command::dma_write:
    case Command::dirty_pages:
    case Command::device_feature:
    case Command::mig_data_read:
    case Command::mig_data_write:
      break;
  }
  return std::unexpected(ENOTSUP);
}

bool Server::request_unplug() {
  if (!unplug_.has_eventfd(0)) return false;
  unplug_.raise(0);
  return true;
}

void Server::read_pending_bits(uint64_t offset, std::span<std::byte> out) const {
  for (size_t i = 0; i < out.size(); ++i) {
    uint8_t bits = 0;
    for (uint32_t bit = 0; bit < 8; ++bit) {
      uint64_t vector = (offset + i) * 8 + bit;
      if (vector < msix_.count() && msix_.pending(static_cast<uint32_t>(vector)))
        bits |= static_cast<uint8_t>(1 << bit);
    }
    out[i] = std::byte{bits};
  }
}

}  // namespace keyhole::vfio_user
