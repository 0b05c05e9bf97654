// SPDX-License-Identifier: BSD-2-Clause
//
// What a program in the guest gets of indirect mkeys, by direct verbs: fills and invalidates a second, and
// WRITEs through an mkey against what they replace. Each mkey's bytes are compared before it is measured.
//
//   key_rates DEVICE GID-INDEX DEVICE GID-INDEX
//
// Prints a line `name value` for each measure.

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "keyholedv.h"
#include "verbs.h"

namespace {

using Clock = std::chrono::steady_clock;
using guest::need;
using guest::need_zero;

constexpr size_t kBytes = 1 << 20;
constexpr uint32_t kSends = 1024;
constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

struct Mkey {
  keyholedv_mkey* dv;
  Mkey(guest::End& end, uint32_t entries) {
    keyholedv_mkey_init_attr attr{};
    attr.pd = end.pd();
    attr.max_entries = entries;
    dv = need(keyholedv_create_mkey(&attr), "keyholedv_create_mkey");
  }
  ~Mkey() { need_zero(keyholedv_destroy_mkey(dv), "keyholedv_destroy_mkey"); }
};
using KlmList = guest::Owned<keyholedv_klm_list, keyholedv_free_klm_list>;

keyholedv_klm_list* new_list(guest::End& end, size_t entries) {
  return need(keyholedv_alloc_klm_list(end.pd(), static_cast<uint32_t>(entries)), "keyholedv_alloc_klm_list");
}

void post(guest::End& end, keyholedv_send_wr* chain) {
  keyholedv_send_wr* bad = nullptr;
  need_zero(keyholedv_post_send(end.qp(), chain, &bad), "keyholedv_post_send");
}

void wait(guest::End& end) {
  const ibv_wc wc = end.wait();
  if (wc.status != IBV_WC_SUCCESS)
    guest::die("a request failed, status " + std::to_string(wc.status) + ", syndrome " +
               std::to_string(wc.vendor_err));
}

std::vector<ibv_sge> pieces(guest::End& end, size_t count, uint32_t size, size_t step) {
  std::vector<ibv_sge> list;
  for (size_t i = 0; i < count; ++i)
    list.push_back({.addr = end.address(i * step), .length = size, .lkey = end.mr()->lkey});
  return list;
}

keyholedv_send_wr fill_of(const Mkey& mkey, const std::vector<ibv_sge>& list, keyholedv_klm_list* klm_list) {
  keyholedv_send_wr wr{};
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = klm_list ? 0 : IBV_SEND_INLINE;
  wr.fill.mkey = mkey.dv->lkey;
  wr.fill.access = kAccess;
  wr.fill.num_entries = static_cast<uint32_t>(list.size());
  wr.fill.list = list.data();
  wr.fill.klm_list = klm_list;
  return wr;
}

void post_write(guest::End& from, guest::End& to, uint64_t address, uint32_t length, uint32_t lkey) {
  ibv_sge sge{.addr = address, .length = length, .lkey = lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {to.address(), to.mr()->rkey};
  need_zero(ibv_post_send(from.qp(), &wr, &bad), "ibv_post_send");
}

// Whether a WRITE through the mkey brings what the list names.
void compare(guest::End& from, guest::End& to, const Mkey& mkey, const std::vector<ibv_sge>& list) {
  std::fill(to.memory.begin(), to.memory.end(), 0);
  uint32_t total = 0;
  for (const ibv_sge& sge : list) total += sge.length;
  post_write(from, to, 0, total, mkey.dv->lkey);
  wait(from);
  const uint8_t* got = to.memory.data();
  for (const ibv_sge& sge : list) {
    if (std::memcmp(got, reinterpret_cast<const void*>(sge.addr), sge.length))
      guest::die("a WRITE brought other bytes");
    got += sge.length;
  }
}

constexpr int kChains = 4;

// For a second and a half: chains of requests, the last of each signaled, kChains of them in flight, so that
// neither side waits for the other. Chains a second.
double rate(guest::End& end, const std::function<void(int chain)>& post_chain) {
  long posted = 0, done = 0;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (seconds() < 1.5 || done < posted) {
    if (seconds() < 1.5)
      for (; posted - done < kChains; ++posted) post_chain(static_cast<int>(posted % kChains));
    wait(end);
    ++done;
  }
  return static_cast<double>(done) / seconds();
}

template <typename Request>
void link(std::vector<Request>& chain) {
  for (size_t i = 0; i + 1 < chain.size(); ++i) chain[i].next = &chain[i + 1];
  chain.back().send_flags |= IBV_SEND_SIGNALED;
}

void fills(guest::End& end, guest::End& peer, uint32_t entries, bool from_list) {
  const uint32_t blocks = from_list ? 1 : 1 + (entries * 16 + 63) / 64;
  const uint32_t length = entries >= 1024 ? 4 : std::min(64u, kSends / kChains / blocks);
  Mkey mkey(end, entries);
  const auto list = pieces(end, entries, 63, 256);
  std::vector<KlmList> klm_lists;  // one for each fill in flight
  std::array<std::vector<keyholedv_send_wr>, kChains> chains;
  for (auto& chain : chains) {
    for (uint32_t i = 0; i < length; ++i) {
      if (from_list) klm_lists.emplace_back(new_list(end, entries));
      chain.push_back(fill_of(mkey, list, from_list ? klm_lists.back().get() : nullptr));
    }
    link(chain);
  }
  const double result = length * rate(end, [&](int i) { post(end, chains[i].data()); });
  compare(end, peer, mkey, list);
  std::printf("umr_fill_%u_%s_per_second %.0f\n", entries, from_list ? "from_list" : "inline", result);
  std::fflush(stdout);
}

double median_us(int rounds, const std::function<void()>& prepare, const std::function<void()>& operation) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    prepare();
    const auto start = Clock::now();
    operation();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() * 1e6);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// As many mkeys as the queue takes fills of, filled outside the clock and emptied in one chain.
void invalidates(guest::End& end) {
  constexpr size_t count = kSends / 2;  // a fill of 4 entries takes two places
  const auto list = pieces(end, 4, 63, 256);
  std::vector<std::unique_ptr<Mkey>> mkeys;
  std::vector<keyholedv_send_wr> fills, empties(count);
  for (size_t i = 0; i < count; ++i) {
    mkeys.push_back(std::make_unique<Mkey>(end, 4));
    fills.push_back(fill_of(*mkeys.back(), list, nullptr));
    empties[i].opcode = KEYHOLEDV_WR_INVALIDATE;
    empties[i].invalidate_mkey = mkeys.back()->dv->lkey;
  }
  link(fills);
  link(empties);
  const double us = median_us(200, [&] {
    post(end, fills.data());
    wait(end);
  }, [&] {
    post(end, empties.data());
    wait(end);
  });
  std::printf("umr_invalidate_per_second %.0f\n", count / us * 1e6);
}

void fill_once(guest::End& end, const Mkey& mkey, const std::vector<ibv_sge>& list) {
  KlmList klm_list(new_list(end, list.size()));
  keyholedv_send_wr wr = fill_of(mkey, list, klm_list.get());
  wr.send_flags |= IBV_SEND_SIGNALED;
  post(end, &wr);
  wait(end);
}

// 1 MiB of 4 KiB entries, last one first, against 1 MiB through the region's own key.
void indirect_to_direct(guest::End& end, guest::End& peer) {
  constexpr uint32_t piece = 4096;
  auto list = pieces(end, kBytes / piece, piece, piece);
  std::reverse(list.begin(), list.end());
  Mkey mkey(end, static_cast<uint32_t>(list.size()));
  fill_once(end, mkey, list);
  compare(end, peer, mkey, list);
  const double direct = rate(end, [&](int) { post_write(end, peer, end.address(), kBytes, end.mr()->lkey); });
  const double indirect = rate(end, [&](int) { post_write(end, peer, 0, kBytes, mkey.dv->lkey); });
  std::printf("write_indirect_to_direct %.2f\n", indirect / direct);
}

// 250 entries of 64 bytes in one WRITE, against a WRITE for each, posted in one chain.
void gathered_to_each(guest::End& end, guest::End& peer) {
  constexpr uint32_t piece = 64, count = kSends / kChains - 6;
  const auto list = pieces(end, count, piece, 1024);
  Mkey mkey(end, count);
  fill_once(end, mkey, list);
  compare(end, peer, mkey, list);
  std::vector<ibv_send_wr> chain(count);
  for (uint32_t i = 0; i < count; ++i) {
    chain[i].opcode = IBV_WR_RDMA_WRITE;
    chain[i].sg_list = const_cast<ibv_sge*>(&list[i]);
    chain[i].num_sge = 1;
    chain[i].wr.rdma = {peer.address(i * piece), peer.mr()->rkey};
  }
  link(chain);
  const double each = rate(end, [&](int) {
    ibv_send_wr* bad = nullptr;
    need_zero(ibv_post_send(end.qp(), chain.data(), &bad), "ibv_post_send");
  });
  const double gathered = rate(end, [&](int) { post_write(end, peer, 0, count * piece, mkey.dv->lkey); });
  std::printf("write_gathered_to_each %.2f\n", gathered / each);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: key_rates DEVICE GID-INDEX DEVICE GID-INDEX\n");
    return 2;
  }
  guest::End one(argv[1], std::atoi(argv[2]), kBytes, kSends), two(argv[3], std::atoi(argv[4]), kBytes, kSends);
  std::iota(one.memory.begin(), one.memory.end(), 0);
  for (size_t i = 0; i < kBytes; ++i) one.memory[i] = static_cast<uint8_t>(one.memory[i] + (i >> 8) * 7);
  guest::connect(one, two);
  keyholedv_context caps{};
  need_zero(keyholedv_query_device(one.context(), &caps), "keyholedv_query_device");
  if (!(caps.flags & KEYHOLEDV_CAP_INDIRECT_MKEY)) guest::die("no indirect mkeys");
  for (const uint32_t entries : {4u, 64u}) fills(one, two, entries, false);
  for (const uint32_t entries : {4u, 64u, 1024u}) fills(one, two, entries, true);
  invalidates(one);
  indirect_to_direct(one, two);
  gathered_to_each(one, two);
  return 0;
}
