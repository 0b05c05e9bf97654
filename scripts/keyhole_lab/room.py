# SPDX-License-Identifier: BSD-2-Clause
"""A room: a process tree that sees the lab's root, the checkout, and nothing else that was there before.

A room is an overlay mount of read-only directories, the root and above it a *layer* of this run's own
(an installation of what was built, and empty directories to mount on), in a mount and process namespace
of its own. Between the two there may be more: another kernel, say. So:

- programs in it find what `cmake --install` would have given a real system, in the real places;
- nothing can dirty the root that other runs share;
- when the first process of the room is gone, for whatever reason, the kernel ends all others and undoes
  all mounts: nothing is left behind even if the lab itself is killed.

The last point rests on two parent-death signals: setpriv's, from the lab to unshare, and unshare's
--kill-child, from there to the room's first process.
"""

import dataclasses
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from . import host, lock, say

TMPFS = ("/tmp", "/run", "/var/tmp", "/root", "/dev/shm")
PRIVATE = "/run/keyhole"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def isolated(argv):
    """argv, run so that neither a process nor a mount of it outlives the lab."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
            "--propagation", "private", "--mount-proc", *argv]


@dataclasses.dataclass(frozen=True)
class Shown:
    """A host directory that a room shows."""
    host: pathlib.Path
    at: str | None = None   # its path in the room; its own where None
    writable: bool = True

    def target(self):
        return self.at or str(self.host.resolve())


@dataclasses.dataclass(frozen=True)
class Laid:
    """A host directory that lies over the root, file by file, and under the run's own layer."""
    host: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Inner:
    """Another root, as another room has it, at a path in this one: for a guest that is to see that."""
    room: object
    at: str


class Room:
    """A context: makes the run's directory, and removes it at the end.

    `directory` is the run's private directory on the host; the room shows it as /run/keyhole.
    """

    def __init__(self, root, shown=()):
        self.root = root
        self.laid = [item.host for item in shown if isinstance(item, Laid)]
        self.inner = [item for item in shown if isinstance(item, Inner)]
        self.shown = [item for item in shown if isinstance(item, Shown)]
        self.processes = []

    def __enter__(self):
        runs = host.cache_dir() / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        with lock.held(host.cache_dir() / "runs.lock", "starting"):
            sweep(runs)
            self.base = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=runs))
            self.lock_fd = lock.try_hold(self.base / "lock")
        self.layer = self.base / "layer"
        self.mountpoint = self.base / "root"
        self.directory = self.base / "shared"
        for directory in (self.layer, self.mountpoint, self.directory):
            directory.mkdir()
        self.shown.append(Shown(self.directory, PRIVATE))
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.base, ignore_errors=True)
        os.close(self.lock_fd)

    def argv(self, command, cwd="/", environment=None):
        """The host command line that runs `command` (a list) in the room."""
        for item in self.shown:
            (self.layer / item.target().lstrip("/")).mkdir(parents=True, exist_ok=True)
        for item in self.inner:
            (self.layer / item.at.lstrip("/")).mkdir(parents=True, exist_ok=True)
        new = shlex.quote(str(self.mountpoint))
        script = [f"mount -t overlay -o {self.lower()} keyhole {new}",
                  *(f"mount -t overlay -o {item.room.lower()} keyhole {new}{item.at}" for item in self.inner),
                  f"mount -t proc proc {new}/proc",
                  f"mount --rbind /sys {new}/sys",
                  f"mount --rbind /dev {new}/dev"]
        script += [f"mount -t tmpfs -o mode=1777 tmpfs {new}{place}" for place in TMPFS]
        for item in self.shown:
            target = shlex.quote(f"{self.mountpoint}{item.target()}")
            script.append(f"mkdir -p {target}")
            script.append(f"mount --bind {shlex.quote(str(item.host))} {target}")
            if not item.writable:
                script.append(f"mount -o remount,ro,bind {target}")
        variables = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TERM": os.environ.get("TERM", "dumb"),
                     **(environment or {})}
        settings = " ".join(shlex.quote(f"{k}={v}") for k, v in variables.items())
        # The shell stays the room's first process: as such it would ignore signals that it has no
        # handler for, and the command should not inherit that.
        script.append(f"chroot {new} /usr/bin/env -i {settings} "
                      f"sh -c 'cd \"$0\" && exec \"$@\"' {shlex.quote(str(cwd))} \"$@\" || exit $?")
        script.append("exit 0")
        return isolated(["sh", "-euc", "\n".join(script), "sh", *map(str, command)])

    def lower(self):
        """What the overlay is made of, as a word for the shell."""
        return shlex.quote("lowerdir=" + ":".join(map(str, [self.layer, *self.laid, self.root])))

    def run(self, command, cwd="/", environment=None, **popen):
        """Runs a command to its end, sharing the lab's terminal; returns its status."""
        return self.start(command, cwd, environment, **popen).wait()

    def start(self, command, cwd="/", environment=None, **popen):
        process = subprocess.Popen(self.argv(command, cwd, environment), **popen)
        self.processes.append(process)
        return process

    def run_logged(self, command, log, what, cwd="/", environment=None, **options):
        say.run_logged(self.argv(command, cwd, environment), log, what, title=command, **options)


def sweep(runs):
    """Removes the directories of runs that were killed: nobody holds their locks."""
    for run in runs.iterdir():
        fd = lock.try_hold(run / "lock")
        if fd is not None:
            shutil.rmtree(run, ignore_errors=True)
            os.close(fd)
