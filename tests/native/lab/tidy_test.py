#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the lab makes of clang-tidy's words, what it has it look at, and when it has it look again."""

import contextlib
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

from keyhole_lab import analysis, checkout, say, tidy

FOUND = """\
/top/device/a.cc:7:14: error: method 'deliver' can be made static [readability-convert-member-functions-to-static,-warnings-as-errors]
    7 | void Switch::deliver() {
      |              ^

/top/device/b.h:9:3: warning: narrowing [bugprone-narrowing-conversions]
/top/device/b.h:8:1: note: it is declared here
38626 warnings and 1 error generated.
1 warning treated as error
"""


class Words(unittest.TestCase):
    def test_a_finding_has_its_file_line_and_check(self):
        self.assertEqual(tidy.read_clang_tidy(1, FOUND), [
            "/top/device/a.cc:7: method 'deliver' can be made static [readability-convert-member-functions-to-static]",
            "/top/device/b.h:9: narrowing [bugprone-narrowing-conversions]"])

    def test_what_is_in_a_header_counts_once(self):
        self.assertEqual(len(tidy.read_clang_tidy(1, FOUND + FOUND)), 2)

    def test_nothing_found_is_nothing(self):
        for text in ("", "38626 warnings generated.\n", "1 warning generated.\n"):
            self.assertEqual(tidy.read_clang_tidy(0, text), [])

    def test_what_did_not_compile_did_not_run_or_crashed_counts(self):
        for status, text in ((1, "/top/device/a.cc:1:10: error: 'no.h' file not found [clang-diagnostic-error]\n"),
                             (127, "sh: clang-tidy: not found\n"), (-11, ""), (-9, ""), (1, ""),
                             (0, "Error while processing /top/device/a.cc.\n")):
            self.assertEqual(len(tidy.read_clang_tidy(status, text)), 1, (status, text))


class Tree(unittest.TestCase):
    """A checkout of two sources."""
    def setUp(self):
        self.top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(checkout, "TOP", self.top))
        for name in ("device/a.cc", "device/a.h", "tests/t.cc", "tests/t.h", ".clang-tidy", "tests/.clang-tidy"):
            self.write(name, "")

    def write(self, name, text):
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text)

    def entry(self, name):
        return {"file": str(self.top / name), "command": "c++"}


class Compilations(Tree):
    def test_of_a_unity_build_the_sources_in_it_are_looked_at(self):
        self.write("build/unity_0_cxx.cxx", f'/* made */\n#include "{self.top}/device/a.cc"\n#include "{self.top}/device/b.cc"\n')
        self.write("build/unity_1_cxx.cxx", '#include "/elsewhere/generated.cc"\n')
        entries = [self.entry(name) for name in ("build/unity_0_cxx.cxx", "build/unity_1_cxx.cxx", "tests/t.cc", "tests/t.cc")]
        self.assertEqual([sources for _, sources in tidy.compilations(entries)],
                         [[self.top / "device/a.cc", self.top / "device/b.cc"], [self.top / "tests/t.cc"]])

    def test_of_tests_those_are_left_out_that_are_compiled_alone(self):
        for name, count, wanted in (("device/a.cc", 1, True), ("tests/t.cc", 1, False), ("tests/t.cc", 2, True)):
            self.assertEqual(tidy.affordable([self.top / name] * count), wanted, (name, count))

    def key(self, name, root="root"):
        return tidy.key(self.entry(name), [self.top / name], root)

    def test_it_is_looked_at_again_when_something_has_changed_that_may_matter(self):
        for changed, again in (("device/a.cc", {"device"}), ("device/a.h", {"device", "tests"}), ("uapi/u.h", {"device", "tests"}),
                               ("tests/t.cc", {"tests"}), ("tests/t.h", {"tests"}), (".clang-tidy", {"device"}),
                               ("tests/.clang-tidy", {"tests"}), ("README.md", set())):
            before = {name: self.key(name) for name in ("device/a.cc", "tests/t.cc")}
            self.write(changed, changed)
            after = {name: self.key(name) for name in before}
            self.assertEqual({name.split("/")[0] for name in before if before[name] != after[name]}, again, changed)
        self.assertNotEqual(self.key("device/a.cc"), self.key("device/a.cc", "another root"))


class Run(Tree):
    """All of it but clang-tidy."""

    def run_it(self, said, planted=f"/some/{analysis.PLANTED_NAME}:2:5: warning: it is there [check]\n", tool=tidy.clang_tidy):
        """The result when clang-tidy says `said` (a status and a text), and how often it was asked about ours."""
        asked = []

        def in_parallel(_place, jobs, _log):
            asked.extend(name for name in jobs if "planted" not in name)
            return {name: (0, planted) if "planted" in name else said for name in jobs}
        self.write("build/tidy/compile_commands.json", json.dumps([self.entry("device/a.cc"), self.entry("tests/t.cc")]))
        place = mock.Mock(root="root", directory=self.top)
        with contextlib.ExitStack() as stack:
            for owner, name, value in ((tidy.build, "configure", mock.Mock()), (tidy.build, "compile_commands", mock.Mock()),
                                       (tidy.build, "native_dir", lambda variant: self.top / "build" / variant),
                                       (checkout, "build_dir", lambda: self.top / "build"),
                                       (analysis, "user_space_sources", lambda _: ([self.entry("device/a.cc"), self.entry("tests/t.cc")], [])),
                                       (analysis, "in_parallel", in_parallel)):
                stack.enter_context(mock.patch.object(owner, name, value))
            return tool(place, None), len(asked)

    def test_a_finding_fails_each_time_and_what_is_clean_is_asked_once(self):
        finding = (1, f"{self.top}/device/a.cc:1:1: error: it is wrong [bugprone-it,-warnings-as-errors]\n")
        for _ in range(2):
            result, asked = self.run_it(finding)
            self.assertEqual((result.looked_at, result.faulty, result.skipped, result.findings, asked),
                             (1, 1, 1, ["device/a.cc:1: it is wrong [bugprone-it]"], 1))
        self.assertEqual([(r.faulty, asked) for r, asked in (self.run_it((0, "")), self.run_it((0, "")))], [(0, 1), (0, 0)])
        self.write("device/a.cc", "changed")
        self.assertEqual(self.run_it((0, ""))[1], 1)
        self.assertEqual(len(list((self.top / "build/clang-tidy").iterdir())), 1)

    def test_all_are_read_where_that_is_asked_for_and_what_was_clean_stays_known(self):
        outcomes = [self.run_it((0, ""), tool=tool) for tool in (tidy.clang_tidy_on_all, tidy.clang_tidy, tidy.clang_tidy_on_all)]
        self.assertEqual([(r.looked_at, r.skipped, r.note == "", asked) for r, asked in outcomes],
                         [(2, 0, True, 2), (1, 1, False, 0), (2, 0, True, 0)])

    def test_it_fails_when_clang_tidy_does_not_find_what_was_planted(self):
        with self.assertRaises(say.LabError):
            self.run_it((0, ""), planted="")

    def test_it_fails_when_a_source_is_in_no_compilation(self):
        with mock.patch.object(tidy, "compilations", lambda _: []), self.assertRaises(say.LabError):
            self.run_it((0, ""))


if __name__ == "__main__":
    unittest.main()
