// SPDX-License-Identifier: BSD-2-Clause
//
// Provider and engine in one process, on one core: the program posts a batch, the engine gets its
// turns, the program polls. So a rate here is the whole cost of an operation, both sides of the
// doorbell, without the waiting that two processes add.
//
// For bandwidth what matters is how little is added to the copy itself. write_to_memcpy takes turns
// between the two on the same buffers, each timed by the thread's CPU clock, and its counter
// "ratio" is the WRITEs' bandwidth as a part of memcpy's. The two that compare an indirect mkey
// with what it replaces do likewise: wanted are ratios of 0.85 (write_indirect_to_direct) and 3
// (write_gathered_to_each).

#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

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

  explicit Bench(unsigned log_sq_blocks = 8)
      : qp_a(a, cq_a, cq_a, {.log_sq_blocks = log_sq_blocks, .single_threaded = true}),
        qp_b(b, cq_b, cq_b, {.log_sq_blocks = 8, .single_threaded = true}) {
    qp_a.connect(qp_b);
    qp_b.connect(qp_a);
  }

  // Lets the engine work until so many completions were polled; any error ends the run.
  void finish(unsigned count) { finish(count, cq_a); }
  void finish(unsigned count, EngineCq& cq) {
    while (count) {
      rig.turn();
      const int polled = ibv_poll_cq(cq.ibv(), kBatch, wcs.data());
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
  for ([[maybe_unused]] auto _ : state) {
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
  for ([[maybe_unused]] auto _ : state) {
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
  for ([[maybe_unused]] auto _ : state) {
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
  for ([[maybe_unused]] auto _ : state) {
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
  for ([[maybe_unused]] auto _ : state) {
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

// Bind of a type 2 window, another each time; the windows are freed outside the clock.
void bind_type_2(benchmark::State& state) {
  Bench t;
  std::vector<std::unique_ptr<EngineMw>> windows;
  for (unsigned i = 0; i < kBatch; i++)
    windows.push_back(std::make_unique<EngineMw>(t.a, IBV_MW_TYPE_2));
  ibv_qp_ex* ex = t.qp_a.ex();
  ex->wr_flags = IBV_SEND_SIGNALED;
  const ibv_mw_bind_info info{&t.mr_a.mr, t.mr_a.addr(), 4096, IBV_ACCESS_REMOTE_WRITE};
  for ([[maybe_unused]] auto _ : state) {
    ibv_wr_start(ex);
    for (auto& window : windows) {
      const std::uint32_t key = ibv_inc_rkey(window->mw.rkey);
      ibv_wr_bind_mw(ex, &window->mw, key, &info);
      window->mw.rkey = key;
    }
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
    state.PauseTiming();
    ibv_wr_start(ex);
    for (auto& window : windows)
      ibv_wr_local_inv(ex, window->mw.rkey);
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(bind_type_2);

// ---- indirect mkeys ----------------------------------------------------------------------------

std::vector<ibv_sge> pieces(const EngineMr& mr, unsigned count, unsigned size, unsigned step) {
  std::vector<ibv_sge> list;
  for (unsigned i = 0; i < count; i++)
    list.push_back(mr.sge(i * step, size));
  return list;
}

keyholedv_fill fill_of(const EngineMkey& mkey, const std::vector<ibv_sge>& list) {
  keyholedv_fill fill{};
  fill.mkey = mkey.dv.lkey;
  fill.access = kAllAccess & ~KH_ACCESS_MW_BIND;
  fill.num_entries = static_cast<std::uint32_t>(list.size());
  fill.list = list.data();
  return fill;
}

// Fills in one doorbell, every one signaled, to one mkey. 16 at a time: what waits in the queue of
// a device is more often a few fills than many.
constexpr unsigned kFills = 16;

void fill(benchmark::State& state, bool in_line) {
  const auto count = static_cast<unsigned>(state.range(0));
  Bench t(10);
  EngineMkey mkey(t.a, count);
  const auto list = pieces(t.mr_a, count, 64, 256);
  // A list for each fill that is outstanding: its memory is the device's until it completes.
  std::vector<std::unique_ptr<EngineKlmList>> klm_lists;
  for (unsigned i = 0; i < kFills && !in_line; i++)
    klm_lists.push_back(std::make_unique<EngineKlmList>(t.a, count));
  keyholedv_fill request = fill_of(mkey, list);
  ibv_qp_ex* ex = t.qp_a.ex();
  ex->wr_flags = IBV_SEND_SIGNALED | (in_line ? IBV_SEND_INLINE : 0);
  for ([[maybe_unused]] auto _ : state) {
    ibv_wr_start(ex);
    for (unsigned i = 0; i < kFills; i++) {
      request.klm_list = in_line ? nullptr : &klm_lists[i]->dv;
      keyholedv_wr_fill(t.qp_a.dv(), &request);
    }
    must(ibv_wr_complete(ex));
    t.finish(kFills);
  }
  state.SetItemsProcessed(state.iterations() * kFills);
}
void umr_fill_inline(benchmark::State& state) { fill(state, true); }
void umr_fill_from_list(benchmark::State& state) { fill(state, false); }
BENCHMARK(umr_fill_inline)->Arg(4)->Arg(64);
BENCHMARK(umr_fill_from_list)->Arg(4)->Arg(64)->Arg(1024);

// Of mkeys of 4 entries, which are filled outside the clock.
void umr_invalidate(benchmark::State& state) {
  Bench t(10);
  std::vector<std::unique_ptr<EngineMkey>> mkeys;
  for (unsigned i = 0; i < kBatch; i++)
    mkeys.push_back(std::make_unique<EngineMkey>(t.a, 4));
  const auto list = pieces(t.mr_a, 4, 64, 256);
  ibv_qp_ex* ex = t.qp_a.ex();
  ex->wr_flags = IBV_SEND_SIGNALED;
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    ibv_wr_start(ex);
    for (auto& mkey : mkeys)
      keyholedv_wr_mr_list(t.qp_a.dv(), &mkey->dv, kAllAccess & ~KH_ACCESS_MW_BIND, 4, list.data());
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
    state.ResumeTiming();
    ibv_wr_start(ex);
    for (auto& mkey : mkeys)
      keyholedv_wr_invalidate(t.qp_a.dv(), mkey->dv.lkey);
    must(ibv_wr_complete(ex));
    t.finish(kBatch);
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(umr_invalidate);

void write_1mib(benchmark::State& state) {
  Bench t;
  ibv_sge sge = t.mr_a.sge(0, 1 << 20);
  for ([[maybe_unused]] auto _ : state) {
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
  for ([[maybe_unused]] auto _ : state) {
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

// A WRITE from ("remote" 0) or to (1) an indirect mkey of 4 KiB entries against one between direct
// keys of as many bytes, on the same memory. "ratio": bandwidth, indirect to direct. With the
// entries in order the copy has the same way to go, and the ratio is what looking at them costs;
// when they are scattered the processor's prefetching ends with each of them.
void write_indirect_to_direct(benchmark::State& state) {
  constexpr int turn = 8;
  constexpr unsigned piece = 4096;
  const auto size = static_cast<unsigned>(state.range(0));
  const unsigned count = size / piece;
  const unsigned step = state.range(1) ? 7 : 1;  // 7 divides no power of 2
  const bool remote = state.range(2);
  Bench t;
  Station& owner = remote ? t.b : t.a;
  EngineMr& memory = remote ? t.mr_b : t.mr_a;
  EngineMkey mkey(owner, count, kAllAccess & ~KH_ACCESS_MW_BIND);
  EngineKlmList klm_list(owner, count);
  std::vector<ibv_sge> list;
  for (unsigned i = 0; i < count; i++)
    list.push_back(memory.sge(i * step % count * piece, piece));
  keyholedv_send_wr fill{};
  fill.opcode = KEYHOLEDV_WR_FILL;
  fill.send_flags = IBV_SEND_SIGNALED;
  fill.fill = fill_of(mkey, list);
  fill.fill.klm_list = &klm_list.dv;
  must((remote ? t.qp_b : t.qp_a).post_dv(fill));
  t.finish(1, remote ? t.cq_b : t.cq_a);

  ibv_sge direct = t.mr_a.sge(0, size);
  ibv_sge from = remote ? direct : ibv_sge{.addr = 0, .length = size, .lkey = mkey.dv.lkey};
  ibv_send_wr writes[2] = {t.write(&direct), t.write(&from)};
  if (remote) writes[1].wr.rdma = {.remote_addr = 0, .rkey = mkey.dv.rkey};
  double seconds[2] = {0, 0};
  for ([[maybe_unused]] auto _ : state) {
    for (int which = 0; which < 2; which++) {
      const double start = cpu_seconds();
      for (int i = 0; i < turn; i++) {
        must(t.qp_a.post_send(writes[which]));
        t.finish(1);
      }
      seconds[which] += cpu_seconds() - start;
    }
  }
  state.counters["ratio"] = seconds[0] / seconds[1];
  state.counters["indirect_GBps"] =
      1e-9 * static_cast<double>(state.iterations()) * turn * size / seconds[1];
}
BENCHMARK(write_indirect_to_direct)
    ->ArgNames({"size", "scattered", "remote"})
    ->ArgsProduct({{1 << 20, 1 << 16}, {0, 1}, {0, 1}});

// Pieces of 64 bytes, one WRITE of all of them through one mkey against a WRITE for each, as many
// in the queue at once and the last one signaled. "ratio": how much faster the mkey is.
void write_gathered_to_each(benchmark::State& state) {
  constexpr unsigned piece = 64;
  const auto count = static_cast<unsigned>(state.range(0));
  Bench t(10);
  EngineMkey mkey(t.a, count);
  EngineKlmList klm_list(t.a, count);
  const auto list = pieces(t.mr_a, count, piece, 1024);
  keyholedv_send_wr wr{};
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.fill = fill_of(mkey, list);
  wr.fill.klm_list = &klm_list.dv;
  must(t.qp_a.post_dv(wr));
  t.finish(1);

  ibv_sge all{.addr = 0, .length = count * piece, .lkey = mkey.dv.lkey};
  ibv_qp_ex* ex = t.qp_a.ex();
  double gathered = 0, each = 0;
  for ([[maybe_unused]] auto _ : state) {
    const double start = cpu_seconds();
    must(t.qp_a.post_send(t.write(&all)));
    t.finish(1);
    const double middle = cpu_seconds();
    ibv_wr_start(ex);
    for (unsigned i = 0; i < count; i++) {
      ex->wr_flags = i + 1 == count ? IBV_SEND_SIGNALED : 0;
      ibv_wr_rdma_write(ex, t.mr_b.mr.rkey, t.mr_b.addr(i * piece));
      ibv_wr_set_sge(ex, list[i].lkey, list[i].addr, list[i].length);
    }
    must(ibv_wr_complete(ex));
    t.finish(1);
    each += cpu_seconds() - middle;
    gathered += middle - start;
  }
  state.counters["ratio"] = each / gathered;
  state.counters["gathered_GBps"] =
      1e-9 * static_cast<double>(state.iterations()) * all.length / gathered;
}
BENCHMARK(write_gathered_to_each)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace keyhole::verbs

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
