#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs on the stock kernel, in one boot. The main job comes last but one, as it takes the adapters apart; then keyholed dies."""

import sys

import guest

if __name__ == "__main__":
    sys.exit(guest.run_programs(
        "checks.py", "no_system_calls.py", "mkey_objects.py", "resource_numbers.py", "man_examples.py", "other_provider.py",
        "pyverbs_table.py", "cycles.py", "pressure.py", "lifecycle.py", "reboot.py", "main_job.py", "lifecycle.py dead_keyholed"))
