# SPDX-License-Identifier: BSD-2-Clause
"""Suites that run side by side.

A VM without KVM keeps little more than one core busy, and two cores are what there is at least. So two suites that boot
one run at a time. Each is a `lab test` of its own: nothing is shared but the cache, whose locks are made for that. What
it says goes to a log, and is shown in one piece when it ends.
"""

import contextlib
import json
import re
import subprocess
import tempfile
import time

from . import checkout, say

AT_ONCE = 2
MEMORY_KB = 6 << 20     # that must be free for two VMs and what they build


def at_once():
    with open("/proc/meminfo") as file:
        free = int(re.search(r"^MemAvailable:\s+(\d+)", file.read(), re.M)[1])
    return AT_ONCE if free >= MEMORY_KB else 1


@contextlib.contextmanager
def running(name, words, counts):
    """A `lab test` of one suite: its process, and the log it writes. Nothing of it is left behind."""
    log = checkout.log(f"suite-{name}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        process = subprocess.Popen([checkout.TOP / "scripts/lab", "test", *words, "--counts", counts, name],
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its VM and its room, and then itself
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(names, words):
    """Runs the suites, and yields the name, the counts as dictionaries, and the seconds of each that has ended.

    The counts are None where a suite ended without any. The longest is begun first: those on the debug kernel.
    """
    waiting = sorted(names, key=lambda name: "debug" not in name)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="keyhole-counts-"))
        now = {}
        while waiting or now:
            while waiting and len(now) < at_once():
                name = waiting.pop(0)
                counts = f"{directory}/{name}"
                process, log = stack.enter_context(running(name, words, counts))
                now[name] = process, log, counts, time.monotonic()
                say.note(f"{name}: begun; its output is in {log}")
            time.sleep(0.5)
            for name, (process, log, counts, start) in list(now.items()):
                if process.poll() is None:
                    continue
                del now[name]
                seconds = time.monotonic() - start
                print(f"---- {name}: ended after {say.seconds(seconds)}\n{log.read_text(errors='replace')}", flush=True)
                try:
                    with open(counts) as file:
                        yield name, json.load(file), seconds
                except (OSError, ValueError):
                    yield name, None, seconds
