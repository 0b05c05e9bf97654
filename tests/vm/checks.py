#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Our own programs, most of them on plain verbs between the two adapters: each prints a line for each of its checks.

  checks.py [PROGRAM ...]
"""

import re
import sys

import guest

PROGRAMS = {"windows": "tests/vm/windows", "provider": "tests/vm/provider/provider_vm_test",
            "experimental verbs": "tests/vm/exp/experimental_verbs",
            "experimental verbs by threads": "tests/vm/exp/exp_many_threads",
            "experimental verbs by dlopen": "tests/vm/exp/exp_comes_and_goes", "bad_commands": "tests/vm/bad_commands"}
ON_ONE = {"bad_commands", "experimental verbs by threads", "experimental verbs by dlopen"}  # these take one adapter, and no GID


def main():
    chosen = sys.argv[1:] or PROGRAMS
    one, two = guest.adapters(wanted=2)
    status = 0
    for name in chosen:
        on = [one.device] if name in ON_ONE else [one.device, str(one.gid_index), two.device, str(two.gid_index)]
        outcome = guest.run([str(guest.BUILD / "plain" / PROGRAMS[name]), *on], timeout=240)
        right, wrong = (len(re.findall(rf"^{word}\b", outcome.text, re.M)) for word in ("ok", "WRONG"))
        if not outcome.passed and not wrong:  # it ended before it could say what is wrong
            wrong = 1
        print(outcome.text if wrong else f"{name}: {right} checks in {outcome.seconds:.0f} s", flush=True)
        guest.record(f"{name} checks", right, wrong)
        status |= wrong != 0
    return status


if __name__ == "__main__":
    sys.exit(main())
