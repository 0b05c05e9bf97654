#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Lets kmemleak look for memory that nothing points to any more, and puts what it finds into the
# kernel's log, where the lab looks. An object must be seen unreferenced for some seconds and by two
# scans, since a pointer may just have been in a register.
leaks=/sys/kernel/debug/kmemleak
[ -e $leaks ] || exit 0
echo scan > $leaks
sleep 6
echo scan > $leaks
if [ -s $leaks ]; then
	echo "keyhole-lab: kmemleak found:" > /dev/kmsg
	head -n 120 $leaks | while IFS= read -r line; do
		echo "keyhole-lab: $line" > /dev/kmsg
	done
fi
