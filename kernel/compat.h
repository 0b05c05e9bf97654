/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where kernels differ.  Function bodies elsewhere are written for the kernel
 * of today; what an older or newer one needs instead is said here, once.  Kbuild
 * looks for what can be told from the headers, and defines KH_HAVE_*.
 */
#ifndef KH_COMPAT_H
#define KH_COMPAT_H

/* Block iterators were in ib_umem.h before they got a header of their own. */
#ifdef KH_HAVE_RDMA_ITER_H
#include <rdma/iter.h>
#endif

#endif /* KH_COMPAT_H */
