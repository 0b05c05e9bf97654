#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The MKEY and KLM_LIST objects: what a process is told, and what is left when processes and the module go.

What is left is counted by the device itself, as keyholectl shows it. Memory that stayed pinned, or an object
that was lost, the debug kernel reports in its log.
"""

import os
import random
import subprocess
import sys
import time

import guest
from guest import SEED, device_holds, settle

PROGRAM = guest.BUILD / "plain/tests/vm/mkey_objects"


def mkeys():
    return sum(objects["mkeys"] for objects in device_holds())


def start_holding(device):
    return subprocess.Popen([str(PROGRAM), device, "hold"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def every_call_is_answered_as_documented():
    for adapter in guest.adapters(wanted=2):
        outcome = guest.run([str(PROGRAM), adapter.device], timeout=120)
        wrong = [line for line in outcome.text.splitlines() if not line.startswith("ok ")]
        print("\n".join(f"    {line}" for line in wrong), flush=True)
        assert outcome.passed, f"on {adapter.device}, see above"


def a_killed_process_leaves_no_mkey():
    device, random_ = guest.adapters()[0].device, random.Random(SEED)
    before = device_holds()
    holder = start_holding(device)
    try:
        said = holder.stdout.readline()
        assert said == "holding 600\n", f"the program said {said + (holder.stdout.read() if said else '')!r}"
        now = mkeys()
        assert now >= sum(o["mkeys"] for o in before) + 600, f"the device counts {now} mkeys"
    finally:
        holder.kill()
        holder.wait()
    settle(lambda: device_holds() == before, "the device holds what it held before a kill of 600 objects")
    for _ in range(guest.KILLS):  # and at any moment on the way there
        holder = start_holding(device)
        time.sleep(random_.uniform(0, 1) * guest.PATIENCE)
        holder.kill()
        holder.wait()
    settle(lambda: device_holds() == before, f"the device holds {before} after {guest.KILLS} kills, not {device_holds()},")


def the_module_goes_under_a_process_that_holds_them():
    holder = start_holding(guest.adapters()[0].device)
    try:
        assert holder.stdout.readline() == "holding 600\n", "the program holds its objects"
        done = guest.run(["rmmod", "keyhole"])
        assert done.passed, f"rmmod: {done.text}"
        assert not os.listdir("/sys/class/infiniband"), "devices are left after rmmod"
        assert holder.poll() is None, "the process ended by itself"
        assert mkeys() == 0, f"the device counts {mkeys()} mkeys without a driver"
    finally:
        holder.kill()
        holder.wait()
    done = guest.run(["sh", str(guest.GUEST_TOOLS / "bring_up.sh")])
    assert done.passed, f"bringing the adapters up: {done.text}"
    assert len(guest.adapters(wanted=2)) == 2, "both adapters are back"


TESTS = [every_call_is_answered_as_documented,
         a_killed_process_leaves_no_mkey,
         the_module_goes_under_a_process_that_holds_them]


def main():
    print(f"seed {SEED}", flush=True)
    failed = 0
    for test in TESTS:
        start = time.monotonic()
        try:
            test()
            verdict = "ok"
        except (AssertionError, OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
            verdict = f"FAIL: {error}"
            failed += 1
        print(f"{test.__name__.replace('_', ' ')}: {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    guest.record("mkey objects", len(TESTS) - failed, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
