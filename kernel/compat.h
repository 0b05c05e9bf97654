/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where kernels differ.  Function bodies elsewhere are written for the kernel
 * of today; what an older or newer one needs instead is said here, once.
 */
#ifndef KH_COMPAT_H
#define KH_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "keyhole needs Linux 6.1 or newer"
#endif

#endif /* KH_COMPAT_H */
