// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event queues.
 *
 * An entry is taken from its ring, and its object looked up and held, under
 * the queue's lock; the object's handler runs after the lock is dropped.  So an
 * object that has left the table, and whose queues were emptied once since
 * (kh_untrack), is met by no event: whoever found it before holds a reference,
 * and the last of these is waited for.
 *
 * Completion events are handed on in the hard interrupt, as a waiter's latency
 * is the reason that they exist; a queue that has very many goes on in a
 * thread.  Asynchronous events are always handled in a thread.
 */
#include "objects.h"

#define KH_AEQ_LOG_SIZE		11
#define KH_CEQ_LOG_SIZE		12
#define KH_CEQ_BATCH		64	/* entries handled in one hard interrupt */

/* ------------------------------------------------------------------------ */
/* Numbers to objects                                                       */
/* ------------------------------------------------------------------------ */

void kh_res_put(struct kh_res *res)
{
	if (refcount_dec_and_test(&res->ref))
		complete(&res->gone);
}

/* The lock keeps the object from going between the look-up and the reference. */
static struct kh_res *kh_res_get(struct xarray *xa, u32 id)
{
	struct kh_res *res;
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	res = xa_load(xa, id);
	if (res && !refcount_inc_not_zero(&res->ref))
		res = NULL;
	xa_unlock_irqrestore(xa, flags);
	return res;
}

struct kh_cq *kh_get_cq(struct kh_dev *dev, u32 cqn)
{
	struct kh_res *res = kh_res_get(&dev->cqs, cqn);

	return res ? container_of(res, struct kh_cq, res) : NULL;
}

struct kh_qp *kh_get_qp(struct kh_dev *dev, u32 qpn)
{
	struct kh_res *res = kh_res_get(&dev->qps, qpn);

	return res ? container_of(res, struct kh_qp, res) : NULL;
}

struct kh_srq *kh_get_srq(struct kh_dev *dev, u32 srqn)
{
	struct kh_res *res = kh_res_get(&dev->srqs, srqn);

	return res ? container_of(res, struct kh_srq, res) : NULL;
}

/*
 * The number may still be that of an object whose destruction is under way in
 * another thread, after the device gave it out anew: the entry is replaced, and
 * that thread removes its own object only.
 */
static int kh_track(struct xarray *xa, u32 id, struct kh_res *res)
{
	refcount_set(&res->ref, 1);
	init_completion(&res->gone);
	return xa_err(xa_store_irq(xa, id, res, GFP_KERNEL));
}

static void kh_eq_flush(struct kh_eq *eq);

static void kh_untrack(struct kh_dev *dev, struct xarray *xa, u32 id,
		       struct kh_res *res, struct kh_eq *ceq)
{
	xa_cmpxchg_irq(xa, id, res, NULL, 0);
	if (ceq)
		kh_eq_flush(ceq);
	kh_eq_flush(&dev->aeq);
	kh_res_put(res);
	wait_for_completion(&res->gone);
}

int kh_track_cq(struct kh_dev *dev, struct kh_cq *cq)
{
	return kh_track(&dev->cqs, cq->cqn, &cq->res);
}

int kh_track_qp(struct kh_dev *dev, struct kh_qp *qp)
{
	return kh_track(&dev->qps, qp->qpn, &qp->res);
}

int kh_track_srq(struct kh_dev *dev, struct kh_srq *srq)
{
	return kh_track(&dev->srqs, srq->srqn, &srq->res);
}

void kh_untrack_cq(struct kh_dev *dev, struct kh_cq *cq)
{
	kh_untrack(dev, &dev->cqs, cq->cqn, &cq->res,
		   &dev->ceqs[cq->comp_vector % dev->num_ceqs]);
}

void kh_untrack_qp(struct kh_dev *dev, struct kh_qp *qp)
{
	kh_untrack(dev, &dev->qps, qp->qpn, &qp->res, NULL);
}

void kh_untrack_srq(struct kh_dev *dev, struct kh_srq *srq)
{
	kh_untrack(dev, &dev->srqs, srq->srqn, &srq->res, NULL);
}

/* ------------------------------------------------------------------------ */
/* The ring                                                                 */
/* ------------------------------------------------------------------------ */

static struct kh_eqe *kh_eq_entry(const struct kh_eq *eq, u32 ci)
{
	return &eq->ring[ci & ((1u << eq->log_size) - 1)];
}

/* Without the lock: a hint. */
static bool kh_eq_pending(const struct kh_eq *eq)
{
	u32 ci = READ_ONCE(eq->ci);

	return (READ_ONCE(kh_eq_entry(eq, ci)->phase) & 1) != ((ci >> eq->log_size) & 1);
}

static bool kh_eq_next(struct kh_eq *eq, struct kh_eqe *eqe)
{
	lockdep_assert_held(&eq->lock);
	if (!kh_eq_pending(eq))
		return false;
	dma_rmb();
	*eqe = *kh_eq_entry(eq, eq->ci);
	WRITE_ONCE(eq->ci, eq->ci + 1);
	/* The entry is read before the device may write it again. */
	mb();
	WRITE_ONCE(eq->db->ci, cpu_to_le32(eq->ci));
	return true;
}

/* Ask for the next interrupt.  True if there is an entry already: handle it. */
static bool kh_eq_arm(struct kh_eq *eq)
{
	unsigned long flags;
	bool more;

	spin_lock_irqsave(&eq->lock, flags);
	eq->arm_sn++;
	WRITE_ONCE(eq->armed_ci, eq->ci);
	/* The device must not see this arm with an older ci: hardware.md, 9 */
	dma_wmb();
	WRITE_ONCE(eq->db->arm,
		   cpu_to_le32(eq->arm_sn << KH_ARM_SN_SHIFT | KH_ARM_NEXT));
	/* The device writes an entry and then reads arm; we, the reverse. */
	mb();
	more = kh_eq_pending(eq);
	spin_unlock_irqrestore(&eq->lock, flags);
	return more;
}

/* ------------------------------------------------------------------------ */
/* Completion events                                                        */
/* ------------------------------------------------------------------------ */

static void kh_cq_complete(struct kh_cq *cq)
{
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

/* False when the ring is empty. */
static bool kh_ceq_one(struct kh_eq *eq)
{
	struct kh_cq *cq = NULL;
	struct kh_eqe eqe;
	unsigned long flags;
	bool got;

	spin_lock_irqsave(&eq->lock, flags);
	got = kh_eq_next(eq, &eqe);
	if (got && eqe.type == KH_EV_COMPLETION)
		cq = kh_get_cq(eq->dev, le32_to_cpu(eqe.id));
	spin_unlock_irqrestore(&eq->lock, flags);

	if (cq) {
		kh_cq_complete(cq);
		kh_res_put(&cq->res);
	}
	return got;
}

static irqreturn_t kh_ceq_irq(int irq, void *data)
{
	struct kh_eq *eq = data;
	int n = 0;

	do {
		while (kh_ceq_one(eq))
			if (++n == KH_CEQ_BATCH)
				return IRQ_WAKE_THREAD;
	} while (kh_eq_arm(eq));
	return IRQ_HANDLED;
}

static irqreturn_t kh_ceq_thread(int irq, void *data)
{
	struct kh_eq *eq = data;

	do {
		while (kh_ceq_one(eq))
			cond_resched();
	} while (kh_eq_arm(eq));
	return IRQ_HANDLED;
}

/* ------------------------------------------------------------------------ */
/* Asynchronous events                                                      */
/* ------------------------------------------------------------------------ */

static int kh_ib_event(u8 type)
{
	switch (type) {
	case KH_EV_CQ_ERR:
		return IB_EVENT_CQ_ERR;
	case KH_EV_QP_FATAL:
		return IB_EVENT_QP_FATAL;
	case KH_EV_QP_REQ_ERR:
		return IB_EVENT_QP_REQ_ERR;
	case KH_EV_QP_ACCESS_ERR:
		return IB_EVENT_QP_ACCESS_ERR;
	case KH_EV_COMM_EST:
		return IB_EVENT_COMM_EST;
	case KH_EV_SQ_DRAINED:
		return IB_EVENT_SQ_DRAINED;
	case KH_EV_QP_LAST_WQE:
		return IB_EVENT_QP_LAST_WQE_REACHED;
	case KH_EV_SRQ_LIMIT:
		return IB_EVENT_SRQ_LIMIT_REACHED;
	case KH_EV_SRQ_ERR:
		return IB_EVENT_SRQ_ERR;
	default:
		return -1;
	}
}

/* What an event is about; at most one is set. */
struct kh_event_target {
	struct kh_cq *cq;
	struct kh_qp *qp;
	struct kh_srq *srq;
};

static void kh_event_find(struct kh_dev *dev, const struct kh_eqe *eqe,
			  struct kh_event_target *target)
{
	u32 id = le32_to_cpu(eqe->id);

	switch (eqe->type) {
	case KH_EV_CQ_ERR:
		target->cq = kh_get_cq(dev, id);
		break;
	case KH_EV_QP_FATAL ... KH_EV_QP_LAST_WQE:
		target->qp = kh_get_qp(dev, id);
		break;
	case KH_EV_SRQ_LIMIT ... KH_EV_SRQ_ERR:
		target->srq = kh_get_srq(dev, id);
		break;
	}
}

static void kh_event_deliver(struct kh_dev *dev, const struct kh_eqe *eqe,
			     const struct kh_event_target *target)
{
	struct ib_event event = { .device = &dev->ibdev };

	event.event = kh_ib_event(eqe->type);
	if (target->cq) {
		struct ib_cq *ibcq = &target->cq->ibcq;

		event.element.cq = ibcq;
		if (ibcq->event_handler)
			ibcq->event_handler(&event, ibcq->cq_context);
		kh_res_put(&target->cq->res);
	} else if (target->qp) {
		struct ib_qp *ibqp = &target->qp->ibqp;

		event.element.qp = ibqp;
		if (ibqp->event_handler)
			ibqp->event_handler(&event, ibqp->qp_context);
		kh_res_put(&target->qp->res);
	} else if (target->srq) {
		struct ib_srq *ibsrq = &target->srq->ibsrq;

		event.element.srq = ibsrq;
		if (ibsrq->event_handler)
			ibsrq->event_handler(&event, ibsrq->srq_context);
		kh_res_put(&target->srq->res);
	}
}

static void kh_event_device(struct kh_dev *dev, const struct kh_eqe *eqe)
{
	switch (eqe->type) {
	case KH_EV_PORT_UP:
		kh_port_link(dev, true);
		break;
	case KH_EV_PORT_DOWN:
		kh_port_link(dev, false);
		break;
	case KH_EV_FATAL:
		kh_dev_fatal(dev, "the device says so");
		break;
	default:
		if (kh_ib_event(eqe->type) < 0)
			dev_warn_ratelimited(&dev->pdev->dev,
					     "event of unknown type %#x\n", eqe->type);
	}
}

static bool kh_aeq_one(struct kh_eq *eq)
{
	struct kh_event_target target = {};
	struct kh_eqe eqe;
	unsigned long flags;
	bool got;

	spin_lock_irqsave(&eq->lock, flags);
	got = kh_eq_next(eq, &eqe);
	if (got)
		kh_event_find(eq->dev, &eqe, &target);
	spin_unlock_irqrestore(&eq->lock, flags);

	if (!got)
		return false;
	if (target.cq || target.qp || target.srq)
		kh_event_deliver(eq->dev, &eqe, &target);
	else
		kh_event_device(eq->dev, &eqe);
	return true;
}

/*
 * Vector 0 is the admin queue's and this queue's.  It was ours if there is an
 * entry, which the device wrote before it raised the interrupt, or if a flush
 * has taken one since the queue was armed: then nobody else arms it again.
 */
irqreturn_t kh_control_irq(int irq, void *data)
{
	struct kh_dev *dev = data;
	struct kh_eq *eq = &dev->aeq;

	kh_admin_irq(&dev->admin);
	if (!READ_ONCE(eq->live))
		return IRQ_HANDLED;
	if (!kh_eq_pending(eq) && READ_ONCE(eq->ci) == READ_ONCE(eq->armed_ci))
		return IRQ_HANDLED;
	return IRQ_WAKE_THREAD;
}

irqreturn_t kh_control_thread(int irq, void *data)
{
	struct kh_dev *dev = data;

	if (!READ_ONCE(dev->aeq.live))
		return IRQ_HANDLED;
	do {
		while (kh_aeq_one(&dev->aeq))
			cond_resched();
	} while (kh_eq_arm(&dev->aeq));
	return IRQ_HANDLED;
}

/* ------------------------------------------------------------------------ */
/* Life of the queues                                                       */
/* ------------------------------------------------------------------------ */

/* Handle what lies in a queue: at most a lap of it was there when we began. */
static void kh_eq_flush(struct kh_eq *eq)
{
	bool async = eq == &eq->dev->aeq;
	u32 n;

	for (n = 0; n < 1u << eq->log_size; n++)
		if (!(async ? kh_aeq_one(eq) : kh_ceq_one(eq)))
			break;
}

static int kh_eq_create(struct kh_dev *dev, struct kh_eq *eq, u8 type,
			u16 vector, u8 log_size)
{
	struct kh_create_eq_params params = {};
	struct kh_pages pages;
	size_t ring_size = sizeof(struct kh_eqe) << log_size;
	int err;

	eq->dev = dev;
	eq->log_size = log_size;
	spin_lock_init(&eq->lock);
	err = kh_buf_alloc(dev, ring_size + sizeof(struct kh_cq_db), &eq->buf);
	if (err)
		return err;
	eq->ring = eq->buf.va;
	eq->db = eq->buf.va + ring_size;

	pages = kh_buf_pages(&eq->buf);
	params.pages = &pages;
	params.db_offset = ring_size;
	params.vector = vector;
	params.log_size = log_size;
	params.type = type;
	err = kh_cmd_create_eq(dev, &params, &eq->eqn);
	if (err) {
		kh_buf_free(dev, &eq->buf);
		return err;
	}
	eq->live = true;
	return 0;
}

static void kh_eq_destroy(struct kh_dev *dev, struct kh_eq *eq)
{
	if (eq->has_irq) {
		irq_update_affinity_hint(eq->irq, NULL);
		free_irq(eq->irq, eq);
	}
	eq->has_irq = false;
	if (!eq->live)
		return;
	WRITE_ONCE(eq->live, false);
	/* The asynchronous queue has no interrupt of its own to free. */
	if (eq == &dev->aeq)
		synchronize_irq(pci_irq_vector(dev->pdev, KH_VECTOR_CONTROL));
	/* Nothing is attached to it any more; if it is busy, it keeps its memory. */
	if (!WARN_ON(kh_cmd_destroy_eq(dev, eq->eqn)))
		kh_buf_free(dev, &eq->buf);
}

static int kh_ceq_create(struct kh_dev *dev, struct kh_eq *eq, u16 vector)
{
	unsigned int cpu;
	int err;

	err = kh_eq_create(dev, eq, KH_EQ_COMPLETION, vector, KH_CEQ_LOG_SIZE);
	if (err)
		return err;

	eq->irq = pci_irq_vector(dev->pdev, vector);
	snprintf(eq->name, sizeof(eq->name), KH_DRV_NAME "-comp%u@pci:%s",
		 vector - KH_VECTOR_COMPLETION, pci_name(dev->pdev));
	err = request_threaded_irq(eq->irq, kh_ceq_irq, kh_ceq_thread, 0, eq->name, eq);
	if (err)
		return err;
	eq->has_irq = true;
	/* A hint, not a managed interrupt: those end when their CPU goes offline. */
	cpu = cpumask_local_spread(vector - KH_VECTOR_COMPLETION,
				   dev_to_node(&dev->pdev->dev));
	irq_set_affinity_and_hint(eq->irq, cpumask_of(cpu));
	kh_eq_arm(eq);
	return 0;
}

int kh_events_create(struct kh_dev *dev)
{
	u32 i;
	int err;

	err = kh_eq_create(dev, &dev->aeq, KH_EQ_ASYNC, KH_VECTOR_CONTROL,
			   KH_AEQ_LOG_SIZE);
	if (err)
		return err;
	/* Arms, and takes what came before. */
	kh_control_thread(0, dev);

	dev->num_ceqs = dev->num_vectors - KH_VECTOR_COMPLETION;
	if (dev->attr.max_eq && dev->num_ceqs > dev->attr.max_eq - 1)
		dev->num_ceqs = dev->attr.max_eq - 1;
	if (!dev->num_ceqs)
		return -EINVAL;
	dev->ceqs = kcalloc(dev->num_ceqs, sizeof(*dev->ceqs), GFP_KERNEL);
	if (!dev->ceqs)
		return -ENOMEM;
	for (i = 0; i < dev->num_ceqs; i++) {
		err = kh_ceq_create(dev, &dev->ceqs[i], KH_VECTOR_COMPLETION + i);
		if (err)
			return err;
	}
	return 0;
}

/* Also after a kh_events_create() that failed, or was not reached. */
void kh_events_destroy(struct kh_dev *dev)
{
	u32 i;

	for (i = 0; dev->ceqs && i < dev->num_ceqs; i++)
		kh_eq_destroy(dev, &dev->ceqs[i]);
	kfree(dev->ceqs);
	dev->ceqs = NULL;
	kh_eq_destroy(dev, &dev->aeq);
}

u32 kh_ceq_eqn(struct kh_dev *dev, u32 comp_vector)
{
	return dev->ceqs[comp_vector % dev->num_ceqs].eqn;
}

/* Wake all who wait for a completion: they will find the device gone. */
void kh_events_fatal(struct kh_dev *dev)
{
	struct kh_res *res;
	unsigned long cqn;

	xa_for_each(&dev->cqs, cqn, res) {
		struct kh_cq *cq = kh_get_cq(dev, cqn);

		if (!cq)
			continue;
		kh_cq_complete(cq);
		kh_res_put(&cq->res);
	}
}
