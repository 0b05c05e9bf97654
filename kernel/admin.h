/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The admin queue: a ring of commands, a ring of completions, a doorbell record.
 *
 * It knows nothing of what commands mean, and of the device only what struct
 * kh_admin_ops says, so that a test can be its device.
 */
#ifndef KH_ADMIN_H
#define KH_ADMIN_H

#include <linux/bits.h>
#include <linux/completion.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "../uapi/keyhole_hw.h"

#define KH_ADMIN_ENTRIES	BIT(KH_ADMIN_MAX_LOG)
#define KH_ADMIN_OUT_SIZE	512	/* room for the output of one command */

struct device;
struct kh_admin;

struct kh_admin_ops {
	/* pi is in the record: mark, and wake if need be */
	void (*ring)(struct kh_admin *aq);
	/* a number that moves while the device lives */
	u64 (*heartbeat)(struct kh_admin *aq);
	/* a command got no answer: the owner ends with kh_admin_abort() */
	void (*lost)(struct kh_admin *aq);
};

struct kh_admin_slot {
	bool busy;		/* from post until its waiter has read the answer */
	bool answered;
	u16 tag;
	int err;
	struct kh_admin_cqe cqe;
	struct completion done;
};

struct kh_admin {
	const struct kh_admin_ops *ops;
	struct device *dma_dev;

	struct kh_admin_cmd *sq;	/* one page */
	struct kh_admin_cqe *cq;	/* one page */
	struct kh_admin_db *db;		/* start of a page */
	u8 *out;			/* KH_ADMIN_OUT_SIZE for each slot */
	dma_addr_t sq_dma, cq_dma, db_dma, out_dma;

	spinlock_t lock;		/* all below */
	u32 pi;
	u32 ci;
	u32 arm_sn;
	bool armed;
	bool closed;			/* no more commands */
	u64 bogus;			/* completions that were refused */
	wait_queue_head_t room;
	struct kh_admin_slot slots[KH_ADMIN_ENTRIES];
};

/* Memory only; the caller tells the device the addresses. */
int kh_admin_init(struct kh_admin *aq, struct device *dma_dev,
		  const struct kh_admin_ops *ops);
void kh_admin_free(struct kh_admin *aq);

/*
 * Execute cmd (its tag and out_addr are set here) and wait for its completion.
 * When it has returned, the device touches no memory that the command named.
 * out, if not NULL, gets out_len bytes of output.  cqe may be NULL.
 * -EIO: the queue is closed or was aborted; else the status as an errno.
 * Sleepable context.
 */
int kh_admin_exec(struct kh_admin *aq, struct kh_admin_cmd *cmd, void *out,
		  size_t out_len, struct kh_admin_cqe *cqe);

/* Take what is complete.  Any context: the interrupt, and who polls. */
void kh_admin_poll(struct kh_admin *aq);
void kh_admin_irq(struct kh_admin *aq);

/* No more commands from now on; those under way go on. */
void kh_admin_close(struct kh_admin *aq);
/* The device is off: those under way end with -EIO. */
void kh_admin_abort(struct kh_admin *aq);

#endif /* KH_ADMIN_H */
