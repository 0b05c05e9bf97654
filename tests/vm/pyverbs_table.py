#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's pyverbs tests on the first adapter, as a table, against what Soft-RoCE reaches.

One process for each test class, since the clean-up of a failed test can take its process with it. Each is forked from
this one, which has read all tests and touched no device: the reading takes longer than most classes. Vendors'
own tests are left out. A class passes if nothing in it failed and it passed at least as many tests as
MINIMUM says: a test that is skipped where Soft-RoCE runs it is a failure here.

  pyverbs_table.py [CLASS ...]
"""

import gc
import gzip
import importlib
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import traceback
import unittest

import guest

SOURCE = pathlib.Path("/usr/share/doc/rdma-core/tests")
WORK = pathlib.Path("/tmp/pyverbs")
VENDORS = ("mlx5", "efa", "irdma", "cuda")
TIMEOUT = 180

# Class: how many tests pass with Soft-RoCE on the same kernel, and more where it skips what we have.
MINIMUM = {
    "test_addr.AHTest": 3,
    "test_atomic.AtomicTest": 7,
    "test_cq.CQAPITest": 3,
    "test_cq.CQTest": 1,
    "test_cq_events.CqEventsTestCase": 2,
    "test_cqex.CQEXAPITest": 2,
    "test_cqex.CqExTestCase": 2,
    "test_device.DeviceTest": 14,
    "test_mr.MRTest": 6,
    "test_mr.MWTest": 7,
    "test_parent_domain.ParentDomainTrafficTest": 3,
    "test_pd.PDTest": 4,
    "test_qp.QPTest": 21,
    "test_qpex.QpExTestCase": 20,
    "test_rdmacm.CMTestCase": 10,
    "test_relaxed_ordering.RoTestCase": 2,
    "test_srq.SrqTestCase": 3,
}
# What an older kernel cannot: class, how many pass there, how many must ask for what it does not know.
# Before 6.2 there is no FLUSH, whose rights every RC test of these classes wants for its queue pair, whatever it does then.
# (On newer kernels that of SharedPDTestCase comes as far as the import of a device, and is skipped there.)
OLDER = {"6.1": {"test_qpex.QpExTestCase": (7, 11), "test_shared_pd.SharedPDTestCase": (0, 1)}}
MAY_FAIL = re.compile(r"DmaBuf|Cuda")  # CUDA and dma-buf need another device


def unpack():
    """Debian ships the tests as documentation, compressed where they are large."""
    (WORK / "tests").mkdir(parents=True, exist_ok=True)
    for path in SOURCE.iterdir():
        name = path.name.removesuffix(".gz")
        if name.startswith("test_") and any(vendor in name for vendor in VENDORS):
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (WORK / "tests" / name).write_bytes(data)


def load(adapter):
    """The package of the tests, with its settings in place; nothing has run yet."""
    sys.path[:0] = [str(WORK), str(WORK / "tests")]
    ours = sys.argv
    # It reads its settings from the command line as run_tests.py has it.
    sys.argv = ["run_tests.py", "--dev", adapter.device, "--port", "1", "--gid", str(adapter.gid_index)]
    importlib.import_module("args_parser").parser.parse_args()
    tests = importlib.import_module("tests")
    sys.argv = ours
    return tests


def classes(tests):
    found = {}
    for module in tests.__test_modules__:
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            for case in suite:
                found[case.id().removeprefix("tests.").rpartition(".")[0]] = None
    if not found:
        raise SystemExit("there are no pyverbs tests")
    return list(found)


def run_in_child(tests, name, output):
    """Of a process that was forked for it. Does not return."""
    status = 2
    try:
        os.setsid()  # so that what it starts ends with it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        os.chdir(WORK)
        suite = unittest.defaultTestLoader.loadTestsFromName(name, tests)
        status = int(not unittest.TextTestRunner(sys.stderr, verbosity=2).run(suite).wasSuccessful())
        gc.collect()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(child, timeout):
    """The child's status; None when it did not end in time, and was killed with all that it had started."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run_class(tests, name):
    """Runs one class; returns (passed, failed, skipped, output)."""
    timeout = TIMEOUT * guest.PATIENCE
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            run_in_child(tests, name, file)
        status = wait(child, timeout)
        file.seek(0)
        output = file.read() + ("" if status is not None else f"\n(no end after {timeout} s)")
    ran = re.search(r"^Ran (\d+) tests? in", output, re.M)
    if not ran:  # it crashed or hung: what had not been reported by then has failed, one at least
        passed = len(re.findall(r"\.\.\. ok$", output, re.M))
        skipped = len(re.findall(r"\.\.\. skipped", output))
        return passed, 1, skipped, f"{output}\n(status {status}, no summary)"

    def count(word):
        found = re.search(rf"\b{word}=(\d+)", output[ran.end():])
        return int(found.group(1)) if found else 0

    skipped, failed = count("skipped"), count("failures") + count("errors")
    return int(ran.group(1)) - skipped - failed, failed, skipped, output


def main():
    unpack()
    tests = load(guest.adapters(wanted=1)[0])
    chosen = sys.argv[1:]
    log = guest.SHARED / "pyverbs.log"
    rows, total, bad = [], {"passed": 0, "failed": 0, "skipped": 0}, False
    with open(log, "w") as file:
        names = [n for n in classes(tests) if not chosen or any(c in n for c in chosen)]
        missing = [n for n in MINIMUM if n not in names and not chosen]
        for name in [*names, *missing]:
            start = time.monotonic()
            passed, failed, skipped, output = run_class(tests, name) if name in names else (0, 0, 0, "no such class")
            older = OLDER.get(os.environ.get("KEYHOLE_KERNEL"), {})
            wanted, lacking = older.get(name, (MINIMUM.get(name, 0), 0))
            lacking = min(lacking, failed)
            failed, skipped = failed - lacking, skipped + lacking
            too_few = max(wanted - passed - failed, 0)
            exempt = bool(MAY_FAIL.search(name))
            wrong = not exempt and (failed > 0 or passed < wanted)
            bad |= wrong
            total["passed"] += passed
            total["failed"] += 0 if exempt else failed + too_few
            total["skipped"] += skipped - too_few + (failed if exempt else 0)
            rows.append([name, passed, failed, skipped, wanted or "-", "FAIL" if wrong else "ok",
                         f"{time.monotonic() - start:.0f} s"])
            file.write(f"==== {name}\n{output}\n")
            file.flush()
            print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped"
                  + (f", of at least {wanted}" if passed < wanted else ""), flush=True)
            if wrong:
                print("\n".join(f"    {line}" for line in interesting(output)), flush=True)
    print()
    guest.table(["pyverbs class", "passed", "failed", "skipped", "at least", "result", "took"], rows)
    guest.record("pyverbs", **total)
    return 1 if bad else 0


def interesting(output):
    """Skips with their reasons, and the end of each traceback."""
    lines = output.splitlines()
    kept = [line for line in lines if re.search(r"\.\.\. (skipped|FAIL|ERROR)|^(ERROR|FAIL):|Error\b|^\(", line)]
    return (kept or lines)[-40:]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
