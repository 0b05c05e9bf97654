// SPDX-License-Identifier: BSD-2-Clause
//
// Two devices, and queue pairs between them of whatever kind a test wants.
//
// A Side is an opened device with a PD, a CQ and a registered buffer; a test adds what it is about.
// connect() brings any two RC, UC or UD queue pairs from wherever they are to RTS. Where waiting is
// needed it has an end, told by a count of polls, so that the same code runs where no system call
// is allowed.

#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace rig {

// ---- results ------------------------------------------------------------------------------------

extern int checks;
extern int failures;

void check(bool right, const std::string& what);
void same(int64_t got, int64_t wanted, const std::string& what);

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

template <class T>
T* need(T* object, const std::string& what) {
  if (!object) die(what);
  return object;
}

inline void need_zero(int err, const std::string& what) {
  if (err) {
    errno = err;
    die(what);
  }
}

// ---- owners -------------------------------------------------------------------------------------

template <auto Function>
struct Closer {
  void operator()(auto* object) const {
    if (const int err = Function(object)) {
      errno = err;
      die("destroying");
    }
  }
};
template <class T, auto Function>
using Owned = std::unique_ptr<T, Closer<Function>>;

using Context = Owned<ibv_context, ibv_close_device>;
using Pd = Owned<ibv_pd, ibv_dealloc_pd>;
using Td = Owned<ibv_td, ibv_dealloc_td>;
using Cq = Owned<ibv_cq, ibv_destroy_cq>;
using Mr = Owned<ibv_mr, ibv_dereg_mr>;
using Srq = Owned<ibv_srq, ibv_destroy_srq>;
using Qp = Owned<ibv_qp, ibv_destroy_qp>;
using Ah = Owned<ibv_ah, ibv_destroy_ah>;

// ---- a device with the usual objects ------------------------------------------------------------

struct Side {
  Side(const std::string& device, int gid_index, size_t bytes = 65536);

  Context context;
  Pd pd;
  Cq cq;
  std::vector<uint8_t> memory;
  Mr mr;
  ibv_gid gid{};
  int gid_index;

  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uintptr_t>(memory.data()) + offset;
  }
  ibv_sge sge(uint32_t length, size_t offset = 0) const {
    return {.addr = address(offset), .length = length, .lkey = mr->lkey};
  }
};

// As ibv_create_qp(3), with modest capabilities; anything in `init` that is not zero stays.
Qp make_qp(ibv_pd* pd, ibv_cq* cq, ibv_qp_init_attr init = {});

void to_reset(ibv_qp* qp);
void to_ready(ibv_qp* qp, const Side& here, const Side& there, uint32_t peer_qpn);
void connect(ibv_qp* a, const Side& side_a, ibv_qp* b, const Side& side_b);

// ---- requests -----------------------------------------------------------------------------------

// An RDMA WRITE of `length` bytes to the start of the other side's memory.
ibv_send_wr write_request(ibv_sge& sge, const Side& there, uint64_t wr_id = 0);
int post(ibv_qp* qp, ibv_send_wr wr);
int post_receive(ibv_qp* qp, ibv_sge* sge, uint64_t wr_id = 0);

// The next completion; ends the program when none comes in a long while.
ibv_wc next(ibv_cq* cq);
// Polls until `count` completions are there or none has come in a while.
std::vector<ibv_wc> collect(ibv_cq* cq, size_t count);

// ---- the tests ----------------------------------------------------------------------------------

struct Pair {
  Side& a;
  Side& b;
};

void test_domains(Pair pair);
void test_overflow(Pair pair);
void test_cleaning(Pair pair);
void test_shared_receive(Pair pair);
void test_completions(Pair pair);
void test_errors(Pair pair);
void test_regions(Pair pair);
// In a process of its own, which it ends: 0 when all was right.
[[noreturn]] void run_quietly(Pair pair, bool forbid);

}  // namespace rig
