// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device's counters, as "rdma statistic" shows them.
 */
#include "keyhole.h"

static const struct rdma_stat_desc kh_stat_descs[KH_NUM_STATS] = {
	[KH_STAT_TX_OPS].name			= "tx_ops",
	[KH_STAT_TX_BYTES].name			= "tx_bytes",
	[KH_STAT_TX_PACKETS].name		= "tx_packets",
	[KH_STAT_RX_OPS].name			= "rx_ops",
	[KH_STAT_RX_BYTES].name			= "rx_bytes",
	[KH_STAT_RX_PACKETS].name		= "rx_packets",
	[KH_STAT_CQES].name			= "cqes",
	[KH_STAT_ERROR_CQES].name		= "error_cqes",
	[KH_STAT_FLUSHED_CQES].name		= "flushed_cqes",
	[KH_STAT_LOCAL_ERRORS].name		= "local_errors",
	[KH_STAT_REMOTE_ACCESS_ERRORS].name	= "remote_access_errors",
	[KH_STAT_REMOTE_INVALID_REQUESTS].name	= "remote_invalid_requests",
	[KH_STAT_REMOTE_OP_ERRORS].name		= "remote_op_errors",
	[KH_STAT_MW_BIND_ERRORS].name		= "mw_bind_errors",
	[KH_STAT_RNR_NAKS_SENT].name		= "rnr_naks_sent",
	[KH_STAT_RNR_NAKS_RECEIVED].name	= "rnr_naks_received",
	[KH_STAT_RNR_RETRY_EXCEEDED].name	= "rnr_retry_exceeded",
	[KH_STAT_RETRANSMITS].name		= "retransmits",
	[KH_STAT_RETRY_EXCEEDED].name		= "retry_exceeded",
	[KH_STAT_OUT_OF_SEQUENCE].name		= "out_of_sequence",
	[KH_STAT_DUPLICATES].name		= "duplicates",
	[KH_STAT_DROPPED].name			= "dropped",
	[KH_STAT_MW_BINDS].name			= "mw_binds",
	[KH_STAT_INVALIDATES].name		= "invalidates",
	[KH_STAT_DOORBELLS].name		= "doorbells",
	[KH_STAT_WAKES].name			= "wakes",
	[KH_STAT_EVENTS].name			= "events",
	[KH_STAT_INTERRUPTS].name		= "interrupts",
	[KH_STAT_ADMIN_COMMANDS].name		= "admin_commands",
	[KH_STAT_ADMIN_ERRORS].name		= "admin_errors",
	[KH_STAT_NIC_TX_FRAMES].name		= "nic_tx_frames",
	[KH_STAT_NIC_TX_BYTES].name		= "nic_tx_bytes",
	[KH_STAT_NIC_RX_FRAMES].name		= "nic_rx_frames",
	[KH_STAT_NIC_RX_BYTES].name		= "nic_rx_bytes",
	[KH_STAT_NIC_RX_DROPPED].name		= "nic_rx_dropped",
	[KH_STAT_UMR_FILLS].name		= "umr_fills",
	[KH_STAT_UMR_ERRORS].name		= "umr_errors",
};

struct rdma_hw_stats *kh_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(kh_stat_descs, KH_NUM_STATS,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int kh_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		    u32 port, int index)
{
	int err = kh_cmd_query_stats(to_kh_dev(ibdev), stats->value);

	return err ? err : KH_NUM_STATS;
}
