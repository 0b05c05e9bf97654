// SPDX-License-Identifier: BSD-2-Clause
//
// keyholed: one process is one fabric, of any number of HCAs on one switch, each a PCI device for a
// virtual machine that connects to its socket.
//
// One thread does everything: it serves the sockets and gives the HCAs their turns, so that no lock
// lies on the data path, and a reply to "this memory goes away" is sent when nobody uses it any
// more. Between turns it looks at the sockets every so often; when a turn finds nothing to do, Pace
// says whether to look again, nap, or wait for somebody to call.

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/switch.h"
#include "hca/stats.h"
#include "keyholed/adapter.h"
#include "keyholed/control.h"
#include "keyholed/event_loop.h"
#include "keyholed/options.h"
#include "keyholed/pace.h"

namespace keyhole {
namespace {

using nlohmann::json;

uint64_t read_clock(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

class MonotonicClock final : public Clock {
 public:
  uint64_t now_ns() override { return read_clock(CLOCK_MONOTONIC); }
};

// How many cores this thread may run on; 1 if that cannot be told.
int count_cores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// Goes to the next core that is allowed now; from there the scheduler is free to move the thread
// again. Where that fails, it stays.
void change_core() {
  cpu_set_t allowed;
  int here = sched_getcpu();
  if (here < 0 || sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2)
    return;
  int next = here;
  do
    next = (next + 1) % CPU_SETSIZE;
  while (!CPU_ISSET(next, &allowed));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(next, &one);
  sched_setaffinity(0, sizeof(one), &one);
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

json describe(Adapter& adapter) {
  Hca::Snapshot now = adapter.hca().snapshot();
  json counters = json::object();
  for (int i = 0; i < KH_NUM_STATS; ++i) {
    auto which = static_cast<kh_stat>(i);
    counters[std::string(stat_name(which))] = now.stats[which];
  }
  return {{"name", now.name},
          {"mac", to_string(now.mac)},
          {"socket", adapter.socket()},
          {"connected", adapter.has_client()},
          {"guest_bytes", adapter.guest_bytes()},
          {"ready", (now.status & KH_STATUS_READY) != 0},
          {"fatal", now.status >> KH_STATUS_FATAL_SHIFT},
          {"port_up", now.port_up},
          {"rdma_up", now.rdma_up},
          {"memory", {{"used", now.memory_used}, {"limit", now.memory_limit}}},
          {"objects",
           {{"contexts", now.contexts},
            {"awake", now.awake},
            {"pds", now.pds},
            {"eqs", now.eqs},
            {"cqs", now.cqs},
            {"srqs", now.srqs},
            {"qps", now.qps},
            {"mkeys", now.mkeys}}},
          {"counters", counters}};
}

class Daemon {
 public:
  explicit Daemon(Options options) : options_(std::move(options)) {}

  std::expected<void, std::string> start() {
    catch_signals();
    for (const HcaSpec& spec : options_.hcas) {
      auto adapter = Adapter::create(spec, options_.contexts, fabric_, clock_, loop_);
      if (!adapter) return std::unexpected(adapter.error());
      adapters_.push_back(std::move(*adapter));
      spdlog::info("{}: {} on {}", spec.name, to_string(spec.mac), spec.socket);
    }
    if (!options_.control.empty()) {
      auto control = Control::listen(options_.control, loop_);
      if (!control) return std::unexpected(control.error());
      control_ = std::move(*control);
      add_commands();
    }
    return {};
  }

  void run() {
    // The kernel would round naps of some microseconds up to its usual slack of 50.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    Pace::Options pace_options;
    if (!options_.may_spin || count_cores() < 2) pace_options.spins_ns = {0};
    Pace pace(pace_options);

    constexpr uint64_t look_every_ns = 50'000;
    uint64_t looked = 0;
    uint64_t turns = 0;
    uint64_t moves = 0;
    while (!stop_) {
      bool busy = fabric_.run();
      uint64_t now = clock_.now_ns();
      if (turns != fabric_.turns()) {
        turns = fabric_.turns();
        pace.worked(now);
        if (moves != pace.moves()) {
          moves = pace.moves();
          change_core();
        }
      }

      int64_t timeout = 0;
      if (!busy && fabric_.polling()) {
        uint64_t nap = pace.idle(now);
        if (nap != 0) nap = std::min(nap, until(fabric_.deadline(), now));
        timeout = static_cast<int64_t>(nap);
      } else if (!busy) {
        uint64_t deadline = fabric_.deadline();
        timeout = deadline == Timers::never ? -1 : static_cast<int64_t>(until(deadline, now));
      }
      // Sockets have their turn also when the queues never run dry.
      if (timeout != 0 || now - looked >= look_every_ns) {
        looked = now;
        if (loop_.wait(timeout)) pace.worked(clock_.now_ns());
        for (auto& adapter : adapters_)
          adapter->check_memory();
      }
    }
    spdlog::info("ends");
  }

 private:
  static uint64_t until(uint64_t deadline, uint64_t now) {
    return deadline > now ? deadline - now : 0;
  }

  void catch_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signals_ = vfio_user::Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) { stop_ = true; });
  }

  void add_commands() {
    control_->add("stats", [this](const json&) -> std::expected<json, std::string> {
      json hcas = json::array();
      for (auto& adapter : adapters_)
        hcas.push_back(describe(*adapter));
      return json{{"version", KEYHOLE_VERSION}, {"hcas", hcas}};
    });
    control_->add("log-level", [](const json& request) -> std::expected<json, std::string> {
      auto level = request.find("level");
      if (level == request.end() || !level->is_string())
        return std::unexpected("log-level needs a \"level\"");
      auto parsed = spdlog::level::from_str(level->get<std::string>());
      if (parsed == spdlog::level::off && *level != "off")
        return std::unexpected(
            fmt::format("no level \"{}\"; there are trace, debug, info, warning, error, off",
                        level->get<std::string>()));
      spdlog::set_level(parsed);
      return json::object();
    });
  }

  Options options_;
  MonotonicClock clock_;
  EventLoop loop_;
  vfio_user::Fd signals_;
  Switch fabric_{clock_};
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::unique_ptr<Control> control_;
  bool stop_ = false;
};

int run(int argc, char** argv) {
  auto options = parse_options(argc, argv);
  if (!options) {
    std::fputs(options.error().text.c_str(), options.error().status == 0 ? stdout : stderr);
    return options.error().status;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("keyholed"));
  spdlog::set_pattern("%H:%M:%S.%f %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(options->log_level));

  Daemon daemon(*options);
  if (auto started = daemon.start(); !started) {
    spdlog::error("{}", started.error());
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  daemon.run();
  return 0;
}

}  // namespace
}  // namespace keyhole

int main(int argc, char** argv) {
  try {
    return keyhole::run(argc, argv);
  } catch (const std::exception& error) {
    spdlog::critical("{}", error.what());
    return 1;
  }
}
