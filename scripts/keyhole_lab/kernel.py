# SPDX-License-Identifier: BSD-2-Clause
"""The kernels that a VM of the lab may boot.

`stock` is Debian's, as its package installs it. `debug` is built here from Debian's source of the same
version, small (debug-kernel.config says what is in it) and full of checks. `6.1` and `backports` are Debian's own
of another suite: the oldest that the module is for, and the newest there is. They boot as the stock one does, from a
layer over the root (packaged_kernel.sh). Like the root, each directory here is named by a hash of what went into
it, made apart and renamed when whole.
"""

import dataclasses
import hashlib
import os
import pathlib
import shutil

from . import host, lock, root as roots, say
from .room import Laid, Shown

HERE = pathlib.Path(__file__).parent
CONFIG = HERE / "debug-kernel.config"
PACKAGING = HERE / "packaged_kernel.sh"
SUITES = {"6.1": "bookworm", "backports": "trixie-backports"}
NAMES = ("stock", "debug", *SUITES)


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str          # of NAMES
    title: str         # for people
    image: str         # as the room sees it
    build: str         # what `make -C` takes for modules
    shown: tuple = ()  # what a room must show for it
    guest: tuple = ()  # and a guest whose root is not the room's

    @property
    def modular(self):
        """Whether it has modules in the room; the debug kernel has all built in."""
        return self.name != "debug"


def named(name, root, new_room):
    """A kernel by its name. `new_room(shown)` makes a room, to make the kernel in where it is not there yet."""
    if name == "stock":
        return stock(root)
    return debug(root, new_room) if name == "debug" else packaged(name, root, new_room)


def stock(root):
    version = roots.kernel_version(root)
    return Kernel("stock", f"Debian's {version}", f"/boot/vmlinuz-{version}", f"/lib/modules/{version}/build")


def debug_dir(root):
    digest = hashlib.sha256(CONFIG.read_bytes() + root.name.encode())
    return host.cache_dir() / "kernels" / f"debug-{digest.hexdigest()[:16]}"


def debug(root, new_room):
    """The debug kernel; builds it where there is none."""
    directory = debug_dir(root)
    ensure(directory, "building the debug kernel", "several minutes", new_room,
           ["sh", "-eu", HERE / "debug_kernel.sh", directory, CONFIG, str(host.cpus())])
    return Kernel("debug", "the debug kernel", f"{directory}/bzImage", f"{directory}/build", (Shown(directory, writable=False),))


def packaged_dir(name, root):
    digest = hashlib.sha256(PACKAGING.read_bytes() + f"{SUITES[name]} {root.name}".encode())
    return host.cache_dir() / "kernels" / f"{name}-{digest.hexdigest()[:16]}"


def packaged(name, root, new_room):
    """Debian's kernel of another suite, as it was when it was gotten."""
    directory = packaged_dir(name, root)
    ensure(directory, f"getting the kernel of {SUITES[name]}", "a minute", new_room,
           ["sh", "-eu", PACKAGING, directory, SUITES[name]])
    version = (directory / "version").read_text().strip()
    return Kernel(name, f"Debian's {version}", f"/boot/vmlinuz-{version}", f"/lib/modules/{version}/build",
                  (Laid(directory / "tools"), Laid(directory / "system")), (Laid(directory / "system"),))


def ensure(directory, what, time, new_room, command):
    """Makes a kernel's directory where there is none."""
    if directory.is_dir():
        return
    with lock.held(directory.with_name(f"{directory.name}.lock"), what):
        if not directory.is_dir():
            make(directory, what, time, new_room, command)


def make(directory, what, time, new_room, command):
    part = directory.with_name(f"{directory.name}.part")
    if part.exists():
        shutil.rmtree(part)
    part.mkdir(parents=True)
    # A build records where it lies, so it must lie there from the start: the room makes it so.
    log = host.cache_dir() / "logs" / f"{directory.name}.log"
    try:
        with new_room([Shown(part, str(directory)), Shown(HERE)]) as place, say.step(f"{what} (once; {time})"):
            place.run_logged(command, log, what)
        os.rename(part, directory)
    finally:
        if part.exists():
            shutil.rmtree(part)
