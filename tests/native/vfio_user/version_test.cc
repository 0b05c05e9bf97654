// SPDX-License-Identifier: BSD-2-Clause

#include <cerrno>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

// What QEMU 10.1 and later send.
const char* const qemu_capabilities =
    R"({"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, )"
    R"("max_dma_maps": 65535, "max_msg_fds": 16, "max_data_xfer_size": 1048576, )"
    R"("pgsizes": 4096, "write_multiple": true}})";

std::string reply_text(const Answer& answer) {
  EXPECT_GT(answer.payload.size(), sizeof(VersionPayload));
  EXPECT_EQ(answer.payload.back(), std::byte{0});
  return reinterpret_cast<const char*>(answer.payload.data() + sizeof(VersionPayload));
}

}  // namespace

TEST_F(ServerTest, QemusVersionIsAnsweredWithinItsBufferAndWithoutMigration) {
  auto client = connect();
  Bytes request = version_payload(qemu_capabilities);
  Answer answer = ask(*client, Command::version, request);
  ASSERT_FALSE(answer.failed());
  EXPECT_LE(answer.payload.size(), request.size());
  std::string text = reply_text(answer);
  for (const char* capability :
       {"max_dma_maps", "max_msg_fds", "max_data_xfer_size", "pgsizes", "write_multiple"})
    EXPECT_NE(text.find(capability), std::string::npos) << text;
  EXPECT_EQ(text.find("migration"), std::string::npos) << text;
  EXPECT_EQ(model.arrivals, 1);
}

TEST_F(ServerTest, NoCapabilityIsAnsweredThatWasNotProposed) {
  auto client = connect();
  Answer answer = ask(
      *client, Command::version,
      version_payload(R"({"capabilities":{"max_msg_fds":1,"twin_socket":{"supported":true}}})"));
  EXPECT_EQ(reply_text(answer), R"({"capabilities":{"max_msg_fds":16}})");
}

TEST_F(ServerTest, AVersionMayComeWithoutCapabilities) {
  auto client = connect();
  EXPECT_FALSE(ask(*client, Command::version, bytes_of(VersionPayload{0, 0})).failed());
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, ALaterMinorVersionIsAnsweredWithOurs) {
  auto client = connect();
  Answer answer = ask(*client, Command::version, version_payload("{}", 0, 5));
  EXPECT_EQ(value_at<VersionPayload>(answer.payload).minor, protocol_minor);
}

TEST_F(ServerTest, AnotherMajorVersionIsRefusedAndTheConnectionClosed) {
  auto client = connect();
  EXPECT_EQ(refusal(*client, Command::version, version_payload("{}", 1, 0)), ENOTSUP);
  EXPECT_TRUE(client->closed());
  EXPECT_EQ(model.arrivals, 0);
}

TEST_F(ServerTest, MalformedVersionsAreRefusedAndMayBeTriedAgain) {
  auto client = connect();
  const std::vector<Bytes> malformed = {
      {},
      Bytes(3),
      bytes_of(VersionPayload{}) + text_bytes("{}"),  // no NUL
      version_payload("{"),
      version_payload("[]"),
      version_payload("17"),
      version_payload(R"({"capabilities":[]})"),
      version_payload(R"({"capabilities":{"max_msg_fds":"many"}})"),
      version_payload(R"({"capabilities":{"max_msg_fds":-1}})"),
      version_payload(std::string(2000, '[')),
      version_payload("{\"\xff\xfe\":1}"),
      version_payload("{}" + std::string(8000, ' ')),
  };
  for (const Bytes& payload : malformed)
    EXPECT_EQ(refusal(*client, Command::version, payload), EINVAL) << payload.size();
  EXPECT_EQ(model.arrivals, 0);
  EXPECT_FALSE(ask(*client, Command::version, version_payload("{}")).failed());
}

TEST_F(ServerTest, NothingIsAnsweredBeforeTheVersion) {
  auto client = connect();
  DeviceInfoPayload info;
  info.argsz = sizeof info;
  EXPECT_EQ(refusal(*client, Command::device_get_info, bytes_of(info)), EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_reset, {}), EINVAL);
  EXPECT_EQ(model.resets, 0);
}

TEST_F(ServerTest, AVersionIsNegotiatedOnce) {
  auto client = attach();
  EXPECT_EQ(refusal(*client, Command::version, version_payload("{}")), EINVAL);
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, AClientThatTakesNoDescriptorsIsOfferedNoMapping) {
  auto client = connect();
  ask(*client, Command::version, version_payload(R"({"capabilities":{"max_msg_fds":0}})"));
  vfio_region_info info{};
  info.argsz = 4096;
  Answer answer = ask(*client, Command::device_get_region_info, bytes_of(info));
  EXPECT_TRUE(answer.fds.empty());
  EXPECT_EQ(value_at<vfio_region_info>(answer.payload).flags & VFIO_REGION_INFO_FLAG_MMAP, 0u);
}

}  // namespace keyhole::vfio_user
