#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Counts the instructions that the provider executes for each posted work request.

callgrind counts the call alone, from the application's side of ibv_post_send() and the like to its
return, doorbell included. The count is the same on every run and every machine with the same compiler.
The limits are half of what another vendor's provider takes for the same call.

    count_instructions.py PATH_TO/post_instructions

Exit status 1 when a count is over its limit.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# case, what it is, limit (None: shown only)
CASES = [
    ("write", "ibv_post_send, RDMA WRITE, 1 SGE", 142),
    ("inline_send", "ibv_post_send, SEND, 32 B inline", 151),
    ("bind_mw", "ibv_bind_mw, type 1", 215),
    ("local_inv", "ibv_post_send, local invalidate", 140),
    ("wr_write", "ibv_wr_*, RDMA WRITE, 1 SGE", 115),
    ("wr_mr_list", "keyholedv_wr_mr_list, 4 entries", 239),
    ("post_fill", "keyholedv_post_send, 4 from a list", None),
    ("post_recv", "ibv_post_recv, 1 SGE", None),
    ("poll_cq", "ibv_poll_cq, 1 entry", None),
]
COUNT = 1000


def instructions(program: str, case: str, locking: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "callgrind.out"
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
             "--toggle-collect=counted_*", program, case, locking, str(COUNT)],
            capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            sys.exit(f"{program} {case} failed under valgrind:\n{done.stderr}")
        total = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        if not total or int(total.group(1)) == 0:
            sys.exit(f"callgrind counted nothing for {case}: see {done.stderr}")
        return int(total.group(1)) / COUNT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="the built tests/native/bench program post_instructions")
    program = parser.parse_args().program

    over = 0
    print(f"{'instructions for each call':36} {'locked':>8} {'unlocked':>9} {'limit':>6}")
    for case, title, limit in CASES:
        locked, unlocked = (instructions(program, case, how) for how in ("locked", "unlocked"))
        bad = limit is not None and max(locked, unlocked) > limit
        over += bad
        print(f"{title:36} {locked:8.1f} {unlocked:9.1f} {limit or '':>6}{'  OVER' if bad else ''}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
