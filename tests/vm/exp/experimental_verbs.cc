// SPDX-License-Identifier: BSD-2-Clause
//
// The experimental verbs between two devices, with the bytes looked at.
//
//   experimental_verbs DEVICE GID-INDEX DEVICE GID-INDEX
//
// The owner fills indirect mkeys over its memory; the peer reaches through them. On devices without
// indirect mkeys (Soft-RoCE) what maps onto standard verbs is tried, and the rest must be lacking.

#include <array>
#include <numeric>

#include "end.h"

namespace {

using guest::End;

constexpr size_t kBytes = 65536;
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

  void number_the_owners_bytes() {
    for (size_t i = 0; i < kBytes; ++i) owner.memory[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }

  // `length` bytes read through a key, by the peer.
  std::vector<uint8_t> read(uint64_t remote, uint32_t rkey, uint32_t length, ibv_wc_status* status = nullptr) {
    std::memset(peer.memory.data(), 0xee, length);
    const ibv_wc_status got = peer.rdma(IBV_EXP_WR_RDMA_READ, 0, remote, rkey, length);
    if (status) *status = got;
    return {peer.memory.begin(), peer.memory.begin() + length};
  }
};

ibv_mr* create_mkey(End& end, uint32_t entries) {
  ibv_exp_create_mr_in in{};
  in.pd = end.pd;
  in.attr.max_klm_list_size = entries;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_MW_BIND;
  return guest::need(ibv_exp_create_mr(&in), "ibv_exp_create_mr");
}

constexpr uint64_t kAllRights =
    IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC;

ibv_exp_send_wr fill_request(ibv_mr* mkey, uint64_t base, std::vector<ibv_exp_mem_region>& pieces,
                             ibv_exp_mkey_list_container* container = nullptr) {
  ibv_exp_send_wr wr{};
  wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
  wr.exp_send_flags = container ? 0 : static_cast<uint64_t>(IBV_EXP_SEND_INLINE);
  wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
  wr.ext_op.umr.memory_objects = container;
  wr.ext_op.umr.exp_access = kAllRights;
  wr.ext_op.umr.modified_mr = mkey;
  wr.ext_op.umr.base_addr = base;
  wr.ext_op.umr.num_mrs = static_cast<uint32_t>(pieces.size());
  wr.ext_op.umr.mem_list.mem_reg_list = pieces.data();
  return wr;
}

// Pieces of the owner's memory, and the bytes that they are.
struct Pieces {
  std::vector<ibv_exp_mem_region> list;
  std::vector<uint8_t> bytes;
  void add(const End& end, size_t offset, size_t length) {
    list.push_back({.base_addr = end.address(offset), .mr = end.mr, .length = length});
    bytes.insert(bytes.end(), end.memory.begin() + static_cast<long>(offset),
                 end.memory.begin() + static_cast<long>(offset + length));
  }
};

void lists_and_strides(Stage& s) {
  s.number_the_owners_bytes();
  ibv_mr* mkey = create_mkey(s.owner, 256);
  check(mkey->addr == nullptr && mkey->length == 0, "a new mkey is empty");
  ibv_exp_mkey_attr query{};
  check(!ibv_exp_query_mkey(mkey, &query) && query.max_klm_list_size == 256, "its size can be queried");

  constexpr uint64_t kBase = 0x123456000;
  Pieces pieces;
  pieces.add(s.owner, 5000, 13);
  pieces.add(s.owner, 100, 1);
  pieces.add(s.owner, 30000, 4097);
  const ibv_exp_wc wc = s.owner.post(fill_request(mkey, kBase, pieces.list));
  check(wc.status == IBV_WC_SUCCESS && wc.exp_opcode == IBV_EXP_WC_UMR, "an inline fill completes as one");
  const auto total = static_cast<uint32_t>(pieces.bytes.size());
  check(s.read(kBase, mkey->rkey, total) == pieces.bytes, "the peer reads the pieces in their order");
  check(s.read(kBase + 12, mkey->rkey, 3) ==
            std::vector<uint8_t>(pieces.bytes.begin() + 12, pieces.bytes.begin() + 15),
        "across the borders of pieces too");

  mkey->addr = reinterpret_cast<void*>(kBase);  // as programs do
  mkey->length = total;
  for (uint32_t i = 0; i < total; ++i) s.peer.memory[i] = static_cast<uint8_t>(i ^ 0x5a);
  check(s.peer.rdma(IBV_EXP_WR_RDMA_WRITE, 0, kBase, mkey->rkey, total) == IBV_WC_SUCCESS &&
            s.owner.memory[5012] == (12 ^ 0x5a) && s.owner.memory[100] == (13 ^ 0x5a) &&
            s.owner.memory[30000] == (14 ^ 0x5a) && s.owner.memory[5013] == static_cast<uint8_t>(5013 * 7 + 5013 / 256),
        "what the peer writes lands in the pieces and nowhere else");

  // Two columns of a matrix of rows of 100 bytes, refilled into the same key.
  s.number_the_owners_bytes();
  std::array<size_t, 2> bytes{3, 5}, strides{100, 200};
  size_t rounds = 30;
  std::array<ibv_exp_mem_repeat_block, 2> blocks{{
      {.base_addr = s.owner.address(10), .mr = s.owner.mr, .byte_count = &bytes[0], .stride = &strides[0]},
      {.base_addr = s.owner.address(20), .mr = s.owner.mr, .byte_count = &bytes[1], .stride = &strides[1]},
  }};
  std::vector<ibv_exp_mem_region> none(2);
  ibv_exp_send_wr wr = fill_request(mkey, kBase, none);
  wr.ext_op.umr.umr_type = IBV_EXP_UMR_REPEAT;
  wr.ext_op.umr.mem_list.rb.mem_repeat_block_list = blocks.data();
  wr.ext_op.umr.mem_list.rb.repeat_count = &rounds;
  wr.ext_op.umr.mem_list.rb.stride_dim = 1;
  check(s.owner.post(wr).status == IBV_WC_SUCCESS, "a strided fill in place completes");
  std::vector<uint8_t> columns;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < 3; ++i) columns.push_back(s.owner.memory[10 + round * 100 + i]);
    for (size_t i = 0; i < 5; ++i) columns.push_back(s.owner.memory[20 + round * 200 + i]);
  }
  check(s.read(kBase, mkey->rkey, 240) == columns, "the peer reads both columns, row by row");

  // Through a container, more entries than go inline.
  ibv_exp_mkey_list_container_attr attr{.pd = s.owner.pd,
                                        .mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR,
                                        .max_klm_list_size = 256,
                                        .comp_mask = 0};
  auto* container = guest::need(ibv_exp_alloc_mkey_list_memory(&attr), "ibv_exp_alloc_mkey_list_memory");
  Pieces many;
  for (size_t i = 0; i < 200; ++i) many.add(s.owner, (i * 311) % 60000, 1 + i % 17);
  check(s.owner.post(fill_request(mkey, 0, many.list, container)).status == IBV_WC_SUCCESS,
        "a fill from a container completes");
  check(s.read(0, mkey->rkey, static_cast<uint32_t>(many.bytes.size())) == many.bytes,
        "the peer reads all 200 pieces");

  // A fill that cannot be: entry 2 is outside its region. The key keeps what it had.
  Pieces wrong;
  wrong.add(s.owner, 0, 8);
  wrong.add(s.owner, 8, 8);
  wrong.list.push_back({.base_addr = s.owner.address(kBytes - 4), .mr = s.owner.mr, .length = 8});
  const ibv_exp_wc failed = s.owner.post(fill_request(mkey, 0, wrong.list));
  check(failed.status != IBV_WC_SUCCESS && failed.vendor_err >> 16 == 2, "a wrong entry fails the fill, by its number");
  guest::connect(s.owner, s.peer);
  check(s.read(0, mkey->rkey, static_cast<uint32_t>(many.bytes.size())) == many.bytes,
        "the mkey keeps its former contents");

  ibv_exp_send_wr invalidate{};
  invalidate.exp_opcode = IBV_EXP_WR_UMR_INVALIDATE;
  invalidate.ext_op.umr.modified_mr = mkey;
  check(s.owner.post(invalidate).status == IBV_WC_SUCCESS, "an invalidation completes");
  ibv_wc_status status;
  s.read(0, mkey->rkey, 8, &status);
  check(status == IBV_WC_REM_ACCESS_ERR, "the key opens nothing afterwards");
  guest::connect(s.owner, s.peer);
  check(ibv_exp_dealloc_mkey_list_memory(container) == 0, "the container goes");
  check(ibv_dereg_mr(mkey) == 0, "ibv_dereg_mr takes an mkey that the program wrote into");
}

void atomics_and_nop(Stage& s) {
  uint64_t cell = 0x1122334455667788;
  std::memcpy(s.owner.memory.data(), &cell, 8);
  ibv_sge sge{.addr = s.peer.address(), .length = 8, .lkey = s.peer.mr->lkey};
  ibv_exp_send_wr wr{};
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  wr.exp_send_flags = IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.ext_op.masked_atomics.log_arg_sz = 3;
  wr.ext_op.masked_atomics.remote_addr = s.owner.address();
  wr.ext_op.masked_atomics.rkey = s.owner.mr->rkey;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap = {
      .compare_mask = 0xff, .compare_val = 0x88, .swap_val = ~0ull, .swap_mask = 0xffff0000};
  const ibv_exp_wc swapped = s.peer.post(wr);
  uint64_t now, old;
  std::memcpy(&now, s.owner.memory.data(), 8);
  std::memcpy(&old, s.peer.memory.data(), 8);
  check(swapped.status == IBV_WC_SUCCESS && swapped.exp_opcode == IBV_EXP_WC_MASKED_COMP_SWAP && old == cell &&
            now == 0x11223344ffff7788,
        "a masked compare and swap changes the masked bits");
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {.add_val = 0x10001, .field_boundary = 1ull << 31};
  const ibv_exp_wc added = s.peer.post(wr);
  std::memcpy(&now, s.owner.memory.data(), 8);
  check(added.status == IBV_WC_SUCCESS && added.exp_opcode == IBV_EXP_WC_MASKED_FETCH_ADD &&
            now == 0x1122334400007789,
        "a masked fetch and add carries nothing across the boundary");
  ibv_exp_send_wr nop{};
  nop.exp_opcode = IBV_EXP_WR_NOP;
  check(s.peer.post(nop).status == IBV_WC_SUCCESS, "a NOP completes");
}

void window_on_an_mkey(Stage& s) {
  s.number_the_owners_bytes();
  ibv_mr* mkey = create_mkey(s.owner, 4);
  Pieces pieces;
  pieces.add(s.owner, 1000, 100);
  pieces.add(s.owner, 3000, 100);
  check(s.owner.post(fill_request(mkey, 0x10000, pieces.list)).status == IBV_WC_SUCCESS, "an mkey for a window is filled");
  ibv_mw* mw = guest::need(ibv_alloc_mw(s.owner.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
  ibv_exp_mw_bind bind{};
  bind.qp = s.owner.qp;
  bind.mw = mw;
  bind.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  bind.bind_info = {.mr = mkey, .addr = 0x10000 + 90, .length = 20, .exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_READ};
  const uint32_t before = mw->rkey;
  check(ibv_exp_bind_mw(&bind) == 0 && mw->rkey != before, "a window on an mkey gets a new key");
  const ibv_exp_wc wc = s.owner.wait();
  check(wc.status == IBV_WC_SUCCESS && wc.exp_opcode == IBV_EXP_WC_BIND_MW, "its bind completes");
  check(s.read(0x10000 + 90, mw->rkey, 20) ==
            std::vector<uint8_t>(pieces.bytes.begin() + 90, pieces.bytes.begin() + 110),
        "the peer reads through window and mkey");
  check(ibv_dereg_mr(mkey) == EBUSY, "the mkey cannot go under a window");
  check(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mkey) == 0, "it can afterwards");
}

void standard_verbs(Stage& s) {
  // A chain of standard requests, ending in a send; the receive is small enough to come inline.
  ibv_exp_reg_mr_in in{};
  in.pd = s.owner.pd;
  in.length = 4096;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  ibv_mr* own = guest::need(ibv_exp_reg_mr(&in), "ibv_exp_reg_mr, allocating");
  std::memset(own->addr, 0, 4096);
  ibv_sge place{.addr = reinterpret_cast<uintptr_t>(own->addr) + 3, .length = 60, .lkey = own->lkey};
  ibv_recv_wr receive{};
  receive.sg_list = &place;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  guest::need_zero(ibv_post_recv(s.owner.qp, &receive, &bad_receive), "ibv_post_recv");

  std::iota(s.peer.memory.begin(), s.peer.memory.begin() + 256, uint8_t{1});
  ibv_sge sge{.addr = s.peer.address(), .length = 60, .lkey = s.peer.mr->lkey};
  std::array<ibv_exp_send_wr, 3> chain{};
  for (size_t i = 0; i < 3; ++i) {
    chain[i].wr_id = i;
    chain[i].sg_list = &sge;
    chain[i].num_sge = 1;
    chain[i].exp_opcode = IBV_EXP_WR_RDMA_WRITE;
    chain[i].wr.rdma.remote_addr = s.owner.address(1000 * i);
    chain[i].wr.rdma.rkey = s.owner.mr->rkey;
    chain[i].next = i < 2 ? &chain[i + 1] : nullptr;
  }
  chain[2].exp_opcode = IBV_EXP_WR_SEND_WITH_IMM;
  chain[2].ex.imm_data = 0x01020304;
  chain[2].exp_send_flags = IBV_EXP_SEND_SIGNALED;
  ibv_exp_send_wr* bad = nullptr;
  check(ibv_exp_post_send(s.peer.qp, &chain[0], &bad) == 0, "a chain of standard requests is posted");
  const ibv_exp_wc sent = s.peer.wait();
  check(sent.status == IBV_WC_SUCCESS && sent.wr_id == 2 && sent.exp_opcode == IBV_EXP_WC_SEND, "it completes");
  const ibv_exp_wc came = s.owner.wait();
  check(came.status == IBV_WC_SUCCESS && came.exp_opcode == IBV_EXP_WC_RECV && came.byte_len == 60 &&
            (came.exp_wc_flags & IBV_EXP_WC_WITH_IMM) && came.imm_data == 0x01020304,
        "its send arrives with its immediate data");
  check(!std::memcmp(static_cast<char*>(own->addr) + 3, s.peer.memory.data(), 60) &&
            !std::memcmp(s.owner.memory.data() + 1000, s.peer.memory.data(), 60),
        "the bytes are where they were sent");
  if (s.owner.device_attr.comp_mask & IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK) {
    ibv_exp_values values{};
    check(!ibv_exp_query_values(s.owner.context, IBV_EXP_VALUES_RESERVED - 1, &values) &&
              values.hwclock >= came.timestamp && (came.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP),
          "the receive has a timestamp, before now");
    const uint64_t at = ibv_exp_cqe_ts_to_ns(&values.clock_info, came.timestamp);
    check(at && at <= values.hwclock_ns && values.hwclock_ns - at < 120ull * 1000000000, "within two minutes, in ns");
  }
  check(ibv_dereg_mr(own) == 0, "a region with the library's memory goes");

  ibv_mw* mw = guest::need(ibv_alloc_mw(s.owner.pd, IBV_MW_TYPE_1), "ibv_alloc_mw");
  ibv_exp_mw_bind bind{};
  bind.qp = s.owner.qp;
  bind.mw = mw;
  bind.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  bind.bind_info = {.mr = s.owner.mr, .addr = s.owner.address(1000), .length = 60,
                    .exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_READ};
  check(ibv_exp_bind_mw(&bind) == 0 && s.owner.wait().status == IBV_WC_SUCCESS, "a window on a region is bound");
  const std::vector<uint8_t> expected(s.owner.memory.begin() + 1000, s.owner.memory.begin() + 1060);
  check(s.read(s.owner.address(1000), mw->rkey, 60) == expected, "the peer reads through it");
  check(ibv_dealloc_mw(mw) == 0, "it goes");
}

void what_is_lacking(Stage& s) {
  check(!(s.owner.device_attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR), "the capabilities say so beforehand");
  ibv_exp_create_mr_in in{};
  in.pd = s.owner.pd;
  in.attr.max_klm_list_size = 4;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  check(!ibv_exp_create_mr(&in) && errno == ENOSYS, "no indirect mkey");
  ibv_exp_send_wr nop{}, *bad = nullptr;
  nop.exp_opcode = IBV_EXP_WR_NOP;
  check(ibv_exp_post_send(s.owner.qp, &nop, &bad) == ENOSYS && bad == &nop, "no NOP");
  check(s.owner.inline_receive == 0, "no inline receive");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s DEVICE GID-INDEX DEVICE GID-INDEX\n", argv[0]);
    return 2;
  }
  {
    Stage stage{.owner = {argv[1], std::atoi(argv[2]), kBytes}, .peer = {argv[3], std::atoi(argv[4]), kBytes}};
    guest::connect(stage.owner, stage.peer);
    standard_verbs(stage);
    if (stage.owner.device_attr.comp_mask & IBV_EXP_DEVICE_ATTR_UMR) {
      check(stage.owner.inline_receive == 64, "inline receive is granted");
      lists_and_strides(stage);
      atomics_and_nop(stage);
      window_on_an_mkey(stage);
    } else {
      what_is_lacking(stage);
    }
  }
  std::printf("%d checks, %d wrong\n", checks, failures);
  return failures != 0;
}
