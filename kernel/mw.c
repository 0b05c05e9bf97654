// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory windows.  The kernel allocates a window's entry in the device's mkey
 * table and frees it; binding is a work request, which the kernel does not see.
 * So the variant of a window's key moves without us, and the key that we keep
 * names the entry by its index alone.
 */

#include "verbs.h"

int kh_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct kh_dev *dev = to_kh_dev(ibmw->device);
	struct kh_create_mkey_params params = {
		.pdn = to_kh_pd(ibmw->pd)->pdn,
	};
	struct kh_mw *mw = to_kh_mw(ibmw);
	u64 cap;
	int ret;

	switch (ibmw->type) {
	case IB_MW_TYPE_1:
		params.kind = KH_MKEY_MW1;
		cap = KH_CAP_MW1;
		break;
	case IB_MW_TYPE_2:
		params.kind = KH_MKEY_MW2;
		cap = KH_CAP_MW2B;
		break;
	default:
		return -EINVAL;
	}
	if (!(dev->attr.caps & cap))
		return -EOPNOTSUPP;
	ret = kh_udata_none(udata);
	if (ret)
		return ret;

	ret = kh_cmd_create_mkey(dev, &params, &mw->key);
	if (ret)
		return ret;
	ibmw->rkey = mw->key;
	return 0;
}

int kh_dealloc_mw(struct ib_mw *ibmw)
{
	return kh_cmd_destroy_mkey(to_kh_dev(ibmw->device), to_kh_mw(ibmw)->key);
}
