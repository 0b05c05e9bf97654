// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/control.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace keyhole {

using nlohmann::json;
using vfio_user::Fd;

namespace {

constexpr size_t max_request = 64 * 1024;
constexpr size_t max_clients = 16;

json failure(const std::string& why) { return {{"ok", false}, {"error", why}}; }

}  // namespace

std::expected<std::unique_ptr<Control>, std::string> Control::listen(const std::string& path,
                                                                     EventLoop& loop) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return std::unexpected(fmt::format("{}: the name of a socket has 1 to {} bytes", path,
                                       sizeof(address.sun_path) - 1));
  std::memcpy(address.sun_path, path.data(), path.size());

  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return std::unexpected(fmt::format("socket: {}", std::strerror(errno)));

  // A socket that a dead process left behind refuses connections, and may go.
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
    return std::unexpected(fmt::format("{}: in use by another process", path));
  struct stat status {};
  if (errno == ECONNREFUSED && lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode))
    unlink(path.c_str());

  fd = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return std::unexpected(fmt::format("socket: {}", std::strerror(errno)));
  mode_t mask = umask(0077);
  int bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  int error = errno;
  umask(mask);
  if (bound != 0) return std::unexpected(fmt::format("{}: {}", path, std::strerror(error)));
  if (::listen(fd.get(), 8) != 0)
    return std::unexpected(fmt::format("{}: {}", path, std::strerror(errno)));
  return std::unique_ptr<Control>(new Control(path, std::move(fd), loop));
}

Control::Control(std::string path, Fd listener, EventLoop& loop)
    : path_(std::move(path)), listener_(std::move(listener)), loop_(loop) {
  loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_client(); });
}

Control::~Control() {
  for (auto& [fd, client] : clients_)
    loop_.forget(fd);
  loop_.forget(listener_.get());
  unlink(path_.c_str());
}

json Control::answer(const std::string& line) {
  json request = json::parse(line, nullptr, false);
  if (!request.is_object()) return failure("a request is one line with a JSON object");
  auto name = request.find("command");
  if (name == request.end() || !name->is_string()) return failure("a request has a \"command\"");
  auto command = commands_.find(name->get<std::string>());
  if (command == commands_.end()) {
    std::string known;
    for (const auto& [word, unused] : commands_)
      known += (known.empty() ? "" : ", ") + word;
    return failure(
        fmt::format("unknown command \"{}\"; there are: {}", name->get<std::string>(), known));
  }
  auto result = command->second(request);
  if (!result) return failure(result.error());
  json reply = std::move(*result);
  reply["ok"] = true;
  return reply;
}

void Control::accept_client() {
  Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd || clients_.size() >= max_clients) return;
  int key = fd.get();
  Client& client = clients_[key];
  client.fd = std::move(fd);
  watch(client);
}

void Control::watch(Client& client) {
  uint32_t events = client.out.empty() ? EPOLLIN : EPOLLOUT;
  int fd = client.fd.get();
  loop_.watch(fd, events, [this, fd](uint32_t) { serve(fd); });
}

// Reads when all has been written, so that a client holds at most one read's worth of answers.
void Control::serve(int fd) {
  Client& client = clients_.at(fd);
  auto drop = [&] {
    loop_.forget(fd);
    clients_.erase(fd);
  };

  if (client.out.empty()) {
    std::array<char, 4096> buffer;
    ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return drop();
    if (got > 0) client.in.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end = 0; (end = client.in.find('\n')) != std::string::npos;) {
      client.out +=
          answer(client.in.substr(0, end)).dump(-1, ' ', false, json::error_handler_t::replace) +
          "\n";
      client.in.erase(0, end + 1);
    }
    if (client.in.size() > max_request) return drop();
  }
  if (!client.out.empty()) {
    ssize_t put = send(fd, client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN && errno != EINTR) return drop();
    if (put > 0) client.out.erase(0, static_cast<size_t>(put));
  }
  watch(client);
}

}  // namespace keyhole
