#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What the lab makes of the words of the static analysers: nothing that they find is lost, nor that they do not run."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

from keyhole_lab import analysis, checkout, say

COCCICHECK = """\

Please check for false positives in the output before submitting a patch.
When using "patch" mode, carefully review the patch before submitting it.

/usr/bin/spatch -D report --no-show-diff --very-quiet --cocci-file /source/scripts/coccinelle/misc/semicolon.cocci --jobs 2
warning: line 140: should noop_llseek be a metavariable?
"""
PARSE = """\
PARSING: /run/keyhole/coccinelle/kernel/klm_list.c
BAD:!!!!! static int UVERBS_HANDLER(KEYHOLE_METHOD_KLM_LIST_QUERY)(struct uverbs_attr_bundle *attrs)
bad: {
BAD:!!!!! static inline struct kh_##type *to_kh_##type(struct ib_##type *p)\t\\
NB total files = 35; perfect = 34; pbs = 1; timeout = 0; =========> 97%
"""
CPPCHECK = """\
Checking /top/device/a.cc ...
Checking /top/device/a.cc: KH=1;__linux__...
1/2 files checked 50% done
/top/device/a.cc:7: error: Null pointer dereference: p [nullPointer]
"""
FOUND = "/run/keyhole/coccinelle/kernel/qp.c:7:1-2: Unneeded semicolon"


class Words(unittest.TestCase):
    def test_of_coccicheck_what_is_not_its_preface_is_a_finding(self):
        self.assertEqual(analysis.read_coccicheck(COCCICHECK), [])
        self.assertEqual(analysis.read_coccicheck(COCCICHECK + FOUND + "\n"), [FOUND])
        self.assertEqual(analysis.read_coccicheck("coccicheck failed\n"), ["coccicheck failed"])

    def test_a_function_that_coccinelle_cannot_read_is_told(self):
        files, given_up = analysis.read_parse(PARSE)
        self.assertEqual(files, 35)
        self.assertEqual(len(given_up), 2)
        self.assertEqual([line for line in given_up if line not in analysis.UNREADABLE],
                         ["static int UVERBS_HANDLER(KEYHOLE_METHOD_KLM_LIST_QUERY)(struct uverbs_attr_bundle *attrs)"])
        self.assertEqual(analysis.read_parse("spatch: command not found\n"), (0, []))

    def test_of_cppcheck_what_is_not_its_progress_is_a_finding(self):
        self.assertEqual(analysis.read_cppcheck(CPPCHECK), [CPPCHECK.splitlines()[-1]])
        self.assertEqual(analysis.read_cppcheck("cppcheck: error: no such file\n"), ["cppcheck: error: no such file"])

    def test_who_does_not_find_what_was_planted_has_not_looked(self):
        planted = f"some/{analysis.PLANTED_NAME}:9: too many semicolons"
        self.assertEqual(analysis.judged("it", [FOUND, planted], "log"), [FOUND])
        self.assertEqual(analysis.judged("it", [planted], "log"), [])
        for findings in ([], [FOUND]):
            with self.assertRaises(say.LabError):
                analysis.judged("it", findings, "log")


class Sources(unittest.TestCase):
    def test_checkpatch_sees_each_file_where_the_kernel_would_have_it(self):
        places = {analysis.in_kernel(path) for path in analysis.module_sources()}
        self.assertLessEqual({"drivers/infiniband/hw/keyhole/pci.c", "drivers/infiniband/hw/keyhole/tests/ah_test.c",
                              "include/uapi/rdma/keyhole_hw.h", "include/uapi/rdma/keyhole-abi.h"}, places)
        self.assertEqual(len(places), len(analysis.module_sources()))

    def test_a_source_that_no_build_compiles_is_told(self):
        everything = [{"file": str(path)} for folder in analysis.USER_SPACE
                      for path in (checkout.TOP / folder).rglob("*.c*") if path.suffix in (".c", ".cc", ".cpp")]
        left_out = {"file": str(checkout.TOP / "device/keyholed/main.cc")}
        with tempfile.TemporaryDirectory() as directory:
            commands = pathlib.Path(directory) / "compile_commands.json"
            commands.write_text(json.dumps([*everything, *everything, {"file": "/elsewhere/generated.c"}]))
            entries, missing = analysis.user_space_sources(commands)
            self.assertEqual((len(entries), missing), (len(everything), []))
            commands.write_text(json.dumps([entry for entry in everything if entry != left_out]))
            self.assertEqual(analysis.user_space_sources(commands)[1], ["device/keyholed/main.cc"])


class Here:
    """A room that is where the test is."""
    @staticmethod
    def start(command, cwd, **options):
        return subprocess.Popen(command, cwd=cwd, **options)


class Processes(unittest.TestCase):
    def run_jobs(self, **jobs):
        with tempfile.TemporaryDirectory() as directory:
            log = pathlib.Path(directory) / "logs" / "log"
            done = analysis.in_parallel(Here, jobs, log)
            return done, log.read_text()

    def test_each_has_its_own_output_and_status(self):
        jobs = {f"n{i}": ["sh", "-c", f"echo out {i}; echo err {i} >&2; exit {i}"] for i in range(5)}
        done, log = self.run_jobs(**jobs)
        self.assertEqual(done, {f"n{i}": (i, f"out {i}\nerr {i}\n") for i in range(5)})
        self.assertIn("err 4", log)

    def test_one_that_does_not_end_is_ended_and_has_failed(self):
        with mock.patch.object(analysis, "LIMIT", 0.2):
            done, _ = self.run_jobs(endless=["sleep", "1000"])
        self.assertNotEqual(done["endless"][0], 0)


class Suite(unittest.TestCase):
    def test_a_tool_that_cannot_run_fails_and_the_others_still_run(self):
        def broken(_place, _source):
            raise say.LabError("it is broken")

        def fine(_place, _source):
            return analysis.Result("fine", looked_at=3)
        with mock.patch.object(say, "note"):
            results = analysis.run((broken, fine), None, None)
        self.assertEqual([(r.tool, r.looked_at, r.faulty) for r in results], [("broken", 1, 1), ("fine", 3, 0)])


if __name__ == "__main__":
    unittest.main()
