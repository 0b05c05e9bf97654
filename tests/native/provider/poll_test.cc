// SPDX-License-Identifier: BSD-2-Clause
//
// Polling both ways, arming, dropping the completions of a dead QP, resizing.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "rig.h"

namespace keyhole::verbs {
namespace {

std::vector<ibv_wc> poll(CqRig& cq, int count = 16) {
  std::vector<ibv_wc> wcs(count);
  wcs.resize(ibv_poll_cq(cq.ibv(), count, wcs.data()));
  return wcs;
}

TEST(Poll, an_empty_cq_gives_nothing) {
  QpTest t;
  EXPECT_TRUE(poll(t.send_cq).empty());
  EXPECT_EQ(t.send_cq.db.ci, 0u);
}

TEST(Poll, every_field_of_a_receive_is_delivered) {
  QpTest t;
  kh_cqe cqe{};
  cqe.wr_id = 0x1122334455667788;
  cqe.qpn = 0x4711;
  cqe.byte_len = 1064;
  cqe.imm = 0xa1b2c3d4;
  cqe.src_qpn = 0x123456;
  cqe.pkey_index = 3;
  cqe.sl = 5;
  cqe.opcode = KH_CQE_RECV;
  cqe.flags = KH_CQE_IMM | KH_CQE_GRH | KH_CQE_IPV4 | KH_CQE_SOLICITED;
  t.recv_cq.put(cqe);
  const auto wcs = poll(t.recv_cq);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 0x1122334455667788u);
  EXPECT_EQ(wcs[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(wcs[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(wcs[0].byte_len, 1064u);
  EXPECT_EQ(wcs[0].imm_data, 0xa1b2c3d4u);
  EXPECT_EQ(wcs[0].qp_num, 0x4711u);
  EXPECT_EQ(wcs[0].src_qp, 0x123456u);
  EXPECT_EQ(wcs[0].wc_flags, unsigned{IBV_WC_WITH_IMM | IBV_WC_GRH});
  EXPECT_EQ(wcs[0].pkey_index, 3);
  EXPECT_EQ(wcs[0].sl, 5);
  EXPECT_EQ(t.recv_cq.db.ci, 1u);
}

TEST(Poll, opcodes_of_the_device_become_those_of_verbs) {
  constexpr auto dv = [](keyholedv_wc_opcode opcode) { return static_cast<ibv_wc_opcode>(opcode); };
  const std::map<unsigned, ibv_wc_opcode> map = {{KH_OP_SEND, IBV_WC_SEND},
                                                 {KH_OP_SEND_IMM, IBV_WC_SEND},
                                                 {KH_OP_SEND_INV, IBV_WC_SEND},
                                                 {KH_OP_WRITE, IBV_WC_RDMA_WRITE},
                                                 {KH_OP_WRITE_IMM, IBV_WC_RDMA_WRITE},
                                                 {KH_OP_READ, IBV_WC_RDMA_READ},
                                                 {KH_OP_CMP_SWAP, IBV_WC_COMP_SWAP},
                                                 {KH_OP_FETCH_ADD, IBV_WC_FETCH_ADD},
                                                 {KH_OP_LOCAL_INV, IBV_WC_LOCAL_INV},
                                                 {KH_OP_BIND_MW, IBV_WC_BIND_MW},
                                                 {KH_OP_UMR_FILL, dv(KEYHOLEDV_WC_UMR)},
                                                 {KH_OP_UMR_INV, dv(KEYHOLEDV_WC_UMR)},
                                                 {KH_OP_MASKED_CMP_SWAP,
                                                  dv(KEYHOLEDV_WC_MASKED_CMP_SWAP)},
                                                 {KH_OP_MASKED_FETCH_ADD,
                                                  dv(KEYHOLEDV_WC_MASKED_FETCH_ADD)},
                                                 {KH_OP_NOP, dv(KEYHOLEDV_WC_NOP)},
                                                 {KH_OP_FLUSH, static_cast<ibv_wc_opcode>(8)},
                                                 {KH_OP_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE}};
  QpTest t;
  for (const auto& [device, verbs] : map) {
    t.send_cq.put(t.qp.send_cqe(1, 0, static_cast<std::uint8_t>(device)));
    const auto wcs = poll(t.send_cq);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].opcode, verbs) << device;
    // The extended CQ says the same.
    t.send_cq.put(t.qp.send_cqe(1, 0, static_cast<std::uint8_t>(device)));
    ibv_poll_cq_attr attr{};
    ASSERT_EQ(ibv_start_poll(&t.send_cq.cq.ex, &attr), 0);
    EXPECT_EQ(ibv_wc_read_opcode(&t.send_cq.cq.ex), verbs) << device;
    ibv_end_poll(&t.send_cq.cq.ex);
  }
  kh_cqe cqe = t.qp.recv_cqe(0);
  cqe.opcode = KH_CQE_RECV_WRITE_IMM;
  t.recv_cq.put(cqe);
  EXPECT_EQ(poll(t.recv_cq).at(0).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

TEST(Poll, an_invalidation_is_told_by_flag_and_key) {
  QpTest t;
  kh_cqe cqe = t.qp.recv_cqe(0);
  cqe.flags = KH_CQE_INV;
  cqe.imm = 0x7701;
  t.recv_cq.put(cqe);
  const auto wcs = poll(t.recv_cq);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(wcs[0].invalidated_rkey, 0x7701u);
}

TEST(Poll, an_error_has_status_and_syndrome_and_no_flags) {
  QpTest t;
  kh_cqe cqe = t.qp.send_cqe(1, 9, KH_OP_WRITE);
  cqe.status = KH_WC_REM_ACCESS_ERR;
  cqe.syndrome = KH_SYN_NAK_ACCESS;
  cqe.flags = KH_CQE_IMM;
  t.send_cq.put(cqe);
  const auto wcs = poll(t.send_cq);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wcs[0].vendor_err, unsigned{KH_SYN_NAK_ACCESS});
  EXPECT_EQ(wcs[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(wcs[0].wc_flags, 0u);
}

TEST(Poll, an_unsignaled_run_is_freed_by_the_completion_after_it) {
  QpTest t;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  for (int i = 0; i < 16; i++)
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), ENOMEM);
  t.send_cq.put(t.qp.send_cqe(16, 15));
  ASSERT_EQ(poll(t.send_cq).size(), 1u);
  for (int i = 0; i < 16; i++)
    EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0) << i;
}

// Batches of random sizes over many turns of the ring: order, phases and the published index.
TEST(Poll, entries_come_in_order_over_many_turns_of_the_ring) {
  QpTest t;
  std::mt19937 random(7);
  std::uint64_t put = 0, got = 0;
  for (int round = 0; round < 500; round++) {
    for (unsigned n = random() % (17 - (put - got)); n > 0; n--)
      t.recv_cq.put(t.qp.recv_cqe(put++));
    for (const ibv_wc& wc : poll(t.recv_cq, static_cast<int>(random() % 17)))
      ASSERT_EQ(wc.wr_id, got++);
    EXPECT_EQ(t.recv_cq.db.ci, got);
  }
  EXPECT_GT(got, 1000u);
}

TEST(Poll, many_qps_on_one_cq_each_get_their_room_back) {
  QpTable qps;
  CqRig cq(qps, 10);
  std::vector<std::unique_ptr<QpRig>> qp;
  for (unsigned i = 0; i < 64; i++)  // numbers far apart, as the device hands them out over time
    qp.push_back(std::make_unique<QpRig>(qps, cq, cq, 2 + i * 262139 % 0xfffffe));
  for (unsigned i = 0; i < 64; i++) {
    for (unsigned n = 0; n < i % 16; n++)
      cq.put(qp[i]->send_cqe(n + 1, i));
    for (unsigned n = 0; n < i % 5; n++)
      cq.put(qp[i]->recv_cqe(i));
  }
  for (auto wcs = poll(cq); !wcs.empty(); wcs = poll(cq))
    for (const auto& wc : wcs)
      EXPECT_EQ(wc.qp_num, qp[wc.wr_id]->qp.ibv.qp_num);
  for (unsigned i = 0; i < 64; i++) {
    EXPECT_EQ(qp[i]->qp.sq.ci, i % 16);
    EXPECT_EQ(qp[i]->qp.rq.ci, i % 5);
  }
}

TEST(Clean, a_destroyed_qps_completions_are_skipped_and_others_stay_in_order) {
  QpTable qps;
  CqRig cq(qps, 4);
  QpRig keep(qps, cq, cq, 5);
  {
    QpRig dies(qps, cq, cq, 6);
    for (unsigned i = 0; i < 4; i++) {
      cq.put(keep.recv_cqe(i));
      cq.put(dies.send_cqe(i + 1, 100 + i));
      cq.put(dies.recv_cqe(200 + i));
    }
    clean_qp(dies.qp);
  }
  const auto wcs = poll(cq);
  ASSERT_EQ(wcs.size(), 4u);
  for (unsigned i = 0; i < 4; i++)
    EXPECT_EQ(wcs[i].wr_id, i);
  EXPECT_TRUE(poll(cq).empty());
  EXPECT_EQ(cq.db.ci, 12u) << "skipped entries are given back as well";
}

TEST(Clean, a_full_ring_is_walked_once) {
  QpTest t;
  for (unsigned i = 0; i < 16; i++)
    t.send_cq.put(t.qp.send_cqe(i + 1, i));
  clean_qp(t.qp.qp);
  EXPECT_TRUE(poll(t.send_cq).empty());
  EXPECT_EQ(t.send_cq.db.ci, 16u);
}

TEST(Clean, only_skipped_entries_are_published_by_a_failed_start_poll) {
  QpTest t;
  t.send_cq.put(t.qp.send_cqe(1, 0));
  clean_qp(t.qp.qp);
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(&t.send_cq.cq.ex, &attr), ENOENT);
  EXPECT_EQ(t.send_cq.db.ci, 1u);
}

TEST(Reset, starts_all_indices_anew_and_forgets_the_past) {
  QpTest t;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ibv_recv_wr rwr{};
  ibv_recv_wr* bad_recv = nullptr;
  for (int i = 0; i < 16; i++)
    ASSERT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  for (int i = 0; i < 8; i++)
    ASSERT_EQ(ibv_post_recv(t.qp.ibv(), &rwr, &bad_recv), 0);
  t.send_cq.put(t.qp.send_cqe(9, 8));
  t.recv_cq.put(t.qp.recv_cqe(0));

  reset_qp(t.qp.qp);
  EXPECT_TRUE(poll(t.send_cq).empty());
  EXPECT_TRUE(poll(t.recv_cq).empty());
  EXPECT_EQ(t.qp.db.sq_pi, 0u);
  EXPECT_EQ(t.qp.db.rq_pi, 0u);
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), EINVAL);
  set_qp_state(t.qp.qp, IBV_QPS_RTS);
  for (int i = 0; i < 16; i++)
    EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), 0);
  EXPECT_EQ(ibv_post_send(t.qp.ibv(), &wr, &bad), ENOMEM);
  for (int i = 0; i < 8; i++)
    EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &rwr, &bad_recv), 0);
  EXPECT_EQ(ibv_post_recv(t.qp.ibv(), &rwr, &bad_recv), ENOMEM);
}

TEST(Arm, each_request_has_a_new_serial_number_and_its_type) {
  QpTest t;
  ASSERT_EQ(ibv_req_notify_cq(t.send_cq.ibv(), 1), 0);
  EXPECT_EQ(t.send_cq.db.arm, 1u << KH_ARM_SN_SHIFT | KH_ARM_SOLICITED);
  ASSERT_EQ(ibv_req_notify_cq(t.send_cq.ibv(), 0), 0);
  EXPECT_EQ(t.send_cq.db.arm, 2u << KH_ARM_SN_SHIFT | KH_ARM_NEXT);
}

TEST(Arm, next_outlasts_solicited_until_the_event_came) {
  QpTest t;
  ibv_req_notify_cq(t.send_cq.ibv(), 0);
  ibv_req_notify_cq(t.send_cq.ibv(), 1);
  EXPECT_EQ(t.send_cq.db.arm & KH_ARM_TYPE_MASK, unsigned{KH_ARM_NEXT});
  cq_event(t.send_cq.ibv());
  ibv_req_notify_cq(t.send_cq.ibv(), 1);
  EXPECT_EQ(t.send_cq.db.arm & KH_ARM_TYPE_MASK, unsigned{KH_ARM_SOLICITED});
}

TEST(Arm, may_be_done_between_start_poll_and_end_poll) {
  QpTest t;
  t.send_cq.put(t.qp.send_cqe(1, 0));
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(&t.send_cq.cq.ex, &attr), 0);
  EXPECT_EQ(ibv_req_notify_cq(t.send_cq.ibv(), 0), 0);
  ibv_end_poll(&t.send_cq.cq.ex);
}

TEST(Resize, unread_entries_and_the_arm_word_are_found_in_the_new_ring) {
  QpTest t;
  CqRig& cq = t.recv_cq;
  for (unsigned i = 0; i < 20; i++) {  // past the first turn, 3 of them unread
    cq.put(t.qp.recv_cqe(i));
    if (i < 17) {
      ASSERT_EQ(poll(cq).size(), 1u);
    }
  }
  ibv_req_notify_cq(cq.ibv(), 0);
  std::vector<kh_cqe> bigger(64);
  alignas(64) kh_cq_db new_db{};
  {
    CqResize resize(cq.cq, &new_db);
    EXPECT_EQ(new_db.ci, 17u);
    EXPECT_EQ(new_db.arm, cq.db.arm);
    for (std::uint32_t i = 17; i < 20; i++) {  // as the device does
      bigger[i & 63] = cq.ring[i & 15];
      bigger[i & 63].phase = 1;
    }
    resize.commit(bigger.data(), 6);
  }
  const auto wcs = poll(cq);
  ASSERT_EQ(wcs.size(), 3u);
  EXPECT_EQ(wcs[0].wr_id, 17u);
  EXPECT_EQ(wcs[2].wr_id, 19u);
  EXPECT_EQ(new_db.ci, 20u);
  EXPECT_EQ(cq.db.ci, 17u) << "the old record is done with";
}

TEST(Resize, without_commit_nothing_has_changed) {
  QpTest t;
  alignas(64) kh_cq_db new_db{};
  { const CqResize resize(t.recv_cq.cq, &new_db); }
  t.recv_cq.put(t.qp.recv_cqe(3));
  EXPECT_EQ(poll(t.recv_cq).at(0).wr_id, 3u);
}

class PollEx : public testing::TestWithParam<bool> {};

TEST_P(PollEx, walks_over_entries_and_reads_every_field) {
  QpTable qps;
  CqRig cq(qps, 4, GetParam());
  QpRig qp(qps, cq, cq, 0x77);
  kh_cqe cqe = qp.recv_cqe(10);
  cqe.byte_len = 123;
  cqe.imm = 0x5566;
  cqe.src_qpn = 0x88;
  cqe.timestamp = 0x123456789abcdef;
  cqe.vlan = 77;
  cqe.sl = 4;
  cqe.flags = KH_CQE_IMM | KH_CQE_GRH;
  cq.put(cqe);
  kh_cqe error = qp.send_cqe(1, 11, KH_OP_READ);
  error.status = KH_WC_LOC_PROT_ERR;
  error.syndrome = KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE;
  error.vlan = KH_VLAN_NONE;
  cq.put(error);

  ibv_cq_ex* ex = &cq.cq.ex;
  ibv_poll_cq_attr attr{};
  ASSERT_EQ(ibv_start_poll(ex, &attr), 0);
  EXPECT_EQ(ex->wr_id, 10u);
  EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(ex), 123u);
  EXPECT_EQ(ibv_wc_read_imm_data(ex), 0x5566u);
  EXPECT_EQ(ibv_wc_read_qp_num(ex), 0x77u);
  EXPECT_EQ(ibv_wc_read_src_qp(ex), 0x88u);
  EXPECT_EQ(ibv_wc_read_wc_flags(ex), unsigned{IBV_WC_WITH_IMM | IBV_WC_GRH});
  EXPECT_EQ(ibv_wc_read_slid(ex), 0u);
  EXPECT_EQ(ibv_wc_read_sl(ex), 4);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(ex), 0x123456789abcdefu);
  EXPECT_EQ(ibv_wc_read_cvlan(ex), 77);
  EXPECT_EQ(cq.db.ci, 0u) << "the entry being read is not given back yet";
  ASSERT_EQ(ibv_next_poll(ex), 0);
  EXPECT_EQ(ex->wr_id, 11u);
  EXPECT_EQ(ex->status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_wc_read_vendor_err(ex), unsigned{KH_SYN_LOCAL_KEY | KH_SYN_KEY_STALE});
  EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RDMA_READ);
  EXPECT_EQ(ibv_wc_read_cvlan(ex), 0);
  EXPECT_EQ(ibv_next_poll(ex), ENOENT);
  ibv_end_poll(ex);
  EXPECT_EQ(cq.db.ci, 2u);
  EXPECT_EQ(qp.qp.sq.ci, 1u);
  EXPECT_EQ(qp.qp.rq.ci, 1u);
  EXPECT_EQ(ibv_start_poll(ex, &attr), ENOENT);
  EXPECT_EQ(ibv_start_poll(ex, &attr), ENOENT) << "and the lock was left";
}

TEST_P(PollEx, an_unknown_attribute_is_refused) {
  QpTable qps;
  CqRig cq(qps, 4, GetParam());
  ibv_poll_cq_attr attr{.comp_mask = 1};
  EXPECT_EQ(ibv_start_poll(&cq.cq.ex, &attr), EINVAL);
  attr.comp_mask = 0;
  EXPECT_EQ(ibv_start_poll(&cq.cq.ex, &attr), ENOENT);
}

INSTANTIATE_TEST_SUITE_P(Locking, PollEx, testing::Bool(), [](const auto& test) {
  return test.param ? "single_threaded" : "locked";
});

TEST(QpTable, finds_what_was_inserted_and_nothing_else) {
  QpTable qps;
  std::array<Qp, 3> qp;
  const std::array<std::uint32_t, 3> numbers = {1, 0x000fff, 0xffffff};
  for (int i = 0; i < 3; i++)
    ASSERT_TRUE(qps.insert(numbers[i], &qp[i]));
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(qps.find(numbers[i]), &qp[i]);
  EXPECT_EQ(qps.find(2), nullptr);
  EXPECT_EQ(qps.find(0x800000), nullptr);
  qps.remove(0x000fff);
  EXPECT_EQ(qps.find(0x000fff), nullptr);
  EXPECT_EQ(qps.find(1), &qp[0]);
  qps.remove(1);
  EXPECT_EQ(qps.find(1), nullptr);
  qps.remove(1);  // twice is nothing
}

}  // namespace
}  // namespace keyhole::verbs
