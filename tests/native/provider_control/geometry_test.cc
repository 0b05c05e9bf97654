// SPDX-License-Identifier: BSD-2-Clause
//
// The arithmetic of queue sizes: what is returned is at least what was asked, is true, and fits.

#include "geometry.h"

#include <gtest/gtest.h>

namespace keyhole {
namespace {

constexpr QueueLimits kLimits{.max_send_sge = KH_MAX_SGE,
                              .max_recv_sge = KH_MAX_SGE,
                              .max_inline = KH_MAX_INLINE,
                              .max_send_blocks = 1 << 16,
                              .max_recv_wr = 1 << 15};
constexpr uint32_t kRcHead = 32, kUdHead = 64;

uint64_t blocks_of(uint32_t head, uint64_t data) { return (head + data + 63) / 64; }

TEST(Geometry, ASmallSendQueueIsOneBlockARequest) {
  const auto g = send_geometry(1, 1, 0, kRcHead, kLimits);
  ASSERT_TRUE(g);
  EXPECT_TRUE(g->present);
  EXPECT_EQ(g->log_blocks, 0);
  EXPECT_EQ(g->max_wr, 1u);
  EXPECT_EQ(g->max_sge, 2u);
  EXPECT_EQ(g->max_inline, 32u);
}

TEST(Geometry, AUdRequestHasALongerHead) {
  const auto g = send_geometry(10, 1, 0, kUdHead, kLimits);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->log_blocks, 5);  // 10 * 2 blocks
  EXPECT_EQ(g->max_wr, 16u);
  EXPECT_EQ(g->max_sge, 4u);
}

TEST(Geometry, NoSendRequestsMeansNoSendQueue) {
  const auto g = send_geometry(0, 4, 0, kRcHead, kLimits);
  ASSERT_TRUE(g);
  EXPECT_FALSE(g->present);
  EXPECT_EQ(g->max_wr, 0u);
}

TEST(Geometry, WhatIsReturnedIsAtLeastWhatWasAskedAndAlwaysFits) {
  for (const uint32_t head : {kRcHead, kUdHead}) {
    for (const uint32_t wr : {1u, 2u, 3u, 7u, 64u, 100u, 1000u, 1820u}) {
      for (uint32_t sge = 0; sge <= KH_MAX_SGE; sge++) {
        for (const uint32_t data : {0u, 1u, 31u, 32u, 33u, 64u, 512u, 1000u, 1024u}) {
          const auto g = send_geometry(wr, sge, data, head, kLimits);
          ASSERT_TRUE(g) << wr << " " << sge << " " << data;
          ASSERT_GE(g->max_wr, wr);
          ASSERT_GE(g->max_sge, sge);
          ASSERT_GE(g->max_inline, data);
          ASSERT_LE(g->max_sge, kLimits.max_send_sge);
          ASSERT_LE(g->max_inline, kLimits.max_inline);
          const uint64_t ring = uint64_t{1} << g->log_blocks;
          ASSERT_LE(g->max_wr * blocks_of(head, g->max_sge * 16), ring);
          ASSERT_LE(g->max_wr * blocks_of(head, g->max_inline), ring);
          ASSERT_LE(blocks_of(head, std::max(g->max_sge * 16, g->max_inline)), KH_MAX_WQE_BLOCKS);
        }
      }
    }
  }
}

TEST(Geometry, ReturnedCapabilitiesGiveTheSameQueueWhenAskedAgain) {
  for (const uint32_t wr : {1u, 5u, 100u}) {
    for (const uint32_t sge : {0u, 1u, 5u, 32u}) {
      const auto once = send_geometry(wr, sge, 40, kRcHead, kLimits);
      ASSERT_TRUE(once);
      const auto twice =
          send_geometry(once->max_wr, once->max_sge, once->max_inline, kRcHead, kLimits);
      ASSERT_TRUE(twice);
      EXPECT_EQ(once->log_blocks, twice->log_blocks);
      EXPECT_EQ(once->max_wr, twice->max_wr);
      EXPECT_EQ(once->max_sge, twice->max_sge);
    }
  }
}

TEST(Geometry, MoreThanTheDeviceHasIsEinval) {
  EXPECT_EQ(send_geometry(1, KH_MAX_SGE + 1, 0, kRcHead, kLimits).error(), EINVAL);
  EXPECT_EQ(send_geometry(1, 1, KH_MAX_INLINE + 1, kRcHead, kLimits).error(), EINVAL);
  EXPECT_EQ(send_geometry((1 << 16) + 1, 1, 0, kRcHead, kLimits).error(), EINVAL);
  EXPECT_EQ(send_geometry(UINT32_MAX, KH_MAX_SGE, KH_MAX_INLINE, kUdHead, kLimits).error(), EINVAL);
  EXPECT_EQ(recv_geometry((1 << 15) + 1, 1, kLimits).error(), EINVAL);
  EXPECT_EQ(recv_geometry(1, KH_MAX_SGE + 1, kLimits).error(), EINVAL);
  EXPECT_EQ(recv_geometry(UINT32_MAX, UINT32_MAX, kLimits).error(), EINVAL);
}

TEST(Geometry, TheDevicesWholeSendQueueCanBeHad) {
  const auto g = send_geometry(1 << 16, 2, 32, kRcHead, kLimits);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->log_blocks, 16);
  EXPECT_EQ(g->max_wr, 1u << 16);
}

TEST(Geometry, AReceiveStrideHoldsItsEntriesAndIsWithinTheContract) {
  for (uint32_t sge = 0; sge <= KH_MAX_SGE; sge++) {
    const auto g = recv_geometry(100, sge, kLimits);
    ASSERT_TRUE(g);
    EXPECT_GE(g->max_sge, sge);
    EXPECT_LE(16 + 16 * g->max_sge, 1u << g->log_stride);
    EXPECT_GE(g->log_stride, kMinLogStride);
    EXPECT_LE(g->log_stride, kMaxLogStride);
    EXPECT_EQ(g->max_wr, 128u);
    EXPECT_EQ(g->log_size, 7);
  }
}

TEST(Geometry, PartsOfAQueueDoNotOverlapAndAreAligned) {
  for (const uint32_t wr : {0u, 1u, 3u, 300u}) {
    for (const uint32_t sge : {1u, 9u, 32u}) {
      const auto send = send_geometry(wr, sge, 0, kRcHead, kLimits);
      const auto recv = recv_geometry(wr * 2, sge, kLimits);
      ASSERT_TRUE(send && recv);
      const auto l = qp_layout(*send, *recv, 4096);
      ASSERT_TRUE(l);
      const uint64_t sq_end = send->present ? 64ull << send->log_blocks : 0;
      const uint64_t rq_bytes = recv->present ? 1ull << (recv->log_size + recv->log_stride) : 0;
      EXPECT_GE(l->rq_offset, sq_end);
      EXPECT_EQ(l->rq_offset % (1u << recv->log_stride), 0u);
      EXPECT_GE(l->db_offset, l->rq_offset + rq_bytes);
      EXPECT_EQ(l->db_offset % 64, 0u);
      EXPECT_GE(l->length, l->db_offset + sizeof(kh_qp_db));
      EXPECT_EQ(l->length % 4096, 0u);
    }
  }
}

TEST(Geometry, ACompletionQueueHasAtLeastTwoEntriesAndAPowerOfTwo) {
  EXPECT_EQ(*cq_log_size(1), 1);
  EXPECT_EQ(*cq_log_size(2), 1);
  EXPECT_EQ(*cq_log_size(3), 2);
  EXPECT_EQ(*cq_log_size(1 << 22), 22);
  EXPECT_EQ(cq_log_size(0).error(), EINVAL);
  EXPECT_EQ(cq_log_size(-1).error(), EINVAL);
  EXPECT_EQ(cq_log_size((1 << 22) + 1).error(), EINVAL);
  EXPECT_EQ(cq_log_size(INT32_MAX).error(), EINVAL);
}

TEST(Geometry, AQueueLongerThanAnOffsetCanSayIsRefused) {
  EXPECT_EQ(lay_out(uint64_t{1} << 32, 0, 64, 64, 4096).error(), EINVAL);
  EXPECT_EQ(lay_out(0, (uint64_t{1} << 32) - 64, 64, 64, 4096).error(), EINVAL);
}

}  // namespace
}  // namespace keyhole
