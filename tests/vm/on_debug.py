#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs on the debug kernel, in one boot. What its checks find is in the kernel's log, which the lab reads.

  on_debug.py [--all]

Each pyverbs class costs half a minute here, most of it Python's own start. Without --all those run that
reach other code of the driver than our own programs do, or take it down in another order.
"""

import sys

import guest

PYVERBS = ("AHTest", "CqEventsTestCase", "ForkAPITest", "test_mr.MRTest", "MWTest", "QPTest", "CMTestCase", "SrqTestCase")

if __name__ == "__main__":
    everything = "--all" in sys.argv[1:]
    pyverbs = () if everything else PYVERBS
    # What starts the machine anew comes first: the counts of gcov and kmemleak's list are of the last life.
    sys.exit(guest.run_programs(
        *(["reboot.py"] if everything else []),
        "kunit.py", "fail_nth.py --all" if everything else "fail_nth.py", "random_uverbs.py", "cycles.py", "checks.py",
        "mkey_objects.py", "resource_numbers.py", "pressure.py", " ".join(["pyverbs_table.py", *pyverbs]), "lifecycle.py",
        "main_job.py", *(["lifecycle.py dead_keyholed"] if everything else [])))
