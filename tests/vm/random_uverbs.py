#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A hostile process at uverbs, for KEYHOLE_FUZZ_SECONDS: what it may not do is hurt anyone else.

It ends by itself and is killed, in turn. Afterwards the devices hold what they held before and carry traffic as
before; whether the kernel took harm is in its log. KEYHOLE_SEED repeats what each thread sends.
"""

import random
import subprocess
import sys
import time

import guest
from lifecycle import works

PROGRAM = guest.BUILD / "plain/tests/vm/random_uverbs"


def it_leaves_nothing_when_it_ends(device, seconds):
    before = guest.device_holds()
    outcome = guest.run([str(PROGRAM), device, str(seconds), str(guest.SEED)], timeout=seconds + 60)
    print("\n".join(f"    {line}" for line in outcome.text.splitlines()), flush=True)
    assert outcome.passed, "the process failed"
    guest.settle(lambda: guest.device_holds() == before, f"the devices hold what they held before ({before})")
    works()


def it_leaves_nothing_when_it_is_killed(device, seconds):
    before, random_, end = guest.device_holds(), random.Random(guest.SEED), time.monotonic() + seconds
    kills = 0
    while kills == 0 or time.monotonic() < end:
        process = subprocess.Popen([str(PROGRAM), device, "1000", str(guest.SEED + kills)], stdout=subprocess.DEVNULL)
        time.sleep(random_.uniform(0.2, 1) * guest.PATIENCE)
        assert process.poll() is None, f"the process ended by itself, status {process.returncode}"
        process.kill()
        process.wait()
        kills += 1
    guest.settle(lambda: guest.device_holds() == before,
                 f"the devices hold {before} after {kills} kills, not {guest.device_holds()},")
    works()


TESTS = {it_leaves_nothing_when_it_ends: 0.75, it_leaves_nothing_when_it_is_killed: 0.25}


def main():
    print(f"seed {guest.SEED}", flush=True)
    device, failed = guest.adapters(wanted=2)[0].device, 0
    for test, share in TESTS.items():
        try:
            test(device, int(share * guest.FUZZ_SECONDS))
            verdict = "ok"
        except (AssertionError, OSError, TimeoutError, subprocess.SubprocessError) as error:
            verdict = f"FAIL: {error}"
            failed += 1
        print(f"{test.__name__.replace('_', ' ')}: {verdict}", flush=True)
    guest.record("hostile process", len(TESTS) - failed, failed, note=f"seed {guest.SEED}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
