// SPDX-License-Identifier: BSD-2-Clause
//
// The header against the facts of the old stack. Programs are compiled anew, so a difference would not
// break a binary; but the order of fields decides what an initializer without names means, and the
// numbers are what programs print, compare and send to each other.

#include <gtest/gtest.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace {

struct Fact {
  const char* what;
  int64_t is;
  int64_t was;
};

#define VALUE(name, was)
#define SIZE(type, was)
#define FIELD(type, field, was)

TEST(Layout, EnumeratorsHaveTheirOldValues) {
#undef VALUE
#define VALUE(name, was) {#name, static_cast<int64_t>(name), was},
  static constexpr Fact facts[] = {
#include "reference_layout.inc"
  };
#undef VALUE
#define VALUE(name, was)
  EXPECT_GT(std::size(facts), 500u);
  for (const Fact& fact : facts) EXPECT_EQ(fact.is, fact.was) << fact.what;
}

TEST(Layout, StructuresHaveTheirOldSizes) {
#undef SIZE
#define SIZE(type, was) {#type, sizeof(type), was},
  static constexpr Fact facts[] = {
#include "reference_layout.inc"
  };
#undef SIZE
#define SIZE(type, was)
  EXPECT_GT(std::size(facts), 100u);
  for (const Fact& fact : facts) EXPECT_EQ(fact.is, fact.was) << fact.what;
}

TEST(Layout, FieldsLieWhereTheyLay) {
#undef FIELD
#define FIELD(type, field, was) {#type "." #field, offsetof(type, field), was},
  static constexpr Fact facts[] = {
#include "reference_layout.inc"
  };
#undef FIELD
  EXPECT_GT(std::size(facts), 700u);
  for (const Fact& fact : facts) EXPECT_EQ(fact.is, fact.was) << fact.what;
}

TEST(Layout, TheMasksOfAPortComeAfterTheStandardAttributesOfAnyVersion) {
  EXPECT_GE(offsetof(ibv_exp_port_attr, comp_mask), sizeof(ibv_port_attr));
  EXPECT_GT(offsetof(ibv_exp_port_attr, mask1), offsetof(ibv_exp_port_attr, comp_mask));
}

TEST(Layout, ThePortsCommonFieldsAreTheStandardOnes) {
  EXPECT_EQ(offsetof(ibv_exp_port_attr, link_layer), offsetof(ibv_port_attr, link_layer));
  EXPECT_EQ(offsetof(ibv_exp_port_attr, lid), offsetof(ibv_port_attr, lid));
  EXPECT_EQ(offsetof(ibv_exp_port_attr, active_mtu), offsetof(ibv_port_attr, active_mtu));
}

TEST(Layout, NamesThatVerbsHadAreThereWithTheirTypes) {
  EXPECT_EQ(static_cast<int>(IBV_EXP_QPT_DC_INI), 32);
  EXPECT_EQ(static_cast<int>(IBV_QPT_RAW_ETH), 8);
  EXPECT_EQ(static_cast<int>(IBV_QPT_XRC), 5);
  EXPECT_EQ(static_cast<int>(IBV_PORT_VENDOR_CLASS), 1 << 24);
  EXPECT_EQ(IBV_REREG_MR_KEEP_VALID, 1 << 3);
  EXPECT_EQ(static_cast<int>(IBV_EXP_EVENT_DCT_REQ_ERR), 34);
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_EXP_QPT_DC_INI;  // C++ takes it for one of the enumeration
  EXPECT_EQ(attr.qp_type, 32);
}

}  // namespace
