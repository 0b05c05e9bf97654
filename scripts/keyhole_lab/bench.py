# SPDX-License-Identifier: BSD-2-Clause
"""`lab bench`: native benchmarks, instruction counts, and Keyhole against Soft-RoCE in one boot."""

import sys

from . import build, checkout, kernel, root, say, vm


def native(context):
    """Engine and provider in one process, and instructions for each posted request."""
    status = 0
    with context.new_room() as place:
        with build.build_lock():
            build.native(place, "release")
        programs = build.native_dir("release") / "tests/native/bench"
        for title, command in (
                ("engine and provider in one process", [programs / "provider_bench"]),
                ("instructions for each posted request",
                 ["python3", checkout.TOP / "tests/native/bench/count_instructions.py", programs / "post_instructions"])):
            print(f"\n{title}", flush=True)
            status |= place.run(command, cwd=checkout.TOP, stdout=sys.stdout, stderr=sys.stderr) != 0
    return int(status)


def guest(context):
    machine = vm.Machine(kernel.stock(root.ensure()))
    with context.new_room() as place:
        context.prepare(place, machine)
        say.note("booting a VM to measure in")
        result = vm.Session(place, machine, "bench").run(
            ["python3", str(checkout.TOP / "tests/vm/bench.py")], checkout.TOP, timeout=2400)
    return result.status


def run(context, chosen):
    parts = {"native": native, "guest": guest}
    return max(parts[name](context) for name in chosen or parts)
