// SPDX-License-Identifier: BSD-2-Clause
//
// Provider and engine in one process, on one core: the program posts a batch, the engine gets its
// turns, the program polls. So a rate here is the whole cost of an operation, both sides of the
// doorbell, without the waiting that two processes add.
//
// For bandwidth what matters is how little is added to the copy itself. write_to_memcpy takes turns
// between the two on the same buffers, each timed by the thread's CPU clock, and its counter
// "ratio" is the WRITEs' bandwidth as a part of memcpy's.

#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <ctime>

#include "../provider/engine_rig.h"

namespace keyhole::verbs {
namespace {

constexpr unsigned kBatch = 64;

test::Rig::Options rig_options() {
  test::Rig::Options options;
  options.host.memory = 64 << 20;
  options.host.real_clock = true;
  return options;
}

struct Bench {
  EngineRig rig{rig_options()};
  Station& a = rig.at(0);
  Station& b = rig.at(1);
  EngineCq cq_a{a, 10, 0, true}, cq_b{b, 10, 0, true};
  EngineQp qp_a, qp_b;
  EngineMr mr_a{a, 1 << 20, kAllAccess, 1}, mr_b{b, 1 << 20, kAllAccess, 2};
  std::array<ibv_wc, kBatch> wcs{};

  Bench()
      : qp_a(a, cq_a, cq_a, {.log_sq_blocks = 8, .single_threaded = true}),
        qp_b(b, cq_b, cq_b, {.log_sq_blocks = 8, .single_threaded = true}) {
    qp_a.connect(qp_b);
    qp_b.connect(qp_a);
  }

  // Lets the engine work until so many completions were polled; any error ends the run.
  void finish(unsigned count) {
    while (count) {
      rig.turn();
      const int polled = ibv_poll_cq(cq_a.ibv(), kBatch, wcs.data());
      for (int i = 0; i < polled; i++) {
        if (wcs[i].status == IBV_WC_SUCCESS) continue;
        std::fprintf(stderr, "completion with status %d, syndrome %#x\n", wcs[i].status,
                     wcs[i].vendor_err);
        std::exit(1);
      }
      count -= static_cast<unsigned>(polled);
    }
  }

  ibv_send_wr write(ibv_sge* sge, std::uint64_t offset = 0) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.wr.rdma = {mr_b.addr(offset), mr_b.mr.rkey};
    return wr;
  }
};

void must(int error) {
  if (!error) return;
  std::fprintf(stderr, "posting failed: %s\n", std::strerror(error));
  std::exit(1);
}

// All signaled, one doorbell for each: the costly way.
void write_64b(benchmark::State& state) {
  Bench t;
  ibv_sge sge = t.mr_a.sge(0, 64);
  for (auto _ : state) {
    for (unsigned i = 0; i < kBatch; i++)
      must(t.qp_a.post_send(t.write(&sge, i * 64)));
    t.finish(kBatch);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(write_64b);

void write_64b_builder(benchmark::State& state) {
  Bench t;
  ibv_qp_ex* ex = t.qp_a.ex();
  ex->wr_flags = IBV_SEND_SIGNALED;
  for (auto _ : state) {
    ibv_wr_start(ex);
    for (unsigned i = 0; i < kBatch; i++) {
      ibv_wr_rdma_write(ex, t.mr_b.mr.rkey, t.mr_b.addr(i * 64));
      ibv_wr_set_sge(ex, t.mr_a.mr.lkey, t.mr_a.addr(), 64);
    }
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(write_64b_builder);

void send_32b_inline(benchmark::State& state) {
  Bench t;
  std::array<std::byte, 32> data{};
  ibv_sge from{reinterpret_cast<std::uintptr_t>(data.data()), 32, 0};
  for (auto _ : state) {
    for (unsigned i = 0; i < 32; i++) {
      must(t.qp_b.post_recv(i, t.mr_b.sge(i * 64, 64)));
      ibv_send_wr wr = t.write(&from);
      wr.opcode = IBV_WR_SEND;
      wr.send_flags |= IBV_SEND_INLINE;
      must(t.qp_a.post_send(wr));
    }
    t.finish(32);
    int received = 0;
    while (received < 32)
      received += ibv_poll_cq(t.cq_b.ibv(), kBatch, t.wcs.data());
  }
  state.SetItemsProcessed(state.iterations() * 32);
}
BENCHMARK(send_32b_inline);

void bind_type_1(benchmark::State& state) {
  Bench t;
  EngineMw mw(t.a, IBV_MW_TYPE_1);
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = {&t.mr_a.mr, t.mr_a.addr(), 4096, IBV_ACCESS_REMOTE_WRITE}};
  for (auto _ : state) {
    for (unsigned i = 0; i < kBatch; i++)
      must(ibv_bind_mw(t.qp_a.ibv(), &mw.mw, &bind));
    t.finish(kBatch);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(bind_type_1);

// Bind and local invalidate: the life of a type 2 window.
void bind_and_invalidate_type_2(benchmark::State& state) {
  Bench t;
  EngineMw mw(t.a, IBV_MW_TYPE_2);
  ibv_qp_ex* ex = t.qp_a.ex();
  ex->wr_flags = IBV_SEND_SIGNALED;
  const ibv_mw_bind_info info{&t.mr_a.mr, t.mr_a.addr(), 4096, IBV_ACCESS_REMOTE_WRITE};
  for (auto _ : state) {
    ibv_wr_start(ex);
    for (unsigned i = 0; i < kBatch / 2; i++) {
      const std::uint32_t key = ibv_inc_rkey(mw.mw.rkey);
      ibv_wr_bind_mw(ex, &mw.mw, key, &info);
      mw.mw.rkey = key;
      ibv_wr_local_inv(ex, key);
    }
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
  }
  state.SetItemsProcessed(state.iterations() * kBatch / 2);
}
BENCHMARK(bind_and_invalidate_type_2);

void write_1mib(benchmark::State& state) {
  Bench t;
  ibv_sge sge = t.mr_a.sge(0, 1 << 20);
  for (auto _ : state) {
    must(t.qp_a.post_send(t.write(&sge)));
    t.finish(1);
  }
  state.SetBytesProcessed(state.iterations() << 20);
}
BENCHMARK(write_1mib);

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void write_to_memcpy(benchmark::State& state) {
  constexpr int turn = 8;
  const auto size = static_cast<std::size_t>(state.range(0));
  Bench t;
  ibv_sge sge = t.mr_a.sge(0, size);
  double writing = 0, copying = 0;
  for (auto _ : state) {
    const double start = cpu_seconds();
    for (int i = 0; i < turn; i++) {
      must(t.qp_a.post_send(t.write(&sge)));
      t.finish(1);
    }
    const double middle = cpu_seconds();
    for (int i = 0; i < turn; i++) {
      std::memcpy(t.mr_b.data(), t.mr_a.data(), size);
      benchmark::ClobberMemory();
    }
    writing += middle - start;
    copying += cpu_seconds() - middle;
  }
  state.counters["ratio"] = copying / writing;
  state.counters["write_GBps"] =
      1e-9 * static_cast<double>(state.iterations()) * turn * static_cast<double>(size) / writing;
}
BENCHMARK(write_to_memcpy)->Arg(1 << 20)->Arg(1 << 16);

}  // namespace
}  // namespace keyhole::verbs

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
