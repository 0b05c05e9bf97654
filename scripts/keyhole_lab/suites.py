# SPDX-License-Identifier: BSD-2-Clause
"""What `lab test` runs, from the fast to the real, and how it is counted.

A suite that cannot run is a failure, never a skip: a test that did not run has shown nothing. Each has a
time limit. The order is that of the cost of a failure: what takes seconds comes first.
"""

import dataclasses
import functools
import time
import xml.etree.ElementTree

from . import analysis, build, checkout, coverage, fuzz, kernel, root, say, splats, tidy, user_space, vm


@dataclasses.dataclass(frozen=True)
class Tier:
    """How much of what has no end of its own. Every count is here, and reaches the guest as KEYHOLE_<NAME>."""
    kills: int          # of processes at random moments
    cycles: int         # of making and unmaking every object
    fuzz_seconds: int   # for each fuzzer and each random driver

    def settings(self):
        return {f"KEYHOLE_{name.upper()}": value for name, value in dataclasses.asdict(self).items()}


# In full on Debian's own kernel; in brief on others, of which the debug kernel takes ten times as long for each.
FULL, BRIEF = Tier(kills=20, cycles=50, fuzz_seconds=60), Tier(kills=5, cycles=5, fuzz_seconds=20)
LONG = {FULL: Tier(kills=200, cycles=1000, fuzz_seconds=600), BRIEF: Tier(kills=50, cycles=100, fuzz_seconds=600)}


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
    long: bool = False    # more of everything: LONG
    counts: list = dataclasses.field(default_factory=list)
    failures: list = dataclasses.field(default_factory=list)  # what failed, and the end of what it said


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
    count = junit(context, report, title)
    count.failed = count.failed or status
    return [count]


def junit(context, path, title):
    """Counts of a JUnit report as ctest writes it, and GoogleTest."""
    if not path.exists():
        return Count(title, failed=1, note="no report")
    count = Count(title)
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            count.failed += 1
            said = case.findtext("system-out") or case.find("failure").get("message") or ""
            context.failures.append((f"{title}: {case.get('name')}", said))
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
        results = fuzz.run(place, fuzz.TARGETS, (LONG[FULL] if context.long else FULL).fuzz_seconds)
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
    count = junit(context, report, "threads, TSan")
    count.failed = count.failed or status
    return [count]


def module(context):
    """The module's build: no warning at W=1, nothing from sparse. For the kernel with KUnit, so of its tests too."""
    chosen = kernel.debug(root.ensure(), context.new_room)
    with context.new_room(chosen.shown) as place, build.build_lock():
        build.module(place, chosen, warnings=True, sparse=True)
    return [Count("module: W=1 and sparse", passed=1)]


ANALYSERS = (analysis.checkpatch, analysis.coccinelle, analysis.cppcheck)


def static(context):
    """The static analysers. What passes is a file, or a rule, that has no finding; what fails, a finding."""
    chosen = kernel.debug(root.ensure(), context.new_room)  # its source has the kernel's analysers
    with context.new_room(chosen.shown) as place, build.build_lock():
        last = tidy.clang_tidy_on_all if context.long else tidy.clang_tidy
        results = analysis.run((*ANALYSERS, last), place, kernel.debug_dir(root.ensure()) / "source")
    return [Count(f"static: {r.tool}", passed=r.looked_at - r.faulty, failed=max(r.faulty, len(r.findings)),
                  skipped=r.skipped, seconds=r.seconds, note=r.note) for r in results]


def guest(context, chosen, script, title, timeout, memory, tier=BRIEF, definition=root.LAB):
    """A script of tests/vm, with its arguments, in a VM; its parts leave their counts behind."""
    program, *arguments = script.split()
    tier = LONG[tier] if context.long else tier
    timeout = timeout * 3 if context.long else timeout
    machine = vm.Machine(chosen, memory=memory, settings=tier.settings())
    with user_space.session(context, machine, f"test-{chosen.name}", definition) as session:
        with say.step(f"{title}: a VM with {chosen.title}"):
            result = session.run(
                ["python3", str(checkout.TOP / "tests/vm" / program), *arguments], checkout.TOP, timeout=timeout)
    counts = [Count(f"{title}: {s['suite']}", s["passed"], s["failed"], s["skipped"], s.get("seconds", 0),
                    s.get("note", "")) for s in result.suites]
    counts.append(log_is_clean(result, chosen, title))
    context.failures += [(f"{title}: {failure['program']}", failure["said"]) for failure in result.failures]
    if result.timed_out or not result.dmesg:
        say.note(f"the VM ended too early. {result.last_words()}\nLogs: {result.console}, {result.keyholed}")
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
            *guest(context, chosen, "on_bookworm.py", "Debian 12", 1200, 1536, definition=root.BOOKWORM)]


def log_is_clean(result, chosen, title):
    """The kernel's log as a test: the guest's own copy and what reached the console."""
    log = result.dmesg + result.console.read_text(errors="replace")
    found = splats.found(log)
    if found:
        say.note(f"the kernel complained:\n{splats.excerpt(log)}")
    return Count(f"{title}: kernel log", passed=0 if found else 1, failed=1 if found else 0,
                 note=found[0][:60] if found else "")


def module_coverage(context):
    """The lines of the module that ran in the boots so far, against the target."""
    chosen = kernel.debug(root.ensure(), context.new_room)
    with context.new_room(chosen.shown) as place:
        summary = coverage.merge(place, build.module_dir(chosen))
    percent = summary["line_percent"]
    say.note(f"the module's code: {summary['line_covered']} of {summary['line_total']} lines reached on the debug kernel "
             f"({percent} %; `lab coverage` lists the others)")
    reached = percent >= coverage.TARGET
    return Count("debug kernel: coverage", passed=int(reached), failed=int(not reached),
                 note=f"{percent} % of the module's lines, wanted {coverage.TARGET} %")


# What runs when no suite is named. `debug-all` takes as long as all of these together, and is asked for by name, as
# are those that run everything on a kernel that is usually tested in brief; with --long everything runs that there is.
USUAL = ("native", "asan", "tsan", "fuzz", "module", "static", "stock", "debug", *kernel.SUITES)
EVERYTHING = ("native", "asan", "tsan", "fuzz", "module", "static", "stock", "debug-all",
              *(f"{name}-all" for name in kernel.SUITES), "bookworm")


def all_suites(context):
    return {
        "native": lambda: native(context, "plain", "native tests"),
        "asan": lambda: native(context, "asan", "native tests, ASan+UBSan"),
        "tsan": lambda: threads(context),
        "fuzz": lambda: fuzzers(context),
        "module": lambda: module(context),
        "static": lambda: static(context),
        "stock": lambda: guest(context, kernel.stock(root.ensure()), "on_stock.py", "stock kernel", 1200, 1536,
                               FULL),
        "debug": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py",
                               "debug kernel", 2700, 2048),
        "debug-all": lambda: guest(context, kernel.debug(root.ensure(), context.new_room), "on_debug.py --all",
                                   "debug kernel, all", 3000, 2048),
    } | {
        f"{name}{'-all' if more else ''}": functools.partial(other_kernel, context, name, f"on_other.py{more}")
        for name in kernel.SUITES for more in ("", " --all")
    } | {"bookworm": lambda: bookworm(context)}


def run(context, chosen):
    """Runs the chosen suites (the usual ones where none is), prints the table, returns the exit status."""
    suites = all_suites(context)
    coverage.forget()
    for name in chosen or (EVERYTHING if context.long else USUAL):
        start = time.monotonic()
        try:
            counts = suites[name]()
        except say.LabError as error:
            say.note(str(error))
            counts = [Count(name, failed=1, note=error.summary())]
        if not any(c.seconds for c in counts):
            counts[0].seconds = time.monotonic() - start
        context.counts += counts
    if coverage.boots():
        try:
            context.counts.append(module_coverage(context))
        except say.LabError as error:
            say.note(str(error))
            context.counts.append(Count("debug kernel: coverage", failed=1, note=error.summary()))
    return summary(context)


SAID = 50   # lines of what failed


def summary(context):
    """The table of all suites, after what those said that failed: where only the end of an output is kept, it is there."""
    counts = context.counts
    for what, said in context.failures:
        print(f"\n---- failed: {what}\n" + "\n".join(said.splitlines()[-SAID:]))
    print()
    say.table(["suite", "tests", "passed", "failed", "skipped", "time", ""],
              [[c.suite, c.passed + c.failed + c.skipped, c.passed, c.failed, c.skipped,
                say.seconds(c.seconds) if c.seconds else "-", c.note] for c in counts])
    passed, failed, skipped = (sum(getattr(c, name) for c in counts) for name in ("passed", "failed", "skipped"))
    print()
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0
