#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Leaves with the lab which lines of the module have run in this boot, where the kernel counts that (gcov).
# The kernel keeps the counts of a module that is gone.
from=/sys/kernel/debug/gcov
[ -d $from ] || exit 0
cd $from
# A file of debugfs has no size until it is read, which rules out most archivers; links to the notes are left.
mkdir -p /run/keyhole/gcov
find . -type f -name '*.gcda' -print0 | xargs -0 -r cp --parents -t /run/keyhole/gcov
