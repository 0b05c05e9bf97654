#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs on the stock kernel, in one boot. The main job comes last: it takes the adapters apart."""

import sys

import guest

if __name__ == "__main__":
    sys.exit(guest.run_programs(
        "checks.py", "mkey_objects.py", "man_examples.py", "other_provider.py", "pyverbs_table.py", "cycles.py",
        "lifecycle.py", "main_job.py"))
