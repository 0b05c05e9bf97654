#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The main job of `lab run`: RDMA programs, most of which nobody here wrote, between the two adapters.

First what needs both adapters in one process (memory windows, our own examples), then the guest becomes two hosts
(guest.two_hosts) and each program runs as it would between two machines: its server on one, its client
on the other, the TCP exchange that sets it up over the adapters' own Ethernet.
"""

import os
import re
import sys

import guest
from guest import Outcome, pair, run


def figure(pattern, text, form="{}"):
    found = re.search(pattern, text)
    return form.format(*found.groups()) if found else ""


def perftest_figure(text, column):
    """A column of the last data row that perftest printed."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+\d", line)]
    return rows[-1][column] if rows and len(rows[-1]) > column else ""


def perftest(server, client, words, port, column, timeout):
    """Runs a perftest program between two adapters; its outcome, and a column of the client's last row, "" if none.

    perftest works out how long a tick of the processor's counter is. Where the machine was too uneven for that it prints
    `inf` for times and 0.00 for rates. Then nothing is known, and it is run again.
    """
    words = [*words, "-F", "-p", port]
    for _ in range(5):
        outcome = pair(server, client, [*words, "-d", server.device, "-x", server.gid_index],
                       [*words, "-d", client.device, "-x", client.gid_index, server.address], port=port, timeout=timeout)
        said = outcome.text.split("server (status")[0]
        if not (outcome.passed and re.search(r"^\s*\d+\s+\d+\s+(inf\b|0\.00\s+0\.00\s)", said, re.M)):
            return outcome, perftest_figure(said, column)
        print(f"{words[0]} could not measure time", flush=True)
    return outcome, ""


class Job:
    def __init__(self):
        self.rows = []
        self.failed = []

    def report(self, name, outcome: Outcome, value=""):
        # A program that says it succeeded and printed no figure did not do what it is here for.
        passed = outcome.passed and value != ""
        self.rows.append([name, "pass" if passed else "FAIL", value or "-", f"{outcome.seconds:.1f} s"])
        print(f"{name:18} {'pass' if passed else 'FAIL'}  {value}", flush=True)
        if not passed:
            self.failed.append(name)
            print("\n".join(f"    {line}" for line in outcome.text.splitlines()[-150:]), flush=True)


def devinfo(job, adapters):
    outcome = run(["ibv_devinfo", "-v"])
    active = len(re.findall(r"\sstate:\s+PORT_ACTIVE", outcome.text))
    seen = [a.device for a in adapters if re.search(rf"hca_id:\s*{re.escape(a.device)}\b", outcome.text)]
    if active < 2 or len(seen) < 2:
        outcome.passed = False
    job.report("ibv_devinfo", outcome, f"{active} ports active: {', '.join(seen)}")


def windows(job, adapters):
    one, two = adapters
    outcome = run([str(guest.BUILD / "plain/tests/vm/windows"), one.device, str(one.gid_index), two.device,
                   str(two.gid_index)], timeout=120)
    if outcome.passed:
        print("\n".join(f"    {line}" for line in outcome.text.splitlines()), flush=True)
    job.report("memory windows", outcome, figure(r"(\d+ checks)", outcome.text))


EXAMPLES = [
    # name, what a line that counts looks like, what such lines are
    ("column_write", r"^column \d+: 1 WRITE", "columns, a WRITE each"),
    ("revocable_buffer", r"remote access error", "accesses refused"),
    ("ud_request", r"^client: \".*42\" from QP", "reply"),
]


def examples(job, adapters):
    one, two = adapters
    for name, pattern, what in EXAMPLES:
        if name == "column_write" and os.environ.get("KEYHOLE_HCA") == "rxe":
            continue  # it uses direct verbs
        outcome = run([str(guest.BUILD / "plain/examples" / name), one.device, str(one.gid_index), two.device,
                       str(two.gid_index)])
        print("\n".join(f"    {line}" for line in outcome.text.splitlines()), flush=True)
        count = len(re.findall(pattern, outcome.text, re.M))
        job.report(name, outcome, f"{count} {what}" if count else "")


def pingpongs(job, server, client):
    for kind, port in (("rc", 18601), ("uc", 18602), ("ud", 18603)):
        options = ["-p", port, "-n", 1000] + (["-s", 1024] if kind == "ud" else [])
        program = ["stdbuf", "-oL", f"ibv_{kind}_pingpong"]  # so that one that has to be ended has said how far it came
        outcome = pair(server, client, [*program, "-d", server.device, "-g", server.gid_index, *options],
                       [*program, "-d", client.device, "-g", client.gid_index, *options, server.address], port=port)
        job.report(f"ibv_{kind}_pingpong", outcome, figure(r"iters in .* = ([\d.]+) usec/iter", outcome.text.split("server")[0],
                                                           "{} us/iter"))


def rping(job, server, client):
    count = 100
    outcome = pair(server, client, ["rping", "-s", "-a", server.address, "-C", count, "-V"],
                   ["rping", "-c", "-a", server.address, "-I", client.address, "-C", count, "-V", "-v"])
    pings = len(re.findall(r"ping data: rdma-ping-", outcome.text))
    outcome.passed = outcome.passed and pings >= count
    job.report("rping", outcome, f"{pings} pings, data verified" if pings else "")


PERFTEST = [
    # name, options, column of the figure, unit
    ("ib_write_bw", ["-s", 65536, "-n", 2000], 3, "MB/s"),
    ("ib_read_bw", ["-s", 65536, "-n", 2000], 3, "MB/s"),
    ("ib_send_lat", ["-s", 64, "-n", 2000], 4, "us typical"),
    ("ib_atomic_bw", ["-n", 2000], 3, "MB/s"),
]


def perftests(job, server, client):
    for number, (name, options, column, unit) in enumerate(PERFTEST):
        outcome, figure = perftest(server, client, [name, *options], 18610 + number, column, timeout=90)
        job.report(name, outcome, f"{figure} {unit}" if figure else "")


def main():
    job = Job()
    both = guest.adapters(wanted=2)
    if len(both) < 2:
        print(f"two adapters with an IPv4 GID are needed, there are {len(both)}")
        return 1
    devinfo(job, both)
    windows(job, both)
    examples(job, both)
    client, server = guest.two_hosts()
    pingpongs(job, server, client)
    rping(job, server, client)
    perftests(job, server, client)

    print()
    guest.table(["program", "result", "figure", "took"], job.rows)
    guest.record("main job", len(job.rows) - len(job.failed), len(job.failed))
    return 1 if job.failed else 0


if __name__ == "__main__":
    sys.exit(main())
