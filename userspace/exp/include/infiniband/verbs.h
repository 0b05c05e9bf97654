/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * infiniband/verbs.h as the old vendor stack had it: the verbs, and the
 * experimental verbs with them.  It stands before the system's own, which it takes
 * in, on the include path of programs that were asked to be compiled with the flags
 * of libibverbs_exp, and of no others.
 */
#ifndef LIBIBVERBS_EXP_VERBS_H
#define LIBIBVERBS_EXP_VERBS_H

#pragma GCC system_header

#include_next <infiniband/verbs.h>

/*
 * These see objects of the library's own, or ones that it must let go of first; all
 * others they hand on.  By the linker's name, so that the name in the program
 * stays a plain function: its address, members of the same name and C++
 * qualification all work.
 */
#ifndef LIBIBVERBS_EXP_SOURCE
#ifdef __cplusplus
extern "C" {
#endif
extern int ibv_dereg_mr(struct ibv_mr *mr) __asm__("ibv_exp_dereg_any_mr");
extern int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access)
	__asm__("ibv_exp_rereg_any_mr");
extern int ibv_destroy_cq(struct ibv_cq *cq) __asm__("ibv_exp_destroy_any_cq");
#ifdef __cplusplus
}
#endif
#endif

#include <infiniband/verbs_exp.h>

#endif /* LIBIBVERBS_EXP_VERBS_H */
