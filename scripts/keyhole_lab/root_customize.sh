#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# mmdebstrap's customize hook: $1 is the root, with all packages in it.
#
# Puts rdma-core's source, of the very version that is installed, into /usr/src/rdma-core, and runs its
# CMake configure step, which generates the private headers in /usr/src/rdma-core/build/include.
set -eu
chroot "$1" sh -eu <<'END'
cd /usr/src
version=$(dpkg-query -W -f '${source:Version}' libibverbs1)
apt-get source -q --tar-only "rdma-core=$version"
mkdir rdma-core
tar xf rdma-core_*.orig.tar.* -C rdma-core --strip-components=1
rm rdma-core_*
mkdir rdma-core/build
cd rdma-core/build
cmake -G Ninja -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 -DCMAKE_BUILD_TYPE=Release .. > configure.log 2>&1 ||
	{ tail -n 40 configure.log; exit 1; }
test -e include/infiniband/driver.h
END
# Places that the lab and virtme mount on.
mkdir -p "$1/lib/modules" "$1/work"
rm -rf "$1/var/cache/apt/archives/"*.deb
