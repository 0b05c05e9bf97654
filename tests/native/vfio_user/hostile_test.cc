// SPDX-License-Identifier: BSD-2-Clause
//
// A client that sends what no client would: messages grown from valid ones by random changes, cut
// at random places, with random descriptors beside them. Whatever comes, the server neither crashes
// nor spins, keeps no descriptor, and serves the next client. The sequence is the same on each run.

#include <random>

#include "fixture.h"

namespace keyhole::vfio_user {

namespace {

class Noise {
 public:
  explicit Noise(uint32_t seed) : random_(seed) {}

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }

  // Values that lie near the edges of what is checked.
  uint64_t number() {
    static constexpr uint64_t edges[] = {0,    1,          2,          3,        4,       8,
                                         4096, 0x7fffffff, 0x80000000, ~0u,      1 << 20, 0x10000,
                                         32,   16,         ~0ull,      ~0xfffull};
    uint64_t edge = edges[below(std::size(edges))];
    return one_in(3) ? edge + below(9) - 4 : edge;
  }

  Bytes payload_of(Command command) {
    switch (command) {
      case Command::version:
        return version_payload(R"({"capabilities":{"max_msg_fds":8}})");
      case Command::dma_map:
        return map_payload(4096 * below(64), 4096 * (1 + below(4)), 4096 * below(4), 1 + below(3));
      case Command::dma_unmap:
        return unmap_payload(4096 * below(64), 4096 * (1 + below(4)));
      case Command::device_get_region_info: {
        vfio_region_info info{};
        info.argsz = one_in(2) ? 32 : 4096;
        info.index = below(10);
        return bytes_of(info);
      }
      case Command::device_set_irqs: {
        uint32_t words[] = {20, 1u << below(3) | 8u << below(3), 2, below(6), below(6)};
        return bytes_of(words) + Bytes(one_in(3) ? words[4] : 0, std::byte{1});
      }
      case Command::region_read:
        return access_payload(below(9), number() % 40000, below(64));
      case Command::region_write: {
        uint32_t size = below(64);
        return access_payload(below(9), number() % 40000, size) + Bytes(size);
      }
      default:
        return bytes_of(DeviceInfoPayload{16, 0, 0, 0});
    }
  }

  void disturb(Bytes& bytes) {
    for (uint32_t changes = below(4); changes > 0 && !bytes.empty(); --changes) {
      size_t at = below(static_cast<uint32_t>(bytes.size()));
      if (one_in(2)) {
        bytes[at] = std::byte{static_cast<uint8_t>(below(256))};
      } else {
        uint64_t value = number();
        size_t size = std::min<size_t>(one_in(2) ? 4 : 8, bytes.size() - at / 4 * 4);
        std::memcpy(bytes.data() + at / 4 * 4, &value, size);
      }
    }
  }

 private:
  std::mt19937 random_;
};

}  // namespace

class HostileClient : public ServerTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(HostileClient, NeitherHarmsNorOutlastsTheServer) {
  Noise noise(GetParam());
  size_t before = open_fds();
  Fd file = memory_file(8 * 4096);
  Fd event = event_fd();
  std::unique_ptr<Client> client;

  for (int i = 0; i < 3000; ++i) {
    if (!client || !server->has_client()) client = noise.one_in(4) ? connect() : attach();
    auto command = static_cast<Command>(noise.below(20));
    Bytes payload = noise.payload_of(command);
    if (noise.one_in(3)) noise.disturb(payload);
    if (noise.one_in(20)) payload.resize(noise.below(200));

    Header header;
    header.id = static_cast<uint16_t>(i);
    header.command = static_cast<uint16_t>(command);
    header.size = static_cast<uint32_t>(sizeof header + payload.size());
    if (noise.one_in(10)) header.flags = flag_no_reply;
    Bytes message = bytes_of(header) + payload;
    if (noise.one_in(30)) noise.disturb(message);

    std::vector<int> fds;
    if (noise.one_in(2)) fds.assign(noise.one_in(20) ? noise.below(40) : noise.below(4), 0);
    for (int& fd : fds)
      fd = noise.one_in(2) ? file.get() : event.get();

    // Possibly in two parts, with the model's interrupts in between.
    size_t cut = noise.one_in(4) ? noise.below(static_cast<uint32_t>(message.size())) : 0;
    if (cut > 0) client->send_raw(std::span(message).first(cut));
    pump();
    server->raise(noise.below(8));
    if (server->has_client()) client->send_raw(std::span(message).subspan(cut), fds);
    if (noise.one_in(100)) client->close();
    pump();
    if (client->fd() < 0) client.reset();
    while (client && client->receive()) {
    }
  }

  client.reset();
  pump();
  file.reset();
  event.reset();
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(model.table.count(), 0u);
  auto next = attach();
  EXPECT_TRUE(alive(*next));
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileClient, testing::Range(0u, 8u));

}  // namespace keyhole::vfio_user
