// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Life and death of a device.
 *
 * In: reset, admin queue, event queues, netdev, ib_device; out: the reverse.
 * The hard part is a device that is lost: its process on the host died, it hung,
 * or it was unplugged.  Stores into its memory then vanish without a sign, so a
 * heartbeat tells.  What follows is the same whatever the cause:
 *
 *	1. kh_dev_fatal() closes the admin queue: commands fail at once;
 *	2. kh_fatal_work() tells the users, and turns bus mastering off and
 *	   resets the function: no memory is written from here on;
 *	3. it ends the commands that were under way, which lets destroy functions
 *	   proceed (they report success: all objects are gone), and wakes all
 *	   who wait for a completion.
 *
 * The device stays registered, dead, until it is removed.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "events.h"
#include "keyhole.h"

MODULE_DESCRIPTION("Keyhole HCA");
MODULE_LICENSE("Dual BSD/GPL");

#define KH_BEAT_INTERVAL	HZ
#define KH_MAX_MISSED_BEATS	3

/* ------------------------------------------------------------------------ */
/* Registers                                                                */
/* ------------------------------------------------------------------------ */

static void kh_write64(struct kh_dev *dev, u32 reg, u64 value)
{
	writel(lower_32_bits(value), dev->regs + reg);
	writel(upper_32_bits(value), dev->regs + reg + 4);
}

/* Reset by register: every object is gone when the store has returned. */
static void kh_disable(struct kh_dev *dev)
{
	writel(0, dev->regs + KH_REG_CONTROL);
	readl(dev->regs + KH_REG_STATUS);
}

static int kh_enable(struct kh_dev *dev)
{
	struct device *d = &dev->pdev->dev;
	u32 status;

	kh_write64(dev, KH_REG_ADMIN_SQ, dev->admin.sq_dma);
	kh_write64(dev, KH_REG_ADMIN_CQ, dev->admin.cq_dma);
	kh_write64(dev, KH_REG_ADMIN_DB, dev->admin.db_dma);
	writel(KH_ADMIN_MAX_LOG, dev->regs + KH_REG_ADMIN_SIZE);
	writel(KH_CONTROL_ENABLE, dev->regs + KH_REG_CONTROL);
	status = readl(dev->regs + KH_REG_STATUS);
	if (status & KH_STATUS_FATAL || !(status & KH_STATUS_READY)) {
		dev_err(d, "the device does not start: status %#x\n", status);
		return -EIO;
	}
	return 0;
}

static int kh_check_version(struct kh_dev *dev)
{
	struct device *d = &dev->pdev->dev;
	u32 magic = readl(dev->regs + KH_REG_MAGIC);

	if (magic != KH_HW_MAGIC) {
		dev_err(d, "not a Keyhole HCA: magic %#x, expected %#x\n", magic,
			KH_HW_MAGIC);
		return -ENODEV;
	}
	dev->hw_version = readl(dev->regs + KH_REG_VERSION);
	if (dev->hw_version >> 16 != KH_HW_MAJOR) {
		dev_err(d, "device version %u.%u; this driver knows %u\n",
			dev->hw_version >> 16, dev->hw_version & 0xffff, KH_HW_MAJOR);
		return -ENODEV;
	}
	return 0;
}

/* ------------------------------------------------------------------------ */
/* A lost device                                                            */
/* ------------------------------------------------------------------------ */

void kh_dev_fatal(struct kh_dev *dev, const char *reason)
{
	if (cmpxchg(&dev->state, KH_DEV_UP, KH_DEV_DYING) != KH_DEV_UP)
		return;
	dev->fatal_reason = reason;
	kh_admin_close(&dev->admin);
	queue_work(system_unbound_wq, &dev->fatal_work);
}

/*
 * Function level reset.  Not pcie_reset_flr(), which waits a minute for the
 * configuration space of a device that will never answer again; this one is not
 * used until it is probed anew, and need not be waited for longer than it takes.
 */
static void kh_flr(struct pci_dev *pdev)
{
	if (!pci_device_is_present(pdev))
		return;
	pci_save_state(pdev);
	pcie_capability_set_word(pdev, PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
	msleep(100);
	/* Bus mastering was off when the state was saved. */
	pci_restore_state(pdev);
}

/* The state is DYING.  Sleepable context, once for each device. */
static void kh_make_dead(struct kh_dev *dev)
{
	kh_admin_close(&dev->admin);
	pci_clear_master(dev->pdev);
	if (pci_device_is_present(dev->pdev))
		kh_disable(dev);
	kh_flr(dev->pdev);

	WRITE_ONCE(dev->state, KH_DEV_DEAD);
	kh_admin_abort(&dev->admin);
	complete_all(&dev->dead);
}

static void kh_fatal_work(struct work_struct *work)
{
	struct kh_dev *dev = container_of(work, struct kh_dev, fatal_work);
	struct ib_event event = {};

	dev_err(&dev->pdev->dev, "the device is lost: %s\n", dev->fatal_reason);

	mutex_lock(&dev->reg_lock);
	if (dev->ib_registered) {
		event.event = IB_EVENT_DEVICE_FATAL;
		event.device = &dev->ibdev;
		event.element.port_num = 1;
		ib_dispatch_event(&event);
	}
	kh_netdev_fatal(dev);
	mutex_unlock(&dev->reg_lock);

	kh_make_dead(dev);
	kh_verbs_fatal(dev);
	kh_events_fatal(dev);
}

static void kh_heartbeat_work(struct work_struct *work)
{
	struct kh_dev *dev = container_of(to_delayed_work(work), struct kh_dev,
					  heartbeat_work);
	u64 beat = le64_to_cpu(READ_ONCE(dev->status->heartbeat));

	if (!kh_dev_up(dev))
		return;
	if (beat != dev->heartbeat) {
		dev->heartbeat = beat;
		dev->missed_beats = 0;
	} else if (++dev->missed_beats >= KH_MAX_MISSED_BEATS) {
		kh_dev_fatal(dev, "no heartbeat");
		return;
	}
	schedule_delayed_work(&dev->heartbeat_work, KH_BEAT_INTERVAL);
}

/* ------------------------------------------------------------------------ */
/* What the admin queue asks of the device                                  */
/* ------------------------------------------------------------------------ */

static struct kh_dev *kh_admin_dev(struct kh_admin *aq)
{
	return container_of(aq, struct kh_dev, admin);
}

static void kh_dev_admin_ring(struct kh_admin *aq)
{
	kh_mark(kh_admin_dev(aq), KH_DB_SLOT_ADMIN);
}

static u64 kh_dev_admin_heartbeat(struct kh_admin *aq)
{
	return le64_to_cpu(READ_ONCE(kh_admin_dev(aq)->status->heartbeat));
}

static void kh_dev_admin_lost(struct kh_admin *aq)
{
	kh_dev_fatal(kh_admin_dev(aq), "a command was not answered");
}

static const struct kh_admin_ops kh_dev_admin_ops = {
	.ring		= kh_dev_admin_ring,
	.heartbeat	= kh_dev_admin_heartbeat,
	.lost		= kh_dev_admin_lost,
};

/* ------------------------------------------------------------------------ */
/* Probe                                                                    */
/* ------------------------------------------------------------------------ */

static int kh_map(struct kh_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;

	if (pci_resource_len(pdev, KH_BAR_REGS) < KH_BAR_REGS_SIZE)
		return -ENODEV;
	dev->regs = pci_iomap(pdev, KH_BAR_REGS, KH_BAR_REGS_SIZE);
	if (!dev->regs)
		return -ENOMEM;
	return 0;
}

/* Context 0's pages only: those of processes are theirs to map as they wish. */
static int kh_map_context(struct kh_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	u64 pages;

	dev->num_contexts = readl(dev->regs + KH_REG_NUM_CONTEXTS);
	pages = (u64)dev->num_contexts * KH_PAGE_SIZE;
	if (dev->num_contexts < 2 || dev->num_contexts > U16_MAX ||
	    pci_resource_len(pdev, KH_BAR_DOORBELL) < 2 * pages ||
	    pci_resource_len(pdev, KH_BAR_WAKE) < pages) {
		dev_err(&pdev->dev, "%u contexts do not fit the BARs\n",
			dev->num_contexts);
		return -ENODEV;
	}
	dev->db_base = pci_resource_start(pdev, KH_BAR_DOORBELL);
	dev->status_base = dev->db_base + pages;
	dev->wake_base = pci_resource_start(pdev, KH_BAR_WAKE);

	/* Memory shared with a process of the host: ordinary, cached memory. */
	dev->db = memremap(dev->db_base, KH_PAGE_SIZE, MEMREMAP_WB);
	dev->status = memremap(dev->status_base, KH_PAGE_SIZE, MEMREMAP_WB);
	dev->wake = ioremap(dev->wake_base, KH_PAGE_SIZE);
	if (!dev->db || !dev->status || !dev->wake)
		return -ENOMEM;
	return 0;
}

static void kh_unmap(struct kh_dev *dev)
{
	if (dev->wake)
		iounmap(dev->wake);
	if (dev->status)
		memunmap(dev->status);
	if (dev->db)
		memunmap(dev->db);
	if (dev->regs)
		pci_iounmap(dev->pdev, dev->regs);
}

static int kh_alloc_vectors(struct kh_dev *dev)
{
	unsigned int want;
	int n;

	want = readl(dev->regs + KH_REG_NUM_VECTORS);
	want = min(want, KH_VECTOR_COMPLETION + num_online_cpus());
	n = pci_alloc_irq_vectors(dev->pdev, KH_VECTOR_COMPLETION + 1, want,
				  PCI_IRQ_MSIX);
	if (n < 0) {
		dev_err(&dev->pdev->dev, "no MSI-X vectors (%d)\n", n);
		return n;
	}
	dev->num_vectors = n;
	return 0;
}

static void kh_dev_init(struct kh_dev *dev, struct pci_dev *pdev)
{
	dev->pdev = pdev;
	dev->state = KH_DEV_UP;
	dev->ibdev.dev.parent = &pdev->dev;
	init_completion(&dev->dead);
	mutex_init(&dev->reg_lock);
	INIT_WORK(&dev->fatal_work, kh_fatal_work);
	INIT_DELAYED_WORK(&dev->heartbeat_work, kh_heartbeat_work);
	ida_init(&dev->contexts);
	kh_slots_init(&dev->slots);
	__set_bit(KH_DB_SLOT_ADMIN, dev->slots.used);
	xa_init_flags(&dev->cqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
}

/* The device answers commands when this returns 0. */
static int kh_start(struct kh_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	int err;

	err = kh_map(dev);
	if (err)
		return err;
	err = kh_check_version(dev);
	if (err)
		goto unmap;
	/* Whoever drove it before us, a crashed kernel perhaps, is done now. */
	kh_disable(dev);
	err = kh_map_context(dev);
	if (err)
		goto unmap;

	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		goto unmap;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);

	err = kh_admin_init(&dev->admin, &pdev->dev, &kh_dev_admin_ops);
	if (err)
		goto unmap;
	err = kh_alloc_vectors(dev);
	if (err)
		goto free_admin;
	snprintf(dev->control_name, sizeof(dev->control_name),
		 KH_DRV_NAME "-control@pci:%s", pci_name(pdev));
	err = request_threaded_irq(pci_irq_vector(pdev, KH_VECTOR_CONTROL),
				   kh_control_irq, kh_control_thread, 0,
				   dev->control_name, dev);
	if (err)
		goto free_vectors;

	pci_set_master(pdev);
	err = kh_enable(dev);
	if (err)
		goto free_irq;
	schedule_delayed_work(&dev->heartbeat_work, KH_BEAT_INTERVAL);
	return 0;

free_irq:
	pci_clear_master(pdev);
	free_irq(pci_irq_vector(pdev, KH_VECTOR_CONTROL), dev);
free_vectors:
	pci_free_irq_vectors(pdev);
free_admin:
	kh_admin_free(&dev->admin);
unmap:
	kh_unmap(dev);
	return err;
}

/* The reverse.  All objects are destroyed, and nobody sends commands. */
static void kh_stop(struct kh_dev *dev)
{
	cancel_delayed_work_sync(&dev->heartbeat_work);
	kh_events_destroy(dev);
	free_irq(pci_irq_vector(dev->pdev, KH_VECTOR_CONTROL), dev);
	if (cmpxchg(&dev->state, KH_DEV_UP, KH_DEV_DYING) == KH_DEV_UP) {
		kh_admin_close(&dev->admin);
		kh_disable(dev);
		pci_clear_master(dev->pdev);
	} else {
		wait_for_completion(&dev->dead);
		flush_work(&dev->fatal_work);
	}
	pci_free_irq_vectors(dev->pdev);
	kh_admin_free(&dev->admin);
	kh_unmap(dev);
}

static int kh_register(struct kh_dev *dev)
{
	struct ib_device *ibdev = &dev->ibdev;
	int err;

	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->node_guid = dev->attr.node_guid;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = dev->num_ceqs;
	ibdev->local_dma_lkey = dev->attr.local_dma_lkey;
	strscpy(ibdev->node_desc, KH_DRV_NAME, sizeof(ibdev->node_desc));
	ib_set_device_ops(ibdev, &kh_dev_ops);
	if (IS_ENABLED(CONFIG_INFINIBAND_USER_ACCESS))
		ibdev->driver_def = kh_uapi_defs;

	err = ib_device_set_netdev(ibdev, dev->netdev, 1);
	if (err)
		return err;
	err = ib_register_device(ibdev, KH_DRV_NAME "%d", &dev->pdev->dev);
	if (err) {
		/* The core keeps its reference, for which unregistering would wait. */
		ib_device_set_netdev(ibdev, NULL, 1);
		return err;
	}

	mutex_lock(&dev->reg_lock);
	dev->ib_registered = true;
	mutex_unlock(&dev->reg_lock);
	return 0;
}

static void kh_unregister(struct kh_dev *dev)
{
	mutex_lock(&dev->reg_lock);
	dev->ib_registered = false;
	mutex_unlock(&dev->reg_lock);
	ib_unregister_device(&dev->ibdev);
}

static int kh_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct kh_dev *dev;
	int err;

	dev = ib_alloc_device(kh_dev, ibdev);
	if (!dev)
		return -ENOMEM;
	kh_dev_init(dev, pdev);
	pci_set_drvdata(pdev, dev);

	err = pci_enable_device_mem(pdev);
	if (err)
		goto dealloc;
	err = pci_request_mem_regions(pdev, KH_DRV_NAME);
	if (err)
		goto disable;
	err = kh_start(dev);
	if (err)
		goto release;

	err = kh_cmd_query_device(dev, &dev->attr);
	if (err)
		goto stop;
	err = kh_events_create(dev);
	if (err)
		goto stop;
	err = kh_netdev_create(dev);
	if (err)
		goto stop;
	err = kh_register(dev);
	if (err)
		goto destroy_netdev;
	err = kh_port_start(dev);
	if (err)
		goto unregister;

	dev_info(&pdev->dev, "%s and %s: device %llu.%llu.%llu, %u completion vectors\n",
		 dev_name(&dev->ibdev.dev), netdev_name(dev->netdev),
		 dev->attr.fw_version >> 32, (dev->attr.fw_version >> 16) & 0xffff,
		 dev->attr.fw_version & 0xffff, dev->num_ceqs);
	return 0;

unregister:
	kh_unregister(dev);
destroy_netdev:
	kh_netdev_destroy(dev);
stop:
	kh_stop(dev);
release:
	pci_release_mem_regions(pdev);
disable:
	pci_disable_device(pdev);
dealloc:
	ib_dealloc_device(&dev->ibdev);
	return err;
}

static void kh_remove(struct pci_dev *pdev)
{
	struct kh_dev *dev = pci_get_drvdata(pdev);

	/* Pulled out rather than asked out: do not wait for answers. */
	if (!pci_device_is_present(pdev))
		kh_dev_fatal(dev, "it was removed");

	kh_port_stop(dev);
	kh_unregister(dev);
	kh_netdev_destroy(dev);
	kh_stop(dev);
	pci_release_mem_regions(pdev);
	pci_disable_device(pdev);
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->srqs);
	ida_destroy(&dev->contexts);
	ib_dealloc_device(&dev->ibdev);
}

/* Reboot or kexec: the next kernel's memory must be safe from us. */
static void kh_shutdown(struct pci_dev *pdev)
{
	struct kh_dev *dev = pci_get_drvdata(pdev);

	cancel_delayed_work_sync(&dev->heartbeat_work);
	if (cmpxchg(&dev->state, KH_DEV_UP, KH_DEV_DYING) == KH_DEV_UP)
		kh_make_dead(dev);
	else
		wait_for_completion(&dev->dead);
}

static const struct pci_device_id kh_pci_ids[] = {
	{ PCI_DEVICE(KH_PCI_VENDOR, KH_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, kh_pci_ids);

static struct pci_driver kh_pci_driver = {
	.name		= KH_DRV_NAME,
	.id_table	= kh_pci_ids,
	.probe		= kh_probe,
	.remove		= kh_remove,
	.shutdown	= kh_shutdown,
};

module_pci_driver(kh_pci_driver);
