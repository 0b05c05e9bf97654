// SPDX-License-Identifier: BSD-2-Clause

#include <sys/eventfd.h>

#include <cerrno>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

constexpr uint32_t msix = VFIO_PCI_MSIX_IRQ_INDEX;
constexpr uint32_t trigger_eventfd = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
constexpr uint32_t trigger = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
constexpr uint32_t mask = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_MASK;
constexpr uint32_t unmask = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_UNMASK;

Bytes set(uint32_t flags, uint32_t start, uint32_t count, uint32_t index = msix,
          uint32_t argsz = sizeof(vfio_irq_set)) {
  Bytes payload(sizeof(vfio_irq_set));
  uint32_t words[] = {argsz, flags, index, start, count};
  std::memcpy(payload.data(), words, sizeof words);
  return payload;
}

uint32_t irq_count(const Answer& answer) { return value_at<vfio_irq_info>(answer.payload).count; }

}  // namespace

TEST_F(ServerTest, TheDeviceHasMsixAndNoIntxOrMsi) {
  auto client = attach();
  uint32_t expected[] = {0, 0, vectors, 1, 1};
  for (uint32_t index = 0; index < 5; ++index) {
    vfio_irq_info info{16, 0, index, 0};
    Answer answer = ask(*client, Command::device_get_irq_info, bytes_of(info));
    EXPECT_EQ(irq_count(answer), expected[index]) << index;
  }
  EXPECT_EQ(refusal(*client, Command::device_get_irq_info, bytes_of(vfio_irq_info{16, 0, 5, 0})),
            EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_irq_info, bytes_of(vfio_irq_info{15, 0, 2, 0})),
            EINVAL);
  EXPECT_EQ(refusal(*client, Command::device_get_irq_info, Bytes(4)), EINVAL);
}

TEST_F(ServerTest, ARaisedVectorSignalsItsEventfdAndNoOther) {
  auto client = attach();
  Fd first = event_fd();
  Fd second = event_fd();
  Answer answer = ask(*client, Command::device_set_irqs, set(trigger_eventfd, 2, 2),
                      {first.get(), second.get()});
  EXPECT_FALSE(answer.failed());
  EXPECT_TRUE(answer.payload.empty());
  server->raise(3);
  EXPECT_EQ(signals(first), 0u);
  EXPECT_EQ(signals(second), 1u);
  server->raise(2);
  server->raise(2);
  EXPECT_EQ(signals(first), 2u);
  server->raise(vectors);  // out of range: nothing
  server->raise(~0u);
}

TEST_F(ServerTest, AVectorRaisedWithoutEventfdIsPendingUntilItGetsOne) {
  auto client = attach();
  server->raise(4);
  EXPECT_TRUE(server->pending(4));
  std::byte bits[8];
  server->read_pending_bits(0, bits);
  EXPECT_EQ(bits[0], std::byte{1 << 4});
  EXPECT_EQ(bits[1], std::byte{0});

  Fd event = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 4, 1), {event.get()});
  EXPECT_EQ(signals(event), 1u);
  EXPECT_FALSE(server->pending(4));
}

TEST_F(ServerTest, NoInterruptIsLostWhileAClientSetsAllDescriptorsAnew) {
  auto client = attach();
  Fd event = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1), {event.get()});
  ask(*client, Command::device_set_irqs, set(trigger, 0, 0));  // all off
  server->raise(0);
  EXPECT_EQ(signals(event), 0u);
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1), {event.get()});
  EXPECT_EQ(signals(event), 1u);
}

TEST_F(ServerTest, AMaskedVectorIsDeliveredWhenUnmasked) {
  auto client = attach();
  Fd event = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 1, 1), {event.get()});
  ask(*client, Command::device_set_irqs, set(mask, 0, vectors));
  server->raise(1);
  server->raise(1);
  EXPECT_EQ(signals(event), 0u);
  ask(*client, Command::device_set_irqs, set(unmask, 1, 1));
  EXPECT_EQ(signals(event), 1u);
  server->raise(1);
  EXPECT_EQ(signals(event), 1u);
}

TEST_F(ServerTest, ResetForgetsPendingInterruptsAndKeepsDescriptors) {
  auto client = attach();
  Fd event = event_fd();
  server->raise(5);
  ask(*client, Command::device_reset, {});
  EXPECT_FALSE(server->pending(5));
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 5, 1), {event.get()});
  EXPECT_EQ(signals(event), 0u);
  ask(*client, Command::device_reset, {});
  server->raise(5);
  EXPECT_EQ(signals(event), 1u);
}

TEST_F(ServerTest, AnEventfdIsTakenAwayByAMessageWithoutOne) {
  auto client = attach();
  size_t before = open_fds();
  Fd event = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1), {event.get()});
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1));
  server->raise(0);
  EXPECT_EQ(signals(event), 0u);
  event.reset();
  EXPECT_EQ(open_fds(), before);
}

TEST_F(ServerTest, AClientMayTriggerVectorsItself) {
  auto client = attach();
  Fd a = event_fd();
  Fd b = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 2), {a.get(), b.get()});
  ask(*client, Command::device_set_irqs, set(trigger, 0, 2));
  EXPECT_EQ(signals(a), 1u);
  EXPECT_EQ(signals(b), 1u);
  uint32_t flags = VFIO_IRQ_SET_DATA_BOOL | VFIO_IRQ_SET_ACTION_TRIGGER;
  ask(*client, Command::device_set_irqs, set(flags, 0, 2) + Bytes{std::byte{0}, std::byte{1}});
  EXPECT_EQ(signals(a), 0u);
  EXPECT_EQ(signals(b), 1u);
}

TEST_F(ServerTest, MalformedIrqSettingsAreRefusedAndChangeNothing) {
  auto client = attach();
  Fd event = event_fd();
  int fd = event.get();
  size_t before = open_fds();
  auto refused = [&](const Bytes& payload, std::vector<int> fds = {}) {
    return refusal(*client, Command::device_set_irqs, payload, std::move(fds));
  };
  EXPECT_EQ(refused({}), EINVAL);
  EXPECT_EQ(refused(Bytes(19)), EINVAL);
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 1) + Bytes(4), {fd}), EINVAL);  // too long
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 1, msix, 19), {fd}), EINVAL);   // argsz
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 1, 5), {fd}), EINVAL);          // no such type
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 1, VFIO_PCI_INTX_IRQ_INDEX), {fd}), EINVAL);
  EXPECT_EQ(refused(set(trigger_eventfd, vectors, 1), {fd}), EINVAL);  // out of range
  EXPECT_EQ(refused(set(trigger_eventfd, 5, 2), {fd, fd}), EINVAL);
  EXPECT_EQ(refused(set(trigger_eventfd, ~0u, 2), {fd, fd}), EINVAL);  // wraps around
  EXPECT_EQ(refused(set(trigger_eventfd, 1, ~0u), {fd}), EINVAL);
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 2), {fd}), EINVAL);  // one fd for two
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 1), {fd, fd}), EINVAL);
  EXPECT_EQ(refused(set(trigger_eventfd, 0, 0)), EINVAL);
  EXPECT_EQ(refused(set(trigger, 1, 0)), EINVAL);
  EXPECT_EQ(refused(set(mask, 0, 0)), EINVAL);
  EXPECT_EQ(refused(set(trigger, 0, 1), {fd}), EINVAL);                       // fd with no use
  EXPECT_EQ(refused(set(VFIO_IRQ_SET_ACTION_TRIGGER, 0, 1)), EINVAL);         // no data type
  EXPECT_EQ(refused(set(VFIO_IRQ_SET_DATA_NONE, 0, 1)), EINVAL);              // no action
  EXPECT_EQ(refused(set(trigger | VFIO_IRQ_SET_ACTION_MASK, 0, 1)), EINVAL);  // two actions
  EXPECT_EQ(refused(set(trigger | VFIO_IRQ_SET_DATA_BOOL, 0, 1) + Bytes(1)), EINVAL);
  EXPECT_EQ(refused(set(trigger | 0x100, 0, 1)), EINVAL);
  uint32_t bools = VFIO_IRQ_SET_DATA_BOOL | VFIO_IRQ_SET_ACTION_TRIGGER;
  EXPECT_EQ(refused(set(bools, 0, 2) + Bytes(1)), EINVAL);
  EXPECT_EQ(refused(set(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_MASK, 0, 1), {fd}),
            ENOTSUP);
  server->raise(0);
  EXPECT_EQ(signals(event), 0u);
  EXPECT_EQ(open_fds(), before);
  EXPECT_TRUE(alive(*client));
}

TEST_F(ServerTest, ADescriptorThatIsNoEventfdIsRefused) {
  auto client = attach();
  Fd event = event_fd();
  Fd file = memory_file(4096);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  Fd read_end(pipe_fds[0]);
  Fd write_end(pipe_fds[1]);
  for (int fd : {file.get(), write_end.get(), client->fd()})
    EXPECT_EQ(
        refusal(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 2), {event.get(), fd}),
        EINVAL);
  // Neither of the two was taken.
  server->raise(0);
  EXPECT_EQ(signals(event), 0u);
}

TEST_F(ServerTest, AFullEventfdDoesNotStopTheServer) {
  auto client = attach();
  Fd event(eventfd(0, EFD_CLOEXEC));
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1), {event.get()});
  uint64_t full = ~0ull - 1;
  ASSERT_EQ(write(event.get(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
  server->raise(0);
  EXPECT_EQ(signals(event), full);
}

TEST_F(ServerTest, InterruptsOfAClientThatLeftGoNowhere) {
  size_t before = open_fds();
  Fd event = event_fd();
  {
    auto client = attach();
    ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1), {event.get()});
  }
  pump();
  server->raise(0);
  EXPECT_EQ(signals(event), 0u);
  event.reset();
  EXPECT_EQ(open_fds(), before);
}

TEST_F(ServerTest, UnplugIsRequestedOfAClientThatListens) {
  auto client = attach();
  EXPECT_FALSE(server->request_unplug());
  Fd event = event_fd();
  ask(*client, Command::device_set_irqs, set(trigger_eventfd, 0, 1, VFIO_PCI_REQ_IRQ_INDEX),
      {event.get()});
  EXPECT_TRUE(server->request_unplug());
  EXPECT_EQ(signals(event), 1u);
}

}  // namespace keyhole::vfio_user
