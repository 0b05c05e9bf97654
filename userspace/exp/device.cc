// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
//
// Devices, ports and clocks: ibv_exp_open_device(3), ibv_exp_query_device(3),
// ibv_exp_query_gid_attr(3), ibv_exp_query_values(3), ibv_exp_cqe_ts_to_ns(3).
//
// The capability query is where a program learns what it may call. So each block of it is answered
// only where the calls behind it work: the standard ones on any provider, those of indirect mkeys,
// masked atomics and inline receive on a Keyhole HCA.

#include <climits>
#include <cstdlib>

#include "tables.h"

namespace keyhole::exp {
namespace {

// A scale at which a clock of 1 GHz can be hours away from its reference, and the factor has seven
// digits.
constexpr uint32_t kClockShift = 21;

void answer_standard(const ibv_device_attr& from, ibv_exp_device_attr& to) {
  std::memcpy(to.fw_ver, from.fw_ver, sizeof(to.fw_ver));
  to.node_guid = from.node_guid;
  to.sys_image_guid = from.sys_image_guid;
  to.max_mr_size = from.max_mr_size;
  to.page_size_cap = from.page_size_cap;
  to.vendor_id = from.vendor_id;
  to.vendor_part_id = from.vendor_part_id;
  to.hw_ver = from.hw_ver;
  to.max_qp = from.max_qp;
  to.max_qp_wr = from.max_qp_wr;
  to.reserved = 0;
  to.max_sge = from.max_sge;
  to.max_sge_rd = from.max_sge_rd;
  to.max_cq = from.max_cq;
  to.max_cqe = from.max_cqe;
  to.max_mr = from.max_mr;
  to.max_pd = from.max_pd;
  to.max_qp_rd_atom = from.max_qp_rd_atom;
  to.max_ee_rd_atom = from.max_ee_rd_atom;
  to.max_res_rd_atom = from.max_res_rd_atom;
  to.max_qp_init_rd_atom = from.max_qp_init_rd_atom;
  to.max_ee_init_rd_atom = from.max_ee_init_rd_atom;
  to.exp_atomic_cap = atomic_cap(from.atomic_cap);
  to.max_ee = from.max_ee;
  to.max_rdd = from.max_rdd;
  to.max_mw = from.max_mw;
  to.max_raw_ipv6_qp = from.max_raw_ipv6_qp;
  to.max_raw_ethy_qp = from.max_raw_ethy_qp;
  to.max_mcast_grp = from.max_mcast_grp;
  to.max_mcast_qp_attach = from.max_mcast_qp_attach;
  to.max_total_mcast_qp_attach = from.max_total_mcast_qp_attach;
  to.max_ah = from.max_ah;
  to.max_fmr = from.max_fmr;
  to.max_map_per_fmr = from.max_map_per_fmr;
  to.max_srq = from.max_srq;
  to.max_srq_wr = from.max_srq_wr;
  to.max_srq_sge = from.max_srq_sge;
  to.max_pkeys = from.max_pkeys;
  to.local_ca_ack_delay = from.local_ca_ack_delay;
  to.phys_port_cnt = from.phys_port_cnt;
}

uint64_t exp_flags(const ibv_device_attr_ex& device,
                   const std::optional<keyholedv_context>& keyhole) {
  uint64_t flags =
      report_bits(kDeviceFlags, device.orig_attr.device_cap_flags | device.device_cap_flags_ex);
  flags |= IBV_EXP_DEVICE_MR_ALLOCATE;  // by this library
  if (device.odp_caps.general_caps & IBV_ODP_SUPPORT) flags |= IBV_EXP_DEVICE_ODP;
  if (keyhole) {
    if (keyhole->flags & KEYHOLEDV_CAP_INDIRECT_MKEY) flags |= IBV_EXP_DEVICE_UMR;
    if (keyhole->flags & KEYHOLEDV_CAP_NOP) flags |= IBV_EXP_DEVICE_NOP;
    if (keyhole->flags & KEYHOLEDV_CAP_MASKED_ATOMIC)
      flags |= IBV_EXP_DEVICE_EXT_ATOMICS | IBV_EXP_DEVICE_EXT_MASKED_ATOMICS;
  }
  return flags;
}

ibv_exp_odp_caps odp_caps(const ibv_device_attr_ex& device) {
  const auto transport = [](uint32_t caps) {
    return static_cast<uint32_t>(report_bits(kOdpTransport, caps));
  };
  ibv_exp_odp_caps caps{};
  caps.general_odp_caps = report_bits(kOdpGeneral, device.odp_caps.general_caps);
  caps.per_transport_caps.rc_odp_caps = transport(device.odp_caps.per_transport_caps.rc_odp_caps);
  caps.per_transport_caps.uc_odp_caps = transport(device.odp_caps.per_transport_caps.uc_odp_caps);
  caps.per_transport_caps.ud_odp_caps = transport(device.odp_caps.per_transport_caps.ud_odp_caps);
  caps.per_transport_caps.xrc_odp_caps = transport(device.xrc_odp_caps);
  return caps;
}

// Fills in the blocks of `asked` that there are, and returns their bits.
uint32_t answer_blocks(uint32_t asked, const ibv_device_attr_ex& device,
                       const std::optional<keyholedv_context>& keyhole, ibv_exp_device_attr& to) {
  uint32_t answered = 0;
  const auto offers = [&](uint32_t bit, bool there) {
    if (!(asked & bit) || !there) return false;
    answered |= bit;
    return true;
  };
  const bool mkeys = keyhole && (keyhole->flags & KEYHOLEDV_CAP_INDIRECT_MKEY);
  const bool masked = keyhole && (keyhole->flags & KEYHOLEDV_CAP_MASKED_ATOMIC);
  const bool odp = device.odp_caps.general_caps & IBV_ODP_SUPPORT;

  if (offers(IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK, device.completion_timestamp_mask))
    to.timestamp_mask = device.completion_timestamp_mask;
  if (offers(IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK, device.hca_core_clock))
    to.hca_core_clock = device.hca_core_clock;
  if (offers(IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS, true))
    to.exp_device_cap_flags = exp_flags(device, keyhole);
  if (offers(IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ, keyhole.has_value()))
    to.inline_recv_sz = kMaxInlineReceive;
  // Sizes are masks of powers of two: 8 bytes. An argument of them is inline.
  if (offers(IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS, masked))
    to.ext_atom = {
        .log_atomic_arg_sizes = 8, .max_fa_bit_boundary = 64, .log_max_atomic_inline = 3};
  if (offers(IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS, masked))
    to.masked_atomic = {.max_fa_bit_boundary = 64,
                        .log_max_atomic_inline = 3,
                        .masked_log_atomic_arg_sizes = 8,
                        .masked_log_atomic_arg_sizes_network_endianness = 0};
  if (offers(IBV_EXP_DEVICE_ATTR_UMR, mkeys) && keyhole)
    to.umr_caps = {.max_klm_list_size = keyhole->max_mkey_entries,
                   .max_send_wqe_inline_klms = keyhole->max_inline_entries,
                   .max_umr_recursion_depth = keyhole->max_mkey_depth,
                   .max_umr_stride_dimension = 1};
  if (offers(IBV_EXP_DEVICE_ATTR_ODP, odp)) to.odp_caps = odp_caps(device);
  if (offers(IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE, odp))
    to.odp_mr_max_size = device.orig_attr.max_mr_size;
  if (offers(IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN, true)) to.max_ctx_res_domain = INT_MAX;
  if (offers(IBV_EXP_DEVICE_ATTR_TSO_CAPS, device.tso_caps.max_tso))
    to.tso_caps = {.max_tso = device.tso_caps.max_tso,
                   .supported_qpts = device.tso_caps.supported_qpts};
  if (offers(IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS,
             device.packet_pacing_caps.qp_rate_limit_max)) {
    to.packet_pacing_caps = {};
    to.packet_pacing_caps.qp_rate_limit_min = device.packet_pacing_caps.qp_rate_limit_min;
    to.packet_pacing_caps.qp_rate_limit_max = device.packet_pacing_caps.qp_rate_limit_max;
    to.packet_pacing_caps.supported_qpts = device.packet_pacing_caps.supported_qpts;
  }
  if (offers(static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2), true)) {
    const ibv_pci_atomic_caps& pci = device.pci_atomic_caps;
    uint64_t second = 0;
    if ((to.comp_mask_2 & IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS) &&
        (pci.fetch_add || pci.swap || pci.compare_swap)) {
      second = IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS;
      to.pci_atomic_caps = {
          .fetch_add = pci.fetch_add, .swap = pci.swap, .compare_swap = pci.compare_swap};
    }
    to.comp_mask_2 = second;
  }
  return answered;
}

// errno, or 0 with a structure whose later parts are 0 where the provider has only the old query.
int query_standard(ibv_context* context, ibv_device_attr_ex& device) {
  device = {};
  const int err = ibv_query_device_ex(context, nullptr, &device);
  if (err != EOPNOTSUPP && err != ENOSYS) return err;
  device = {};
  return ibv_query_device(context, &device.orig_attr);
}

}  // namespace
}  // namespace keyhole::exp

using namespace keyhole::exp;

extern "C" {

ibv_device** ibv_exp_get_device_list(int* num_devices) { return ibv_get_device_list(num_devices); }

ibv_context* ibv_exp_open_device(ibv_device* device, ibv_exp_open_device_attr* attr) {
  if (!device || !attr || !attr->comp_mask) return fail(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_SET_CONTEXT_ATTR_RESERVED)) return fail(EINVAL);
  // The one thing to set is a peer; a mask of all there is, with nobody in it, is no wish.
  if (attr->peer_info.peer_id || attr->peer_info.peer_name) return fail(ENOSYS);
  errno = 0;
  ibv_context* context = ibv_open_device(device);
  return context ? context : fail_as_provider();
}

int ibv_exp_query_device(ibv_context* context, ibv_exp_device_attr* attr) {
  if (!context || !attr) return fail_int(EINVAL);
  if ((attr->comp_mask & static_cast<uint32_t>(IBV_EXP_DEVICE_ATTR_COMP_MASK_2)) &&
      !mask_is_known(attr->comp_mask_2, IBV_EXP_DEVICE_ATTR_RESERVED_2))
    return fail_int(EINVAL);
  ibv_device_attr_ex device;
  if (int err = query_standard(context, device)) return fail_int(as_enosys(err));
  answer_standard(device.orig_attr, *attr);
  attr->comp_mask = answer_blocks(attr->comp_mask, device, keyhole_caps(context), *attr);
  return 0;
}

int ibv_exp_query_gid_attr(ibv_context* context, uint8_t port_num, unsigned int index,
                           ibv_exp_gid_attr* attr) {
  if (!context || !attr) return fail_int(EINVAL);
  if (!mask_is_known(attr->comp_mask, IBV_EXP_QUERY_GID_ATTR_RESERVED)) return fail_int(EINVAL);
  ibv_gid_entry entry{};
  if (int err = ibv_query_gid_ex(context, port_num, index, &entry, 0))
    return fail_int(as_enosys(err));
  if (attr->comp_mask & IBV_EXP_QUERY_GID_ATTR_GID) attr->gid = entry.gid;
  if (attr->comp_mask & IBV_EXP_QUERY_GID_ATTR_TYPE)
    attr->type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_EXP_ROCE_V2_GID_TYPE
                                                        : IBV_EXP_IB_ROCE_V1_GID_TYPE;
  return 0;
}

int ibv_exp_query_values(ibv_context* context, int q_values, ibv_exp_values* values) {
  if (!context || !values) return fail_int(EINVAL);
  if (q_values < 0 || !mask_is_known(static_cast<uint32_t>(q_values), IBV_EXP_VALUES_RESERVED) ||
      !mask_is_known(values->comp_mask, IBV_EXP_VALUES_RESERVED))
    return fail_int(EINVAL);
  if (!q_values) {
    values->comp_mask = 0;
    return 0;
  }

  ibv_values_ex raw{};
  raw.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  if (int err = ibv_query_rt_values_ex(context, &raw)) return fail_int(as_enosys(err));
  if (!(raw.comp_mask & IBV_VALUES_MASK_RAW_CLOCK)) return fail_int(ENOSYS);
  // Providers put ticks into tv_nsec, all 64 bits of them.
  const auto cycles = static_cast<uint64_t>(raw.raw_clock.tv_nsec);

  uint64_t mult = 0;
  uint64_t mask = 0;
  if (q_values & (IBV_EXP_VALUES_HW_CLOCK_NS | IBV_EXP_VALUES_CLOCK_INFO)) {
    ibv_device_attr_ex device;
    if (int err = query_standard(context, device)) return fail_int(as_enosys(err));
    if (!device.hca_core_clock || !device.completion_timestamp_mask) return fail_int(ENOSYS);
    // The clock is in kHz: a tick is 1e6 / kHz nanoseconds.
    mult = (uint64_t{1000000} << kClockShift) / device.hca_core_clock;
    mask = device.completion_timestamp_mask;
    if (!mult || mult > UINT32_MAX) return fail_int(ENOSYS);
  }
  const auto ns =
      static_cast<uint64_t>((static_cast<unsigned __int128>(cycles) * mult) >> kClockShift);

  if (q_values & IBV_EXP_VALUES_HW_CLOCK) values->hwclock = cycles;
  if (q_values & IBV_EXP_VALUES_HW_CLOCK_NS) values->hwclock_ns = ns;
  if (q_values & IBV_EXP_VALUES_CLOCK_INFO)
    values->clock_info = {.cycles = cycles,
                          .nsec = ns,
                          .frac = 0,
                          .mask = mask,
                          .shift = kClockShift,
                          .mult = static_cast<uint32_t>(mult),
                          .comp_mask = 0};
  values->comp_mask = static_cast<uint32_t>(q_values);
  return 0;
}

uint64_t ibv_exp_cqe_ts_to_ns(ibv_exp_clock_info* clock_info, uint64_t ts) {
  if (!clock_info || !mask_is_known(clock_info->comp_mask, IBV_EXP_CLOCK_INFO_RESERVED) ||
      clock_info->shift > 63) {
    errno = EINVAL;
    return 0;
  }
  const ibv_exp_clock_info& clock = *clock_info;
  // Half the mask ahead of the reference is after it, the other half before it. frac is what the
  // reference's nanoseconds lack, in units of 2^-shift.
  using Wide = unsigned __int128;
  const uint64_t after = (ts - clock.cycles) & clock.mask;
  if (after <= clock.mask / 2) {
    const Wide forth = Wide{after} * clock.mult + clock.frac;
    return clock.nsec + static_cast<uint64_t>(forth >> clock.shift);
  }
  const uint64_t before = (clock.cycles - ts) & clock.mask;
  const Wide back = Wide{before} * clock.mult;
  const Wide whole = back > clock.frac ? back - clock.frac : 0;
  return clock.nsec - static_cast<uint64_t>(whole >> clock.shift);
}

void* ibv_exp_get_provider_func(ibv_context* context, ibv_exp_func_name name) {
  if (!context) return fail(EINVAL);
  void* function = nullptr;
  switch (name) {
    case IBV_EXP_POST_SEND_FUNC: function = reinterpret_cast<void*>(ibv_exp_post_send); break;
    case IBV_EXP_POLL_CQ_FUNC: function = reinterpret_cast<void*>(ibv_exp_poll_cq); break;
    case IBV_POST_SEND_FUNC: function = reinterpret_cast<void*>(context->ops.post_send); break;
    case IBV_POLL_CQ_FUNC: function = reinterpret_cast<void*>(context->ops.poll_cq); break;
    case IBV_POST_RECV_FUNC: function = reinterpret_cast<void*>(context->ops.post_recv); break;
  }
  return function ? function : fail(ENOSYS);
}

int ibv_exp_setenv(ibv_context*, const char* name, const char* value, int overwrite) {
  if (!name || !value) {
    errno = EINVAL;
    return -1;
  }
  return setenv(name, value, overwrite);
}

}  // extern "C"
