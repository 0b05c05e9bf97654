# SPDX-License-Identifier: BSD-2-Clause
"""What programs in the guest share: the adapters as the kernel shows them, and the world outside.

Adapters are found in sysfs, in the order of their names; nothing is assumed of what udev calls them.
"""

import collections
import dataclasses
import ipaddress
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(os.environ.get("KEYHOLE_TOP") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("KEYHOLE_BUILD", "/nonexistent"))
GUEST_TOOLS = TOP / "scripts/keyhole_lab/guest"
SHARED = pathlib.Path("/run/keyhole")

sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "scripts"))
from keyhole_lab.say import table  # noqa: E402, F401 (for the programs beside this one)

# The debug kernel under emulation takes several times as long for everything.
PATIENCE = 4 if os.environ.get("KEYHOLE_KERNEL") == "debug" else 1

# How much of what has no end of its own: `lab test` says it (Tier in scripts/keyhole_lab/suites.py), or who runs a test.
KILLS = int(os.environ.get("KEYHOLE_KILLS", 5))
CYCLES = int(os.environ.get("KEYHOLE_CYCLES", 5))
FUZZ_SECONDS = int(os.environ.get("KEYHOLE_FUZZ_SECONDS", 20))
SEED = int(os.environ.get("KEYHOLE_SEED", time.time_ns() % 100000))


@dataclasses.dataclass
class Adapter:
    device: str            # keyhole0
    netdev: str            # eth0
    address: str           # 192.168.75.1
    gid_index: int         # of the RoCE v2 GID made from that address
    prefix: tuple = ()     # what to put before a command to run it on this adapter's host

    def command(self, *words):
        return [*self.prefix, *map(str, words)]


def adapters(prefix=(), wanted=None):
    """The adapters that a host sees; waits until each has the GID of an address, as GIDs come later."""
    deadline = time.monotonic() + 20 * PATIENCE
    while True:
        found = list(look(prefix))
        if len(found) >= (wanted or 1) or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


# One shell for everything: a process start is what costs time in an emulated guest.
LOOK = r"""
for port in /sys/class/infiniband/*/ports/1; do
    for type in $port/gid_attrs/types/*; do
        i=${type##*/}
        read -r kind < $type 2> /dev/null || continue
        read -r gid < $port/gids/$i
        read -r netdev < $port/gid_attrs/ndevs/$i
        echo "$port;$i;$kind;$gid;$netdev"
    done
done
"""


def look(prefix):
    output = subprocess.run([*prefix, "sh", "-c", LOOK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True).stdout
    seen = set()
    for line in output.splitlines():
        port, index, kind, gid, netdev = line.split(";")
        device = port.split("/")[4]
        address = ipaddress.IPv6Address(gid).ipv4_mapped
        if kind == "RoCE v2" and address and device not in seen:
            seen.add(device)
            yield Adapter(device, netdev, str(address), int(index), tuple(prefix))


def two_hosts():
    """Two adapters that talk as two hosts: apart in network namespaces where the driver can do that."""
    both = adapters(wanted=2)
    if len(both) < 2:
        raise SystemExit(f"two adapters with an IPv4 GID are needed, there are {len(both)}")
    if os.environ.get("KEYHOLE_HCA") == "rxe":  # Soft-RoCE cannot move to a namespace
        return both
    subprocess.run(["sh", str(GUEST_TOOLS / "two_hosts.sh")], check=True, stdout=subprocess.DEVNULL)
    one = adapters(wanted=1)
    other = adapters(prefix=("ip", "netns", "exec", "peer"), wanted=1)
    if not one or not other:
        raise SystemExit("the adapters have no IPv4 GIDs after the move to two namespaces")
    return [one[0], other[0]]


@dataclasses.dataclass
class Outcome:
    passed: bool
    text: str              # what the programs printed
    seconds: float


def run(command, timeout=60):
    start = time.monotonic()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        return Outcome(False, str(error), 0)
    try:
        text, _ = process.communicate(timeout=timeout * PATIENCE)
        return Outcome(process.returncode == 0, text, time.monotonic() - start)
    except subprocess.TimeoutExpired as expired:
        standing = standstill()
        process.kill()
        process.wait()
        process.stdout.close()
        text = (expired.output or b"").decode(errors="replace")
        # Who shows only the end of it shows what the program said.
        return Outcome(False, f"{standing}\n{text}\n(no end after {timeout * PATIENCE} s)", time.monotonic() - start)


def tasks():
    """All threads of programs, as text: command, state, times in user space and in the kernel, and where it sleeps."""
    for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            command = (task / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            if command:
                yield f"{task.name} {command[:90]}: {fields[0]} {fields[11]} {fields[12]} {(task / 'wchan').read_text()}"
        except OSError:
            pass  # it has ended


def standstill():
    """The state of everything where programs do not come to an end, as text, taken twice: what still moves differs."""
    told = []
    for _ in range(2):
        told += [*tasks(), *(line for line in pathlib.Path("/proc/interrupts").read_text().splitlines() if "keyhole" in line)]
        for prefix in ([], ["ip", "netns", "exec", "peer"]):
            told += subprocess.run([*prefix, "cat", "/proc/net/tcp"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True).stdout.splitlines()
        try:
            for hca in ask("control", command='{"command": "stats"}')["hcas"]:
                counters = {name: value for name, value in hca["counters"].items() if value}
                told.append(f"{hca['name']}: {hca['objects']} {counters}")
        except (OSError, RuntimeError) as error:  # there is no keyholed, or it is why nothing moves
            told.append(f"keyholed says nothing: {error}")
        time.sleep(1)
    return "\n".join(told)


def listens(adapter, port):
    """Whether something listens on a TCP port of the adapter's host."""
    tables = subprocess.run(adapter.command("cat", "/proc/net/tcp", "/proc/net/tcp6"), stdout=subprocess.PIPE,
                            text=True).stdout
    return any(fields[1].endswith(f":{port:04X}") and fields[3] == "0A"
               for fields in map(str.split, tables.splitlines()) if len(fields) > 3)


NOBODY_LISTENS = "RDMA_CM_EVENT_REJECTED, error 8"  # IB_CM_REJ_INVALID_SERVICE_ID


def pair(server, client, server_command, client_command, port=None, timeout=60):
    """Runs a server on one adapter's host and its client on the other's; both must succeed.

    `port` is the TCP port that tells that the server is ready. Without one the client asks again for as long
    as it is told that nobody listens there.
    """
    start = time.monotonic()
    server_process = subprocess.Popen(server.command(*server_command), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      errors="replace")
    try:
        deadline = start + 20 * PATIENCE
        while port and not listens(server, port) and server_process.poll() is None \
                and time.monotonic() < deadline:
            time.sleep(0.2)
        outcome = run(client.command(*client_command), timeout)
        while port is None and NOBODY_LISTENS in outcome.text and server_process.poll() is None \
                and time.monotonic() < deadline:
            time.sleep(1)
            outcome = run(client.command(*client_command), timeout)
        try:
            said, _ = server_process.communicate(timeout=20 * PATIENCE)
        except subprocess.TimeoutExpired:
            server_process.kill()
            said, _ = server_process.communicate()
            outcome = dataclasses.replace(outcome, passed=False)
    finally:
        if server_process.poll() is None:
            server_process.kill()
    text = f"client:\n{outcome.text}\nserver (status {server_process.returncode}):\n{said}"
    return Outcome(outcome.passed and server_process.returncode == 0, text, time.monotonic() - start)


def settle(condition, what, seconds=20):
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {seconds * PATIENCE} s")
        time.sleep(0.2)


def device_holds():
    """All objects of all adapters as the device counts them, but for what comes and goes by itself."""
    answer = ask("control", command='{"command": "stats"}')
    return [{kind: hca["objects"][kind] for kind in ("contexts", "pds", "cqs", "qps", "srqs", "mkeys")}
            for hca in answer["hcas"]]


_numbers = itertools.count()
_start = time.monotonic()


def ask(do, timeout=30, **details):
    """Asks the lab for what a guest cannot do (scripts/keyhole_lab/requests.py lists it)."""
    name = f"{os.getpid()}-{next(_numbers)}"
    temporary = SHARED / f"new-{name}"
    temporary.write_text(json.dumps({"do": do, **details}))
    temporary.rename(SHARED / f"request-{name}")
    reply = SHARED / f"reply-{name}"
    deadline = time.monotonic() + timeout
    while not reply.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the lab did not answer {do}")
        time.sleep(0.05)
    answer = json.loads(reply.read_text())
    reply.unlink()
    if not answer["ok"]:
        raise RuntimeError(f"{do}: {answer['error']}")
    return answer["result"]


def record(suite, passed, failed, skipped=0, note=""):
    """Leaves a suite's counts where the lab collects them. The time runs from this program's start."""
    text = json.dumps({"suite": suite, "passed": passed, "failed": failed, "skipped": skipped, "note": note,
                       "seconds": time.monotonic() - _start})
    (SHARED / f"results-{suite.replace(' ', '-')}.json").write_text(text)


def run_programs(*names):
    """Runs programs of this folder one after the other, whatever becomes of each; 1 if one failed.

    One of them may start the guest anew: then it is that one that goes on."""
    here = pathlib.Path(__file__).parent
    place = SHARED / "programs.json"
    first, status = json.loads(place.read_text()) if place.exists() else (0, 0)
    for index, name in list(enumerate(names))[first:]:
        place.write_text(json.dumps([index, status]))
        print(f"---- {name}", flush=True)
        program, *arguments = name.split()
        failed, said = run_shown([sys.executable, str(here / program), *arguments])
        if failed:
            (SHARED / f"failed-{index:02}.json").write_text(json.dumps({"program": name, "said": said}))
        status |= failed
    place.unlink()
    return int(status)


def run_shown(command, lines=50):
    """Runs a command and shows what it prints as it comes: whether it failed, and the last lines of that."""
    end = collections.deque(maxlen=lines)

    def show(pipe):
        for line in pipe:
            print(line, end="", flush=True)
            end.append(line)

    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")
    shows = threading.Thread(target=show, args=(process.stdout,), daemon=True)
    shows.start()
    status = process.wait()
    shows.join(10)  # not for ever: what it has left behind may hold the pipe
    if not shows.is_alive():
        process.stdout.close()
    return status != 0, "".join(end)
