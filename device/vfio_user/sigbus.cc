// SPDX-License-Identifier: BSD-2-Clause
//
// The handler may run at any load or store, so it takes no lock and allocates nothing: it walks an
// array of slots that only ever grows, in chunks that are never freed. A slot is written under a
// lock by whoever registers or drops a mapping, `begin` last and first respectively. The handler
// can meet a slot half written by another thread, but never the one it looks for: a thread faults
// only in mappings that are registered while it uses them.

#include "vfio_user/sigbus.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <mutex>
#include <utility>

namespace keyhole::vfio_user {

struct SigbusGuard::Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::uintptr_t> end{0};
  std::atomic<size_t> page_size{0};
  std::atomic<bool> damaged{false};
};

std::atomic<uint64_t> SigbusGuard::faults_{0};

namespace {

constexpr size_t chunk_slots = 1024;
constexpr size_t max_chunks = 64;

using Chunk = std::array<SigbusGuard::Slot, chunk_slots>;

std::array<std::atomic<Chunk*>, max_chunks> chunks{};
std::mutex registration;
struct sigaction previous {};

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

SigbusGuard::Slot* find_slot(std::uintptr_t address) {
  for (auto& pointer : chunks) {
    Chunk* chunk = pointer.load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    for (SigbusGuard::Slot& slot : *chunk) {
      std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
      if (begin != 0 && address >= begin && address < slot.end.load(std::memory_order_relaxed))
        return &slot;
    }
  }
  return nullptr;
}

}  // namespace

bool replace_lost_memory(std::uintptr_t address) {
  SigbusGuard::Slot* slot = find_slot(address);
  if (slot == nullptr) return false;

  size_t page_size = slot->page_size.load(std::memory_order_relaxed);
  std::uintptr_t page = address & ~(page_size - 1);
  std::uintptr_t end = slot->end.load(std::memory_order_relaxed);
  // The system call itself: mmap() is not on the list of what a signal handler may call.
  long got = syscall(SYS_mmap, page, end - page, PROT_READ | PROT_WRITE,
                     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == -1) return false;

  slot->damaged.store(true, std::memory_order_relaxed);
  SigbusGuard::faults_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

namespace {

void on_sigbus(int signal, siginfo_t* info, void* context) {
  int saved_errno = errno;
  // Positive codes come from the kernel, at an access of this thread; the others are kill() and
  // such.
  bool repaired =
      info->si_code > 0 && replace_lost_memory(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = saved_errno;
  if (repaired) return;

  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // Back to the default, and again: a fault repeats itself on return, a sent signal is resent.
    struct sigaction fatal {};
    fatal.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &fatal, nullptr);
    if (info->si_code <= 0) raise(SIGBUS);
  }
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  });
}

SigbusGuard::Slot* free_slot() {
  for (auto& pointer : chunks) {
    Chunk* chunk = pointer.load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      chunk = new Chunk;
      pointer.store(chunk, std::memory_order_release);
    }
    for (SigbusGuard::Slot& slot : *chunk)
      if (slot.begin.load(std::memory_order_relaxed) == 0) return &slot;
  }
  return nullptr;
}

}  // namespace

SigbusGuard::SigbusGuard(std::span<std::byte> mapping, size_t page_size) {
  install_handler();
  std::scoped_lock lock(registration);
  slot_ = free_slot();
  if (slot_ == nullptr) return;
  auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
  slot_->damaged.store(false, std::memory_order_relaxed);
  slot_->page_size.store(page_size, std::memory_order_relaxed);
  slot_->end.store(begin + mapping.size(), std::memory_order_relaxed);
  slot_->begin.store(begin, std::memory_order_release);
}

SigbusGuard::SigbusGuard(SigbusGuard&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

SigbusGuard& SigbusGuard::operator=(SigbusGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

SigbusGuard::~SigbusGuard() {
  if (slot_ == nullptr) return;
  std::scoped_lock lock(registration);
  slot_->begin.store(0, std::memory_order_release);
}

bool SigbusGuard::damaged() const {
  return slot_ != nullptr && slot_->damaged.load(std::memory_order_relaxed);
}

}  // namespace keyhole::vfio_user
