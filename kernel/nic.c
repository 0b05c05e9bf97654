// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Frames out and in.
 *
 * A frame goes out from where it lies: its data is mapped, and unmapped when
 * the device's index has passed it.  The receive ring is always full: a buffer
 * that came back is replaced by a new one before its frame is handed on, or
 * posted again and the frame dropped if there is no memory.  One interrupt
 * serves both directions, and NAPI keeps it quiet while there is work.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/slab.h>

#include "nic.h"
#include "pages.h"

#define KH_NIC_LOG_SIZE		8
#define KH_NIC_SIZE		BIT(KH_NIC_LOG_SIZE)
#define KH_NIC_MASK		(KH_NIC_SIZE - 1)

/* All in one piece, the doorbell record first. */
#define KH_NIC_TX_OFFSET	128
#define KH_NIC_RX_OFFSET	(KH_NIC_TX_OFFSET + KH_NIC_SIZE * sizeof(struct kh_nic_desc))
#define KH_NIC_RXC_OFFSET	(KH_NIC_RX_OFFSET + KH_NIC_SIZE * sizeof(struct kh_nic_desc))
#define KH_NIC_MEMORY		(KH_NIC_RXC_OFFSET + KH_NIC_SIZE * sizeof(struct kh_nic_cqe))

static bool kh_nic_rx_ready(const struct kh_nic *nic)
{
	const struct kh_nic_cqe *cqe = &nic->rxc[nic->rx_ci & KH_NIC_MASK];

	return (READ_ONCE(cqe->phase) & 1) != ((nic->rx_ci >> KH_NIC_LOG_SIZE) & 1);
}

static bool kh_nic_tx_ready(const struct kh_nic *nic)
{
	return le32_to_cpu(READ_ONCE(nic->db->tx_ci)) != nic->tx_ci;
}

/* True if there is work already. */
static bool kh_nic_arm(struct kh_nic *nic)
{
	nic->arm_sn++;
	WRITE_ONCE(nic->db->arm,
		   cpu_to_le32(nic->arm_sn << KH_ARM_SN_SHIFT | KH_ARM_NEXT));
	/* The device writes an entry and then reads arm; we, the reverse. */
	mb();
	return kh_nic_rx_ready(nic) || kh_nic_tx_ready(nic);
}

/* ------------------------------------------------------------------------ */
/* Transmit                                                                 */
/* ------------------------------------------------------------------------ */

static u32 kh_nic_tx_room(const struct kh_nic *nic)
{
	return KH_NIC_SIZE - (nic->tx_pi - READ_ONCE(nic->tx_ci));
}

netdev_tx_t kh_nic_xmit(struct kh_nic *nic, struct sk_buff *skb)
{
	struct device *d = &nic->dev->pdev->dev;
	struct net_device *ndev = nic->ndev;
	struct kh_nic_slot *slot;
	struct kh_nic_desc *desc;
	bool more = netdev_xmit_more();
	dma_addr_t dma;

	if (skb_put_padto(skb, ETH_ZLEN)) {
		dev_core_stats_tx_dropped_inc(ndev);
		goto ring;
	}
	dma = dma_map_single(d, skb->data, skb->len, DMA_TO_DEVICE);
	if (dma_mapping_error(d, dma)) {
		dev_core_stats_tx_dropped_inc(ndev);
		dev_kfree_skb_any(skb);
		goto ring;
	}

	slot = &nic->tx_slots[nic->tx_pi & KH_NIC_MASK];
	slot->skb = skb;
	slot->dma = dma;
	desc = &nic->tx[nic->tx_pi & KH_NIC_MASK];
	desc->addr = cpu_to_le64(dma);
	desc->len = cpu_to_le32(skb->len);
	desc->rsvd = 0;
	skb_tx_timestamp(skb);
	nic->tx_pi++;

	if (!kh_nic_tx_room(nic)) {
		netif_stop_queue(ndev);
		/* Against kh_nic_clean_tx(), which makes room and then looks. */
		smp_mb();
		if (kh_nic_tx_room(nic))
			netif_start_queue(ndev);
	}
ring:
	if (!more || netif_queue_stopped(ndev))
		kh_ring(nic->dev, nic->db_slot, &nic->db->tx_pi, nic->tx_pi);
	return NETDEV_TX_OK;
}

static void kh_nic_clean_tx(struct kh_nic *nic, int budget)
{
	struct device *d = &nic->dev->pdev->dev;
	u32 done = le32_to_cpu(READ_ONCE(nic->db->tx_ci));
	u32 ci = nic->tx_ci;

	/* No further than what was posted, whatever the record says. */
	if (done - ci > READ_ONCE(nic->tx_pi) - ci) {
		netdev_warn_once(nic->ndev, "frames done that were never sent\n");
		return;
	}
	dma_rmb();
	while (ci != done) {
		struct kh_nic_slot *slot = &nic->tx_slots[ci & KH_NIC_MASK];

		dma_unmap_single(d, slot->dma, slot->skb->len, DMA_TO_DEVICE);
		dev_sw_netstats_tx_add(nic->ndev, 1, slot->skb->len);
		napi_consume_skb(slot->skb, budget);
		slot->skb = NULL;
		ci++;
	}
	if (ci == nic->tx_ci)
		return;
	WRITE_ONCE(nic->tx_ci, ci);
	/* Against kh_nic_xmit(), which stops and then looks for room. */
	smp_mb();
	if (netif_queue_stopped(nic->ndev))
		netif_wake_queue(nic->ndev);
}

/* ------------------------------------------------------------------------ */
/* Receive                                                                  */
/* ------------------------------------------------------------------------ */

static int kh_nic_rx_fill(struct kh_nic *nic, u32 i)
{
	struct device *d = &nic->dev->pdev->dev;
	struct kh_nic_slot *slot = &nic->rx_slots[i & KH_NIC_MASK];
	struct kh_nic_desc *desc = &nic->rx[i & KH_NIC_MASK];
	struct sk_buff *skb;
	dma_addr_t dma;

	skb = netdev_alloc_skb_ip_align(nic->ndev, nic->rx_len);
	if (!skb)
		return -ENOMEM;
	dma = dma_map_single(d, skb->data, nic->rx_len, DMA_FROM_DEVICE);
	if (dma_mapping_error(d, dma)) {
		dev_kfree_skb_any(skb);
		return -ENOMEM;
	}
	slot->skb = skb;
	slot->dma = dma;
	desc->addr = cpu_to_le64(dma);
	desc->len = cpu_to_le32(nic->rx_len);
	desc->rsvd = 0;
	return 0;
}

static void kh_nic_rx_one(struct kh_nic *nic)
{
	struct device *d = &nic->dev->pdev->dev;
	struct kh_nic_cqe *cqe = &nic->rxc[nic->rx_ci & KH_NIC_MASK];
	struct kh_nic_slot *slot = &nic->rx_slots[nic->rx_ci & KH_NIC_MASK];
	struct kh_nic_slot old = *slot;
	u32 len = le32_to_cpu(READ_ONCE(cqe->len));
	u8 flags = READ_ONCE(cqe->flags);
	struct sk_buff *skb = old.skb;

	if (len < ETH_HLEN || len > nic->rx_len) {
		nic->ndev->stats.rx_errors++;
		goto next;
	}
	/* The buffer that comes after this one in the same place of the ring. */
	if (kh_nic_rx_fill(nic, nic->rx_ci)) {
		dev_core_stats_rx_dropped_inc(nic->ndev);
		goto next;
	}
	dma_unmap_single(d, old.dma, nic->rx_len, DMA_FROM_DEVICE);
	skb_put(skb, len);
	skb->protocol = eth_type_trans(skb, nic->ndev);
	if (flags & KH_NIC_CSUM_OK)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	dev_sw_netstats_rx_add(nic->ndev, len);
	napi_gro_receive(&nic->napi, skb);
next:
	nic->rx_ci++;
}

static void kh_nic_rx_publish(struct kh_nic *nic)
{
	dma_wmb();
	WRITE_ONCE(nic->db->rx_ci, cpu_to_le32(nic->rx_ci));
	WRITE_ONCE(nic->db->rx_pi, cpu_to_le32(nic->rx_ci + KH_NIC_SIZE));
}

static int kh_nic_poll(struct napi_struct *napi, int budget)
{
	struct kh_nic *nic = container_of(napi, struct kh_nic, napi);
	int done = 0;

	kh_nic_clean_tx(nic, budget);
	while (done < budget && kh_nic_rx_ready(nic)) {
		dma_rmb();
		kh_nic_rx_one(nic);
		done++;
	}
	if (done)
		kh_nic_rx_publish(nic);
	if (done < budget && napi_complete_done(napi, done) && kh_nic_arm(nic))
		napi_schedule(napi);
	return done;
}

static irqreturn_t kh_nic_irq(int irq, void *data)
{
	struct kh_nic *nic = data;

	napi_schedule_irqoff(&nic->napi);
	return IRQ_HANDLED;
}

/* ------------------------------------------------------------------------ */
/* Up and down                                                              */
/* ------------------------------------------------------------------------ */

static void kh_nic_free(struct kh_nic *nic)
{
	struct device *d = &nic->dev->pdev->dev;
	u32 i;

	for (i = 0; nic->tx_slots && i < KH_NIC_SIZE; i++) {
		struct kh_nic_slot *slot = &nic->tx_slots[i];

		if (!slot->skb)
			continue;
		dma_unmap_single(d, slot->dma, slot->skb->len, DMA_TO_DEVICE);
		dev_core_stats_tx_dropped_inc(nic->ndev);
		dev_kfree_skb_any(slot->skb);
	}
	for (i = 0; nic->rx_slots && i < KH_NIC_SIZE; i++) {
		struct kh_nic_slot *slot = &nic->rx_slots[i];

		if (!slot->skb)
			continue;
		dma_unmap_single(d, slot->dma, nic->rx_len, DMA_FROM_DEVICE);
		dev_kfree_skb_any(slot->skb);
	}
	kfree(nic->tx_slots);
	kfree(nic->rx_slots);
	kh_buf_free(nic->dev, &nic->buf);
	kh_slot_free(&nic->dev->slots, nic->db_slot);
	kfree(nic);
}

static struct kh_nic *kh_nic_alloc(struct kh_dev *dev, struct net_device *ndev)
{
	struct kh_nic *nic;
	u32 i;

	nic = kzalloc(sizeof(*nic), GFP_KERNEL);
	if (!nic)
		return NULL;
	nic->dev = dev;
	nic->ndev = ndev;
	nic->db_slot = kh_slot_alloc(&dev->slots);
	nic->rx_len = ndev->mtu + ETH_HLEN + VLAN_HLEN;
	nic->tx_slots = kcalloc(KH_NIC_SIZE, sizeof(*nic->tx_slots), GFP_KERNEL);
	nic->rx_slots = kcalloc(KH_NIC_SIZE, sizeof(*nic->rx_slots), GFP_KERNEL);
	if (!nic->tx_slots || !nic->rx_slots)
		goto free;
	if (kh_buf_alloc(dev, KH_NIC_MEMORY, &nic->buf))
		goto free;
	nic->db = nic->buf.va;
	nic->tx = nic->buf.va + KH_NIC_TX_OFFSET;
	nic->rx = nic->buf.va + KH_NIC_RX_OFFSET;
	nic->rxc = nic->buf.va + KH_NIC_RXC_OFFSET;
	for (i = 0; i < KH_NIC_SIZE; i++)
		if (kh_nic_rx_fill(nic, i))
			goto free;
	return nic;

free:
	kh_nic_free(nic);
	return NULL;
}

struct kh_nic *kh_nic_up(struct kh_dev *dev, struct net_device *ndev)
{
	struct kh_create_nic_params params = {
		.tx_offset	= KH_NIC_TX_OFFSET,
		.rx_offset	= KH_NIC_RX_OFFSET,
		.rxc_offset	= KH_NIC_RXC_OFFSET,
		.db_offset	= 0,
		.vector		= KH_VECTOR_NIC,
		.log_tx_size	= KH_NIC_LOG_SIZE,
		.log_rx_size	= KH_NIC_LOG_SIZE,
	};
	struct kh_pages pages;
	struct kh_nic *nic;
	int err;

	nic = kh_nic_alloc(dev, ndev);
	if (!nic)
		return ERR_PTR(-ENOMEM);

	pages = kh_buf_pages(&nic->buf);
	params.pages = &pages;
	params.db_slot = nic->db_slot;
	err = kh_cmd_create_nic(dev, &params);
	if (err)
		goto free;
	kh_nic_rx_publish(nic);

	netif_napi_add(ndev, &nic->napi, kh_nic_poll);
	napi_enable(&nic->napi);
	nic->irq = pci_irq_vector(dev->pdev, KH_VECTOR_NIC);
	snprintf(nic->name, sizeof(nic->name), KH_DRV_NAME "-nic@pci:%s",
		 pci_name(dev->pdev));
	err = request_irq(nic->irq, kh_nic_irq, 0, nic->name, nic);
	if (err)
		goto del_napi;
	/* The first poll arms. */
	local_bh_disable();
	napi_schedule(&nic->napi);
	local_bh_enable();
	return nic;

del_napi:
	napi_disable(&nic->napi);
	netif_napi_del(&nic->napi);
	kh_cmd_destroy_nic(dev);
free:
	kh_nic_free(nic);
	return ERR_PTR(err);
}

void kh_nic_down(struct kh_nic *nic)
{
	int err;

	free_irq(nic->irq, nic);
	napi_disable(&nic->napi);
	/* Only now is there nobody left who would start the queue again. */
	netif_tx_disable(nic->ndev);
	netif_napi_del(&nic->napi);
	err = kh_cmd_destroy_nic(nic->dev);
	if (WARN_ON(err))
		return;		/* the device still owns the memory */
	kh_nic_free(nic);
}
