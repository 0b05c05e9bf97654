// SPDX-License-Identifier: BSD-2-Clause

#include "two_ends.h"

#include <cstring>

namespace keyhole::test {

namespace {
std::byte pattern(size_t i, uint8_t seed) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 17 + seed) & 0xff);
}
}  // namespace

void End::fill(uint64_t offset, size_t size, uint8_t seed) const {
  for (size_t i = 0; i < size; ++i)
    region.memory[offset + i] = pattern(i, seed);
}

bool End::holds(uint64_t offset, size_t size, uint8_t seed) const {
  for (size_t i = 0; i < size; ++i) {
    if (region.memory[offset + i] != pattern(i, seed)) return false;
  }
  return true;
}

Held::Held(const Segment& from) : span{}, segment(from) {
  for (const HostSpan& part : from.payload)
    bytes.insert(bytes.end(), part.host, part.host + part.size);
  bytes.resize(from.length);
  span = {bytes.data(), bytes.size()};
  segment.payload = {&span, bytes.empty() ? size_t{0} : size_t{1}};
}

End TransportTest::make_end(size_t station, const EndOptions& options) {
  End end;
  end.driver = &rig.driver(station);
  end.host = &rig.host(station);
  end.hca = &rig.hca(station);
  end.pdn = options.pdn ? options.pdn : end.driver->create_pd();
  end.send_cq = end.driver->create_cq(options.log_cq);
  end.recv_cq = options.one_cq ? end.send_cq : end.driver->create_cq(options.log_cq);
  end.region = end.driver->create_region(end.pdn, options.region, options.access);
  QpOptions qp;
  qp.type = options.type;
  qp.pdn = end.pdn;
  qp.send_cqn = end.send_cq.cqn;
  qp.recv_cqn = end.recv_cq.cqn;
  qp.srqn = options.srqn;
  qp.context = options.context;
  qp.log_sq_blocks = options.log_sq_blocks;
  qp.log_rq_size = options.log_rq_size;
  qp.max_send_sge = options.max_send_sge;
  qp.max_recv_sge = options.max_recv_sge;
  end.qp = end.driver->create_qp(qp);
  return end;
}

kh_qp_attr TransportTest::init_attr(const End& end, const Connection& link) const {
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE | KH_QP_PKEY_INDEX | KH_QP_PORT;
  attr.state = KH_QPS_INIT;
  attr.port = 1;
  if (end.qp.type >= KH_QPT_UD) {
    attr.mask |= KH_QP_QKEY;
    attr.qkey = 0x1234;
  } else {
    attr.mask |= KH_QP_ACCESS_FLAGS;
    attr.access = static_cast<uint8_t>(link.access);
  }
  return attr;
}

kh_qp_attr TransportTest::rtr_attr(const End& end, const End& peer, const Connection& link,
                                   uint32_t psn) const {
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE;
  attr.state = KH_QPS_RTR;
  if (end.qp.type >= KH_QPT_UD) return attr;
  attr.mask |= KH_QP_AV | KH_QP_PATH_MTU | KH_QP_DEST_QPN | KH_QP_RQ_PSN;
  attr.av = end.driver->path_to(*peer.driver);
  attr.path_mtu = link.path_mtu;
  attr.dest_qpn = peer.qp.qpn;
  attr.rq_psn = psn;
  if (end.qp.type == KH_QPT_RC) {
    attr.mask |= KH_QP_MAX_DEST_RD_ATOMIC | KH_QP_MIN_RNR_TIMER;
    attr.max_dest_rd_atomic = link.max_dest_rd_atomic;
    attr.min_rnr_timer = link.min_rnr_timer;
  }
  return attr;
}

kh_qp_attr TransportTest::rts_attr(const End& end, const Connection& link, uint32_t psn) const {
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE | KH_QP_SQ_PSN;
  attr.state = KH_QPS_RTS;
  attr.sq_psn = psn;
  if (end.qp.type == KH_QPT_RC) {
    attr.mask |= KH_QP_TIMEOUT | KH_QP_RETRY_CNT | KH_QP_RNR_RETRY | KH_QP_MAX_QP_RD_ATOMIC;
    attr.timeout = link.timeout;
    attr.retry_cnt = link.retry_cnt;
    attr.rnr_retry = link.rnr_retry;
    attr.max_rd_atomic = link.max_rd_atomic;
  }
  return attr;
}

void TransportTest::to_rtr(End& end, End& peer, const Connection& link, uint32_t rq_psn) {
  ASSERT_EQ(end.driver->modify_qp(end.qp, init_attr(end, link)), KH_ST_OK);
  ASSERT_EQ(end.driver->modify_qp(end.qp, rtr_attr(end, peer, link, rq_psn)), KH_ST_OK);
}

void TransportTest::to_rts(End& end, const Connection& link, uint32_t sq_psn) {
  ASSERT_EQ(end.driver->modify_qp(end.qp, rts_attr(end, link, sq_psn)), KH_ST_OK);
}

void TransportTest::connect(End& x, End& y, const Connection& link) {
  to_rtr(x, y, link, link.psn_back);
  to_rtr(y, x, link, link.psn_forth);
  to_rts(x, link, link.psn_forth);
  to_rts(y, link, link.psn_back);
}

void TransportTest::make_pair(const EndOptions& options, const Connection& link) {
  a = make_end(0, options);
  b = make_end(1, options);
  connect(a, b, link);
}

uint8_t TransportTest::set_state(End& end, uint8_t state, uint32_t more) {
  kh_qp_attr attr{};
  attr.mask = KH_QP_STATE | more;
  attr.state = state;
  attr.en_sqd_async_notify = 1;
  return end.driver->modify_qp(end.qp, attr);
}

Work TransportTest::write(End& from, uint64_t at, uint32_t length, End& to, uint64_t to_at,
                          uint64_t wr_id) {
  Work work;
  work.opcode = KH_OP_WRITE;
  work.wr_id = wr_id;
  work.sge = {from.at(at, length)};
  work.remote_addr = to.region.start + to_at;
  work.rkey = to.region.key;
  return work;
}

Work TransportTest::read(End& to, uint64_t at, uint32_t length, End& from, uint64_t from_at,
                         uint64_t wr_id) {
  Work work = write(to, at, length, from, from_at, wr_id);
  work.opcode = KH_OP_READ;
  return work;
}

Work TransportTest::send(End& from, uint64_t at, uint32_t length, uint64_t wr_id) {
  Work work;
  work.opcode = KH_OP_SEND;
  work.wr_id = wr_id;
  work.sge = {from.at(at, length)};
  return work;
}

Work TransportTest::fetch_add(End& from, uint64_t at, End& to, uint64_t to_at, uint64_t add,
                              uint64_t wr_id) {
  Work work = write(from, at, 8, to, to_at, wr_id);
  work.opcode = KH_OP_FETCH_ADD;
  work.swap_add = add;
  return work;
}

kh_cqe TransportTest::sent(End& end) {
  rig.run();
  kh_cqe cqe{};
  EXPECT_TRUE(end.send_cq.poll(cqe)) << "no completion";
  return cqe;
}

kh_cqe TransportTest::received(End& end) {
  rig.run();
  kh_cqe cqe{};
  EXPECT_TRUE(end.recv_cq.poll(cqe)) << "no completion";
  return cqe;
}

bool TransportTest::nothing_sent(End& end) {
  rig.run();
  kh_cqe cqe{};
  return !end.send_cq.poll(cqe);
}

bool TransportTest::nothing_received(End& end) {
  rig.run();
  kh_cqe cqe{};
  return !end.recv_cq.poll(cqe);
}

std::optional<kh_eqe> TransportTest::event(End& end, kh_event kind) {
  rig.run();
  kh_eqe eqe{};
  while (end.driver->async_eq.poll(eqe)) {
    if (eqe.type == kind) return eqe;
  }
  return std::nullopt;
}

}  // namespace keyhole::test
