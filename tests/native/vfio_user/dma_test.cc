// SPDX-License-Identifier: BSD-2-Clause
//
// DMA_MAP and DMA_UNMAP as messages; what the table makes of them is in dma_table_test.cc.

#include <cerrno>

#include "fixture.h"

namespace keyhole::vfio_user {

TEST_F(ServerTest, MappedMemoryIsTheClientsMemory) {
  auto client = attach();
  Fd file = memory_file(4 * 4096);
  EXPECT_EQ(pwrite(file.get(), "keyhole", 7, 8192), 7);
  EXPECT_FALSE(
      ask(*client, Command::dma_map, map_payload(0x100000, 8192, 8192), {file.get()}).failed());
  std::byte* host = model.table.find(0x100000, 8192, DmaAccess::read_write);
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(std::memcmp(host, "keyhole", 7), 0);
  host[0] = std::byte{'K'};
  char seen = 0;
  EXPECT_EQ(pread(file.get(), &seen, 1, 8192), 1);
  EXPECT_EQ(seen, 'K');
}

TEST_F(ServerTest, UnmapAnswersWithTheEntryAfterTheModelLetGo) {
  auto client = attach();
  Fd file = memory_file(4096);
  ask(*client, Command::dma_map, map_payload(0x1000, 4096), {file.get()});
  uint64_t generation = model.table.generation();
  Answer answer = ask(*client, Command::dma_unmap, unmap_payload(0x1000, 4096));
  ASSERT_FALSE(answer.failed());
  EXPECT_EQ(answer.payload, unmap_payload(0x1000, 4096));
  EXPECT_EQ(model.table.count(), 0u);
  EXPECT_NE(model.table.generation(), generation);
}

TEST_F(ServerTest, UnmapAllRemovesEverything) {
  auto client = attach();
  Fd file = memory_file(4096);
  for (uint64_t i = 0; i < 10; ++i)
    ask(*client, Command::dma_map, map_payload(0x1000 * i, 4096), {file.get()});
  EXPECT_EQ(model.table.count(), 10u);
  EXPECT_FALSE(
      ask(*client, Command::dma_unmap, unmap_payload(0, 0, VFIO_DMA_UNMAP_FLAG_ALL)).failed());
  EXPECT_EQ(model.table.count(), 0u);
}

TEST_F(ServerTest, MalformedMapsAreRefusedAndTheirDescriptorsClosed) {
  auto client = attach();
  Fd file = memory_file(4 * 4096);
  size_t before = open_fds();
  auto refused = [&](const Bytes& payload, std::vector<int> fds) {
    return refusal(*client, Command::dma_map, payload, std::move(fds));
  };
  Bytes good = map_payload(0x1000, 4096);
  EXPECT_EQ(refused(Bytes(good.begin(), good.end() - 1), {file.get()}), EINVAL);  // short
  EXPECT_EQ(refused(good + Bytes(1), {file.get()}), EINVAL);                      // long
  EXPECT_EQ(refused({}, {file.get()}), EINVAL);
  EXPECT_EQ(refused(good, {file.get(), file.get()}), EINVAL);  // two descriptors
  EXPECT_EQ(refused(map_payload(0x1000, 0), {file.get()}), EINVAL);
  EXPECT_EQ(refused(map_payload(~0xfffull, 0x2000), {file.get()}), EINVAL);      // past 2^64
  EXPECT_EQ(refused(map_payload(0x1000, 4096, 0, 0), {file.get()}), EINVAL);     // neither r nor w
  EXPECT_EQ(refused(map_payload(0x1000, 4096, 0, 0x13), {file.get()}), EINVAL);  // unknown flag
  EXPECT_EQ(refused(map_payload(0x1000, 5 * 4096), {file.get()}), EINVAL);       // beyond the file
  EXPECT_EQ(refused(map_payload(0x1000, 4096, 4 * 4096), {file.get()}), EINVAL);
  EXPECT_EQ(refused(map_payload(0x1000, 4096, ~0xfffull), {file.get()}), EINVAL);
  EXPECT_EQ(refused(map_payload(0x1000, 4096, 1), {file.get()}), EINVAL);  // unaligned
  DmaMapPayload small{8, 3, 0, 0x1000, 4096};
  EXPECT_EQ(refused(bytes_of(small), {file.get()}), EINVAL);  // argsz
  EXPECT_EQ(model.table.count(), 0u);
  EXPECT_EQ(open_fds(), before);
}

TEST_F(ServerTest, AMapOverAnotherIsRefusedWithEexist) {
  auto client = attach();
  Fd file = memory_file(16 * 4096);
  ask(*client, Command::dma_map, map_payload(0x10000, 2 * 4096), {file.get()});
  for (uint64_t iova : {0xf000ull, 0x10000ull, 0x11000ull})
    EXPECT_EQ(refusal(*client, Command::dma_map, map_payload(iova, 2 * 4096), {file.get()}),
              EEXIST);
  EXPECT_EQ(refusal(*client, Command::dma_map, map_payload(0x12000, 4096), {file.get()}), 0);
}

TEST_F(ServerTest, MalformedUnmapsAreRefused) {
  auto client = attach();
  Fd file = memory_file(4 * 4096);
  ask(*client, Command::dma_map, map_payload(0x10000, 4 * 4096), {file.get()});
  auto refused = [&](const Bytes& payload) {
    return refusal(*client, Command::dma_unmap, payload);
  };
  EXPECT_EQ(refused({}), EINVAL);
  EXPECT_EQ(refused(unmap_payload(0x10000, 4 * 4096) + Bytes(8)), EINVAL);
  EXPECT_EQ(refused(unmap_payload(0x10000, 0)), EINVAL);
  EXPECT_EQ(refused(unmap_payload(0x10000, ~0ull)), EINVAL);
  EXPECT_EQ(refused(unmap_payload(0x10000, 4096)), EINVAL);  // a part of it
  EXPECT_EQ(refused(unmap_payload(0x11000, 4 * 4096)), EINVAL);
  EXPECT_EQ(refused(unmap_payload(0x90000, 4096)), ENOENT);
  EXPECT_EQ(refused(unmap_payload(0x10000, 4 * 4096, 1)), EINVAL);  // a dirty bitmap
  EXPECT_EQ(refused(unmap_payload(0x10000, 4 * 4096, 2)), EINVAL);  // all, and a range
  EXPECT_EQ(refused(bytes_of(DmaUnmapPayload{4, 0, 0x10000, 4 * 4096})), EINVAL);
  EXPECT_EQ(model.table.count(), 1u);
}

TEST_F(ServerTest, MapsAreGoneWithTheClient) {
  size_t before = open_fds();
  auto client = attach();
  Fd file = memory_file(4096);
  ask(*client, Command::dma_map, map_payload(0x1000, 4096), {file.get()});
  client->close();
  file.reset();
  pump();
  EXPECT_EQ(model.table.count(), 0u);
  EXPECT_EQ(open_fds(), before);
}

}  // namespace keyhole::vfio_user
