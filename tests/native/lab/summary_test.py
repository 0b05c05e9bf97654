#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What failed is named, with the end of what it said, where the table of all suites is."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "tests/vm")]

import guest
from keyhole_lab import suites

REPORT = """<testsuite>
<testcase name="good" status="run"/>
<testcase name="bad" status="fail"><failure message="Failed"/><system-out>first
expected 1, got 2</system-out></testcase>
</testsuite>"""


def printed(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = function(*arguments)
    return result, out.getvalue()


class Summary(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)

    def test_a_native_test_that_failed_is_told_with_its_output(self):
        report = self.place / "tests.xml"
        report.write_text(REPORT)
        context = suites.Context(None, None)
        context.counts = [suites.junit(context, report, "native tests")]
        status, said = printed(suites.summary, context)
        self.assertEqual(status, 1)
        self.assertIn("---- failed: native tests: bad\nfirst\nexpected 1, got 2\n", said)
        self.assertIn("1 passed, 1 failed, 0 skipped", said)
        self.assertNotIn("good", said)

    def test_a_program_in_the_guest_that_failed_leaves_the_end_of_its_output(self):
        (self.place / "good.py").write_text("print('fine')")
        (self.place / "bad.py").write_text("import sys\nprint('x\\n' * 100 + 'alas', sys.argv[1])\nsys.exit(1)")
        with mock.patch.object(guest, "SHARED", self.place), \
                mock.patch.object(guest, "__file__", str(self.place / "guest.py")):
            status, said = printed(guest.run_programs, "good.py", "bad.py now")
        self.assertEqual(status, 1)
        self.assertIn("---- good.py\nfine\n---- bad.py now\nx\n", said)
        left = [json.loads(path.read_text()) for path in self.place.glob("failed-*.json")]
        self.assertEqual([failure["program"] for failure in left], ["bad.py now"])
        self.assertEqual(left[0]["said"].splitlines(), ["x"] * 49 + ["alas now"])


if __name__ == "__main__":
    unittest.main()
