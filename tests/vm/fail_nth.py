#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Each allocation of each verb fails once, on the debug kernel; after each verb the devices hold what they held before.

  fail_nth.py [--all] [ROW ...]

The program fail_nth walks; here it is counted what is left. Of verbs all allocations fail. Of the driver's own rows,
which have hundreds or thousands, so many are passed over after each that fails, and without --all those below which
the driver is not on the stack. ROW is part of a row's name.
"""

import os
import subprocess
import sys

import faults
import guest

PROGRAM = guest.BUILD / "plain/tests/vm/fail_nth"
# Steps of n where there are many allocations: the ring of the network device has hundreds that are all alike, and
# binding takes a second or two, most of it the core's.
STEPS = {"net device up": 25, "MTU": 50, "bind": 31, "unbind": 7}
STEPS_OF_ALL = {"net device up": 10, "MTU": 20, "bind": 7, "unbind": 3}


def walk(arguments, everywhere, rows):
    """Runs the program over its rows, counting between them; returns how many were right and how many wrong."""
    process = subprocess.Popen([str(PROGRAM), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    right = wrong = 0
    held = name = None
    for line in process.stdout:
        word, _, rest = line.strip().partition(" ")
        if word != "next":
            print(f"    {line.strip()}", flush=True)
            right += word == "ok"
            if word == "ok" and rest.lstrip().startswith("create ") and ": 0 failures" in rest:
                wrong += 1
                print("    WRONG  an object was made without any allocation that could fail", flush=True)
            wrong += word == "WRONG"
            continue
        holds = guest.device_holds()
        if held is not None and holds != held:
            wrong += 1
            print(f"    WRONG  after {name} the devices hold {holds}, not {held}", flush=True)
        held, name = holds, rest
        step = (STEPS_OF_ALL if everywhere else STEPS).get(name, 1)
        process.stdin.write(f"{step if not rows or any(r in name for r in rows) else 0}\n")
        process.stdin.flush()
    if process.wait() not in (0, 1) or name != "end":
        wrong += 1
        print(f"    WRONG  the program ended with status {process.returncode} in {name}", flush=True)
    return right, wrong


def main():
    everywhere, rows = "--all" in sys.argv[1:], [a for a in sys.argv[1:] if a != "--all"]
    one = guest.adapters(wanted=2)[0]
    pci = os.path.basename(os.path.realpath(f"/sys/class/infiniband/{one.device}/device"))
    on = [one.device, str(one.gid_index)]
    faults.set_up()
    counts = [walk([*on, "verbs"], everywhere, rows)]
    faults.set_up(everywhere)
    counts.append(walk([*on, "driver", pci, one.netdev], everywhere, rows))
    right, wrong = map(sum, zip(*counts))
    back = guest.run(["sh", str(guest.GUEST_TOOLS / "addresses.sh")])
    if not back.passed or len(guest.adapters(wanted=2)) != 2:
        wrong += 1
        print(f"    WRONG  the adapters did not come back: {back.text}", flush=True)
    print(f"{right} rows right, {wrong} wrong", flush=True)
    guest.record("failing allocations", right, wrong)
    return 1 if wrong or not right else 0


if __name__ == "__main__":
    sys.exit(main())
