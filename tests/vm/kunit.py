#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The module's KUnit tests: loads keyhole_test.ko, which runs them, and reads their KTAP lines in the kernel's log."""

import pathlib
import re
import subprocess
import sys

import faults
import guest

MODULE = pathlib.Path("/usr/lib/keyhole/keyhole_test.ko")


def main():
    faults.set_up()
    before = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True).stdout.count("\n")
    loaded = guest.run(["insmod", str(MODULE)], timeout=180)
    log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True).stdout.splitlines()[before:]
    lines = [re.sub(r"^\[[^]]*\] ?", "", line) for line in log]
    # Cases are indented below their suite; a skipped one says so behind a number sign.
    cases = [m for m in (re.match(r"\s{4,}(ok|not ok) \d+ (\S+)(?: # (\w+))?", line) for line in lines) if m]
    failed = [m.group(2) for m in cases if m.group(1) == "not ok"]
    skipped = [m.group(2) for m in cases if m.group(3) == "SKIP"]
    if failed or not cases or not loaded.passed:
        print(loaded.text, "\n".join(lines[-80:]), flush=True)
    passed = len(cases) - len(failed) - len(skipped)
    print(f"KUnit: {passed} passed, {len(failed)} failed {' '.join(failed)}, {len(skipped)} skipped", flush=True)
    guest.record("KUnit", passed, len(failed) or int(not cases), len(skipped))
    if loaded.passed:
        guest.run(["rmmod", "keyhole_test"])
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
