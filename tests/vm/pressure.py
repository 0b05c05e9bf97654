#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Memory is short: a process takes all of it until the kernel ends it, and then another one does.

Meanwhile objects of every kind are made and unmade, and thousands of one kind, and windows carry traffic. Each program
succeeds or says that there is no memory; when there is some again, the devices hold what they held before, and work.

  pressure.py
  pressure.py hog     the process that takes memory: until it is killed
"""

import collections
import mmap
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


def stalls():
    """How often somebody had to free memory before he got some."""
    with open("/proc/vmstat") as file:
        return sum(int(number) for name, number in map(str.split, file) if name.startswith("allocstall"))


def end_me(score):
    """How gladly the kernel ends this process, and those that it starts, when it has to end one: -1000 to 1000."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def hog():
    end_me(1000)
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
    end_me(-500)
    before, tally = guest.device_holds(), collections.Counter()
    commands = {name: ([str(word) for word in command], said) for name, (command, said) in programs().items()}
    failed = 0
    shortage, at_first = Shortage(), stalls()
    try:
        end = time.monotonic() + SECONDS * guest.PATIENCE
        while time.monotonic() < end:
            for name, (command, said) in commands.items():
                shortage.keep_up()
                done = subprocess.run(command, input=said or "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      errors="replace", timeout=120 * guest.PATIENCE)
                if done.returncode == 0:
                    tally[name] += 1
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
