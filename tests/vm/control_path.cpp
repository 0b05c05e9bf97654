// SPDX-License-Identifier: BSD-2-Clause
//
// What control operations cost a program, and what type 1 binds do, on any RDMA device.
//
//   control_path DEVICE GID-INDEX
//
// Prints a line `name value` for each measure: microseconds for an operation and its undoing (the median
// of several rounds, since anything else on the machine only adds), and binds a second.

#include <algorithm>
#include <array>
#include <functional>

#include "verbs.h"

namespace {

constexpr int kSends = 512;  // binds in flight

using Clock = std::chrono::steady_clock;
using guest::need;
using guest::need_zero;

double seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void median_us(const char* name, int rounds, int count, const std::function<void()>& operation) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) operation();
    times.push_back(seconds(start) / count * 1e6);
  }
  std::sort(times.begin(), times.end());
  std::printf("%s %.2f\n", name, times[times.size() / 2]);
  std::fflush(stdout);
}

// One bind at a time, each waited for: what a program pays that needs the window before it goes on.
void bind_latency(guest::End& end) {
  guest::Owned<ibv_mw, ibv_dealloc_mw> mw(need(ibv_alloc_mw(end.pd(), IBV_MW_TYPE_1), "ibv_alloc_mw"));
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {.mr = end.mr(), .addr = end.address(), .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  median_us("type_1_bind_us", 9, 500, [&] {
    need_zero(ibv_bind_mw(end.qp(), mw.get(), &bind), "ibv_bind_mw");
    if (end.wait().status != IBV_WC_SUCCESS) guest::die("a bind failed");
  });
}

// Binds in flight together, for two seconds: the queue is kept full, a completion comes for every kSignal-th
// and gives as many places back. Type 1 windows are bound by ibv_bind_mw alone, one call for each bind.
void bind_rate(guest::End& end) {
  constexpr int kSignal = 32;
  guest::Owned<ibv_mw, ibv_dealloc_mw> mw(need(ibv_alloc_mw(end.pd(), IBV_MW_TYPE_1), "ibv_alloc_mw"));
  ibv_mw_bind bind{};
  bind.bind_info = {.mr = end.mr(), .addr = end.address(), .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  std::array<ibv_wc, kSends / kSignal> wcs{};
  long posted = 0, done = 0;
  const auto start = Clock::now();
  for (double now = 0; now < 2 || done < posted; now = seconds(start)) {
    if (now > 60) guest::die("the binds do not complete");
    while (now < 2 && posted - done <= kSends - kSignal)
      for (int i = 0; i < kSignal; ++i, ++posted) {
        bind.send_flags = i == kSignal - 1 ? IBV_SEND_SIGNALED : 0;
        need_zero(ibv_bind_mw(end.qp(), mw.get(), &bind), "ibv_bind_mw");
      }
    const int polled = ibv_poll_cq(end.cq(), wcs.size(), wcs.data());
    if (polled < 0) guest::die("ibv_poll_cq");
    for (int i = 0; i < polled; ++i)
      if (wcs[i].status != IBV_WC_SUCCESS) guest::die("a bind failed");
    done += polled * kSignal;
  }
  std::printf("type_1_binds_per_second %.0f\n", static_cast<double>(done) / seconds(start));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: control_path DEVICE GID-INDEX\n");
    return 2;
  }
  const int gid_index = std::atoi(argv[2]);
  guest::End one(argv[1], gid_index, 4096, kSends), two(argv[1], gid_index, 4096);
  guest::connect(one, two);

  std::vector<uint8_t> megabyte(1 << 20, 1);
  median_us("mr_1mib_us", 9, 50, [&] {
    ibv_mr* mr = need(ibv_reg_mr(one.pd(), megabyte.data(), megabyte.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), "ibv_reg_mr");
    need_zero(ibv_dereg_mr(mr), "ibv_dereg_mr");
  });
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  need_zero(ibv_query_gid(one.context(), 1, gid_index, &attr.grh.dgid), "ibv_query_gid");
  attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
  attr.grh.hop_limit = 64;
  median_us("ah_us", 9, 50, [&] {
    ibv_ah* ah = need(ibv_create_ah(one.pd(), &attr), "ibv_create_ah");
    need_zero(ibv_destroy_ah(ah), "ibv_destroy_ah");
  });
  median_us("mw_us", 9, 100, [&] {
    ibv_mw* mw = need(ibv_alloc_mw(one.pd(), IBV_MW_TYPE_1), "ibv_alloc_mw");
    need_zero(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
  });
  bind_latency(one);
  bind_rate(one);
  return 0;
}
