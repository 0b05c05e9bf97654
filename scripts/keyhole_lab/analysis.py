# SPDX-License-Identifier: BSD-2-Clause
"""Static analysis: programs that read the sources and run none of them. Each of their findings is a failure.

The module is read by the kernel's own, checkpatch and Coccinelle's rules, which come with the source of the debug
kernel; user space by cppcheck. (Its build has sparse look at the module too: build.py.) What is wrong about a finding
is said where the finding is, in the source or in cppcheck.suppressions: nothing here lets a kind of finding pass.

A tool that does not run, or reads nothing, finds nothing. So each gets one more source, PLANTED, and has to find the
faults in that; and each line that a tool prints must be one that is known here, else it counts as a finding.
"""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from . import build, checkout, host, say
from .room import PRIVATE

PLANTED = """\
// SPDX-License-Identifier: BSD-2-Clause
int planted(int *p)
{
	int value = *p;

	if (!p)
		return 0;;
	while (value > 9) {
		value /= 10;
	};
	return value;
}
"""
PLANTED_NAME = "planted.c"
LIMIT = 600  # seconds for one process


@dataclasses.dataclass
class Result:
    tool: str
    looked_at: int = 0      # files or rules
    faulty: int = 0         # of these, with findings
    findings: tuple = ()    # lines: file, line, what
    skipped: int = 0
    note: str = ""
    seconds: float = 0


def in_parallel(place, jobs, log, cwd="/"):
    """Runs `jobs`, command lines by name, as many at once as there are CPUs; returns status and output of each."""
    waiting, running, done = list(jobs.items()), [], {}
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as everything:
        while waiting or running:
            while waiting and len(running) < host.cpus():
                name, argv = waiting.pop(0)
                out = tempfile.TemporaryFile("w+", errors="replace")
                process = place.start(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                      start_new_session=True)
                running.append((name, argv, process, out, time.monotonic()))
            time.sleep(0.05)
            for entry in list(running):
                name, argv, process, out, start = entry
                if process.poll() is None and time.monotonic() - start < LIMIT:
                    continue
                process.kill()
                process.wait()
                running.remove(entry)
                with out:
                    out.seek(0)
                    done[name] = (process.returncode, out.read())
                everything.write(f"$ {' '.join(map(str, argv))}\n{done[name][1]}"
                                 f"(status {process.returncode}, {time.monotonic() - start:.1f} s)\n")
                everything.flush()
    return done


def judged(tool, findings, log):
    """The findings in the sources, when those in the planted one are there too."""
    ours = [line for line in findings if PLANTED_NAME not in line.split(":")[0]]
    if len(ours) == len(findings):
        raise say.LabError(f"{tool} does not find what was planted for it; its log: {log}")
    return ours


def module_sources():
    return sorted(path for name in ("kernel", "uapi") for path in (checkout.TOP / name).rglob("*.[ch]"))


# ---------------------------------------------------------------- checkpatch

def in_kernel(path):
    """Where a source would lie in the kernel: checkpatch asks more of some places, and less of headers for all."""
    parts = path.relative_to(checkout.TOP).parts
    return "/".join(("drivers/infiniband/hw/keyhole", *parts[1:]) if parts[0] == "kernel"
                    else ("include/uapi/rdma", parts[-1]))


def checkpatch(place, source):
    """checkpatch --strict on the module, its tests and the headers that it shares with user space."""
    tree = place.directory / "checkpatch"
    ours = {in_kernel(path): path for path in module_sources()}
    for name, path in ours.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, tree / name)
    planted = f"drivers/infiniband/hw/keyhole/{PLANTED_NAME}"
    (tree / planted).write_text(PLANTED)
    # --no-tree: what debug_kernel.sh leaves of the kernel is no whole tree, and no check of a single file needs one.
    command = ["perl", source / "scripts/checkpatch.pl", "--strict", "--no-tree", f"--root={source}", "--terse",
               "--show-types", "--no-summary", "--color=never", "-f"]
    log, names = checkout.log("checkpatch"), list(ours)
    parts = {f"part {i}": [*command, *names[i::host.cpus()], planted] for i in range(host.cpus())}
    findings = []
    for status, text in in_parallel(place, parts, log, cwd=f"{PRIVATE}/checkpatch").values():
        if status not in (0, 1):  # 1: there are findings; a file that it cannot read ends it
            raise say.failed_with_log("checkpatch", log)
        findings += judged("checkpatch", text.splitlines(), log)
    for name, path in ours.items():
        findings = [line.replace(f"{name}:", f"{path.relative_to(checkout.TOP)}:", 1) for line in findings]
    return Result("checkpatch", len(ours), len({line.split(":")[0] for line in findings}), findings)


# ---------------------------------------------------------------- Coccinelle

# Two rules are partly written in OCaml, whose compiler the root has not.
NEED_OCAML = {"null/badzero.cocci": "a pointer compared with 0, of which sparse warns",
              "api/check_bq27xxx_data.cocci": "about a table in one driver, of batteries"}
# What Coccinelle must be told to be able to read on: it expands no macro that it does not know.
MACROS = """\
#define UVERBS_HANDLER(id) handler_of_the_method
#define KH_USER_CQ_OPS
#define KH_REG_USER_MR_OP
#define KH_FILL_RES_SRQ_OP
"""
# And what of ours it cannot read in spite of that, in which no rule could find anything.
UNREADABLE = ("static inline struct kh_##type *to_kh_##type(struct ib_##type *p)",)  # a macro that makes functions


def read_coccicheck(text):
    """What `make coccicheck` says beside its preface, the command, and remarks of Coccinelle on the rule itself."""
    known = re.compile(r"|Please check for false positives in the output before submitting a patch\."
                       r"|When using \"patch\" mode, carefully review the patch before submitting it\."
                       r"|\S*/spatch -D report .*|warning: line \d+: should \w+ be a metavariable\?")
    return [line for line in text.splitlines() if not known.fullmatch(line)]


def read_parse(text):
    """The places at which Coccinelle gave up on a function or a table, and how many files it has read."""
    files = re.search(r"^NB total files = (\d+);", text, re.M)
    given_up = [line.removeprefix("BAD:!!!!! ").strip(" \t\\") for line in text.splitlines()
                if line.startswith("BAD:!!!!!")]
    return int(files[1]) if files else 0, given_up


def coccinelle(place, source):
    """Every rule of the kernel's scripts/coccinelle on the module and its tests, as `make coccicheck` does it."""
    copy, seen = place.directory / "coccinelle", f"{PRIVATE}/coccinelle"
    for name in ("kernel", "uapi"):
        shutil.copytree(checkout.TOP / name, copy / name)
    (copy / PLANTED_NAME).write_text(PLANTED)
    (copy / "macros").write_text(MACROS)
    scripts = source / "scripts/coccinelle"
    rules = sorted(str(path.relative_to(scripts)) for path in scripts.rglob("*.cocci"))
    chosen = [rule for rule in rules if rule not in NEED_OCAML]
    macros = f"--macro-file {seen}/macros"
    jobs = {"": ["spatch", *macros.split(), "--parse-c", f"{seen}/kernel"]}
    jobs |= {rule: ["make", "-s", "-C", source.parent / "build", f"M={seen}", "MODE=report", f"COCCI={scripts / rule}",
                    f"J={host.cpus()}", f"SPFLAGS={macros} --tmp-dir /tmp/spatch", "coccicheck"] for rule in chosen}
    log = checkout.log("coccinelle")
    done = in_parallel(place, jobs, log)
    files, given_up = read_parse(done.pop("")[1])
    wanted = len(list((copy / "kernel").rglob("*.c")))
    if files != wanted:
        raise say.LabError(f"Coccinelle has read {files} of {wanted} files; its log: {log}")
    found = {"": [f"Coccinelle cannot read on from here: {line}" for line in given_up if line not in UNREADABLE]}
    for rule, (status, text) in done.items():
        found[rule] = [line.replace(f"{seen}/", "") for line in read_coccicheck(text)]
        if status != 0:
            found[rule].append(f"{rule}: status {status}")
    findings = judged("Coccinelle", [line for lines in found.values() for line in lines], log)
    faulty = sum(any(line in findings for line in lines) for lines in found.values())
    return Result("Coccinelle", len(found), faulty, findings, skipped=len(rules) - len(chosen),
                  note=f"{len(rules) - len(chosen)} rules need an OCaml compiler")


# ---------------------------------------------------------------- cppcheck

USER_SPACE = ("device", "userspace", "tests", "examples")
SUPPRESSIONS = pathlib.Path(__file__).with_name("cppcheck.suppressions")
# Compiled by a test, with other flags each time; its style is that of its time.
NOT_COMPILED = ("tests/native/exp/old_program.c",)
# Not `style`: most of it is taste (where a const could stand, which loop could be an algorithm), the rest clang-tidy's.
CPPCHECK = ["cppcheck", "--enable=warning,performance,portability", "--check-level=exhaustive", "--inline-suppr",
            "--library=googletest", "--error-exitcode=0", "--template={file}:{line}: {severity}: {message} [{id}]"]


def read_cppcheck(text):
    """What cppcheck says beside its progress."""
    known = re.compile(r"|Checking \S+ \.\.\.|Checking \S+: .*\.\.\.|\d+/\d+ files checked \d+% done")
    return [line for line in text.splitlines() if not known.fullmatch(line)]


def user_space_sources(compile_commands):
    """The entries of compile_commands.json for our own sources, each once, and those sources that have none."""
    ours = {str(path) for folder in USER_SPACE for suffix in ("c", "cc", "cpp")
            for path in (checkout.TOP / folder).rglob(f"*.{suffix}")}
    entries = {entry["file"]: entry for entry in json.loads(compile_commands.read_text()) if entry["file"] in ours}
    missing = {str(pathlib.Path(path).relative_to(checkout.TOP)) for path in ours - entries.keys()}
    return list(entries.values()), sorted(missing - set(NOT_COMPILED))


def cppcheck(place, _source):
    """cppcheck on device, provider, tests and examples, with the flags that each is compiled with."""
    entries, missing = user_space_sources(build.compile_commands(place))
    if missing:
        raise say.LabError(f"no build compiles {', '.join(missing)}")
    planted = place.directory / PLANTED_NAME
    planted.write_text(PLANTED)
    seen = f"{PRIVATE}/{PLANTED_NAME}"
    project = place.directory / "compile_commands.json"
    project.write_text(json.dumps([*entries, {"file": seen, "directory": PRIVATE, "command": f"cc -c {seen}"}]))
    cache = checkout.build_dir() / "cppcheck"
    cache.mkdir(exist_ok=True)
    log = checkout.log("cppcheck")
    (status, text), = in_parallel(place, {"": [*CPPCHECK, f"-j{host.cpus()}", f"--project={PRIVATE}/{project.name}",
                                               f"--cppcheck-build-dir={cache}",
                                               f"--suppressions-list={SUPPRESSIONS}"]}, log, cwd=checkout.TOP).values()
    if status != 0:
        raise say.failed_with_log("cppcheck", log)
    findings = [line.replace(f"{checkout.TOP}/", "") for line in judged("cppcheck", read_cppcheck(text), log)]
    return Result("cppcheck", len(entries), len({line.split(":")[0] for line in findings}), findings)


def run(tools, place, source):
    """Runs the tools, one after the other; returns their results. `source` is the kernel's, as a path."""
    results = []
    for tool in tools:
        start = time.monotonic()
        try:
            with say.step(f"static analysis: {tool.__name__}"):
                result = tool(place, source)
        except say.LabError as error:
            say.note(str(error))
            result = Result(tool.__name__, looked_at=1, faulty=1, note=error.summary())
        for line in result.findings:
            say.note(line)
        result.seconds = time.monotonic() - start
        results.append(result)
    return results
