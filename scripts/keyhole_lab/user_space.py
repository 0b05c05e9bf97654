# SPDX-License-Identifier: BSD-2-Clause
"""What a guest sees: the lab's own root, or Debian 12's, in which the same sources are built once more.

The device and QEMU run in the lab's root in either case (Debian 12's QEMU knows no vfio-user), and the kernel
comes from outside. So with Debian 12's root the guest sees another room, laid out for it as that for the VM is.
"""

import contextlib
import shutil

from . import build, checkout, root, vm
from .room import Inner

VARIANT = "bookworm/plain"
BUILDS = "bookworm"     # where in the builds' directory a guest finds its plain build


@contextlib.contextmanager
def session(context, machine, name, definition=root.LAB):
    """A VM that is ready to start. `context` has new_room and prepare."""
    if definition is root.LAB:
        with context.new_room(machine.kernel.shown) as place:
            context.prepare(place, machine)
            yield vm.Session(place, machine, name)
        return
    with context.new_room(machine.kernel.guest, definition) as seen, \
            context.new_room([*machine.kernel.shown, Inner(seen, vm.INNER)]) as place:
        context.prepare(place, machine)
        with build.build_lock():
            build.native(seen, VARIANT, tests=False)
            build.install_into_layer(seen, VARIANT)
        shutil.copytree(place.layer / "usr/lib/keyhole", seen.layer / "usr/lib/keyhole")
        yield vm.Session(place, machine, name, seen, checkout.build_dir() / BUILDS)
