// SPDX-License-Identifier: BSD-2-Clause
//
// Regions, indirect mkeys and windows. This file is compiled as a program is: its ibv_dereg_mr() is the
// one that infiniband/verbs.h leads to the library.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "fake_verbs.h"

namespace {

class Memory : public ::testing::Test {
 protected:
  ibv_mr* make_mkey(uint32_t entries = 8) {
    ibv_exp_create_mr_in in{};
    in.pd = &world.pd;
    in.attr.max_klm_list_size = entries;
    in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
    in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_MW_BIND;
    return ibv_exp_create_mr(&in);
  }
  fake::World world;
};

TEST_F(Memory, ARegionIsRegisteredWithItsRights) {
  char buffer[64];
  ibv_exp_reg_mr_in in{};
  in.pd = &world.pd;
  in.addr = buffer;
  in.length = sizeof(buffer);
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_ON_DEMAND;
  in.comp_mask = IBV_EXP_REG_MR_RESERVED - 1;
  ibv_mr* mr = ibv_exp_reg_mr(&in);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, buffer);
  EXPECT_EQ(world.last_access,
            unsigned{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND});
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(world.regions, 0);
}

TEST_F(Memory, ARegionWithMemoryOfTheLibrarysIsPageAlignedAndGoesAsAWhole) {
  ibv_exp_reg_mr_in in{};
  in.pd = &world.pd;
  in.length = 5000;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  ibv_mr* mr = ibv_exp_reg_mr(&in);
  ASSERT_NE(mr, nullptr);
  void* memory = mr->addr;
  EXPECT_EQ(in.addr, memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_EQ(world.last_region.length, 5000u);
  EXPECT_EQ(world.last_access, unsigned{IBV_ACCESS_LOCAL_WRITE});
  std::memset(memory, 1, 5000);
  mr->addr = nullptr;  // as programs do
  mr->length = 0;
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(world.regions, 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(write(pipe_ends[1], memory, 1), -1);  // it is no memory any more
  EXPECT_EQ(errno, EFAULT);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(Memory, ContiguousMemoryComesAtAnAddressThatIsFree) {
  ibv_exp_reg_mr_in in{};
  in.pd = &world.pd;
  in.length = 4096;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
  in.create_flags = IBV_EXP_REG_MR_CREATE_CONTIG;
  ibv_mr* mr = ibv_exp_reg_mr(&in);
  ASSERT_NE(mr, nullptr);
  void* place = mr->addr;
  // The address is taken now: asked for again, it is refused and what lies there stays.
  std::memset(place, 7, 4096);
  in.addr = place;
  EXPECT_EQ(ibv_exp_reg_mr(&in), nullptr);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(static_cast<char*>(place)[4095], 7);
  ASSERT_EQ(ibv_dereg_mr(mr), 0);
  in.addr = place;
  mr = ibv_exp_reg_mr(&in);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, place);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, NoMemoryIsLeftWhenTheRegistrationFails) {
  world.provider_fails = true;
  ibv_exp_reg_mr_in in{};
  in.pd = &world.pd;
  in.length = 4096;
  in.exp_access = IBV_EXP_ACCESS_ALLOCATE_MR;
  EXPECT_EQ(ibv_exp_reg_mr(&in), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(in.addr, nullptr);
}

TEST_F(Memory, AnIndirectMkeyIsShownAsARegion) {
  ibv_mr* mr = make_mkey(100);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->pd, &world.pd);
  EXPECT_EQ(mr->context, world.context());
  EXPECT_EQ(mr->lkey, 0x70001u);
  EXPECT_EQ(mr->rkey, 0x70001u);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 0u);
  EXPECT_EQ(world.last_mkey.max_entries, 100u);
  EXPECT_EQ(world.last_mkey.access, uint32_t{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND});
  ibv_exp_mkey_attr attr{};
  EXPECT_EQ(ibv_exp_query_mkey(mr, &attr), 0);
  EXPECT_EQ(attr.max_klm_list_size, 100u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(world.mkeys, 0);
}

TEST_F(Memory, AnIndirectMkeyIsDeregisteredWhateverTheProgramWroteIntoIt) {
  ibv_mr* mr = make_mkey();
  std::memset(mr, 0xa5, sizeof(*mr));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(world.mkeys, 0);
  EXPECT_EQ(world.regions, 0);
}

TEST_F(Memory, AProvidersRegionIsNotTakenForOneOfOursWhateverIsInIt) {
  ibv_mr* ours = make_mkey();
  char buffer[8];
  ibv_mr* theirs = ibv_reg_mr(&world.pd, buffer, 8, IBV_ACCESS_LOCAL_WRITE);
  *theirs = *ours;  // a perfect copy
  EXPECT_EQ(ibv_dereg_mr(theirs), 0);
  EXPECT_EQ(world.regions, 0);
  EXPECT_EQ(world.mkeys, 1);
  EXPECT_EQ(ibv_dereg_mr(ours), 0);
}

TEST_F(Memory, AnMkeyWithWindowsStaysAndGoesLater) {
  ibv_mr* mr = make_mkey();
  world.windows_on_mkeys = 1;
  EXPECT_EQ(ibv_dereg_mr(mr), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  ibv_exp_mkey_attr attr{};
  EXPECT_EQ(ibv_exp_query_mkey(mr, &attr), 0);
  world.windows_on_mkeys = 0;
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(world.mkeys, 0);
}

TEST_F(Memory, AnMkeyThatStaysIsKnownToOtherThreadsAllTheWhile) {
  static ibv_mr* mr;
  static int answer;
  mr = make_mkey();
  answer = -1;
  world.windows_on_mkeys = 1;
  world.while_destroying = [] {
    ibv_exp_mkey_attr attr{};
    answer = ibv_exp_query_mkey(mr, &attr);
  };
  EXPECT_EQ(ibv_dereg_mr(mr), EBUSY);
  EXPECT_EQ(answer, 0);
  world.while_destroying = nullptr;
  world.windows_on_mkeys = 0;
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, DeregistrationByAddressOfTheFunctionWorksToo) {
  int (*dereg)(ibv_mr*) = &ibv_dereg_mr;
  ibv_mr* mr = make_mkey();
  EXPECT_EQ(dereg(mr), 0);
  EXPECT_EQ(::ibv_dereg_mr(make_mkey()), 0);
  EXPECT_EQ(world.mkeys, 0);
}

TEST_F(Memory, AnIndirectMkeyIsNotReregistered) {
  ibv_mr* mr = make_mkey();
  char buffer[8];
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, &world.pd, buffer, 8, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(world.rereg_calls, 0);
  ibv_mr* theirs = ibv_reg_mr(&world.pd, buffer, 8, 0);
  EXPECT_EQ(ibv_rereg_mr(theirs, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1), 0);
  EXPECT_EQ(world.rereg_calls, 1);
  EXPECT_EQ(ibv_dereg_mr(theirs), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, ManyMkeysAreKeptApart) {
  std::vector<ibv_mr*> mrs;
  for (uint32_t i = 1; i <= 5000; ++i) mrs.push_back(make_mkey(i));
  for (uint32_t i = 1; i <= 5000; i += 7) {
    ibv_exp_mkey_attr attr{};
    ASSERT_EQ(ibv_exp_query_mkey(mrs[i - 1], &attr), 0);
    ASSERT_EQ(attr.max_klm_list_size, i);
  }
  for (size_t i = 0; i < mrs.size(); i += 2) ASSERT_EQ(ibv_dereg_mr(mrs[i]), 0);
  for (size_t i = 1; i < mrs.size(); i += 2) ASSERT_EQ(ibv_dereg_mr(mrs[i]), 0);
  EXPECT_EQ(world.mkeys, 0);
}

TEST_F(Memory, ContainersComeAndGo) {
  ibv_exp_mkey_list_container_attr attr{.pd = &world.pd,
                                        .mkey_list_type = IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR,
                                        .max_klm_list_size = 65536,
                                        .comp_mask = 0};
  ibv_exp_mkey_list_container* container = ibv_exp_alloc_mkey_list_memory(&attr);
  ASSERT_NE(container, nullptr);
  EXPECT_EQ(container->max_klm_list_size, 65536u);
  EXPECT_EQ(container->context, world.context());
  EXPECT_EQ(ibv_exp_dealloc_mkey_list_memory(container), 0);
  EXPECT_EQ(world.klm_lists, 0);
}

TEST_F(Memory, AType1WindowIsBoundAndGetsItsNewKey) {
  ibv_mr* mr = make_mkey();
  ibv_exp_mw_bind bind{};
  bind.qp = &world.qp;
  bind.mw = &world.mw;
  bind.wr_id = 42;
  bind.exp_send_flags = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;
  bind.bind_info = {.mr = mr,
                    .addr = 0x1000,
                    .length = 16,
                    .exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_READ |
                                           IBV_EXP_ACCESS_REMOTE_ATOMIC |
                                           IBV_EXP_ACCESS_MW_ZERO_BASED};
  ASSERT_EQ(ibv_exp_bind_mw(&bind), 0);
  EXPECT_EQ(world.mw.rkey, 0x501u);
  EXPECT_EQ(world.bound.wr_id, 42u);
  EXPECT_EQ(world.bound.send_flags, 7u);
  EXPECT_EQ(world.bound.bind_info.mr, mr);
  EXPECT_EQ(world.bound.bind_info.addr, 0x1000u);
  EXPECT_EQ(world.bound.bind_info.length, 16u);
  EXPECT_EQ(world.bound.bind_info.mw_access_flags, 4u | 8u | 32u);

  world.qp.qp_type = IBV_QPT_UC;
  bind.bind_info = {};  // unbinds
  EXPECT_EQ(ibv_exp_bind_mw(&bind), 0);
  EXPECT_EQ(world.mw.rkey, 0x502u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
