#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The data path makes no system call, as strace sees it.

Our own program frames what it does there with two calls of getppid(2), which nothing else makes: between
them no call of its thread may appear. It posts and polls in every way there is (provider/quiet.cc).

A program that nobody here wrote has no such frame. There the number of requests tells: a run of twenty times
as many makes the same system calls, one by one, but for a few by which it gets memory for its own tables, and
those that it makes where it doubts the processor's frequency: it measures that by the time of day, and
prints a line. perftest's two sides each run below an strace of their own, and both are counted.
"""

import collections
import pathlib
import re
import sys
import tempfile

import guest

OURS = guest.BUILD / "plain/tests/vm/provider/provider_vm_test"
FEW, MANY = 200, 4000
FEW_MORE = {"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "write"}
ITS_OWN = {"gettimeofday"}


def calls(trace):
    """The names of a trace's system calls, in order; the second half of one that was interrupted is none."""
    return re.findall(r"^(?:\d+ +)?(\w+)\(", trace, re.M)


def between(names, mark):
    """What lies between the first and the last `mark`; None if there are not two of them."""
    found = [i for i, name in enumerate(names) if name == mark]
    return names[found[0] + 1:found[-1]] if len(found) == 2 else None


def our_program(directory):
    one, two = guest.adapters(wanted=2)
    trace = directory / "ours"
    outcome = guest.run(["strace", "-f", "-o", str(trace), str(OURS), one.device, str(one.gid_index), two.device,
                         str(two.gid_index), "quiet"], timeout=240)
    assert outcome.passed, f"the program failed:\n{outcome.text}"
    names = calls(trace.read_text())
    inside = between(names, "getppid")
    assert inside is not None, f"the trace of {len(names)} calls is not framed"
    assert not inside, f"{len(inside)} system calls between the first request and the last: {inside[:20]}"
    return f"0 calls among the requests, {len(names)} around them"


def counted(directory, name, count, port):
    """How often each system call is made by the two sides of a run of `count` requests."""
    one, two = guest.adapters(wanted=2)
    sides = {"server": two, "client": one}
    words = {side: ["strace", "-f", "-o", str(directory / f"{name}-{count}-{side}"), name, "-F", "-s", "64", "-n", str(count),
                    "-p", str(port), "-d", adapter.device, "-x", str(adapter.gid_index)]
             for side, adapter in sides.items()}
    outcome = guest.pair(two, one, words["server"], [*words["client"], "127.0.0.1"], port=port, timeout=120)
    assert outcome.passed, f"{name} of {count} failed:\n{outcome.text}"
    return {side: collections.Counter(calls(pathlib.Path(words[side][3]).read_text())) for side in sides}


def perftest(name, port):
    def check(directory):
        few, many = counted(directory, name, FEW, port), counted(directory, name, MANY, port + 1)
        for side in few:
            more = {call: (few[side][call], many[side][call]) for call in few[side] | many[side]
                    if few[side][call] != many[side][call] and call not in FEW_MORE | ITS_OWN}
            assert not more, f"the {side}'s calls with {FEW} requests and with {MANY}: {more}"
            memory, memory_of_many = (sum(of[side][call] for call in FEW_MORE) for of in (few, many))
            assert abs(memory_of_many - memory) < 20, f"the {side} gets memory or writes {memory} and {memory_of_many} times"
        return ", ".join(f"{side} {few[side].total()} calls with {FEW} requests, {many[side].total()} with {MANY}"
                         for side in few)
    return check


CHECKS = {"every kind of request and poll": our_program,
          "ib_write_bw": perftest("ib_write_bw", 18650),
          "ib_send_bw": perftest("ib_send_bw", 18652)}


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for name, check in CHECKS.items():
            try:
                said = check(pathlib.Path(directory))
            except (AssertionError, OSError) as error:
                said = f"FAIL: {error}"
                failed += 1
            print(f"no system calls: {name}: {said}", flush=True)
    guest.record("no system calls", len(CHECKS) - failed, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
