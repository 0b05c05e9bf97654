// SPDX-License-Identifier: BSD-2-Clause
//
// A column of a matrix becomes a row at the peer: one RDMA WRITE, one key.
//
//   column_write [DEVICE GID-INDEX DEVICE GID-INDEX]
//
// A matrix lies in memory row by row, so a column is many small pieces, one in each row. A scatter
// list names them one by one, as many as the adapter takes in a request. An indirect mkey names
// them once, as what they are: a block that repeats at a stride. From then on the column is a
// plain buffer with a key, of any height, and what is done with it (here: WRITE) is done as with
// any other.

#include <infiniband/keyholedv.h>

#include "pair.h"

namespace {

constexpr unsigned kRows = 64;
constexpr unsigned kColumns = 8;
constexpr unsigned kColumnBytes = kRows * sizeof(uint32_t);

using Mkey = Owned<keyholedv_mkey, keyholedv_destroy_mkey>;

// A QP like that of `end`, with the calls that fill an mkey.
ibv_qp* filling_qp(const End& end) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = end.cq.get();
  init.cap = {8, 8, 1, 1, 0};  // send and receive requests, entries of each, inline data
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = end.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  keyholedv_qp_init_attr fills{};
  fills.send_ops_flags = KEYHOLEDV_QP_EX_WITH_MR_INTERLEAVED;
  fills.max_inline_entries = 1;  // a column has one source
  return need(keyholedv_create_qp(end.context.get(), &init, &fills), "keyholedv_create_qp");
}

// Makes `mkey` the name of a column: 4 bytes at the top, and again in each further row.
ibv_wc_status name_column(const End& end, keyholedv_mkey* mkey,
                          const std::vector<uint32_t>& matrix, uint32_t lkey, unsigned column) {
  const keyholedv_mr_interleaved source{.addr = reinterpret_cast<uint64_t>(&matrix[column]),
                                        .bytes_count = sizeof(uint32_t),
                                        .lkey = lkey,
                                        .stride = kColumns * sizeof(uint32_t)};
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(end.qp.get());
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  keyholedv_wr_mr_interleaved(keyholedv_qp_ex_from_ibv_qp_ex(qp), mkey, IBV_ACCESS_LOCAL_WRITE,
                              kRows, 1, &source);
  done(ibv_wr_complete(qp), "posting the fill");
  return end.wait().status;
}

// The mkey is used like the key of a region whose first byte has the address 0.
ibv_wc_status write_column(const End& end, const keyholedv_mkey* mkey, uint64_t row,
                           uint32_t rkey) {
  ibv_sge whole_column{.addr = 0, .length = kColumnBytes, .lkey = mkey->lkey};
  ibv_send_wr write{};
  write.opcode = IBV_WR_RDMA_WRITE;
  write.sg_list = &whole_column;
  write.num_sge = 1;
  write.wr.rdma.remote_addr = row;
  write.wr.rdma.rkey = rkey;
  return end.post(write);
}

bool is_column(const uint32_t* row, unsigned column) {
  for (unsigned r = 0; r < kRows; ++r)
    if (row[r] != 100 * r + column) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const auto [here, there] = two_ends(argc, argv);
  End matrix_end(here);
  End row_end(there);
  matrix_end.qp.reset(filling_qp(matrix_end));
  connect(matrix_end, row_end);

  std::vector<uint32_t> matrix(kRows * kColumns);
  for (unsigned i = 0; i < matrix.size(); ++i) matrix[i] = 100 * (i / kColumns) + i % kColumns;
  std::vector<uint32_t> transposed(matrix.size());  // each of its rows: a column
  const Region source = matrix_end.region(matrix, IBV_ACCESS_LOCAL_WRITE);
  const Region target =
      row_end.region(transposed, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

  keyholedv_mkey_init_attr empty{
      .pd = matrix_end.pd.get(), .max_entries = 1, .access = 0, .comp_mask = 0};
  const Mkey mkey(need(keyholedv_create_mkey(&empty), "keyholedv_create_mkey"));
  std::printf("%s has a matrix of %u rows and %u columns, %s has room for its transpose\n",
              here.device.c_str(), kRows, kColumns, there.device.c_str());

  for (unsigned column = 0; column < kColumns; ++column) {
    // The key stays the same; each fill replaces what it names.
    if (name_column(matrix_end, mkey.get(), matrix, source->lkey, column) != IBV_WC_SUCCESS)
      fail("the fill failed");
    uint32_t* row = &transposed[column * kRows];
    const auto remote = reinterpret_cast<uint64_t>(row);
    if (write_column(matrix_end, mkey.get(), remote, target->rkey) != IBV_WC_SUCCESS)
      fail("the WRITE failed");
    if (!is_column(row, column)) fail("what arrived is not the column");
    std::printf("column %u: 1 WRITE of %u pieces through key 0x%08x, the row is %u %u %u ... %u\n",
                column, kRows, mkey->lkey, row[0], row[1], row[2], row[kRows - 1]);
  }

  keyholedv_mkey_attr now{};
  done(keyholedv_query_mkey(mkey.get(), &now), "keyholedv_query_mkey");
  std::printf("the key names %llu bytes: %u source, %u rounds\n",
              static_cast<unsigned long long>(now.length), now.num_entries, now.repeat_count);
  return now.length == kColumnBytes ? 0 : 1;
}
