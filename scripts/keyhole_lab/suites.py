# SPDX-License-Identifier: BSD-2-Clause
"""What `lab test` runs, from the fast to the real, and how it is counted.

A suite that cannot run is a failure, never a skip: a test that did not run has shown nothing. Each has a
time limit. The order is that of the cost of a failure: what takes seconds comes first.
"""

import dataclasses
import time
import xml.etree.ElementTree

from . import build, checkout, kernel, root, say, splats, vm


@dataclasses.dataclass
class Count:
    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    note: str = ""


@dataclasses.dataclass
class Context:
    new_room: object      # makes a room
    prepare: object       # builds and installs what a VM needs into a room
    counts: list = dataclasses.field(default_factory=list)


def native(context, variant, title):
    """The native tests (ctest) of one build variant."""
    with context.new_room() as place, build.build_lock():
        build.native(place, variant)
        report = build.native_dir(variant) / "tests.xml"
        report.unlink(missing_ok=True)
        log = checkout.log(f"ctest-{variant}")
        environment = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=1",
                       "UBSAN_OPTIONS": "print_stacktrace=1"}
        status = 0
        with say.step(f"native tests ({variant})"):
            try:
                place.run_logged(["ctest", "--test-dir", build.native_dir(variant), "-j2", "--timeout", "300",
                                  "--output-on-failure", "--output-junit", report, "--no-tests=error",
                                  # What needs what a room has not; `lab bench` runs the rest.
                                  "-LE", "guest|bench"],
                                 log, f"the native tests ({variant})", environment=environment, timeout=1500)
            except say.LabError as error:
                say.note(str(error))
                status = 1
    count = junit(report, title)
    count.failed = count.failed or status
    return [count]


def junit(path, title):
    """Counts of a JUnit report as ctest writes it."""
    if not path.exists():
        return Count(title, failed=1, note="no report")
    count = Count(title)
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            count.failed += 1
            say.note(f"failed: {case.get('name')}")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            count.skipped += 1
        else:
            count.passed += 1
    return count


def module(context):
    """The module's build: no warning at W=1, nothing from sparse."""
    with context.new_room() as place, build.build_lock():
        build.module(place, kernel.stock(root.ensure()), warnings=True, sparse=True)
    return [Count("module: W=1 and sparse", passed=1)]


def guest(context, chosen, script, title, timeout, memory):
    """A script of tests/vm, with its arguments, in a VM; its parts leave their counts behind."""
    program, *arguments = script.split()
    machine = vm.Machine(chosen, memory=memory)
    with context.new_room(chosen.shown) as place:
        context.prepare(place, machine)
        with say.step(f"{title}: a VM with {chosen.title}"):
            result = vm.Session(place, machine, f"test-{chosen.name}").run(
                ["python3", str(checkout.TOP / "tests/vm" / program), *arguments], checkout.TOP, timeout=timeout)
    counts = [Count(f"{title}: {s['suite']}", s["passed"], s["failed"], s["skipped"], s.get("seconds", 0),
                    s.get("note", "")) for s in result.suites]
    counts.append(log_is_clean(result, chosen, title))
    if result.timed_out or not result.dmesg:
        say.note(f"the VM ended too early. {result.last_words()}\nLogs: {result.console}, {result.keyholed}")
        counts.append(Count(f"{title}: boot to end", failed=1,
                            note=f"ended after {say.seconds(timeout)}" if result.timed_out else f"the VM died, status {result.status}"))
    elif result.status not in (0, 1) or (result.status and not any(c.failed for c in counts)):
        counts.append(Count(f"{title}: exit status", failed=1, note=f"status {result.status}"))
    return counts


def log_is_clean(result, chosen, title):
    """The kernel's log as a test: the guest's own copy and what reached the console."""
    log = result.dmesg + result.console.read_text(errors="replace")
    found = splats.found(log)
    if found:
        say.note(f"the kernel complained:\n{splats.excerpt(log)}")
    return Count(f"{title}: kernel log", passed=0 if found else 1, failed=1 if found else 0,
                 note=found[0][:60] if found else "")


# What runs when no suite is named. `debug-all` takes as long as all of these together, and is asked for by name.
USUAL = ("native", "asan", "module", "stock", "debug")


def all_suites(context):
    return {
        "native": lambda: native(context, "plain", "native tests"),
        "asan": lambda: native(context, "asan", "native tests, ASan+UBSan"),
        "module": lambda: module(context),
        "stock": lambda: guest(context, kernel.stock(root.ensure()), "on_stock.py", "stock kernel", 1200, 1536),
        "debug": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py",
                               "debug kernel", 1800, 2048),
        "debug-all": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py --all",
                                   "debug kernel, all", 3000, 2048),
    }


def run(context, chosen):
    """Runs the chosen suites (the usual ones where none is), prints the table, returns the exit status."""
    suites = all_suites(context)
    for name in chosen or USUAL:
        start = time.monotonic()
        try:
            counts = suites[name]()
        except say.LabError as error:
            say.note(str(error))
            counts = [Count(name, failed=1, note=error.summary())]
        if not any(c.seconds for c in counts):
            counts[0].seconds = time.monotonic() - start
        context.counts += counts
    return summary(context.counts)


def summary(counts):
    print()
    say.table(["suite", "tests", "passed", "failed", "skipped", "time", ""],
              [[c.suite, c.passed + c.failed + c.skipped, c.passed, c.failed, c.skipped,
                say.seconds(c.seconds) if c.seconds else "-", c.note] for c in counts])
    passed, failed, skipped = (sum(getattr(c, name) for c in counts) for name in ("passed", "failed", "skipped"))
    print()
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0
