# SPDX-License-Identifier: BSD-2-Clause
"""What the lab tells the person in front of it.

A long step says what it does when it starts and how long it took when it ends. Its output goes to a log;
when it fails, the end of the log is shown, and where the log is, because that is the next thing one asks.
"""

import contextlib
import subprocess
import sys
import time


class LabError(Exception):
    """Something is wrong that a person can mend; the text says what, and how."""

    def summary(self):
        return str(self).split(". ")[0].split("\n")[0][:70]


class Interrupted(Exception):
    """A signal asks the lab to end."""


def note(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)


def seconds(value):
    value = int(value + 0.5)
    return f"{value} s" if value < 90 else f"{value // 60} min {value % 60:02d} s"


def tail(path, lines=40):
    try:
        with open(path, errors="replace") as file:
            return "".join(file.readlines()[-lines:])
    except OSError as error:
        return f"({error})\n"


@contextlib.contextmanager
def step(what):
    """Announces a step and its time. Yields nothing; errors pass through."""
    note(f"{what} ...")
    start = time.monotonic()
    try:
        yield
    except BaseException as error:
        how = "interrupted" if isinstance(error, (Interrupted, KeyboardInterrupt)) else "failed"
        note(f"{what}: {how} after {seconds(time.monotonic() - start)}")
        raise
    note(f"{what}: {seconds(time.monotonic() - start)}")


def failed_with_log(what, log):
    return LabError(f"{what} failed. The end of its log:\n\n{tail(log)}\nThe whole log: {log}")


def run_logged(argv, log, what, append=False, timeout=None, title=None, **popen):
    """Runs argv with its output in the file `log`; raises LabError with the log's end if it fails.

    `title` is the command as the log shows it. It gets a session of its own, so that Ctrl-C reaches the lab alone, which then ends what it started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab" if append else "wb") as out:
        out.write(f"$ {' '.join(map(str, title or argv))}\n".encode())
        out.flush()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True, **popen)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise LabError(f"{what} did not end within {seconds(timeout)}. "
                           f"The end of its log:\n\n{tail(log)}\nThe whole log: {log}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if status != 0:
        raise failed_with_log(what, log)


def table(header, rows, file=None):
    """Prints rows of strings in columns; columns whose cells are all numbers go to the right."""
    cells = [list(map(str, row)) for row in rows]
    width = [max(len(row[i]) for row in [header, *cells]) for i in range(len(header))]
    right = [all(row[i][:1].isdigit() or row[i] in ("", "-") for row in cells) and bool(cells)
             for i in range(len(header))]

    def line(row):
        return "  ".join(cell.rjust(w) if r else cell.ljust(w)
                         for cell, w, r in zip(row, width, right)).rstrip()

    for text in [line(header), "  ".join("-" * w for w in width), *map(line, cells)]:
        print(text, file=file, flush=True)
