// SPDX-License-Identifier: BSD-2-Clause
//
// Ways to other queue pairs.
//
// A packet reaches the HCA that has its destination MAC; that HCA takes it if the destination GID
// is in its table with the packet's VLAN. A connected queue pair takes it only from its peer: the
// packet's source GID and QPN must be the ones its own address vector names. Both ends are in this
// process, so all of this is checked by the sender, once, and remembered for as long as nothing
// that it depends on has moved: the switch, both GID tables and both queue pairs.

#include <cstring>

#include "hca/hca.h"
#include "hca/transport/datagram_header.h"
#include "hca/transport/qp.h"

namespace keyhole {
namespace {

Gid gid_of(const uint8_t (&bytes)[16]) {
  Gid gid;
  std::memcpy(gid.data(), bytes, gid.size());
  return gid;
}

constexpr uint32_t kMulticastQpn = 0xffffff;

bool has_vlan(const Hca& hca, uint16_t vlan) {
  for (uint32_t i = 0; i < DeviceLimits::gid_table_len; ++i) {
    const GidEntry* entry = hca.gid(i);
    if (entry && entry->vlan == vlan) return true;
  }
  return false;
}

}  // namespace

Hca* Qp::find_station(const kh_av& av, const GidEntry& source) const {
  if (!hca_.link() || !hca_.rdma_up()) return nullptr;
  Hca* station = hca_.link()->find(Mac::at(av.dmac));
  if (!station) return nullptr;
  Gid dgid = gid_of(av.dgid);
  // IPv4 does not talk to IPv6.
  if (is_ipv4(dgid) != is_ipv4(source.gid)) return nullptr;
  if (station->find_gid(dgid, source.vlan) < 0) return nullptr;
  return station;
}

Qp* Qp::find_peer() {
  if (path_.hca && hca_.link()->generation() == path_.link_generation &&
      hca_.gid_generation() == path_.gid_generation &&
      path_.hca->gid_generation() == path_.peer_gid_generation) [[likely]] {
    Qp* peer = path_.hca->find_qp(attr_.dest_qpn);
    if (peer && peer == path_.qp && peer->serial_ == path_.serial) [[likely]]
      return peer;
  }
  return find_peer_slowly();
}

Qp* Qp::find_peer_slowly() {
  path_ = {};
  const GidEntry* source = hca_.gid(attr_.av.sgid_index);
  if (!source) return nullptr;
  Hca* station = find_station(attr_.av, *source);
  if (!station) return nullptr;
  Qp* peer = station->find_qp(attr_.dest_qpn);
  if (!peer || peer->config_.type != config_.type) return nullptr;
  // Would the peer take it for a packet of a stranger?
  if (peer->attr_.dest_qpn != qpn() || gid_of(peer->attr_.av.dgid) != source->gid) return nullptr;
  const GidEntry* theirs = station->gid(peer->attr_.av.sgid_index);
  if (!theirs || theirs->gid != gid_of(attr_.av.dgid)) return nullptr;
  path_ = {.hca = station,
           .qp = peer,
           .serial = peer->serial_,
           .link_generation = hca_.link()->generation(),
           .gid_generation = hca_.gid_generation(),
           .peer_gid_generation = station->gid_generation()};
  return peer;
}

Hca* Qp::find_datagram_station(const kh_av& av, const GidEntry& source) {
  if (path_.hca && hca_.link()->generation() == path_.link_generation &&
      hca_.gid_generation() == path_.gid_generation &&
      path_.hca->gid_generation() == path_.peer_gid_generation &&
      std::memcmp(&av, &path_av_, sizeof(av)) == 0)
    return path_.hca;
  path_ = {};
  Hca* station = find_station(av, source);
  if (!station) return nullptr;
  path_ = {.hca = station,
           .link_generation = hca_.link()->generation(),
           .gid_generation = hca_.gid_generation(),
           .peer_gid_generation = station->gid_generation()};
  path_av_ = av;
  return station;
}

void Qp::deliver_datagram(Segment segment, const kh_wqe_ud& ud, const GidEntry& source) {
  if (!hca_.link() || !hca_.rdma_up()) return;
  Gid dgid = gid_of(ud.av.dgid);
  DatagramPath path{source.gid,      dgid,
                    source.mac,      source.vlan,
                    ud.av.sl,        ud.av.traffic_class,
                    ud.av.hop_limit, ud.av.flow_label};
  segment.path = &path;
  if (faults_) [[unlikely]] {
    Fate fate = faults_->on_segment(segment);
    if (fate == Fate::lost || fate == Fate::held) return;
  }

  if (!is_multicast(dgid)) {
    Hca* station = find_datagram_station(ud.av, source);
    Qp* peer = station ? station->find_qp(segment.dest_qpn) : nullptr;
    if (peer && !peer->connected()) {
      peer->receive(segment);
    } else if (station) {
      ++station->stats()[KH_STAT_DROPPED];
    }
    return;
  }
  if (segment.dest_qpn != kMulticastQpn) return;
  // Every member gets a copy, the sender too if it is one (specification, 10.5.2).
  for (Hca* station : hca_.link()->stations()) {
    if (!has_vlan(*station, source.vlan)) continue;
    for (Qp* member : station->mcast_members(dgid))
      member->receive(segment);
  }
}

}  // namespace keyhole
