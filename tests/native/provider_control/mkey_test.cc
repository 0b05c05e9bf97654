// SPDX-License-Identifier: BSD-2-Clause
//
// The direct verbs that speak to the kernel: what they ask of it, what they tell the application,
// and what they refuse. All by the names that libkeyhole exports.

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "buffer.h"
#include "fake_kernel.h"
#include "fast_path/fast_path.h"

namespace keyhole::test {
namespace {

class DirectVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    kernel = {};
    open();
  }
  void TearDown() override {
    close();
    EXPECT_EQ(kernel.alive(), 0);
    EXPECT_EQ(kernel.dontfork_ranges, 0);
  }
  void open(bool ours = true) {
    device.emplace(ours);
    pd = alloc_pd(device->context());
    cq = create_cq(device->context(), 100, nullptr, 0);
    ASSERT_TRUE(pd && cq);
  }
  void close() {
    EXPECT_EQ(destroy_cq(cq), 0);
    EXPECT_EQ(dealloc_pd(pd), 0);
    device.reset();
  }

  ibv_qp_init_attr_ex qp_attr(ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = type;
    attr.send_cq = attr.recv_cq = cq;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.cap = {.max_send_wr = 10,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return attr;
  }
  keyholedv_mkey_init_attr mkey_attr(uint32_t max_entries = 16, uint32_t access = 0) {
    keyholedv_mkey_init_attr attr{};
    attr.pd = pd;
    attr.max_entries = max_entries;
    attr.access = access;
    return attr;
  }
  void refuses(keyholedv_mkey_init_attr attr, int err) {
    errno = 0;
    EXPECT_EQ(keyholedv_create_mkey(&attr), nullptr);
    EXPECT_EQ(errno, err);
    EXPECT_EQ(kernel.live["mkey"], 0);
  }
  void refuses(ibv_qp_init_attr_ex attr, keyholedv_qp_init_attr dv, int err) {
    errno = 0;
    EXPECT_EQ(keyholedv_create_qp(device->context(), &attr, &dv), nullptr);
    EXPECT_EQ(errno, err);
    EXPECT_EQ(kernel.live["qp"], 0);
  }

  std::optional<Device> device;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
};

TEST_F(DirectVerbs, TheDeviceTellsWhatItHas) {
  keyholedv_context attr{};
  EXPECT_TRUE(keyholedv_is_supported(device->context()->device));
  ASSERT_EQ(keyholedv_query_device(device->context(), &attr), 0);
  EXPECT_EQ(attr.flags, uint64_t{KEYHOLEDV_CAP_INDIRECT_MKEY | KEYHOLEDV_CAP_MASKED_ATOMIC |
                                 KEYHOLEDV_CAP_NOP});
  EXPECT_EQ(attr.max_mkey_entries, uint32_t{KH_MAX_INDIRECT});
  EXPECT_EQ(attr.max_inline_entries, uint32_t{KH_MAX_INLINE_ENTRIES});
  EXPECT_EQ(attr.max_mkey_depth, uint32_t{KH_MAX_DEPTH});
  EXPECT_EQ(attr.max_klm_list, kernel.max_klm_list);
  attr.comp_mask = 1;
  EXPECT_EQ(keyholedv_query_device(device->context(), &attr), EINVAL);
  EXPECT_EQ(keyholedv_query_device(device->context(), nullptr), EINVAL);
  EXPECT_EQ(keyholedv_query_device(nullptr, &attr), EINVAL);
  EXPECT_FALSE(keyholedv_is_supported(nullptr));
}

TEST_F(DirectVerbs, AnOlderDriverHasNoneOfIt) {
  close();
  kernel.caps = 0;
  kernel.max_indirect = kernel.max_inline_entries = 0;
  kernel.max_klm_list = 0;
  open();
  keyholedv_context attr{};
  ASSERT_EQ(keyholedv_query_device(device->context(), &attr), 0);
  EXPECT_EQ(attr.flags, uint64_t{KEYHOLEDV_CAP_NOP});
  EXPECT_EQ(attr.max_mkey_entries, 0u);
  refuses(mkey_attr(), EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(keyholedv_alloc_klm_list(pd, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  keyholedv_qp_init_attr dv{};
  dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_LIST;
  refuses(qp_attr(), dv, EOPNOTSUPP);
  dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_NOP;
  auto good = qp_attr();
  ibv_qp* qp = keyholedv_create_qp(device->context(), &good, &dv);
  ASSERT_TRUE(qp);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, AnotherProvidersDeviceIsNotTouched) {
  close();
  open(false);
  keyholedv_context attr{};
  EXPECT_FALSE(keyholedv_is_supported(device->context()->device));
  EXPECT_EQ(keyholedv_query_device(device->context(), &attr), EOPNOTSUPP);
  refuses(mkey_attr(), EOPNOTSUPP);
  EXPECT_EQ(keyholedv_alloc_klm_list(pd, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  refuses(qp_attr(), {}, EOPNOTSUPP);

  ibv_qp_ex foreign{};
  foreign.qp_base.context = device->context();
  EXPECT_EQ(keyholedv_qp_ex_from_ibv_qp_ex(&foreign), nullptr);
  keyholedv_send_wr wr{}, *bad = nullptr;
  EXPECT_EQ(keyholedv_post_send(&foreign.qp_base, &wr, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(keyholedv_post_send(nullptr, &wr, &bad), EINVAL);
}

TEST_F(DirectVerbs, AnMkeyIsTheKernelsObjectAndHasItsKey) {
  auto attr = mkey_attr(1000, IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING);
  keyholedv_mkey* mkey = keyholedv_create_mkey(&attr);
  ASSERT_TRUE(mkey);
  EXPECT_EQ(mkey->lkey, 0x12300u);
  EXPECT_EQ(mkey->rkey, 0x12300u);
  EXPECT_EQ(kernel.mkey_pd, pd->handle);
  EXPECT_EQ(kernel.mkey_entries, 1000u);
  EXPECT_EQ(kernel.mkey_access, uint32_t{IBV_ACCESS_MW_BIND});
  EXPECT_EQ(kernel.live["mkey"], 1);

  kernel.failures["destroy_mkey"] = EBUSY;
  EXPECT_EQ(keyholedv_destroy_mkey(mkey), EBUSY);
  EXPECT_EQ(mkey->lkey, 0x12300u);
  EXPECT_EQ(keyholedv_destroy_mkey(mkey), 0);
  EXPECT_EQ(kernel.mkey_handle, 41u);
  EXPECT_EQ(keyholedv_destroy_mkey(nullptr), EINVAL);
}

TEST_F(DirectVerbs, EveryFieldThatTheKernelTellsOfAnMkeyIsPassedOn) {
  auto attr = mkey_attr();
  keyholedv_mkey* mkey = keyholedv_create_mkey(&attr);
  ASSERT_TRUE(mkey);
  kernel.mkey_attr = {.start = 0x1000000000001,
                      .length = 0x2000000000002,
                      .key = 3,
                      .access = 4,
                      .max_entries = 5,
                      .num_entries = 6,
                      .repeat_count = 7,
                      .windows = 8,
                      .valid = 1,
                      .depth = 2,
                      .reserved = {}};
  keyholedv_mkey_attr now;
  std::memset(&now, 0xff, sizeof(now));
  ASSERT_EQ(keyholedv_query_mkey(mkey, &now), 0);
  EXPECT_EQ(kernel.mkey_handle, 41u);
  EXPECT_EQ(now.start, 0x1000000000001u);
  EXPECT_EQ(now.length, 0x2000000000002u);
  EXPECT_EQ(now.access, 4u);
  EXPECT_EQ(now.max_entries, 5u);
  EXPECT_EQ(now.num_entries, 6u);
  EXPECT_EQ(now.repeat_count, 7u);
  EXPECT_EQ(now.windows, 8u);
  EXPECT_EQ(now.valid, 1);
  EXPECT_EQ(now.depth, 2);
  EXPECT_EQ(now.reserved[0] | now.reserved[1], 0);

  kernel.failures["query_mkey"] = EIO;
  now.windows = 99;
  EXPECT_EQ(keyholedv_query_mkey(mkey, &now), EIO);
  EXPECT_EQ(now.windows, 99u);
  EXPECT_EQ(keyholedv_query_mkey(nullptr, &now), EINVAL);
  EXPECT_EQ(keyholedv_query_mkey(mkey, nullptr), EINVAL);
  EXPECT_EQ(keyholedv_destroy_mkey(mkey), 0);
}

TEST_F(DirectVerbs, WhatNoMkeyCanBeIsRefused) {
  refuses(mkey_attr(0), EINVAL);
  refuses(mkey_attr(KH_MAX_INDIRECT + 1), EINVAL);
  refuses(mkey_attr(1, IBV_ACCESS_ZERO_BASED), EINVAL);
  refuses(mkey_attr(1, IBV_ACCESS_ON_DEMAND), EINVAL);
  refuses(mkey_attr(1, 1u << 31), EINVAL);
  auto attr = mkey_attr();
  attr.comp_mask = 1;
  refuses(attr, EINVAL);
  attr = mkey_attr();
  attr.pd = nullptr;
  refuses(attr, EINVAL);
  errno = 0;
  EXPECT_EQ(keyholedv_create_mkey(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = mkey_attr(KH_MAX_INDIRECT);
  keyholedv_mkey* largest = keyholedv_create_mkey(&attr);
  ASSERT_TRUE(largest);
  EXPECT_EQ(keyholedv_destroy_mkey(largest), 0);
}

TEST_F(DirectVerbs, AKlmListIsZeroedPagesOfItsOwnWithRoomForEitherKind) {
  const int ranges = kernel.dontfork_ranges;
  keyholedv_klm_list* list = keyholedv_alloc_klm_list(pd, 1000);
  ASSERT_TRUE(list);
  for (size_t i = 0; i < list->length; i++)
    ASSERT_EQ(static_cast<uint8_t*>(list->addr)[i], 0);
  EXPECT_EQ(list->max_entries, 1000u);
  EXPECT_EQ(list->length, 24000u);
  EXPECT_EQ(list->key, 0x45600u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(list->addr) % page_size(), 0u);
  EXPECT_EQ(kernel.list_addr, reinterpret_cast<uintptr_t>(list->addr));
  EXPECT_EQ(kernel.list_length, 24000u);
  EXPECT_EQ(kernel.dontfork_ranges, ranges + 1);
  std::memset(list->addr, 1, list->length);

  kernel.failures["destroy_klm_list"] = EBUSY;
  EXPECT_EQ(keyholedv_free_klm_list(list), EBUSY);
  std::memset(list->addr, 2, list->length);  // it is as it was
  EXPECT_EQ(keyholedv_free_klm_list(list), 0);
  EXPECT_EQ(kernel.list_handle, 42u);
  EXPECT_EQ(kernel.dontfork_ranges, ranges);
  EXPECT_EQ(keyholedv_free_klm_list(nullptr), EINVAL);
}

TEST_F(DirectVerbs, AKlmListHasEntriesAndNotMoreThanTheLimit) {
  for (const uint32_t count : {0u, uint32_t{KH_MAX_INDIRECT} + 1, 0xffffffffu}) {
    errno = 0;
    EXPECT_EQ(keyholedv_alloc_klm_list(pd, count), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  errno = 0;
  EXPECT_EQ(keyholedv_alloc_klm_list(nullptr, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  keyholedv_klm_list* list = keyholedv_alloc_klm_list(pd, KH_MAX_INDIRECT);
  ASSERT_TRUE(list);
  EXPECT_EQ(keyholedv_free_klm_list(list), 0);
  EXPECT_EQ(kernel.live["klm_list"], 0);
}

TEST_F(DirectVerbs, ASendQueueHoldsAllItsFillsInline) {
  auto attr = qp_attr();
  keyholedv_qp_init_attr dv{};
  dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_LIST;
  dv.max_inline_entries = 64;
  ibv_qp* qp = keyholedv_create_qp(device->context(), &attr, &dv);
  ASSERT_TRUE(qp);
  // 64 and 64 * 24 bytes are 25 blocks; ten of them need 256.
  EXPECT_EQ(kernel.qp.log_sq_blocks, 8);
  EXPECT_EQ(attr.cap.max_send_wr, 256u / 25);

  // And so they fit, of either kind.
  verbs::set_qp_state(verbs::qp_of(qp), IBV_QPS_RTS);
  std::vector<keyholedv_mr_interleaved> blocks(64);
  keyholedv_send_wr wr{};
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = IBV_SEND_INLINE;
  wr.fill.num_entries = 64;
  wr.fill.repeat_count = 2;
  wr.fill.interleaved = blocks.data();
  keyholedv_send_wr* bad = nullptr;
  for (uint32_t i = 0; i < attr.cap.max_send_wr; i++)
    ASSERT_EQ(keyholedv_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(keyholedv_post_send(qp, &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, MaskedAtomicsTakeTwoBlocksAndAFillFromAListOne) {
  keyholedv_qp_init_attr dv{};
  for (const auto& [flags, log_blocks] :
       {std::pair{KEYHOLEDV_QP_EX_WITH_MASKED_ATOMIC, 5}, {KEYHOLEDV_QP_EX_WITH_MR_LIST, 4}}) {
    dv.send_ops_flags = flags;
    auto attr = qp_attr();
    ibv_qp* qp = keyholedv_create_qp(device->context(), &attr, &dv);
    ASSERT_TRUE(qp);
    EXPECT_EQ(kernel.qp.log_sq_blocks, log_blocks);
    EXPECT_EQ(attr.cap.max_send_wr, 16u);
    EXPECT_EQ(destroy_qp(qp), 0);
  }
}

TEST_F(DirectVerbs, TheBuilderIsThereOnlyWhenItWasAskedFor) {
  keyholedv_qp_init_attr dv{};
  dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_LIST | KEYHOLEDV_QP_EX_WITH_INVALIDATE;
  auto attr = qp_attr();
  ibv_qp* qp = keyholedv_create_qp(device->context(), &attr, &dv);
  ASSERT_TRUE(qp);
  auto* ex = reinterpret_cast<ibv_qp_ex*>(qp);
  keyholedv_qp_ex* builder = keyholedv_qp_ex_from_ibv_qp_ex(ex);
  ASSERT_TRUE(builder);
  EXPECT_EQ(builder, &verbs::qp_of(qp).dv);
  EXPECT_EQ(verbs::qp_of(qp).verbs_comp_mask, uint32_t{VERBS_QP_EX});
  EXPECT_EQ(destroy_qp(qp), 0);

  // Not of a QP made by another call, nor without the flags.
  attr = qp_attr();
  qp = create_qp_ex(device->context(), &attr);
  ASSERT_TRUE(qp);
  EXPECT_EQ(keyholedv_qp_ex_from_ibv_qp_ex(reinterpret_cast<ibv_qp_ex*>(qp)), nullptr);
  EXPECT_EQ(destroy_qp(qp), 0);
  attr = qp_attr();
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  qp = keyholedv_create_qp(device->context(), &attr, nullptr);
  ASSERT_TRUE(qp);
  EXPECT_EQ(keyholedv_qp_ex_from_ibv_qp_ex(reinterpret_cast<ibv_qp_ex*>(qp)), nullptr);
  EXPECT_EQ(keyholedv_qp_ex_from_ibv_qp_ex(nullptr), nullptr);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, AnyRcQpPostsFillsHoweverItWasMade) {
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = 10;
  attr.cap.max_send_sge = 1;
  ibv_qp* qp = create_qp(pd, &attr);
  ASSERT_TRUE(qp);
  verbs::set_qp_state(verbs::qp_of(qp), IBV_QPS_RTS);
  ibv_sge sge{};
  keyholedv_send_wr wr{}, *bad = nullptr;
  wr.opcode = KEYHOLEDV_WR_FILL;
  wr.send_flags = IBV_SEND_INLINE;
  wr.fill.num_entries = 1;
  wr.fill.list = &sge;
  EXPECT_EQ(keyholedv_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, WhatAQpCannotBeIsRefused) {
  keyholedv_qp_init_attr dv{};
  dv.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_LIST;
  auto attr = qp_attr();
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;  // a builder call without the others
  refuses(attr, dv, EINVAL);
  refuses(qp_attr(IBV_QPT_UC), dv, EOPNOTSUPP);
  refuses(qp_attr(IBV_QPT_UD), dv, EOPNOTSUPP);
  dv.send_ops_flags = 1 << 5;
  refuses(qp_attr(), dv, EOPNOTSUPP);
  dv = {};
  dv.comp_mask = 1;
  refuses(qp_attr(), dv, EINVAL);
  dv = {};
  dv.reserved = 1;
  refuses(qp_attr(), dv, EINVAL);
  dv = {};
  dv.max_inline_entries = KH_MAX_INLINE_ENTRIES + 1;
  refuses(qp_attr(), dv, EINVAL);
  dv.max_inline_entries = 1;
  refuses(qp_attr(IBV_QPT_UD), dv, EINVAL);
  dv.max_inline_entries = 64;
  attr = qp_attr();
  attr.cap.max_send_wr = 10000;  // 250,000 blocks
  refuses(attr, dv, EINVAL);
  attr = qp_attr();
  errno = 0;
  EXPECT_EQ(keyholedv_create_qp(nullptr, &attr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(keyholedv_create_qp(device->context(), nullptr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace keyhole::test
