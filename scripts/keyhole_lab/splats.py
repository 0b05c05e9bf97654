# SPDX-License-Identifier: BSD-2-Clause
"""Finds what a kernel complains about in its log.

The stock kernel may legitimately warn about the machine it runs on; these patterns are what a kernel
prints when code in it is wrong.

One report is none: DMA debugging takes it for a fault that a page is mapped twice at a time (`cacheline tracking
EEXIST`), or more often than it can count (`exceeded 7 overlapping mappings`), both in add_dma_entry, which reports
nothing else. Regions that share a page are mapped so by the RDMA core, for every driver, and verbs allow them: small
buffers from malloc() are enough. For others see EXCUSED.
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


# Reports that are none of Keyhole's: how one begins, what stands in one of the lines before, and in others after.
EXCUSED = [
    # Of a program that makes allocations fail: the interrupt core takes no notice when an entry in /proc cannot be made,
    # and warns that it is not there when the interrupt is freed. It does so for every driver.
    (r"WARNING: .* remove_proc_entry\+", "", [r"Comm: fail_nth\b", r"\bunregister_irq_proc\+"]),
    # A process reads its status page when the device is gone: the RDMA core lets a page that was mapped read-only read as
    # zeroes, and maps the zero page for that, for every driver (rdma_umap_fault). With CONFIG_DEBUG_VM the memory
    # management warns when that page is mapped by a driver's fault, counted and unmapped. Keyhole has no such fault.
    (r"WARNING: .* folio_add_file_rmap_ptes\+", r"VM_WARN_ON_FOLIO\(is_zero_folio\(folio\)\)", [r"\bfinish_fault\+"]),
    (r"WARNING: .* vm_normal_page\+", "", [r"\bunmap_page_range\+"]),
    (r"WARNING: .* folio_remove_rmap_ptes\+", r"VM_WARN_ON_FOLIO\(is_zero_folio\(folio\)\)", [r"\bunmap_page_range\+"]),
]


def is_excused(lines, index):
    """Whether the report that begins here is one of EXCUSED."""
    report = []
    for line in lines[index + 1:index + CONTEXT]:
        if "cut here" in line or "end trace" in line:
            break
        report.append(line)

    def anywhere(pattern, among):
        return any(re.search(pattern, line) for line in among)

    return any(re.search(begin, lines[index]) and (not before or anywhere(before, lines[max(index - 2, 0):index]))
               and all(anywhere(pattern, report) for pattern in others) for begin, before, others in EXCUSED)


def is_report(lines, index):
    """Whether a report of a defect begins here."""
    return any(pattern.search(lines[index]) for pattern in PATTERNS) and not is_excused(lines, index)


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
