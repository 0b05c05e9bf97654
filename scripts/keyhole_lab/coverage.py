# SPDX-License-Identifier: BSD-2-Clause
"""Which lines of the kernel module the tests on the debug kernel reach, all boots of a `lab test` together.

The module is built with KEYHOLE_GCOV=1 for that kernel. Each boot leaves its counts (guest/coverage.sh), gcovr
makes a tracefile of each with the build's notes, and merges them: a line that KUnit has reached through the
copy of a source in its test counts as the line of that source. What was made of the last run stays, for `lab
coverage` to list.
"""

import json
import shutil

from . import checkout

TARGET = 85  # percent of the lines


def directory():
    return checkout.build_dir() / "coverage"


def forget():
    shutil.rmtree(directory(), ignore_errors=True)


def keep(counts, name):
    """Takes the counts of a boot, if it left any."""
    if counts.is_dir() and any(counts.rglob("*.gcda")):
        target = directory() / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(counts, target)


def boots():
    return sorted(path for path in directory().glob("*") if path.is_dir()) if directory().is_dir() else []


def merged():
    return directory() / "merged.json"


def merge(place, module):
    """Merges the counts of all boots with the notes of the build below `module`; returns gcovr's summary.

    Only the module's own sources count, not its tests and not the kernel's headers.
    """
    log = checkout.log("coverage")
    common = ["gcovr", "--root", module, "--filter", f"{module}/kernel/[^/]*\\.[ch]$",
              "--merge-mode-functions=merge-use-line-max"]
    tracefiles = []
    for boot in boots():
        for counts in boot.rglob("*.gcda"):
            notes = "/" / counts.relative_to(boot).with_suffix(".gcno")
            shutil.copy2(notes, counts.with_suffix(".gcno"))
        tracefiles.append(boot.with_suffix(".json"))
        place.run_logged([*common, "--json", tracefiles[-1], boot], log, "reading the coverage of a boot", cwd=boot,
                         append=True)
    summary = directory() / "summary.json"
    place.run_logged([*common, *(word for path in tracefiles for word in ("--add-tracefile", path)),
                      "--json", merged(), "--json-summary", summary], log, "merging the coverage", append=True)
    return json.loads(summary.read_text())


def show(place, module):
    """gcovr's table of the last run, with the lines that were not reached; its status."""
    return place.run(["gcovr", "--root", module, "--add-tracefile", merged(), "--txt"])
