# SPDX-License-Identifier: BSD-2-Clause
"""The lab's root: a Debian trixie directory with QEMU, a kernel, rdma-core and compilers in it.

It is named by a hash of its definition (the package list, the two hooks, this file's list below), made
under another name and renamed when it is whole, so that a root that exists is a root that works. Nothing
ever writes into it again: what a run adds lies in an overlay (room.py).
"""

import hashlib
import os
import pathlib
import shutil

from . import host, lock, room, say

HERE = pathlib.Path(__file__).parent
SUITE = "trixie"
FORMAT = "1"  # to be raised when what this file does to a root changes


def packages():
    lines = (HERE / "root_packages.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def key():
    digest = hashlib.sha256(f"{FORMAT} {SUITE} {packages()}".encode())
    for name in ("root_setup.sh", "root_customize.sh"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def roots_dir():
    return host.cache_dir() / "roots"


def path():
    return roots_dir() / key()


def ensure():
    """Returns the root, and makes it first where there is none."""
    root = path()
    if root.is_dir():
        return root
    logs = host.cache_dir() / "logs"
    with lock.held(roots_dir() / f"{key()}.lock", "making the root"):
        if root.is_dir():
            return root
        host.install_missing(logs / "host-packages.log")
        for leftover in roots_dir().glob(f"{key()}.part*"):
            remove(leftover)
        make(root, logs / f"root-{key()}.log")
    return root


def make(root, log):
    part = root.with_name(f"{root.name}.part{os.getpid()}")
    argv = ["mmdebstrap", "--mode=root", "--variant=apt", "--architectures=amd64",
            f"--include={','.join(packages())}",
            "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"",
            *(f"--aptopt={option}" for option in host.apt_options()),
            f"--setup-hook=sh {HERE}/root_setup.sh \"$1\"",
            f"--customize-hook=sh {HERE}/root_customize.sh \"$1\"",
            SUITE, str(part)]
    mirror = host.debian_mirror()
    if mirror:
        argv.append(mirror)
    try:
        with say.step(f"making a Debian {SUITE} root with {len(packages())} packages and what they need "
                      f"(once; some minutes)"):
            say.run_logged(room.isolated(argv), log, "making the root")
        part.rename(root)
    finally:
        if part.exists():
            remove(part)


def remove(directory):
    """Removes a root, but never what somebody has mounted in it."""
    prefix = str(directory) + "/"
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file]
    busy = [mount for mount in mounts if mount.startswith(prefix)]
    if busy:
        raise say.LabError(f"{busy[0]} is mounted: unmount it, then try again")
    shutil.rmtree(directory)


def kernel_version(root):
    """The version of the stock kernel in the root."""
    versions = sorted(p.name for p in (root / "usr/lib/modules").iterdir() if (p / "build").is_symlink())
    if not versions:
        raise say.LabError(f"the root {root} has no kernel with headers; remove it with `lab clean --all`")
    return versions[-1]
