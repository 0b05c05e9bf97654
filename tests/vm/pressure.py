#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Memory is short: a process takes all of it until the kernel ends it, and then another one does.

Meanwhile objects of every kind are made and unmade, and thousands of one kind, and windows carry traffic. Each program
succeeds, or says that there is no memory, or is ended by the kernel too, which does that where the first process to be
ended does not give its memory back at once. When there is memory again, the devices hold what they held before, and work.

  pressure.py
  pressure.py hog     the process that takes memory: until it is killed
"""

import collections
import contextlib
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import time

import guest
from lifecycle import two, works

SECONDS = 10
LITTLE = 16 << 20    # from here on it takes its time
CHUNK = 2 << 20
PAUSE = 0.1          # seconds between chunks then
NO_MEMORY = "Cannot allocate memory"


def available():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise AssertionError("the kernel does not say how much memory is available")


def counted(what):
    """The sum of the kernel's counters of memory whose names begin so."""
    with open("/proc/vmstat") as file:
        return sum(int(number) for name, number in map(str.split, file) if name.startswith(what))


def stalls():
    """How often somebody had to free memory before he got some."""
    return counted("allocstall")


def end_gladly(score, process="self"):
    """How gladly the kernel ends a process, and those that it starts from now on, when it has to end one: from -1000,
    which is never, to 1000. Returns what it was."""
    path = pathlib.Path(f"/proc/{process}/oom_score_adj")
    before = path.read_text().strip()
    path.write_text(str(score))
    return before


def forebears():
    """The processes that wait for this one, but for the first of all, which is never ended."""
    process = os.getppid()
    while process > 1:
        yield process
        # The name, in parentheses, may have any byte in it.
        process = int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def spared(processes):
    """Meanwhile the kernel ends none of them."""
    before = {process: end_gladly(-1000, process) for process in processes}
    try:
        yield
    finally:
        for process, score in before.items():
            end_gladly(score, process)


def hog():
    end_gladly(1000)
    chunks, told = [], False
    while True:
        if available() < LITTLE:
            if not told:
                print("short", flush=True)
                told = True
            time.sleep(PAUSE)
        # Of private memory, as the kernel frees shared memory only when the process has gone, and ends another meanwhile.
        chunks.append(mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        chunks[-1].write(b"\x55" * CHUNK)


class Shortage:
    """A hog, and another one when the kernel has ended it."""

    def __init__(self):
        self.ended = -1
        self.start()

    def start(self):
        self.ended += 1
        self.process = subprocess.Popen([sys.executable, __file__, "hog"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() in ("short\n", ""), "the hog says that memory is short, or has been ended"

    def keep_up(self):
        if self.process.poll() is not None:
            self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()


def programs():
    one, other = two()
    built = guest.BUILD / "plain/tests/vm"
    return {"windows": ([built / "windows", one.device, one.gid_index, other.device, other.gid_index], None),
            "cycles": ([built / "cycles", one.device, one.gid_index], "2\n"),
            "many queue pairs": ([built / "many_qps", one.device, 2000], None)}


def main():
    with spared([os.getpid(), *forebears()]):
        return under_pressure()


def under_pressure():
    before, tally = guest.device_holds(), collections.Counter()
    commands = {name: ([str(word) for word in command], said) for name, (command, said) in programs().items()}
    failed = 0
    shortage, at_first = Shortage(), stalls()
    try:
        end = time.monotonic() + SECONDS * guest.PATIENCE
        while time.monotonic() < end:
            for name, (command, said) in commands.items():
                shortage.keep_up()
                ended_before = counted("oom_kill")
                done = subprocess.run(["choom", "-n", "0", "--", *command], input=said or "", stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120 * guest.PATIENCE)
                if done.returncode == 0:
                    tally[name] += 1
                elif done.returncode == -signal.SIGKILL and counted("oom_kill") > ended_before:
                    tally[f"{name}, ended"] += 1
                elif NO_MEMORY in done.stdout:
                    tally[f"{name}, for want of memory not"] += 1
                else:
                    raise AssertionError(f"{name}: status {done.returncode}, {done.stdout[-2000:]}")
        assert stalls() > at_first or shortage.ended or len(tally) > len(commands), "memory was never short"
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"FAIL: {error}", flush=True)
        failed = 1
    finally:
        shortage.stop()
    try:
        guest.settle(lambda: guest.device_holds() == before, f"the devices hold {before}, not {guest.device_holds()},")
        works()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"FAIL: {error}", flush=True)
        failed = 1
    print(f"while memory was short: {dict(tally)}; {stalls() - at_first} times an allocation had to wait, "
          f"{shortage.ended} times a hog was ended", flush=True)
    guest.record("memory pressure", 1 - failed, failed)
    return failed


if __name__ == "__main__":
    sys.exit(hog() if sys.argv[1:] == ["hog"] else main())
