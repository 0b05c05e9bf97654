/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) */
/*
 * What libibverbs calls first: the C side of the door is entry.c, the C++ side
 * is device.cc.
 */
#ifndef KEYHOLE_ENTRY_H
#define KEYHOLE_ENTRY_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_context;
struct ibv_device;
struct verbs_context;
struct verbs_device;
struct verbs_sysfs_dev;

struct verbs_device *kh_alloc_device(struct verbs_sysfs_dev *sysfs_dev);
void kh_uninit_device(struct verbs_device *device);
struct verbs_context *kh_alloc_context(struct ibv_device *device, int cmd_fd,
				       void *private_data);
void kh_free_context(struct ibv_context *context);

/* Is it a device that this copy of the library serves? */
bool kh_serves(const struct ibv_device *device);

#ifdef __cplusplus
}
#endif

#endif /* KEYHOLE_ENTRY_H */
