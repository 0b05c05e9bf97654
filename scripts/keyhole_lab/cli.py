# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the lab."""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from . import bench as benchmarks
from . import build, checkout, coverage, fuzz as fuzzers, host, kernel, room, root, say, splats, suites, user_space, vm

NEVER_RAN = 125  # exit status of `lab run` when the VM never got to the command, or ended under it
MAIN_JOB = checkout.TOP / "tests/vm/main_job.py"


def new_room(shown=(), definition=root.LAB):
    """A room with the checkout and its builds in it."""
    checkout.build_dir().mkdir(parents=True, exist_ok=True)
    host.compiler_cache_dir().mkdir(parents=True, exist_ok=True)
    return room.Room(root.ensure(definition), [room.Shown(checkout.TOP), room.Shown(checkout.build_dir()),
                                     room.Shown(host.compiler_cache_dir()), *shown])


def working_directory():
    """The current directory if it is in the checkout, which the room and the guest see; else its top."""
    here = pathlib.Path.cwd()
    return here if here == checkout.TOP or checkout.TOP in here.parents else checkout.TOP


def prepare(place, machine):
    """Builds what a VM needs and lays it over the root."""
    if machine.hca != "keyhole":
        return
    with build.build_lock():
        build.native(place, tests=False)
        module = build.module(place, machine.kernel)
        build.install_into_layer(place)
        target = place.layer / "usr/lib/keyhole"
        target.mkdir(parents=True, exist_ok=True)
        for path in (module, *module.parent.glob("tests/*.ko")):
            shutil.copy2(path, target / path.name)


def machine_of(arguments):
    memory = arguments.memory or (2048 if arguments.kernel == "debug" else 1536)
    # Debian 12's root has no kernel of its own; the one that belongs to it comes as a layer, with its modules.
    usual = "6.1" if arguments.root == "bookworm" else "stock"
    return vm.Machine(kernel.named(arguments.kernel or usual, root.ensure(), new_room), hca=arguments.hca, memory=memory,
                      cpus=arguments.cpus)


def session_of(arguments, machine, what):
    return user_space.session(suites.Context(new_room, prepare), machine, f"{what}-{os.getpid()}",
                              root.NAMED[arguments.root])


def run(arguments):
    """Run a command in a VM with two adapters; without a command, the main job.

    The command runs in the current directory if that is in this checkout, which the VM shares with this machine,
    else in the checkout's top. Its output is shown as it comes and its exit status is returned; 125 means that
    the VM ended before it did.
    """
    machine = machine_of(arguments)
    command = arguments.command or ["python3", str(MAIN_JOB)]
    stdin = subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else sys.stdin
    with session_of(arguments, machine, "run") as session:
        say.note(f"booting {machine.kernel.title} in a VM (half a minute to two where there is no KVM)")
        result = session.run(command, working_directory(), stdin=stdin, timeout=arguments.timeout)
    if result.timed_out:
        raise say.LabError(f"the VM was ended after {say.seconds(arguments.timeout)}; logs: "
                           f"{result.console}, {result.keyholed}")
    if not result.dmesg:
        say.note(f"the VM ended before its command did. {result.last_words()}\n"
                 f"Logs: {result.console}, {result.keyholed}")
        return NEVER_RAN
    for line in splats.found(result.dmesg) if machine.kernel.name == "debug" else ():
        say.note(f"kernel: {line}")
        result.status = result.status or 1
    return result.status


def shell(arguments):
    """Start a shell in a VM with two adapters."""
    if not sys.stdin.isatty():
        raise say.LabError("`lab shell` needs a terminal; `lab run -- CMD` does not")
    machine = machine_of(arguments)
    with session_of(arguments, machine, "shell") as session:
        session.shell(working_directory())
    return 0


def test(arguments):
    """Run the tests: native ones, fuzzers, the module's build, static analysis, and those in a VM on each kernel."""
    return suites.run(suites.Context(new_room, prepare, arguments.long), arguments.suites)


def show_coverage(arguments):
    """List the lines of the module that the last `lab test` did not reach on the debug kernel."""
    if not coverage.merged().exists():
        raise say.LabError("there is no coverage yet: `lab test debug` measures it")
    chosen = kernel.debug(root.ensure(), new_room)
    with new_room(chosen.shown) as place:
        return coverage.show(place, build.module_dir(chosen))


def bench(arguments):
    """Run the benchmarks, native and in a VM, and print them beside what they are measured against."""
    return benchmarks.run(suites.Context(new_room, prepare), arguments.parts)


def fuzz(arguments):
    """Run a fuzzer until it is interrupted or finds something; or one input again.

    What it learns is kept in the cache. Without a name, all of them, each for --seconds.
    """
    targets = [arguments.target] if arguments.target else []
    return fuzzers.command_line(new_room, targets, arguments.seconds, arguments.input)


def exec_(arguments):
    """Run a command in the lab's root, without a VM: a compiler, gdb, a native test."""
    with new_room([room.Shown(path) for path in arguments.share], root.NAMED[arguments.root]) as place:
        return place.run(arguments.command or ["bash"], cwd=os.getcwd())


def clean(arguments):
    """Remove what was built from this checkout; with --all, the roots and kernels too."""
    targets = [checkout.build_dir()]
    if arguments.all:
        targets += [host.cache_dir() / name for name in ("builds", "ccache", "corpus", "kernels", "roots", "logs")]
    there = [target for target in targets if target.exists()]
    if not there:
        say.note("there is nothing to remove: "
                 + (f"{host.cache_dir()} is empty" if arguments.all else f"nothing was built from {checkout.TOP}"))
    for target in there:
        with say.step(f"removing {target}"):
            for entry in target.iterdir():
                root.remove(entry) if entry.is_dir() else entry.unlink()
            target.rmdir()
    return 0


def number(least, most, what):
    """An argument's type: a whole number in a range."""
    def convert(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{what}: {least} to {most}, not {text!r}")
        return int(text)
    return convert


def one_of(names):
    """An argument's type, for lists of names that may be empty (argparse's own choices then refuses none)."""
    def convert(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is none of: {', '.join(names)}")
        return text
    return convert


def parser():
    top = argparse.ArgumentParser(prog="lab", description="From a plain Debian or Ubuntu machine to RDMA programs "
                                                          "that run on Keyhole, with one command.",
                                  epilog="Set-up, builds and boots happen by themselves when they are needed.")
    commands = top.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def command(name, function, **options):
        sub = commands.add_parser(name, help=function.__doc__.split("\n")[0], description=function.__doc__,
                                  **options)
        sub.set_defaults(function=function)
        return sub

    def machine_options(sub):
        sub.add_argument("--kernel", choices=kernel.NAMES,
                         help="Debian's (stock, the default), the small one full of checks, Debian 12's, or the "
                              "newest packaged one")
        sub.add_argument("--root", choices=root.NAMED, default="trixie",
                         help="the user space: the lab's own, or Debian 12's with its rdma-core and, by default, "
                              "its kernel")
        sub.add_argument("--hca", choices=["keyhole", "rxe", "none"], default="keyhole",
                         help="the adapters: Keyhole's, or Soft-RoCE to compare with")
        sub.add_argument("--memory", type=number(512, 1 << 20, "MiB of memory"), metavar="MIB",
                         help="of the VM; 1536, and 2048 with the debug kernel, whose checks take their part")
        sub.add_argument("--cpus", type=number(2, 64, "processors"), default=2, metavar="N", help="2 to 64")

    sub = command("run", run)
    machine_options(sub)
    sub.add_argument("--timeout", type=number(1, 1 << 31, "seconds"), default=3600, metavar="SECONDS",
                     help="after which the VM is ended; 3600")
    sub.add_argument("command", nargs="*", metavar="-- CMD")
    machine_options(command("shell", shell))
    sub = command("test", test)
    sub.add_argument("suites", nargs="*", type=one_of(list(suites.all_suites(None))), metavar="SUITE",
                     help="only these, of: " + ", ".join(suites.all_suites(None))
                          + f" (without any: {', '.join(suites.USUAL)})")
    sub.add_argument("--long", action="store_true", help="ten times as much of what has no end of its own; "
                     f"without suites: {', '.join(suites.EVERYTHING)}")
    command("coverage", show_coverage)
    sub = command("bench", bench)
    sub.add_argument("parts", nargs="*", type=one_of(["native", "guest"]), metavar="PART",
                     help="only these: native, guest")
    sub = command("fuzz", fuzz)
    sub.add_argument("target", nargs="?", type=one_of(list(fuzzers.TARGETS)), metavar="TARGET",
                     help="of: " + ", ".join(fuzzers.TARGETS))
    sub.add_argument("--seconds", type=number(1, 1 << 31, "seconds"), default=fuzzers.FOREVER, metavar="N",
                     help="after which it ends")
    sub.add_argument("--input", type=pathlib.Path, metavar="FILE", help="run this one, as a find left it")
    sub = command("exec", exec_)
    sub.add_argument("--root", choices=root.NAMED, default="trixie", help="the lab's own, or Debian 12's")
    sub.add_argument("--share", action="append", default=[], type=pathlib.Path, metavar="DIR",
                     help="show DIR in the root, at its own path")
    sub.add_argument("command", nargs="*", metavar="-- CMD")
    command("clean", clean).add_argument("--all", action="store_true", help="the roots, the kernels and all logs too")
    return top


def end(number, _frame):
    raise say.Interrupted(signal.Signals(number).name)


def main():
    commands = parser()
    arguments, left = commands.parse_known_args()
    if left:
        hint = f"; a command's own options come after --: lab {arguments.name} -- CMD ..." \
            if arguments.name in ("run", "exec") else ""
        commands.error(f"unknown: {' '.join(left)}{hint}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        host.require_root()
        return arguments.function(arguments)
    except say.LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except say.Interrupted as interrupted:
        print(f"lab: ended by {interrupted}", file=sys.stderr)
        return 130
