/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Event queues, and the way from an event's number to its object.
 *
 * An object that gets events embeds a struct kh_res and is entered, once the
 * device has given it a number, with kh_track_*().  Its destroy function calls
 * kh_untrack_*() after the device has destroyed it and before its memory goes:
 * when that returns, no event touches the object and none is left in a queue
 * that could reach a later object of the same number.
 */
#ifndef KH_EVENTS_H
#define KH_EVENTS_H

#include <linux/completion.h>
#include <linux/refcount.h>
#include <linux/types.h>

struct kh_cq;
struct kh_dev;
struct kh_qp;
struct kh_srq;

struct kh_res {
	refcount_t ref;
	struct completion gone;
};

/* -EIO if the device gave a number that is in use.  Sleepable context. */
int kh_track_cq(struct kh_dev *dev, struct kh_cq *cq);
int kh_track_qp(struct kh_dev *dev, struct kh_qp *qp);
int kh_track_srq(struct kh_dev *dev, struct kh_srq *srq);
void kh_untrack_cq(struct kh_dev *dev, struct kh_cq *cq);
void kh_untrack_qp(struct kh_dev *dev, struct kh_qp *qp);
void kh_untrack_srq(struct kh_dev *dev, struct kh_srq *srq);

/* The object of that number with a reference, or NULL.  Any context. */
struct kh_cq *kh_get_cq(struct kh_dev *dev, u32 cqn);
struct kh_qp *kh_get_qp(struct kh_dev *dev, u32 qpn);
struct kh_srq *kh_get_srq(struct kh_dev *dev, u32 srqn);
void kh_res_put(struct kh_res *res);

/* Number of the completion EQ of comp_vector (0 .. num_comp_vectors - 1). */
u32 kh_ceq_eqn(struct kh_dev *dev, u32 comp_vector);

/* pci.c's */
int kh_events_create(struct kh_dev *dev);
void kh_events_destroy(struct kh_dev *dev);
void kh_events_fatal(struct kh_dev *dev);
irqreturn_t kh_control_irq(int irq, void *data);
irqreturn_t kh_control_thread(int irq, void *data);

#endif /* KH_EVENTS_H */
