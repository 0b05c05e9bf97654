// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams: UD and GSI queue pairs, what their receivers are told, and multicast.

#include <cstring>

#include "hca/transport/datagram_header.h"
#include "two_ends.h"

namespace keyhole::test {
namespace {

constexpr uint32_t kQkey = 0x11111111;

class Datagram : public TransportTest {
 protected:
  void make_datagram_ends() {
    EndOptions options;
    options.type = KH_QPT_UD;
    a = make_end(0, options);
    b = make_end(1, options);
    start_datagrams(a, kQkey);
    start_datagrams(b, kQkey);
  }
  Work datagram(End& from, uint64_t at, uint32_t length, End& to, uint64_t wr_id = 1) {
    Work work = send(from, at, length, wr_id);
    work.av = from.driver->path_to(*to.driver);
    work.av.hop_limit = 64;
    work.av.traffic_class = 0x28;
    work.dest_qpn = to.qp.qpn;
    work.qkey = kQkey;
    return work;
  }
  // Another GID for an HCA.
  void set_gid(End& end, uint16_t index, const Gid& gid, uint16_t vlan = KH_VLAN_NONE) {
    kh_admin_cmd command = FakeDriver::make(KH_ADM_SET_GID);
    std::memcpy(command.set_gid.gid, gid.data(), 16);
    std::memcpy(command.set_gid.mac, end.driver->mac.bytes.data(), 6);
    command.set_gid.vlan = vlan;
    command.set_gid.index = index;
    command.set_gid.valid = 1;
    end.driver->must(command);
  }
  static uint32_t ones_sum(const std::byte* bytes, size_t size) {
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i += 2)
      sum += std::to_integer<uint32_t>(bytes[i]) << 8 | std::to_integer<uint32_t>(bytes[i + 1]);
    while (sum >> 16)
      sum = (sum & 0xffff) + (sum >> 16);
    return sum;
  }
};

TEST_F(Datagram, ArrivesBehindAnIpv4HeaderWithARightChecksum) {
  make_datagram_ends();
  a.fill(0, 100, 1);
  b.post_receive(5, 0, 140);
  Work work = datagram(a, 0, 100, b, 2);
  work.opcode = KH_OP_SEND_IMM;
  work.imm = 99;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 5);
  EXPECT_EQ(cqe.byte_len, 140u);
  EXPECT_EQ(cqe.src_qpn, a.qp.qpn);
  EXPECT_EQ(cqe.imm, 99u);
  EXPECT_EQ(cqe.flags, KH_CQE_GRH | KH_CQE_IPV4 | KH_CQE_IMM);
  EXPECT_EQ(cqe.vlan, KH_VLAN_NONE);
  EXPECT_EQ(cqe.pkey_index, 0);
  EXPECT_EQ(std::memcmp(cqe.smac, a.driver->mac.bytes.data(), 6), 0);
  EXPECT_EQ(std::memcmp(b.bytes(40), a.bytes(), 100), 0);

  const std::byte* ip = b.bytes(20);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(b.bytes()[i], std::byte{0}) << "it looks like IPv6";
  EXPECT_EQ(ip[0], std::byte{0x45});
  EXPECT_EQ(ip[1], std::byte{0x28});
  EXPECT_EQ(ip[8], std::byte{64});
  EXPECT_EQ(ip[9], std::byte{17});
  EXPECT_EQ(ones_sum(ip, 20), 0xffffu);
  // IP, UDP, BTH, DETH, immediate, payload, ICRC.
  EXPECT_EQ(std::to_integer<int>(ip[2]) << 8 | std::to_integer<int>(ip[3]),
            20 + 8 + 12 + 8 + 4 + 100 + 4);
  EXPECT_EQ(std::memcmp(ip + 12, a.driver->gid.data() + 12, 4), 0);
  EXPECT_EQ(std::memcmp(ip + 16, b.driver->gid.data() + 12, 4), 0);
}

TEST_F(Datagram, ArrivesBehindAnIpv6HeaderWhenItsPathIsIpv6) {
  make_datagram_ends();
  Gid from{0xfe, 0x80}, to{0xfe, 0x80};
  from[15] = 1;
  to[15] = 2;
  set_gid(a, 3, from);
  set_gid(b, 5, to);
  b.post_receive(5, 0, 140);
  Work work = datagram(a, 0, 99, b, 2);
  work.av.sgid_index = 3;
  work.av.flow_label = 0xabcde;
  std::memcpy(work.av.dgid, to.data(), 16);
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 5);
  EXPECT_EQ(cqe.byte_len, 139u);
  EXPECT_EQ(cqe.flags, KH_CQE_GRH);
  const std::byte* ip = b.bytes(0);
  EXPECT_EQ(ip[0], std::byte{0x62});
  EXPECT_EQ(ip[1], std::byte{0x8a});
  EXPECT_EQ(ip[2], std::byte{0xbc});
  EXPECT_EQ(ip[3], std::byte{0xde});
  EXPECT_EQ(ip[6], std::byte{17});
  EXPECT_EQ(ip[7], std::byte{64});
  EXPECT_EQ(std::memcmp(ip + 8, from.data(), 16), 0);
  EXPECT_EQ(std::memcmp(ip + 24, to.data(), 16), 0);
}

TEST_F(Datagram, WithTheWrongQKeyIsDropped) {
  make_datagram_ends();
  b.post_receive(5, 0, 140);
  Work work = datagram(a, 0, 100, b, 2);
  work.qkey ^= 1;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_TRUE(nothing_received(b));
  EXPECT_EQ(b.stat(KH_STAT_DROPPED), 1u);
}

TEST_F(Datagram, WithThePrivilegedBitCarriesTheQKeyOfItsQueuePair) {
  make_datagram_ends();
  b.post_receive(5, 0, 140);
  Work work = datagram(a, 0, 100, b, 2);
  work.qkey = 0x80000000;
  a.post(work);
  EXPECT_DONE(received(b), 5);
}

TEST_F(Datagram, WithoutAReceiveIsDropped) {
  make_datagram_ends();
  a.post(datagram(a, 0, 100, b, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(b.stat(KH_STAT_DROPPED), 1u);
  b.post_receive(5, 0, 140);
  EXPECT_TRUE(nothing_received(b));
}

TEST_F(Datagram, ToNobodyCompletesAllTheSame) {
  make_datagram_ends();
  Work work = datagram(a, 0, 100, b, 2);
  work.dest_qpn = 0x7fffff;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  work.av.dmac[5] ^= 0x40;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
}

TEST_F(Datagram, ToAnAddressThatTheHcaDoesNotHaveIsNotTaken) {
  make_datagram_ends();
  b.post_receive(5, 0, 140);
  Work work = datagram(a, 0, 100, b, 2);
  work.av.dgid[15] ^= 0x40;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_TRUE(nothing_received(b));
}

TEST_F(Datagram, StaysInItsVlan) {
  make_datagram_ends();
  Gid from = a.driver->gid, to = b.driver->gid;
  from[13] = to[13] = 9;
  set_gid(a, 1, from, 100);
  set_gid(b, 1, to, 100);
  set_gid(b, 2, to, 200);
  b.post_receive(5, 0, 140);
  b.post_receive(6, 0, 140);
  Work work = datagram(a, 0, 100, b, 2);
  work.av.sgid_index = 1;
  std::memcpy(work.av.dgid, to.data(), 16);
  work.av.sl = 3;
  a.post(work);
  kh_cqe cqe = received(b);
  EXPECT_DONE(cqe, 5);
  EXPECT_EQ(cqe.vlan, 100);
  EXPECT_EQ(cqe.sl, 3);
  // The untagged address of the same HCA is not in VLAN 100.
  std::memcpy(work.av.dgid, b.driver->gid.data(), 16);
  a.post(work);
  EXPECT_TRUE(nothing_received(b));
}

TEST_F(Datagram, FromAGidThatIsNotThereIsAQpOperationErrorAndEndsInSqe) {
  make_datagram_ends();
  Work work = datagram(a, 0, 100, b, 2);
  work.av.sgid_index = 77;
  a.post_unrung(work);
  a.post_unrung(datagram(a, 0, 100, b, 3));
  a.qp.ring();
  EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_AV);
  EXPECT_ERROR(sent(a), 3, KH_WC_WR_FLUSH_ERR, KH_SYN_FLUSH);
  EXPECT_EQ(a.state(), KH_QPS_SQE);
  ASSERT_EQ(set_state(a, KH_QPS_RTS), KH_ST_OK);
  b.post_receive(5, 0, 140);
  a.post(datagram(a, 0, 100, b, 4));
  EXPECT_DONE(sent(a), 4);
  EXPECT_DONE(received(b), 5);
}

TEST_F(Datagram, LongerThanThePathMtuIsALengthError) {
  make_datagram_ends();
  uint32_t mtu = 256;
  while (mtu < 4096 && mtu * 2 + 96 <= b.hca->mtu())
    mtu *= 2;
  b.post_receive(5, 0, mtu + 40);
  a.post(datagram(a, 0, mtu, b, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(received(b), 5);
  a.post(datagram(a, 0, mtu + 1, b, 3));
  EXPECT_ERROR(sent(a), 3, KH_WC_LOC_LEN_ERR, KH_SYN_WQE_LENGTH);
}

TEST_F(Datagram, LongerThanItsReceiveIsALengthErrorAtTheReceiver) {
  make_datagram_ends();
  b.post_receive(5, 0, 139);
  a.post(datagram(a, 0, 100, b, 2));
  EXPECT_DONE(sent(a), 2);
  EXPECT_ERROR(received(b), 5, KH_WC_LOC_LEN_ERR, KH_SYN_RECV_LENGTH);
  EXPECT_EQ(b.state(), KH_QPS_ERR);
}

TEST_F(Datagram, OnlySendsExist) {
  make_datagram_ends();
  for (uint8_t opcode :
       {KH_OP_WRITE, KH_OP_READ, KH_OP_CMP_SWAP, KH_OP_SEND_INV, KH_OP_BIND_MW, KH_OP_LOCAL_INV}) {
    Work work = datagram(a, 0, 8, b, 2);
    work.opcode = opcode;
    a.post(work);
    EXPECT_ERROR(sent(a), 2, KH_WC_LOC_QP_OP_ERR, KH_SYN_WQE_OPCODE);
    ASSERT_EQ(set_state(a, KH_QPS_RTS), KH_ST_OK);
  }
}

TEST_F(Datagram, InlineAndScatteredReachesTheReceiverWhole) {
  make_datagram_ends();
  std::vector<kh_sge> entries = {b.at(0, 45), b.at(1000, 1), b.at(2000, 500)};
  b.qp.post_receive(5, entries);
  Work work = datagram(a, 0, 0, b, 2);
  work.sge.clear();
  work.flags |= KH_WQE_INLINE;
  for (int i = 0; i < 300; ++i)
    work.inline_data.push_back(std::byte(i));
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(received(b), 5);
  EXPECT_EQ(std::memcmp(b.bytes(40), work.inline_data.data(), 5), 0);
  EXPECT_EQ(b.bytes()[1000], work.inline_data[5]);
  EXPECT_EQ(std::memcmp(b.bytes(2000), work.inline_data.data() + 6, 294), 0);
}

TEST_F(Datagram, ToAConnectedQueuePairIsDropped) {
  make_datagram_ends();
  End c = make_end(1);
  Work work = datagram(a, 0, 8, b, 2);
  work.dest_qpn = c.qp.qpn;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_EQ(b.stat(KH_STAT_DROPPED), 1u);
}

TEST_F(Datagram, GsiQueuePairsHaveNumberOneAndTalkToEachOther) {
  EndOptions options;
  options.type = KH_QPT_GSI;
  options.context = 0;
  a = make_end(0, options);
  b = make_end(1, options);
  EXPECT_EQ(a.qp.qpn, 1u);
  EXPECT_EQ(b.qp.qpn, 1u);
  start_datagrams(a, 0x80010000);
  start_datagrams(b, 0x80010000);
  b.post_receive(5, 0, 300);
  Work work = datagram(a, 0, 256, b, 2);
  work.qkey = 0x80010000;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  EXPECT_DONE(received(b), 5);
}

TEST_F(Datagram, ToAGroupReachesEveryMemberOnEveryHcaAndTheSenderIfItIsOne) {
  make_datagram_ends();
  EndOptions options;
  options.type = KH_QPT_UD;
  End c = make_end(1, options), d = make_end(0, options), outsider = make_end(1, options);
  for (End* end : {&c, &d, &outsider})
    start_datagrams(*end, kQkey);
  Gid group{0xff, 0x0e};
  group[15] = 7;
  set_gid(a, 1, Gid{0xfe, 0x80, 1});
  auto join = [&](End& end, kh_admin_op op) {
    kh_admin_cmd command = FakeDriver::make(op, end.qp.qpn);
    std::memcpy(command.mcast.mgid, group.data(), 16);
    return end.driver->command(command).status;
  };
  for (End* end : {&b, &c, &d})
    ASSERT_EQ(join(*end, KH_ADM_ATTACH_MCAST), KH_ST_OK);
  for (End* end : {&a, &b, &c, &d, &outsider})
    end->post_receive(5, 0, 1000);
  Work work = datagram(a, 0, 100, b, 2);
  work.av.sgid_index = 1;
  std::memcpy(work.av.dgid, group.data(), 16);
  work.av.dmac[0] = 0x33;
  work.dest_qpn = 0xffffff;
  a.post(work);
  EXPECT_DONE(sent(a), 2);
  for (End* end : {&b, &c, &d})
    EXPECT_DONE(received(*end), 5);
  EXPECT_TRUE(nothing_received(outsider));
  EXPECT_TRUE(nothing_received(a)) << "the sender is no member";

  ASSERT_EQ(join(a, KH_ADM_ATTACH_MCAST), KH_ST_OK);
  ASSERT_EQ(join(b, KH_ADM_DETACH_MCAST), KH_ST_OK);
  b.post_receive(6, 0, 1000);
  for (End* end : {&c, &d})
    end->post_receive(6, 0, 1000);
  a.post(work);
  EXPECT_DONE(received(a), 5);
  EXPECT_DONE(received(c), 6);
  EXPECT_DONE(received(d), 6);
  EXPECT_TRUE(nothing_received(b));
}

TEST_F(Datagram, HeadersOfMulticastAddressesAreKnown) {
  Gid v4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1};
  EXPECT_TRUE(is_ipv4(v4));
  EXPECT_TRUE(is_multicast(v4));
  v4[12] = 10;
  EXPECT_FALSE(is_multicast(v4));
  EXPECT_TRUE(is_multicast(Gid{0xff, 2}));
  EXPECT_FALSE(is_multicast(Gid{0xfe, 0x80}));
  EXPECT_TRUE(is_zero(Gid{}));
}

}  // namespace
}  // namespace keyhole::test
