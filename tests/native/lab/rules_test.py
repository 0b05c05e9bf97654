#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What counts as a kernel's complaint, and that no command of the lab uses a name that is not there."""

import builtins
import dis
import importlib
import pathlib
import pkgutil
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

import keyhole_lab
from keyhole_lab import splats

PROC_OF_IRQ = """\
[  190.519251] ------------[ cut here ]------------
[  190.519819] name 'spurious'
[  190.521364] WARNING: CPU: 0 PID: 501 at fs/proc/generic.c:733 remove_proc_entry+0x21a/0x3f0
[  190.526576] CPU: 0 UID: 0 PID: 501 Comm: fail_nth Tainted: G           O     N 6.12.117 #1
[  190.529465] Call Trace:
[  190.530497]  unregister_irq_proc+0x1bc/0x260
[  190.530956]  free_desc+0x89/0x160
[  190.540000] ---[ end trace 0000000000000000 ]---
"""
ZERO_PAGE = """\
[  122.353410] page dumped because: VM_WARN_ON_FOLIO(is_zero_folio(folio))
[  122.353957] ------------[ cut here ]------------
[  122.354868] WARNING: CPU: 0 PID: 222 at include/linux/rmap.h:204 folio_add_file_rmap_ptes+0x3ca/0x4d0
[  122.359981] CPU: 0 UID: 0 PID: 222 Comm: ib_write_bw Tainted: G           O       6.12.117 #1
[  122.362873]  set_pte_range+0x22d/0x660
[  122.363059]  finish_fault+0x648/0x1680
[  122.370000] ---[ end trace 0000000000000000 ]---
[  122.465000] ------------[ cut here ]------------
[  122.465922] WARNING: CPU: 0 PID: 222 at mm/memory.c:656 vm_normal_page+0x258/0x320
[  122.466000]  unmap_page_range+0x1168/0x3880
[  122.470000] ---[ end trace 0000000000000000 ]---
[  122.470772] page dumped because: VM_WARN_ON_FOLIO(is_zero_folio(folio))
[  122.470859] ------------[ cut here ]------------
[  122.470895] WARNING: CPU: 0 PID: 222 at include/linux/rmap.h:204 folio_remove_rmap_ptes+0x427/0x590
[  122.472439]  unmap_page_range+0x1168/0x3880
[  122.473000] ---[ end trace 0000000000000000 ]---
"""
MAPPED_TWICE = """\
[   12.000000] DMA-API: keyhole 0000:01:00.0: cacheline tracking EEXIST, overlapping mappings aren't supported
[   12.000001] WARNING: CPU: 1 PID: 9 at kernel/dma/debug.c:596 add_dma_entry+0x22a/0x2e0
"""
MAPPED_OFTEN = """\
[   13.000000] ------------[ cut here ]------------
[   13.000001] DMA-API: exceeded 7 overlapping mappings of cacheline 0x0000000000178a40
[   13.000002] WARNING: CPU: 0 PID: 812 at kernel/dma/debug.c:496 add_dma_entry+0x25b/0x2e0
"""


class Splats(unittest.TestCase):
    def test_reports_are_found_with_what_follows(self):
        for line in ("BUG: KASAN: slab-use-after-free in kh_stop+0x1/0x2", "WARNING: CPU: 0 PID: 1 at kernel/qp.c:3 kh_qp+0x1",
                     "UBSAN: shift-out-of-bounds", "DMA-API: keyhole: device driver frees memory it has not",
                     "keyhole-lab: kmemleak found 1", "INFO: task rmmod:1 blocked for more than 120 seconds"):
            log = f"[ 1.0] all is well\n[ 2.0] {line}\n[ 3.0] more of it\n"
            self.assertEqual(splats.found(log), [f"[ 2.0] {line}"])
            self.assertIn("more of it", splats.excerpt(log))

    def test_a_clean_log_has_none(self):
        log = "[ 1.0] keyhole 0000:01:00.0: keyhole0 and eth0\n[ 2.0] DMA-API: preallocated 65536 debug entries\n"
        self.assertEqual((splats.found(log), splats.excerpt(log)), ([], ""))

    def test_a_page_that_is_mapped_twice_is_no_fault(self):
        self.assertEqual(splats.found(MAPPED_TWICE), [])
        self.assertEqual(len(splats.found(MAPPED_TWICE.replace("add_dma_entry", "check_unmap"))), 1)
        self.assertEqual(len(splats.found(MAPPED_TWICE.replace("EEXIST", "ENOMEM"))), 1)
        self.assertEqual(splats.found(MAPPED_OFTEN), [])
        self.assertEqual(len(splats.found(MAPPED_OFTEN.replace("add_dma_entry", "check_unmap"))), 1)

    def test_a_proc_entry_that_an_injected_failure_kept_from_being_is_no_fault(self):
        self.assertEqual(splats.found(PROC_OF_IRQ), [])
        self.assertEqual(len(splats.found(PROC_OF_IRQ.replace("Comm: fail_nth", "Comm: rmmod"))), 1)
        self.assertEqual(len(splats.found(PROC_OF_IRQ.replace("unregister_irq_proc", "ib_unregister_device"))), 1)

    def test_the_zero_page_in_place_of_a_page_that_went_away_is_no_fault(self):
        self.assertEqual(splats.found(ZERO_PAGE), [])
        self.assertEqual(len(splats.found(ZERO_PAGE.replace("is_zero_folio(folio)", "folio_test_large(folio)"))), 2)
        self.assertEqual(len(splats.found(ZERO_PAGE.replace("finish_fault", "insert_page"))), 1)
        self.assertEqual(len(splats.found(ZERO_PAGE.replace("unmap_page_range", "get_user_pages"))), 2)

    def test_what_belongs_to_another_report_excuses_none(self):
        head, tail = PROC_OF_IRQ.split("[  190.530497]")
        self.assertEqual(len(splats.found(head + "[  190.6] ---[ end trace 0 ]---\n[  190.530497]" + tail)), 1)
        self.assertEqual(len(splats.found(PROC_OF_IRQ + "[ 191.0] BUG: KASAN: x\n")), 1)


def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


class Names(unittest.TestCase):
    def test_every_global_name_that_the_lab_uses_exists(self):
        for found in pkgutil.iter_modules(keyhole_lab.__path__):
            module = importlib.import_module(f"keyhole_lab.{found.name}")
            source = pathlib.Path(module.__file__).read_text()
            known = vars(module).keys() | vars(builtins).keys()
            for code in codes(compile(source, module.__file__, "exec")):
                if code.co_name == "<module>":
                    continue
                used = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
                self.assertFalse(used - known, f"{found.name}.{code.co_name}")


if __name__ == "__main__":
    unittest.main()
