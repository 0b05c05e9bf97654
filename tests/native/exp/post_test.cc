// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_exp_post_send(): what reaches the provider, in which order, and what is said of the rest.

#include <gtest/gtest.h>

#include <array>

#include "fake_verbs.h"

namespace {

class Post : public ::testing::Test {
 protected:
  Post() {
    region.context = world.context();
    region.lkey = 0x11;
    indirect.context = world.context();
    indirect.lkey = 0x77;
    for (size_t i = 0; i < chain.size(); ++i) chain[i].wr_id = 100 + i;
    sge = {.addr = 0x1000, .length = 8, .lkey = 0x11};
  }

  int post(size_t count) {
    for (size_t i = 0; i + 1 < count; ++i) chain[i].next = &chain[i + 1];
    chain[count - 1].next = nullptr;
    bad = nullptr;
    errno = 0;
    return ibv_exp_post_send(&world.qp, &chain[0], &bad);
  }

  void make_send(ibv_exp_send_wr& wr) {
    wr.exp_opcode = IBV_EXP_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
  }

  void make_fill(ibv_exp_send_wr& wr) {
    wr.exp_opcode = IBV_EXP_WR_UMR_FILL;
    wr.exp_send_flags = IBV_EXP_SEND_INLINE | IBV_EXP_SEND_SIGNALED;
    wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
    wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
    wr.ext_op.umr.modified_mr = &indirect;
    wr.ext_op.umr.base_addr = 0xabc000;
    wr.ext_op.umr.num_mrs = 2;
    pieces[0] = {.base_addr = 0x1000, .mr = &region, .length = 10};
    pieces[1] = {.base_addr = 0x2000, .mr = &region, .length = 20};
    wr.ext_op.umr.mem_list.mem_reg_list = pieces.data();
  }

  void make_strided(ibv_exp_send_wr& wr) {
    make_fill(wr);
    wr.ext_op.umr.umr_type = IBV_EXP_UMR_REPEAT;
    blocks[0] = {.base_addr = 0x1000, .mr = &region, .byte_count = &bytes[0], .stride = &strides[0]};
    blocks[1] = {.base_addr = 0x2000, .mr = &region, .byte_count = &bytes[1], .stride = &strides[1]};
    wr.ext_op.umr.mem_list.rb.mem_repeat_block_list = blocks.data();
    wr.ext_op.umr.mem_list.rb.repeat_count = &rounds;
    wr.ext_op.umr.mem_list.rb.stride_dim = 1;
  }

  void make_masked(ibv_exp_send_wr& wr, ibv_exp_wr_opcode opcode) {
    wr.exp_opcode = opcode;
    wr.exp_send_flags = IBV_EXP_SEND_EXT_ATOMIC_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.ext_op.masked_atomics.log_arg_sz = 3;
    wr.ext_op.masked_atomics.remote_addr = 0x9000;
    wr.ext_op.masked_atomics.rkey = 0x99;
  }

  // Refused with err, nothing posted, and bad_wr says which.
  void expect_refused(int err) {
    EXPECT_EQ(post(1), err);
    EXPECT_EQ(errno, err);
    EXPECT_EQ(bad, &chain[0]);
    EXPECT_TRUE(world.posted.empty());
  }

  fake::World world;
  ibv_mr region{}, indirect{};
  std::array<ibv_exp_send_wr, 40> chain{};
  ibv_exp_send_wr* bad = nullptr;
  ibv_sge sge{};
  std::array<ibv_exp_mem_region, 200> pieces{};
  std::array<ibv_exp_mem_repeat_block, 2> blocks{};
  std::array<size_t, 2> bytes{50, 60}, strides{100, 200};
  size_t rounds = 30;
};

TEST_F(Post, ASendArrivesWithAllItHas) {
  make_send(chain[0]);
  chain[0].exp_send_flags = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED |
                            IBV_EXP_SEND_INLINE | IBV_EXP_SEND_IP_CSUM;
  ASSERT_EQ(post(1), 0);
  ASSERT_EQ(world.posted.size(), 1u);
  const ibv_send_wr& wr = world.posted[0].standard;
  EXPECT_EQ(wr.wr_id, 100u);
  EXPECT_EQ(wr.opcode, IBV_WR_SEND);
  EXPECT_EQ(wr.send_flags, 31u);
  ASSERT_EQ(world.posted[0].sges.size(), 1u);
  EXPECT_EQ(world.posted[0].sges[0].addr, 0x1000u);
}

TEST_F(Post, RemoteOperandsArriveForEachStandardOpcode) {
  for (auto opcode : {IBV_EXP_WR_RDMA_WRITE, IBV_EXP_WR_RDMA_WRITE_WITH_IMM, IBV_EXP_WR_RDMA_READ}) {
    world.posted.clear();
    make_send(chain[0]);
    chain[0].exp_opcode = opcode;
    chain[0].wr.rdma = {.remote_addr = 0x123456789, .rkey = 0x55};
    chain[0].ex.imm_data = 0xdeadbeef;
    ASSERT_EQ(post(1), 0);
    EXPECT_EQ(world.posted[0].standard.wr.rdma.remote_addr, 0x123456789u);
    EXPECT_EQ(world.posted[0].standard.wr.rdma.rkey, 0x55u);
    const uint32_t immediate = opcode == IBV_EXP_WR_RDMA_WRITE_WITH_IMM ? 0xdeadbeef : 0;
    EXPECT_EQ(world.posted[0].standard.imm_data, immediate);
  }
}

TEST_F(Post, AtomicOperandsArrive) {
  make_send(chain[0]);
  chain[0].exp_opcode = IBV_EXP_WR_ATOMIC_CMP_AND_SWP;
  chain[0].wr.atomic = {.remote_addr = 0x8000, .compare_add = 1, .swap = 2, .rkey = 3};
  ASSERT_EQ(post(1), 0);
  const auto& atomic = world.posted[0].standard.wr.atomic;
  EXPECT_EQ(atomic.remote_addr, 0x8000u);
  EXPECT_EQ(atomic.compare_add, 1u);
  EXPECT_EQ(atomic.swap, 2u);
  EXPECT_EQ(atomic.rkey, 3u);
}

TEST_F(Post, DatagramsKeepTheirAddress) {
  ibv_ah ah{};
  world.qp.qp_type = IBV_QPT_UD;
  make_send(chain[0]);
  chain[0].exp_opcode = IBV_EXP_WR_SEND_WITH_IMM;
  chain[0].ex.imm_data = 7;
  chain[0].wr.ud.ah = &ah;
  chain[0].wr.ud.remote_qpn = 12;
  chain[0].wr.ud.remote_qkey = 34;
  ASSERT_EQ(post(1), 0);
  EXPECT_EQ(world.posted[0].standard.wr.ud.ah, &ah);
  EXPECT_EQ(world.posted[0].standard.wr.ud.remote_qpn, 12u);
  EXPECT_EQ(world.posted[0].standard.wr.ud.remote_qkey, 34u);
  EXPECT_EQ(world.posted[0].standard.imm_data, 7u);
}

TEST_F(Post, InvalidationsTakeTheirKey) {
  for (auto opcode : {IBV_EXP_WR_LOCAL_INV, IBV_EXP_WR_SEND_WITH_INV}) {
    world.posted.clear();
    chain[0].exp_opcode = opcode;
    chain[0].ex.invalidate_rkey = 0x4321;
    ASSERT_EQ(post(1), 0);
    EXPECT_EQ(world.posted[0].standard.invalidate_rkey, 0x4321u);
  }
}

TEST_F(Post, AType2WindowIsBoundByAStandardRequest) {
  chain[0].exp_opcode = IBV_EXP_WR_BIND_MW;
  chain[0].bind_mw.mw = &world.mw;
  chain[0].bind_mw.rkey = 0x501;
  chain[0].bind_mw.bind_info = {.mr = &region,
                                .addr = 0x1000,
                                .length = 64,
                                .exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE |
                                                       IBV_EXP_ACCESS_MW_ZERO_BASED};
  ASSERT_EQ(post(1), 0);
  const auto& bind = world.posted[0].standard.bind_mw;
  EXPECT_EQ(world.posted[0].standard.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(bind.mw, &world.mw);
  EXPECT_EQ(bind.rkey, 0x501u);
  EXPECT_EQ(bind.bind_info.mr, &region);
  EXPECT_EQ(bind.bind_info.addr, 0x1000u);
  EXPECT_EQ(bind.bind_info.length, 64u);
  EXPECT_EQ(bind.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED});
}

TEST_F(Post, AnInlineFillFromRegionsArrives) {
  make_fill(chain[0]);
  ASSERT_EQ(post(1), 0);
  ASSERT_EQ(world.posted.size(), 1u);
  const auto& posted = world.posted[0];
  ASSERT_TRUE(posted.by_direct_verbs);
  EXPECT_EQ(posted.own.opcode, KEYHOLEDV_WR_FILL);
  EXPECT_EQ(posted.own.send_flags, unsigned{IBV_SEND_INLINE | IBV_SEND_SIGNALED});
  EXPECT_EQ(posted.own.fill.mkey, 0x77u);
  EXPECT_EQ(posted.own.fill.access, 5u);
  EXPECT_EQ(posted.own.fill.start, 0xabc000u);
  EXPECT_EQ(posted.own.fill.repeat_count, 0u);
  ASSERT_EQ(posted.sges.size(), 2u);
  EXPECT_EQ(posted.sges[1].addr, 0x2000u);
  EXPECT_EQ(posted.sges[1].length, 20u);
  EXPECT_EQ(posted.sges[1].lkey, 0x11u);
}

TEST_F(Post, AStridedFillArrives) {
  make_strided(chain[0]);
  ASSERT_EQ(post(1), 0);
  const auto& posted = world.posted[0];
  EXPECT_EQ(posted.own.fill.repeat_count, 30u);
  ASSERT_EQ(posted.interleaved.size(), 2u);
  EXPECT_EQ(posted.interleaved[1].addr, 0x2000u);
  EXPECT_EQ(posted.interleaved[1].bytes_count, 60u);
  EXPECT_EQ(posted.interleaved[1].stride, 200u);
  EXPECT_EQ(posted.interleaved[1].lkey, 0x11u);
}

TEST_F(Post, AFillThatIsNotInlineGoesThroughItsContainer) {
  ibv_exp_mkey_list_container_attr attr{.pd = &world.pd,
                                        .mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR,
                                        .max_klm_list_size = 200,
                                        .comp_mask = 0};
  ibv_exp_mkey_list_container* container = ibv_exp_alloc_mkey_list_memory(&attr);
  ASSERT_NE(container, nullptr);
  make_fill(chain[0]);
  chain[0].exp_send_flags = 0;
  chain[0].ext_op.umr.memory_objects = container;
  chain[0].ext_op.umr.num_mrs = 200;
  for (size_t i = 0; i < 200; ++i)
    pieces[i] = {.base_addr = 0x1000 * i, .mr = &region, .length = i};
  ASSERT_EQ(post(1), 0);
  ASSERT_NE(world.posted[0].own.fill.klm_list, nullptr);
  EXPECT_EQ(world.posted[0].own.fill.klm_list->max_entries, 200u);
  ASSERT_EQ(world.posted[0].sges.size(), 200u);
  EXPECT_EQ(world.posted[0].sges[199].addr, 0x1000u * 199);

  world.posted.clear();
  chain[0].ext_op.umr.num_mrs = 201;  // a list longer than the container
  container->max_klm_list_size = 1000;  // whatever the program writes there
  expect_refused(EINVAL);
  EXPECT_EQ(ibv_exp_dealloc_mkey_list_memory(container), 0);
}

TEST_F(Post, AnInvalidationReadsTheMkeyOnly) {
  make_fill(chain[0]);
  chain[0].exp_opcode = IBV_EXP_WR_UMR_INVALIDATE;
  chain[0].ext_op.umr.mem_list.mem_reg_list = nullptr;
  ASSERT_EQ(post(1), 0);
  EXPECT_EQ(world.posted[0].own.opcode, KEYHOLEDV_WR_INVALIDATE);
  EXPECT_EQ(world.posted[0].own.invalidate_mkey, 0x77u);
  EXPECT_EQ(world.posted[0].own.send_flags, unsigned{IBV_SEND_SIGNALED});
}

TEST_F(Post, MaskedCompareAndSwapArrives) {
  make_masked(chain[0], IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP);
  chain[0].ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap = {
      .compare_mask = 1, .compare_val = 2, .swap_val = 3, .swap_mask = 4};
  ASSERT_EQ(post(1), 0);
  const auto& atomic = world.posted[0].own.atomic;
  EXPECT_EQ(world.posted[0].own.opcode, KEYHOLEDV_WR_MASKED_CMP_SWAP);
  EXPECT_EQ(atomic.remote_addr, 0x9000u);
  EXPECT_EQ(atomic.rkey, 0x99u);
  EXPECT_EQ(atomic.compare_mask, 1u);
  EXPECT_EQ(atomic.compare, 2u);
  EXPECT_EQ(atomic.swap_add, 3u);
  EXPECT_EQ(atomic.swap_mask, 4u);
  EXPECT_EQ(atomic.sge.addr, 0x1000u);
}

TEST_F(Post, MaskedFetchAndAddArrives) {
  make_masked(chain[0], IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD);
  chain[0].ext_op.masked_atomics.wr_data.inline_data.op.fetch_add = {.add_val = 5,
                                                                     .field_boundary = 0x80};
  ASSERT_EQ(post(1), 0);
  EXPECT_EQ(world.posted[0].own.opcode, KEYHOLEDV_WR_MASKED_FETCH_ADD);
  EXPECT_EQ(world.posted[0].own.atomic.swap_add, 5u);
  EXPECT_EQ(world.posted[0].own.atomic.swap_mask, 0x80u);
  EXPECT_EQ(world.posted[0].own.atomic.compare_mask, 0u);
}

TEST_F(Post, AMixedChainKeepsItsOrderAndNothingGoesTwice) {
  for (size_t i = 0; i < 40; ++i) make_send(chain[i]);
  make_fill(chain[3]);
  chain[4].exp_opcode = IBV_EXP_WR_NOP;
  chain[4].num_sge = 0;
  make_fill(chain[39]);
  ASSERT_EQ(post(40), 0);
  ASSERT_EQ(world.posted.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(world.posted[i].wr_id(), 100 + i);
    EXPECT_EQ(world.posted[i].by_direct_verbs, i == 3 || i == 4 || i == 39) << i;
  }
  // Standard ones together, as many as may be collected.
  EXPECT_EQ(world.chain_lengths, (std::vector<int>{3, 16, 16, 2}));
}

// Wherever in a chain the provider refuses one, those before it are posted, once each, and it is named.
TEST_F(Post, TheOneThatTheProviderRefusesIsNamed) {
  for (size_t refused = 0; refused < 40; ++refused) {
    for (size_t i = 0; i < 40; ++i) {
      chain[i] = {};
      chain[i].wr_id = 100 + i;
      make_send(chain[i]);
      if (i % 7 == 3) make_fill(chain[i]);
    }
    world.posted.clear();
    world.refuse_wr_id = static_cast<int>(100 + refused);
    EXPECT_EQ(post(40), ENOMEM);
    EXPECT_EQ(bad, &chain[refused]) << refused;
    ASSERT_EQ(world.posted.size(), refused);
    for (size_t i = 0; i < refused; ++i) EXPECT_EQ(world.posted[i].wr_id(), 100 + i);
  }
}

TEST_F(Post, TheOneThatIsWrongInItselfIsNamedAndThoseBeforeItArePosted) {
  for (size_t wrong = 0; wrong < 40; ++wrong) {
    for (size_t i = 0; i < 40; ++i) {
      chain[i] = {};
      chain[i].wr_id = 100 + i;
      make_send(chain[i]);
    }
    chain[wrong].comp_mask = 1;
    world.posted.clear();
    EXPECT_EQ(post(40), EINVAL);
    EXPECT_EQ(bad, &chain[wrong]) << wrong;
    EXPECT_EQ(world.posted.size(), wrong);
  }
}

TEST_F(Post, ARefusalBeforeAWrongOneIsTheOneThatIsNamed) {
  for (size_t i = 0; i < 5; ++i) make_send(chain[i]);
  chain[4].comp_mask = 1;
  world.refuse_wr_id = 102;
  EXPECT_EQ(post(5), ENOMEM);
  EXPECT_EQ(bad, &chain[2]);
  EXPECT_EQ(world.posted.size(), 2u);
}

TEST_F(Post, BadWrMayBeNullAndAnEmptyChainIsNone) {
  make_send(chain[0]);
  chain[0].comp_mask = 1;
  EXPECT_EQ(ibv_exp_post_send(&world.qp, &chain[0], nullptr), EINVAL);
  EXPECT_EQ(ibv_exp_post_send(&world.qp, nullptr, &bad), 0);
  EXPECT_EQ(ibv_exp_post_send(nullptr, &chain[0], &bad), EINVAL);
}

TEST_F(Post, OnAnotherProviderStandardRequestsWorkAndTheRestIsLacking) {
  world.keyhole = false;
  make_send(chain[0]);
  EXPECT_EQ(post(1), 0);
  world.posted.clear();
  for (auto opcode : {IBV_EXP_WR_UMR_FILL, IBV_EXP_WR_UMR_INVALIDATE, IBV_EXP_WR_NOP,
                      IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP,
                      IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD}) {
    make_fill(chain[0]);
    chain[0].exp_opcode = opcode;
    expect_refused(ENOSYS);
  }
}

TEST_F(Post, WhatCrossChannelHadIsLacking) {
  for (auto opcode : {IBV_EXP_WR_SEND_ENABLE, IBV_EXP_WR_RECV_ENABLE, IBV_EXP_WR_CQE_WAIT}) {
    chain[0].exp_opcode = opcode;
    expect_refused(ENOSYS);
  }
  make_send(chain[0]);
  chain[0].exp_send_flags = IBV_EXP_SEND_WITH_CALC;
  expect_refused(ENOSYS);
}

// One thing wrong with an otherwise good request.
class WrongRequest : public Post, public ::testing::WithParamInterface<int> {
 public:
  struct Row {
    const char* what;
    char kind;  // s: send, f: fill, r: strided, c: masked compare and swap, i: invalidate, n: NOP
    void (*spoil)(WrongRequest& t, ibv_exp_send_wr& wr);
    int err;
  };
  static const Row kRows[];
  static const int kCount;
  fake::World& w() { return world; }
  ibv_mr foreign{};
  void spoil_and_expect() {
    const Row& row = kRows[GetParam()];
    SCOPED_TRACE(row.what);
    ibv_exp_send_wr& wr = chain[0];
    switch (row.kind) {
      case 's': make_send(wr); break;
      case 'f': make_fill(wr); break;
      case 'r': make_strided(wr); break;
      case 'c': make_masked(wr, IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP); break;
      case 'i':
        make_fill(wr);
        wr.exp_opcode = IBV_EXP_WR_UMR_INVALIDATE;
        break;
      case 'n': wr.exp_opcode = IBV_EXP_WR_NOP; break;
      default: FAIL() << "no kind of work request: " << row.kind;
    }
    ASSERT_EQ(post(1), 0) << "it is wrong before it is spoilt";
    world.posted.clear();
    foreign.context = world.other_context();
    row.spoil(*this, wr);
    expect_refused(row.err);
  }
  using Post::blocks;
  using Post::bytes;
  using Post::pieces;
  using Post::rounds;
  using Post::sge;
};

using T = WrongRequest;
using Wr = ibv_exp_send_wr;

const WrongRequest::Row WrongRequest::kRows[] = {
    {"an opcode between the two worlds", 's', [](T&, Wr& wr) { wr.exp_opcode = ibv_exp_wr_opcode(20); }, EINVAL},
    {"an opcode after the last", 's', [](T&, Wr& wr) { wr.exp_opcode = ibv_exp_wr_opcode(0x68); }, EINVAL},
    {"a standard number of an opcode that moved", 's', [](T&, Wr& wr) { wr.exp_opcode = ibv_exp_wr_opcode(10); }, EINVAL},
    {"a reserved bit of comp_mask", 's', [](T&, Wr& wr) { wr.comp_mask = 1; }, EINVAL},
    {"the highest bit of comp_mask", 's', [](T&, Wr& wr) { wr.comp_mask = 1u << 31; }, EINVAL},
    {"an unknown low flag", 's', [](T&, Wr& wr) { wr.exp_send_flags = 1 << 4; }, EINVAL},
    {"an unknown high flag", 's', [](T&, Wr& wr) { wr.exp_send_flags = 1ull << 40; }, EINVAL},
    {"the flag of masked atomics on a send", 's', [](T&, Wr& wr) { wr.exp_send_flags = IBV_EXP_SEND_EXT_ATOMIC_INLINE; }, EINVAL},
    {"a negative count of entries", 's', [](T&, Wr& wr) { wr.num_sge = -1; }, EINVAL},
    {"entries without a list", 's', [](T&, Wr& wr) { wr.sg_list = nullptr; }, EINVAL},
    {"a bind without a window", 's', [](T&, Wr& wr) { wr.exp_opcode = IBV_EXP_WR_BIND_MW; wr.bind_mw.mw = nullptr; }, EINVAL},
    {"a bind with a right that windows lack", 's', [](T& t, Wr& wr) { wr.exp_opcode = IBV_EXP_WR_BIND_MW; wr.bind_mw.mw = &t.w().mw; wr.bind_mw.bind_info = {&t.foreign, 0, 8, IBV_EXP_ACCESS_MW_BIND}; }, EINVAL},
    {"a bind of a range without a region", 's', [](T& t, Wr& wr) { wr.exp_opcode = IBV_EXP_WR_BIND_MW; wr.bind_mw.mw = &t.w().mw; wr.bind_mw.bind_info = {nullptr, 0, 8, 0}; }, EINVAL},
    {"a fill of nothing", 'f', [](T&, Wr& wr) { wr.ext_op.umr.modified_mr = nullptr; }, EINVAL},
    {"a fill of a key of another HCA", 'f', [](T& t, Wr& wr) { wr.ext_op.umr.modified_mr = &t.foreign; }, EINVAL},
    {"a fill with no entries", 'f', [](T&, Wr& wr) { wr.ext_op.umr.num_mrs = 0; }, EINVAL},
    {"a fill inline with more than can be", 'f', [](T&, Wr& wr) { wr.ext_op.umr.num_mrs = UINT32_MAX; }, EINVAL},
    {"a fill without a list", 'f', [](T&, Wr& wr) { wr.ext_op.umr.mem_list.mem_reg_list = nullptr; }, EINVAL},
    {"a piece without a region", 'f', [](T& t, Wr&) { t.pieces[1].mr = nullptr; }, EINVAL},
    {"a piece of another HCA's region", 'f', [](T& t, Wr&) { t.pieces[1].mr = &t.foreign; }, EINVAL},
    {"a piece of 4 GiB", 'f', [](T& t, Wr&) { t.pieces[1].length = 1ull << 32; }, EINVAL},
    {"a type of fill after the last", 'f', [](T&, Wr& wr) { wr.ext_op.umr.umr_type = 3; }, EINVAL},
    {"fixed-size fills", 'f', [](T&, Wr& wr) { wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST_FIXED_SIZE; }, ENOSYS},
    {"a right that fills lack", 'f', [](T&, Wr& wr) { wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_MW_ZERO_BASED; }, EINVAL},
    {"a fill not inline and without a container", 'f', [](T&, Wr& wr) { wr.exp_send_flags = 0; }, EINVAL},
    {"a checksum over a fill", 'f', [](T&, Wr& wr) { wr.exp_send_flags |= IBV_EXP_SEND_IP_CSUM; }, EINVAL},
    {"no dimension", 'r', [](T&, Wr& wr) { wr.ext_op.umr.mem_list.rb.stride_dim = 0; }, EINVAL},
    {"two dimensions", 'r', [](T&, Wr& wr) { wr.ext_op.umr.mem_list.rb.stride_dim = 2; }, EINVAL},
    {"no blocks", 'r', [](T&, Wr& wr) { wr.ext_op.umr.mem_list.rb.mem_repeat_block_list = nullptr; }, EINVAL},
    {"no count of rounds", 'r', [](T&, Wr& wr) { wr.ext_op.umr.mem_list.rb.repeat_count = nullptr; }, EINVAL},
    {"no round", 'r', [](T& t, Wr&) { t.rounds = 0; }, EINVAL},
    {"more rounds than there can be", 'r', [](T& t, Wr&) { t.rounds = 1ull << 32; }, EINVAL},
    {"a block without a region", 'r', [](T& t, Wr&) { t.blocks[0].mr = nullptr; }, EINVAL},
    {"a block of another HCA's region", 'r', [](T& t, Wr&) { t.blocks[0].mr = &t.foreign; }, EINVAL},
    {"a block without a size", 'r', [](T& t, Wr&) { t.blocks[1].byte_count = nullptr; }, EINVAL},
    {"a block without a stride", 'r', [](T& t, Wr&) { t.blocks[1].stride = nullptr; }, EINVAL},
    {"a block of 4 GiB", 'r', [](T& t, Wr&) { t.bytes[1] = 1ull << 32; }, EINVAL},
    {"an invalidation of nothing", 'i', [](T&, Wr& wr) { wr.ext_op.umr.modified_mr = nullptr; }, EINVAL},
    {"an invalidation of another HCA's key", 'i', [](T& t, Wr& wr) { wr.ext_op.umr.modified_mr = &t.foreign; }, EINVAL},
    {"a masked atomic without its flag", 'c', [](T&, Wr& wr) { wr.exp_send_flags = 0; }, EINVAL},
    {"a masked atomic of 4 bytes", 'c', [](T&, Wr& wr) { wr.ext_op.masked_atomics.log_arg_sz = 2; }, EINVAL},
    {"a masked atomic of 16 bytes", 'c', [](T&, Wr& wr) { wr.ext_op.masked_atomics.log_arg_sz = 4; }, EINVAL},
    {"a masked atomic with two places for the result", 'c', [](T&, Wr& wr) { wr.num_sge = 2; }, EINVAL},
    {"a masked atomic with none", 'c', [](T&, Wr& wr) { wr.sg_list = nullptr; }, EINVAL},
    {"a masked atomic with a short one", 'c', [](T& t, Wr&) { t.sge.length = 4; }, EINVAL},
    {"an inline masked atomic", 'c', [](T&, Wr& wr) { wr.exp_send_flags |= IBV_EXP_SEND_INLINE; }, EINVAL},
    {"an inline NOP", 'n', [](T&, Wr& wr) { wr.exp_send_flags |= IBV_EXP_SEND_INLINE; }, EINVAL},
};
const int WrongRequest::kCount = std::size(WrongRequest::kRows);

TEST_P(WrongRequest, IsRefusedNamedAndNotPosted) { spoil_and_expect(); }
INSTANTIATE_TEST_SUITE_P(Each, WrongRequest, ::testing::Range(0, WrongRequest::kCount));

}  // namespace
