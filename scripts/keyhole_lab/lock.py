# SPDX-License-Identifier: BSD-2-Clause
"""Locks between labs that run at the same time, by flock(2): a dead lab's lock is gone with it."""

import contextlib
import fcntl
import os

from . import say


@contextlib.contextmanager
def held(path, what):
    """Holds the lock file `path`; says so when another lab makes us wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say.note(f"another lab is {what}; waiting for it")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def try_hold(path):
    """Takes the lock and returns its descriptor, or None if somebody has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        os.close(fd)
        return None
