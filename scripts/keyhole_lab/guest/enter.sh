#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The first program in the guest: enter.sh DIRECTORY CMD ARGUMENT...
#
# Brings the adapters up, runs CMD in DIRECTORY, leaves the kernel's log with the lab, and ends with
# CMD's status. Status 125 says that CMD was never started.
here=$(dirname "$0")
directory=$1
shift

. /run/keyhole/settings
# A fresh /tmp, through which a checkout that lies below /tmp shows again.
if ! mountpoint -q /tmp; then
	mkdir -p /run/checkout
	mount --bind "$KEYHOLE_TOP" /run/checkout
	mount -t tmpfs -o mode=1777 tmpfs /tmp
	if [ ! -e "$KEYHOLE_TOP" ]; then
		mkdir -p "$KEYHOLE_TOP"
		mount --bind /run/checkout "$KEYHOLE_TOP"
	fi
fi
export HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

if sh "$here/bring_up.sh"; then
	cd "$directory" && "$@"
	status=$?
else
	echo "lab: the adapters did not come up; the end of the kernel's log:" >&2
	dmesg | tail -n 30 >&2
	status=125
fi
if [ "$KEYHOLE_KERNEL" = debug ]; then
	sh "$here/leaks.sh"
	sh "$here/coverage.sh"
fi
dmesg > /run/keyhole/dmesg
exit $status
