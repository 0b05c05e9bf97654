#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The network device of an RDMA device: netdev_of.sh keyhole0
if [ -d "/sys/class/infiniband/$1/device/net" ]; then
	ls "/sys/class/infiniband/$1/device/net" | head -n 1
else
	cat "/sys/class/infiniband/$1/ports/1/gid_attrs/ndevs/0"
fi
