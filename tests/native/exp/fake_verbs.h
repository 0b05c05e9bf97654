// SPDX-License-Identifier: BSD-2-Clause
//
// What libibverbs_exp stands on, made up: the functions of libibverbs and of direct verbs that it
// calls, and a context whose operations are these. They record what reaches them, and answer what a
// test has told them to.

#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <string>
#include <vector>

#include "keyholedv.h"

namespace fake {

// A request that reached the provider, by either way.
struct Posted {
  bool by_direct_verbs = false;
  ibv_send_wr standard{};
  std::vector<ibv_sge> sges;  // of a fill: its entries
  keyholedv_send_wr own{};
  std::vector<keyholedv_mr_interleaved> interleaved;
  uint64_t wr_id() const { return by_direct_verbs ? own.wr_id : standard.wr_id; }
};

class World {
 public:
  World();
  ~World();
  World(const World&) = delete;

  // Settings.
  bool keyhole = true;
  bool extended_query = true;  // ibv_query_device_ex works
  keyholedv_context caps{};
  ibv_device_attr_ex attributes{};
  uint64_t clock = 0;
  int refuse_wr_id = -1;  // posting it fails,
  int refuse_with = ENOMEM;
  int windows_on_mkeys = 0;    // destroying one is EBUSY
  void (*while_destroying)() = nullptr;  // what another thread does just then
  bool provider_fails = false;  // whatever creates something: ENOMEM
  bool cq_ex_works = true;
  ibv_gid_entry gid{};

  // Records.
  std::vector<Posted> posted;
  std::vector<int> chain_lengths;  // of each call to the provider's post_send
  std::deque<ibv_wc> completions;
  std::deque<uint64_t> timestamps;  // of those
  ibv_mw_bind bound{};
  int binds = 0;
  int regions = 0;  // registered, and not deregistered
  int mkeys = 0;
  int klm_lists = 0;
  int cqs = 0;
  ibv_mr last_region{};
  unsigned last_access = 0;
  keyholedv_mkey_init_attr last_mkey{};
  ibv_qp_init_attr_ex last_qp{};
  keyholedv_qp_init_attr last_own_qp{};
  bool qp_by_direct_verbs = false;
  ibv_cq_init_attr_ex last_cq{};
  ibv_qp_attr last_modify{};
  int last_modify_mask = 0;
  ibv_modify_cq_attr last_moderation{};
  int rereg_calls = 0;
  int calls = 0;  // of anything that changes something below

  // The memory of a destroyed CQ is given to the next one, as an allocator may do.
  ibv_cq_ex* allocate_cq();
  void free_cq(ibv_cq_ex* cq);

  // Objects.
  ibv_context* context() { return &verbs_.context; }
  ibv_context* other_context() { return &other_verbs_.context; }
  ibv_device* device() { return &device_; }
  ibv_pd pd{};
  ibv_pd foreign_pd{};
  ibv_qp qp{};
  ibv_mw mw{};

 private:
  void set_operations(verbs_context& verbs);
  ibv_cq_ex* spare_cq_ = nullptr;
  ibv_device device_{};
  verbs_context verbs_{};
  verbs_context other_verbs_{};
};

extern World* world;

}  // namespace fake
