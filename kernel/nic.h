/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The NIC's rings: one for frames out, one for buffers in, one for frames that
 * came in.  netdev.c has one of these while the interface is up.
 */
#ifndef KH_NIC_H
#define KH_NIC_H

#include <linux/netdevice.h>

#include "keyhole.h"

struct kh_nic_slot {
	struct sk_buff *skb;
	dma_addr_t dma;
};

struct kh_nic {
	struct kh_dev *dev;
	struct net_device *ndev;
	struct napi_struct napi;
	int irq;
	char name[40];

	struct kh_buf buf;		/* the rings and the doorbell record */
	struct kh_nic_desc *tx;
	struct kh_nic_desc *rx;
	struct kh_nic_cqe *rxc;
	struct kh_nic_db *db;
	u16 db_slot;
	u32 arm_sn;

	struct kh_nic_slot *tx_slots;
	u32 tx_pi;			/* xmit's */
	u32 tx_ci;			/* napi's */

	struct kh_nic_slot *rx_slots;
	u32 rx_ci;			/* the ring is always full: pi is ci + size */
	u32 rx_len;			/* bytes of a buffer */
};

/* Rings for frames of ndev->mtu, known to the device and running. */
struct kh_nic *kh_nic_up(struct kh_dev *dev, struct net_device *ndev);
/* Nobody transmits any more. */
void kh_nic_down(struct kh_nic *nic);
netdev_tx_t kh_nic_xmit(struct kh_nic *nic, struct sk_buff *skb);

#endif /* KH_NIC_H */
