// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_exp_post_send(3).
//
// A chain is taken in order. Requests that the standard verbs have are collected, as they come,
// into chains of their structures and posted together; one that only direct verbs have first sends
// off what was collected, and then itself. So all are posted in the order of the chain, once each,
// and at the first that cannot be, everything before it has been posted and nothing after it.

#include <array>
#include <memory>
#include <new>

#include "klm_list.h"
#include "tables.h"

namespace keyhole::exp {
namespace {

constexpr uint64_t kAnyFlags = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;
constexpr uint64_t kCalcFlags = IBV_EXP_SEND_WITH_CALC | IBV_EXP_SEND_WAIT_EN_LAST;

// The flags of a request of which `allowed` mean something. Calculations are known everywhere, and
// served nowhere.
std::expected<unsigned, int> flags_of(const ibv_exp_send_wr& wr, uint64_t allowed) {
  if (wr.exp_send_flags & ~(kAnyFlags | kCalcFlags | allowed)) return std::unexpected(EINVAL);
  const auto flags = map_bits(kSendFlags, wr.exp_send_flags);
  if (!flags) return std::unexpected(flags.error());
  return static_cast<unsigned>(*flags);
}

// Standard requests that wait to be posted.
class Collected {
 public:
  // Neither array is read beyond count_, and zeroing them would be a part of each post.
  // cppcheck-suppress uninitMemberVar
  explicit Collected(ibv_qp* qp) : qp_(qp) {}

  // errno; 0 if it was taken.
  int add(ibv_exp_send_wr& from, ibv_wr_opcode opcode) {
    const auto flags = flags_of(from, IBV_EXP_SEND_INLINE | IBV_EXP_SEND_IP_CSUM);
    if (!flags) return flags.error();
    if (from.num_sge < 0 || (from.num_sge && !from.sg_list)) return EINVAL;
    ibv_send_wr& to = requests_[count_];
    to = {};
    to.wr_id = from.wr_id;
    to.sg_list = from.sg_list;
    to.num_sge = from.num_sge;
    to.opcode = opcode;
    to.send_flags = *flags;
    if (const int err = copy_operands(from, to)) return err;
    if (count_) requests_[count_ - 1].next = &to;
    origins_[count_++] = &from;
    return 0;
  }

  bool full() const { return count_ == kMost; }

  // errno, with the request that was not posted.
  int post(ibv_exp_send_wr*& bad) {
    if (!count_) return 0;
    ibv_send_wr* refused = requests_.data();
    const int err = ibv_post_send(qp_, requests_.data(), &refused);
    if (err) bad = origins_[static_cast<size_t>(refused - requests_.data())];
    count_ = 0;
    return err;
  }

 private:
  static constexpr size_t kMost = 16;

  int copy_operands(const ibv_exp_send_wr& from, ibv_send_wr& to) const {
    switch (to.opcode) {
      case IBV_WR_LOCAL_INV:
        to.invalidate_rkey = from.ex.invalidate_rkey;
        return 0;
      case IBV_WR_BIND_MW: {
        const auto& bind = from.bind_mw;
        if (!bind.mw || (!bind.bind_info.mr && (bind.bind_info.addr || bind.bind_info.length)))
          return EINVAL;
        const auto access = map_bits(kWindowAccess, bind.bind_info.exp_mw_access_flags);
        if (!access) return access.error();
        to.bind_mw.mw = bind.mw;
        to.bind_mw.rkey = bind.rkey;
        to.bind_mw.bind_info.mr = bind.bind_info.mr;
        to.bind_mw.bind_info.addr = bind.bind_info.addr;
        to.bind_mw.bind_info.length = bind.bind_info.length;
        to.bind_mw.bind_info.mw_access_flags = static_cast<unsigned>(*access);
        return 0;
      }
      case IBV_WR_TSO:
        to.tso.hdr = from.tso.hdr;
        to.tso.hdr_sz = from.tso.hdr_sz;
        to.tso.mss = from.tso.mss;
        break;
      case IBV_WR_SEND_WITH_INV:
        to.invalidate_rkey = from.ex.invalidate_rkey;
        break;
      case IBV_WR_SEND_WITH_IMM:
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        to.imm_data = from.ex.imm_data;
        break;
      case IBV_WR_ATOMIC_CMP_AND_SWP:
      case IBV_WR_ATOMIC_FETCH_AND_ADD:
        to.wr.atomic.remote_addr = from.wr.atomic.remote_addr;
        to.wr.atomic.compare_add = from.wr.atomic.compare_add;
        to.wr.atomic.swap = from.wr.atomic.swap;
        to.wr.atomic.rkey = from.wr.atomic.rkey;
        to.qp_type.xrc.remote_srqn = from.qp_type.xrc.remote_srqn;
        return 0;
      default: break;
    }
    // Which of the two it is, the QP's type says; the other is not looked at.
    if (qp_->qp_type == IBV_QPT_UD) {
      to.wr.ud.ah = from.wr.ud.ah;
      to.wr.ud.remote_qpn = from.wr.ud.remote_qpn;
      to.wr.ud.remote_qkey = from.wr.ud.remote_qkey;
    } else {
      to.wr.rdma.remote_addr = from.wr.rdma.remote_addr;
      to.wr.rdma.rkey = from.wr.rdma.rkey;
      to.qp_type.xrc.remote_srqn = from.qp_type.xrc.remote_srqn;
    }
    return 0;
  }

  ibv_qp* qp_;
  std::array<ibv_send_wr, kMost> requests_;
  std::array<ibv_exp_send_wr*, kMost> origins_;
  size_t count_ = 0;
};

// Room for a fill's entries: on the stack for what goes inline, mostly.
template <class Entry>
class List {
 public:
  Entry* of(size_t count) {
    if (count <= few_.size()) return few_.data();
    many_.reset(new (std::nothrow) Entry[count]);
    return many_.get();
  }

 private:
  std::array<Entry, 64> few_;
  std::unique_ptr<Entry[]> many_;
};

// More than any HCA takes inline, so that no list is copied for nothing.
constexpr uint32_t kMostInline = 4096;

int post_one(ibv_qp* qp, keyholedv_send_wr& wr) {
  keyholedv_send_wr* bad = nullptr;
  return as_enosys(keyholedv_post_send(qp, &wr, &bad));
}

int fill_from_regions(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  const auto& umr = from.ext_op.umr;
  if (!umr.mem_list.mem_reg_list) return EINVAL;
  List<ibv_sge> room;
  ibv_sge* list = room.of(umr.num_mrs);
  if (!list) return ENOMEM;
  for (uint32_t i = 0; i < umr.num_mrs; ++i) {
    const ibv_exp_mem_region& region = umr.mem_list.mem_reg_list[i];
    if (!region.mr || region.mr->context != qp->context || region.length > UINT32_MAX)
      return EINVAL;
    list[i] = {.addr = region.base_addr,
               .length = static_cast<uint32_t>(region.length),
               .lkey = region.mr->lkey};
  }
  wr.fill.list = list;
  return post_one(qp, wr);
}

int fill_from_blocks(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  const auto& umr = from.ext_op.umr;
  const auto& blocks = umr.mem_list.rb;
  if (blocks.stride_dim != 1) return EINVAL;
  if (!blocks.mem_repeat_block_list || !blocks.repeat_count) return EINVAL;
  const size_t rounds = blocks.repeat_count[0];
  if (!rounds || rounds > UINT32_MAX) return EINVAL;
  List<keyholedv_mr_interleaved> room;
  keyholedv_mr_interleaved* list = room.of(umr.num_mrs);
  if (!list) return ENOMEM;
  for (uint32_t i = 0; i < umr.num_mrs; ++i) {
    const ibv_exp_mem_repeat_block& block = blocks.mem_repeat_block_list[i];
    if (!block.mr || block.mr->context != qp->context || !block.byte_count || !block.stride)
      return EINVAL;
    if (block.byte_count[0] > UINT32_MAX) return EINVAL;
    list[i] = {.addr = block.base_addr,
               .bytes_count = static_cast<uint32_t>(block.byte_count[0]),
               .lkey = block.mr->lkey,
               .stride = block.stride[0]};
  }
  wr.fill.repeat_count = static_cast<uint32_t>(rounds);
  wr.fill.interleaved = list;
  return post_one(qp, wr);
}

int post_fill(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  const auto& umr = from.ext_op.umr;
  const auto flags = flags_of(from, IBV_EXP_SEND_INLINE);
  if (!flags) return flags.error();
  wr.send_flags = *flags;
  const auto access = map_bits(kMkeyAccess, umr.exp_access);
  if (!access) return access.error();
  if (!umr.modified_mr || umr.modified_mr->context != qp->context || !umr.num_mrs) return EINVAL;

  wr.fill.mkey = umr.modified_mr->lkey;
  wr.fill.access = static_cast<uint32_t>(*access);
  wr.fill.start = umr.base_addr;
  wr.fill.num_entries = umr.num_mrs;
  if (from.exp_send_flags & IBV_EXP_SEND_INLINE) {
    if (umr.num_mrs > kMostInline) return EINVAL;
  } else {
    const auto list = klm_list_of(umr.memory_objects, qp->context);
    if (!list) return list.error();
    if (umr.num_mrs > (*list)->max_entries) return EINVAL;
    wr.fill.klm_list = *list;
  }
  switch (umr.umr_type) {
    case IBV_EXP_UMR_MR_LIST: return fill_from_regions(qp, from, wr);
    case IBV_EXP_UMR_REPEAT: return fill_from_blocks(qp, from, wr);
    case IBV_EXP_UMR_MR_LIST_FIXED_SIZE: return ENOSYS;
    default: return EINVAL;
  }
}

int post_invalidate(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  // Programs turn a fill into it by its opcode alone; inline means nothing here.
  const auto flags = flags_of(from, IBV_EXP_SEND_INLINE);
  if (!flags) return flags.error();
  const ibv_mr* mr = from.ext_op.umr.modified_mr;
  if (!mr || mr->context != qp->context) return EINVAL;
  wr.send_flags = *flags & ~unsigned{IBV_SEND_INLINE};
  wr.invalidate_mkey = mr->lkey;
  return post_one(qp, wr);
}

// Of 8 bytes, with the arguments in the request: there is no other way to give them.
int post_masked_atomic(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  const auto& atomic = from.ext_op.masked_atomics;
  const auto flags = flags_of(from, IBV_EXP_SEND_EXT_ATOMIC_INLINE);
  if (!flags) return flags.error();
  if (!(from.exp_send_flags & IBV_EXP_SEND_EXT_ATOMIC_INLINE) || atomic.log_arg_sz != 3)
    return EINVAL;
  if (from.num_sge != 1 || !from.sg_list || from.sg_list[0].length != sizeof(uint64_t))
    return EINVAL;
  wr.send_flags = *flags;
  wr.atomic.remote_addr = atomic.remote_addr;
  wr.atomic.rkey = atomic.rkey;
  wr.atomic.sge = from.sg_list[0];
  const auto& operands = atomic.wr_data.inline_data.op;
  if (wr.opcode == KEYHOLEDV_WR_MASKED_CMP_SWAP) {
    wr.atomic.swap_add = operands.cmp_swap.swap_val;
    wr.atomic.swap_mask = operands.cmp_swap.swap_mask;
    wr.atomic.compare = operands.cmp_swap.compare_val;
    wr.atomic.compare_mask = operands.cmp_swap.compare_mask;
  } else {
    wr.atomic.swap_add = operands.fetch_add.add_val;
    wr.atomic.swap_mask = operands.fetch_add.field_boundary;
  }
  return post_one(qp, wr);
}

int post_nop(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_send_wr& wr) {
  const auto flags = flags_of(from, 0);
  if (!flags) return flags.error();
  wr.send_flags = *flags;
  return post_one(qp, wr);
}

int post_by_direct_verbs(ibv_qp* qp, const ibv_exp_send_wr& from, keyholedv_wr_opcode opcode) {
  if (!keyholedv_is_supported(qp->context->device)) return ENOSYS;
  keyholedv_send_wr wr{};
  wr.wr_id = from.wr_id;
  wr.opcode = opcode;
  switch (opcode) {
    case KEYHOLEDV_WR_FILL: return post_fill(qp, from, wr);
    case KEYHOLEDV_WR_INVALIDATE: return post_invalidate(qp, from, wr);
    case KEYHOLEDV_WR_MASKED_CMP_SWAP:
    case KEYHOLEDV_WR_MASKED_FETCH_ADD: return post_masked_atomic(qp, from, wr);
    case KEYHOLEDV_WR_NOP: return post_nop(qp, from, wr);
  }
  return EINVAL;
}

// errno, with the first request that was not posted.
int post_chain(ibv_qp* qp, ibv_exp_send_wr* first, ibv_exp_send_wr*& bad) {
  Collected collected(qp);
  for (ibv_exp_send_wr* wr = first; wr; wr = wr->next) {
    const SendOpcode* opcode = send_opcode(number_in(wr->exp_opcode));
    int err = 0;
    if (!opcode || !mask_is_known(wr->comp_mask, IBV_EXP_SEND_WR_ATTR_RESERVED))
      err = EINVAL;
    else if (opcode->way == Way::kNotServed)
      err = ENOSYS;
    else if (opcode->way == Way::kStandard)
      err = collected.add(*wr, static_cast<ibv_wr_opcode>(opcode->to));

    // What comes before this one goes first, also when this one goes nowhere.
    const bool standard = !err && opcode->way == Way::kStandard;
    if (standard && !collected.full()) continue;
    if (const int earlier = collected.post(bad)) return as_enosys(earlier);
    if (!err && !standard)
      err = post_by_direct_verbs(qp, *wr, static_cast<keyholedv_wr_opcode>(opcode->to));
    if (err) {
      bad = wr;
      return err;
    }
  }
  return as_enosys(collected.post(bad));
}

}  // namespace
}  // namespace keyhole::exp

extern "C" int ibv_exp_post_send(ibv_qp* qp, ibv_exp_send_wr* wr, ibv_exp_send_wr** bad_wr) {
  using namespace keyhole::exp;
  ibv_exp_send_wr* bad = wr;
  const int err = qp ? post_chain(qp, wr, bad) : EINVAL;
  if (!err) return 0;
  if (bad_wr) *bad_wr = bad;
  return fail_int(err);
}
