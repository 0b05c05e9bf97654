// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// ibv_exp_poll_cq(3): completions of the standard verbs and of direct verbs, told in the numbers of
// the experimental ones.
//
// The caller's array has entries of wc_size bytes, which may be an older, shorter structure or a
// newer, longer one. Each completion is made up here and the part that fits is copied.

#include <algorithm>

#include "queues.h"
#include "tables.h"

namespace keyhole::exp {
namespace {

// The oldest structure ends with exp_wc_flags.
constexpr uint32_t kLeastSize = offsetof(ibv_exp_wc, tm_info);

class Entries {
 public:
  Entries(ibv_exp_wc* first, uint32_t size) : at_(reinterpret_cast<char*>(first)), size_(size) {}
  void add(const ibv_exp_wc& wc) {
    std::memcpy(at_, &wc, std::min<size_t>(size_, sizeof(wc)));
    at_ += size_;
  }

 private:
  char* at_;
  uint32_t size_;
};

uint64_t flags_of(unsigned wc_flags, ibv_exp_wc_opcode opcode, ibv_wc_status status) {
  uint64_t flags = report_bits(kWcFlags, wc_flags);
  // Valid of whatever came in; the old stack had them in the flags as a timestamp took their place.
  if (status == IBV_WC_SUCCESS && (opcode & IBV_EXP_WC_RECV))
    flags |= IBV_EXP_WC_WITH_SL | IBV_EXP_WC_WITH_SLID;
  return flags;
}

int poll_plain(ibv_cq* cq, int count, Entries entries) {
  constexpr int kBatch = 16;
  ibv_wc batch[kBatch];
  int done = 0;
  while (done < count) {
    const int wanted = std::min(kBatch, count - done);
    const int got = ibv_poll_cq(cq, wanted, batch);
    if (got < 0) return done ? done : -EIO;
    for (int i = 0; i < got; ++i) {
      const ibv_wc& from = batch[i];
      ibv_exp_wc wc{};
      wc.wr_id = from.wr_id;
      wc.status = wc_status(from.status);
      wc.vendor_err = from.vendor_err;
      wc.qp_num = from.qp_num;
      // Of a failure nothing else is valid, and the provider may not have written it.
      if (wc.status == IBV_WC_SUCCESS) {
        wc.exp_opcode = wc_opcode(from.opcode);
        wc.byte_len = from.byte_len;
        wc.imm_data = from.imm_data;
        wc.src_qp = from.src_qp;
        wc.pkey_index = from.pkey_index;
        wc.slid = from.slid;
        wc.sl = from.sl;
        wc.dlid_path_bits = from.dlid_path_bits;
        wc.exp_wc_flags = flags_of(from.wc_flags, wc.exp_opcode, wc.status);
      }
      entries.add(wc);
    }
    done += got;
    if (got < wanted) break;
  }
  return done;
}

int poll_extended(const ExtendedCq& record, int count, Entries entries) {
  if (!count) return 0;
  ibv_cq_ex* cq = record.cq;
  ibv_poll_cq_attr attr{};
  int err = ibv_start_poll(cq, &attr);
  if (err == ENOENT) return 0;
  if (err) return -EIO;
  int done = 0;
  for (; !err; err = ibv_next_poll(cq)) {
    ibv_exp_wc wc{};
    wc.wr_id = cq->wr_id;
    wc.status = wc_status(cq->status);
    wc.vendor_err = ibv_wc_read_vendor_err(cq);
    wc.qp_num = ibv_wc_read_qp_num(cq);
    if (wc.status == IBV_WC_SUCCESS) {
      wc.exp_opcode = wc_opcode(ibv_wc_read_opcode(cq));
      wc.byte_len = ibv_wc_read_byte_len(cq);
      wc.imm_data = ibv_wc_read_imm_data(cq);
      wc.src_qp = ibv_wc_read_src_qp(cq);
      wc.slid = static_cast<uint16_t>(ibv_wc_read_slid(cq));
      wc.sl = ibv_wc_read_sl(cq);
      wc.dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
      wc.timestamp = record.wallclock ? ibv_wc_read_completion_wallclock_ns(cq)
                                      : ibv_wc_read_completion_ts(cq);
      wc.exp_wc_flags = flags_of(ibv_wc_read_wc_flags(cq), wc.exp_opcode, wc.status) |
                        IBV_EXP_WC_WITH_TIMESTAMP;
    }
    entries.add(wc);
    if (++done == count) break;
  }
  ibv_end_poll(cq);
  return done;
}

}  // namespace
}  // namespace keyhole::exp

using namespace keyhole::exp;

extern "C" int ibv_exp_poll_cq(ibv_cq* ibcq, int num_entries, ibv_exp_wc* wc, uint32_t wc_size) {
  if (!ibcq || num_entries < 0 || (num_entries && !wc) || wc_size < kLeastSize) {
    errno = EINVAL;
    return -EINVAL;
  }
  const Entries entries(wc, wc_size);
  if (const ExtendedCq* record = extended_cqs().find(ibcq))
    return poll_extended(*record, num_entries, entries);
  return poll_plain(ibcq, num_entries, entries);
}
