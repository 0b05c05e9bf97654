// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel's MKEY and KLM_LIST objects, spoken to by ioctl: what a process may ask and what it is told.
//
//   mkey_objects DEVICE           a line for each check
//   mkey_objects DEVICE hold      makes hundreds of both, says so, and waits to be killed
//
// The provider opens the device and makes the PDs; every call about the objects is made here, attribute
// by attribute, so that each can be wrong. What a wrong one must not do is leave something behind: the
// PD at the end can be freed, which it cannot be while an object lives.

#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel_version.h"
#include "verbs_ioctl.h"

namespace {

constexpr uint64_t kNoMemory = 0x1000;  // below what a process may map
int failures = 0;
int checks = 0;

void check(bool right, const std::string& what) {
  ++checks;
  failures += !right;
  std::printf("%-6s %s\n", right ? "ok" : "WRONG", what.c_str());
}

const char* name_of(int error) { return error ? strerrorname_np(error) : "no error"; }

void check_errno(int got, int wanted, const std::string& what) {
  check(got == wanted, what + ": " + name_of(wanted) + (got == wanted ? "" : std::string(", not ") + name_of(got)));
}

// What the kernel says of the device to whoever opens it, with no provider between.
keyhole_alloc_ucontext_resp limits_of(const ibv_context* context) {
  const std::string path = std::string("/dev/infiniband/") + context->device->dev_name;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) die(path.c_str());
  keyhole_alloc_ucontext_resp limits{};
  uint32_t vectors = 0;
  uint64_t support = 0;
  Call call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
  call.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors)
      .out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, support)
      .out(UVERBS_ATTR_UHW_OUT, limits);
  errno = call(fd);
  if (errno) die("GET_CONTEXT");
  close(fd);
  return limits;
}

// ---- the checks ----

constexpr uint32_t kSomeAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

void an_mkey_lives(ibv_context* context, const keyhole_alloc_ucontext_resp& limits) {
  const int fd = context->cmd_fd;
  ibv_pd* pd = new_pd(context);
  const Object small = mkey(pd, 4, kSomeAccess);
  check_errno(small.error, 0, "mkey: created for 4 entries");
  const Object largest = mkey(pd, limits.max_indirect);
  check_errno(largest.error, 0, "mkey: created for as many entries as there can be");
  check(small.key != largest.key && small.key && largest.key, "mkey: each has a key of its own");

  struct {
    keyhole_mkey_attr attr;
    uint64_t newer[2];
  } answer;
  std::memset(&answer, 0xEE, sizeof(answer));
  check_errno(query_mkey(fd, small.handle, answer), 0, "mkey: queried by a program with a longer structure");
  check(!answer.newer[0] && !answer.newer[1], "mkey: what the kernel does not know is zero in it");
  keyhole_mkey_attr wanted{};
  wanted.key = small.key;
  wanted.access = kSomeAccess;
  wanted.max_entries = 4;
  check(!std::memcmp(&answer.attr, &wanted, sizeof(wanted)), "mkey: it is empty, and as it was asked for");

  check_errno(query_mkey(fd, 0xffff, answer.attr), ENOENT, "mkey: query of no object");
  check_errno(query_mkey(fd, pd->handle, answer.attr), EINVAL, "mkey: query of a PD");
  uint32_t word = 0;
  check_errno(query_mkey(fd, small.handle, word), EINVAL, "mkey: query into 4 bytes");
  Call nowhere(KEYHOLE_OBJECT_MKEY, KEYHOLE_METHOD_MKEY_QUERY);
  nowhere.handle(KEYHOLE_ATTR_MKEY_QUERY_HANDLE, small.handle)
      .attribute(KEYHOLE_ATTR_MKEY_QUERY_RESP, kNoMemory, sizeof(keyhole_mkey_attr));
  check_errno(nowhere(fd), EFAULT, "mkey: query into no memory");

  check_errno(ibv_dealloc_pd(pd), EBUSY, "mkey: its PD is busy");
  check_errno(destroy_list(fd, small.handle), EINVAL, "mkey: destroyed as a KLM list");
  check_errno(destroy_mkey(fd, small.handle), 0, "mkey: destroyed");
  check_errno(destroy_mkey(fd, small.handle), ENOENT, "mkey: destroyed twice");
  check_errno(ibv_dealloc_pd(pd), EBUSY, "mkey: the PD is busy with the other one");
  check_errno(destroy_mkey(fd, largest.handle), 0, "mkey: the other one destroyed");
  check_errno(ibv_dealloc_pd(pd), 0, "mkey: the PD is free then");
}

struct Row {
  const char* what;
  int wanted;
  void (*spoil)(Call&);
};

void spoiled_mkeys_are_refused(ibv_context* context, const keyhole_alloc_ucontext_resp& limits) {
  static uint32_t too_many, foreign_pd, unused;
  too_many = limits.max_indirect + 1;
  // Handles are numbers of one context: the other's are higher than this one has.
  ibv_context* other = open_device(ibv_get_device_name(context->device));
  std::vector<ibv_pd*> others;
  for (int i = 0; i < 16; ++i) others.push_back(new_pd(other));
  foreign_pd = others.back()->handle;

  constexpr auto kPd = KEYHOLE_ATTR_MKEY_CREATE_PD_HANDLE;
  constexpr auto kMax = KEYHOLE_ATTR_MKEY_CREATE_MAX_ENTRIES;
  constexpr auto kAccess = KEYHOLE_ATTR_MKEY_CREATE_ACCESS;
  constexpr auto kResp = KEYHOLE_ATTR_MKEY_CREATE_RESP_KEY;
  // The core refuses these: by another name since it knows what FLUSH is and tells who cannot do ODP.
  static const int of_the_core = kernel_is_before(6, 2) ? EINVAL : EOPNOTSUPP;
  static const Row rows[] = {
      {"without a handle", EINVAL, [](Call& c) { c.without(KEYHOLE_ATTR_MKEY_CREATE_HANDLE); }},
      {"without a PD", EINVAL, [](Call& c) { c.without(kPd); }},
      {"on no PD", ENOENT, [](Call& c) { c[kPd].data = 0xffff; }},
      {"on another context's PD", ENOENT, [](Call& c) { c[kPd].data = foreign_pd; }},
      {"on a PD handle that has a length", EINVAL, [](Call& c) { c[kPd].len = 4; }},
      {"without max_entries", EINVAL, [](Call& c) { c.without(kMax); }},
      {"for 0 entries", EINVAL, [](Call& c) { c[kMax].data = 0; }},
      {"for one entry too many", EINVAL, [](Call& c) { c[kMax].data = too_many; }},
      {"for 2^32 - 1 entries", EINVAL, [](Call& c) { c[kMax].data = UINT32_MAX; }},
      {"max_entries of 2 bytes", EINVAL, [](Call& c) { c[kMax].len = 2; }},
      {"max_entries of 8 bytes", EINVAL, [](Call& c) { c[kMax].len = 8; }},
      {"max_entries with a reserved bit", EINVAL, [](Call& c) { c[kMax].attr_data.reserved = 1; }},
      {"zero based", EINVAL, [](Call& c) { c[kAccess].data = IBV_ACCESS_ZERO_BASED; }},
      {"remote write without local write", EINVAL, [](Call& c) { c[kAccess].data = IBV_ACCESS_REMOTE_WRITE; }},
      {"remote atomic without local write", EINVAL, [](Call& c) { c[kAccess].data = IBV_ACCESS_REMOTE_ATOMIC; }},
      {"access bit 12", EINVAL, [](Call& c) { c[kAccess].data = 1 << 12; }},
      {"access bit 31", EINVAL, [](Call& c) { c[kAccess].data = 1u << 31; }},
      {"on demand", of_the_core, [](Call& c) { c[kAccess].data = IBV_ACCESS_ON_DEMAND; }},
      {"huge pages", EOPNOTSUPP, [](Call& c) { c[kAccess].data = IBV_ACCESS_HUGETLB; }},
      {"flush to persistence", of_the_core, [](Call& c) { c[kAccess].data = 1 << 9; }},
      {"access of 8 bytes", EINVAL, [](Call& c) { c[kAccess].len = 8; }},
      {"without room for the key", EINVAL, [](Call& c) { c.without(kResp); }},
      {"2 bytes for the key", EINVAL, [](Call& c) { c[kResp].len = 2; }},
      {"no memory for the key", EFAULT, [](Call& c) { c[kResp].data = kNoMemory; }},
      {"max_entries twice", EINVAL, [](Call& c) { c.in(kMax, uint32_t{4}); }},
      {"an attribute that there is not", EPROTONOSUPPORT, [](Call& c) { c.in(kResp + 1, uint32_t{1}); }},
      {"a method that there is not", EPROTONOSUPPORT, [](Call& c) { c.method(KEYHOLE_METHOD_MKEY_DESTROY + 1); }},
  };
  ibv_pd* pd = new_pd(context);
  for (const Row& row : rows) {
    Call call = create_mkey(pd->handle, 4, kSomeAccess, unused);
    row.spoil(call);
    check_errno(call(context->cmd_fd), row.wanted, std::string("mkey ") + row.what);
  }
  check_errno(ibv_dealloc_pd(pd), 0, "mkey: none of these was left behind");
  for (ibv_pd* each : others) ibv_dealloc_pd(each);
  ibv_close_device(other);
}

void a_list_lives(ibv_context* context, const keyhole_alloc_ucontext_resp& limits) {
  const int fd = context->cmd_fd;
  ibv_pd* pd = new_pd(context);
  // No page is in two lists: the core maps it for DMA each time, which is right, and which the debug kernel's
  // DMA checks take for a fault.
  uint8_t* memory = map(limits.max_klm_list + 4 * kPage);
  uint8_t* longest_memory = memory + 3 * kPage;
  const long before = pinned_kib();

  const Object shortest = list(pd, at(memory) + kPage - 8, 8);
  check_errno(shortest.error, 0, "list: of 8 bytes, the last of a page");
  check(pinned_kib() == before + 4, "list: its page is pinned on the process's account");
  const Object across = list(pd, at(memory) + 2 * kPage - 8, 16);
  check_errno(across.error, 0, "list: of 16 bytes in two pages");
  check(pinned_kib() == before + 12, "list: both are pinned");
  const Object longest = list(pd, at(longest_memory) + 8, limits.max_klm_list);
  check_errno(longest.error, 0, "list: as long as there can be");

  keyhole_klm_list_attr attr;
  std::memset(&attr, 0xEE, sizeof(attr));
  check_errno(query_list(fd, longest.handle, attr), 0, "list: queried");
  check(attr.length == limits.max_klm_list && attr.max_length == limits.max_klm_list && attr.key == longest.key &&
            !attr.reserved,
        "list: the query tells its length, its key and the limit");
  check_errno(query_list(fd, 0xffff, attr), ENOENT, "list: query of no object");
  keyhole_mkey_attr wrong{};
  check_errno(query_mkey(fd, longest.handle, wrong), EINVAL, "list: queried as an mkey");

  check_errno(ibv_dealloc_pd(pd), EBUSY, "list: its PD is busy");
  munmap(memory, limits.max_klm_list + 4 * kPage);
  check_errno(query_list(fd, longest.handle, attr), 0, "list: queried after its memory was unmapped");
  check_errno(destroy_list(fd, longest.handle), 0, "list: destroyed after that");
  check_errno(destroy_list(fd, longest.handle), ENOENT, "list: destroyed twice");
  check_errno(destroy_mkey(fd, across.handle), EINVAL, "list: destroyed as an mkey");
  check_errno(destroy_list(fd, across.handle), 0, "list: destroyed");
  check_errno(destroy_list(fd, shortest.handle), 0, "list: destroyed, the shortest");
  check(pinned_kib() == before, "list: nothing is pinned after that");
  check_errno(ibv_dealloc_pd(pd), 0, "list: the PD is free then");
}

void spoiled_lists_are_refused(ibv_context* context, const keyhole_alloc_ucontext_resp& limits) {
  static uint64_t longest, half_there, read_only;
  static uint32_t unused;
  longest = limits.max_klm_list;
  uint8_t* memory = map(longest + kPage);
  // Two pages of a file that has one. A hole could be filled by what is mapped next, and a page that may not be
  // read is read all the same before 6.2, where the core pins with FOLL_FORCE.
  const int file = memfd_create("one page", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kPage) != 0) std::abort();
  half_there = at(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) + kPage - 8;
  close(file);
  read_only = at(map(kPage, PROT_READ));

  constexpr auto kAddr = KEYHOLE_ATTR_KLM_LIST_CREATE_ADDR;
  constexpr auto kLength = KEYHOLE_ATTR_KLM_LIST_CREATE_LENGTH;
  constexpr auto kPd = KEYHOLE_ATTR_KLM_LIST_CREATE_PD_HANDLE;
  constexpr auto kResp = KEYHOLE_ATTR_KLM_LIST_CREATE_RESP_KEY;
  static const Row rows[] = {
      {"without a handle", EINVAL, [](Call& c) { c.without(KEYHOLE_ATTR_KLM_LIST_CREATE_HANDLE); }},
      {"without a PD", EINVAL, [](Call& c) { c.without(kPd); }},
      {"on no PD", ENOENT, [](Call& c) { c[kPd].data = 0xffff; }},
      {"without an address", EINVAL, [](Call& c) { c.without(kAddr); }},
      {"at an odd address", EINVAL, [](Call& c) { ++c[kAddr].data; }},
      {"at an address of 4 bytes' alignment", EINVAL, [](Call& c) { c[kAddr].data += 4; }},
      {"address of 4 bytes", EINVAL, [](Call& c) { c[kAddr].len = 4; }},
      {"where nothing is mapped", EFAULT, [](Call& c) { c[kAddr].data = kNoMemory; }},
      {"in the kernel", EFAULT, [](Call& c) { c[kAddr].data = 0xffff888000000000; }},
      {"half of it there", EFAULT, [](Call& c) { c[kAddr].data = half_there; }},
      {"beyond the end of addresses", EINVAL, [](Call& c) { c[kAddr].data = UINT64_MAX - 7; }},
      {"without a length", EINVAL, [](Call& c) { c.without(kLength); }},
      {"of no length", EINVAL, [](Call& c) { c[kLength].data = 0; }},
      {"of 4 bytes", EINVAL, [](Call& c) { c[kLength].data = 4; }},
      {"of 12 bytes", EINVAL, [](Call& c) { c[kLength].data = 12; }},
      {"of 8 bytes too many", EINVAL, [](Call& c) { c[kLength].data = longest + 8; }},
      {"of 2^64 - 8 bytes", EINVAL, [](Call& c) { c[kLength].data = UINT64_MAX - 7; }},
      {"length of 4 bytes", EINVAL, [](Call& c) { c[kLength].len = 4; }},
      {"length with a reserved bit", EINVAL, [](Call& c) { c[kLength].attr_data.reserved = 1; }},
      {"without room for the key", EINVAL, [](Call& c) { c.without(kResp); }},
      {"no memory for the key", EFAULT, [](Call& c) { c[kResp].data = kNoMemory; }},
      {"an attribute that there is not", EPROTONOSUPPORT, [](Call& c) { c.in(kResp + 1, uint32_t{1}); }},
      {"a method that there is not", EPROTONOSUPPORT, [](Call& c) { c.method(KEYHOLE_METHOD_KLM_LIST_DESTROY + 1); }},
  };
  ibv_pd* pd = new_pd(context);
  const long before = pinned_kib();
  for (const Row& row : rows) {
    Call call = create_list(pd->handle, at(memory), 16, unused);
    row.spoil(call);
    check_errno(call(context->cmd_fd), row.wanted, std::string("list ") + row.what);
  }
  check(pinned_kib() == before, "list: none of these has left memory pinned");
  check_errno(ibv_dealloc_pd(pd), 0, "list: none of these was left behind");

  pd = new_pd(context);
  const Object only_read = list(pd, read_only, kPage);
  check_errno(only_read.error, 0, "list: in memory that may only be read, as the device does");
  check_errno(destroy_list(context->cmd_fd, only_read.handle), 0, "list: destroyed, that too");
  ibv_dealloc_pd(pd);
  munmap(memory, longest + kPage);
}

// A process without CAP_IPC_LOCK and with a limit; its own context, since it is another user's.
int within_a_limit(const char* device) {
  ibv_context* context = open_device(device);
  ibv_pd* pd = new_pd(context);
  uint8_t* memory = map(256 << 10);
  rlimit limit{64 << 10, 64 << 10};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
      setresuid(65534, 65534, 65534))
    die("becoming nobody");
  const int fd = context->cmd_fd;
  check_errno(list(pd, at(memory), 128 << 10).error, ENOMEM, "list: of 128 KiB with a limit of 64");
  const Object first = list(pd, at(memory), 32 << 10);
  check_errno(first.error, 0, "list: of 32 KiB with a limit of 64");
  check_errno(list(pd, at(memory) + (64 << 10), 48 << 10).error, ENOMEM, "list: of 48 KiB beside it");
  check_errno(destroy_list(fd, first.handle), 0, "list: the one of 32 KiB destroyed");
  const Object second = list(pd, at(memory) + (64 << 10), 48 << 10);
  check_errno(second.error, 0, "list: of 48 KiB now");
  check_errno(destroy_list(fd, second.handle), 0, "list: destroyed");
  limit = {0, 0};
  if (setrlimit(RLIMIT_MEMLOCK, &limit)) die("setrlimit");
  check_errno(list(pd, at(memory), 8).error, EPERM, "list: of 8 bytes with a limit of none");
  check_errno(ibv_dealloc_pd(pd), 0, "list: what was refused left nothing behind");
  return failures;
}

void a_limit_on_locked_memory_holds(const char* device) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (!child) {
    failures = 0;
    const int wrong = within_a_limit(device);
    std::fflush(stdout);
    _exit(wrong ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "list: a limit on locked memory holds");
}

// Objects left for the kernel to end, in whatever order it likes, when the context is closed.
void a_context_is_closed_with_all_that_it_has(const char* device) {
  ibv_context* context = open_device(device);
  uint8_t* memory = map(50 * kPage);
  const long before = pinned_kib();
  ibv_pd* pd = new_pd(context);
  bool made = true;
  for (int i = 0; i < 50; ++i) made = made && !mkey(pd, 16).error && !list(pd, at(memory) + i * kPage, 64).error;
  check(made, "close: 50 of each made");
  ibv_close_device(context);  // the PD's memory is lost with it
  check(pinned_kib() == before, "close: what was pinned is let go");
  munmap(memory, 50 * kPage);
}

int hold(const char* device) {
  ibv_context* context = open_device(device);
  uint8_t* memory = map(300 * 5 * kPage);
  ibv_pd* pd = new_pd(context);
  for (int i = 0; i < 300; ++i) {
    errno = mkey(pd, 1 + i).error;
    if (!errno) errno = list(pd, at(memory) + i * 5 * kPage + 8 * i, 4 * kPage).error;
    if (errno) die("making objects");
  }
  std::printf("holding 600\n");
  std::fflush(stdout);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 3 && !std::strcmp(argv[2], "hold"))) {
    std::fprintf(stderr, "usage: mkey_objects DEVICE [hold]\n");
    return 2;
  }
  if (argc == 3) return hold(argv[1]);

  ibv_context* context = open_device(argv[1]);
  const keyhole_alloc_ucontext_resp limits = limits_of(context);
  if (!(limits.caps & KH_CAP_INDIRECT)) {
    ibv_pd* pd = new_pd(context);
    uint8_t* memory = map(kPage);
    check(!limits.max_indirect && !limits.max_klm_list && !limits.max_inline_entries && !limits.max_depth,
          "no limits are reported for what there is not");
    check_errno(mkey(pd, 1).error, EOPNOTSUPP, "mkey: created on a device without them");
    check_errno(list(pd, at(memory), 64).error, EOPNOTSUPP, "list: created on a device without them");
    check_errno(ibv_dealloc_pd(pd), 0, "what was refused left nothing behind");
    check(false, "this device does not offer indirect mkeys (KH_CAP_INDIRECT): nothing else can be tried on it");
    return 1;
  }
  check(limits.max_indirect >= 1 && limits.max_klm_list >= limits.max_indirect * sizeof(kh_klm),
        "the limits allow a list for the largest mkey");
  check(limits.max_inline_entries >= 1 && limits.max_depth >= 1, "the limits of fills are reported");
  an_mkey_lives(context, limits);
  spoiled_mkeys_are_refused(context, limits);
  a_list_lives(context, limits);
  spoiled_lists_are_refused(context, limits);
  a_limit_on_locked_memory_holds(argv[1]);
  a_context_is_closed_with_all_that_it_has(argv[1]);
  ibv_close_device(context);
  std::printf("%d checks, %d wrong\n", checks, failures);
  return failures ? 1 : 0;
}
