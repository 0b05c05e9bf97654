// SPDX-License-Identifier: BSD-2-Clause
//
// How fast memory keys change hands in the guest: fills of indirect mkeys, invalidates, binds of both types,
// and what an indirect mkey costs and saves in RDMA WRITEs. Keyhole only, on direct verbs.
//
//   key_rates DEVICE GID-INDEX DEVICE GID-INDEX
//
// Prints a line `name value` for each measure: operations a second, or bytes a second for WRITEs. Requests are
// posted until the queue is full, one in so many is signalled, and each measure lasts for a second; those of WRITEs,
// which are compared with each other, for a fifth of one, in turn and nine times over.

#include <keyholedv.h>

#include <functional>

#include "verbs.h"

namespace {

using Clock = std::chrono::steady_clock;
using guest::need;
using guest::need_zero;

constexpr uint32_t kSends = 512;
constexpr uint32_t kPiece = 4096;
constexpr size_t kBytes = 4 << 20;

double seconds(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr double kAlone = 1, kInTurn = 0.2;  // seconds of a measure
constexpr int kTurns = 9;

// Posts with `post(signalled)`, of which each call is `weight` operations, for `lasts` seconds. At most `depth`
// are in flight, a multiple of `every`.
void rate(const char* name, guest::End& end, int depth, int every, double weight,
          const std::function<void(bool signalled)>& post, double lasts = kAlone) {
  ibv_wc wcs[16];
  long posted = 0, done = 0;
  const auto start = Clock::now();
  for (double now = 0; now < lasts || done < posted; now = seconds(start)) {
    if (now > 60) guest::die(std::string(name) + ": no completion");
    while (now < lasts && posted - done <= depth - every)
      for (int i = 0; i < every; ++i, ++posted) post(i == every - 1);
    const int polled = ibv_poll_cq(end.cq(), 16, wcs);
    if (polled < 0) guest::die("ibv_poll_cq");
    for (int i = 0; i < polled; ++i)
      if (wcs[i].status != IBV_WC_SUCCESS)
        guest::die(std::string(name) + ": " + ibv_wc_status_str(wcs[i].status) + ", syndrome " +
                   std::to_string(wcs[i].vendor_err));
    done += static_cast<long>(polled) * every;
  }
  std::printf("%s %.0f\n", name, static_cast<double>(done) * weight / seconds(start));
  std::fflush(stdout);
}

void post_dv(ibv_qp* qp, keyholedv_send_wr& wr, bool signalled) {
  wr.send_flags = (wr.send_flags & ~IBV_SEND_SIGNALED) | (signalled ? IBV_SEND_SIGNALED : 0);
  keyholedv_send_wr* bad = nullptr;
  need_zero(keyholedv_post_send(qp, &wr, &bad), "keyholedv_post_send");
}

using Mkey = guest::Owned<keyholedv_mkey, keyholedv_destroy_mkey>;
using KlmList = guest::Owned<keyholedv_klm_list, keyholedv_free_klm_list>;

Mkey make_mkey(ibv_pd* pd, uint32_t entries) {
  keyholedv_mkey_init_attr init{};
  init.pd = pd;
  init.max_entries = entries;
  return Mkey(need(keyholedv_create_mkey(&init), "keyholedv_create_mkey"));
}

// The end's memory in pieces of so many bytes, every other one, so that no two are one.
std::vector<ibv_sge> pieces(guest::End& end, uint32_t count, uint32_t bytes) {
  std::vector<ibv_sge> list;
  for (uint32_t i = 0; i < count; ++i)
    list.push_back({.addr = end.address(size_t{2} * i * bytes), .length = bytes, .lkey = end.mr()->lkey});
  return list;
}

keyholedv_send_wr fill(const Mkey& mkey, const std::vector<ibv_sge>& list, keyholedv_klm_list* klms) {
  keyholedv_send_wr wr{};
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = klms ? 0u : static_cast<unsigned>(IBV_SEND_INLINE);
  wr.fill.mkey = mkey->lkey;
  wr.fill.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  wr.fill.num_entries = static_cast<uint32_t>(list.size());
  wr.fill.list = list.data();
  wr.fill.klm_list = klms;
  return wr;
}

void fills(guest::End& end) {
  for (const uint32_t count : {4u, 64u}) {
    const Mkey mkey = make_mkey(end.pd(), count);
    const auto list = pieces(end, count, 64);
    auto wr = fill(mkey, list, nullptr);
    const int every = count == 4 ? 32 : 6;  // a fill of 64 is 17 blocks of the queue's 512
    rate(("fill_" + std::to_string(count) + "_inline").c_str(), end, 4 * every, every, 1,
         [&](bool signalled) { post_dv(end.qp(), wr, signalled); });
  }
  for (const uint32_t count : {4u, 64u, 1024u}) {
    // Each request in flight has a part of the list of its own.
    constexpr int kDepth = 64;
    const Mkey mkey = make_mkey(end.pd(), count);
    const KlmList klms(need(keyholedv_alloc_klm_list(end.pd(), count * kDepth), "keyholedv_alloc_klm_list"));
    const auto list = pieces(end, count, 64);
    auto wr = fill(mkey, list, klms.get());
    int next = 0;
    rate(("fill_" + std::to_string(count) + "_list").c_str(), end, kDepth, 16, 1, [&](bool signalled) {
      wr.fill.klm_offset = uint64_t{sizeof(ibv_sge)} * count * (next++ % kDepth);
      post_dv(end.qp(), wr, signalled);
    });
  }
  const Mkey mkey = make_mkey(end.pd(), 4);
  const auto list = pieces(end, 4, 64);
  auto wr = fill(mkey, list, nullptr);
  keyholedv_send_wr invalidate{};
  invalidate.opcode = KEYHOLEDV_WR_INVALIDATE;
  invalidate.invalidate_mkey = mkey->lkey;
  rate("fill_4_and_invalidate", end, 64, 8, 1, [&](bool signalled) {
    post_dv(end.qp(), wr, false);
    post_dv(end.qp(), invalidate, signalled);
  });
}

// A type 2 window bound and invalidated: two requests, one pair.
void type_2(guest::End& end) {
  guest::Owned<ibv_mw, ibv_dealloc_mw> mw(need(ibv_alloc_mw(end.pd(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
  rate("type_2_bind_and_invalidate", end, 256, 16, 1, [&](bool signalled) {
    ibv_send_wr bind{}, invalidate{}, *bad = nullptr;
    bind.opcode = IBV_WR_BIND_MW;
    bind.bind_mw.mw = mw.get();
    bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind.bind_mw.bind_info = {.mr = end.mr(), .addr = end.address(), .length = 4096,
                              .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    bind.next = &invalidate;
    invalidate.opcode = IBV_WR_LOCAL_INV;
    invalidate.invalidate_rkey = bind.bind_mw.rkey;
    invalidate.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
    need_zero(ibv_post_send(end.qp(), &bind, &bad), "ibv_post_send");
    mw->rkey = bind.bind_mw.rkey;  // the next bind starts from it
  });
}

void write_once(guest::End& end, const guest::End& peer, ibv_sge sge, bool signalled) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = signalled ? IBV_SEND_SIGNALED : 0;
  wr.wr.rdma.remote_addr = peer.address();
  wr.wr.rdma.rkey = peer.mr()->rkey;
  need_zero(ibv_post_send(end.qp(), &wr, &bad), "ibv_post_send");
}

void fill_and_wait(guest::End& end, const Mkey& mkey, const std::vector<ibv_sge>& list) {
  const KlmList klms(need(keyholedv_alloc_klm_list(end.pd(), static_cast<uint32_t>(list.size())),
                          "keyholedv_alloc_klm_list"));
  auto wr = fill(mkey, list, klms.get());
  post_dv(end.qp(), wr, true);
  if (end.wait().status != IBV_WC_SUCCESS) guest::die("the fill failed");
}

void writes(guest::End& end, const guest::End& peer) {
  constexpr uint32_t kMessage = 1 << 20, kPieces = kMessage / kPiece;
  // The same bytes: in the same order, and in another, which the processor's caches see as well.
  const auto in_steps = [&](uint32_t step) {
    std::vector<ibv_sge> list;
    for (uint32_t i = 0; i < kPieces; ++i)
      list.push_back({.addr = end.address(size_t{(i * step) % kPieces} * kPiece), .length = kPiece,
                      .lkey = end.mr()->lkey});
    return list;
  };
  const Mkey in_order = make_mkey(end.pd(), kPieces), scattered = make_mkey(end.pd(), kPieces);
  fill_and_wait(end, in_order, in_steps(1));
  fill_and_wait(end, scattered, in_steps(37));
  const auto whole = [&](const char* name, uint64_t address, uint32_t lkey) {
    rate(name, end, 8, 4, kMessage, [&](bool signalled) {
      write_once(end, peer, {.addr = address, .length = kMessage, .lkey = lkey}, signalled);
    }, kInTurn);
  };

  constexpr uint32_t kSmall = 64, kCount = 64;
  const auto list = pieces(end, kCount, kSmall);
  const Mkey gathered = make_mkey(end.pd(), kCount);
  fill_and_wait(end, gathered, list);

  for (int turn = 0; turn < kTurns; ++turn) {
    whole("write_direct", end.address(), end.mr()->lkey);
    whole("write_indirect_4k", 0, in_order->lkey);
    whole("write_scattered_4k", 0, scattered->lkey);
    rate("write_gathered_64b", end, 128, 32, kSmall * kCount, [&](bool signalled) {
      write_once(end, peer, {.addr = 0, .length = kSmall * kCount, .lkey = gathered->lkey}, signalled);
    }, kInTurn);
    rate("write_each_64b", end, 512, 64, kSmall, [&, i = 0u](bool signalled) mutable {
      write_once(end, peer, list[i++ % kCount], signalled);
    }, kInTurn);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: key_rates DEVICE GID-INDEX DEVICE GID-INDEX\n");
    return 2;
  }
  guest::End one(argv[1], std::atoi(argv[2]), kBytes, kSends), two(argv[3], std::atoi(argv[4]), kBytes, 16);
  guest::connect(one, two);
  fills(one);
  type_2(one);
  writes(one, two);
  return 0;
}
