#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Keyhole against Soft-RoCE in one boot, as ratios: perftest, the control path, indirect mkeys.

Keyhole runs between its two adapters; Soft-RoCE on a dummy network device, to itself, which is the shortest
way it has. Each is alone in the guest while it is measured. What is wanted of a ratio stands beside it.
"""

import re
import subprocess
import sys
import time

import guest
from main_job import perftest_figure

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

# By tests/vm/key_rates, which Soft-RoCE has nothing to compare with: name, what it is, wanted
KEYS = [
    ("UMR fill, 4 entries inline", "umr_fill_4_inline_per_second", None),
    ("UMR fill, 64 entries inline", "umr_fill_64_inline_per_second", None),
    ("UMR fill, 4 entries from a list", "umr_fill_4_from_list_per_second", None),
    ("UMR fill, 64 entries from a list", "umr_fill_64_from_list_per_second", None),
    ("UMR fill, 1,024 entries from a list", "umr_fill_1024_from_list_per_second", None),
    ("UMR invalidate", "umr_invalidate_per_second", None),
    ("WRITE, indirect mkey to direct, 4 KiB entries", "write_indirect_to_direct", 0.85),
    ("WRITE, 64 B entries at once to one by one", "write_gathered_to_each", 3),
]


def measure(server, client, port):
    """All figures of one pair of adapters, by name; those that failed are missing."""
    figures = {}
    for number, (name, words, column, unit, *_) in enumerate(PERFTEST):
        common = [*words, "-F", "-p", port + number]
        outcome = guest.pair(server, client, [*common, "-d", server.device, "-x", server.gid_index],
                             [*common, "-d", client.device, "-x", client.gid_index, "127.0.0.1"],
                             port=port + number, timeout=180)
        value = perftest_figure(outcome.text.split("server (status")[0], column, "")
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


def keys(client, server):
    """Indirect mkeys between the two adapters, as rows of the table."""
    outcome = guest.run([str(guest.BUILD / "plain/tests/vm/key_rates"), client.device, str(client.gid_index),
                         server.device, str(server.gid_index)], 180)
    print(outcome.text if not outcome.passed else "", end="", flush=True)
    values = dict(re.findall(r"^(\w+) ([\d.]+)$", outcome.text, re.M))
    rows = []
    for name, key, wanted in KEYS:
        value = float(values[key]) if key in values else None
        shown = "failed" if value is None else f"{value:.0f} /s" if wanted is None else "-"
        rows.append([name, shown, "-", "-" if wanted is None or value is None else f"{value:.2f}",
                     "-" if wanted is None else f">= {wanted}",
                     verdict(value is not None and (wanted is None or value >= wanted))])
    return rows


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
    ours = measure(server, client, 18800)
    key_rows = keys(client, server)
    soft = soft_roce()
    theirs = measure(soft, soft, 18820)
    for name, _, _, unit, more, wanted in [(p[0], None, None, *p[3:]) for p in PERFTEST] + \
                                          [(c[0], None, None, *c[2:]) for c in CONTROL]:
        if name not in ours or name not in theirs:
            rows.append([name, ours.get(name, "failed"), theirs.get(name, "failed"), "-", "-", "MISSED"])
            continue
        ratio = ours[name] / theirs[name]
        good = wanted is None or (ratio >= wanted if more else ratio <= wanted)
        rows.append([name, f"{ours[name]:g} {unit}", f"{theirs[name]:g} {unit}", f"{ratio:.2f}",
                     "-" if wanted is None else f"{'>=' if more else '<='} {wanted}", verdict(good)])
    rows += key_rows
    print()
    guest.table(["in the guest", "Keyhole", "Soft-RoCE", "ratio", "wanted", ""], rows)
    return 1 if any(row[-1] != "ok" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
