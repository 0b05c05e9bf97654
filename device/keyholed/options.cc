// SPDX-License-Identifier: BSD-2-Clause

#include "keyholed/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace keyhole {

namespace {

std::optional<Mac> parse_mac(const std::string& text) {
  Mac mac{};
  if (text.size() != 17) return {};
  for (size_t i = 0; i < 6; ++i) {
    const char* digits = text.data() + 3 * i;
    auto [end, error] = std::from_chars(digits, digits + 2, mac.bytes[i], 16);
    if (error != std::errc{} || end != digits + 2) return {};
    if (i < 5 && digits[2] != ':') return {};
  }
  return mac;
}

template <typename Member>
std::optional<std::string> repeated(const std::vector<HcaSpec>& hcas, Member member) {
  for (size_t i = 0; i < hcas.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (hcas[i].*member == hcas[j].*member)
        return fmt::format("--hca {} and {} have the same", hcas[j].name, hcas[i].name);
  return {};
}

}  // namespace

std::string to_string(const Mac& mac) { return fmt::format("{:02x}", fmt::join(mac.bytes, ":")); }

std::expected<HcaSpec, std::string> parse_hca(const std::string& text, size_t ordinal) {
  HcaSpec hca;
  std::string mac;
  std::istringstream fields(text);
  for (std::string field; std::getline(fields, field, ',');) {
    size_t equals = field.find('=');
    std::string key = field.substr(0, equals);
    std::string value = equals == std::string::npos ? "" : field.substr(equals + 1);
    std::string* place = key == "name"     ? &hca.name
                         : key == "socket" ? &hca.socket
                         : key == "mac"    ? &mac
                                           : nullptr;
    if (place == nullptr)
      return std::unexpected(
          fmt::format(R"("{}": there are name=, socket= and mac=, not "{}")", text, key));
    if (value.empty()) return std::unexpected(fmt::format("\"{}\": {} has no value", text, key));
    if (!place->empty()) return std::unexpected(fmt::format("\"{}\": {} twice", text, key));
    *place = value;
  }
  if (hca.name.empty() || hca.socket.empty())
    return std::unexpected(fmt::format("\"{}\": name= and socket= are needed", text));

  if (mac.empty()) {
    if (ordinal >= 255)
      return std::unexpected(fmt::format("\"{}\": the 256th HCA and later ones need a mac=", text));
    hca.mac = {{0x52, 0x54, 0x00, 0x4b, 0x48, static_cast<uint8_t>(ordinal + 1)}};
    return hca;
  }
  std::optional<Mac> parsed = parse_mac(mac);
  if (!parsed)
    return std::unexpected(
        fmt::format("\"{}\": a MAC address is six bytes such as 52:54:00:4b:48:01", mac));
  if (parsed->multicast() || *parsed == Mac{})
    return std::unexpected(fmt::format("\"{}\": the MAC address of an HCA is a unicast one", mac));
  hca.mac = *parsed;
  return hca;
}

std::expected<Options, Exit> parse_options(int argc, const char* const* argv) {
  Options options;
  std::vector<std::string> hcas;

  CLI::App app(
      "keyholed: RDMA adapters for virtual machines.\n"
      "Serves each HCA as a PCI device on a vfio-user socket; all of them are joined by one "
      "switch.\n"
      "Prints \"ready\" when all sockets listen. SIGINT and SIGTERM end it.",
      "keyholed");
  app.add_option("--hca", hcas, "An HCA: name=NAME,socket=PATH[,mac=ADDRESS]; may be repeated")
      ->required()
      ->delimiter('\0')
      ->allow_extra_args(false);
  app.add_option("--control", options.control, "Unix socket for statistics and commands, as JSON");
  app.add_option(
         "--log-level", options.log_level,
         "trace, debug (every admin command and error completion), info, warning, error, off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  std::string spin = "auto";
  app.add_option("--spin", spin,
                 "auto: spin after work for as long as makes the waits for more shortest; never: "
                 "always nap")
      ->check(CLI::IsMember({"auto", "never"}))
      ->capture_default_str();
  app.add_option("--contexts", options.contexts,
                 "Processes that may have an HCA open at once, the kernel counted as one")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.set_version_flag("--version", KEYHOLE_VERSION);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    int status = app.exit(error, text, text);
    return std::unexpected(Exit{status == 0 ? 0 : 2, text.str()});
  }
  options.may_spin = spin == "auto";

  auto refuse = [](std::string why) {
    return std::unexpected(Exit{2, fmt::format("keyholed: {}\n", why)});
  };
  for (const std::string& text : hcas) {
    auto hca = parse_hca(text, options.hcas.size());
    if (!hca) return refuse("--hca " + hca.error());
    options.hcas.push_back(*hca);
  }
  if (auto who = repeated(options.hcas, &HcaSpec::name)) return refuse(*who + " name");
  if (auto who = repeated(options.hcas, &HcaSpec::socket)) return refuse(*who + " socket");
  if (auto who = repeated(options.hcas, &HcaSpec::mac)) return refuse(*who + " mac");
  return options;
}

}  // namespace keyhole
