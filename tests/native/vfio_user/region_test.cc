// SPDX-License-Identifier: BSD-2-Clause
//
// What regions the device has, loads and stores in them, and device reset.

#include <sys/mman.h>

#include <cerrno>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

Bytes info_request(uint32_t index, uint32_t argsz = sizeof(vfio_region_info)) {
  vfio_region_info info{};
  info.argsz = argsz;
  info.index = index;
  return bytes_of(info);
}

}  // namespace

TEST_F(ServerTest, DeviceInfoTellsOfAPciDeviceThatCanBeReset) {
  auto client = attach();
  DeviceInfoPayload request;
  request.argsz = sizeof request;
  auto info = value_at<DeviceInfoPayload>(
      ask(*client, Command::device_get_info, bytes_of(request)).payload);
  EXPECT_EQ(info.flags, uint32_t{VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET});
  EXPECT_EQ(info.num_regions, 9u);
  EXPECT_EQ(info.num_irqs, 5u);

  request.argsz = 15;
  EXPECT_EQ(refusal(*client, Command::device_get_info, bytes_of(request)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_info, {}), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_info, Bytes(17, std::byte{32})), EINVAL);
}

TEST_F(ServerTest, AMappableRegionComesWithItsDescriptorAndAreas) {
  auto client = attach();
  // Without room for the areas: how much is needed, and an offset that QEMU accepts.
  Answer first = ask(*client, Command::device_get_region_info, info_request(0));
  auto info = value_at<vfio_region_info>(first.payload);
  EXPECT_EQ(first.payload.size(), sizeof info);
  EXPECT_EQ(info.argsz, sizeof info + 16 + 2 * 16);
  EXPECT_EQ(info.cap_offset, sizeof info);
  EXPECT_TRUE(first.fds.empty());

  Answer second = ask(*client, Command::device_get_region_info, info_request(0, info.argsz));
  info = value_at<vfio_region_info>(second.payload);
  EXPECT_EQ(info.flags, uint32_t{VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE |
                                 VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS});
  EXPECT_EQ(info.size, bar0_size);
  EXPECT_EQ(info.offset, 0u);
  ASSERT_EQ(second.payload.size(), info.argsz);
  auto capability = value_at<vfio_info_cap_header>(second.payload, info.cap_offset);
  EXPECT_EQ(capability.id, VFIO_REGION_INFO_CAP_SPARSE_MMAP);
  EXPECT_EQ(capability.version, 1);
  EXPECT_EQ(capability.next, 0u);
  EXPECT_EQ(value_at<uint32_t>(second.payload, 40), 2u);
  EXPECT_EQ(value_at<uint64_t>(second.payload, 48), 4096u);
  EXPECT_EQ(value_at<uint64_t>(second.payload, 56), 2 * 4096u);
  EXPECT_EQ(value_at<uint64_t>(second.payload, 64), 5 * 4096u);
  EXPECT_EQ(value_at<uint64_t>(second.payload, 72), 3 * 4096u);

  // The client's mapping is the server's memory, and the client cannot make it smaller.
  ASSERT_EQ(second.fds.size(), 1u);
  EXPECT_NE(ftruncate(second.fds[0].get(), 0), 0);
  void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, second.fds[0].get(), 4096);
  ASSERT_NE(mapped, MAP_FAILED);
  static_cast<char*>(mapped)[17] = 'x';
  EXPECT_EQ(doorbells->bytes()[4096 + 17], std::byte{'x'});
  munmap(mapped, 8192);
}

TEST_F(ServerTest, ARegionWithoutMemoryHasNoDescriptorAndAnAbsentOneNoSize) {
  auto client = attach();
  Answer trapped = ask(*client, Command::device_get_region_info, info_request(2));
  EXPECT_TRUE(trapped.fds.empty());
  EXPECT_EQ(value_at<vfio_region_info>(trapped.payload).flags,
            uint32_t{VFIO_REGION_INFO_FLAG_READ});
  for (uint32_t index : {1, 3, 4, 5, 6, 8}) {
    Answer absent = ask(*client, Command::device_get_region_info, info_request(index));
    EXPECT_EQ(value_at<vfio_region_info>(absent.payload).size, 0u);
    EXPECT_EQ(value_at<vfio_region_info>(absent.payload).flags, 0u);
  }
}

TEST_F(ServerTest, MalformedRegionInfoRequestsAreRefused) {
  auto client = attach();
  EXPECT_EQ(refusal(*client, Command::device_get_region_info, info_request(9)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_region_info, info_request(~0u)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_region_info, info_request(0, 31)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_region_info, Bytes(31)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_region_info, info_request(0) + Bytes(4)), EINVAL);
}

TEST_F(ServerTest, NoPartOfARegionIsServedByAnEventfd) {
  auto client = attach();
  Answer answer =
      ask(*client, Command::device_get_region_io_fds, bytes_of(RegionIoFdsPayload{16, 0, 0, 0}));
  EXPECT_EQ(value_at<RegionIoFdsPayload>(answer.payload).count, 0u);
  EXPECT_EQ(value_at<RegionIoFdsPayload>(answer.payload).argsz, 16u);
  EXPECT_TRUE(answer.fds.empty());
  for (RegionIoFdsPayload bad : {RegionIoFdsPayload{15, 0, 0, 0}, RegionIoFdsPayload{16, 1, 0, 0},
                                 RegionIoFdsPayload{16, 0, 9, 0}, RegionIoFdsPayload{16, 0, 0, 1}})
    EXPECT_EQ(refusal(*client, Command::device_get_region_io_fds, bytes_of(bad)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_region_io_fds, Bytes(8)), EINVAL);
}

TEST_F(ServerTest, WhatIsWrittenToATrappedRegisterReachesTheModelAndIsReadBack) {
  auto client = attach();
  Bytes data = text_bytes("01234567");
  Answer written = ask(*client, Command::region_write, access_payload(0, 0x10, 8) + data);
  EXPECT_EQ(written.payload, access_payload(0, 0x10, 8));
  ASSERT_EQ(model.writes.size(), 1u);
  EXPECT_EQ(model.writes[0].region, 0u);
  EXPECT_EQ(model.writes[0].offset, 0x10u);
  EXPECT_EQ(model.writes[0].data, data);
  Answer read = ask(*client, Command::region_read, access_payload(0, 0x10, 8));
  EXPECT_EQ(read.payload, access_payload(0, 0x10, 8) + data);
}

TEST_F(ServerTest, AnAccessToMappableMemoryByMessageGoesToTheMemory) {
  auto client = attach();
  for (uint32_t size : {1, 2, 4, 8, 3, 100}) {
    Bytes data(size, std::byte{0xa5});
    ask(*client, Command::region_write, access_payload(0, 4096, size) + data);
    EXPECT_EQ(std::memcmp(doorbells->data() + 4096, data.data(), size), 0);
    Answer read = ask(*client, Command::region_read, access_payload(0, 4096, size));
    EXPECT_EQ(read.payload, access_payload(0, 4096, size) + data);
    std::memset(doorbells->data(), 0, bar0_size);
  }
  EXPECT_TRUE(model.writes.empty());
  // One that reaches into a trapped page is the model's.
  ask(*client, Command::region_write, access_payload(0, 3 * 4096 - 4, 8) + Bytes(8));
  EXPECT_EQ(model.writes.size(), 1u);
}

TEST_F(ServerTest, AccessesOutsideARegionAreRefused) {
  auto client = attach();
  auto read = [&](uint32_t region, uint64_t offset, uint32_t count) {
    return refusal(*client, Command::region_read, access_payload(region, offset, count));
  };
  EXPECT_EQ(read(0, bar0_size - 4, 4), 0);
  EXPECT_EQ(read(0, bar0_size - 4, 8), EINVAL);
  EXPECT_EQ(read(0, bar0_size, 1), EINVAL);
  EXPECT_EQ(read(0, ~0ull, 8), EINVAL);
  EXPECT_EQ(read(0, ~0ull - 3, 4), EINVAL);
  EXPECT_EQ(read(0, 0, 0), EINVAL);
  EXPECT_EQ(read(0, 0, ~0u), EINVAL);
  EXPECT_EQ(read(1, 0, 4), EINVAL);  // absent
  EXPECT_EQ(read(9, 0, 4), EINVAL);
  EXPECT_EQ(read(~0u, 0, 4), EINVAL);
  EXPECT_EQ(refusal(*client, Command::region_write, access_payload(0, bar0_size - 4, 8) + Bytes(8)),
            EINVAL);
  EXPECT_EQ(refusal(*client, Command::region_write, access_payload(2, 0, 4) + Bytes(4)), EPERM);
  EXPECT_TRUE(model.writes.empty());
}

TEST_F(ServerTest, AWriteWhoseDataIsNotAsLongAsItSaysIsRefused) {
  auto client = attach();
  for (size_t size : {0, 3, 5, 4096})
    EXPECT_EQ(refusal(*client, Command::region_write, access_payload(0, 0, 4) + Bytes(size)),
              EINVAL);
  EXPECT_EQ(refusal(*client, Command::region_write, Bytes(8)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::region_read, access_payload(0, 0, 4) + Bytes(4)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::region_read, Bytes(15)), EINVAL);
  EXPECT_TRUE(model.writes.empty());
}

TEST_F(ServerTest, TheModelsErrorIsTheReplysError) {
  auto client = attach();
  model.refuse = EIO;
  EXPECT_EQ(refusal(*client, Command::region_read, access_payload(0, 0, 4)), EIO);
  model.refuse = EBUSY;
  EXPECT_EQ(refusal(*client, Command::region_write, access_payload(0, 0, 4) + Bytes(4)), EBUSY);
}

TEST_F(ServerTest, APostedWriteIsDoneAndNotAnswered) {
  auto client = attach();
  client->send(Command::region_write, access_payload(0, 0, 4) + Bytes(4), {}, flag_no_reply);
  client->send(Command::region_write, access_payload(0, bar0_size, 4) + Bytes(4), {},
               flag_no_reply);  // refused, in silence
  uint16_t last = client->send(Command::region_read, access_payload(0, 0, 4));
  pump();
  EXPECT_EQ(model.writes.size(), 1u);
  auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.id, last);
  EXPECT_FALSE(client->receive());
}

TEST_F(ServerTest, CoalescedWritesAreDoneInOrder) {
  auto client = attach();
  auto one = [](uint64_t offset, uint32_t count, char fill) {
    RegionWriteOne w;
    w.access = {offset, 0, count};
    std::memset(w.data, fill, sizeof w.data);
    return bytes_of(w);
  };
  Answer answer = ask(*client, Command::region_write_multi,
                      bytes_of(uint64_t{3}) + one(0, 8, 'a') + one(0, 4, 'b') + one(12, 1, 'c'));
  EXPECT_EQ(value_at<uint64_t>(answer.payload), 3u);
  ASSERT_EQ(model.writes.size(), 3u);
  EXPECT_EQ(model.writes[1].data, text_bytes("bbbb"));
  EXPECT_EQ(model.writes[2].data, text_bytes("c"));

  model.writes.clear();
  auto refused = [&](const Bytes& payload) {
    return refusal(*client, Command::region_write_multi, payload);
  };
  EXPECT_EQ(refused({}), EINVAL);
  EXPECT_EQ(refused(bytes_of(uint64_t{2}) + one(0, 4, 'a')), EINVAL);
  EXPECT_EQ(refused(bytes_of(~uint64_t{0}) + one(0, 4, 'a')), EINVAL);
  EXPECT_EQ(refused(bytes_of(uint64_t{1}) + one(0, 4, 'a') + Bytes(1)), EINVAL);
  EXPECT_EQ(refused(bytes_of(uint64_t{2}) + one(0, 4, 'a') + one(0, 9, 'a')), EINVAL);
  EXPECT_EQ(refused(bytes_of(uint64_t{2}) + one(0, 4, 'a') + one(bar0_size, 4, 'a')), EINVAL);
  EXPECT_TRUE(model.writes.empty());
}

TEST_F(ServerTest, ATransferOfTheAgreedMaximumFits) {
  auto client = attach();
  Bytes data(bar0_size, std::byte{7});
  Header header{1, static_cast<uint16_t>(Command::region_write),
                static_cast<uint32_t>(32 + data.size()), 0, 0};
  client->send_raw(bytes_of(header) + access_payload(0, 0, bar0_size) + data);
  pump();
  EXPECT_FALSE(client->receive()->failed());
  ASSERT_EQ(model.writes.size(), 1u);
  EXPECT_EQ(model.writes[0].data, data);
}

TEST_F(ServerTest, ResetReachesTheModel) {
  auto client = attach();
  EXPECT_TRUE(ask(*client, Command::device_reset, {}).payload.empty());
  EXPECT_EQ(model.resets, 1);
  EXPECT_EQ(refusal(*client, Command::device_reset, Bytes(4)), EINVAL);
  EXPECT_EQ(model.resets, 1);
}

TEST_F(ServerTest, ARegionThatContradictsItselfIsABugOfTheOwner) {
  auto with = [&](Region region) {
    ServerOptions options;
    options.socket_path = directory + "/other";
    options.regions = {std::move(region)};
    EXPECT_THROW((void)Server::listen(options, model, *this), std::invalid_argument);
  };
  with(Region{9, 4096, true, true, nullptr, {}});
  with(Region{0, 4096, true, true, nullptr, {{0, 4096}}});
  with(Region{0, 4096, true, true, doorbells, {}});
  with(Region{0, bar0_size, true, true, doorbells, {{100, 4096}}});
  with(Region{0, bar0_size, true, true, doorbells, {{bar0_size, 4096}}});
  with(Region{0, bar0_size, true, true, doorbells, {{4096, ~0xfffull}}});
}

}  // namespace keyhole::vfio_user
