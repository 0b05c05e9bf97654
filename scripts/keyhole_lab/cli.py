# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the lab."""

import argparse
import os
import pathlib
import signal
import sys

from . import checkout, host, room, root, say


def exec_(arguments):
    """Runs a command in the root, without a VM: a compiler, gdb, a native test."""
    build = checkout.build_dir()
    build.mkdir(parents=True, exist_ok=True)
    shown = [room.Shown(path) for path in (checkout.TOP, build, *arguments.share)]
    with room.Room(root.ensure(), shown) as place:
        return place.run(arguments.command or ["bash"], cwd=os.getcwd())


def parser():
    top = argparse.ArgumentParser(prog="lab", description=__doc__.strip(),
                                  epilog="Set-up, builds and boots happen by themselves when they are needed.")
    commands = top.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def command(name, function, **options):
        sub = commands.add_parser(name, help=function.__doc__.split("\n")[0], description=function.__doc__,
                                  **options)
        sub.set_defaults(function=function)
        return sub

    sub = command("exec", exec_)
    sub.add_argument("--share", action="append", default=[], type=pathlib.Path, metavar="DIR",
                     help="show DIR in the root, at its own path")
    sub.add_argument("command", nargs="*", metavar="-- CMD")
    return top


def end(number, _frame):
    raise say.Interrupted(signal.Signals(number).name)


def main():
    arguments = parser().parse_args()
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
