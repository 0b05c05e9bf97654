// SPDX-License-Identifier: BSD-2-Clause
//
// Bytes, boundaries and connections: what does not depend on what a message means.

#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

// While it lives, this process can open no further descriptor.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit_), 0);
    rlimit tight{64, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (Fd fd(dup(0)); fd; fd = Fd(dup(0)))
      all_.push_back(std::move(fd));
  }
  ~NoDescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &limit_); }

 private:
  rlimit limit_{};
  std::vector<Fd> all_;
};

}  // namespace

TEST_F(ServerTest, AMessageThatArrivesByteByByteIsAnsweredOnce) {
  auto client = attach();
  DeviceInfoPayload info;
  info.argsz = sizeof info;
  Header header{7, static_cast<uint16_t>(Command::device_get_info), 32, 0, 0};
  Bytes message = bytes_of(header) + bytes_of(info);
  for (size_t i = 0; i < message.size(); ++i) {
    EXPECT_FALSE(client->receive());
    client->send_raw(std::span(message).subspan(i, 1));
    pump();
  }
  auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.id, 7);
  EXPECT_FALSE(answer->failed());
  EXPECT_FALSE(client->receive());
}

TEST_F(ServerTest, PipelinedMessagesAreAnsweredInOrder) {
  auto client = attach();
  std::vector<uint16_t> ids;
  for (uint32_t i = 0; i < 200; ++i)
    ids.push_back(client->send(Command::region_read, access_payload(0, 8 * (i % 100), 8)));
  pump();
  for (uint16_t id : ids) {
    auto answer = client->receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.id, id);
    EXPECT_FALSE(answer->failed());
  }
}

TEST_F(ServerTest, TwoMessagesInOneWriteAreTwoMessages) {
  auto client = attach();
  Header header{1, static_cast<uint16_t>(Command::device_reset), 16, 0, 0};
  client->send_raw(bytes_of(header) + bytes_of(header));
  pump();
  EXPECT_TRUE(client->receive());
  EXPECT_TRUE(client->receive());
  EXPECT_EQ(model.resets, 2);
}

TEST_F(ServerTest, OneTurnDoesABoundedAmountOfWork) {
  auto client = attach();
  for (int i = 0; i < 100; ++i)
    client->send(Command::device_reset, {});
  for (auto [fd, interest] : std::map(watched))
    server->on_ready(fd);
  EXPECT_GT(model.resets, 0);
  EXPECT_LT(model.resets, 100);
  pump();
  EXPECT_EQ(model.resets, 100);
}

TEST_F(ServerTest, DescriptorsBelongToTheMessageTheyCameWith) {
  auto client = attach();
  Fd small = memory_file(4096);
  Fd large = memory_file(8 * 4096);
  // Both at once on the socket; only the second file is big enough for the second map.
  client->send(Command::dma_map, map_payload(0x10000, 4096), {small.get()});
  client->send(Command::dma_map, map_payload(0x20000, 8 * 4096), {large.get()});
  client->send(Command::dma_map, map_payload(0x30000, 4096));
  pump();
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(client->receive()->failed());
  EXPECT_NE(model.table.find(0x10000, 4096, DmaAccess::read_write), nullptr);
  EXPECT_NE(model.table.find(0x20000, 8 * 4096, DmaAccess::read_write), nullptr);
  EXPECT_EQ(model.table.find(0x30000, 4096, DmaAccess::read_write), nullptr);
}

TEST_F(ServerTest, ADescriptorMayComeWithALaterPartOfItsMessage) {
  auto client = attach();
  Fd file = memory_file(4096);
  Header header{1, static_cast<uint16_t>(Command::dma_map), 48, 0, 0};
  Bytes message = bytes_of(header) + map_payload(0x10000, 4096);
  client->send_raw(std::span(message).first(20));
  pump();
  client->send_raw(std::span(message).subspan(20), {file.get()});
  pump();
  EXPECT_FALSE(client->receive()->failed());
  EXPECT_NE(model.table.find(0x10000, 4096, DmaAccess::read_write), nullptr);
}

TEST_F(ServerTest, DescriptorsWithACommandThatTakesNoneAreRefusedAndClosed) {
  auto client = attach();
  Fd file = memory_file(4096);
  size_t before = open_fds();
  EXPECT_EQ(refusal(*client, Command::device_reset, {}, {file.get(), file.get()}), EINVAL);
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(model.resets, 0);
}

TEST_F(ServerTest, MoreDescriptorsThanAgreedAreRefusedAndClosed) {
  auto client = attach();
  Fd event = event_fd();
  size_t before = open_fds();
  std::vector<int> fds(100, event.get());
  EXPECT_EQ(refusal(*client, Command::dma_map, map_payload(0, 4096), fds), E2BIG);
  // Spread over the bytes of one message, too.
  Header header{1, static_cast<uint16_t>(Command::dma_map), 48, 0, 0};
  Bytes message = bytes_of(header) + map_payload(0x1000, 4096);
  for (size_t i = 0; i < message.size(); ++i) {
    client->send_raw(std::span(message).subspan(i, 1), {event.get()});
    pump();
  }
  EXPECT_EQ(client->receive()->header.error, uint32_t{E2BIG});
  EXPECT_EQ(open_fds(), before);
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, DescriptorsOfAMessageThatNeverCompletesAreClosedWithTheConnection) {
  size_t before = open_fds();
  {
    auto client = attach();
    Fd file = memory_file(4096);
    Header header{1, static_cast<uint16_t>(Command::dma_map), 48, 0, 0};
    client->send_raw(bytes_of(header), {file.get()});
    pump();
  }
  pump();
  EXPECT_FALSE(server->has_client());
  EXPECT_EQ(open_fds(), before);
}

TEST_F(ServerTest, ASizeSmallerThanAHeaderDropsTheConnection) {
  for (uint32_t size : {0u, 1u, 15u}) {
    auto client = attach();
    client->send(Command::device_reset, {}, {}, 0, size);
    pump();
    EXPECT_TRUE(client->closed());
    EXPECT_FALSE(server->has_client());
  }
  EXPECT_EQ(model.resets, 0);
  EXPECT_EQ(model.departures, 3);
}

TEST_F(ServerTest, AMessageOverTheLimitIsSkippedAndTheNextIsUnderstood) {
  auto client = attach();
  Bytes huge(3 << 20);
  // More than the socket takes at once: pump while sending.
  Header header{9, static_cast<uint16_t>(Command::region_write),
                static_cast<uint32_t>(16 + huge.size()), 0, 0};
  client->send_raw(bytes_of(header));
  for (size_t sent = 0; sent < huge.size(); sent += 65536) {
    client->send_raw(std::span(huge).subspan(sent, 65536));
    pump();
  }
  auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.id, 9);
  EXPECT_EQ(answer->header.error, uint32_t{E2BIG});
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, UnknownCommandsAreNotSupported) {
  auto client = attach();
  for (uint16_t command : {0, 11, 12, 14, 16, 17, 18, 19, 99, 0xffff})
    EXPECT_EQ(refusal(*client, static_cast<Command>(command), Bytes(32)), ENOTSUP) << command;
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, AMessageOfUnknownTypeIsRefused) {
  auto client = attach();
  client->send(Command::device_reset, {}, {}, 2);
  pump();
  EXPECT_EQ(client->receive()->header.error, uint32_t{EINVAL});
  EXPECT_EQ(model.resets, 0);
}

TEST_F(ServerTest, AReplyToNothingIsIgnored) {
  auto client = attach();
  client->send(Command::dma_read, Bytes(32), {}, type_reply);
  pump();
  EXPECT_FALSE(client->receive());
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, AClientThatReadsNoRepliesIsNotReadFromUntilItDoes) {
  auto client = attach();
  // Each asks for more than a socket buffers; the replies pile up on the server's side.
  constexpr uint32_t count = 20;
  for (uint32_t i = 0; i < count; ++i)
    client->send(Command::region_read, access_payload(region_config, 0, 4096));
  for (uint32_t i = 0; i < 2000; ++i) {
    Header header{1, static_cast<uint16_t>(Command::region_read), 32, 0, 0};
    Bytes message = bytes_of(header) + access_payload(region_config, 0, 4096);
    if (send(client->fd(), message.data(), message.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message.size()))
      break;
    pump();
  }
  bool reading = true;
  for (auto [fd, interest] : watched)
    reading = reading && interest.readable;
  EXPECT_FALSE(reading);

  int replies = 0;
  for (int i = 0; i < 5000; ++i) {
    while (client->receive())
      ++replies;
    pump();
  }
  EXPECT_GT(replies, 20);
  for (auto [fd, interest] : watched)
    EXPECT_TRUE(interest.readable);
}

TEST_F(ServerTest, DisconnectInMidMessageBringsTheModelBackAndTheNextClientIn) {
  auto client = attach();
  Header header{1, static_cast<uint16_t>(Command::region_write), 40, 0, 0};
  client->send_raw(bytes_of(header));
  pump();
  client->close();
  pump();
  EXPECT_FALSE(server->has_client());
  EXPECT_EQ(model.departures, 1);

  auto next = attach();
  EXPECT_TRUE(alive(*next));
  EXPECT_EQ(model.arrivals, 2);
}

TEST_F(ServerTest, ASecondClientIsTurnedAwayWhileOneIsConnected) {
  auto first = attach();
  auto second = connect();
  EXPECT_TRUE(second->closed());
  EXPECT_TRUE(alive(*first));
}

TEST_F(ServerTest, ANewClientGetsInWhenTheOldOneHasJustHungUp) {
  auto first = attach();
  first->close();
  // Not pumped: the server sees both at once, in either order.
  auto second = attach();
  EXPECT_TRUE(alive(*second));
  EXPECT_EQ(model.departures, 1);
}

TEST_F(ServerTest, AClientIsTurnedAwayWhenNoDescriptorIsLeft) {
  // A client that gets in first: UBSan needs descriptors to look at a type it has not seen yet.
  attach()->close();
  pump();
  Client client(path);
  ASSERT_TRUE(client.connected());
  {
    NoDescriptorsLeft none;
    pump();  // which fails if the server stays ready for ever
  }
  EXPECT_TRUE(client.closed());
  auto next = attach();
  EXPECT_TRUE(alive(*next));
}

TEST_F(ServerTest, DescriptorsThatDoNotFitIntoThisProcessAreNoHarm) {
  auto client = attach();
  Fd file = memory_file(4096);
  client->send(Command::dma_map, map_payload(0x1000, 4096), {file.get()});
  {
    NoDescriptorsLeft none;
    pump();
  }
  auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.error, uint32_t{E2BIG});
  EXPECT_EQ(model.table.count(), 0u);
}

TEST_F(ServerTest, TheOwnerIsToldWhatToWaitForOnlyWhenItChanges) {
  auto client = attach();
  watches = 0;
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(alive(*client));
  EXPECT_EQ(watches, 0);
}

TEST_F(ServerTest, AClientThatOnlyConnectsDoesNotTouchTheModel) {
  connect()->close();
  pump();
  EXPECT_EQ(model.arrivals, 0);
  EXPECT_EQ(model.departures, 0);
}

TEST_F(ServerTest, TheModelMayHangUpWhileItIsBeingCalled) {
  auto client = attach();
  model.hang_up_on_write = server.get();
  client->send(Command::region_write, access_payload(0, 0, 4) + Bytes(4));
  client->send(Command::region_write, access_payload(0, 4, 4) + Bytes(4));
  pump();
  EXPECT_FALSE(server->has_client());
  EXPECT_EQ(model.writes.size(), 1u);
  EXPECT_EQ(model.departures, 1);
}

TEST_F(ServerTest, ASocketLeftBehindIsReplacedAndALiveOneIsNot) {
  ServerOptions options;
  options.socket_path = path;
  EXPECT_FALSE(Server::listen(options, model, *this));

  // A socket file that nobody listens on any more.
  server.reset();
  {
    Fd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct {
      sa_family_t family = AF_UNIX;
      char path[108] = {};
    } address;
    path.copy(address.path, sizeof address.path - 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  auto again = Server::listen(options, model, *this);
  ASSERT_TRUE(again) << again.error();
  server = std::move(*again);
  attach();
}

TEST_F(ServerTest, AnImpossibleSocketPathIsAnErrorWithTheLimit) {
  ServerOptions options;
  options.socket_path = std::string(200, 'x');
  auto failed = Server::listen(options, model, *this);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().find("107"), std::string::npos) << failed.error();
}

}  // namespace keyhole::vfio_user
