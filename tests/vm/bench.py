#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Keyhole against Soft-RoCE in one boot, as ratios: perftest and the control path.

Keyhole runs between its two adapters; Soft-RoCE on a dummy network device, to itself, which is the shortest
way it has. Nothing else runs in the guest while one is measured. What is compared is measured in turn and several
times over, since a machine that others use is not the same from one minute to the next: the figures are medians, and
the ratio is the median of the ratios of the turns. What is wanted of a ratio stands beside it.
"""

import collections
import itertools
import re
import statistics
import subprocess
import sys
import time

import guest
from main_job import perftest

TURNS = 5

# name, perftest words, column of its table, unit, more is better, wanted ratio to Soft-RoCE
PERFTEST = [
    ("ib_write_bw 64 KiB", ["ib_write_bw", "-s", 65536, "-n", 3000], 3, "MB/s", True, 15),
    ("ib_write_bw 64 B", ["ib_write_bw", "-s", 64, "-n", 50000], 4, "M/s", True, 8),
    ("ib_read_bw 64 KiB", ["ib_read_bw", "-s", 65536, "-n", 3000], 3, "MB/s", True, 15),
    ("ib_send_lat 64 B", ["ib_send_lat", "-s", 64, "-n", 5000], 4, "us", False, 0.8),
]
CONTROL = [
    ("register + deregister 1 MiB", "mr_1mib_us", "us", False, 2),
    ("create + destroy AH", "ah_us", "us", False, 1),
    ("allocate + free MW", "mw_us", "us", False, None),
    ("type 1 bind, waited for", "type_1_bind_us", "us", False, None),
    ("type 1 binds, pipelined", "type_1_binds_per_second", "/s", True, 3),
]


def measure(server, client, port):
    """All figures of one pair of adapters, by name; those that failed are missing. Uses some ports from `port`."""
    figures = {}
    for number, (name, words, column, unit, *_) in enumerate(PERFTEST):
        outcome, value = perftest(server, client, words, port + number, column, timeout=180)
        if outcome.passed and value:
            figures[name] = float(value)
        else:
            print(outcome.text[-1500:], flush=True)
    outcome = guest.run([str(guest.BUILD / "plain/tests/vm/control_path"), client.device, str(client.gid_index)], 180)
    print(outcome.text if not outcome.passed else "", end="", flush=True)
    values = dict(re.findall(r"^(\w+) ([\d.]+)$", outcome.text, re.M))
    for name, key, *_ in CONTROL:
        if key in values:
            figures[name] = float(values[key])
    return figures


# Figure, unit, and what it is held against: another figure and the ratio wanted.
KEYS = [
    ("fill_4_inline", "/s", None, None),
    ("fill_64_inline", "/s", None, None),
    ("fill_4_list", "/s", None, None),
    ("fill_64_list", "/s", None, None),
    ("fill_1024_list", "/s", None, None),
    ("fill_4_and_invalidate", "/s", None, None),
    ("type_2_bind_and_invalidate", "/s", None, None),
    ("write_direct", "B/s", None, None),
    ("write_indirect_4k", "B/s", "write_direct", 0.85),
    ("write_scattered_4k", "B/s", "write_direct", 0.85),
    ("write_each_64b", "B/s", None, None),
    ("write_gathered_64b", "B/s", "write_each_64b", 3),
]


def keys(client, server):
    """Keyhole's own: what no standard verb does, against what it replaces."""
    outcome = guest.run([str(guest.BUILD / "plain/tests/vm/key_rates"), client.device, str(client.gid_index),
                         server.device, str(server.gid_index)], 180)
    print(outcome.text if not outcome.passed else "", end="", flush=True)
    figures = collections.defaultdict(list)
    for name, value in re.findall(r"^(\w+) ([\d.]+)$", outcome.text, re.M):
        figures[name].append(float(value))
    rows = []
    for name, unit, peer, wanted in KEYS:
        words = name.replace("_", " ")
        if name not in figures or (peer and peer not in figures):
            rows.append([words, "failed", "-", "-", "-", "MISSED"])
            continue
        ratio = ratio_of(figures[name], figures[peer]) if peer else None
        rows.append([words, f"{statistics.median(figures[name]):.3g} {unit}", peer.replace("_", " ") if peer else "-",
                     f"{ratio:.2f}" if peer else "-", f">= {wanted}" if wanted else "-",
                     verdict(not wanted or ratio >= wanted)])
    return rows


def ratio_of(ours, theirs):
    """Of figures that were measured in turn: the median of what each turn says."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def idle():
    """CPU share and anonymous memory of keyholed while the guest does nothing with it."""
    before, start = guest.ask("keyholed-usage"), time.monotonic()
    time.sleep(20)
    after = guest.ask("keyholed-usage")
    busy = (after["cpu_ticks"] - before["cpu_ticks"]) / after["ticks_per_second"] / (time.monotonic() - start)
    return [["keyholed idle, of a core", f"{100 * busy:.2f} %", "-", "-", "< 1 %", verdict(busy < 0.01)],
            ["keyholed anonymous memory", f"{after['anonymous_kb'] / 1024:.1f} MiB", "-", "-", "< 64 MiB",
             verdict(after["anonymous_kb"] < 64 * 1024)]]


def with_many_qps(device, count=10000):
    """Anonymous memory of keyholed while a process holds so many queue pairs, and after it has let go of them."""
    program = subprocess.Popen([guest.BUILD / "plain/tests/vm/many_qps", device, str(count)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = program.stdout.readline()
    held = guest.ask("keyholed-usage")["anonymous_kb"] / 1024
    rest, _ = program.communicate()
    left = guest.ask("keyholed-usage")["anonymous_kb"] / 1024
    good = said == "ready\n" and rest == "gone\n" and held < 64
    return [[f"the same, with {count} QPs", f"{held:.1f} MiB" if good or held >= 64 else said.strip(), "-", "-",
             "< 64 MiB", verdict(good)],
            ["the same, when they are gone", f"{left:.1f} MiB", "-", "-", "< 64 MiB", verdict(left < 64)]]


def verdict(good):
    return "ok" if good else "MISSED"


def soft_roce():
    for command in (["modprobe", "rdma_rxe"], ["modprobe", "dummy", "numdummies=0"],
                    ["ip", "link", "add", "soft0", "type", "dummy"], ["ip", "link", "set", "soft0", "up"],
                    ["ip", "address", "add", "192.168.76.1/24", "dev", "soft0"],
                    ["rdma", "link", "add", "soft0", "type", "rxe", "netdev", "soft0"]):
        outcome = guest.run(command)
        if not outcome.passed:
            raise SystemExit(f"{' '.join(command)}: {outcome.text}")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for adapter in guest.adapters():
            if adapter.device == "soft0":
                return adapter
        time.sleep(0.3)
    raise SystemExit("Soft-RoCE has no GID")


def main():
    client, server = guest.adapters(wanted=2)
    rows = idle() + with_many_qps(client.device)
    own = keys(client, server)
    soft = soft_roce()
    ports = itertools.count(18800, len(PERFTEST))
    turns = [(measure(server, client, next(ports)), measure(soft, soft, next(ports))) for _ in range(TURNS)]
    for name, unit, more, wanted in [(p[0], *p[3:]) for p in PERFTEST] + [(c[0], *c[2:]) for c in CONTROL]:
        ours, theirs = ([turn[side][name] for turn in turns if name in turn[side]] for side in (0, 1))
        if len(ours) != TURNS or len(theirs) != TURNS:
            rows.append([name, "failed" if len(ours) != TURNS else "-", "failed" if len(theirs) != TURNS else "-", "-", "-",
                         "MISSED"])
            continue
        ratio = ratio_of(ours, theirs)
        good = wanted is None or (ratio >= wanted if more else ratio <= wanted)
        rows.append([name, f"{statistics.median(ours):g} {unit}", f"{statistics.median(theirs):g} {unit}", f"{ratio:.2f}",
                     "-" if wanted is None else f"{'>=' if more else '<='} {wanted}", verdict(good)])
    print()
    guest.table(["in the guest", "Keyhole", "Soft-RoCE", "ratio", "wanted", ""], rows)
    print()
    guest.table(["keys, in the guest", "Keyhole", "against", "ratio", "wanted", ""], own)
    return 1 if any(row[-1] != "ok" for row in rows + own) else 0


if __name__ == "__main__":
    sys.exit(main())
