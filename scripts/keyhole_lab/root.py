# SPDX-License-Identifier: BSD-2-Clause
"""The lab's root: a Debian trixie directory with QEMU, a kernel, rdma-core and compilers in it.

Beside it there may be a second one, of Debian 12, whose user space is tested in a VM and whose compiler and rdma-core
build the same sources.

A root is named by a hash of its definition (the package list, the two hooks, this file's list below), made
under another name and renamed when it is whole, so that a root that exists is a root that works. Nothing
ever writes into it again: what a run adds lies in an overlay (room.py).
"""

import dataclasses
import hashlib
import os
import pathlib
import shlex
import shutil

from . import host, lock, room, say

HERE = pathlib.Path(__file__).parent
FORMAT = "1"  # to be raised when what this file does to a root changes


@dataclasses.dataclass(frozen=True)
class Definition:
    suite: str
    list: str           # of its packages
    setup: str          # mmdebstrap's first hook
    customize: str = "root_customize.sh"


LAB = Definition("trixie", "root_packages.txt", "root_setup.sh")
BOOKWORM = Definition("bookworm", "bookworm_packages.txt", "bookworm_setup.sh", "bookworm_customize.sh")
NAMED = {definition.suite: definition for definition in (LAB, BOOKWORM)}


def packages(definition):
    lines = (HERE / definition.list).read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def key(definition=LAB):
    digest = hashlib.sha256(f"{FORMAT} {definition.suite} {packages(definition)}".encode())
    for name in (definition.setup, definition.customize):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def roots_dir():
    return host.cache_dir() / "roots"


def ensure(definition=LAB):
    """Returns a root, and makes it first where there is none."""
    name = key(definition)
    root = roots_dir() / name
    if root.is_dir():
        return root
    logs = host.cache_dir() / "logs"
    with lock.held(roots_dir() / f"{name}.lock", "making the root"):
        if root.is_dir():
            return root
        host.install_missing(logs / "host-packages.log")
        for leftover in roots_dir().glob(f"{name}.part*"):
            remove(leftover)
        make(definition, root, logs / f"root-{name}.log")
    return root


def make(definition, root, log):
    part = root.with_name(f"{root.name}.part{os.getpid()}")
    argv = ["mmdebstrap", "--mode=root", "--variant=apt", "--architectures=amd64",
            f"--include={','.join(packages(definition))}",
            "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\"",
            *(f"--aptopt={option}" for option in host.apt_options()),
            f"--setup-hook=sh {HERE}/{definition.setup} \"$1\"",
            f"--customize-hook=sh {HERE}/{definition.customize} \"$1\" {shlex.quote(str(host.cache_dir() / 'sources'))}",
            definition.suite, str(part)]
    mirror = host.debian_mirror()
    if mirror:
        argv.append(mirror)
    try:
        with say.step(f"making a Debian {definition.suite} root with {len(packages(definition))} packages and what they need "
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
