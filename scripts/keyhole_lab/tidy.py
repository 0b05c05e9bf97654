# SPDX-License-Identifier: BSD-2-Clause
"""clang-tidy on user space: .clang-tidy says what it asks of what ships, tests/.clang-tidy what it asks of tests.

Nearly all of its time goes into the headers that a source includes, and through those it walks with every check. So
it does not read source by source but as the unity builds compile, the sources of a target at once, which takes a
fifth of the time and sees what is between them besides. Tests that are compiled one by one are left out for that
reason, and count as skipped; clang_tidy_on_all() reads them too.

A compilation that it found nothing in is not read again before something changes that may change what it finds: a
source or a header of ours, the checks, the command line, or the root, of which clang-tidy and all other headers are.
Only that nothing was found is remembered, and the lab forgets it with the rest of what it built.
"""

import hashlib
import json
import pathlib
import re

from . import analysis, build, checkout, say
from .room import PRIVATE

SHIPS = ("device", "userspace", "examples")
FINDING = re.compile(r"(?P<file>\S+):(?P<line>\d+):\d+: (?:warning|error): (?P<what>.*) \[(?P<check>[^][\s]+)\]")
# The source, how it comes to that, and how many findings there are in all headers.
NEXT_TO_IT = re.compile(r"|\s.*|\S+:\d+:\d+: note: .*|\d+ warnings?( and \d+ errors?)? generated\.|\d+ errors? generated\."
                        r"|\d+ warnings? treated as errors?")
# What both files of checks find something in.
PLANTED = """\
int planted(int value)
{
  int *p = 0;
  return value ? *p : value;
}
"""


def folder(path):
    return pathlib.Path(path).relative_to(checkout.TOP).parts[0]


def compilations(entries):
    """Those entries of a unity build that compile something of ours, each with the sources in it, as paths."""
    chosen = []
    for entry in entries:
        file = pathlib.Path(entry["file"])
        sources = [file]
        if file.name.startswith("unity_"):
            sources = [pathlib.Path(name) for name in re.findall(r'^#include "(.*)"$', file.read_text(), re.M)]
        sources = [source for source in sources if source.is_relative_to(checkout.TOP)
                   and folder(source) in analysis.USER_SPACE]
        if sources and not any(entry["file"] == known["file"] for known, _ in chosen):
            chosen.append((entry, sources))
    return chosen


def affordable(sources):
    """All of what ships; of the tests, those for which a walk through the headers serves more than one source."""
    return folder(sources[0]) in SHIPS or len(sources) > 1


def checks(sources):
    """The file with the checks for these sources."""
    return checkout.TOP / (".clang-tidy" if folder(sources[0]) in SHIPS else "tests/.clang-tidy")


def key(entry, sources, root):
    """What the findings in a compilation depend on, as a hash. What ships includes nothing of the tests."""
    folders = (*SHIPS, "uapi", *(["tests"] if folder(sources[0]) not in SHIPS else []))
    headers = [path for name in folders for suffix in ("h", "inc") for path in (checkout.TOP / name).rglob(f"*.{suffix}")]
    digest = hashlib.sha256(f"{root}\n{entry.get('command')}\n".encode())
    for path in sorted({*headers, *sources, checks(sources)}):
        digest.update(f"{path}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def read_clang_tidy(status, text):
    """The findings in what clang-tidy says about a compilation, as {file}:{line}: {what} [{check}], each once.

    A line that is neither one nor belongs to one counts as one, and so does an end that no finding explains.
    """
    findings = {}
    for line in text.splitlines():
        if match := FINDING.fullmatch(line):
            check = match["check"].removesuffix(",-warnings-as-errors")
            findings[f"{match['file']}:{match['line']}: {match['what']} [{check}]"] = None
        elif not NEXT_TO_IT.fullmatch(line):
            findings[line] = None
    if status != 0 and not findings:
        findings[f"clang-tidy: it ended with status {status}"] = None
    return list(findings)


def clang_tidy(place, _source):
    """clang-tidy on device, provider and examples, and on tests as far as that is cheap."""
    return read(place, affordable)


def clang_tidy_on_all(place, _source):
    """clang-tidy on all of user space."""
    return read(place, lambda sources: True)


def read(place, wanted):
    """clang-tidy on the compilations whose sources are `wanted`."""
    directory, log = build.native_dir("tidy"), checkout.log("clang-tidy")
    build.configure(place, "tidy", checkout.log("tidy"))
    known = compilations(json.loads((directory / "compile_commands.json").read_text()))
    chosen = [(entry, sources) for entry, sources in known if wanted(sources)]
    seen = {str(source) for _, sources in chosen for source in sources}
    everything = {entry["file"] for entry in analysis.user_space_sources(build.compile_commands(place))[0]}
    left_out = everything - seen
    missing = sorted(name for name in left_out if folder(name) in SHIPS) \
        + sorted(everything - {str(source) for _, sources in known for source in sources})
    if missing or not seen:
        raise say.LabError(f"clang-tidy does not see {', '.join(missing) or 'a source'}")

    clean = checkout.build_dir() / "clang-tidy"
    clean.mkdir(exist_ok=True)
    keys = {entry["file"]: key(entry, sources, place.root) for entry, sources in known}
    for old in {path.name for path in clean.iterdir()} - set(keys.values()):
        (clean / old).unlink()
    # What takes long comes first: what ships, for it all checks are on, and then what has most sources.
    left = sorted((item for item in chosen if not (clean / keys[item[0]["file"]]).exists()),
                  key=lambda item: (folder(item[1][0]) not in SHIPS, -len(item[1])))
    (place.directory / analysis.PLANTED_NAME).write_text(PLANTED)
    tool = ["clang-tidy", "--quiet"]
    jobs = {entry["file"]: [*tool, f"--config-file={checks(sources)}", f"-p={directory}", entry["file"]]
            for entry, sources in left}
    planted = [f"planted, {name}" for name in (".clang-tidy", "tests/.clang-tidy")]
    for name in planted:
        jobs[name] = [*tool, f"--config-file={checkout.TOP / name.split(', ')[1]}",
                      f"{PRIVATE}/{analysis.PLANTED_NAME}", "--"]
    done = analysis.in_parallel(place, jobs, log)
    for name in planted:
        analysis.judged("clang-tidy", read_clang_tidy(*done.pop(name)), log)

    findings = {}  # each once, though it be in a header
    for name, (status, text) in done.items():
        found = read_clang_tidy(status, text)
        if not found:
            (clean / keys[name]).touch()
        findings |= dict.fromkeys(line.replace(f"{checkout.TOP}/", "") for line in found)
    return analysis.Result("clang-tidy", len(seen), len({line.split(":")[0] for line in findings}), list(findings),
                           skipped=len(left_out),
                           note=f"{len(left_out)} tests that are compiled one by one" if left_out else "")
