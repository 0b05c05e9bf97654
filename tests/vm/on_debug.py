#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs on the debug kernel, in one boot. What its checks find is in the kernel's log, which the lab reads."""

import sys

import guest

if __name__ == "__main__":
    sys.exit(guest.run_programs(
        "kunit.py", "checks.py", "mkey_objects.py", "pyverbs_table.py", "lifecycle.py", "main_job.py"))
