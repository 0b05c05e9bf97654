// SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB)
/*
 * The entry point: which devices are ours, and how to open one.
 *
 * The driver id of a device that the kernel's headers do not list is
 * RDMA_DRIVER_UNKNOWN, which anyone may use; so devices are matched by PCI id.
 */
#include "entry.h"

#include <infiniband/driver.h>
#include <keyhole_hw.h>
#include <rdma/keyhole-abi.h>

static const struct verbs_match_ent match_table[] = {
	VERBS_PCI_MATCH(KH_PCI_VENDOR, KH_PCI_DEVICE, NULL),
	{},
};

static const struct verbs_device_ops keyhole_device_ops = {
	.name = "keyhole",
	.match_min_abi_version = KEYHOLE_ABI_VERSION,
	.match_max_abi_version = KEYHOLE_ABI_VERSION,
	.match_table = match_table,
	.alloc_device = kh_alloc_device,
	.uninit_device = kh_uninit_device,
	.alloc_context = kh_alloc_context,
};

bool kh_serves(const struct ibv_device *device)
{
	const struct verbs_device *verbs =
		container_of(device, struct verbs_device, device);

	return verbs->ops == &keyhole_device_ops;
}

PROVIDER_DRIVER(keyhole, keyhole_device_ops);
