// SPDX-License-Identifier: BSD-2-Clause
//
// Work requests at random against a plain model of two memories.
//
// key_model_test.cc asks the key table alone. Here everything goes the way that an application's
// requests go: keys are filled, refilled, bound and invalidated by requests, inline and from lists,
// and used by WRITE, READ, SEND and fetch-and-add between two queue pairs, several entries a
// request. The model keeps what each key was given last, flattens it into one number for each byte
// whenever it is used, and moves bytes one by one. After each request the memories must be what the
// model's are: the bytes that moved, and all others.
//
// A request that must fail is checked for its status. How much of it has been done before the fault
// was found is not defined; that nothing was changed behind other bytes than its own is, and is
// checked.
//
//   KEYHOLE_SEED=N, KEYHOLE_STEPS=N: as in key_model_test.cc

#include <cstring>
#include <optional>
#include <random>

#include "seed.h"
#include "umr_work.h"

namespace keyhole::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kRequestSteps = 5'000;
#else
constexpr uint64_t kRequestSteps = 50'000;
#endif
constexpr uint32_t kMemory = 32 * 1024;
constexpr uint32_t kInline = 64;
constexpr uint32_t kMany = 300;  // entries of the largest keys

struct Entry {
  int key;  // of the side's keys; 0 is its region
  uint64_t addr;
  uint32_t length;
  uint64_t stride;
};

// A region, an indirect key, or a window of type 2 on one of these.
struct Key {
  Key() = default;
  explicit Key(uint32_t k) : key(k) {}
  uint32_t key = 0;
  bool indirect = false;
  bool window = false;
  bool valid = false;
  bool write = true;  // local write, and so remote write and atomics
  uint64_t start = 0;
  uint64_t length = 0;
  uint32_t max_entries = 0;
  uint32_t rounds = 1;
  uint32_t depth = 0;
  std::vector<Entry> entries;
  int bound_to = -1;
  uint64_t into = 0;  // a window: its first byte in what it is bound to
};

struct Side {
  End* end = nullptr;
  std::vector<std::byte> memory;  // the model's
  std::vector<Key> keys;
  std::byte* list = nullptr;
  uint32_t list_key = 0;
};

class WorkModel : public UmrTest {
 protected:
  WorkModel() {
    sides[0].end = &a;
    sides[1].end = &b;
  }

  Side sides[2];
  std::mt19937_64 random;
  uint64_t good = 0, refused = 0, bytes = 0, fills = 0, list_fills = 0;

  uint64_t below(uint64_t n) { return random() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }

  void set_up() {
    EndOptions options;
    options.region = kMemory;
    make_pair(options);
    for (Side& side : sides) {
      side.memory.assign(kMemory, std::byte{0});
      side.keys.clear();
      Key region(side.end->region.key);
      region.valid = true;
      region.start = side.end->region.start;
      region.length = kMemory;
      side.keys.push_back(region);
      for (uint32_t size : {4u, 8u, 8u, kInline, kInline, kMany}) {
        Key key(side.end->driver->create_indirect(side.end->pdn, size, KH_ACCESS_MW_BIND));
        key.indirect = true;
        key.max_entries = size;
        side.keys.push_back(key);
      }
      for (int i = 0; i < 3; ++i) {
        Key key(side.end->driver->create_window(side.end->pdn, KH_MKEY_MW2));
        key.window = true;
        side.keys.push_back(key);
      }
      constexpr size_t size = (kMany * sizeof(kh_stride) + 4095) / 4096 * 4096;
      side.list = side.end->host->allocate(size);
      side.list_key = side.end->driver->create_klm_list(side.end->pdn, side.list, size);
      for (uint32_t i = 0; i < kMemory; ++i)
        side.memory[i] = side.end->region.memory[i] = static_cast<std::byte>(random());
    }
  }

  // Adds the offsets in memory of the bytes [position, position + length). False: some of them
  // cannot be reached any more.
  bool flatten(const Side& side, const Key& key, uint64_t position, uint64_t length, bool write,
               uint32_t depth, std::vector<uint32_t>& out) const {
    if (key.window)
      return flatten(side, side.keys[key.bound_to], key.into + position, length, write, depth, out);
    if (!key.indirect) {
      for (uint64_t i = 0; i < length; ++i)
        out.push_back(static_cast<uint32_t>(position + i));
      return true;
    }
    if (depth == KH_MAX_DEPTH) return false;
    for (uint32_t round = 0; round < key.rounds && length > 0; ++round) {
      for (const Entry& entry : key.entries) {
        if (position >= entry.length) {
          position -= entry.length;
          continue;
        }
        if (length == 0) break;
        const uint64_t part = std::min<uint64_t>(length, entry.length - position);
        const Key& inner = side.keys[entry.key];
        const uint64_t addr = entry.addr + round * entry.stride + position;
        if (!inner.valid || (write && !inner.write) || addr < inner.start ||
            addr - inner.start > inner.length || part > inner.length - (addr - inner.start))
          return false;
        if (!flatten(side, inner, addr - inner.start, part, write, depth + 1, out)) return false;
        position = 0;
        length -= part;
      }
    }
    return true;
  }

  bool window_on(const Side& side, int key) const {
    return std::ranges::any_of(side.keys, [&](const Key& other) {
      return other.window && other.valid && other.bound_to == key;
    });
  }

  // After a failure both ends begin anew. RESET frees the windows that they had bound.
  void begin_anew() {
    for (Side& side : sides) {
      ASSERT_EQ(set_state(*side.end, KH_QPS_RESET), KH_ST_OK);
      side.end->qp.sq_pi = side.end->qp.rq_pi = 0;
      *side.end->qp.db = kh_qp_db{};
      for (Key& key : side.keys) {
        if (key.window) key.valid = false, key.length = 0;
      }
      kh_cqe cqe;
      while (side.end->send_cq.poll(cqe) || side.end->recv_cq.poll(cqe)) {
      }
    }
    connect(a, b);
  }

  void compare(const char* what) {
    for (const Side& side : sides)
      ASSERT_EQ(std::memcmp(side.memory.data(), side.end->region.memory, kMemory), 0) << what;
  }

  // The completion of the one request that has been posted is as it should be.
  void finish(Side& side, bool expected, const char* what) {
    const kh_cqe cqe = sent(*side.end);
    ASSERT_EQ(cqe.status == KH_WC_SUCCESS, expected)
        << what << ": status " << int(cqe.status) << " syndrome " << std::hex << cqe.syndrome;
    ++(expected ? good : refused);
  }

  void fill(Side& side);
  void unfill(Side& side);
  void bind(Side& side);
  void invalidate(Side& side);
  void access(Side& side, Side& other);

  int any_indirect() { return static_cast<int>(1 + below(6)); }
  int any_window() { return static_cast<int>(7 + below(3)); }
  // Mostly one that can be used all through, and rarely the region itself.
  int any_valid(const Side& side, bool windows, bool write) {
    for (int tries = 0; tries < 12; ++tries) {
      const int i = static_cast<int>(below(windows ? side.keys.size() : 7));
      const Key& key = side.keys[i];
      if (!key.valid || key.length == 0) continue;
      std::vector<uint32_t> all;
      if (one_in(20) || ((!write || key.write) && key.length < 60'000 &&
                         flatten(side, key, 0, key.length, write, 0, all)))
        return i;
    }
    return 0;
  }
};

void WorkModel::fill(Side& side) {
  const int which = any_indirect();
  Key& key = side.keys[which];
  const uint32_t count =
      static_cast<uint32_t>(1 + below(one_in(3) ? key.max_entries : std::min(key.max_entries, 8u)));
  const bool from_list = count > kInline || one_in(3);
  const uint32_t rounds = one_in(3) ? static_cast<uint32_t>(1 + below(6)) : 1;
  const bool strided = rounds > 1 || one_in(4);
  Key next = key;
  next.valid = true;
  next.write = !one_in(6);
  next.start = one_in(2) ? 0 : random() >> (1 + below(30));
  next.rounds = rounds;
  next.entries.clear();
  next.length = 0;
  next.depth = 1;
  bool fine = !window_on(side, which);
  std::vector<kh_stride> strides;
  std::vector<kh_klm> klms;
  for (uint32_t i = 0; i < count; ++i) {
    Entry entry{};
    entry.key = one_in(2) ? 0 : any_valid(side, false, next.write);
    const Key& inner = side.keys[entry.key];
    const uint64_t from = one_in(4) ? 0 : below(inner.length);
    const uint64_t most = (inner.length - from) / rounds;
    entry.length = static_cast<uint32_t>(
        one_in(12) ? 0 : below(std::min<uint64_t>(most, one_in(6) ? 6000 : 40) + 1));
    entry.addr = inner.start + from;
    if (strided) entry.stride = below(entry.length + 2);
    if (one_in(400)) entry.length += 1 + static_cast<uint32_t>(inner.length - from);
    next.entries.push_back(entry);
    next.length += entry.length;
    klms.push_back({entry.addr, entry.length, inner.key});
    strides.push_back({entry.addr, entry.length, inner.key, entry.stride});
    if (entry.length == 0) continue;
    const uint64_t reach = entry.length + (rounds - 1) * entry.stride;
    if (entry.key == which || reach > inner.length - from || (next.write && !inner.write) ||
        (inner.indirect && inner.depth >= KH_MAX_DEPTH))
      fine = false;
    if (inner.indirect) next.depth = std::max(next.depth, inner.depth + 1);
  }
  next.length *= rounds;

  Work work = strided ? strided_work(key.key, strides, rounds) : fill_work(key.key, klms);
  work.umr.access =
      KH_ACCESS_REMOTE_READ |
      (next.write ? KH_ACCESS_LOCAL_WRITE | KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC : 0);
  work.umr.start = next.start;
  if (from_list) {
    std::memcpy(side.list, work.inline_data.data(), work.inline_data.size());
    work.inline_data.clear();
    work.flags = KH_WQE_SIGNALED;
    work.umr.list_key = side.list_key;
    ++list_fills;
  }
  ++fills;
  side.end->post(work);
  finish(side, fine, "fill");
  if (fine)
    key = next;
  else
    begin_anew();
}

void WorkModel::unfill(Side& side) {
  const int which = any_indirect();
  const bool fine = !window_on(side, which);
  Work work;
  work.opcode = KH_OP_UMR_INV;
  work.imm = side.keys[which].key;
  side.end->post(work);
  finish(side, fine, "UMR_INV");
  if (!fine) return begin_anew();
  side.keys[which].valid = false;
  side.keys[which].length = 0;
  side.keys[which].entries.clear();
}

void WorkModel::bind(Side& side) {
  Key& window = side.keys[any_window()];
  const int which = any_valid(side, false, false);
  const Key& region = side.keys[which];
  const uint64_t from = below(region.length);
  uint64_t length = 1 + below(region.length - from);
  if (one_in(30)) length += region.length;
  const bool fine = !window.valid && length <= region.length - from;
  Work work;
  work.opcode = KH_OP_BIND_MW;
  work.bind.mw_key = window.key;
  work.bind.new_key = (window.key & ~0xffu) | KH_KEY_VARIANT(window.key + 1);
  work.bind.mr_key = region.key;
  work.bind.access = KH_ACCESS_REMOTE_READ | (region.write ? KH_ACCESS_REMOTE : 0);
  work.bind.addr = region.start + from;
  work.bind.length = length;
  side.end->post(work);
  finish(side, fine, "bind");
  if (!fine) return begin_anew();
  window.key = work.bind.new_key;
  window.valid = true;
  window.write = region.write;
  window.start = work.bind.addr;
  window.length = length;
  window.bound_to = which;
  window.into = from;
}

void WorkModel::invalidate(Side& side) {
  Key& window = side.keys[any_window()];
  Work work;
  work.opcode = KH_OP_LOCAL_INV;
  work.imm = window.key;
  side.end->post(work);
  finish(side, true, "LOCAL_INV");
  window.valid = false;
  window.length = 0;
}

void WorkModel::access(Side& side, Side& other) {
  enum class Op { write, read, send, fetch_add };
  const Op op = static_cast<Op>(below(4));
  const bool local_stores = op == Op::read || op == Op::fetch_add;
  bool fine = true;

  // Local entries.
  std::vector<uint32_t> here, there;
  Work work;
  const uint32_t entries = op == Op::fetch_add ? 1 : static_cast<uint32_t>(1 + below(3));
  uint64_t total = 0;
  auto add = [&](Side& at, std::vector<kh_sge>& sge, std::vector<uint32_t>& offsets,
                 uint64_t length, bool stores, bool windows, bool cell) {
    const int which = any_valid(at, windows, stores);
    const Key& key = at.keys[which];
    uint64_t from = below(key.length);
    length = std::min(length, key.length - from);
    if (cell) length = 8;
    uint64_t used = length;
    if (one_in(40)) used = key.length - from + 1;  // one byte too many
    sge.push_back({key.start + from, static_cast<uint32_t>(used), key.key});
    if (used == 0) return true;  // whatever the key is
    if (used > key.length - from || (stores && !key.write)) return false;
    return flatten(at, key, from, used, stores, 0, offsets);
  };
  for (uint32_t i = 0; i < entries; ++i) {
    const uint64_t length = op == Op::fetch_add ? 8 : below(one_in(5) ? 6000 : 200);
    fine &= add(side, work.sge, here, length, local_stores, false, op == Op::fetch_add);
    total += work.sge.back().length;
    if (op == Op::fetch_add && work.sge.back().length != 8) fine = false;
  }

  // What is at the other end.
  if (op == Op::send) {
    std::vector<kh_sge> receive;
    uint64_t room = 0;
    bool reachable = true;
    for (int i = 0; i < 2; ++i) {
      reachable &= add(other, receive, there, below(8000), true, false, false);
      room += receive.back().length;
    }
    if (room < total || !reachable) {
      // Only what a message reaches is looked at: such receives have a test of their own.
      return;
    }
    other.end->qp.post_receive(1, receive);
    work.opcode = KH_OP_SEND;
  } else {
    const int which = any_valid(other, true, op != Op::read);
    const Key& key = other.keys[which];
    uint64_t from = below(key.length);
    if (total > key.length - from) from = total > key.length ? 0 : key.length - total;
    if (op == Op::fetch_add && !one_in(10)) from &= ~uint64_t{7};
    work.opcode = op == Op::write ? KH_OP_WRITE : op == Op::read ? KH_OP_READ : KH_OP_FETCH_ADD;
    work.remote_addr = key.start + from;
    work.rkey = one_in(200) ? key.key ^ 1 : key.key;
    const bool stores = op != Op::read;
    if (op == Op::fetch_add) {
      total = 8;
      work.swap_add = random();
      if ((key.start + from) % 8) fine = false;
    }
    if (total > 0 && (work.rkey != key.key || total > key.length - from || (stores && !key.write)))
      fine = false;
    else if (total > 0)
      fine &= flatten(other, key, from, total, stores, 0, there);
    if (op == Op::fetch_add && fine) {
      // Eight bytes that are one cell of memory, and in one entry: that they follow each other says
      // less, so such a cell may be refused.
      for (uint32_t i = 1; i < 8; ++i)
        if (there[i] != there[0] + i) fine = false;
      if (there[0] % 8) fine = false;
      if (fine && key.indirect) return;  // masked_atomic_test.cc, umr_test.cc
      if (fine && key.window && other.keys[key.bound_to].indirect) return;
    }
  }

  side.end->post(work);
  const char* names[] = {"WRITE", "READ", "SEND", "FETCH_ADD"};
  finish(side, fine, names[static_cast<int>(op)]);
  if (::testing::Test::HasFatalFailure()) return;
  if (!fine) {
    // Of the bytes that it names any may have changed, of others none.
    for (Side& at : sides) {
      const bool stored_to = &at == &side ? local_stores : op != Op::read;
      const std::vector<uint32_t>& may = &at == &side ? here : there;
      if (!stored_to) continue;
      for (uint32_t offset : may)
        at.memory[offset] = at.end->region.memory[offset];
    }
    compare("a request that failed");
    return begin_anew();
  }
  if (op == Op::send) received(*other.end);
  there.resize(std::min<size_t>(there.size(), total));
  bytes += total;
  if (op == Op::read) {
    for (size_t i = 0; i < here.size(); ++i)
      side.memory[here[i]] = other.memory[there[i]];
  } else if (op == Op::fetch_add) {
    uint64_t cell;
    std::memcpy(&cell, &other.memory[there[0]], 8);
    for (size_t i = 0; i < 8; ++i)
      side.memory[here[i]] = reinterpret_cast<std::byte*>(&cell)[i];
    cell += work.swap_add;
    std::memcpy(&other.memory[there[0]], &cell, 8);
  } else {
    for (size_t i = 0; i < here.size(); ++i)
      other.memory[there[i]] = side.memory[here[i]];
  }
  compare(names[static_cast<int>(op)]);
}

TEST_F(WorkModel, RequestsChangeTheBytesThatTheModelChangesAndNoOthers) {
  const uint64_t seed = from_environment("KEYHOLE_SEED", std::random_device{}());
  const uint64_t steps = from_environment("KEYHOLE_STEPS", kRequestSteps);
  std::printf("KEYHOLE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE("KEYHOLE_SEED=" + std::to_string(seed));
  random.seed(seed);
  set_up();
  for (uint64_t step = 0; step < steps; ++step) {
    Side& side = sides[below(2)];
    Side& other = &side == &sides[0] ? sides[1] : sides[0];
    const uint64_t dice = below(100);
    if (dice < 18)
      fill(side);
    else if (dice < 19)
      unfill(side);
    else if (dice < 23)
      bind(side);
    else if (dice < 27)
      invalidate(side);
    else
      access(side, other);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "step " << step;
  }
  std::printf(
      "%llu steps: %llu done, %llu refused, %llu fills, %llu of them from lists, %llu bytes\n",
      static_cast<unsigned long long>(steps), static_cast<unsigned long long>(good),
      static_cast<unsigned long long>(refused), static_cast<unsigned long long>(fills),
      static_cast<unsigned long long>(list_fills), static_cast<unsigned long long>(bytes));
  EXPECT_GT(good, steps / 3);
  EXPECT_GT(refused, steps / 50);
  EXPECT_GT(list_fills, steps / 50);
}

}  // namespace
}  // namespace keyhole::test
