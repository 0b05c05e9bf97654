// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The Ethernet side of the HCA, and the state of its port.
 *
 * GIDs are the netdev's addresses and the RDMA port is active when the netdev
 * is up, so this is more than a convenience.  The device learns of all changes
 * by SET_PORT, which always carries the whole state; kh_port_apply() sends it
 * when it differs from what was sent last.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

#include "nic.h"

#define KH_MIN_MTU	68
#define KH_MAX_MTU	9216

struct kh_netdev {
	struct kh_dev *dev;
};

static struct kh_dev *kh_ndev_dev(const struct net_device *ndev)
{
	struct kh_netdev *priv = netdev_priv(ndev);

	return priv->dev;
}

/* ------------------------------------------------------------------------ */
/* SET_PORT                                                                 */
/* ------------------------------------------------------------------------ */

static int kh_port_apply(struct kh_dev *dev)
{
	struct kh_port *port = &dev->port;
	struct kh_set_port_params params = {};
	int err;

	lockdep_assert_held(&port->lock);
	if (port->up)
		params.flags |= KH_PORT_UP;
	if (port->rdma)
		params.flags |= KH_PORT_RDMA;
	if (READ_ONCE(dev->netdev->flags) & IFF_PROMISC)
		params.flags |= KH_PORT_PROMISC;
	params.mac = port->mac;
	params.mtu = port->mtu;
	if (port->sent && params.flags == port->sent_flags &&
	    params.mtu == port->sent_mtu &&
	    ether_addr_equal_unaligned(params.mac, port->sent_mac))
		return 0;

	err = kh_cmd_set_port(dev, &params);
	if (err) {
		netdev_err(dev->netdev, "the port's state was refused (%d)\n", err);
		return err;
	}
	port->sent = true;
	port->sent_flags = params.flags;
	port->sent_mtu = params.mtu;
	ether_addr_copy(port->sent_mac, params.mac);
	return 0;
}

static int kh_port_set_up(struct kh_dev *dev, bool up)
{
	struct kh_port *port = &dev->port;
	int err;

	mutex_lock(&port->lock);
	port->up = up;
	err = kh_port_apply(dev);
	mutex_unlock(&port->lock);
	return err;
}

static void kh_port_work(struct work_struct *work)
{
	struct kh_dev *dev = container_of(work, struct kh_dev, port.work);

	mutex_lock(&dev->port.lock);
	if (kh_dev_up(dev))
		kh_port_apply(dev);
	mutex_unlock(&dev->port.lock);
}

/* ------------------------------------------------------------------------ */
/* Operations of the netdev                                                 */
/* ------------------------------------------------------------------------ */

static int kh_open(struct net_device *ndev)
{
	struct kh_dev *dev = kh_ndev_dev(ndev);
	struct kh_nic *nic;
	int err;

	nic = kh_nic_up(dev, ndev);
	if (IS_ERR(nic))
		return PTR_ERR(nic);
	err = kh_port_set_up(dev, true);
	if (err) {
		kh_nic_down(nic);
		return err;
	}
	dev->nic = nic;
	netif_start_queue(ndev);
	if (READ_ONCE(dev->port.link))
		netif_carrier_on(ndev);
	return 0;
}

static int kh_stop(struct net_device *ndev)
{
	struct kh_dev *dev = kh_ndev_dev(ndev);

	netif_carrier_off(ndev);
	if (kh_dev_up(dev))
		kh_port_set_up(dev, false);
	if (dev->nic)
		kh_nic_down(dev->nic);
	dev->nic = NULL;
	return 0;
}

static netdev_tx_t kh_xmit(struct sk_buff *skb, struct net_device *ndev)
{
	return kh_nic_xmit(kh_ndev_dev(ndev)->nic, skb);
}

/* Buffers fit the MTU, so that a running interface gets new ones. */
static int kh_restart_nic(struct kh_dev *dev, struct net_device *ndev, int mtu)
{
	struct kh_nic *nic;
	int old = ndev->mtu;
	int err = 0;

	if (dev->nic)
		kh_nic_down(dev->nic);
	dev->nic = NULL;

	WRITE_ONCE(ndev->mtu, mtu);
	nic = kh_nic_up(dev, ndev);
	if (IS_ERR(nic)) {
		err = PTR_ERR(nic);
		WRITE_ONCE(ndev->mtu, old);
		nic = kh_nic_up(dev, ndev);
	}
	if (IS_ERR(nic)) {
		netdev_err(ndev, "no NIC queues after a change of MTU (%d): take it down and up\n",
			   err);
		return err;
	}
	dev->nic = nic;
	netif_wake_queue(ndev);
	return err;
}

static int kh_change_mtu(struct net_device *ndev, int mtu)
{
	struct kh_dev *dev = kh_ndev_dev(ndev);
	int err;

	if (netif_running(ndev)) {
		err = kh_restart_nic(dev, ndev, mtu);
		if (err)
			return err;
	} else {
		WRITE_ONCE(ndev->mtu, mtu);
	}
	mutex_lock(&dev->port.lock);
	dev->port.mtu = mtu;
	err = kh_port_apply(dev);
	mutex_unlock(&dev->port.lock);
	return err;
}

static int kh_set_mac(struct net_device *ndev, void *addr)
{
	struct kh_dev *dev = kh_ndev_dev(ndev);
	struct sockaddr *sa = addr;
	int err;

	err = eth_prepare_mac_addr_change(ndev, addr);
	if (err)
		return err;
	mutex_lock(&dev->port.lock);
	ether_addr_copy(dev->port.mac, sa->sa_data);
	err = kh_port_apply(dev);
	if (err)
		ether_addr_copy(dev->port.mac, ndev->dev_addr);
	mutex_unlock(&dev->port.lock);
	if (!err)
		eth_commit_mac_addr_change(ndev, addr);
	return err;
}

/* In atomic context; the device filters nothing but whose MAC it is. */
static void kh_set_rx_mode(struct net_device *ndev)
{
	schedule_work(&kh_ndev_dev(ndev)->port.work);
}

static const struct net_device_ops kh_netdev_ops = {
	.ndo_open		= kh_open,
	.ndo_stop		= kh_stop,
	.ndo_start_xmit		= kh_xmit,
	.ndo_change_mtu		= kh_change_mtu,
	.ndo_set_mac_address	= kh_set_mac,
	.ndo_set_rx_mode	= kh_set_rx_mode,
	.ndo_validate_addr	= eth_validate_addr,
	.ndo_get_stats64	= dev_get_tstats64,
};

static void kh_get_drvinfo(struct net_device *ndev, struct ethtool_drvinfo *info)
{
	struct kh_dev *dev = kh_ndev_dev(ndev);

	strscpy(info->driver, KH_DRV_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(dev->pdev), sizeof(info->bus_info));
	snprintf(info->fw_version, sizeof(info->fw_version), "%llu.%llu.%llu",
		 dev->attr.fw_version >> 32, (dev->attr.fw_version >> 16) & 0xffff,
		 dev->attr.fw_version & 0xffff);
}

/* It has no speed; the core wants one, to say a rate and a width. */
static int kh_get_link_ksettings(struct net_device *ndev,
				 struct ethtool_link_ksettings *settings)
{
	settings->base.speed = SPEED_100000;
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops kh_ethtool_ops = {
	.get_drvinfo		= kh_get_drvinfo,
	.get_link		= ethtool_op_get_link,
	.get_link_ksettings	= kh_get_link_ksettings,
	.get_ts_info		= ethtool_op_get_ts_info,
};

/* ------------------------------------------------------------------------ */
/* Port state                                                               */
/* ------------------------------------------------------------------------ */

enum ib_port_state kh_port_state(const struct kh_dev *dev)
{
	return kh_dev_up(dev) && netif_running(dev->netdev) &&
	       netif_carrier_ok(dev->netdev) ? IB_PORT_ACTIVE : IB_PORT_DOWN;
}

static int kh_netdev_event(struct notifier_block *nb, unsigned long what, void *arg)
{
	struct kh_dev *dev = container_of(nb, struct kh_dev, netdev_nb);
	struct ib_event event = {};
	enum ib_port_state state;

	if (netdev_notifier_info_to_dev(arg) != dev->netdev)
		return NOTIFY_DONE;
	if (what != NETDEV_UP && what != NETDEV_DOWN && what != NETDEV_CHANGE)
		return NOTIFY_DONE;
	state = kh_port_state(dev);
	if (state == dev->port_state)
		return NOTIFY_DONE;

	dev->port_state = state;
	event.device = &dev->ibdev;
	event.element.port_num = 1;
	event.event = state == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
	ib_dispatch_event(&event);
	return NOTIFY_OK;
}

int kh_port_start(struct kh_dev *dev)
{
	int err;

	mutex_lock(&dev->port.lock);
	dev->port.rdma = true;
	err = kh_port_apply(dev);
	mutex_unlock(&dev->port.lock);
	if (err)
		return err;

	/* Registration tells of what is up already. */
	dev->port_state = IB_PORT_DOWN;
	dev->netdev_nb.notifier_call = kh_netdev_event;
	return register_netdevice_notifier(&dev->netdev_nb);
}

void kh_port_stop(struct kh_dev *dev)
{
	unregister_netdevice_notifier(&dev->netdev_nb);
}

void kh_port_link(struct kh_dev *dev, bool up)
{
	mutex_lock(&dev->reg_lock);
	WRITE_ONCE(dev->port.link, up);
	if (dev->netdev && up && netif_running(dev->netdev))
		netif_carrier_on(dev->netdev);
	else if (dev->netdev && !up)
		netif_carrier_off(dev->netdev);
	mutex_unlock(&dev->reg_lock);
}

/* ------------------------------------------------------------------------ */
/* Life                                                                     */
/* ------------------------------------------------------------------------ */

/* reg_lock is held.  The loss of the carrier is what tells of the port's end. */
void kh_netdev_fatal(struct kh_dev *dev)
{
	if (dev->netdev)
		netif_carrier_off(dev->netdev);
}

/* Against events and the end of the device, which come at any time. */
static void kh_set_netdev(struct kh_dev *dev, struct net_device *ndev)
{
	mutex_lock(&dev->reg_lock);
	dev->netdev = ndev;
	mutex_unlock(&dev->reg_lock);
}

static void kh_permanent_mac(struct kh_dev *dev, u8 *mac)
{
	u32 lo = readl(dev->regs + KH_REG_MAC_LO);
	u32 hi = readl(dev->regs + KH_REG_MAC_HI);
	int i;

	for (i = 0; i < 4; i++)
		mac[i] = lo >> (8 * i);
	mac[4] = hi;
	mac[5] = hi >> 8;
}

int kh_netdev_create(struct kh_dev *dev)
{
	struct kh_netdev *priv;
	struct net_device *ndev;
	int err;

	ndev = alloc_etherdev(sizeof(*priv));
	if (!ndev)
		return -ENOMEM;
	priv = netdev_priv(ndev);
	priv->dev = dev;
	SET_NETDEV_DEV(ndev, &dev->pdev->dev);
	ndev->netdev_ops = &kh_netdev_ops;
	ndev->ethtool_ops = &kh_ethtool_ops;
	ndev->min_mtu = KH_MIN_MTU;
	ndev->max_mtu = KH_MAX_MTU;

	mutex_init(&dev->port.lock);
	INIT_WORK(&dev->port.work, kh_port_work);
	dev->port.mtu = ndev->mtu;
	dev->port.link = true;
	kh_permanent_mac(dev, dev->port.mac);
	if (!is_valid_ether_addr(dev->port.mac)) {
		dev_warn(&dev->pdev->dev, "no valid MAC %pM: taking a random one\n",
			 dev->port.mac);
		eth_random_addr(dev->port.mac);
	}
	eth_hw_addr_set(ndev, dev->port.mac);

	ndev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!ndev->tstats) {
		err = -ENOMEM;
		goto free;
	}
	kh_set_netdev(dev, ndev);
	/* Whether there is a link shows when it is opened. */
	netif_carrier_off(ndev);
	err = register_netdev(ndev);
	if (err)
		goto free_stats;
	return 0;

free_stats:
	kh_set_netdev(dev, NULL);
	free_percpu(ndev->tstats);
free:
	free_netdev(ndev);
	return err;
}

void kh_netdev_destroy(struct kh_dev *dev)
{
	struct net_device *ndev = dev->netdev;

	/* It stops first: its close still speaks to the device. */
	unregister_netdev(ndev);
	cancel_work_sync(&dev->port.work);
	kh_set_netdev(dev, NULL);
	free_percpu(ndev->tstats);
	free_netdev(ndev);
}
