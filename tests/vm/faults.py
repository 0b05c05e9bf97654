# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's fault injection, set up for a task that names the allocation that shall fail (fail-nth).

Nothing fails by chance. Pages may fail too, of any order, and also where the kernel would rather wait for memory:
else no GFP_KERNEL allocation ever would.
"""

import pathlib
import re

DEBUG = pathlib.Path("/sys/kernel/debug")
SYMBOL = re.compile(r"^([0-9a-f]+) [tT] (\S+)(\s+\[keyhole\])?$", re.M)
# DMA debugging switches itself off for good when it gets no memory.
SPARED = "add_dma_entry"


def code():
    """The addresses of the driver's code, and of the function that is spared."""
    kernel, driver, spared = [], [], None
    for address, name, module in SYMBOL.findall(pathlib.Path("/proc/kallsyms").read_text()):
        address = int(address, 16)
        (driver if module else kernel).append(address)
        if name == SPARED and not module:
            spared = address
    assert spared, f"{SPARED} is in /proc/kallsyms, with its address"
    return driver, (spared, min(address for address in kernel if address > spared))


def set_up(everywhere=True):
    """All allocations count, or those only below which the driver is on the stack."""
    driver, spared = code()
    start, end = (0, 2 ** 64 - 1) if everywhere else (min(driver), max(driver) + 4096)
    for name, more in {"failslab": {}, "fail_page_alloc": {"ignore-gfp-highmem": "N", "min-order": "0"}}.items():
        values = more | {"ignore-gfp-wait": "N", "probability": "0", "verbose": "0",
                         "require-start": hex(start), "require-end": hex(end),
                         "reject-start": hex(spared[0]), "reject-end": hex(spared[1])}
        for file, value in values.items():
            (DEBUG / name / file).write_text(value)
