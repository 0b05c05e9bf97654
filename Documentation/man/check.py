#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests of the man pages as pages: their form, and that none is missing.

  check.py FOLDER HEADER ...    the headers whose functions must have a page each
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from programs import programs

FOLDER = pathlib.Path(sys.argv[1])
HEADERS = [pathlib.Path(name) for name in sys.argv[2:]]
PAGES = {page.name: page.read_text() for page in FOLDER.iterdir() if re.fullmatch(r"\w+\.\d", page.name)}
ALIASES = {name: text.split("/")[-1].strip() for name, text in PAGES.items() if text.startswith(".so ")}


def section(page, name):
    found = re.search(rf'^\.SH "?{name}"?\n(.*?)(?=^\.SH|\Z)', PAGES[page], re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


MACROS = {".TH", ".SH", ".SS", ".PP", ".TP", ".EX", ".EE", ".nf", ".fi", '.\\"'}
CLOSES = {".EE": ".EX", ".fi": ".nf"}


class ManPages(unittest.TestCase):
    def test_only_macros_that_every_man_knows_and_each_block_closed(self):
        for page in sorted(set(PAGES) - set(ALIASES)):
            opened = None
            for number, line in enumerate(PAGES[page].splitlines(), 1):
                with self.subTest(page, line=number):
                    macro = line.split()[0] if line.startswith((".", "'")) else None
                    self.assertIn(macro, MACROS | {None})
                    if macro in CLOSES.values():
                        self.assertIsNone(opened)
                        opened = macro
                    elif macro in CLOSES:
                        self.assertEqual(opened, CLOSES[macro])
                        opened = None
                    # Escapes: fonts, and characters that troff would otherwise take for something else.
                    self.assertEqual(re.sub(r"\\f[BIP]|\\\((?:aq|ga|ha|ti)|\\[e\-&\"]", "", line).count("\\"), 0, line)
            self.assertIsNone(opened, page)

    def test_troff_finds_nothing_to_warn_of(self):
        if not shutil.which("groff"):
            self.skipTest("no groff here")
        for page in sorted(set(PAGES) - set(ALIASES)):
            with self.subTest(page):
                said = subprocess.run(["groff", "-ww", "-man", "-Tutf8", FOLDER / page], stderr=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL, text=True).stderr
                self.assertEqual(said, "")

    def test_each_alias_is_named_by_the_page_that_it_leads_to(self):
        for alias, page in ALIASES.items():
            with self.subTest(alias):
                self.assertIn(page, PAGES)
                self.assertIn(alias.split(".")[0], section(page, "NAME"))

    def test_each_name_of_a_page_is_a_page(self):
        for page in set(PAGES) - set(ALIASES):
            names = section(page, "NAME").split(" - ")[0].replace("\n", " ")
            for name in names.split(", "):
                with self.subTest(page, name=name):
                    self.assertIn(f"{name.strip()}.{page[-1]}", PAGES)

    def test_each_function_of_the_headers_has_a_page(self):
        self.assertTrue(HEADERS)
        for header in HEADERS:
            text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
            functions = set(re.findall(r"^(?:static inline |extern )?[\w \*]*?\n?\*?((?:keyholedv|ibv_exp)_\w+)\(", text,
                                       re.MULTILINE))
            self.assertTrue(functions, header)
            for function in functions:
                with self.subTest(function):
                    self.assertTrue(f"{function}.3" in PAGES or function in ("ibv_exp_get_provider_func", "ibv_exp_setenv"))

    def test_each_page_has_an_example_or_says_which_page_has_it(self):
        for page in set(PAGES) - set(ALIASES):
            with self.subTest(page):
                others = re.findall(r"\\fB(\w+)\\fP\((\d)\)", section(page, "EXAMPLES"))
                self.assertTrue(section(page, "EXAMPLES"))
                found = list(programs(FOLDER / page)) or [1 for name, number in others for _ in
                                                           programs(FOLDER / f"{name}.{number}")]
                self.assertTrue(found)

    def test_what_a_page_refers_to_of_ours_exists(self):
        for page in set(PAGES) - set(ALIASES):
            for name, number in re.findall(r"\\fB((?:keyhole|ibv_exp|libibverbs_exp)\w*)\\fP\((\d)\)", PAGES[page]):
                with self.subTest(page, refers_to=name):
                    self.assertIn(f"{name}.{number}", PAGES)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
