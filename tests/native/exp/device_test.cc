// SPDX-License-Identifier: BSD-2-Clause
//
// Capabilities, ports and clocks.

#include <gtest/gtest.h>

#include <cstring>

#include "fake_verbs.h"

namespace {

class Device : public ::testing::Test {
 protected:
  Device() {
    auto& standard = world.attributes.orig_attr;
    standard.max_qp = 123;
    standard.max_mr_size = 1u << 30;
    standard.atomic_cap = IBV_ATOMIC_GLOB;
    standard.phys_port_cnt = 1;
    standard.device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    std::strcpy(standard.fw_ver, "1.2.3");
    world.attributes.completion_timestamp_mask = ~0ull;
    world.attributes.hca_core_clock = 1000000;  // kHz: 1 ns a tick
  }
  ibv_exp_device_attr query(uint32_t mask, uint64_t mask_2 = 0) {
    ibv_exp_device_attr attr;
    std::memset(&attr, 0x5a, sizeof(attr));
    attr.comp_mask = mask;
    attr.comp_mask_2 = mask_2;
    EXPECT_EQ(ibv_exp_query_device(world.context(), &attr), 0);
    return attr;
  }
  fake::World world;
};

TEST_F(Device, StandardAttributesComeWithoutAsking) {
  const ibv_exp_device_attr attr = query(0);
  EXPECT_STREQ(attr.fw_ver, "1.2.3");
  EXPECT_EQ(attr.max_qp, 123);
  EXPECT_EQ(attr.exp_atomic_cap, IBV_EXP_ATOMIC_GLOB);
  EXPECT_EQ(attr.phys_port_cnt, 1);
  EXPECT_EQ(attr.comp_mask, 0u);
  EXPECT_EQ(attr.umr_caps.max_klm_list_size, 0x5a5a5a5au);  // not asked for, not touched
}

TEST_F(Device, AllThatThereIsIsAnsweredToAMaskOfEverything) {
  const ibv_exp_device_attr attr =
      query(static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_RESERVED - 1), IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1);
  EXPECT_EQ(attr.comp_mask,
            uint32_t{IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK |
                     IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS |
                     IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ | IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS |
                     IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN |
                     IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS} |
                static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2));
  EXPECT_EQ(attr.comp_mask_2, 0u);
  EXPECT_EQ(attr.umr_caps.max_klm_list_size, 65536u);
  EXPECT_EQ(attr.umr_caps.max_send_wqe_inline_klms, 64u);
  EXPECT_EQ(attr.umr_caps.max_umr_recursion_depth, 4u);
  EXPECT_EQ(attr.umr_caps.max_umr_stride_dimension, 1u);
  EXPECT_EQ(attr.masked_atomic.masked_log_atomic_arg_sizes, 8u);
  EXPECT_EQ(attr.masked_atomic.max_fa_bit_boundary, 64u);
  EXPECT_EQ(attr.ext_atom.log_atomic_arg_sizes, 8u);
  EXPECT_GE(attr.inline_recv_sz, 64);
  EXPECT_EQ(attr.timestamp_mask, ~0ull);
  EXPECT_EQ(attr.hca_core_clock, 1000000u);
  EXPECT_EQ(attr.exp_device_cap_flags,
            uint64_t{IBV_EXP_DEVICE_UMR | IBV_EXP_DEVICE_NOP | IBV_EXP_DEVICE_EXT_ATOMICS |
                     IBV_EXP_DEVICE_EXT_MASKED_ATOMICS | IBV_EXP_DEVICE_MR_ALLOCATE |
                     IBV_EXP_DEVICE_MEM_WINDOW | IBV_EXP_DEVICE_MW_TYPE_2B});
}

TEST_F(Device, AnotherProvidersContextHasNoneOfKeyholesCapabilities) {
  world.keyhole = false;
  const ibv_exp_device_attr attr = query(IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS |
                                         IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS |
                                         IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ |
                                         IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  EXPECT_EQ(attr.comp_mask, uint32_t{IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS});
  EXPECT_EQ(attr.exp_device_cap_flags, uint64_t{IBV_EXP_DEVICE_MR_ALLOCATE |
                                                IBV_EXP_DEVICE_MEM_WINDOW | IBV_EXP_DEVICE_MW_TYPE_2B});
}

TEST_F(Device, CapabilitiesOfAnOlderDeviceAreWhatItSays) {
  world.caps.flags = 0;
  const ibv_exp_device_attr attr =
      query(IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS);
  EXPECT_EQ(attr.comp_mask, 0u);
}

TEST_F(Device, OnDemandPagingIsReportedWhereItIs) {
  world.attributes.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  world.attributes.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_ATOMIC;
  world.attributes.xrc_odp_caps = IBV_ODP_SUPPORT_READ;
  const ibv_exp_device_attr attr = query(IBV_EXP_DEVICE_ATTR_ODP | IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE |
                                         IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  EXPECT_TRUE(attr.comp_mask & IBV_EXP_DEVICE_ATTR_ODP);
  EXPECT_EQ(attr.odp_caps.general_odp_caps, 3u);
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps,
            uint32_t{IBV_EXP_ODP_SUPPORT_SEND | IBV_EXP_ODP_SUPPORT_ATOMIC});
  EXPECT_EQ(attr.odp_caps.per_transport_caps.xrc_odp_caps, uint32_t{IBV_EXP_ODP_SUPPORT_READ});
  EXPECT_EQ(attr.odp_mr_max_size, 1u << 30);
  EXPECT_TRUE(attr.exp_device_cap_flags & IBV_EXP_DEVICE_ODP);
}

TEST_F(Device, AProviderWithTheOldQueryOnlyAnswersStandardAttributes) {
  world.extended_query = false;
  const ibv_exp_device_attr attr = query(IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK);
  EXPECT_EQ(attr.max_qp, 123);
  EXPECT_EQ(attr.comp_mask, 0u);
}

TEST_F(Device, AtomicsOfTheBusAreInTheSecondMask) {
  world.attributes.pci_atomic_caps = {.fetch_add = 2, .swap = 0, .compare_swap = 2};
  const ibv_exp_device_attr attr = query(static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2),
                                         IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS);
  EXPECT_EQ(attr.comp_mask_2, uint64_t{IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS});
  EXPECT_EQ(attr.pci_atomic_caps.fetch_add, 2);
}

TEST_F(Device, TheListAndTheContextAreTheStandardOnes) {
  int count = 0;
  ibv_device** list = ibv_exp_get_device_list(&count);
  ASSERT_EQ(count, 1);
  ibv_exp_open_device_attr attr{};
  attr.comp_mask = IBV_EXP_SET_CONTEXT_ATTR_RESERVED - 1;
  EXPECT_EQ(ibv_exp_open_device(list[0], &attr), world.context());
}

TEST_F(Device, APortIsQueriedWithAndWithoutAMask) {
  ibv_exp_port_attr attr{};
  EXPECT_EQ(ibv_exp_query_port(world.context(), 1, &attr), 0);
  EXPECT_EQ(attr.lid, 77);
  attr = {};
  attr.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  attr.mask1 = IBV_EXP_QUERY_PORT_MASK;
  EXPECT_EQ(ibv_exp_query_port(world.context(), 1, &attr), 0);
  EXPECT_EQ(attr.port_attr.lid, 77);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
}

TEST_F(Device, AGidHasItsTypeInTheOldNumbers) {
  world.gid.gid.raw[15] = 9;
  const std::pair<uint32_t, ibv_exp_roce_gid_type> kinds[] = {
      {IBV_GID_TYPE_IB, IBV_EXP_IB_ROCE_V1_GID_TYPE},
      {IBV_GID_TYPE_ROCE_V1, IBV_EXP_IB_ROCE_V1_GID_TYPE},
      {IBV_GID_TYPE_ROCE_V2, IBV_EXP_ROCE_V2_GID_TYPE},
  };
  for (const auto& [standard, old] : kinds) {
    world.gid.gid_type = standard;
    ibv_exp_gid_attr attr{};
    attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_RESERVED - 1;
    ASSERT_EQ(ibv_exp_query_gid_attr(world.context(), 1, 0, &attr), 0);
    EXPECT_EQ(attr.type, old);
    EXPECT_EQ(attr.gid.raw[15], 9);
  }
  ibv_exp_gid_attr attr{};
  EXPECT_EQ(ibv_exp_query_gid_attr(world.context(), 1, 1, &attr), ENODATA);
}

TEST_F(Device, TheClockIsReadAndConverted) {
  world.clock = 5000000000;
  ibv_exp_values values{};
  const int all = IBV_EXP_VALUES_RESERVED - 1;
  ASSERT_EQ(ibv_exp_query_values(world.context(), all, &values), 0);
  EXPECT_EQ(values.comp_mask, static_cast<uint32_t>(all));
  EXPECT_EQ(values.hwclock, 5000000000u);
  EXPECT_EQ(values.hwclock_ns, 5000000000u);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&values.clock_info, 5000000000), 5000000000u);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&values.clock_info, 5000001234), 5000001234u);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&values.clock_info, 4999999000), 4999999000u);
}

TEST_F(Device, AClockOfAnotherPaceIsConvertedToWithinAMillionth) {
  world.clock = 1000000;
  world.attributes.hca_core_clock = 156250;  // 6.4 ns a tick
  ibv_exp_values values{};
  ASSERT_EQ(ibv_exp_query_values(world.context(), IBV_EXP_VALUES_CLOCK_INFO, &values), 0);
  EXPECT_EQ(values.comp_mask, uint32_t{IBV_EXP_VALUES_CLOCK_INFO});
  const uint64_t at = ibv_exp_cqe_ts_to_ns(&values.clock_info, 1000000);
  const uint64_t later = ibv_exp_cqe_ts_to_ns(&values.clock_info, 1000000 + 156250000);  // a second
  EXPECT_NEAR(static_cast<double>(later - at), 1e9, 1e3);
}

TEST_F(Device, TimestampsBeforeAndAfterTheReferenceWrapWithTheMask) {
  ibv_exp_clock_info clock{.cycles = 10, .nsec = 1000, .frac = 0, .mask = 0xffff, .shift = 0,
                           .mult = 2, .comp_mask = 0};
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&clock, 15), 1010u);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&clock, 5), 990u);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&clock, 0xfffb), 970u);       // 15 before, across zero
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&clock, 0x1000a), 1000u);     // bits above the mask do not count
  clock.comp_mask = 1;
  errno = 0;
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(&clock, 15), 0u);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_exp_cqe_ts_to_ns(nullptr, 15), 0u);
}

TEST_F(Device, AClockThatCannotBeReadIsLacking) {
  ibv_exp_values values{};
  EXPECT_EQ(ibv_exp_query_values(world.context(), IBV_EXP_VALUES_HW_CLOCK, &values), ENOSYS);
  EXPECT_EQ(ibv_exp_query_values(world.context(), 0, &values), 0);
}

TEST_F(Device, FunctionsByNameAreTheOnesCalled) {
  EXPECT_EQ(ibv_exp_get_provider_func(world.context(), IBV_EXP_POST_SEND_FUNC),
            reinterpret_cast<void*>(ibv_exp_post_send));
  EXPECT_EQ(ibv_exp_get_provider_func(world.context(), IBV_EXP_POLL_CQ_FUNC),
            reinterpret_cast<void*>(ibv_exp_poll_cq));
  EXPECT_EQ(ibv_exp_get_provider_func(world.context(), IBV_POST_SEND_FUNC),
            reinterpret_cast<void*>(world.context()->ops.post_send));
  errno = 0;
  EXPECT_EQ(ibv_exp_get_provider_func(world.context(), IBV_POST_RECV_FUNC), nullptr);
  EXPECT_EQ(errno, ENOSYS);
}

TEST_F(Device, TheEnvironmentIsTheProcesss) {
  ASSERT_EQ(ibv_exp_setenv(world.context(), "KEYHOLE_EXP_TEST", "1", 1), 0);
  EXPECT_STREQ(getenv("KEYHOLE_EXP_TEST"), "1");
  unsetenv("KEYHOLE_EXP_TEST");
}

}  // namespace
