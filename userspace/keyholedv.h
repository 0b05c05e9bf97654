/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Direct verbs of the Keyhole HCA: indirect memory keys, filled by user-mode
 * registration (UMR), and what else the standard verbs have no call for.
 *
 *	#include <infiniband/keyholedv.h>	link with -lkeyhole -libverbs
 *
 * An indirect mkey names the bytes of other keys: a list of pieces, or blocks
 * that repeat at a stride, from any number of sources.  It is created empty, gets
 * its contents from a work request on an RC QP of its PD, and is then used like
 * any other lkey and rkey.  keyhole(7) has the model, and the rules for rights.
 *
 * Calls that return a pointer return NULL and set errno; calls that return int
 * return 0 or a value of errno.  Work requests are checked when they are posted for
 * what the caller can know (counts, flags), and by the device for the rest: keys,
 * ranges and rights.  What the device refuses completes with
 * IBV_WC_LOC_QP_OP_ERR, and the reason in vendor_err (enum kh_syndrome; for a
 * piece of a list its index is in the upper 16 bits).  The mkey then keeps
 * what it had.
 */
#ifndef KEYHOLEDV_H
#define KEYHOLEDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------ */
/* The device                                                               */
/* ------------------------------------------------------------------------ */

/* Is it a Keyhole HCA, served by this library? */
bool keyholedv_is_supported(struct ibv_device *device);

enum keyholedv_cap_flags {
	KEYHOLEDV_CAP_INDIRECT_MKEY	= 1 << 0,
	KEYHOLEDV_CAP_MASKED_ATOMIC	= 1 << 1,
	KEYHOLEDV_CAP_NOP		= 1 << 2,
};

struct keyholedv_context {
	uint64_t comp_mask;		/* in: 0, no extension is known */
	uint64_t flags;			/* enum keyholedv_cap_flags */
	uint32_t max_mkey_entries;	/* of an indirect mkey, either kind */
	uint32_t max_inline_entries;	/* of a fill that is posted inline */
	uint32_t max_mkey_depth;	/* of indirect mkeys in indirect mkeys */
	uint32_t reserved;
	uint64_t max_klm_list;		/* bytes of a KLM list */
};

/* EINVAL: an unknown bit in comp_mask.  EOPNOTSUPP: not a Keyhole HCA. */
int keyholedv_query_device(struct ibv_context *context,
			   struct keyholedv_context *attr);

/* ------------------------------------------------------------------------ */
/* Indirect mkeys                                                           */
/* ------------------------------------------------------------------------ */

struct keyholedv_mkey {
	uint32_t lkey;
	uint32_t rkey;
};

struct keyholedv_mkey_init_attr {
	struct ibv_pd *pd;
	uint32_t max_entries;	/* 1 to max_mkey_entries */
	/*
	 * enum ibv_access_flags.  IBV_ACCESS_MW_BIND allows windows on it, for good;
	 * all other rights come with each fill.  IBV_ACCESS_ZERO_BASED: EINVAL.
	 */
	uint32_t access;
	uint64_t comp_mask;	/* 0 */
};

/* EINVAL, ENOMEM (also: the HCA's limits), EOPNOTSUPP. */
struct keyholedv_mkey *
keyholedv_create_mkey(struct keyholedv_mkey_init_attr *attr);

/* EBUSY while windows are bound to it; it is then as it was. */
int keyholedv_destroy_mkey(struct keyholedv_mkey *mkey);

struct keyholedv_mkey_attr {
	uint64_t start;		/* address of the first byte */
	uint64_t length;	/* bytes */
	uint32_t access;
	uint32_t max_entries;
	uint32_t num_entries;	/* without the empty ones */
	uint32_t repeat_count;	/* of an interleaved one, else 0 */
	uint32_t windows;	/* bound to it */
	uint8_t valid;		/* filled; start, length and num_entries mean something */
	uint8_t depth;		/* 1: all its entries are regions */
	uint8_t reserved[2];
};

/* As the device has it now; fills that are posted and not done do not show. */
int keyholedv_query_mkey(struct keyholedv_mkey *mkey,
			 struct keyholedv_mkey_attr *attr);

/*
 * Memory that fills which are not inline hand their entries over in: allocated
 * and pinned here (RLIMIT_MEMLOCK counts it).  It has room for max_entries of
 * either kind.  A fill uses it from its posting to its completion.
 */
struct keyholedv_klm_list {
	void *addr;
	size_t length;		/* bytes */
	uint32_t max_entries;
	uint32_t key;
};

/* EINVAL (0, or more than max_klm_list holds), ENOMEM, EOPNOTSUPP. */
struct keyholedv_klm_list *keyholedv_alloc_klm_list(struct ibv_pd *pd,
						    uint32_t max_entries);
int keyholedv_free_klm_list(struct keyholedv_klm_list *list);

/* ------------------------------------------------------------------------ */
/* Work requests                                                            */
/* ------------------------------------------------------------------------ */

/* One source of an interleaved mkey: in each round its next bytes_count bytes. */
struct keyholedv_mr_interleaved {
	uint64_t addr;		/* of the first round */
	uint32_t bytes_count;
	uint32_t lkey;
	uint64_t stride;	/* from one round's first byte to the next's */
};

struct keyholedv_fill {
	uint32_t mkey;		/* lkey of the indirect mkey */
	/*
	 * enum ibv_access_flags.  Remote write and atomic need local write; MW_BIND
	 * only if the mkey was created with it; ZERO_BASED makes start 0.
	 */
	uint32_t access;
	uint64_t start;		/* what its first byte is called */
	uint32_t num_entries;	/* entries of list or interleaved; 1 or more */
	uint32_t repeat_count;	/* rounds; 0: list, else interleaved */
	union {
		const struct ibv_sge *list;
		const struct keyholedv_mr_interleaved *interleaved;
	};
	/*
	 * Where entries go unless IBV_SEND_INLINE is set: from byte klm_offset (a
	 * multiple of 8) on.  They are written there when the request is posted.
	 */
	struct keyholedv_klm_list *klm_list;
	uint64_t klm_offset;
};

struct keyholedv_masked_atomic {
	uint64_t remote_addr;	/* a multiple of 8 */
	uint32_t rkey;
	uint32_t reserved;
	/*
	 * Compare and swap: if no bit of compare_mask differs between memory and
	 * compare, the bits of swap_mask are replaced by those of swap_add.
	 * Fetch and add: swap_add is added; no carry leaves a bit that is set in
	 * swap_mask.  compare and compare_mask are 0.
	 */
	uint64_t swap_add;
	uint64_t compare;
	uint64_t swap_mask;
	uint64_t compare_mask;
	struct ibv_sge sge;	/* where the old value goes; 8 bytes */
};

enum keyholedv_wr_opcode {
	KEYHOLEDV_WR_FILL,
	KEYHOLEDV_WR_INVALIDATE,
	KEYHOLEDV_WR_MASKED_CMP_SWAP,
	KEYHOLEDV_WR_MASKED_FETCH_ADD,
	KEYHOLEDV_WR_NOP,
};

struct keyholedv_send_wr {
	uint64_t wr_id;
	struct keyholedv_send_wr *next;
	enum keyholedv_wr_opcode opcode;
	unsigned int send_flags;	/* enum ibv_send_flags */
	union {
		struct keyholedv_fill fill;
		uint32_t invalidate_mkey;	/* lkey */
		struct keyholedv_masked_atomic atomic;
	};
};

/*
 * ibv_post_send() for these, on any RC QP of the device (NOP: on any QP), mixed
 * with ibv_post_send() as one likes.  bad_wr names the first that was not posted.
 * EINVAL: an opcode, flag, count or list that cannot be; ENOMEM: the queue is full.
 */
int keyholedv_post_send(struct ibv_qp *qp, struct keyholedv_send_wr *wr,
			struct keyholedv_send_wr **bad_wr);

/* Opcodes of completions that verbs.h does not name. */
enum keyholedv_wc_opcode {
	KEYHOLEDV_WC_UMR		= IBV_WC_DRIVER1,	/* fill and invalidate */
	KEYHOLEDV_WC_MASKED_CMP_SWAP	= IBV_WC_DRIVER2,
	KEYHOLEDV_WC_MASKED_FETCH_ADD	= IBV_WC_DRIVER3,
	KEYHOLEDV_WC_NOP		= 0x7f,
};

/* ------------------------------------------------------------------------ */
/* QPs and the ibv_wr_* builder                                             */
/* ------------------------------------------------------------------------ */

enum keyholedv_qp_send_ops {
	KEYHOLEDV_QP_EX_WITH_MR_LIST		= 1 << 0,
	KEYHOLEDV_QP_EX_WITH_MR_INTERLEAVED	= 1 << 1,
	KEYHOLEDV_QP_EX_WITH_INVALIDATE		= 1 << 2,
	KEYHOLEDV_QP_EX_WITH_MASKED_ATOMIC	= 1 << 3,
	KEYHOLEDV_QP_EX_WITH_NOP		= 1 << 4,
};

struct keyholedv_qp_init_attr {
	uint64_t comp_mask;		/* 0 */
	uint64_t send_ops_flags;	/* enum keyholedv_qp_send_ops */
	/*
	 * The send queue is made large enough for max_send_wr fills of so many
	 * entries inline.  Larger ones may be posted too, and take more of its room.
	 */
	uint32_t max_inline_entries;
	uint32_t reserved;
};

/*
 * As ibv_create_qp_ex().  send_ops_flags, if not 0, needs an RC QP (NOP: any) that
 * is created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.
 */
struct ibv_qp *keyholedv_create_qp(struct ibv_context *context,
				   struct ibv_qp_init_attr_ex *attr,
				   struct keyholedv_qp_init_attr *dv_attr);

/*
 * Calls between ibv_wr_start() and ibv_wr_complete() of the QP; they take wr_id and
 * wr_flags from struct ibv_qp_ex as all others do.
 */
struct keyholedv_qp_ex {
	uint64_t comp_mask;
	void (*wr_fill)(struct keyholedv_qp_ex *qp,
			const struct keyholedv_fill *fill);
	void (*wr_mr_list)(struct keyholedv_qp_ex *qp,
			   struct keyholedv_mkey *mkey, uint32_t access,
			   uint32_t num_sges, const struct ibv_sge *sge);
	void (*wr_mr_interleaved)(struct keyholedv_qp_ex *qp,
				  struct keyholedv_mkey *mkey, uint32_t access,
				  uint32_t repeat_count, uint32_t num_interleaved,
				  const struct keyholedv_mr_interleaved *data);
	void (*wr_invalidate)(struct keyholedv_qp_ex *qp, uint32_t lkey);
	void (*wr_masked_cmp_swap)(struct keyholedv_qp_ex *qp,
				   const struct keyholedv_masked_atomic *atomic);
	void (*wr_masked_fetch_add)(struct keyholedv_qp_ex *qp,
				    const struct keyholedv_masked_atomic *atomic);
	void (*wr_nop)(struct keyholedv_qp_ex *qp);
};

/* NULL for a QP of another provider, or one created without send_ops_flags. */
struct keyholedv_qp_ex *keyholedv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp);

/* All that struct keyholedv_fill offers.  wr_flags has IBV_SEND_INLINE or not. */
static inline void keyholedv_wr_fill(struct keyholedv_qp_ex *qp,
				     const struct keyholedv_fill *fill)
{
	qp->wr_fill(qp, fill);
}

/*
 * Inline, and the mkey's first byte is called 0.  num_sges is at most
 * max_inline_entries; wr_flags need not have IBV_SEND_INLINE.
 */
static inline void keyholedv_wr_mr_list(struct keyholedv_qp_ex *qp,
					struct keyholedv_mkey *mkey,
					uint32_t access, uint32_t num_sges,
					const struct ibv_sge *sge)
{
	qp->wr_mr_list(qp, mkey, access, num_sges, sge);
}

/* Likewise. */
static inline void
keyholedv_wr_mr_interleaved(struct keyholedv_qp_ex *qp,
			    struct keyholedv_mkey *mkey, uint32_t access,
			    uint32_t repeat_count, uint32_t num_interleaved,
			    const struct keyholedv_mr_interleaved *data)
{
	qp->wr_mr_interleaved(qp, mkey, access, repeat_count, num_interleaved,
			      data);
}

/* The mkey is empty afterwards.  An error while windows are bound to it. */
static inline void keyholedv_wr_invalidate(struct keyholedv_qp_ex *qp,
					   uint32_t lkey)
{
	qp->wr_invalidate(qp, lkey);
}

static inline void
keyholedv_wr_masked_cmp_swap(struct keyholedv_qp_ex *qp,
			     const struct keyholedv_masked_atomic *atomic)
{
	qp->wr_masked_cmp_swap(qp, atomic);
}

static inline void
keyholedv_wr_masked_fetch_add(struct keyholedv_qp_ex *qp,
			      const struct keyholedv_masked_atomic *atomic)
{
	qp->wr_masked_fetch_add(qp, atomic);
}

static inline void keyholedv_wr_nop(struct keyholedv_qp_ex *qp)
{
	qp->wr_nop(qp);
}

#ifdef __cplusplus
}
#endif

#endif /* KEYHOLEDV_H */
