#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the example programs of the man pages: each must exit 0 and have said something.

What there is to run is read from the pages, so that a program that was not built is a failure.
"""

import sys

import guest

sys.path.insert(0, str(guest.TOP / "Documentation/man"))
from programs import programs  # noqa: E402

PROGRAMS = guest.BUILD / "plain/Documentation/man/examples"


def main():
    one = guest.adapters(wanted=1)[0]
    passed = failed = 0
    for page in sorted((guest.TOP / "Documentation/man").glob("*.[37]")):
        for file, _ in programs(page):
            outcome = guest.run([str(PROGRAMS / file.removesuffix(".c")), one.device, str(one.gid_index)], timeout=30)
            right = outcome.passed and outcome.text.strip() != ""
            passed, failed = passed + right, failed + (not right)
            said = outcome.text.strip() or "(nothing)"
            if right:
                print(f"ok     {page.name}: {said.splitlines()[-1]}", flush=True)
            else:
                print(f"WRONG  {page.name}, {file}:\n    " + "\n    ".join(said.splitlines()), flush=True)
    if not passed:  # no program at all is no success either
        failed = failed or 1
    guest.record("man page examples", passed, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
