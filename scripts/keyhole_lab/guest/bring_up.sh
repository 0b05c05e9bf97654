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

exec sh "$(dirname "$0")/addresses.sh"
