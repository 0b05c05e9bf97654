# SPDX-License-Identifier: BSD-2-Clause
"""The lab, told in the order in which things come into being.

host   what the machine must have, and where its Debian mirror is
root   a Debian root directory, made once, read-only ever after; and a second one, of Debian 12
room   a process tree that sees that root, the checkout and nothing of the host's programs
build  native builds, the kernel module, the layer that an installation makes
kernel which kernel a VM boots: the debug kernel, those of other suites
user_space what a guest sees: the lab's root, or Debian 12's
vm     keyholed and QEMU, started and ended together; requests: what a guest may ask of the lab
suites what `lab test` runs and how it is counted; splats: what counts as a kernel's complaint
analysis  the programs that only read the sources
fuzz   how the fuzzers are run; coverage: which lines of the module the debug kernel's tests reach
bench  what `lab bench` runs
"""
