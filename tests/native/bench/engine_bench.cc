// SPDX-License-Identifier: BSD-2-Clause
//
// The device alone: rings that are filled beforehand, so that what is measured is what the device
// does for a request, from the doorbell to the completion. Time for each request and requests a
// second; bytes a second beside those of memcpy with the same memory.

#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <vector>

#include "harness.h"

namespace keyhole::test {
namespace {

constexpr uint32_t kBatch = 64;

struct Engine {
  static constexpr uint8_t kLogBlocks = 8;

  Rig rig;
  FakeDriver& near;
  FakeDriver& far;
  uint32_t near_pd, far_pd;
  TestCq near_cq, far_cq;
  TestRegion source, target;
  TestQp qp, peer;

  static Rig::Options options() {
    Rig::Options options;
    options.host.memory = 64 << 20;
    return options;
  }

  Engine() : rig(options()), near(rig.driver(0)), far(rig.driver(1)) {
    near_pd = near.create_pd();
    far_pd = far.create_pd();
    near_cq = near.create_cq(10);
    far_cq = far.create_cq(10);
    uint32_t access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE | KH_ACCESS_MW_BIND;
    source = near.create_region(near_pd, 16 << 20, access);
    target = far.create_region(far_pd, 16 << 20, access);
    QpOptions q;
    q.pdn = near_pd;
    q.send_cqn = q.recv_cqn = near_cq.cqn;
    q.log_sq_blocks = kLogBlocks;
    q.log_rq_size = 8;
    qp = near.create_qp(q);
    q.pdn = far_pd;
    q.send_cqn = q.recv_cqn = far_cq.cqn;
    peer = far.create_qp(q);
    near.bring_up(qp, far, peer);
    far.bring_up(peer, near, qp);
    std::memset(source.memory, 1, source.size);
    std::memset(target.memory, 2, target.size);
  }

  // Fills the whole ring with one request of one block.
  void prepare(uint8_t opcode, uint32_t length, bool with_atomic = false) {
    std::byte block[KH_WQE_BLOCK] = {};
    kh_wqe_ctrl ctrl{};
    ctrl.opcode = opcode;
    ctrl.flags = KH_WQE_SIGNALED;
    ctrl.nblocks = 1;
    ctrl.num_sge = 1;
    std::memcpy(block, &ctrl, sizeof(ctrl));
    kh_wqe_rdma rdma{target.start, target.key, 0};
    std::memcpy(block + 16, &rdma, sizeof(rdma));
    size_t at = 32;
    if (with_atomic) {
      kh_wqe_atomic atomic{1, 0};
      std::memcpy(block + at, &atomic, sizeof(atomic));
      at += sizeof(atomic);
    }
    kh_sge sge{source.start, length, source.key};
    std::memcpy(block + at, &sge, sizeof(sge));
    for (uint32_t i = 0; i < 1u << kLogBlocks; ++i)
      std::memcpy(qp.sq + i * KH_WQE_BLOCK, block, KH_WQE_BLOCK);
  }

  // Posts what is prepared and takes its completions.
  bool post_and_poll(uint32_t count) {
    qp.sq_pi += count;
    qp.ring();
    return poll(near_cq, count);
  }
  bool poll(TestCq& cq, uint32_t count) {
    kh_cqe cqe;
    for (uint32_t got = 0; got < count;) {
      rig.fabric().run();
      while (cq.poll(cqe)) {
        if (cqe.status != KH_WC_SUCCESS) return false;
        ++got;
      }
    }
    return true;
  }
};

void run_requests(benchmark::State& state, Engine& engine, uint32_t count, uint64_t bytes) {
  for ([[maybe_unused]] auto _ : state) {
    if (!engine.post_and_poll(count)) {
      state.SkipWithError("a request has failed");
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * count);
  if (bytes) state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * count * bytes));
}

void BM_Write(benchmark::State& state) {
  Engine engine;
  auto length = static_cast<uint32_t>(state.range(0));
  engine.prepare(KH_OP_WRITE, length);
  run_requests(state, engine, length > 65536 ? 4 : kBatch, length);
}
BENCHMARK(BM_Write)->Arg(8)->Arg(64)->Arg(4096)->Arg(65536)->Arg(1 << 20);

void BM_Read(benchmark::State& state) {
  Engine engine;
  auto length = static_cast<uint32_t>(state.range(0));
  engine.prepare(KH_OP_READ, length);
  run_requests(state, engine, length > 65536 ? 4 : kBatch, length);
}
BENCHMARK(BM_Read)->Arg(64)->Arg(65536)->Arg(1 << 20);

// One request at a time: nothing is shared among several.
void BM_WriteOneByOne(benchmark::State& state) {
  Engine engine;
  engine.prepare(KH_OP_WRITE, 64);
  run_requests(state, engine, 1, 64);
}
BENCHMARK(BM_WriteOneByOne);

void BM_Send(benchmark::State& state) {
  Engine engine;
  auto length = static_cast<uint32_t>(state.range(0));
  engine.prepare(KH_OP_SEND, length);
  kh_sge sge{engine.target.start, length, engine.target.key};
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < kBatch; ++i)
      engine.peer.post_receive(i, {&sge, 1});
    if (!engine.post_and_poll(kBatch) || !engine.poll(engine.far_cq, kBatch)) {
      state.SkipWithError("a request has failed");
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(BM_Send)->Arg(64);

void BM_FetchAdd(benchmark::State& state) {
  Engine engine;
  engine.prepare(KH_OP_FETCH_ADD, 8, true);
  run_requests(state, engine, kBatch, 0);
}
BENCHMARK(BM_FetchAdd);

void BM_BindType1(benchmark::State& state) {
  Engine engine;
  uint32_t key = engine.near.create_window(engine.near_pd, KH_MKEY_MW1);
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      std::byte* block =
          engine.qp.sq + ((engine.qp.sq_pi + i) & ((1u << Engine::kLogBlocks) - 1)) * KH_WQE_BLOCK;
      kh_wqe_ctrl ctrl{};
      ctrl.opcode = KH_OP_BIND_MW;
      ctrl.flags = KH_WQE_SIGNALED;
      ctrl.nblocks = 1;
      kh_wqe_bind bind{};
      bind.mw_key = key;
      key = (key & ~0xffu) | ((key + 1) & 0xff);
      bind.new_key = key;
      bind.mr_key = engine.source.key;
      bind.access = KH_ACCESS_REMOTE_WRITE;
      bind.addr = engine.source.start + i * 64;
      bind.length = 64;
      std::memcpy(block, &ctrl, sizeof(ctrl));
      std::memcpy(block + sizeof(ctrl), &bind, sizeof(bind));
    }
    if (!engine.post_and_poll(kBatch)) {
      state.SkipWithError("a bind has failed");
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(BM_BindType1);

// UMR_FILL of `n` entries in the request.
void BM_FillInline(benchmark::State& state) {
  Engine engine;
  auto n = static_cast<uint32_t>(state.range(0));
  const uint32_t key = engine.near.create_indirect(engine.near_pd, n);
  const size_t size = (64 + n * sizeof(kh_klm) + KH_WQE_BLOCK - 1) / KH_WQE_BLOCK * KH_WQE_BLOCK;
  std::vector<std::byte> wqe(size);
  kh_wqe_ctrl ctrl{};
  ctrl.opcode = KH_OP_UMR_FILL;
  ctrl.flags = KH_WQE_SIGNALED | KH_WQE_INLINE;
  ctrl.nblocks = static_cast<uint8_t>(size / KH_WQE_BLOCK);
  std::memcpy(wqe.data(), &ctrl, sizeof(ctrl));
  kh_wqe_umr umr{};
  umr.key = key;
  umr.access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE;
  umr.num_entries = n;
  std::memcpy(wqe.data() + sizeof(ctrl), &umr, sizeof(umr));
  for (uint32_t i = 0; i < n; ++i) {
    kh_klm klm{engine.source.start + i * 8192, 4096, engine.source.key};
    std::memcpy(wqe.data() + 64 + i * sizeof(klm), &klm, sizeof(klm));
  }
  const uint32_t count = (1u << Engine::kLogBlocks) / ctrl.nblocks / 2;
  for ([[maybe_unused]] auto _ : state) {
    for (uint32_t i = 0; i < count; ++i)
      engine.qp.put(wqe);
    engine.qp.ring();
    if (!engine.poll(engine.near_cq, count)) {
      state.SkipWithError("a fill has failed");
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK(BM_FillInline)->Arg(4)->Arg(64);

// WRITE of 256 KiB gathered by an indirect key of entries of this length, beside BM_WriteDirect of
// the same, and beside one WRITE for each entry (BM_Write of that length).
void BM_WriteIndirect(benchmark::State& state) {
  Engine engine;
  const auto each = static_cast<uint32_t>(state.range(0));
  const uint32_t total = static_cast<uint32_t>(state.range(1));
  const uint32_t n = total / each;
  const size_t bytes = (n * sizeof(kh_klm) + 4095) / 4096 * 4096;
  auto* list = reinterpret_cast<kh_klm*>(engine.near.host().allocate(bytes));
  for (uint32_t i = 0; i < n; ++i)
    list[i] = {engine.source.start + i * 2 * each, each, engine.source.key};
  const uint32_t key = engine.near.create_indirect(engine.near_pd, n);
  const uint32_t list_key =
      engine.near.create_klm_list(engine.near_pd, reinterpret_cast<std::byte*>(list), bytes);
  kh_wqe_ctrl ctrl{};
  ctrl.opcode = KH_OP_UMR_FILL;
  ctrl.flags = KH_WQE_SIGNALED;
  ctrl.nblocks = 1;
  kh_wqe_umr umr{};
  umr.key = key;
  umr.access = KH_ACCESS_LOCAL_WRITE;
  umr.num_entries = n;
  umr.list_key = list_key;
  std::byte block[KH_WQE_BLOCK];
  std::memcpy(block, &ctrl, sizeof(ctrl));
  std::memcpy(block + sizeof(ctrl), &umr, sizeof(umr));
  engine.qp.put(block);
  engine.qp.ring();
  if (!engine.poll(engine.near_cq, 1)) return state.SkipWithError("the fill has failed");
  engine.source.key = key;
  engine.source.start = 0;
  engine.prepare(KH_OP_WRITE, total);
  run_requests(state, engine, 4, total);
  state.counters["entries"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * 4 * n, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_WriteIndirect)
    ->Args({64, 4096})
    ->Args({64, 65536})
    ->Args({4096, 65536})
    ->Args({4096, 1 << 18})
    ->Args({4096, 1 << 20});

void BM_WriteDirect(benchmark::State& state) {
  Engine engine;
  auto length = static_cast<uint32_t>(state.range(0));
  engine.prepare(KH_OP_WRITE, length);
  run_requests(state, engine, 4, length);
}
BENCHMARK(BM_WriteDirect)->Arg(65536)->Arg(1 << 18)->Arg(1 << 20);

void BM_Memcpy(benchmark::State& state) {
  Engine engine;
  auto length = static_cast<size_t>(state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    for (int i = 0; i < 4; ++i) {
      std::memcpy(engine.target.memory, engine.source.memory, length);
      benchmark::ClobberMemory();
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * 4 * length));
}
BENCHMARK(BM_Memcpy)->Arg(65536)->Arg(1 << 20);

}  // namespace
}  // namespace keyhole::test

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
