#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Waits for the RDMA devices and gives the network device of each an address: 192.168.75.1, .2 and so on.
# May be run again whenever a device has gone and come back.
set -e
found=0
for try in 1 2 3 4 5 6 7 8 9 10; do
	found=$(ls /sys/class/infiniband 2> /dev/null | wc -l)
	[ "$found" -ge "${KEYHOLE_HCAS:-2}" ] && break
	sleep 1
done
if [ "$found" -lt "${KEYHOLE_HCAS:-2}" ]; then
	echo "$found RDMA devices instead of ${KEYHOLE_HCAS:-2}" >&2
	exit 1
fi
udevadm settle --timeout=20 || true

number=1
for device in $(ls /sys/class/infiniband | sort -V); do
	netdev=$(sh "$(dirname "$0")/netdev_of.sh" "$device")
	ip link set "$netdev" up
	ip address replace 192.168.75.$number/24 dev "$netdev"
	number=$((number + 1))
done
