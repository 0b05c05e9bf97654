# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's fault injection, set up for a task that names the allocation that shall fail (fail-nth).

Nothing fails by chance. Pages may fail too, of any order, and also where the kernel would rather wait for memory:
else no GFP_KERNEL allocation ever would.
"""

import pathlib
import re

DEBUG = pathlib.Path("/sys/kernel/debug")
ADDRESS = re.compile(r"^([0-9a-f]+) [tT] .*\[keyhole\]$", re.M)


def driver_text():
    """The addresses of the driver's code."""
    found = [int(a, 16) for a in ADDRESS.findall(pathlib.Path("/proc/kallsyms").read_text())]
    assert found and min(found), "the driver's code is in /proc/kallsyms"
    return min(found), max(found) + 4096


def set_up(everywhere=True):
    """All allocations count, or those only below which the driver is on the stack."""
    start, end = (0, 2 ** 64 - 1) if everywhere else driver_text()
    for name, values in {"failslab": {"ignore-gfp-wait": "N"},
                         "fail_page_alloc": {"ignore-gfp-wait": "N", "ignore-gfp-highmem": "N", "min-order": "0"}}.items():
        values |= {"probability": "0", "verbose": "0", "require-start": hex(start), "require-end": hex(end)}
        for file, value in values.items():
            (DEBUG / name / file).write_text(value)
