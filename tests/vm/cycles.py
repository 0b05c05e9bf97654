#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Objects of every kind are made and unmade KEYHOLE_CYCLES times, and what the kernel and the device hold is as before.

The device counts its objects itself, and the kernel's tracker those that verbs know. What else the kernel
keeps is in its slabs, whose counts breathe: other work goes on, and what was freed is given back late. So the
cycles are made twice: memory that is lost in each of them makes a cache grow by one object a cycle, both times. A
kernel that has kmemleak keeps freed objects back for KASAN's sake, and names what is lost: it is not counted there.
"""

import pathlib
import subprocess
import sys
import time

import guest

PROGRAM = guest.BUILD / "plain/tests/vm/cycles"
WARM_UP = 5
BACKGROUND = 20  # objects that a cache may grow by at any time
TRIES = 4  # a busy machine may be late with what was freed more than once


def give_back():
    """Has the kernel free what waits for it, as far as it can be asked to."""
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")  # the batches of kfree_rcu()
    pathlib.Path("/sys/module/rcutree/parameters/do_rcu_barrier").write_text("1")
    for shrink in pathlib.Path("/sys/kernel/slab").glob("*/shrink"):
        if not shrink.parent.is_symlink():
            shrink.write_text("1")


def slabs():
    """Objects in each cache, after what can be given back was."""
    counts = []
    for _ in range(3):
        give_back()
        lines = pathlib.Path("/proc/slabinfo").read_text().splitlines()[2:]
        counts.append({fields[0]: int(fields[1]) for fields in map(str.split, lines)})
        time.sleep(0.1)
    return {name: min(count.get(name, 0) for count in counts) for name in counts[-1]}


class Cycles:
    def __init__(self, adapter):
        self.process = subprocess.Popen([str(PROGRAM), adapter.device, str(adapter.gid_index)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def make(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert said == "done\n", f"the program said {said + self.process.stdout.read()!r}"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0, f"the program ended with status {self.process.returncode}"


def grown(before, after):
    return {name: after[name] - before.get(name, 0) for name in after if after[name] - before.get(name, 0) > BACKGROUND}


def no_object_stays(adapter):
    before = guest.device_holds()
    cycles = Cycles(adapter)
    cycles.make(WARM_UP)
    held = guest.device_holds()
    cycles.make(guest.CYCLES)
    now = guest.device_holds()
    assert now == held, f"the devices hold {now} after {guest.CYCLES} cycles, not {held}"
    cycles.end()
    guest.settle(lambda: guest.device_holds() == before, f"the devices hold what they held before ({before})")


def lost(cycles):
    """Caches that grow by an object a cycle, twice, and by how many objects each time."""
    counts = [slabs()]
    for _ in range(2):
        cycles.make(guest.CYCLES)
        counts.append(slabs())
    once, twice = grown(counts[0], counts[1]), grown(counts[1], counts[2])
    return {name: (once[name], twice[name]) for name in once.keys() & twice.keys()
            if min(once[name], twice[name]) >= 0.9 * guest.CYCLES}


def no_memory_stays(adapter):
    if pathlib.Path("/sys/kernel/debug/kmemleak").exists():
        return
    cycles = Cycles(adapter)
    cycles.make(WARM_UP)
    always = all(grows := lost(cycles) for _ in range(TRIES))  # the first that finds nothing is the last
    cycles.end()
    assert not always, f"caches grow by an object a cycle, {guest.CYCLES} cycles each time, {TRIES} times: {grows}"


TESTS = [no_object_stays, no_memory_stays]


def main():
    adapter, failed = guest.adapters(wanted=2)[0], 0
    for test in TESTS:
        try:
            test(adapter)
            verdict = "ok"
        except (AssertionError, OSError) as error:
            verdict = f"FAIL: {error}"
            failed += 1
        print(f"{test.__name__.replace('_', ' ')} after {guest.CYCLES} cycles: {verdict}", flush=True)
    guest.record("cycles", len(TESTS) - failed, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
