// SPDX-License-Identifier: BSD-2-Clause
//
// A hostile vfio-user client on a whole adapter: server, configuration space, DMA table and the
// engine behind them, over a real socket. Its messages are nearly right, or noise, or cut in two;
// they come with descriptors of every kind, of files that are truncated later, too; and between
// them it works as a guest does, so that resets and unmaps hit a device that is busy.
//
// The oracle: the rules of vfio_client.h; a file that was only mapped for reading keeps its bytes;
// when the client has gone nothing of it is left, no map, no descriptor, no object; and the next
// client finds the device in its first state.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "input.h"
#include "keyhole_hw.h"
#include "keyholed/adapter.h"
#include "vfio_client.h"
#include "vfio_user/sigbus.h"

namespace keyhole::fuzz {
namespace {

using vfio_user::Command;
using vfio_user::Fd;

constexpr uint64_t page = KH_PAGE_SIZE;
constexpr uint32_t contexts = 4;

class FakeClock final : public Clock {
 public:
  uint64_t now_ns() override { return now += 100; }
  uint64_t now = 1'000'000;
};

// One for all inputs, as a daemon's HCA is for all its clients.
class Device {
 public:
  static Device& get() {
    static Device device;
    return device;
  }

  void pump() {
    // More than any input can have asked for; a device that is busy for ever is a fault.
    for (int i = 0; i < 10'000; ++i)
      if (!loop_.wait(0)) break;
    adapter_->check_memory();
  }
  void turn() { fabric_.run(); }
  Adapter& adapter() { return *adapter_; }
  FakeClock& clock() { return clock_; }
  const std::string& socket() const { return socket_; }

 private:
  Device() {
    char directory[] = "/tmp/keyhole-fuzz-XXXXXX";
    require(mkdtemp(directory) != nullptr, "no directory for the socket");
    socket_ = std::string(directory) + "/socket";
    auto adapter = Adapter::create({.name = "kh0", .socket = socket_, .mac = {{2, 0, 0, 0, 0, 1}}},
                                   contexts, fabric_, clock_, loop_);
    require(adapter.has_value(), "no adapter");
    adapter_ = std::move(*adapter);
    directory_ = directory;
  }
  ~Device() {
    adapter_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  FakeClock clock_;
  EventLoop loop_;
  Switch fabric_{clock_};
  std::unique_ptr<Adapter> adapter_;
  std::string socket_, directory_;
};

// The descriptors that are open, of the first 64.
uint64_t open_fds() {
  uint64_t open = 0;
  for (int fd = 0; fd < 64; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) open |= uint64_t{1} << fd;
  return open;
}

class Session {
 public:
  explicit Session(Input input) : in_(input), device_(Device::get()), before_(open_fds()) {
    for (Fd* file : {&ram_, &rom_}) {
      *file = Fd(memfd_create("guest", MFD_CLOEXEC));
      require(ftruncate(file->get(), file == &ram_ ? ram_size : rom_size) == 0, "no memory");
    }
    for (size_t i = 0; i < rom_bytes_.size(); ++i)
      rom_bytes_[i] = static_cast<std::byte>(i * 13 + 1);
    require(pwrite(rom_.get(), rom_bytes_.data(), rom_bytes_.size(), 0) == rom_size, "no memory");
    event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    null_ = Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    read_only_ =
        Fd(open(("/proc/self/fd/" + std::to_string(ram_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    connect();
  }

  void run() {
    while (!in_.empty()) {
      step();
      device_.clock().now += in_.u8() * 1000;
      if (client_) client_->settle();
      device_.turn();
      if (!client_ || client_->gone()) connect();
    }
    end();
  }

 private:
  static constexpr off_t ram_size = 32 * page, rom_size = 4 * page;
  static constexpr uint64_t ram_iova = 0x100000, rom_iova = 0x200000;

  void connect() {
    client_.reset();
    second_.reset();
    client_ = std::make_unique<VfioClient>(device_.socket(), [this] { device_.pump(); });
    if (in_.below(8) == 0) return;
    version("{\"capabilities\":{\"max_msg_fds\":8}}");
  }
  void version(std::string_view json) {
    std::vector<std::byte> payload(sizeof(vfio_user::VersionPayload) + json.size() + 1);
    std::ranges::copy(std::as_bytes(std::span(json)),
                      payload.begin() + sizeof(vfio_user::VersionPayload));
    client_->send(static_cast<uint16_t>(Command::version), payload);
  }

  void step() {
    switch (in_.u8() % 20) {
      case 0:
        return any_message();
      case 1:
        return client_->send_noise(in_.bytes(in_.u8()));
      case 2:
        return client_->cut_next_after(in_.u8());
      case 3:
        return version_of_input();
      case 4:
      case 5:
        return dma_map();
      case 6:
        return dma_unmap();
      case 7:
      case 8:
        return region_access(in_.u8() & 1);
      case 9:
        return write_multi();
      case 10:
      case 11:
        return set_irqs();
      case 12:
        return ask();
      case 13:
        return truncate();
      case 14:
        return second_client();
      case 15:
        if (in_.below(4) == 0) client_.reset();
        return;
      case 16:
        return start_guest();
      case 17:
        return write_ram();
      default:
        return admin_command();
    }
  }

  // --- Messages -----------------------------------------------------------------------------

  uint64_t address() {
    switch (in_.below(8)) {
      case 0:
        return in_.u64();
      case 1:
        return ~uint64_t{0} - in_.u16();
      case 2:
        return rom_iova + in_.u8() % 8 * page;
      default:
        return ram_iova + in_.u8() % 40 * page;
    }
  }
  uint64_t size() {
    switch (in_.below(8)) {
      case 0:
        return in_.u64();
      case 1:
        return in_.u16();
      default:
        return in_.u8() % 40 * page;
    }
  }
  std::vector<int> some_fds() {
    std::vector<int> fds;
    const uint8_t how = in_.u8();
    size_t n = how < 160 ? 1 : how < 200 ? 0 : in_.u8() % 20;
    const int all[] = {ram_.get(), rom_.get(), event_.get(), null_.get(), read_only_.get()};
    while (n-- > 0)
      fds.push_back(in_.one_of(all));
    return fds;
  }
  void note_map(std::span<const int> fds, uint32_t flags) {
    for (int fd : fds)
      rom_writable_ |= fd == rom_.get() && (flags & VFIO_DMA_MAP_FLAG_WRITE) != 0;
  }

  void any_message() {
    const uint16_t command = in_.below(8) ? in_.u8() % 20 : in_.u16();
    const uint32_t flags = in_.below(4) ? 0 : in_.below(4) ? vfio_user::flag_no_reply : in_.u32();
    std::optional<uint32_t> wrong;
    if (in_.below(16) == 0) wrong = in_.u32();
    const std::vector<int> fds = in_.below(4) ? std::vector<int>{} : some_fds();
    const std::vector<std::byte> payload = in_.bytes(in_.below(8) ? in_.u8() % 80 : in_.u16());
    // What is in it is anybody's guess.
    note_map(fds, VFIO_DMA_MAP_FLAG_WRITE);
    client_->send(command, payload, fds, flags, wrong);
  }

  void version_of_input() {
    const std::vector<std::byte> text = in_.bytes(in_.u8());
    version({reinterpret_cast<const char*>(text.data()), text.size()});
  }

  void dma_map() {
    vfio_user::DmaMapPayload map{};
    map.argsz = in_.below(16) ? sizeof(map) : in_.u32();
    map.flags = in_.below(16) ? in_.u8() & 3 : in_.u32();
    map.offset = in_.below(4) ? 0 : in_.below(4) ? in_.u8() * page : in_.u64();
    map.iova = address();
    map.size = size();
    const std::vector<int> fds = some_fds();
    note_map(fds, map.flags);
    client_->send(Command::dma_map, map, fds);
  }

  void dma_unmap() {
    vfio_user::DmaUnmapPayload unmap{};
    unmap.argsz = in_.below(16) ? sizeof(unmap) : in_.u32();
    unmap.flags = in_.below(8) ? 0 : in_.u32() % 4;
    if ((unmap.flags & VFIO_DMA_UNMAP_FLAG_ALL) == 0 || in_.below(4) == 0) {
      unmap.iova = address();
      unmap.size = size();
    }
    client_->send(Command::dma_unmap, unmap);
  }

  vfio_user::RegionAccessPayload some_access() {
    vfio_user::RegionAccessPayload access{};
    static constexpr uint8_t regions[] = {0, 2, 4, 7};
    access.region = in_.below(16) ? in_.one_of(regions) : in_.u32();
    access.offset = in_.below(16) ? in_.u16() : in_.u64();
    access.count = in_.below(8) ? 1u << in_.below(4) : in_.u32() % (2 << 20);
    return access;
  }
  void region_access(bool write) {
    const auto access = some_access();
    if (!write) return client_->send(Command::region_read, access);
    std::vector<std::byte> payload(sizeof access + std::min(access.count, 4096u));
    std::memcpy(payload.data(), &access, sizeof access);
    const uint64_t value = in_.u64();
    std::memcpy(payload.data() + sizeof access, &value,
                std::min(sizeof value, payload.size() - sizeof access));
    client_->send(static_cast<uint16_t>(Command::region_write), payload, {},
                  in_.below(2) ? vfio_user::flag_no_reply : 0);
  }
  void write_multi() {
    const uint64_t n = in_.below(8);
    std::vector<std::byte> payload(sizeof n + n * sizeof(vfio_user::RegionWriteOne));
    const uint64_t said = in_.below(8) ? n : in_.u64();
    std::memcpy(payload.data(), &said, sizeof said);
    for (uint64_t i = 0; i < n; ++i) {
      vfio_user::RegionWriteOne one{};
      one.access = some_access();
      const uint64_t value = in_.u64();
      std::memcpy(one.data, &value, sizeof value);
      std::memcpy(payload.data() + sizeof n + i * sizeof one, &one, sizeof one);
    }
    client_->send(static_cast<uint16_t>(Command::region_write_multi), payload);
  }

  void set_irqs() {
    vfio_irq_set set{};
    static constexpr uint32_t types[] = {VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_BOOL,
                                         VFIO_IRQ_SET_DATA_NONE};
    static constexpr uint32_t actions[] = {VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_MASK,
                                           VFIO_IRQ_SET_ACTION_UNMASK};
    set.flags = in_.one_of(types) | in_.one_of(actions);
    if (in_.below(16) == 0) set.flags = in_.u32();
    set.index = in_.below(8) ? VFIO_PCI_MSIX_IRQ_INDEX : in_.u8();
    set.start = in_.below(8) ? in_.below(16) : in_.u32();
    set.count = in_.below(8) ? in_.below(18) : in_.u32();
    std::vector<std::byte> data = in_.bytes((set.flags & VFIO_IRQ_SET_DATA_BOOL) ? set.count : 0);
    set.argsz = in_.below(8) ? static_cast<uint32_t>(sizeof set + data.size()) : in_.u32();
    std::vector<std::byte> payload(sizeof set + data.size());
    std::memcpy(payload.data(), &set, sizeof set);
    if (!data.empty()) std::memcpy(payload.data() + sizeof set, data.data(), data.size());
    std::vector<int> fds;
    if (set.flags & VFIO_IRQ_SET_DATA_EVENTFD) {
      if (in_.below(4))
        fds.assign(std::min<uint32_t>(set.count, 18), event_.get());
      else
        fds = some_fds();
    }
    client_->send(static_cast<uint16_t>(Command::device_set_irqs), payload, fds);
  }

  void ask() {
    switch (in_.below(5)) {
      case 0:
        return client_->send(Command::device_get_info, vfio_user::DeviceInfoPayload{16, 0, 0, 0});
      case 1:
        return client_->send(Command::device_get_region_info,
                             vfio_region_info{32, 0, in_.u8() % 12u, 0, 0, 0});
      case 2:
        return client_->send(Command::device_get_irq_info, vfio_irq_info{16, 0, in_.u8() % 6u, 0});
      case 3:
        return client_->send(Command::device_get_region_io_fds,
                             vfio_user::RegionIoFdsPayload{16, 0, in_.u8() % 12u, in_.u8()});
      default:
        return client_->send(static_cast<uint16_t>(Command::device_reset), {});
    }
  }

  // --- The rest of a bad client ---------------------------------------------------------------

  void truncate() {
    if (in_.below(4)) return;
    const off_t size = static_cast<off_t>(in_.u8() % 33 * page);
    if (ftruncate(ram_.get(), size) == 0) client_->may_be_dropped();
  }

  void second_client() {
    second_ = std::make_unique<VfioClient>(device_.socket(), [this] { device_.pump(); });
    second_->may_be_dropped();
    second_->settle();
    require(second_->gone(), "two clients at once");
    second_.reset();
  }

  // --- The guest ------------------------------------------------------------------------------

  void write_region(uint32_t region, uint64_t offset, uint32_t value, uint32_t size = 4) {
    const vfio_user::RegionAccessPayload access{offset, region, size};
    std::array<std::byte, sizeof access + 4> payload;
    std::memcpy(payload.data(), &access, sizeof access);
    std::memcpy(payload.data() + sizeof access, &value, sizeof value);
    client_->send(static_cast<uint16_t>(Command::region_write),
                  std::span(payload).first(sizeof access + size));
  }

  // Memory, bus mastering and an admin queue in its first three pages.
  void start_guest() {
    const int fd = ram_.get();
    client_->send(Command::dma_map,
                  vfio_user::DmaMapPayload{sizeof(vfio_user::DmaMapPayload), 3, 0, ram_iova,
                                           static_cast<uint64_t>(ram_size)},
                  {&fd, 1});
    const int rom = rom_.get();
    client_->send(Command::dma_map,
                  vfio_user::DmaMapPayload{sizeof(vfio_user::DmaMapPayload), 1, 0, rom_iova,
                                           static_cast<uint64_t>(rom_size)},
                  {&rom, 1});
    write_region(vfio_user::region_config, 4, 6, 2);
    write_region(KH_BAR_REGS, KH_REG_CONTROL, 0);
    const std::array<std::byte, 64> zero{};
    pwrite_ram(zero, 2 * page);
    pi_ = 0;
    for (uint32_t i = 0; i < 3; ++i) {
      write_region(KH_BAR_REGS, KH_REG_ADMIN_SQ + i * 8,
                   static_cast<uint32_t>(ram_iova + i * page));
      write_region(KH_BAR_REGS, KH_REG_ADMIN_SQ + i * 8 + 4, 0);
    }
    write_region(KH_BAR_REGS, KH_REG_ADMIN_SIZE, KH_ADMIN_MAX_LOG);
    write_region(KH_BAR_REGS, KH_REG_CONTROL, KH_CONTROL_ENABLE);
  }

  void pwrite_ram(std::span<const std::byte> bytes, uint64_t offset) {
    // Never longer than it is: a truncated file stays so.
    const off_t end = lseek(ram_.get(), 0, SEEK_END);
    if (bytes.empty() || static_cast<off_t>(offset + bytes.size()) > end) return;
    require(pwrite(ram_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) > 0,
            "no memory");
  }
  void write_ram() {
    const uint64_t at = in_.u16() * 2u;
    pwrite_ram(in_.bytes(in_.below(64)), at);
  }

  void admin_command() {
    kh_admin_cmd cmd;
    std::memset(&cmd, 0, sizeof cmd);
    static constexpr uint8_t opcodes[] = {
        KH_ADM_NOP,        KH_ADM_QUERY_DEVICE, KH_ADM_CREATE_EQ,  KH_ADM_CREATE_CONTEXT,
        KH_ADM_CREATE_PD,  KH_ADM_CREATE_MKEY,  KH_ADM_CREATE_CQ,  KH_ADM_SET_PORT,
        KH_ADM_CREATE_NIC, KH_ADM_DESTROY_EQ,   KH_ADM_DESTROY_CQ, KH_ADM_QUERY_STATS};
    cmd.hdr.opcode = in_.below(8) ? in_.one_of(opcodes) : in_.u8();
    cmd.hdr.handle = cmd.hdr.opcode == KH_ADM_CREATE_CONTEXT ? in_.below(5) : 0;
    const kh_pages pages{address(), 1 + in_.u8() % 8u, KH_PAGE_SHIFT, 0, 0};
    switch (cmd.hdr.opcode) {
      case KH_ADM_QUERY_DEVICE:
      case KH_ADM_QUERY_STATS:
        cmd.hdr.out_addr = address();
        break;
      case KH_ADM_CREATE_EQ:
        cmd.create_eq.pages = pages;
        cmd.create_eq.db_offset = 2048;
        cmd.create_eq.log_size = 4;
        cmd.create_eq.type = in_.u8() & 1;
        break;
      case KH_ADM_CREATE_CQ:
        cmd.create_cq.pages = pages;
        cmd.create_cq.db_offset = 2048;
        cmd.create_cq.log_size = 2;
        cmd.create_cq.eqn = in_.below(4);
        break;
      case KH_ADM_CREATE_MKEY:
        cmd.create_mkey.pages = pages;
        cmd.create_mkey.length = in_.u16();
        cmd.create_mkey.access = in_.u8() & 0x1f;
        cmd.create_mkey.kind = in_.below(7);
        break;
      case KH_ADM_SET_PORT:
        cmd.set_port.flags = in_.u8() & 7;
        cmd.set_port.mtu = 1500;
        break;
      case KH_ADM_CREATE_NIC:
        cmd.create_nic.pages = pages;
        cmd.create_nic.rx_offset = 256;
        cmd.create_nic.rxc_offset = 512;
        cmd.create_nic.db_offset = 1024;
        cmd.create_nic.log_tx_size = cmd.create_nic.log_rx_size = 4;
        break;
      default:
        break;
    }
    pwrite_ram(std::as_bytes(std::span(&cmd, 1)), (pi_ % 32) * sizeof cmd);
    ++pi_;
    // Completions are all taken.
    const std::array<uint32_t, 3> record = {pi_, pi_, pi_ << KH_ARM_SN_SHIFT | KH_ARM_NEXT};
    pwrite_ram(std::as_bytes(std::span(record)), 2 * page);
    write_region(KH_BAR_DOORBELL, 0, KH_DB_MARK, 1);
    write_region(KH_BAR_WAKE, 0, 1);
  }

  void end() {
    for (int i = 0; i < 20; ++i)
      device_.turn();
    if (client_) client_->settle();
    client_.reset();
    Adapter& adapter = device_.adapter();
    require(!adapter.has_client(), "a client that has hung up is still there");
    require(adapter.guest_bytes() == 0, "memory of a client that has gone is still mapped");
    const Hca::Snapshot left = adapter.hca().snapshot();
    require(left.status == 0 && left.pds + left.eqs + left.cqs + left.srqs + left.qps == 0,
            "objects of a client that has gone");
    std::array<std::byte, rom_size> now;
    require(pread(rom_.get(), now.data(), now.size(), 0) == rom_size, "read-only memory is gone");
    require(rom_writable_ || now == rom_bytes_, "memory mapped for reading was written");
    for (Fd* fd : {&ram_, &rom_, &event_, &null_, &read_only_})
      fd->reset();
    require(open_fds() == before_, "a descriptor is left open");

    client_ = std::make_unique<VfioClient>(device_.socket(), [this] { device_.pump(); });
    version("{}");
    client_->settle();
    require(client_->last().has_value(), "the next client is refused");
    client_->send(Command::region_read,
                  vfio_user::RegionAccessPayload{KH_REG_MAGIC, KH_BAR_REGS, 4});
    client_->settle();
    const uint32_t magic = KH_HW_MAGIC;
    require(client_->last() && client_->last()->size() == 20 &&
                std::memcmp(client_->last()->data() + 16, &magic, sizeof magic) == 0,
            "the next client finds no device");
    client_.reset();
  }

  Input in_;
  Device& device_;
  uint64_t before_;
  Fd ram_, rom_, event_, null_, read_only_;
  std::array<std::byte, rom_size> rom_bytes_;
  bool rom_writable_ = false;
  std::unique_ptr<VfioClient> client_, second_;
  uint32_t pi_ = 0;
};

}  // namespace
}  // namespace keyhole::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keyhole::fuzz::Session(keyhole::fuzz::Input(data, size)).run();
  return 0;
}
