#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Debian's pyverbs tests on the first adapter, as a table, against what Soft-RoCE reaches.

One process for each test class, since the clean-up of a failed test can take its process with it. Vendors'
own tests are left out. A class passes if nothing in it failed and it passed at least as many tests as
MINIMUM says: a test that is skipped where Soft-RoCE runs it is a failure here.

  pyverbs_table.py [CLASS ...]
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys
import time

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
# Before 6.2 there is no FLUSH, whose rights every RC test of this class wants for its queue pair, whatever it does then.
OLDER = {"6.1": {"test_qpex.QpExTestCase": (7, 11)}}
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


def classes():
    listing = subprocess.run([sys.executable, "tests/run_tests.py", "--list-tests"], cwd=WORK, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    found = []
    for name in re.findall(r"^\s*tests\.(test_\w+\.\w+)\.\w+", listing, re.M):
        if name not in found:
            found.append(name)
    if not found:
        raise SystemExit(f"the pyverbs tests cannot be listed:\n{listing}")
    return found


def run_class(name, adapter):
    """Runs one class; returns (passed, failed, skipped, output)."""
    command = [sys.executable, "tests/run_tests.py", "--dev", adapter.device, "--port", "1",
               "--gid", str(adapter.gid_index), "-v", f"tests.{name}"]
    timeout = TIMEOUT * guest.PATIENCE
    try:
        done = subprocess.run(command, cwd=WORK, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace") + f"\n(no end after {timeout} s)"
        status = None
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
    adapter = guest.adapters(wanted=1)[0]
    chosen = sys.argv[1:]
    log = guest.SHARED / "pyverbs.log"
    rows, total, bad = [], {"passed": 0, "failed": 0, "skipped": 0}, False
    with open(log, "w") as file:
        names = [n for n in classes() if not chosen or any(c in n for c in chosen)]
        missing = [n for n in MINIMUM if n not in names and not chosen]
        for name in [*names, *missing]:
            start = time.monotonic()
            passed, failed, skipped, output = run_class(name, adapter) if name in names else (0, 0, 0, "no such class")
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
