// SPDX-License-Identifier: BSD-2-Clause

#include "fixture.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

namespace keyhole::vfio_user {

Fd memory_file(uint64_t size) {
  Fd fd(memfd_create("guest", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

Fd event_fd() { return Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

uint64_t signals(const Fd& eventfd) {
  uint64_t count = 0;
  return read(eventfd.get(), &count, sizeof count) == sizeof count ? count : 0;
}

size_t open_fds() {
  std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::distance(fds, {}));
}

static uint64_t key(uint32_t region, uint64_t offset) { return uint64_t{region} << 32 | offset; }

PciModel::Result FakeModel::read(uint32_t region, uint64_t offset, std::span<std::byte> out) {
  if (refuse) return std::unexpected(*std::exchange(refuse, {}));
  for (size_t i = 0; i < out.size(); ++i) {
    auto byte = memory.find(key(region, offset + i));
    out[i] = byte == memory.end() ? std::byte{0} : byte->second;
  }
  return {};
}

PciModel::Result FakeModel::write(uint32_t region, uint64_t offset, std::span<const std::byte> in) {
  if (refuse) return std::unexpected(*std::exchange(refuse, {}));
  if (hang_up_on_write != nullptr) hang_up_on_write->disconnect("the test says so");
  writes.push_back({region, offset, {in.begin(), in.end()}});
  for (size_t i = 0; i < in.size(); ++i)
    memory[key(region, offset + i)] = in[i];
  return {};
}

PciModel::Result FakeModel::dma_map(DmaMapping mapping) { return table.map(mapping); }

PciModel::Result FakeModel::dma_unmap(uint64_t iova, uint64_t size) {
  return table.unmap(iova, size);
}

void FakeModel::dma_unmap_all() { table.unmap_all(); }

void FakeModel::client_gone() {
  ++departures;
  table.unmap_all();
}

Client::Client(const std::string& path)
    : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  connected_ = ::connect(fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

void Client::send_raw(std::span<const std::byte> bytes, std::vector<int> fds) {
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    std::vector<std::byte> control(CMSG_SPACE(fds.size() * sizeof(int)));
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    ssize_t sent = sendmsg(fd(), &header, MSG_NOSIGNAL);
    ASSERT_GT(sent, 0) << std::strerror(errno);
    bytes = bytes.subspan(static_cast<size_t>(sent));
    fds.clear();
  }
}

uint16_t Client::send(Command command, const Bytes& payload, std::vector<int> fds, uint32_t flags,
                      std::optional<uint32_t> size) {
  Header header;
  header.id = next_id_++;
  header.command = static_cast<uint16_t>(command);
  header.size = size.value_or(static_cast<uint32_t>(sizeof header + payload.size()));
  header.flags = flags;
  send_raw(bytes_of(header) + payload, std::move(fds));
  return header.id;
}

std::optional<Answer> Client::receive() {
  Answer answer;
  std::array<std::byte, CMSG_SPACE(32 * sizeof(int))> control{};
  iovec part{&answer.header, sizeof answer.header};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  // As QEMU: a header that does not come in one piece is an error.
  if (recvmsg(fd(), &header, MSG_CMSG_CLOEXEC) != sizeof answer.header) return std::nullopt;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i)
      answer.fds.emplace_back(
          value_at<int>({reinterpret_cast<std::byte*>(CMSG_DATA(c)), 64}, 4 * i));
  }
  answer.payload.resize(answer.header.size - sizeof answer.header);
  for (size_t got = 0; got < answer.payload.size();) {
    ssize_t n = recv(fd(), answer.payload.data() + got, answer.payload.size() - got, 0);
    if (n <= 0) {
      ADD_FAILURE() << "a reply was cut short";
      return std::nullopt;
    }
    got += static_cast<size_t>(n);
  }
  return answer;
}

bool Client::closed() {
  char byte = 0;
  return recv(fd(), &byte, 1, MSG_PEEK) == 0;
}

ServerTest::ServerTest() {
  std::string pattern = testing::TempDir() + "vfio_user_XXXXXX";
  directory = mkdtemp(pattern.data());
  path = directory + "/socket";
  doorbells = std::make_shared<SharedMemory>(SharedMemory::create("doorbells", bar0_size).value());

  ServerOptions options;
  options.name = "test";
  options.socket_path = path;
  options.msix_vectors = vectors;
  options.regions = {
      // The first page trapped, then two mapped, two trapped and three mapped.
      Region{0, bar0_size, true, true, doorbells, {{4096, 2 * 4096}, {5 * 4096, 3 * 4096}}},
      Region{2, bar2_size, true, false, nullptr, {}},
      Region{region_config, 4096, true, true, nullptr, {}},
  };
  server = Server::listen(options, model, *this).value();
}

ServerTest::~ServerTest() {
  server.reset();
  EXPECT_TRUE(watched.empty()) << "a descriptor was closed while it was watched";
  std::filesystem::remove_all(directory);
}

void ServerTest::watch(int fd, bool readable, bool writable) {
  ++watches;
  watched[fd] = {readable, writable};
}

void ServerTest::pump() {
  for (int idle = 0; idle < 10000; ++idle) {
    std::vector<pollfd> polls;
    for (auto [fd, interest] : watched) {
      auto events =
          static_cast<short>((interest.readable ? POLLIN : 0) | (interest.writable ? POLLOUT : 0));
      polls.push_back({fd, events, 0});
    }
    if (::poll(polls.data(), polls.size(), 0) <= 0) return;
    for (const pollfd& p : polls)
      if (p.revents != 0 && watched.contains(p.fd)) server->on_ready(p.fd);
  }
  FAIL() << "the server never comes to rest";
}

std::unique_ptr<Client> ServerTest::connect() {
  auto client = std::make_unique<Client>(path);
  EXPECT_TRUE(client->connected());
  pump();
  return client;
}

std::unique_ptr<Client> ServerTest::attach() {
  auto client = connect();
  Answer answer = ask(*client, Command::version, version_payload(R"({"capabilities":{}})"));
  EXPECT_FALSE(answer.failed());
  return client;
}

Answer ServerTest::ask(Client& client, Command command, const Bytes& payload,
                       std::vector<int> fds) {
  uint16_t id = client.send(command, payload, std::move(fds));
  pump();
  auto answer = client.receive();
  if (!answer) {
    ADD_FAILURE() << "no reply";
    return {};
  }
  EXPECT_EQ(answer->header.id, id);
  EXPECT_EQ(answer->header.command, static_cast<uint16_t>(command));
  EXPECT_EQ(answer->header.flags & flag_type_mask, type_reply);
  EXPECT_TRUE(!answer->failed() || answer->header.size == sizeof(Header));
  return std::move(*answer);
}

int ServerTest::refusal(Client& client, Command command, const Bytes& payload,
                        std::vector<int> fds) {
  Answer answer = ask(client, command, payload, std::move(fds));
  return answer.failed() ? static_cast<int>(answer.header.error) : 0;
}

bool ServerTest::alive(Client& client) {
  DeviceInfoPayload info;
  info.argsz = sizeof info;
  Answer answer = ask(client, Command::device_get_info, bytes_of(info));
  return !answer.failed() && answer.payload.size() == sizeof info;
}

}  // namespace keyhole::vfio_user
