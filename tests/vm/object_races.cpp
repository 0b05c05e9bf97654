// SPDX-License-Identifier: BSD-2-Clause
//
// MKEY and KLM_LIST objects asked for by several threads at once, on one file descriptor: created, queried and
// destroyed under each other's hands, on a PD that goes, beyond a limit, and on a descriptor that is closed.
//
//   object_races DEVICE [SECONDS]   a line for each check; how long each race runs: 3
//   object_races DEVICE run         races until it is killed
//
// Which thread wins is chance; what each may be told is not, and what is left in the end is nothing: no
// memory pinned, no PD busy. What the device holds afterwards is looked at from outside (mkey_objects.py).

#include <grp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <random>
#include <thread>

#include "verbs_ioctl.h"

namespace {

int failures = 0;
double duration = 3;

void check(bool right, const std::string& what) {
  failures += !right;
  std::printf("%-6s %s\n", right ? "ok" : "WRONG", what.c_str());
  std::fflush(stdout);
}

// Answers, by errno, and how many of each.
struct Answers {
  std::array<std::atomic<unsigned>, 256> of{};
  int note(int error) {
    ++of[static_cast<uint8_t>(error)];
    return error;
  }
  void check_only(std::initializer_list<int> allowed, const std::string& what) {
    bool right = of[0] > 0;
    std::string seen;
    for (size_t error = 0; error < of.size(); ++error) {
      if (!of[error]) continue;
      seen += std::string(" ") + (error ? strerrorname_np(static_cast<int>(error)) : "0") + ":" +
              std::to_string(of[error]);
      bool known = false;
      for (int each : allowed) known = known || each == static_cast<int>(error);
      right = right && known;
    }
    check(right, what + ":" + seen);
  }
};

// Runs each of `parts` in a thread of its own, again and again, until the time is over.
void race(std::initializer_list<std::function<void(std::minstd_rand&)>> parts) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  unsigned seed = 1;
  for (const auto& part : parts)
    threads.emplace_back([&over, part, seed = seed++] {
      std::minstd_rand random(seed);
      while (!over) part(random);
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(duration));
  over = true;
  for (std::thread& thread : threads) thread.join();
}

// An object that some thread made and any may take: its handle plus one, or 0.
using Slots = std::array<std::atomic<uint32_t>, 4>;

void threads_make_query_and_destroy_the_same_objects(ibv_context* context) {
  const int fd = context->cmd_fd;
  ibv_pd* pd = new_pd(context);
  uint8_t* memory = map(4 * kPage);
  const long before = pinned_kib();
  Slots mkeys{}, lists{};
  Answers made, queried, destroyed;

  // A handle is left where it was when it is destroyed, now and then, for others to come too late with.
  const auto part = [&](std::minstd_rand& random) {
    const size_t i = random() % mkeys.size();
    const bool is_mkey = random() % 2;
    Slots& slots = is_mkey ? mkeys : lists;
    const uint32_t there = slots[i];
    switch (random() % 3) {
      case 0: {
        const Object object = is_mkey ? mkey(pd, 4) : list(pd, at(memory) + i * kPage, 64);
        if (made.note(object.error)) break;
        const uint32_t old = slots[i].exchange(object.handle + 1);
        if (old) destroyed.note(is_mkey ? destroy_mkey(fd, old - 1) : destroy_list(fd, old - 1));
        break;
      }
      case 1: {
        keyhole_mkey_attr mkey_attr;
        keyhole_klm_list_attr list_attr;
        if (there) queried.note(is_mkey ? query_mkey(fd, there - 1, mkey_attr) : query_list(fd, there - 1, list_attr));
        break;
      }
      default:
        if (there) destroyed.note(is_mkey ? destroy_mkey(fd, there - 1) : destroy_list(fd, there - 1));
        break;
    }
  };
  race({part, part, part});

  made.check_only({0}, "race: made");
  // EBUSY: somebody has it at this moment. EINVAL: its number is one of the other kind by now.
  queried.check_only({0, ENOENT, EBUSY, EINVAL}, "race: queried");
  destroyed.check_only({0, ENOENT, EBUSY, EINVAL}, "race: destroyed");
  // A thread that found an object busy has lost its handle: handles are small numbers.
  for (uint32_t handle = 0; handle < 4096; ++handle)
    if (destroy_mkey(fd, handle) == EINVAL) destroy_list(fd, handle);
  check(pinned_kib() == before, "race: nothing is pinned afterwards");
  check(ibv_dealloc_pd(pd) == 0, "race: and the PD is free");
  munmap(memory, 4 * kPage);
}

void a_pd_goes_while_others_put_objects_on_it(ibv_context* context) {
  const int fd = context->cmd_fd;
  uint8_t* memory = map(2 * kPage);
  const long before = pinned_kib();
  std::atomic<ibv_pd*> shared{nullptr};
  std::atomic<uint32_t> number{0};
  Answers put, gone, freed;
  const auto user = [&](size_t page) {
    return [&, page](std::minstd_rand& random) {
      uint32_t key = 0;
      const bool is_mkey = random() % 2;
      Call call = is_mkey ? create_mkey(number, 1, 0, key) : create_list(number, at(memory) + page * kPage, 8, key);
      if (put.note(call(fd))) return;
      const uint32_t handle = static_cast<uint32_t>(
          call[is_mkey ? uint16_t{KEYHOLE_ATTR_MKEY_CREATE_HANDLE} : uint16_t{KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE}].data);
      gone.note(is_mkey ? destroy_mkey(fd, handle) : destroy_list(fd, handle));
    };
  };
  const auto owner = [&](std::minstd_rand&) {
    if (!shared) {
      ibv_pd* pd = new_pd(context);
      number = pd->handle;
      shared = pd;
    }
    if (!freed.note(ibv_dealloc_pd(shared))) shared = nullptr;
  };
  race({user(0), user(1), owner});

  put.check_only({0, ENOENT, EBUSY, EINVAL}, "PD: objects put on it");  // EINVAL: the number is an mkey's by now
  gone.check_only({0}, "PD: and taken away");
  freed.check_only({0, EBUSY}, "PD: freed under them");
  if (shared) check(ibv_dealloc_pd(shared) == 0, "PD: free when they are gone");
  check(pinned_kib() == before, "PD: nothing is pinned afterwards");
  munmap(memory, 2 * kPage);
}

void a_descriptor_is_closed_under_calls(const char* device) {
  uint8_t* memory = map(2 * kPage);
  const long before = pinned_kib();
  Answers put;
  for (int round = 0; round < 8; ++round) {
    ibv_context* context = open_device(device);
    ibv_pd* pd = new_pd(context);
    const int fd = dup(context->cmd_fd);
    const uint32_t pd_handle = pd->handle;
    ibv_close_device(context);  // the PD's memory is lost with it; the PD itself lives as long as fd
    std::vector<std::thread> threads;
    std::atomic<int> running{0};
    for (size_t page : {0, 1})
      threads.emplace_back([&, page] {
        uint32_t key = 0;
        int error = 0;
        for (int i = 0; error != EBADF && error != ENOTTY; ++i) {
          Call call = i % 2 ? create_mkey(pd_handle, 4, 0, key)
                            : create_list(pd_handle, at(memory) + page * kPage, 8, key);
          error = put.note(call(fd));
          if (i == 0) ++running;
        }
      });
    while (running < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * round));
    close(fd);
    for (std::thread& thread : threads) thread.join();
  }
  // ENOMEM: an HCA's mkeys are not without number.
  put.check_only({0, EBADF, ENOMEM}, "close: objects made");
  check(pinned_kib() == before, "close: nothing is pinned afterwards");
  munmap(memory, 2 * kPage);
}

// In a process without CAP_IPC_LOCK: eight pages may be pinned, by whichever thread.
int within_a_limit(const char* device) {
  constexpr size_t kAllowed = 8;
  ibv_context* context = open_device(device);
  const int fd = context->cmd_fd;
  ibv_pd* pd = new_pd(context);
  uint8_t* memory = map(32 * kPage);
  const rlimit limit{kAllowed * kPage, kAllowed * kPage};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
      setresuid(65534, 65534, 65534))
    die("becoming nobody");
  const long before = pinned_kib();
  std::atomic<int> held{0}, most{0};
  Answers made, destroyed;
  const auto part = [&](size_t first) {
    return [&, first, mine = std::vector<uint32_t>()](std::minstd_rand& random) mutable {
      if (random() % 2 && mine.size() < 8) {
        const Object object = list(pd, at(memory) + (first + random() % 8) * kPage, 8);
        if (made.note(object.error)) return;
        mine.push_back(object.handle);
        const int now = ++held;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
      } else if (!mine.empty()) {
        --held;  // before: it may be made again by another at once
        destroyed.note(destroy_list(fd, mine.back()));
        mine.pop_back();
      }
    };
  };
  race({part(0), part(8), part(16)});
  made.check_only({0, ENOMEM}, "limit: lists made by three threads");
  destroyed.check_only({0}, "limit: and destroyed");
  check(most <= static_cast<int>(kAllowed), "limit: never more than " + std::to_string(kAllowed) + ", " +
                                                std::to_string(most) + " at most");
  for (uint32_t handle = 0; handle < 256; ++handle) destroy_list(fd, handle);
  check(pinned_kib() == before, "limit: nothing is pinned afterwards");
  size_t again = 0;
  while (again < 32 && !list(pd, at(memory) + again * kPage, 8).error) ++again;
  check(again == kAllowed, "limit: all of it can be had again: " + std::to_string(again));
  return failures;
}

void a_limit_holds_for_threads_together(const char* device) {
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (!child) {
    failures = 0;
    _exit(within_a_limit(device) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "limit: it holds for threads together");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: object_races DEVICE [SECONDS | run]\n");
    return 2;
  }
  const bool until_killed = argc == 3 && !std::strcmp(argv[2], "run");
  if (argc == 3) duration = until_killed ? 1e6 : std::atof(argv[2]);
  if (!until_killed) a_limit_holds_for_threads_together(argv[1]);  // forks, so before there are threads
  ibv_context* context = open_device(argv[1]);
  threads_make_query_and_destroy_the_same_objects(context);
  a_pd_goes_while_others_put_objects_on_it(context);
  ibv_close_device(context);
  a_descriptor_is_closed_under_calls(argv[1]);
  return failures ? 1 : 0;
}
