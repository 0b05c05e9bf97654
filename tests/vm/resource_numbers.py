#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`rdma -dd resource show`: beside what the kernel knows of an object stands what the device knows it by.

One process holds objects of every kind that has such rows; each object of it must show them, and no two the same number.
"""

import platform
import re
import subprocess
import sys

import guest

PORT = 18780
# Of each kind the rows that the driver adds, the object's own number first where there is one.
ROWS = {"mr": ("access",), "cq": ("cqn", "vector"), "qp": ("slot",), "srq": ("srqn",)}
NUMBERS = {"cqn", "slot", "srqn"}
# Until then a driver was not asked about SRQs.
SRQS_SINCE = (6, 5)


def wrong(kind, names, process):
    """What is wrong with what is shown of a process's objects of a kind; nothing where all is right."""
    text = subprocess.run(["rdma", "-dd", "resource", "show", kind], stdout=subprocess.PIPE, text=True, check=True).stdout
    mine = [found for found in re.split(r"^(?=dev |link )", text, flags=re.M) if re.search(rf"\bpid {process.pid}\b", found)]
    if not mine:
        return f"no {kind} of process {process.pid}:\n{text}"
    for name in names:
        values = [value for found in mine for value in re.findall(rf"\bdrv_{name} (\w+)", found)]
        if len(values) != len(mine):
            return f"{len(values)} of {len(mine)} {kind}s show drv_{name}:\n{text}"
        if name in NUMBERS and len(set(values)) != len(values):
            return f"two {kind}s of one process show the same drv_{name}:\n{text}"
    return ""


def main():
    adapter = guest.adapters()[0]
    asked = dict(ROWS)
    if tuple(map(int, platform.release().split(".")[:2])) < SRQS_SINCE:
        asked["srq"] = ()
    server = subprocess.Popen(["ibv_srq_pingpong", "-d", adapter.device, "-g", str(adapter.gid_index), "-p", str(PORT)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    failed = 0
    try:
        guest.settle(lambda: guest.listens(adapter, PORT), "ibv_srq_pingpong listens")
        for kind, names in asked.items():
            found = wrong(kind, names, server)
            failed += found != ""
            print(f"{kind}: {found or 'ok'}", flush=True)
    finally:
        server.kill()
        server.wait()
    guest.record("resource numbers", len(ROWS) - failed, failed)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
