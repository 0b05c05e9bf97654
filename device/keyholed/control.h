// SPDX-License-Identifier: BSD-2-Clause
//
// The control socket: how a person or a script looks into a running keyholed.
//
// A unix stream socket. A request is one line of JSON, the answer one line of JSON:
//
//   {"command": "stats"}                          {"ok": true, "hcas": [{"name": "kh0", ...}, ...]}
//   {"command": "log-level", "level": "debug"}    {"ok": true}
//   anything else                                 {"ok": false, "error": "unknown command \"x\""}
//
// Clients are trusted as far as the socket's permissions go (the owner's alone), but a bad line
// does no harm: a request has at most 64 KiB, and a client that does not read its answers is
// dropped.

#pragma once

#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "keyholed/event_loop.h"
#include "vfio_user/fd.h"

namespace keyhole {

class Control {
 public:
  // Answers a request; the error is a sentence for a person.
  using Command =
      std::function<std::expected<nlohmann::json, std::string>(const nlohmann::json& request)>;

  static std::expected<std::unique_ptr<Control>, std::string> listen(const std::string& path,
                                                                     EventLoop& loop);
  ~Control();

  void add(const std::string& name, Command command) { commands_[name] = std::move(command); }

  // What the socket does with one line, for tests.
  nlohmann::json answer(const std::string& line);

 private:
  struct Client {
    vfio_user::Fd fd;
    std::string in;
    std::string out;
  };

  Control(std::string path, vfio_user::Fd listener, EventLoop& loop);
  void accept_client();
  void serve(int fd);
  void watch(Client& client);

  std::string path_;
  vfio_user::Fd listener_;
  EventLoop& loop_;
  std::map<std::string, Command> commands_;
  std::map<int, Client> clients_;
};

}  // namespace keyhole
