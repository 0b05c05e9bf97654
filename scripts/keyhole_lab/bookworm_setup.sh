#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# mmdebstrap's setup hook for the second root: $1 is the root that is about to be filled. Adds the sources.
set -eu
sed -n 's/^deb \(.*bookworm main\).*/deb-src \1/p' "$1/etc/apt/sources.list" | head -n 1 > "$1/etc/apt/sources.list.d/keyhole.list"
[ -s "$1/etc/apt/sources.list.d/keyhole.list" ]
