#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What tests/vm/cycles.py takes for lost memory: growth by an object a cycle that comes every time it looks."""

import itertools
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "vm"))

import cycles

MADE = 50


class LostMemory(unittest.TestCase):
    def judge(self, growth):
        """Has a cache grow by `growth`, one number for each time that it is looked at."""
        counts = itertools.accumulate(growth, initial=1000)
        with mock.patch.object(cycles.guest, "CYCLES", MADE), mock.patch.object(cycles, "Cycles"), \
                mock.patch.object(cycles, "slabs", lambda: {"kmalloc-96": next(counts)}):
            cycles.no_memory_stays(None)

    def test_a_cache_that_grows_every_time_has_lost_memory(self):
        with self.assertRaisesRegex(AssertionError, "kmalloc-96.*50, 50"):
            self.judge(itertools.repeat(MADE))

    def test_what_is_given_back_late_has_not(self):
        self.judge([MADE, MADE, 0, MADE, -MADE])

    def test_nor_has_one_that_grows_once(self):
        self.judge([10 * MADE, 0])


if __name__ == "__main__":
    unittest.main()
