/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The Keyhole HCA driver: what every file of it knows of one device.
 *
 * Three layers, each of which calls only downwards:
 *	verbs.h		what the RDMA core asks for: objects and their verbs, in
 *			files by object, and the kernel's own data path
 *	cmd.h		one typed function for each admin command
 *	admin.h		the mechanics of the admin queue
 * and beside them pci.c (life and death of a device), events.h (event queues),
 * netdev.c and nic.h (the Ethernet side), stats.c (counters), doorbell.h, and
 * pages.h (guest memory as commands name it).
 */
#ifndef KH_KEYHOLE_H
#define KH_KEYHOLE_H

#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "../uapi/keyhole_hw.h"

#include "compat.h"
#include "admin.h"
#include "cmd.h"
#include "doorbell.h"

#define KH_DRV_NAME		"keyhole"

/* Use of the MSI-X vectors; the rest is one for each completion EQ. */
#define KH_VECTOR_CONTROL	0	/* admin queue and asynchronous events */
#define KH_VECTOR_NIC		1
#define KH_VECTOR_COMPLETION	2

/*
 * A device only ever moves down this list.
 *	UP	commands go to the device
 *	DYING	it is lost: no new command, but it may still write guest memory
 *	DEAD	bus mastering is off and it was reset: memory is ours again
 */
enum kh_state {
	KH_DEV_UP = 0,
	KH_DEV_DYING,
	KH_DEV_DEAD,
};

/* A piece of coherent memory, zeroed, whole pages, contiguous for the device. */
struct kh_buf {
	void *va;
	dma_addr_t dma;
	size_t size;
};

struct kh_eq {
	struct kh_dev *dev;
	struct kh_buf buf;	/* ring, then doorbell record */
	struct kh_eqe *ring;
	struct kh_cq_db *db;
	spinlock_t lock;	/* ci, arm_sn, armed_ci, and taking an entry */
	u32 ci;
	u32 arm_sn;
	u32 armed_ci;	/* ci when it was armed */
	u32 eqn;
	u8 log_size;
	bool live;		/* it exists on the device */
	bool has_irq;
	int irq;
	char name[40];
};

/* What SET_PORT was last told, or will be told. */
struct kh_port {
	struct mutex lock;	/* all of this, and the order of SET_PORT commands */
	bool up;
	bool rdma;
	bool link;		/* reg_lock's: as the device last said */
	u8 mac[ETH_ALEN];
	u16 mtu;
	bool sent;
	u8 sent_flags;
	u8 sent_mac[ETH_ALEN];
	u16 sent_mtu;
	struct work_struct work;	/* for changes seen in atomic context */
};

struct kh_nic;

struct kh_dev {
	struct ib_device ibdev;
	struct pci_dev *pdev;

	void __iomem *regs;
	void __iomem *wake;		/* context 0's wake page */
	u8 *db;				/* context 0's doorbell page */
	struct kh_status_page *status;	/* context 0's status page */
	/* Physical address of context 0's page of each kind; context c's is
	 * c * KH_PAGE_SIZE further on.
	 */
	phys_addr_t db_base;
	phys_addr_t status_base;
	phys_addr_t wake_base;

	u32 hw_version;
	u32 num_contexts;
	u32 num_vectors;		/* allocated */
	struct kh_attr attr;

	int state;			/* enum kh_state; kh_dev_state() reads it */
	struct completion dead;		/* done once state is KH_DEV_DEAD */
	struct mutex reg_lock;		/* ib_registered, and events while it is set */
	bool ib_registered;
	struct work_struct fatal_work;
	const char *fatal_reason;
	struct delayed_work heartbeat_work;
	u64 heartbeat;
	unsigned int missed_beats;

	struct kh_admin admin;

	struct ida contexts;
	struct kh_slots slots;		/* context 0's */

	struct kh_eq aeq;
	struct kh_eq *ceqs;
	u32 num_ceqs;

	/* From the device's numbers to struct kh_cq, kh_qp, kh_srq: see events.h. */
	struct xarray cqs;
	struct xarray qps;
	struct xarray srqs;

	struct net_device *netdev;
	struct kh_nic *nic;
	struct kh_port port;
	struct notifier_block netdev_nb;
	enum ib_port_state port_state;	/* as last reported to the core */
	char control_name[40];		/* of vector 0 */
};

static inline struct kh_dev *to_kh_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct kh_dev, ibdev);
}

static inline enum kh_state kh_dev_state(const struct kh_dev *dev)
{
	return READ_ONCE(dev->state);
}

static inline bool kh_dev_up(const struct kh_dev *dev)
{
	return kh_dev_state(dev) == KH_DEV_UP;
}

/* pci.c */

/* The device is lost.  Any context; reason is a string constant. */
void kh_dev_fatal(struct kh_dev *dev, const char *reason);

/* netdev.c */
int kh_netdev_create(struct kh_dev *dev);
void kh_netdev_destroy(struct kh_dev *dev);
/* The RDMA function is up, or about to go: UDP port 4791 changes hands. */
int kh_port_start(struct kh_dev *dev);
void kh_port_stop(struct kh_dev *dev);
void kh_netdev_fatal(struct kh_dev *dev);
void kh_port_link(struct kh_dev *dev, bool up);
/* What query_port reports. */
enum ib_port_state kh_port_state(const struct kh_dev *dev);

/* stats.c */
struct rdma_hw_stats *kh_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int kh_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		    u32 port, int index);

/* verbs.c */
extern const struct ib_device_ops kh_dev_ops;
extern const struct uapi_definition kh_uapi_defs[];
/*
 * The device is DEAD.  Sleepable context, called once, before every tracked
 * CQ's comp_handler is called: kernel QPs get their flush completions here.
 */
void kh_verbs_fatal(struct kh_dev *dev);

#endif /* KH_KEYHOLE_H */
