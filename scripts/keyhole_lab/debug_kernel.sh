#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds the debug kernel: debug_kernel.sh DIRECTORY CONFIG JOBS
#
# Leaves in DIRECTORY the image, and `build`: as much of the tree as out-of-tree modules need.
set -eu
directory=$1 config=$2 jobs=$3
source=$directory/source
build=$directory/build

mkdir -p "$source" "$build"
tar xf /usr/src/linux-source-6.12.tar.* -C "$source" --strip-components=1
make -C "$source" O="$build" KCONFIG_ALLCONFIG="$config" allnoconfig > "$directory/config.log"

# An option whose dependencies are not met is dropped without a word: say the word.
lost=$(grep '^CONFIG_.*=y$' "$config" | grep -vxF -f "$build/.config" || true)
if [ -n "$lost" ]; then
	echo "the kernel does not take these options:" $lost >&2
	exit 1
fi

make -C "$build" -j "$jobs" bzImage modules
cp "$build/arch/x86/boot/bzImage" "$directory/bzImage"

# Objects and C files make most of the 2 GiB, and no module needs them.
find "$build" "$source" -type f \( -name '*.o' -o -name '*.a' -o -name '.*.cmd' \) \
	! -path '*/scripts/*' ! -path '*/tools/objtool/*' -delete
find "$source" -type f \( -name '*.c' -o -name '*.S' -o -name '*.rst' -o -name '*.dts*' -o -name '*.yaml' \) \
	! -path '*/scripts/*' ! -path '*/tools/*' ! -path '*/kernel/bounds.c' -delete
rm -rf "$source/Documentation" "$source/drivers/gpu" "$build/vmlinux" "$build/vmlinux.unstripped" \
	"$build/arch/x86/boot/compressed"
