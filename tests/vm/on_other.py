#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What runs on the kernels of other Debian suites, in one boot: all that runs on the stock one, or the brief.

  on_other.py [--all]

The brief has our own programs, the main job, and pyverbs classes that use each kind of object once.
"""

import sys

import guest

ALL = ("checks.py", "mkey_objects.py", "resource_numbers.py", "man_examples.py", "other_provider.py", "pyverbs_table.py",
       "pressure.py", "lifecycle.py", "reboot.py", "main_job.py", "lifecycle.py dead_keyholed")
PYVERBS = ("AHTest", "test_cqex.CQEXAPITest", "DeviceTest", "test_mr.MRTest", "MWTest", "QPTest")
BRIEF = ("checks.py", "mkey_objects.py", " ".join(["pyverbs_table.py", *PYVERBS]), "main_job.py")

if __name__ == "__main__":
    sys.exit(guest.run_programs(*(ALL if "--all" in sys.argv[1:] else BRIEF)))
