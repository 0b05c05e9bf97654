# SPDX-License-Identifier: BSD-2-Clause
"""Finds what a kernel complains about in its log.

The stock kernel may legitimately warn about the machine it runs on; these patterns are what a kernel
prints when code in it is wrong.

One report is none: DMA debugging takes it for a fault that a page is mapped twice at a time (`cacheline tracking
EEXIST`), or more often than it can count (`exceeded 7 overlapping mappings`), both in add_dma_entry, which reports
nothing else. Regions that share a page are mapped so by the RDMA core, for every driver, and verbs allow them: small
buffers from malloc() are enough. For another see PROC_OF_IRQ.
"""

import re

PATTERNS = [re.compile(p) for p in (
    r"\bBUG: ", r"\bWARNING: (?!CPU: \d+ PID: \d+ at kernel/dma/debug\.c:\d+ add_dma_entry\+)", r"\bINFO: task .* blocked", r"\bINFO: rcu", r"\bkernel BUG at",
    r"general protection fault", r"\bOops: ", r"unable to handle", r"UBSAN: ", r"KASAN: ",
    r"Kernel panic", r"possible (circular|recursive) locking", r"inconsistent lock state",
    r"suspicious RCU usage", r"ODEBUG: ", r"DMA-API: (?!preallocated|debugging|Mapped at:$|.* cacheline tracking EEXIST|exceeded \d+ overlapping mappings of cacheline)", r"refcount_t: ",
    r"keyhole-lab: kmemleak found", r"workqueue lockup", r"soft lockup", r"hard LOCKUP",
    r"restrack: .*leaked|dirty CQ|BUG: RESTRACK", r"BUG .*: Objects remaining",
)]
CONTEXT = 40


# Of a program that makes allocations fail: the interrupt core takes no notice when an entry in /proc cannot be made,
# and warns that it is not there when the interrupt is freed. It does so for every driver.
PROC_OF_IRQ = (re.compile(r"WARNING: .* remove_proc_entry\+"), re.compile(r"Comm: fail_nth\b"),
               re.compile(r"\bunregister_irq_proc\+"))


def is_report(lines, index):
    """Whether a report of a defect begins here."""
    if not any(pattern.search(lines[index]) for pattern in PATTERNS):
        return False
    begin, *others = PROC_OF_IRQ
    if not begin.search(lines[index]):
        return True
    report = []
    for line in lines[index + 1:index + CONTEXT]:
        if "cut here" in line or "end trace" in line:
            break
        report.append(line)
    return not all(any(pattern.search(line) for line in report) for pattern in others)


def found(log):
    """The lines of a kernel log that report a defect, each with its time stamp."""
    lines = log.splitlines()
    return [line for index, line in enumerate(lines) if is_report(lines, index)]


def excerpt(log):
    """The first report with the lines that follow it."""
    lines = log.splitlines()
    for index in range(len(lines)):
        if is_report(lines, index):
            return "\n".join(lines[max(index - 3, 0):index + CONTEXT])
    return ""
