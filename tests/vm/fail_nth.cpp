// SPDX-License-Identifier: BSD-2-Clause
//
// Each verb with each allocation of the kernel failing, one at a time.
//
//   fail_nth DEVICE GID-INDEX verbs                     the rows of every_verb.h
//   fail_nth DEVICE GID-INDEX driver PCI-ADDRESS NETDEV binding, unbinding and the network device
//
// A number n in /proc/thread-self/fail-nth makes the nth allocation of this thread fail, of those
// that the fault injection's settings do not pass over. So a verb is called with n = 1, 2, 3 until
// it runs to its end without any having failed. Each time but the last the kernel says that it has
// made one fail; the verb fails with ENOMEM, or works in spite of it, where who allocates can do
// without. After a failure the same call must work at once.
//
// Before each row the program prints its name and waits for a line of standard input: there the
// caller counts what the device holds, and gives n's largest step (1: all of them).

#include <linux/sockios.h>

#include <cstdio>
#include <iostream>

#include "every_verb.h"

namespace {

using guest::die;
using guest::need_zero;

constexpr int kMost = 50000;  // allocations of one call; more means that it never gets to its end

int wrong = 0;

class Injection {
 public:
  Injection() : fd_(open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) die("/proc/thread-self/fail-nth");
  }
  void arm(int n) { set(std::to_string(n)); }
  // Whether an allocation was made to fail since arm().
  bool disarm() {
    char text[32] = {};
    if (pread(fd_, text, sizeof(text) - 1, 0) <= 0) die("reading fail-nth");
    set("0");
    return std::atoi(text) == 0;
  }

 private:
  void set(const std::string& text) {
    if (pwrite(fd_, text.data(), text.size(), 0) < 0) die("writing fail-nth");
  }
  int fd_;
};

struct Walk {
  int injected = 0, refused = 0;
};

// A verb says ENOMEM, and works when it is called once more without a failure. What fails below the
// PCI core and the like is said in their words (no vectors: ENOSPC), and takes long to call again.
Walk walk(const guest::Verb& verb, int step, bool is_verb, Injection& injection) {
  Walk walk;
  for (int n = 1;; n += step) {
    if (n > kMost) {
      std::printf("WRONG  %s: no end after %d allocations\n", verb.name.c_str(), n);
      ++wrong;
      return walk;
    }
    verb.before();
    injection.arm(n);
    errno = 0;
    int error = verb.call();
    const bool injected = injection.disarm();
    if (error && (!injected || (is_verb && error != ENOMEM && error != verb.also))) {
      std::printf("WRONG  %s: allocation %d %s, and it says %s\n", verb.name.c_str(), n,
                  injected ? "failed" : "did not fail", strerrorname_np(error));
      ++wrong;
    }
    walk.injected += injected;
    walk.refused += error != 0;
    if (error && is_verb) {
      error = verb.call();
      if (error) {
        std::printf("WRONG  %s: after a failure of allocation %d it says %s again\n",
                    verb.name.c_str(), n, strerrorname_np(error));
        std::exit(1);
      }
    }
    if (!error) verb.after();
    if (!injected) return walk;
  }
}

// 0, or the errno.
int write_to(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = write(fd, text.data(), text.size()) < 0 ? errno : 0;
  close(fd);
  return error;
}

// The driver's own life, and what an administrator does to its network device.
std::vector<guest::Verb> driver_rows(const std::string& address, const std::string& netdev) {
  const std::string driver = "/sys/bus/pci/drivers/keyhole/";
  const auto unbind = [=] {
    // Nothing to do where it is not bound; a failure to look may be the one that was asked for.
    if (access((driver + address).c_str(), F_OK) != 0) return errno == ENOENT ? 0 : errno;
    return write_to(driver + "unbind", address);
  };
  const auto bind = [=] { return write_to(driver + "bind", address); };
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto request = [fd, netdev](unsigned long what, auto set) {
    ifreq interface{};
    std::snprintf(interface.ifr_name, sizeof(interface.ifr_name), "%s", netdev.c_str());
    set(interface);
    return ioctl(fd, what, &interface) ? errno : 0;
  };
  const auto flags = [request](short flags) {
    return request(SIOCSIFFLAGS, [flags](ifreq& i) { i.ifr_flags = flags; });
  };
  const auto mtu = [request](int mtu) {
    return request(SIOCSIFMTU, [mtu](ifreq& i) { i.ifr_mtu = mtu; });
  };
  const auto nothing = [] {};
  return {
      {"net device up", [=] { need_zero(flags(0), "down"); }, [=] { return flags(IFF_UP); },
       nothing, 0},
      {"net device down", [=] { need_zero(flags(IFF_UP), "up"); }, [=] { return flags(0); },
       [=] { need_zero(flags(IFF_UP), "up"); }, 0},
      {"MTU", [=] { need_zero(mtu(1500), "MTU of 1500"); }, [=] { return mtu(9000); },
       [=] { need_zero(mtu(1500), "MTU of 1500"); }, 0},
      {"bind", [=] { need_zero(unbind(), "unbind"); }, bind, nothing, 0},
      {"unbind", nothing, unbind, [=] { need_zero(bind(), "bind"); }, 0},
  };
}

int step_asked_for(const std::string& name) {
  std::printf("next %s\n", name.c_str());
  std::fflush(stdout);
  int step = 0;
  if (!(std::cin >> step)) std::exit(2);
  return step;
}

void walk_all(const std::vector<guest::Verb>& rows, bool are_verbs, Injection& injection) {
  for (const guest::Verb& verb : rows) {
    const int step = step_asked_for(verb.name);
    if (step < 1) continue;
    const int before = wrong;
    const Walk done = walk(verb, step, are_verbs, injection);
    if (wrong == before)
      std::printf("ok     %s: %d failures of an allocation, %d of the call\n", verb.name.c_str(),
                  done.injected, done.refused);
  }
  step_asked_for("end");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[3] : "";
  if (!((what == "verbs" && argc == 4) || (what == "driver" && argc == 6))) {
    std::fprintf(stderr, "usage: fail_nth DEVICE GID-INDEX verbs | driver PCI-ADDRESS NETDEV\n");
    return 2;
  }
  Injection injection;
  if (what == "driver") {
    walk_all(driver_rows(argv[4], argv[5]), false, injection);
  } else {
    guest::World world(argv[1], std::atoi(argv[2]));
    // What is not there yet would be brought in by the call, and its pages count as the call's.
    if (mlockall(MCL_CURRENT)) die("mlockall");
    walk_all(guest::Verbs(world).rows(), true, injection);
  }
  return wrong ? 1 : 0;
}
