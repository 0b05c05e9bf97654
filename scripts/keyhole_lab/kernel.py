# SPDX-License-Identifier: BSD-2-Clause
"""The kernels that a VM of the lab may boot.

`stock` is Debian's, as its package installs it. `debug` is built here from Debian's source of the same
version, small (debug-kernel.config says what is in it) and full of checks; like the root it is named by a
hash of what went into it, made apart and renamed when whole.
"""

import dataclasses
import hashlib
import os
import pathlib
import shutil

from . import host, lock, root as roots, say
from .room import Shown

HERE = pathlib.Path(__file__).parent
CONFIG = HERE / "debug-kernel.config"


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str          # "stock" or "debug"
    title: str         # for people
    image: str         # as the room sees it
    build: str         # what `make -C` takes for modules
    shown: tuple = ()  # what a room must show for it


def stock(root):
    version = roots.kernel_version(root)
    return Kernel("stock", f"Debian's {version}", f"/boot/vmlinuz-{version}", f"/lib/modules/{version}/build")


def debug_dir(root):
    digest = hashlib.sha256(CONFIG.read_bytes() + root.name.encode())
    return host.cache_dir() / "kernels" / f"debug-{digest.hexdigest()[:16]}"


def debug(root, new_room):
    """The debug kernel; builds it where there is none. `new_room(shown)` makes a room to build in."""
    directory = debug_dir(root)
    if not directory.is_dir():
        with lock.held(directory.with_suffix(".lock"), "building the debug kernel"):
            if not directory.is_dir():
                make(directory, new_room)
    return Kernel("debug", "the debug kernel", f"{directory}/bzImage", f"{directory}/build", (Shown(directory, writable=False),))


def make(directory, new_room):
    part = directory.with_name(f"{directory.name}.part")
    if part.exists():
        shutil.rmtree(part)
    part.mkdir(parents=True)
    # The build records where it lies, so it must lie there from the start: the room makes it so.
    log = host.cache_dir() / "logs" / f"{directory.name}.log"
    try:
        with new_room([Shown(part, str(directory)), Shown(HERE)]) as place, say.step("building the debug kernel (once; several minutes)"):
            place.run_logged(["sh", "-eu", HERE / "debug_kernel.sh", directory, CONFIG, str(host.cpus())],
                             log, "building the debug kernel")
        os.rename(part, directory)
    finally:
        if part.exists():
            shutil.rmtree(part)
