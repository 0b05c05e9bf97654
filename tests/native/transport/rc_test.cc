// SPDX-License-Identifier: BSD-2-Clause
//
// Reliable connections when all goes well: every operation, every size, every way to describe
// memory.

#include <algorithm>
#include <cstring>

#include "two_ends.h"

namespace keyhole::test {
namespace {

using Rc = TransportTest;

TEST_F(Rc, AWriteOf64BytesArrivesAndCompletes) {
  make_pair();
  a.fill(100, 64, 7);
  a.post(write(a, 100, 64, b, 4000, 42));
  kh_cqe cqe = sent(a);
  EXPECT_DONE(cqe, 42);
  EXPECT_EQ(cqe.opcode, KH_OP_WRITE);
  EXPECT_EQ(cqe.qpn, a.qp.qpn);
  EXPECT_EQ(cqe.sq_index, 1u);
  EXPECT_EQ(std::memcmp(b.bytes(4000), a.bytes(100), 64), 0);
  EXPECT_TRUE(nothing_received(b)) << "a WRITE takes no receive";
}

TEST_F(Rc, AWriteTouchesNoByteOutsideItsRange) {
  make_pair();
  std::memset(b.bytes(), 0x55, b.region.size);
  for (uint32_t length :
       {0u, 1u, 3u, 7u, 8u, 9u, 15u, 63u, 65u, 1023u, 1024u, 1025u, 4097u, 70001u}) {
    a.fill(0, length, static_cast<uint8_t>(length));
    a.post(write(a, 0, length, b, 5001, length));
    EXPECT_DONE(sent(a), length);
    EXPECT_EQ(std::memcmp(b.bytes(5001), a.bytes(), length), 0) << length;
    EXPECT_EQ(b.bytes()[5000], std::byte{0x55});
    EXPECT_EQ(b.bytes()[5001 + length], std::byte{0x55});
    std::memset(b.bytes(), 0x55, b.region.size);
  }
}

TEST_F(Rc, EveryOperationWorksAtEveryPathMtu) {
  for (uint8_t mtu = 1; mtu <= 5; ++mtu) {
    Connection link;
    link.path_mtu = mtu;
    make_pair(EndOptions{}, link);
    for (uint32_t length : {0u, 1u, 255u, 256u, 257u, 4096u, 4097u, 300'000u}) {
      a.fill(0, length, 3);
      std::memset(b.bytes(), 0, b.region.size);
      b.post_receive(5, 0, length);
      a.post(send(a, 0, length, 1));
      EXPECT_DONE(sent(a), 1);
      kh_cqe cqe = received(b);
      EXPECT_DONE(cqe, 5);
      EXPECT_EQ(cqe.byte_len, length);
      EXPECT_TRUE(b.holds(0, length, 3));

      a.post(write(a, 0, length, b, 400'000, 2));
      EXPECT_DONE(sent(a), 2);
      EXPECT_TRUE(b.holds(400'000, length, 3));

      std::memset(a.bytes(), 0, length);
      a.post(read(a, 0, length, b, 0, 3));
      cqe = sent(a);
      EXPECT_DONE(cqe, 3);
      EXPECT_EQ(cqe.byte_len, length);
      EXPECT_TRUE(a.holds(0, length, 3));
    }
  }
}

TEST_F(Rc, ASendTellsTheReceiverItsImmediateAndWhetherItIsSolicited) {
  make_pair();
  b.post_receive(9, 0, 100);
  Work work = send(a, 0, 10, 1);
  work.opcode = KH_OP_SEND_IMM;
  work.imm = 0xdeadbeef;
  work.flags |= KH_WQE_SOLICITED;
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 9);
  EXPECT_EQ(cqe.opcode, KH_CQE_RECV);
  EXPECT_EQ(cqe.byte_len, 10u);
  EXPECT_EQ(cqe.imm, 0xdeadbeefu);
  EXPECT_EQ(cqe.flags, KH_CQE_IMM | KH_CQE_SOLICITED);
}

TEST_F(Rc, AWriteWithImmediateTakesAReceiveAndTellsTheLengthOfTheWrite) {
  make_pair();
  b.post_receive(9, 0, 1);  // shorter than the message: it holds no data
  a.fill(0, 5000, 1);
  Work work = write(a, 0, 5000, b, 10'000, 2);
  work.opcode = KH_OP_WRITE_IMM;
  work.imm = 77;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 9);
  EXPECT_EQ(cqe.opcode, KH_CQE_RECV_WRITE_IMM);
  EXPECT_EQ(cqe.byte_len, 5000u);
  EXPECT_EQ(cqe.imm, 77u);
  EXPECT_EQ(std::memcmp(b.bytes(10'000), a.bytes(), 5000), 0);
}

TEST_F(Rc, InlineDataIsTakenFromTheRequestItself) {
  make_pair();
  for (uint32_t length : {0u, 1u, 32u, 33u, 220u, 1024u}) {
    Work work = write(a, 0, 0, b, 100, 3);
    work.sge.clear();
    work.flags |= KH_WQE_INLINE;
    work.inline_data.resize(length);
    for (uint32_t i = 0; i < length; ++i)
      work.inline_data[i] = std::byte(i * 3 + 1);
    a.post(work);
    EXPECT_DONE(sent(a), 3);
    EXPECT_TRUE(std::equal(work.inline_data.begin(), work.inline_data.end(), b.bytes(100)));
  }
}

TEST_F(Rc, ScatterGatherEntriesOfAnySizeAreJoinedInOrder) {
  make_pair();
  std::vector<kh_sge> gather, scatter;
  uint32_t total = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    uint32_t length = i == 5 ? 0 : 1 + i * 977 % 6000;
    gather.push_back(a.at(i * 10'000 + i, length));
    a.fill(i * 10'000 + i, length, static_cast<uint8_t>(i));
    total += length;
  }
  std::vector<std::byte> expected;
  for (uint32_t i = 0; i < 16; ++i) {
    auto* from = a.bytes(i * 10'000 + i);
    expected.insert(expected.end(), from, from + gather[i].length);
  }
  scatter = {b.at(3, 4093), b.at(20'000, 5), b.at(30'001, total)};
  b.qp.post_receive(8, scatter);
  Work work = send(a, 0, 0, 4);
  work.sge = gather;
  a.post(work);
  EXPECT_DONE(sent(a), 4);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 8);
  EXPECT_EQ(cqe.byte_len, total);
  std::vector<std::byte> got;
  for (const kh_sge& entry : scatter) {
    auto* from = b.bytes(entry.addr - b.region.start);
    got.insert(got.end(), from, from + entry.length);
  }
  got.resize(total);
  EXPECT_EQ(got, expected);

  // And back by a READ that scatters.
  work.opcode = KH_OP_READ;
  work.remote_addr = b.region.start + 30'001;
  work.rkey = b.region.key;
  b.fill(30'001, total, 99);
  a.post(work);
  EXPECT_DONE(sent(a), 4);
  got.clear();
  for (const kh_sge& entry : gather) {
    auto* from = a.bytes(entry.addr - a.region.start);
    got.insert(got.end(), from, from + entry.length);
  }
  EXPECT_EQ(std::memcmp(got.data(), b.bytes(30'001), total), 0);
}

TEST_F(Rc, AtomicsReturnTheOldValueAndChangeTheNew) {
  make_pair();
  b.word(64) = 1000;
  a.post(fetch_add(a, 8, b, 64, 5, 1));
  kh_cqe cqe = sent(a);
  EXPECT_DONE(cqe, 1);
  EXPECT_EQ(cqe.byte_len, 8u);
  EXPECT_EQ(a.word(8), 1000u);
  EXPECT_EQ(b.word(64), 1005u);

  Work swap = fetch_add(a, 16, b, 64, 0, 2);
  swap.opcode = KH_OP_CMP_SWAP;
  swap.compare = 7;
  swap.swap_add = 1;
  a.post(swap);
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(a.word(16), 1005u) << "not equal: only read";
  EXPECT_EQ(b.word(64), 1005u);
  swap.compare = 1005;
  a.post(swap);
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(b.word(64), 1u);
}

TEST_F(Rc, UnsignaledRequestsAreCoveredByTheNextCompletion) {
  make_pair();
  for (int i = 0; i < 5; ++i) {
    Work work = write(a, 0, 8, b, 0, 100 + i);
    if (i < 4) work.flags = 0;
    a.post_unrung(work);
  }
  a.qp.ring();
  kh_cqe cqe = sent(a);
  EXPECT_DONE(cqe, 104);
  EXPECT_EQ(cqe.sq_index, 5u);
  EXPECT_TRUE(nothing_sent(a));
}

TEST_F(Rc, CompletionsComeInPostingOrderWhateverTheOperation) {
  make_pair();
  for (int round = 0; round < 40; ++round) {
    b.post_receive(round, 0, 64);
    a.post_unrung(write(a, 0, 64, b, 0, round * 10));
    a.post_unrung(read(a, 1000, 200'000, b, 0, round * 10 + 1));
    a.post_unrung(send(a, 0, 64, round * 10 + 2));
    a.post_unrung(fetch_add(a, 64, b, 64, 1, round * 10 + 3));
    a.qp.ring();
    for (int i = 0; i < 4; ++i)
      EXPECT_DONE(sent(a), round * 10 + i);
    EXPECT_DONE(received(b), round);
  }
}

TEST_F(Rc, TheSendQueueWrapsInTheMiddleOfARequest) {
  EndOptions options;
  options.log_sq_blocks = 3;
  make_pair(options);
  for (int i = 0; i < 50; ++i) {
    Work work = write(a, 0, 0, b, 0, i);
    work.sge.clear();
    work.flags |= KH_WQE_INLINE;
    work.inline_data.assign(150, std::byte(i));  // three blocks of eight
    a.post(work);
    EXPECT_DONE(sent(a), i);
    EXPECT_EQ(b.bytes()[149], std::byte(i));
  }
}

TEST_F(Rc, PsnsWrapAroundInTheMiddleOfAMessage) {
  Connection link;
  link.psn_forth = 0xfffffe;
  link.psn_back = 0xffffff;
  link.path_mtu = 1;
  make_pair(EndOptions{}, link);
  a.fill(0, 100'000, 4);
  a.post(write(a, 0, 100'000, b, 7, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(std::memcmp(b.bytes(7), a.bytes(), 100'000), 0);
  a.post(read(a, 200'000, 100'000, b, 7, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(std::memcmp(a.bytes(200'000), a.bytes(), 100'000), 0);
  EXPECT_EQ(a.driver->query_qp(a.qp).sq_psn, (0xfffffe + 2 * 391u) & 0xffffff);
}

TEST_F(Rc, AQueuePairMayBeConnectedToItself) {
  a = make_end(0);
  Connection link;
  link.psn_back = link.psn_forth;
  to_rtr(a, a, link, link.psn_forth);
  to_rts(a, link, link.psn_forth);
  a.fill(0, 300'000, 8);
  a.post_receive(3, 400'000, 300'000);
  a.post(send(a, 0, 300'000, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(received(a), 3);
  EXPECT_EQ(std::memcmp(a.bytes(400'000), a.bytes(), 300'000), 0);
  a.post(read(a, 400'000, 300'000, a, 3, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(std::memcmp(a.bytes(400'000), a.bytes(3), 290'000), 0);
}

TEST_F(Rc, TwoQueuePairsOfOneHcaTalkToEachOther) {
  a = make_end(0);
  b = make_end(0);
  connect(a, b);
  a.fill(0, 5000, 2);
  b.post_receive(1, 0, 5000);
  a.post(send(a, 0, 5000, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(received(b), 1);
  EXPECT_TRUE(b.holds(0, 5000, 2));
}

TEST_F(Rc, BothQueuesMayCompleteIntoOneCq) {
  EndOptions options;
  options.one_cq = true;
  a = make_end(0, options);
  b = make_end(1, options);
  connect(a, b);
  b.post_receive(1, 0, 100);
  a.post_receive(2, 0, 100);
  a.post(send(a, 0, 100, 3));
  EXPECT_DONE(sent(a), 3);
  EXPECT_DONE(sent(b), 1);
  b.post(send(b, 0, 100, 4));
  EXPECT_DONE(sent(b), 4);
  EXPECT_DONE(sent(a), 2);
}

TEST_F(Rc, ALongMessageSharesTheDeviceWithOthers) {
  EndOptions large;
  large.region = 16 << 20;
  make_pair(large);
  End c = make_end(0), d = make_end(1);
  connect(c, d);
  a.post(write(a, 0, 16 << 20, b, 0, 1));
  c.post(write(c, 0, 64, d, 0, 2));
  // A few turns are enough for the short one; the long one is not done by then.
  kh_cqe cqe{};
  int turns = 0;
  while (!c.send_cq.poll(cqe)) {
    ASSERT_LT(++turns, 4);
    rig.fabric().run();
  }
  EXPECT_FALSE(a.send_cq.poll(cqe));
  EXPECT_DONE(sent(a), 1);
}

TEST_F(Rc, AReadOfManyTurnsDoesNotBlockTheQueuePairsOfOthers) {
  make_pair();
  End c = make_end(0), d = make_end(1);
  connect(c, d);
  b.fill(0, 1 << 20, 6);
  a.post(read(a, 0, 1 << 20, b, 0, 1));
  c.post(write(c, 0, 64, d, 0, 2));
  EXPECT_DONE(sent(c), 2);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(a.holds(0, 1 << 20, 6));
}

TEST_F(Rc, AFenceWaitsForTheReadsBefore) {
  make_pair();
  b.word(0) = 1;
  a.post_unrung(read(a, 0, 600'000, b, 0, 1));
  Work fenced = write(a, 0, 8, b, 500'000, 2);
  fenced.flags |= KH_WQE_FENCE;
  a.post_unrung(fenced);
  a.qp.ring();
  EXPECT_DONE(sent(a), 1);
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(b.word(500'000), 1u) << "the WRITE sent what the READ had brought";
}

TEST_F(Rc, MoreReadsThanMayBeOutstandingWaitTheirTurn) {
  Connection link;
  link.max_rd_atomic = 1;
  make_pair(EndOptions{}, link);
  for (int i = 0; i < 40; ++i)
    a.post_unrung(read(a, 0, 40'000, b, 0, i));
  a.qp.ring();
  for (int i = 0; i < 40; ++i)
    EXPECT_DONE(sent(a), i);
}

TEST_F(Rc, AnSrqServesTheReceivesOfItsQueuePairs) {
  EndOptions options;
  b = make_end(1);
  TestSrq srq = b.driver->create_srq(b.pdn, 4);
  EndOptions shared;
  shared.srqn = srq.srqn;
  shared.pdn = b.pdn;
  End c = make_end(1, shared);
  End d = make_end(1, shared);
  a = make_end(0);
  End a2 = make_end(0);
  connect(a, c);
  connect(a2, d);
  for (int i = 0; i < 3; ++i) {
    kh_sge sge = c.at(i * 1000, 1000);
    srq.post(10 + i, {&sge, 1});
  }
  a.fill(0, 500, 1);
  a.post(send(a, 0, 500, 1));
  EXPECT_DONE(sent(a), 1);
  a2.post(send(a2, 0, 500, 2));
  EXPECT_DONE(sent(a2), 2);
  EXPECT_DONE(received(c), 10);
  EXPECT_DONE(received(d), 11);
  EXPECT_EQ(srq.db->ci, 2u);
}

TEST_F(Rc, NopsCompleteInOrder) {
  make_pair();
  a.post_unrung(write(a, 0, 8, b, 0, 1));
  Work nop;
  nop.wr_id = 2;
  a.post_unrung(nop);
  a.post_unrung(write(a, 0, 8, b, 0, 3));
  a.qp.ring();
  for (int i = 1; i <= 3; ++i)
    EXPECT_DONE(sent(a), i);
}

TEST_F(Rc, TheCountersCountPacketsAsThePathMtuHasThem) {
  make_pair();  // MTU 1024
  uint64_t packets = a.stat(KH_STAT_TX_PACKETS), bytes = a.stat(KH_STAT_TX_BYTES);
  uint64_t ops = a.stat(KH_STAT_TX_OPS), got = b.stat(KH_STAT_RX_PACKETS);
  a.post(write(a, 0, 2049, b, 0, 1));
  EXPECT_DONE(sent(a), 1);
  EXPECT_EQ(a.stat(KH_STAT_TX_OPS) - ops, 1u);
  EXPECT_EQ(a.stat(KH_STAT_TX_PACKETS) - packets, 3u);
  EXPECT_EQ(a.stat(KH_STAT_TX_BYTES) - bytes, 2049u);
  EXPECT_EQ(b.stat(KH_STAT_RX_PACKETS) - got, 3u);
}

// 2 GiB, without having 2 GiB: one piece of memory, mapped over and over.
TEST_F(Rc, AMessageMayHave2GiBAndNotAByteMore) {
  Connection link;
  link.path_mtu = 1;  // 2^23 packets: all that may be outstanding
  EndOptions options;
  options.max_send_sge = 32;
  make_pair(options, link);
  constexpr uint32_t kShift = 21, kPages = 1024;
  auto repeated = [&](End& end) {
    std::byte* page = end.host->allocate(4 << 20);
    page += (~reinterpret_cast<uintptr_t>(end.host->iova(page)) + 1) & ((1 << kShift) - 1);
    uint64_t iova = end.host->iova(page);
    auto* lists = reinterpret_cast<uint64_t*>(end.host->allocate(3 * KH_PAGE_SIZE));
    for (uint32_t i = 0; i < kPages; ++i)
      lists[512 + i] = iova;
    lists[0] = end.host->iova(lists + 512);
    lists[1] = end.host->iova(lists + 1024);
    kh_admin_cmd command = FakeDriver::make(KH_ADM_CREATE_MKEY);
    command.create_mkey.kind = KH_MKEY_DIRECT;
    command.create_mkey.pdn = end.pdn;
    command.create_mkey.access = KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE;
    command.create_mkey.start = 1 << 20;
    command.create_mkey.length = uint64_t{kPages} << kShift;
    command.create_mkey.pages = {end.host->iova(lists), kPages, kShift, 2, 0};
    TestRegion region;
    region.key = end.driver->must(command).result[0];
    region.memory = page;
    region.start = 1 << 20;
    region.size = 2 << 20;
    return region;
  };
  a.region = repeated(a);
  b.region = repeated(b);
  if (reinterpret_cast<uintptr_t>(a.host->iova(a.region.memory)) & ((1 << kShift) - 1))
    GTEST_SKIP();
  a.fill(0, 2 << 20, 1);
  Work work = write(a, 0, 0x80000000u, b, 0, 1);
  a.post(work);
  EXPECT_DONE(sent(a), 1);
  EXPECT_TRUE(b.holds(0, 2 << 20, 1));
  work = read(a, 0, 0x80000000u, b, 0, 2);
  std::memset(a.bytes(), 0, 2 << 20);
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_TRUE(a.holds(0, 2 << 20, 1));
  work.sge = {a.at(0, 0x80000000u), a.at(0, 1)};
  a.post(work);
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH);
}

}  // namespace
}  // namespace keyhole::test
