// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows of both types between two devices: bound, used, narrowed, revoked.
//
//   windows DEVICE GID-INDEX DEVICE GID-INDEX
//
// The owner holds a buffer and opens windows on it; the peer reaches through them. What a window must let
// through is shown by the bytes that arrive, and what it must stop by the peer's completion status and by
// the bytes that do not change.

#include <array>

#include "verbs.h"

namespace {

using guest::End;

constexpr size_t kBytes = 16384;
int failures = 0;
int checks = 0;

void check(bool right, const char* what) {
  ++checks;
  failures += !right;
  std::printf("%-6s %s\n", right ? "ok" : "WRONG", what);
}

struct Stage {
  End owner;
  End peer;
  uint8_t pattern = 0;

  // Writes 64 fresh bytes through a key: whether they arrived, all of them and at the right place.
  bool writes(uint32_t rkey, size_t offset) {
    ++pattern;
    std::memset(peer.memory.data(), pattern, 64);
    std::memset(owner.memory.data() + offset, 0, 64);
    if (peer.rdma(IBV_WR_RDMA_WRITE, owner.address(offset), rkey, 64) != IBV_WC_SUCCESS) return again(false);
    for (size_t i = 0; i < 64; ++i)
      if (owner.memory[offset + i] != pattern) return false;
    return true;
  }

  bool reads(uint32_t rkey, size_t offset) {
    ++pattern;
    std::memset(owner.memory.data() + offset, pattern, 64);
    std::memset(peer.memory.data(), 0, 64);
    if (peer.rdma(IBV_WR_RDMA_READ, owner.address(offset), rkey, 64) != IBV_WC_SUCCESS) return again(false);
    for (size_t i = 0; i < 64; ++i)
      if (peer.memory[i] != pattern) return false;
    return true;
  }

  // Tries to write through a key that must not allow it: whether it was refused and changed nothing.
  bool refused(uint32_t rkey, size_t offset) {
    std::memset(peer.memory.data(), 0xEE, 64);
    std::memset(owner.memory.data() + offset, 0x11, 64);
    const ibv_wc_status status = peer.rdma(IBV_WR_RDMA_WRITE, owner.address(offset), rkey, 64);
    bool untouched = true;
    for (size_t i = 0; i < 64; ++i) untouched &= owner.memory[offset + i] == 0x11;
    return again(status == IBV_WC_REM_ACCESS_ERR && untouched);
  }

  // The connection does not survive an error completion.
  bool again(bool result) {
    guest::connect(owner, peer);
    return result;
  }
};

ibv_mw_bind_info range(const End& owner, size_t offset, size_t length, unsigned access) {
  return {.mr = owner.mr(), .addr = owner.address(offset), .length = length, .mw_access_flags = access};
}

constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

bool bind_type_1(Stage& stage, ibv_mw* mw, size_t offset, size_t length, unsigned access) {
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = range(stage.owner, offset, length, access);
  if (ibv_bind_mw(stage.owner.qp(), mw, &bind)) return false;
  return stage.owner.wait().status == IBV_WC_SUCCESS;
}

void type_1(Stage& stage) {
  guest::Owned<ibv_mw, ibv_dealloc_mw> mw(
      guest::need(ibv_alloc_mw(stage.owner.pd(), IBV_MW_TYPE_1), "ibv_alloc_mw type 1"));
  check(bind_type_1(stage, mw.get(), 4096, 8192, kReadWrite), "type 1: bound to 8 KiB");
  const uint32_t wide = mw->rkey;
  check(stage.writes(wide, 4096), "type 1: the peer writes at its start");
  check(stage.writes(wide, 4096 + 8192 - 64), "type 1: the peer writes at its end");
  check(stage.reads(wide, 8000), "type 1: the peer reads inside");
  check(stage.refused(wide, 4096 - 64), "type 1: refused before the window");
  check(stage.refused(wide, 4096 + 8192 - 32), "type 1: refused across its end");

  check(bind_type_1(stage, mw.get(), 8192, 64, IBV_ACCESS_REMOTE_WRITE), "type 1: narrowed to 64 bytes, write only");
  const uint32_t narrow = mw->rkey;
  check(narrow != wide, "type 1: the narrower window has a key of its own");
  check(stage.writes(narrow, 8192), "type 1: the peer writes into the narrow window");
  check(!stage.reads(narrow, 8192), "type 1: the peer may not read through it");
  check(stage.refused(narrow, 8192 + 32), "type 1: refused half outside it");
  check(stage.refused(wide, 8192), "type 1: the former key is dead");

  check(bind_type_1(stage, mw.get(), 0, 0, 0), "type 1: revoked by a bind of no length");
  check(stage.refused(narrow, 8192), "type 1: refused after that");
}

bool bind_type_2(Stage& stage, ibv_mw* mw, uint32_t rkey, size_t offset, size_t length, unsigned access) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw = {.mw = mw, .rkey = rkey, .bind_info = range(stage.owner, offset, length, access)};
  return stage.owner.post(wr) == IBV_WC_SUCCESS;
}

void type_2(Stage& stage) {
  // A type 2 window dies with its QP's connection, so each provoked error is followed by a fresh one.
  const auto bound = [&stage](guest::Owned<ibv_mw, ibv_dealloc_mw>& mw, size_t offset, size_t length, unsigned access) {
    mw.reset(guest::need(ibv_alloc_mw(stage.owner.pd(), IBV_MW_TYPE_2), "ibv_alloc_mw type 2"));
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    return bind_type_2(stage, mw.get(), rkey, offset, length, access) ? rkey : 0;
  };
  guest::Owned<ibv_mw, ibv_dealloc_mw> mw;
  uint32_t rkey = bound(mw, 4096, 8192, kReadWrite);
  check(rkey != 0, "type 2: bound to 8 KiB, with a key of the owner's choice");
  check(stage.writes(rkey, 4096), "type 2: the peer writes at its start");
  check(stage.reads(rkey, 4096 + 8192 - 64), "type 2: the peer reads at its end");

  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = rkey;
  check(stage.owner.post(invalidate) == IBV_WC_SUCCESS, "type 2: revoked by its owner");
  check(stage.refused(rkey, 4096), "type 2: refused after that");

  rkey = bound(mw, 8192, 64, IBV_ACCESS_REMOTE_WRITE);
  check(rkey && stage.writes(rkey, 8192), "type 2: narrowed to 64 bytes, the peer writes");
  check(stage.refused(rkey, 8192 + 32), "type 2: refused half outside it");

  rkey = bound(mw, 0, kBytes, kReadWrite);
  check(rkey && stage.writes(rkey, 0), "type 2: wide again, the peer writes");
  stage.owner.post_receive();
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.invalidate_rkey = rkey;
  check(stage.peer.post(send) == IBV_WC_SUCCESS, "type 2: given back by the peer's send with invalidate");
  const ibv_wc wc = stage.owner.wait();
  check(wc.status == IBV_WC_SUCCESS && (wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == rkey,
        "type 2: the owner is told which key it was");
  check(stage.refused(rkey, 0), "type 2: refused after that");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: windows DEVICE GID-INDEX DEVICE GID-INDEX\n");
    return 2;
  }
  Stage stage{End(argv[1], std::atoi(argv[2]), kBytes), End(argv[3], std::atoi(argv[4]), kBytes)};
  guest::connect(stage.owner, stage.peer);
  type_1(stage);
  guest::connect(stage.owner, stage.peer);
  type_2(stage);
  std::printf("%d checks, %d wrong\n", checks, failures);
  return failures ? 1 : 0;
}
