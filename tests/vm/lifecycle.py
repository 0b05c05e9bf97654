#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Things end at bad moments: processes, the module, an adapter. Nothing may stay behind, and all must come back.

Traffic is perftest's, running without end between the two adapters; what ends it is the test. Whether
memory or a lock was lost on the way the debug kernel says in its log.

  lifecycle.py [TEST ...]
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import guest
from guest import SEED, settle

CYCLES = 3  # of what takes a device down and up again


def resources():
    """What the kernel's tracker counts on each device; the core's own objects are always there."""
    output = subprocess.run(["rdma", "-j", "resource", "show"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {entry["ifname"]: {kind: entry.get(kind, 0) for kind in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")}
            for entry in json.loads(output)}


class Traffic:
    """An endless ib_write_bw or ib_read_bw between the adapters."""

    def __init__(self, adapters, port, program="ib_write_bw"):
        server, client = adapters
        self.before = self.queue_pairs()
        words = [program, "-F", "-p", str(port), "--run_infinitely", "-D", "1", "-s", "4096"]
        self.processes = [self.start([*words, "-d", server.device, "-x", str(server.gid_index)])]
        settle(lambda: guest.listens(server, port), "the server of the traffic listens")
        self.processes.append(self.start([*words, "-d", client.device, "-x", str(client.gid_index), server.address]))

    @staticmethod
    def start(command):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    @staticmethod
    def queue_pairs():
        return sum(held["qp"] for held in resources().values())

    def flows(self):
        """Waits until bytes flow, by the queue pairs that the kernel counts."""
        settle(lambda: self.queue_pairs() >= self.before + 2, "the traffic's queue pairs exist")
        time.sleep(1)

    def pause(self):
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            try:
                process.wait(15 * guest.PATIENCE)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"process {process.pid} cannot be killed: "
                                     f"{open(f'/proc/{process.pid}/stack').read()}") from None


def two():
    found = guest.adapters(wanted=2)
    assert len(found) == 2, f"{len(found)} adapters with an IPv4 GID"
    return found


def works():
    """The adapters still do what they did: windows of both types between them."""
    one, other = two()
    outcome = guest.run([str(guest.BUILD / "plain/tests/vm/windows"), one.device, str(one.gid_index), other.device,
                         str(other.gid_index)])
    assert outcome.passed, f"windows between the adapters: {outcome.text[-2000:]}"


def sh(*command, timeout=60):
    outcome = guest.run([*map(str, command)], timeout)
    assert outcome.passed, f"{' '.join(map(str, command))}: {outcome.text[-1000:]}"
    return outcome.text


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def processes_killed_at_any_moment_leave_nothing_behind():
    adapters, random_ = two(), random.Random(SEED)
    before = resources()
    for count in range(guest.KILLS):
        program = random_.choice(["ib_write_bw", "ib_read_bw", "ib_send_bw"])
        traffic = Traffic(adapters, 18800 + count % 200, program)
        time.sleep(random_.uniform(0, 1.5) * guest.PATIENCE)
        random_.shuffle(traffic.processes)
        traffic.kill()
    settle(lambda: resources() == before, f"the devices hold what they held before ({before}), not {resources()},")
    works()


def the_module_goes_under_traffic_and_comes_back():
    for cycle in range(CYCLES):
        traffic = Traffic(two(), 18750 + cycle)
        traffic.flows()
        sh("rmmod", "keyhole")
        assert not os.listdir("/sys/class/infiniband"), "devices are left after rmmod"
        traffic.kill()
        sh("sh", guest.GUEST_TOOLS / "bring_up.sh")
    works()


def pci_address(adapter):
    return os.path.basename(os.path.realpath(f"/sys/class/infiniband/{adapter.device}/device"))


def an_adapter_is_unplugged_under_traffic_and_plugged_in_again():
    """By the guest's own hand: device_del makes QEMU 11.1 abort for any vfio-user device with MSI-X."""
    adapters = two()
    # Another process has the device's pages mapped and goes on using them.
    user = subprocess.Popen([str(guest.BUILD / "plain/tests/vm/mappings"), adapters[1].device], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = user.stdout.readline()
        assert said == "ready\n", f"the user of mappings said {said!r}"
        traffic = Traffic(adapters, 18760)
        traffic.flows()
        write(f"/sys/bus/pci/devices/{pci_address(adapters[1])}/remove", "1")
        assert len(os.listdir("/sys/class/infiniband")) == 1, "the unplugged device is still there"
        traffic.kill()
        said, _ = user.communicate("go on\n", timeout=20 * guest.PATIENCE)
        assert (user.returncode, said) == (0, "3 mappings, 2 writable; query: Input/output error\n"), \
            f"the user of mappings ended with {user.returncode}: {said!r}"
    finally:
        user.kill()
        user.wait()
    write("/sys/bus/pci/rescan", "1")
    settle(lambda: len(os.listdir("/sys/class/infiniband")) == 2, "the device comes back", 30)
    sh("sh", guest.GUEST_TOOLS / "addresses.sh")
    works()


def a_function_level_reset_brings_the_device_to_its_first_state():
    address = pci_address(two()[1])
    driver = "/sys/bus/pci/drivers/keyhole"
    for _ in range(CYCLES):
        write(f"{driver}/unbind", address)
        write(f"/sys/bus/pci/devices/{address}/reset", "1")
        write(f"{driver}/bind", address)
    sh("sh", guest.GUEST_TOOLS / "addresses.sh")
    works()


def frames_flow_through_changes_of_the_mtu():
    """Each change gives the NIC new queues. A frame in the old ones at that moment may get lost, and nothing else."""
    one, _ = two()

    def sent():
        return int(pathlib.Path(f"/sys/class/net/{one.netdev}/statistics/tx_packets").read_text())

    flood = subprocess.Popen([sys.executable, "-c", FLOOD, one.netdev], stdin=subprocess.DEVNULL)
    try:
        for number in range(10 * CYCLES):
            sh("ip", "link", "set", one.netdev, "mtu", 1500 - number % 2)
        assert flood.poll() is None, f"the sender of frames ended with status {flood.returncode}"
        before = sent()
        settle(lambda: sent() > before + 100, "frames are sent after the last change")
    finally:
        flood.kill()
        flood.wait()
    sh("ip", "link", "set", one.netdev, "mtu", 1500)
    works()


# Frames without end to nobody, past the queueing discipline.
FLOOD = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packet:
    packet.bind((sys.argv[1], 0x88b5))
    packet.setsockopt(263, 20, 1)  # SOL_PACKET, PACKET_QDISC_BYPASS
    while True:
        try:
            packet.send(bytes.fromhex("02fffffffffe 020000000001 88b5") + bytes(76))
        except OSError:
            pass  # there is no room, or just no queue
"""


def a_dead_keyholed_is_noticed_and_lets_everything_go():
    """By name only: the VM's adapters do not come back from it, so it is the last test of its VM."""
    here = guest.adapters()[0]  # the main job may have put the other one into a namespace
    traffic = Traffic((here, here), 18770)
    traffic.flows()
    watch = subprocess.Popen(["ibv_asyncwatch", "-d", here.device], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    time.sleep(2)
    # They hold their queues and memory through all of it, but nothing of theirs is under way: QEMU 11.1
    # aborts (error_setv: Assertion `*errp == NULL') when a vfio-user server dies during an access to it.
    traffic.pause()
    time.sleep(1)
    guest.ask("kill-keyholed")
    start = time.monotonic()
    os.set_blocking(watch.stdout.fileno(), False)
    seen = ""

    def fatal():
        nonlocal seen
        try:
            seen += os.read(watch.stdout.fileno(), 65536).decode(errors="replace")
        except BlockingIOError:
            pass
        return "fatal" in seen.lower() or "catastrophic" in seen.lower()

    settle(fatal, f"a process that waits for events is told of the fatal error (it saw {seen!r})", 20)
    print(f"    noticed after {time.monotonic() - start:.1f} s", flush=True)
    watch.kill()
    watch.wait()
    traffic.kill()
    sh("rmmod", "keyhole")
    assert not os.listdir("/sys/class/infiniband"), "devices are left after rmmod"


TESTS = [processes_killed_at_any_moment_leave_nothing_behind,
         the_module_goes_under_traffic_and_comes_back,
         frames_flow_through_changes_of_the_mtu,
         a_function_level_reset_brings_the_device_to_its_first_state,
         an_adapter_is_unplugged_under_traffic_and_plugged_in_again]
LAST = [a_dead_keyholed_is_noticed_and_lets_everything_go]


def main():
    chosen = sys.argv[1:]
    tests = [t for t in TESTS + LAST if any(c in t.__name__ for c in chosen)] if chosen else TESTS
    name = "the end" if chosen == ["dead_keyholed"] else "lifecycle"
    print(f"seed {SEED}", flush=True)
    failed = 0
    for test in tests:
        start = time.monotonic()
        try:
            test()
            verdict = "ok"
        except (AssertionError, OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
            verdict = f"FAIL: {error}"
            failed += 1
        print(f"{test.__name__.replace('_', ' ')}: {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    guest.record(name, len(tests) - failed, failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
