#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# From a booted kernel to two RDMA devices with addresses, as an administrator would do it by hand:
# the RDMA core's modules, then keyhole.ko, then `ip address add`. KEYHOLE_HCA=rxe takes Soft-RoCE on a
# pair of virtual Ethernet devices instead, to compare with.
set -e

# In the stock kernel these are modules; in the debug kernel they are built in and modprobe finds none.
modprobe -qa ib_core ib_uverbs ib_umad ib_cm iw_cm rdma_cm rdma_ucm || true
[ -e /dev/infiniband/rdma_cm ] || { echo "this kernel has no rdma_ucm" >&2; exit 1; }
ulimit -l unlimited

# Both adapters are on one Ethernet and in one kernel. So that they find each other on it all the same:
# each address answers on its own device only (arp_ignore, arp_announce), and a frame from an address
# that is our own is no forgery (accept_local). And no waiting for duplicate address detection.
for item in net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
	net.ipv4.conf.all.accept_local=1 net.ipv4.conf.all.rp_filter=0 \
	net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2; do
	sysctl -qw $item || true
done
ip link set lo up

case $KEYHOLE_HCA in
rxe)
	modprobe rdma_rxe
	ip link add eth0 type veth peer name eth1
	rdma link add rxe0 type rxe netdev eth0
	rdma link add rxe1 type rxe netdev eth1
	;;
none)
	exit 0
	;;
*)
	insmod /usr/lib/keyhole/keyhole.ko
	;;
esac

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
	ip address add 192.168.75.$number/24 dev "$netdev"
	number=$((number + 1))
done
