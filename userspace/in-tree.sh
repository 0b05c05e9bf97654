#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# in-tree.sh TREE: puts this provider into an rdma-core source tree as providers/keyhole, with a copy
# of the two headers that it shares with the kernel and the device, and names it in the tree's
# CMakeLists.txt. Then build the tree as always. Running it again brings the copy up to date.
#
# The tree's project gets C++ from its beginning: where only this provider asks for it, rdma-core 44
# cannot be configured a second time, as it compares flags that then lie in the cache with none.
set -eu

if [ $# -ne 1 ] || [ ! -f "$1/libibverbs/driver.h" ]; then
	echo "usage: $0 TREE    (the top of an rdma-core source tree)" >&2
	exit 2
fi
tree=$1
here=$(cd "$(dirname "$0")" && pwd -P)
list=$tree/CMakeLists.txt

if ! grep -q 'add_subdirectory(providers/mlx5)' "$list"; then
	echo "$0: $list does not list its providers as expected; add this line beside them:" >&2
	echo "  add_subdirectory(providers/keyhole)" >&2
	exit 1
fi

rm -rf "$tree/providers/keyhole"
mkdir -p "$tree/providers/keyhole"
cp -R "$here/." "$tree/providers/keyhole/"
cp -R "$here/../uapi" "$tree/providers/keyhole/uapi"
grep -q 'add_subdirectory(providers/keyhole)' "$list" ||
	sed -i '0,/^add_subdirectory(providers\/[a-z]/s//add_subdirectory(providers\/keyhole)\n&/' "$list"
sed -i 's/^project(rdma-core C)$/project(rdma-core C CXX)/' "$list"
echo "providers/keyhole is in $tree"
