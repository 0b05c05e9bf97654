// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_exp_poll_cq(): completions as the experimental verbs tell them.

#include <gtest/gtest.h>

#include <cstring>

#include "fake_verbs.h"

namespace {

ibv_wc completion(uint64_t wr_id, ibv_wc_opcode opcode) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = opcode;
  wc.vendor_err = 1;
  wc.byte_len = 2;
  wc.imm_data = 3;
  wc.qp_num = 4;
  wc.src_qp = 5;
  wc.pkey_index = 6;
  wc.slid = 7;
  wc.sl = 8;
  wc.dlid_path_bits = 9;
  return wc;
}

class Poll : public ::testing::Test {
 protected:
  Poll() {
    cq_memory.context = world.context();
    cq = ibv_cq_ex_to_cq(&cq_memory);
  }
  ibv_cq* create(uint32_t flags) {
    ibv_exp_cq_init_attr attr{};
    attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    attr.flags = flags;
    return ibv_exp_create_cq(world.context(), 16, nullptr, nullptr, 0, &attr);
  }
  fake::World world;
  ibv_cq_ex cq_memory{};
  ibv_cq* cq;
};

TEST_F(Poll, ACompletionKeepsEveryField) {
  world.completions.push_back(completion(0x1234567890, IBV_WC_RECV));
  world.completions[0].wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM;
  ibv_exp_wc wc;
  std::memset(&wc, 0xff, sizeof(wc));
  ASSERT_EQ(ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)), 1);
  EXPECT_EQ(wc.wr_id, 0x1234567890u);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.exp_opcode, IBV_EXP_WC_RECV);
  EXPECT_EQ(wc.vendor_err, 1u);
  EXPECT_EQ(wc.byte_len, 2u);
  EXPECT_EQ(wc.imm_data, 3u);
  EXPECT_EQ(wc.qp_num, 4u);
  EXPECT_EQ(wc.src_qp, 5u);
  EXPECT_EQ(wc.pkey_index, 6u);
  EXPECT_EQ(wc.slid, 7u);
  EXPECT_EQ(wc.sl, 8u);
  EXPECT_EQ(wc.dlid_path_bits, 9u);
  EXPECT_EQ(wc.timestamp, 0u);
  EXPECT_EQ(wc.qp, nullptr);
  EXPECT_EQ(wc.exp_wc_flags, uint64_t{IBV_EXP_WC_GRH | IBV_EXP_WC_WITH_IMM | IBV_EXP_WC_WITH_SL |
                                      IBV_EXP_WC_WITH_SLID});
}

TEST_F(Poll, AFillCompletesAsOne) {
  world.completions.push_back(completion(1, static_cast<ibv_wc_opcode>(KEYHOLEDV_WC_UMR)));
  ibv_exp_wc wc{};
  ASSERT_EQ(ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)), 1);
  EXPECT_EQ(wc.exp_opcode, IBV_EXP_WC_UMR);
  EXPECT_EQ(wc.exp_wc_flags, 0u);
}

TEST_F(Poll, AFailureHasItsSyndromeAndNothingThatIsNotValid) {
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): it is none of them, on purpose
  ibv_wc failed = completion(1, static_cast<ibv_wc_opcode>(0x5a5a));
  failed.status = IBV_WC_LOC_QP_OP_ERR;
  failed.vendor_err = 0x30042;
  failed.wc_flags = ~0u;
  world.completions.push_back(failed);
  ibv_exp_wc wc{};
  ASSERT_EQ(ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)), 1);
  EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(wc.vendor_err, 0x30042u);
  EXPECT_EQ(wc.qp_num, 4u);
  EXPECT_EQ(wc.exp_wc_flags, 0u);
}

TEST_F(Poll, TheCountIsNotExceededAndLateOnesStay) {
  for (uint64_t i = 0; i < 100; ++i) world.completions.push_back(completion(i, IBV_WC_SEND));
  std::vector<ibv_exp_wc> wcs(100);
  ASSERT_EQ(ibv_exp_poll_cq(cq, 37, wcs.data(), sizeof(wcs[0])), 37);
  for (uint64_t i = 0; i < 37; ++i) EXPECT_EQ(wcs[i].wr_id, i);
  EXPECT_EQ(world.completions.size(), 63u);
  EXPECT_EQ(ibv_exp_poll_cq(cq, 100, wcs.data(), sizeof(wcs[0])), 63);
  EXPECT_EQ(wcs[0].wr_id, 37u);
  EXPECT_EQ(ibv_exp_poll_cq(cq, 100, wcs.data(), sizeof(wcs[0])), 0);
}

TEST_F(Poll, EntriesOfAnOlderStructureAreNotOverwritten) {
  constexpr size_t kOld = offsetof(ibv_exp_wc, tm_info);
  for (uint64_t i = 0; i < 3; ++i) world.completions.push_back(completion(i, IBV_WC_SEND));
  std::vector<unsigned char> memory(3 * kOld + 64, 0xee);
  auto* first = reinterpret_cast<ibv_exp_wc*>(memory.data());
  ASSERT_EQ(ibv_exp_poll_cq(cq, 3, first, kOld), 3);
  for (uint64_t i = 0; i < 3; ++i) {
    uint64_t wr_id;
    std::memcpy(&wr_id, memory.data() + i * kOld, sizeof(wr_id));
    EXPECT_EQ(wr_id, i);
  }
  for (size_t i = 3 * kOld; i < memory.size(); ++i) ASSERT_EQ(memory[i], 0xee);
}

TEST_F(Poll, EntriesOfANewerStructureKeepTheirTails) {
  constexpr size_t kNew = sizeof(ibv_exp_wc) + 24;
  for (uint64_t i = 0; i < 2; ++i) world.completions.push_back(completion(i, IBV_WC_SEND));
  std::vector<unsigned char> memory(2 * kNew, 0xee);
  ASSERT_EQ(ibv_exp_poll_cq(cq, 2, reinterpret_cast<ibv_exp_wc*>(memory.data()), kNew), 2);
  uint64_t wr_id;
  std::memcpy(&wr_id, memory.data() + kNew, sizeof(wr_id));
  EXPECT_EQ(wr_id, 1u);
  EXPECT_EQ(memory[sizeof(ibv_exp_wc)], 0xee);
}

TEST_F(Poll, ArgumentsAreChecked) {
  ibv_exp_wc wc{};
  world.completions.push_back(completion(1, IBV_WC_SEND));
  EXPECT_EQ(ibv_exp_poll_cq(nullptr, 1, &wc, sizeof(wc)), -EINVAL);
  EXPECT_EQ(ibv_exp_poll_cq(cq, -1, &wc, sizeof(wc)), -EINVAL);
  EXPECT_EQ(ibv_exp_poll_cq(cq, 1, nullptr, sizeof(wc)), -EINVAL);
  EXPECT_EQ(ibv_exp_poll_cq(cq, 1, &wc, offsetof(ibv_exp_wc, tm_info) - 1), -EINVAL);
  EXPECT_EQ(ibv_exp_poll_cq(cq, 0, nullptr, sizeof(wc)), 0);
  EXPECT_EQ(world.completions.size(), 1u);
}

TEST_F(Poll, ACqWithTimestampsGivesThemAndTheRest) {
  ibv_cq* stamped = create(IBV_EXP_CQ_TIMESTAMP);
  ASSERT_NE(stamped, nullptr);
  EXPECT_TRUE(world.last_cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  for (uint64_t i = 0; i < 3; ++i) {
    world.completions.push_back(completion(i, IBV_WC_RECV));
    world.timestamps.push_back(1000 + i);
  }
  ibv_exp_wc wcs[8];
  ASSERT_EQ(ibv_exp_poll_cq(stamped, 2, wcs, sizeof(wcs[0])), 2);
  EXPECT_EQ(wcs[1].wr_id, 1u);
  EXPECT_EQ(wcs[1].timestamp, 1001u);
  EXPECT_EQ(wcs[1].exp_opcode, IBV_EXP_WC_RECV);
  EXPECT_EQ(wcs[1].byte_len, 2u);
  EXPECT_EQ(wcs[1].src_qp, 5u);
  EXPECT_TRUE(wcs[1].exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP);
  ASSERT_EQ(ibv_exp_poll_cq(stamped, 8, wcs, sizeof(wcs[0])), 1);
  EXPECT_EQ(wcs[0].timestamp, 1002u);
  EXPECT_EQ(ibv_exp_poll_cq(stamped, 8, wcs, sizeof(wcs[0])), 0);
  EXPECT_EQ(ibv_exp_poll_cq(stamped, 0, wcs, sizeof(wcs[0])), 0);
  EXPECT_EQ(ibv_destroy_cq(stamped), 0);
  EXPECT_EQ(world.cqs, 0);
}

TEST_F(Poll, SystemTimeIsTheWallClocks) {
  ibv_cq* stamped = create(IBV_EXP_CQ_TIMESTAMP | IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME);
  ASSERT_NE(stamped, nullptr);
  EXPECT_TRUE(world.last_cq.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  world.completions.push_back(completion(1, IBV_WC_SEND));
  world.timestamps.push_back(1000);
  ibv_exp_wc wc;
  ASSERT_EQ(ibv_exp_poll_cq(stamped, 1, &wc, sizeof(wc)), 1);
  EXPECT_EQ(wc.timestamp, 1001u);
  EXPECT_EQ(ibv_destroy_cq(stamped), 0);
}

TEST_F(Poll, ACqThatTakesTheAddressOfADestroyedOneIsPolledPlainly) {
  ibv_cq* stamped = create(IBV_EXP_CQ_TIMESTAMP);
  ASSERT_NE(stamped, nullptr);
  ASSERT_EQ(ibv_destroy_cq(stamped), 0);
  ibv_cq* plain = create(0);
  ASSERT_EQ(plain, stamped);
  world.completions.push_back(completion(1, IBV_WC_SEND));
  ibv_exp_wc wc;
  EXPECT_EQ(ibv_exp_poll_cq(plain, 1, &wc, sizeof(wc)), 1);
  EXPECT_EQ(wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP, 0u);
  EXPECT_EQ(ibv_destroy_cq(plain), 0);
}

}  // namespace
