#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The experimental verbs on an adapter that is not Keyhole's: Soft-RoCE, to itself.

What maps onto the standard verbs works there, the rest is lacking and says so.
"""

import re
import sys

import guest
from bench import soft_roce


def main():
    soft = soft_roce()
    outcome = guest.run([str(guest.BUILD / "plain/tests/vm/exp/experimental_verbs"), soft.device, str(soft.gid_index),
                         soft.device, str(soft.gid_index)], timeout=120)
    right, wrong = (len(re.findall(rf"^{word}\b", outcome.text, re.M)) for word in ("ok", "WRONG"))
    wrong = wrong or (0 if outcome.passed else 1)
    print(outcome.text if wrong else f"experimental verbs on Soft-RoCE: {right} checks", flush=True)
    guest.record("experimental verbs on Soft-RoCE", right, wrong)
    guest.run(["rdma", "link", "delete", "soft0"])
    guest.run(["ip", "link", "delete", "soft0"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
