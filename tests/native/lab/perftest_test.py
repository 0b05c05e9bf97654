#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What perftest could not measure is measured again and never counts as a figure; ratios are those of turns."""

import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "vm"))

import bench
import guest
import main_job

GOOD = " 64      5000          12.67          3977.21      16.58    \t 26.0\t84.65\t162.43\t1771.05"
NO_TIME = " 64      5000          inf          inf      inf    \t inf\t-nan\tinf\tinf"
NO_RATE = " 65536      2000             0.00               0.00   \t\t     0.000000"
ONE = guest.Adapter("keyhole0", "eth0", "192.168.75.1", 1)


class Perftest(unittest.TestCase):
    def measured(self, *rows, passed=True):
        """The figure where perftest prints these rows in turn, the last for ever; and how often it ran."""
        said = [f"client:\n{row}\nserver (status 0):\n{GOOD}" for row in rows]
        answers = mock.Mock(side_effect=lambda *_, **__: guest.Outcome(passed, said.pop(0) if said[1:] else said[0], 1.0))
        with mock.patch.object(main_job, "pair", answers), contextlib.redirect_stdout(io.StringIO()):
            _, figure = main_job.perftest(ONE, ONE, ["ib_send_lat"], 18600, 4, timeout=9)
        return figure, answers.call_count

    def test_a_figure_is_taken_as_it_is(self):
        self.assertEqual(self.measured(GOOD), ("16.58", 1))

    def test_what_could_not_be_measured_is_measured_again(self):
        self.assertEqual(self.measured(NO_TIME, NO_RATE, GOOD), ("16.58", 3))

    def test_what_can_never_be_measured_has_no_figure(self):
        for row in (NO_TIME, NO_RATE):
            self.assertEqual(self.measured(row), ("", 5))

    def test_a_program_that_failed_is_not_run_again(self):
        self.assertEqual(self.measured("", passed=False), ("", 1))


class Ratio(unittest.TestCase):
    def test_a_ratio_is_that_of_the_turn_in_the_middle(self):
        self.assertEqual(bench.ratio_of([1, 20, 3], [1, 2, 1]), 3)

    def test_a_turn_that_one_side_lacks_is_told(self):
        with self.assertRaises(ValueError):
            bench.ratio_of([1, 2], [1])


if __name__ == "__main__":
    unittest.main()
