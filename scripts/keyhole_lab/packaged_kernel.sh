#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Makes two layers with a kernel of another suite of Debian's, to be laid over the root: packaged_kernel.sh DIRECTORY SUITE
#
# In them is what apt would install here for that suite's linux-image-amd64 and linux-headers-amd64: the kernel and its
# modules in DIRECTORY/system; its headers, and the compiler that they name where the root has none, in
# DIRECTORY/tools. Nothing is installed; what user space is built from (linux-libc-dev) and works with stays the root's.
set -eu
directory=$1
suite=$2
apt=$(mktemp -d)
system=$directory/system
tools=$directory/tools
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$system" "$tools"

sed -n 's/^deb \(\(\[[^]]*\] \)\{0,1\}[^ ]* \)trixie main.*/\1/p' /etc/apt/sources.list | head -n 1 > "$apt/mirror"
for name in trixie trixie-backports "$suite"; do
	sed "s/.*/deb &$name main/" "$apt/mirror"
done | sort -u > "$apt/sources.list"
cat > "$apt/apt.conf" <<END_OF_CONF
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt";
APT::Sandbox::User "root";
END_OF_CONF
export APT_CONFIG="$apt/apt.conf"
apt-get -q update
# By the suite's name behind each package: with -t alone apt would keep a newer one that the root has.
apt-get -q -y install --download-only --allow-downgrades "linux-image-amd64/$suite" "linux-headers-amd64/$suite"
rm -f "$apt"/archives/linux-libc-dev_* "$apt"/archives/linux-base_*

for package in "$apt"/archives/*.deb; do
	name=$(basename "$package")
	case $name in
	linux-image-* | linux-modules-* | linux-binary-* | linux-base-*) layer=$system ;;
	*) layer=$tools ;;
	esac
	dpkg-deb --fsys-tarfile "$package" |
		tar -x -C "$layer" --exclude=./usr/share --exclude=./etc --exclude=./var
	echo "$name" >> "$directory/packages"
done
# Older packages have files in /lib itself, which is a link in the root and must stay one.
for folder in "$system/lib" "$tools/lib"; do
	if [ -d "$folder" ]; then
		mkdir -p "${folder%/lib}/usr/lib"
		cp -al "$folder/." "${folder%/lib}/usr/lib/"
		rm -r "$folder"
	fi
done

version=$(ls "$system/usr/lib/modules")
# Newer ones have the image among the modules, from where an installation copies it.
if [ ! -e "$system/boot/vmlinuz-$version" ]; then
	mkdir -p "$system/boot"
	ln "$system/usr/lib/modules/$version/vmlinuz" "$system/boot/vmlinuz-$version"
fi
test -e "$tools/usr/src/linux-headers-$version/Makefile"
test -L "$tools/usr/lib/modules/$version/build" || test -L "$system/usr/lib/modules/$version/build"
ln -s usr/lib "$system/lib"
depmod -b "$system" "$version"
rm "$system/lib"
echo "$version" > "$directory/version"
