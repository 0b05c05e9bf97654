# SPDX-License-Identifier: BSD-2-Clause
"""Finds what a kernel complains about in its log.

The stock kernel may legitimately warn about the machine it runs on; these patterns are what a kernel
prints when code in it is wrong.

One report is none: DMA debugging takes it for a fault that a page is mapped twice at a time (`cacheline tracking
EEXIST`, in add_dma_entry, which reports nothing else). Two regions in one page are mapped so by the RDMA core, for
every driver, and verbs allow them: two small buffers from malloc() are enough.
"""

import re

PATTERNS = [re.compile(p) for p in (
    r"\bBUG: ", r"\bWARNING: (?!CPU: \d+ PID: \d+ at kernel/dma/debug\.c:\d+ add_dma_entry\+)", r"\bINFO: task .* blocked", r"\bINFO: rcu", r"\bkernel BUG at",
    r"general protection fault", r"\bOops: ", r"unable to handle", r"UBSAN: ", r"KASAN: ",
    r"Kernel panic", r"possible (circular|recursive) locking", r"inconsistent lock state",
    r"suspicious RCU usage", r"ODEBUG: ", r"DMA-API: (?!preallocated|debugging|Mapped at:$|.* cacheline tracking EEXIST)", r"refcount_t: ",
    r"keyhole-lab: kmemleak found", r"workqueue lockup", r"soft lockup", r"hard LOCKUP",
    r"restrack: .*leaked|dirty CQ|BUG: RESTRACK", r"BUG .*: Objects remaining",
)]
CONTEXT = 40


def found(log):
    """The lines of a kernel log that report a defect, each with its time stamp."""
    return [line for line in log.splitlines() if any(p.search(line) for p in PATTERNS)]


def excerpt(log):
    """The first report with the lines that follow it."""
    lines = log.splitlines()
    for index, line in enumerate(lines):
        if any(p.search(line) for p in PATTERNS):
            return "\n".join(lines[max(index - 3, 0):index + CONTEXT])
    return ""
