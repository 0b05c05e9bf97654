#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Suites that run side by side: each one's counts arrive, one that dies is told apart, and none outlives the lab."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

from keyhole_lab import checkout, lanes

# A lab that knows three suites. Each notes when it began and ended.
LAB = """#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = --counts ] && counts=$2; shift; done
echo "$1 begins" >> {events}
case $1 in
good|debug-good) sleep 0.7; echo "[{{\\"suite\\": \\"$1\\", \\"passed\\": 3}}]" > "$counts"; echo "output of $1";;
dies) exit 3;;
stays) echo $$ > {pid}; exec sleep 600;;
esac
echo "$1 ends" >> {events}
"""


class Lanes(unittest.TestCase):
    def setUp(self):
        self.top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.events, self.pid = self.top / "events", self.top / "pid"
        lab = self.top / "scripts/lab"
        lab.parent.mkdir()
        lab.write_text(LAB.format(events=self.events, pid=self.pid))
        lab.chmod(0o755)
        self.enterContext(mock.patch.object(checkout, "TOP", self.top))
        self.enterContext(mock.patch.object(checkout, "log", lambda name: self.top / f"{name}.log"))
        self.said = self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def test_counts_and_output_of_each_arrive(self):
        results = {name: counts for name, counts, _ in lanes.run(["good", "debug-good", "dies"], [])}
        self.assertEqual(results, {"good": [{"suite": "good", "passed": 3}],
                                   "debug-good": [{"suite": "debug-good", "passed": 3}], "dies": None})
        self.assertIn("output of debug-good", self.said.getvalue())

    def test_two_run_at_a_time_and_the_debug_kernel_is_first(self):
        with mock.patch.object(lanes, "at_once", lambda: 2):
            list(lanes.run(["good", "dies", "debug-good"], []))
        begun = [line.split()[0] for line in self.events.read_text().splitlines() if line.endswith("begins")]
        self.assertEqual(set(begun[:2]), {"debug-good", "good"})
        self.assertEqual(begun[2], "dies")

    def test_one_runs_at_a_time_where_memory_is_short(self):
        with mock.patch.object(lanes, "MEMORY_KB", 1 << 60):
            list(lanes.run(["good", "debug-good"], []))
        self.assertEqual(self.events.read_text().split("\n")[:-1],
                         ["debug-good begins", "debug-good ends", "good begins", "good ends"])

    def test_none_outlives_the_lab(self):
        class Ended(Exception):
            pass

        def later(_):
            if self.pid.exists() and self.pid.read_text():
                raise Ended

        with mock.patch.object(lanes.time, "sleep", later), self.assertRaises(Ended):
            list(lanes.run(["stays"], []))
        with self.assertRaises(ProcessLookupError):
            os.kill(int(self.pid.read_text()), 0)


if __name__ == "__main__":
    unittest.main()
