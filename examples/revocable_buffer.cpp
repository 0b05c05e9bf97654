// SPDX-License-Identifier: BSD-2-Clause
//
// A buffer that is lent to a peer and taken back, with memory windows of both types.
//
//   revocable_buffer [DEVICE GID-INDEX DEVICE GID-INDEX]
//
// The owner registers its buffer once and keeps that key to itself. What it gives away are keys of
// windows: each opens a part of the buffer, with the rights that it likes, for as long as it
// likes. To open, move or close a window is a work request, and costs nothing like a registration.
//
//   type 1   any QP of the PD may use it; each bind gives it a new key, and the former one is dead;
//            a bind of no length closes it
//   type 2   the QP that bound it may use it; its key is chosen by the owner; closed by the owner
//            (LOCAL_INV) or by the peer itself, together with a message (SEND_WITH_INV)

#include "pair.h"

namespace {

constexpr unsigned kBytes = 4096;
constexpr ibv_wc_status kRefused = IBV_WC_REM_ACCESS_ERR;
constexpr unsigned kRead = IBV_ACCESS_REMOTE_READ;
constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

struct Loan {
  End owner, peer;
  std::vector<char> buffer = std::vector<char>(kBytes);
  std::vector<char> scratch = std::vector<char>(16, 'p');
  // No remote right: whoever guessed this region's own key could do nothing with it.
  Region region = owner.region(buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  Region scratch_region = peer.region(scratch, IBV_ACCESS_LOCAL_WRITE);

  uint64_t address(unsigned offset) const {
    return reinterpret_cast<uint64_t>(buffer.data()) + offset;
  }

  ibv_mw_bind_info part(unsigned offset, unsigned length, unsigned access) const {
    return {region.get(), address(offset), length, access};
  }

  // What the peer tries with 16 bytes, and what must come of it.
  void peer_tries(const char* what, ibv_wr_opcode opcode, unsigned offset, uint32_t rkey,
                  ibv_wc_status expected = IBV_WC_SUCCESS) {
    const std::vector<char> before = buffer;
    ibv_sge sge{reinterpret_cast<uint64_t>(scratch.data()), 16, scratch_region->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = address(offset);
    wr.wr.rdma.rkey = rkey;
    const ibv_wc_status status = peer.post(wr);
    std::printf("  %-28s key 0x%08x: %s\n", what, rkey, ibv_wc_status_str(status));
    if (status != expected) fail("that is not what was expected");
    if (status == IBV_WC_SUCCESS) return;
    if (buffer != before) fail("the buffer changed all the same");
    connect(owner, peer);  // an error ends a connection
  }

  // NOLINTNEXTLINE(readability-convert-member-functions-to-static): beside peer_tries
  void owner_does(const char* what, ibv_wc_status status) const {
    std::printf("%s: %s\n", what, ibv_wc_status_str(status));
    if (status != IBV_WC_SUCCESS) fail("that must not fail");
  }

  ibv_wc_status bind_type_1(ibv_mw* window, ibv_mw_bind_info info) const {
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = info;
    done(ibv_bind_mw(owner.qp.get(), window, &bind), "ibv_bind_mw");
    return owner.wait().status;
  }

  // The new key differs from the former one in its low byte, which is the owner's to choose.
  ibv_wc_status bind_type_2(ibv_mw* window, ibv_mw_bind_info info) const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    wr.bind_mw.bind_info = info;
    const ibv_wc_status status = owner.post(wr);
    if (status == IBV_WC_SUCCESS) window->rkey = wr.bind_mw.rkey;
    return status;
  }
};

void type_1(Loan& loan) {
  const Window window(need(ibv_alloc_mw(loan.owner.pd.get(), IBV_MW_TYPE_1), "ibv_alloc_mw"));
  loan.owner_does("type 1: opened, all 4096 bytes, to read and write",
                  loan.bind_type_1(window.get(), loan.part(0, kBytes, kReadWrite)));
  const uint32_t wide = window->rkey;
  loan.peer_tries("the peer writes at 0", IBV_WR_RDMA_WRITE, 0, wide);
  loan.owner_does("type 1: narrowed to 64 bytes, to read only",
                  loan.bind_type_1(window.get(), loan.part(1024, 64, kRead)));
  const uint32_t narrow = window->rkey;
  loan.peer_tries("the peer reads inside", IBV_WR_RDMA_READ, 1024, narrow);
  loan.peer_tries("the peer reads outside", IBV_WR_RDMA_READ, 1080, narrow, kRefused);
  loan.peer_tries("the peer writes inside", IBV_WR_RDMA_WRITE, 1024, narrow, kRefused);
  loan.peer_tries("the peer uses the former key", IBV_WR_RDMA_READ, 1024, wide, kRefused);
  loan.owner_does("type 1: revoked by a bind of no length",
                  loan.bind_type_1(window.get(), loan.part(0, 0, 0)));
  loan.peer_tries("the peer reads", IBV_WR_RDMA_READ, 1024, narrow, kRefused);
}

void type_2(Loan& loan) {
  const Window window(need(ibv_alloc_mw(loan.owner.pd.get(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
  loan.owner_does("type 2: opened, all 4096 bytes, to read and write",
                  loan.bind_type_2(window.get(), loan.part(0, kBytes, kReadWrite)));
  const uint32_t first = window->rkey;
  loan.peer_tries("the peer writes at 4080", IBV_WR_RDMA_WRITE, 4080, first);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = first;
  loan.owner.receive(nullptr);
  loan.owner_does("type 2: given back by the peer, with a message", loan.peer.post(wr));
  const ibv_wc received = loan.owner.wait();
  if (!(received.wc_flags & IBV_WC_WITH_INV) || received.invalidated_rkey != first)
    fail("the owner was not told");
  loan.peer_tries("the peer writes", IBV_WR_RDMA_WRITE, 0, first, kRefused);

  loan.owner_does("type 2: opened again, 64 bytes",
                  loan.bind_type_2(window.get(), loan.part(2048, 64, kReadWrite)));
  loan.peer_tries("the peer writes inside", IBV_WR_RDMA_WRITE, 2048, window->rkey);
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = window->rkey;
  loan.owner_does("type 2: revoked by the owner", loan.owner.post(wr));
  loan.peer_tries("the peer writes", IBV_WR_RDMA_WRITE, 2048, window->rkey, kRefused);
}

}  // namespace

int main(int argc, char** argv) {
  const auto [here, there] = two_ends(argc, argv);
  Loan loan{End(here), End(there)};
  std::printf("%s owns a buffer, %s is the peer\n", here.device.c_str(), there.device.c_str());
  connect(loan.owner, loan.peer);
  type_1(loan);
  type_2(loan);
  std::printf("all as it should be\n");
}
