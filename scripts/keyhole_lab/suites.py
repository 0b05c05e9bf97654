# SPDX-License-Identifier: BSD-2-Clause
"""What `lab test` runs, from the fast to the real, and how it is counted.

A suite that cannot run is a failure, never a skip: a test that did not run has shown nothing. Each has a
time limit. The order is that of the cost of a failure: what takes seconds comes first.
"""

import dataclasses
import functools
import time
import xml.etree.ElementTree

from . import build, checkout, fuzz, kernel, root, say, splats, user_space, vm


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


def native(context, variant, title, definition=root.LAB):
    """The native tests (ctest) of one build variant."""
    with context.new_room(definition=definition) as place, build.build_lock():
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


def fuzzers(context):
    """Each fuzzer of tests/fuzz for a while, its corpus first."""
    with context.new_room(fuzz.shown()) as place:
        with build.build_lock():
            fuzz.prepare(place, fuzz.TARGETS)
        results = fuzz.run(place, fuzz.TARGETS, fuzz.SECONDS)
    return [Count(f"fuzzer: {r.target}", passed=int(not r.failed), failed=int(r.failed), seconds=r.seconds, note=r.note)
            for r in results]


def threads(context):
    """The provider's threads under ThreadSanitizer."""
    target = "provider_threads_test"
    with context.new_room() as place, build.build_lock():
        build.native(place, "tsan", only=[target])
        report = build.native_dir("tsan") / f"{target}.xml"
        report.unlink(missing_ok=True)
        status = 0
        with say.step("threads under ThreadSanitizer"):
            try:
                place.run_logged([build.native_dir("tsan") / "tests/native/provider_threads" / target,
                                  f"--gtest_output=xml:{report}"], checkout.log("tsan"), "the tests of threads",
                                 environment={"TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1"}, timeout=600)
            except say.LabError as error:
                say.note(str(error))
                status = 1
    count = junit(report, "threads, TSan")
    count.failed = count.failed or status
    return [count]


def module(context):
    """The module's build: no warning at W=1, nothing from sparse."""
    with context.new_room() as place, build.build_lock():
        build.module(place, kernel.stock(root.ensure()), warnings=True, sparse=True)
    return [Count("module: W=1 and sparse", passed=1)]


def guest(context, chosen, script, title, timeout, memory, definition=root.LAB):
    """A script of tests/vm, with its arguments, in a VM; its parts leave their counts behind."""
    program, *arguments = script.split()
    machine = vm.Machine(chosen, memory=memory)
    with user_space.session(context, machine, f"test-{chosen.name}", definition) as session:
        with say.step(f"{title}: a VM with {chosen.title}"):
            result = session.run(
                ["python3", str(checkout.TOP / "tests/vm" / program), *arguments], checkout.TOP, timeout=timeout)
    counts = [Count(f"{title}: {s['suite']}", s["passed"], s["failed"], s["skipped"], s.get("seconds", 0),
                    s.get("note", "")) for s in result.suites]
    counts.append(log_is_clean(result, chosen, title))
    if result.timed_out or not result.dmesg:
        say.note(f"the end of the console ({result.console}):\n{say.tail(result.console)}")
        counts.append(Count(f"{title}: boot to end", failed=1,
                            note=f"ended after {say.seconds(timeout)}" if result.timed_out else f"the VM died, status {result.status}"))
    elif result.status not in (0, 1) or (result.status and not any(c.failed for c in counts)):
        counts.append(Count(f"{title}: exit status", failed=1, note=f"status {result.status}"))
    return counts


def other_kernel(context, name, script):
    """Debian's kernel of another suite: the module's build without a warning, then `script` in a VM."""
    chosen = kernel.named(name, root.ensure(), context.new_room)
    with context.new_room(chosen.shown) as place, build.build_lock():
        build.module(place, chosen, warnings=True)
    title = f"kernel {name}"
    return [Count(f"{title}: module, W=1", passed=1),
            *guest(context, chosen, script, title, 3000 if "--all" in script else 1200, 1536)]


def bookworm(context):
    """Debian 12: its g++ and rdma-core build everything and pass the native tests; its programs run on its kernel."""
    chosen = kernel.named("6.1", root.ensure(), context.new_room)
    return [*native(context, user_space.VARIANT, "native tests, Debian 12", root.BOOKWORM),
            *guest(context, chosen, "on_bookworm.py", "Debian 12", 1200, 1536, root.BOOKWORM)]


def log_is_clean(result, chosen, title):
    """The kernel's log as a test: the guest's own copy and what reached the console."""
    log = result.dmesg + result.console.read_text(errors="replace")
    found = splats.found(log)
    if found:
        say.note(f"the kernel complained:\n{splats.excerpt(log)}")
    return Count(f"{title}: kernel log", passed=0 if found else 1, failed=1 if found else 0,
                 note=found[0][:60] if found else "")


# What runs when no suite is named. `debug-all` takes as long as all of these together, and is asked for by name,
# as are those that run everything on a kernel that is usually tested in brief.
USUAL = ("native", "asan", "tsan", "fuzz", "module", "stock", "debug", *kernel.SUITES)


def all_suites(context):
    return {
        "native": lambda: native(context, "plain", "native tests"),
        "asan": lambda: native(context, "asan", "native tests, ASan+UBSan"),
        "tsan": lambda: threads(context),
        "fuzz": lambda: fuzzers(context),
        "module": lambda: module(context),
        "stock": lambda: guest(context, kernel.stock(root.ensure()), "on_stock.py", "stock kernel", 1200, 1536),
        "debug": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py",
                               "debug kernel", 1800, 2048),
        "debug-all": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py --all",
                                   "debug kernel, all", 3000, 2048),
    } | {
        f"{name}{'-all' if more else ''}": functools.partial(other_kernel, context, name, f"on_other.py{more}")
        for name in kernel.SUITES for more in ("", " --all")
    } | {"bookworm": lambda: bookworm(context)}


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
