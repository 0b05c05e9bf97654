# SPDX-License-Identifier: BSD-2-Clause
"""The fuzzers of tests/fuzz: how they are run, for how long, and what is left of a find.

Each has a seed corpus in the tree, which is run first, and one that grows in the cache, shared by all checkouts
and kept between runs. An input that makes a fuzzer fail is saved beside the logs.
"""

import dataclasses
import re
import subprocess
import time

from . import build, checkout, host, room, say

TARGETS = ("vfio_user", "admin", "queues", "frames")
AT_ONCE = 2
FOREVER = 0         # of libFuzzer's -max_total_time
GRACE = 120         # seconds for the corpus before and the clean-up after

OPTIONS = ["-max_len=4096", "-len_control=0", "-timeout=25", "-rss_limit_mb=2048", "-print_final_stats=1"]
ENVIRONMENT = {"ASAN_OPTIONS": "allocator_may_return_null=1:quarantine_size_mb=64:"
                               "allow_addr2line=1:external_symbolizer_path=/usr/bin/addr2line",
               "UBSAN_OPTIONS": "print_stacktrace=1"}


@dataclasses.dataclass
class Result:
    target: str
    failed: bool
    note: str
    seconds: float


def seeds(target):
    return checkout.TOP / "tests/fuzz/corpus" / target


def grown(target):
    directory = host.cache_dir() / "corpus" / target
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def finds():
    directory = checkout.build_dir() / "logs" / "fuzz"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def shown():
    """What a room has to show for a fuzzer to run in it."""
    (host.cache_dir() / "corpus").mkdir(parents=True, exist_ok=True)
    return [room.Shown(host.cache_dir() / "corpus")]


def prepare(place, targets):
    build.native(place, "fuzz", only=[f"fuzz_{target}" for target in targets])


def program(target):
    return build.native_dir("fuzz") / "tests/fuzz" / f"fuzz_{target}"


def command(target, seconds):
    return [program(target), *OPTIONS, f"-max_total_time={seconds}", f"-artifact_prefix={finds()}/{target}-",
            grown(target), seeds(target)]


def run(place, targets, seconds):
    """Runs the targets, some at once, each for so many seconds; returns their results."""
    waiting, running, results = list(targets), [], []
    with say.step(f"fuzzing {', '.join(targets)} for {say.seconds(seconds)} each"):
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                target = waiting.pop(0)
                log = checkout.log(f"fuzz-{target}")
                log.parent.mkdir(parents=True, exist_ok=True)
                with open(log, "wb") as out:
                    process = place.start(command(target, seconds), environment=ENVIRONMENT, cwd=finds(),
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          start_new_session=True)
                running.append((target, process, log, time.monotonic()))
            time.sleep(0.2)
            for entry in list(running):
                target, process, log, start = entry
                late = time.monotonic() - start > seconds + GRACE
                if process.poll() is None and not late:
                    continue
                process.kill()
                process.wait()
                running.remove(entry)
                results.append(result(target, log, process.returncode, time.monotonic() - start, late))
    return results


def result(target, log, status, seconds, late):
    """What a fuzzer's log says: executions, coverage; of a find, where its input is."""
    text = log.read_text(errors="replace")
    executed = re.findall(r"^stat::number_of_executed_units: (\d+)", text, re.M)
    covered = re.findall(r"\bcov: (\d+) ft: (\d+)", text)
    note = f"{executed[-1] if executed else 'no'} runs, {covered[-1][0] if covered else 'no'} edges"
    # No run, no edge: then it has not fuzzed, whatever its status.
    failed = status != 0 or late or not executed or not covered
    if failed:
        saved = re.findall(r"Test unit written to (\S+)", text)
        say.note(f"fuzzer {target}: " + ("did not end" if late else f"status {status}") + f". The end of its log:\n"
                 f"{say.tail(log, 60)}\nThe whole log: {log}"
                 + (f"\nThe input: {saved[-1]}\nOnce more: lab fuzz {target} --input {saved[-1]}" if saved else ""))
    return Result(target, failed, note, seconds)


def command_line(new_room, targets, seconds, given):
    """`lab fuzz`: some targets for as long as one asks, or one input once more."""
    if given is not None:
        if len(targets) != 1:
            raise say.LabError("--input is for one fuzzer: name it")
        if not given.is_file():
            raise say.LabError(f"there is no file {given}")
        with new_room([*shown(), room.Shown(given.resolve().parent)]) as place, build.build_lock():
            prepare(place, targets)
            return place.run([program(targets[0]), "-timeout=25", given.resolve()], environment=ENVIRONMENT,
                             cwd=finds())
    targets = targets or list(TARGETS)
    with new_room(shown()) as place:
        with build.build_lock():
            prepare(place, targets)
        if len(targets) == 1:
            # The person watches.
            return place.run(command(targets[0], seconds), environment=ENVIRONMENT, cwd=finds())
        if seconds == FOREVER:
            raise say.LabError("several fuzzers need an end: lab fuzz --seconds N, or name one")
        results = run(place, targets, seconds)
    say.table(["fuzzer", "", ""], [[r.target, "failed" if r.failed else "ok", r.note] for r in results])
    return 1 if any(r.failed for r in results) else 0
