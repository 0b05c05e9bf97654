#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs in Debian 12's user space, in one boot: our own programs and the main job, on its rdma-core."""

import sys

import guest

if __name__ == "__main__":
    sys.exit(guest.run_programs("checks.py", "mkey_objects.py", "main_job.py"))
