#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# mmdebstrap's customize hook for the second root: $1 is the root, $2 a directory of the cache for what was gotten by hand.
#
# As root_customize.sh does, puts rdma-core's source, of the version that is installed, into /usr/src/rdma-core and
# configures it. Some mirrors of an old release have its packages and not its sources: then the release's archive,
# as rdma-core itself publishes it, may lie in $2.
set -eu
version=$(chroot "$1" dpkg-query -W -f '${source:Version}' libibverbs1)
archive=$2/rdma-core-${version%-*}.tar.gz
mkdir "$1/usr/src/rdma-core"
if [ -e "$archive" ]; then
	tar xzf "$archive" -C "$1/usr/src/rdma-core" --strip-components=1
else
	chroot "$1" sh -euc 'cd /usr/src && apt-get source -q --tar-only "rdma-core=$1" &&
		tar xf rdma-core_*.orig.tar.* -C rdma-core --strip-components=1 && rm rdma-core_*' sh "$version" || {
		echo "No source of rdma-core $version from this mirror: put rdma-core's own archive of it at $archive"
		exit 1
	}
fi
chroot "$1" sh -eu <<'END_OF_CONFIGURE'
mkdir /usr/src/rdma-core/build
cd /usr/src/rdma-core/build
cmake -G Ninja -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 -DCMAKE_BUILD_TYPE=Release .. > configure.log 2>&1 ||
	{ tail -n 40 configure.log; exit 1; }
test -e include/infiniband/driver.h
END_OF_CONFIGURE
# Places that the lab and virtme mount on.
mkdir -p "$1/lib/modules" "$1/work"
rm -rf "$1/var/cache/apt/archives/"*.deb
