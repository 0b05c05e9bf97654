#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The example programs of the man pages, taken out of the pages.

A program is the text between .EX and .EE whose first line is a comment with its file name. What readers see is
what is compiled and run: there is no second copy.

  programs.py DIRECTORY PAGE ...    writes them there, those that changed, and prints their names
"""

import pathlib
import re
import sys

# What a page writes so that troff prints it as typed.
ESCAPES = {r"\e": "\\", r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\&": ""}
ESCAPE = re.compile(r"\\(?:e|-|&|\((?:aq|ga|ha|ti))")
PROGRAM = re.compile(r"^\.EX\n/\* (\w+\.c) \*/\n(.*?)^\.EE$", re.MULTILINE | re.DOTALL)


def programs(page):
    """The programs of a page: file name and text."""
    for name, text in PROGRAM.findall(pathlib.Path(page).read_text()):
        plain = ESCAPE.sub(lambda found: ESCAPES[found.group()], text)
        yield name, f"/* The example of {pathlib.Path(page).name}. */\n{plain}"


def main(directory, *pages):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {}
    for page in pages:
        for name, text in programs(page):
            if name in wanted:
                raise SystemExit(f"{page}: another page has a program {name}")
            wanted[name] = text
    for old in directory.glob("*.c"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        file = directory / name
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    print("\n".join(sorted(wanted)))


if __name__ == "__main__":
    main(*sys.argv[1:])
