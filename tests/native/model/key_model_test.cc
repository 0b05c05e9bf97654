// SPDX-License-Identifier: BSD-2-Clause
//
// Keys at random, against a plain model of them: which bytes may be reached through which key, now,
// and what is the matter with those that may not.
//
// The model knows a key as a struct with all its fields and an indirect one as the list that it was
// filled with; to access bytes it walks that list from the start, one byte range at a time. It is
// slow and has no cleverness in common with the table. Each step registers, fills, refills, binds,
// invalidates, reregisters, deregisters, or accesses; keys are taken from a small pool, dead ones
// among them, and numbers come mostly from where borders are. What the table answers, the syndrome
// with its entry number included, must be what the model says, and every host address handed out
// must be the model's.
//
//   KEYHOLE_SEED=N   the seed of a run, as printed by it
//   KEYHOLE_STEPS=N  how many steps: 100 million take some minutes and are worth it after a change
//     KEYHOLE_STEPS=100000000 model_tests --gtest_filter='KeyModel.*'

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "harness.h"
#include "hca/mkey_table.h"
#include "seed.h"

namespace keyhole::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kTableSteps = 250'000;
#else
constexpr uint64_t kTableSteps = 2'000'000;
#endif

struct ModelEntry {
  uint64_t addr;
  uint64_t length;
  uint64_t stride;
  uint32_t key;
};

struct ModelKey {
  MkeyKind kind = MkeyKind::none;
  bool valid = false;
  uint32_t pdn = 0;
  uint32_t access = 0;
  uint64_t start = 0;
  uint64_t length = 0;
  uint64_t memory = 0;  // direct: offset in the arena of the first byte
  // Indirect.
  uint32_t max_entries = 0;
  uint32_t created_access = 0;
  uint32_t rounds = 0;
  uint32_t depth = 1;
  std::vector<ModelEntry> entries;
  // Windows.
  uint32_t bound_to = 0;
  uint32_t qpn = 0;
};

// One contiguous piece of what an access reaches.
struct Reach {
  uint64_t memory;
  uint64_t length;
};

// Any number that can be a syndrome; 0: fine.
using Syndrome = uint32_t;

class Model {
 public:
  std::map<uint32_t, ModelKey> keys;  // by index

  const ModelKey* find(uint32_t key, const std::map<uint32_t, uint32_t>& present) const {
    auto it = keys.find(KH_KEY_INDEX(key));
    if (it == keys.end() || present.at(KH_KEY_INDEX(key)) != key) return nullptr;
    return &it->second;
  }
  ModelKey* find(uint32_t key) {
    return const_cast<ModelKey*>(std::as_const(*this).find(key, present));
  }
  uint32_t missing(uint32_t key) const {
    return keys.contains(KH_KEY_INDEX(key)) ? KH_SYN_KEY_STALE : KH_SYN_KEY_NONE;
  }
  uint32_t windows_on(uint32_t key) const {
    uint32_t n = 0;
    for (const auto& [index, other] : keys)
      n += is_window(other.kind) && other.valid && other.bound_to == key;
    return n;
  }

  static bool inside(const ModelKey& key, uint64_t addr, uint64_t length) {
    using Wide = unsigned __int128;
    return addr >= key.start && Wide{addr} + length <= Wide{key.start} + key.length;
  }

  // What an entry's key must be like.
  uint32_t entry_fault(uint32_t key, uint64_t addr, uint64_t length, bool write, uint32_t pdn) {
    const ModelKey* k = find(key);
    if (!k) return missing(key);
    if (k->kind != MkeyKind::direct && k->kind != MkeyKind::indirect) return KH_SYN_KEY_KIND;
    if (!k->valid) return KH_SYN_KEY_FREE;
    if (k->pdn != pdn) return KH_SYN_KEY_PD;
    if (!inside(*k, addr, length)) return KH_SYN_KEY_RANGE;
    if (write && !(k->access & KH_ACCESS_LOCAL_WRITE)) return KH_SYN_KEY_RIGHTS;
    return 0;
  }

  // Adds the pieces behind [position, position + length) of a key; stops at what is wrong. `number`
  // is the outermost entry's.
  uint32_t collect(const ModelKey& key, uint64_t position, uint64_t length, bool write,
                   uint32_t depth, std::vector<Reach>& out, uint32_t& number) {
    if (key.kind == MkeyKind::direct) {
      out.push_back({key.memory + position, length});
      return 0;
    }
    if (depth == KH_MAX_DEPTH) return KH_SYN_KEY_DEPTH;
    uint64_t at = 0;  // of the round's or entry's first byte
    const uint64_t rounds = key.rounds ? key.rounds : 1;
    for (uint64_t round = 0; round < rounds && length > 0; ++round) {
      for (uint32_t i = 0; i < key.entries.size() && length > 0; ++i) {
        const ModelEntry& entry = key.entries[i];
        if (position >= at + entry.length) {
          at += entry.length;
          continue;
        }
        const uint64_t into = position - at;
        const uint64_t part = std::min(length, entry.length - into);
        if (depth == 0) number = i;
        const uint64_t addr = entry.addr + round * entry.stride + into;
        if (uint32_t why = entry_fault(entry.key, addr, part, write, key.pdn)) return why;
        const ModelKey& inner = *find(entry.key);
        uint32_t why = collect(inner, addr - inner.start, part, write, depth + 1, out, number);
        if (why) return why;
        position += part;
        length -= part;
        at += entry.length;
      }
    }
    return 0;
  }

  // present key of each index
  std::map<uint32_t, uint32_t> present;
};

class KeyModel : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 64 * KH_PAGE_SIZE;

  FakeHost host{{.scattered = true}};
  MemoryBudget budget{uint64_t{1} << 30};
  MkeyTable table{host, budget, 1 << 20};
  Model model;
  std::byte* arena = host.allocate(kArena);
  std::mt19937_64 random;
  std::vector<uint32_t> live;
  std::vector<uint32_t> pool;  // keys that were alive once
  WindowList windows[3];
  uint64_t good = 0, refused = 0, entry_errors = 0, bytes = 0;

  // The reserved key is there from the start, and whoever names its index with another variant is
  // told so.
  KeyModel() {
    model.keys[0].kind = MkeyKind::phys;
    model.keys[0].valid = true;
    model.present[0] = MkeyTable::local_dma_lkey;
  }

  uint64_t below(uint64_t n) { return random() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  uint32_t any_pd() { return one_in(12) ? 2 : 1; }
  KeyUser any_user() {
    return {.pdn = any_pd(), .qpn = static_cast<uint32_t>(1 + below(2)), .kernel = false};
  }
  uint32_t any_key() {
    if (live.empty() || one_in(200)) return static_cast<uint32_t>(random());
    uint32_t key = one_in(20) ? pool[below(pool.size())] : live[below(live.size())];
    return one_in(100) ? key ^ (1u << below(32)) : key;
  }
  // Rather of this kind.
  template <typename Is>
  uint32_t any_key(Is is) {
    for (int tries = 0; tries < 8; ++tries) {
      uint32_t key = any_key();
      const ModelKey* found = model.find(key);
      if (found && is(*found)) return key;
    }
    return any_key();
  }
  static bool is_indirect(const ModelKey& key) { return key.kind == MkeyKind::indirect; }
  uint32_t any_access() {
    uint32_t access = one_in(4) ? random() & KH_ACCESS_REMOTE : KH_ACCESS_REMOTE;
    if (!one_in(4)) access |= KH_ACCESS_LOCAL_WRITE;
    if (!one_in(4)) access |= KH_ACCESS_MW_BIND;
    if (!(access & KH_ACCESS_LOCAL_WRITE))
      access &= ~(KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC);
    return access;
  }
  // A range of a key, mostly inside; its ends and its borders more often than chance would.
  std::pair<uint64_t, uint64_t> any_range(uint32_t key) {
    const ModelKey* k = model.find(key);
    if (!k || k->length == 0 || one_in(50)) return {random(), below(100)};
    uint64_t from = one_in(3) ? 0 : below(k->length);
    uint64_t length = one_in(3) ? k->length - from : below(k->length - from + 1);
    if (one_in(40)) length += 1 + below(3);
    if (one_in(40)) from -= 1 + below(3);
    return {k->start + from, length};
  }

  void remember(uint32_t key, ModelKey&& as) {
    model.keys[KH_KEY_INDEX(key)] = std::move(as);
    model.present[KH_KEY_INDEX(key)] = key;
    live.push_back(key);
    if (pool.size() < 64)
      pool.push_back(key);
    else
      pool[below(pool.size())] = key;
  }
  void forget(uint32_t index) {
    std::erase_if(live, [&](uint32_t key) { return KH_KEY_INDEX(key) == index; });
    model.keys.erase(index);
    model.present.erase(index);
  }

  ModelKey any_region(MkeyTable::Attributes& a) {
    ModelKey key;
    key.kind = MkeyKind::direct;
    key.valid = true;
    key.pdn = any_pd();
    key.access = any_access();
    key.memory = below(kArena - 1);
    key.length = 1 + below(std::min<uint64_t>(kArena - key.memory, one_in(2) ? 64 : 20'000));
    key.start = one_in(4) ? 0 : random() >> (1 + below(40));
    if (key.start == 0) key.access |= KH_ACCESS_ZERO_BASED;
    a.pdn = key.pdn;
    a.access = key.access;
    a.start = key.start;
    a.length = key.length;
    const uint64_t page = key.memory / KH_PAGE_SIZE * KH_PAGE_SIZE;
    const uint64_t size =
        (key.memory + key.length - page + KH_PAGE_SIZE - 1) / KH_PAGE_SIZE * KH_PAGE_SIZE;
    a.offset = key.memory - page;
    // Descriptions take memory of the arena that never comes back: each is made once.
    kh_pages& pages = pages_[{page, size}];
    if (pages.npages == 0) pages = host.pages(arena + page, size);
    a.pages = *read_page_list(host, budget, pages);
    return key;
  }
  std::map<std::pair<uint64_t, uint64_t>, kh_pages> pages_;

  void create();
  void destroy();
  void reregister();
  void fill();
  void unfill();
  void bind();
  void invalidate();
  void access();

  void expect(Syndrome got, Syndrome expected, const char* what) {
    ASSERT_EQ(got, expected) << what;
    ++(got ? refused : good);
  }
};

void KeyModel::create() {
  MkeyTable::Attributes a;
  ModelKey key;
  switch (below(4)) {
    case 0:
      key.kind = a.kind = one_in(2) ? MkeyKind::mw1 : MkeyKind::mw2;
      key.pdn = a.pdn = any_pd();
      break;
    case 1:
    case 2:
      key.kind = a.kind = MkeyKind::indirect;
      key.pdn = a.pdn = any_pd();
      key.access = key.created_access = a.access = any_access();
      key.max_entries = a.max_entries = static_cast<uint32_t>(1 + below(one_in(4) ? 200 : 8));
      break;
    default:
      key = any_region(a);
  }
  auto made = table.create(std::move(a));
  ASSERT_TRUE(made);
  remember(*made, std::move(key));
}

void KeyModel::destroy() {
  uint32_t handle = any_key();
  const uint32_t index = KH_KEY_INDEX(handle);
  auto it = model.keys.find(index);
  uint8_t expected = KH_ST_OK;
  if (index == 0 || it == model.keys.end() ||
      (!changes_by_itself(it->second.kind) && model.present[index] != handle))
    expected = KH_ST_NOENT;
  else if (model.windows_on(model.present[index]) > 0)
    expected = KH_ST_BUSY;
  auto done = table.destroy(handle);
  expect(done ? uint8_t{KH_ST_OK} : done.error(), expected, "destroy");
  if (expected == KH_ST_OK) forget(index);
}

void KeyModel::reregister() {
  uint32_t handle = any_key([](const ModelKey& key) { return key.kind == MkeyKind::direct; });
  const ModelKey* old = model.find(handle);
  if (!old || old->kind != MkeyKind::direct) return;
  MkeyTable::Attributes a;
  uint32_t mask = static_cast<uint32_t>(1 + below(7));
  ModelKey next = any_region(a);
  const bool busy = model.windows_on(handle) > 0;
  ModelKey changed = *old;
  if (mask & KH_MKEY_MOD_PD) changed.pdn = next.pdn;
  if (mask & KH_MKEY_MOD_ACCESS) changed.access = next.access;
  if (mask & KH_MKEY_MOD_TRANSLATION) {
    changed.start = next.start;
    changed.length = next.length;
    changed.memory = next.memory;
  }
  auto key = table.modify(handle, mask, std::move(a));
  expect(key ? 0 : key.error(), busy ? KH_ST_BUSY : 0, "reregister");
  if (!key) return;
  forget(KH_KEY_INDEX(handle));
  remember(*key, std::move(changed));
}

void KeyModel::fill() {
  kh_wqe_umr request{};
  request.key = any_key(is_indirect);
  KeyUser who = any_user();
  request.access = any_access();
  if (one_in(100)) request.access |= 1u << below(12);
  if (one_in(4))
    request.access |= KH_ACCESS_ZERO_BASED;
  else
    request.start = random() >> below(40);
  if (one_in(60)) request.start = ~uint64_t{0} - below(20'000);
  if (one_in(3)) request.repeat_count = static_cast<uint32_t>(one_in(10) ? random() : 1 + below(9));
  ModelKey* key = model.find(request.key);
  const uint32_t room = key && key->max_entries ? std::min(key->max_entries, 64u) : 4;
  request.num_entries = static_cast<uint32_t>(1 + below(one_in(20) ? 64 : std::min(room, 8u)));
  if (one_in(200)) request.num_entries = 0;

  std::vector<kh_klm> klms;
  std::vector<kh_stride> strides;
  std::vector<ModelEntry> entries;
  for (uint32_t i = 0; i < request.num_entries; ++i) {
    ModelEntry entry{};
    entry.key = one_in(30) ? any_key() : any_key([&](const ModelKey& other) {
      return !is_window(other.kind) && other.valid && other.length > 0 && other.pdn == who.pdn &&
             ((other.access | ~request.access) & KH_ACCESS_LOCAL_WRITE);
    });
    auto [addr, length] = any_range(entry.key);
    entry.addr = addr;
    entry.length = static_cast<uint32_t>(one_in(15) ? 0 : length);
    if (request.repeat_count) {
      // Shorter, so that the rounds fit more often than not.
      entry.length = static_cast<uint32_t>(entry.length / request.repeat_count);
      entry.stride = one_in(10) ? random() : below(entry.length + 3);
      strides.push_back({entry.addr, static_cast<uint32_t>(entry.length), entry.key, entry.stride});
    } else {
      klms.push_back({entry.addr, static_cast<uint32_t>(entry.length), entry.key});
    }
    entries.push_back(entry);
  }

  auto verdict = [&]() -> Syndrome {
    if (!key) return KH_SYN_UMR_KEY;
    if (key->kind != MkeyKind::indirect) return KH_SYN_UMR_KIND;
    if (key->pdn != who.pdn) return KH_SYN_UMR_PD;
    if (model.windows_on(request.key)) return KH_SYN_UMR_BUSY;
    if (request.num_entries == 0 || request.num_entries > key->max_entries) return KH_SYN_UMR_COUNT;
    if (request.access & ~0x3fu) return KH_SYN_UMR_ACCESS;
    if ((request.access & KH_ACCESS_MW_BIND) && !(key->created_access & KH_ACCESS_MW_BIND))
      return KH_SYN_UMR_ACCESS;
    if ((request.access & (KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC)) &&
        !(request.access & KH_ACCESS_LOCAL_WRITE))
      return KH_SYN_UMR_ACCESS;
    if ((request.access & KH_ACCESS_ZERO_BASED) && request.start) return KH_SYN_UMR_RANGE;
    unsigned __int128 total = 0;
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const ModelEntry& entry = entries[i];
      if (entry.length == 0) continue;
      total += entry.length;
      const Syndrome at = KH_SYN_UMR_ENTRY | i << 16;
      if (entry.key == request.key) return at | KH_SYN_KEY_DEPTH;
      using Wide = unsigned __int128;
      Wide reach = entry.length;
      if (request.repeat_count) reach += Wide{entry.stride} * (request.repeat_count - 1);
      const uint64_t span = reach > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(reach);
      if (uint32_t why = model.entry_fault(entry.key, entry.addr, span,
                                           request.access & KH_ACCESS_LOCAL_WRITE, who.pdn))
        return at | why;
      const ModelKey& inner = *model.find(entry.key);
      if (inner.kind == MkeyKind::indirect && inner.depth >= 4) return at | KH_SYN_KEY_DEPTH;
    }
    if (request.repeat_count) total *= request.repeat_count;
    if (total > UINT64_MAX) return KH_SYN_UMR_RANGE;
    if (total > 0 && request.start + (static_cast<uint64_t>(total) - 1) < request.start)
      return KH_SYN_UMR_RANGE;
    return 0;
  };
  const Syndrome expected = verdict();
  const auto* list = request.repeat_count ? reinterpret_cast<const std::byte*>(strides.data())
                                          : reinterpret_cast<const std::byte*>(klms.data());
  std::byte none{};
  auto done = table.fill(request, list ? list : &none, who);
  expect(done ? 0 : done.error(), expected, "fill");
  if (expected) return;
  key->valid = true;
  key->access = request.access | (key->created_access & KH_ACCESS_MW_BIND);
  key->start = request.start;
  key->rounds = request.repeat_count;
  key->entries = entries;
  key->depth = 1;
  key->length = 0;
  for (const ModelEntry& entry : entries) {
    key->length += entry.length;
    if (entry.length == 0) continue;
    const ModelKey& inner = *model.find(entry.key);
    if (inner.kind == MkeyKind::indirect) key->depth = std::max(key->depth, inner.depth + 1);
  }
  if (key->rounds) key->length *= key->rounds;
  const Mkey* real = table.query(request.key);
  ASSERT_EQ(real->length, key->length);
  ASSERT_EQ(real->indirect->table.depth, key->depth);
}

void KeyModel::unfill() {
  uint32_t handle = any_key();
  KeyUser who = any_user();
  ModelKey* key = model.find(handle);
  Syndrome expected = 0;
  if (!key)
    expected = KH_SYN_UMR_KEY;
  else if (key->kind != MkeyKind::indirect)
    expected = KH_SYN_UMR_KIND;
  else if (key->pdn != who.pdn)
    expected = KH_SYN_UMR_PD;
  else if (model.windows_on(handle))
    expected = KH_SYN_UMR_BUSY;
  auto done = table.unfill(handle, who);
  expect(done ? 0 : done.error(), expected, "unfill");
  if (expected) return;
  key->valid = false;
  key->access = key->created_access;
  key->entries.clear();
  key->length = key->start = 0;
}

// The rules of binding have a test of their own: here only whether windows reach what they should.
void KeyModel::bind() {
  uint32_t handle = any_key([](const ModelKey& key) { return is_window(key.kind); });
  ModelKey* window = model.find(handle);
  if (!window || !is_window(window->kind)) return;
  uint32_t region_key = any_key([](const ModelKey& key) {
    return key.valid && !is_window(key.kind) && (key.access & KH_ACCESS_MW_BIND) &&
           !(key.access & KH_ACCESS_ZERO_BASED);
  });
  KeyUser who = any_user();
  auto [addr, length] = any_range(region_key);
  kh_wqe_bind request{};
  request.mw_key = handle;
  request.new_key = (handle & ~0xffu) | KH_KEY_VARIANT(handle + 1);
  request.mr_key = region_key;
  request.addr = addr;
  request.length = length;
  request.access = any_access() & KH_ACCESS_REMOTE;
  if (one_in(3)) request.access |= KH_ACCESS_ZERO_BASED;
  auto done = table.bind(request, who, windows[who.qpn]);
  if (!done) {
    ++refused;
    return;
  }
  ++good;
  const ModelKey* region = model.find(region_key);
  if (length > 0) {
    ASSERT_TRUE(region && region->valid && region->pdn == who.pdn && window->pdn == who.pdn);
    ASSERT_TRUE(region->kind == MkeyKind::direct || region->kind == MkeyKind::indirect);
    ASSERT_TRUE(Model::inside(*region, addr, length));
    ASSERT_TRUE(region->access & KH_ACCESS_MW_BIND);
    ASSERT_FALSE(region->access & KH_ACCESS_ZERO_BASED);
    ASSERT_TRUE((region->access & KH_ACCESS_LOCAL_WRITE) ||
                !(request.access & (KH_ACCESS_REMOTE_WRITE | KH_ACCESS_REMOTE_ATOMIC)));
    ASSERT_FALSE(window->kind == MkeyKind::mw2 && window->valid);
  }
  ModelKey bound = *window;
  bound.valid = length > 0;
  bound.access = request.access & KH_ACCESS_REMOTE;
  bound.start = request.access & KH_ACCESS_ZERO_BASED ? 0 : addr;
  bound.length = length;
  bound.memory = addr - (region ? region->start : 0);
  bound.bound_to = length ? region_key : 0;
  bound.qpn = who.qpn;
  forget(KH_KEY_INDEX(handle));
  remember(request.new_key, std::move(bound));
}

void KeyModel::invalidate() {
  uint32_t handle = any_key();
  KeyUser who = any_user();
  ModelKey* key = model.find(handle);
  Syndrome expected = 0;
  if (!key)
    expected = KH_SYN_INV_KEY;
  else if (key->kind != MkeyKind::mw2)
    expected = KH_SYN_INV_KIND;
  else if (key->pdn != who.pdn)
    expected = KH_SYN_INV_PD;
  else if (key->valid && key->qpn != who.qpn)
    expected = KH_SYN_INV_QP;
  auto done = table.invalidate(handle, who);
  expect(done ? 0 : done.error(), expected, "invalidate");
  if (expected) return;
  key->valid = false;
  key->length = key->start = 0;
  key->bound_to = 0;
}

void KeyModel::access() {
  const uint32_t handle =
      one_in(2) ? any_key() : any_key([](const ModelKey& key) { return key.valid; });
  const KeyUser who = any_user();
  auto [addr, length] = any_range(handle);
  if (length > 100'000) length = below(100'000);
  const bool remote = one_in(2);
  constexpr uint32_t rights[] = {KH_ACCESS_REMOTE_WRITE, KH_ACCESS_REMOTE_READ,
                                 KH_ACCESS_REMOTE_ATOMIC};
  const uint32_t right = rights[below(3)];
  const bool write = remote ? right != KH_ACCESS_REMOTE_READ : one_in(2);
  if (length == 0) return;

  const ModelKey* key = model.find(handle);
  const Syndrome use = remote ? KH_SYN_REMOTE_KEY : KH_SYN_LOCAL_KEY;
  auto verdict = [&]() -> Syndrome {
    if (!key) return model.missing(handle);
    if (!remote && is_window(key->kind)) return KH_SYN_KEY_KIND;
    if (!key->valid) return KH_SYN_KEY_FREE;
    if (key->pdn != who.pdn) return KH_SYN_KEY_PD;
    if (key->kind == MkeyKind::mw2 && key->qpn != who.qpn) return KH_SYN_KEY_QP;
    if (!Model::inside(*key, addr, length)) return KH_SYN_KEY_RANGE;
    if (!(key->access & (remote  ? right
                         : write ? KH_ACCESS_LOCAL_WRITE
                                 : ~0u)) &&
        (remote || write))
      return KH_SYN_KEY_RIGHTS;
    return 0;
  };
  Syndrome expected = KH_KEY_INDEX(handle) == 0 ? 0 : verdict();
  if (KH_KEY_INDEX(handle) == 0) return;  // the reserved key
  auto cursor = remote ? table.remote(handle, addr, length, right, who)
                       : table.local(handle, addr, length, write, who);
  expect(cursor ? 0 : cursor.error(), expected ? use | expected : 0, "access");
  if (!cursor) return;

  std::vector<Reach> reach;
  uint32_t number = 0;
  const ModelKey* behind = key;
  uint64_t position = addr - key->start;
  if (is_window(key->kind)) {
    behind = model.find(key->bound_to);
    ASSERT_TRUE(behind);
    position += key->memory;
  }
  const uint32_t why = model.collect(*behind, position, length, write, 0, reach, number);

  for (const Reach& piece : reach) {
    uint64_t done = 0;
    while (done < piece.length) {
      HostSpan span = cursor->next(one_in(4) ? 1 + below(5000) : UINT64_MAX);
      ASSERT_TRUE(span) << std::hex << cursor->why(use);
      ASSERT_LE(span.size, piece.length - done);
      ASSERT_EQ(span.host, arena + piece.memory + done);
      done += span.size;
    }
    bytes += done;
  }
  if (why == 0) {
    ASSERT_EQ(cursor->left(), 0u);
    return;
  }
  ++entry_errors;
  ASSERT_FALSE(cursor->next(UINT64_MAX));
  ASSERT_EQ(cursor->why(use),
            (remote ? KH_SYN_REMOTE_ENTRY : KH_SYN_LOCAL_ENTRY) | why | number << 16);
}

TEST_F(KeyModel, TheTableReachesWhatTheModelReachesAndNothingElse) {
  const uint64_t seed = from_environment("KEYHOLE_SEED", std::random_device{}());
  const uint64_t steps = from_environment("KEYHOLE_STEPS", kTableSteps);
  std::printf("KEYHOLE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  SCOPED_TRACE("KEYHOLE_SEED=" + std::to_string(seed));
  random.seed(seed);
  for (uint64_t step = 0; step < steps; ++step) {
    const uint64_t dice = below(100);
    if (model.keys.size() < 20 || (dice < 6 && model.keys.size() < 60))
      create();
    else if (dice < 10)
      destroy();
    else if (dice < 13)
      reregister();
    else if (dice < 35)
      fill();
    else if (dice < 36)
      unfill();
    else if (dice < 42)
      bind();
    else if (dice < 44)
      invalidate();
    else
      access();
    if (HasFatalFailure()) FAIL() << "step " << step;
  }
  std::printf("%llu steps: %llu done, %llu refused, %llu ended in an entry, %llu bytes\n",
              static_cast<unsigned long long>(steps), static_cast<unsigned long long>(good),
              static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(entry_errors),
              static_cast<unsigned long long>(bytes));
  // A run in which nothing interesting happened would prove nothing.
  EXPECT_GT(good, steps / 10);
  EXPECT_GT(refused, steps / 20);
  EXPECT_GT(entry_errors, steps / 2000);
  for (WindowList& list : windows)
    table.release(list);
}

}  // namespace
}  // namespace keyhole::test
