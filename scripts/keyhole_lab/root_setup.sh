#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# mmdebstrap's setup hook: $1 is the root that is about to be filled.
#
# Adds the backports (for QEMU, whose vfio-user client is newer than the release) and the sources to
# whatever mirror mmdebstrap was given or has chosen.
set -eu
list="$1/etc/apt/sources.list"
uri=$(sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) trixie main.*/\2/p' "$list" | head -n 1)
if [ -z "$uri" ]; then
	echo "no line for trixie main in $list:" >&2
	cat "$list" >&2
	exit 1
fi
options=$(sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) trixie main.*/\1/p' "$list" | head -n 1)
cat > "$1/etc/apt/sources.list.d/keyhole.list" <<END
deb $options$uri trixie-backports main
deb-src $options$uri trixie main
END
cat > "$1/etc/apt/preferences.d/keyhole" <<END
Package: src:qemu src:seabios
Pin: release n=trixie-backports
Pin-Priority: 900
END
