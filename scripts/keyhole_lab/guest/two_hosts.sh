#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Makes two hosts of one guest, as far as RDMA can tell: the second adapter and its network device go
# into a network namespace `peer` of their own.
#
# In one namespace an address of the other adapter is a local one: the kernel would route TCP, and
# rdma_cm its route lookup, over the loopback device. Apart, every byte between the two really crosses
# the adapters' Ethernet, and `ip netns exec peer CMD` runs CMD on the other host.
set -e
here=$(dirname "$0")
set -- $(ls /sys/class/infiniband | sort -V)
second=$2
netdev=$(sh "$here/netdev_of.sh" "$second")
rdma system set netns exclusive
ip netns add peer
ip netns exec peer ip link set lo up
ip link set "$netdev" netns peer
rdma dev set "$second" netns peer
ip netns exec peer sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
ip netns exec peer ip link set "$netdev" up
ip netns exec peer ip address add 192.168.75.2/24 dev "$netdev"
echo "$second $netdev"
