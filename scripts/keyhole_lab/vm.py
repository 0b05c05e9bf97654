# SPDX-License-Identifier: BSD-2-Clause
"""One VM with its adapters: keyholed and QEMU, started in this order and ended together.

Both run in one room (room.py), so nothing of them survives the lab. The guest's root file system is the
room itself, read-only, over 9p; the checkout and the run's private directory are shared with it
read-write. What the guest's command prints comes out as it is printed, and its status is the VM's.

The guest can ask the lab for what a guest cannot do: see requests.py.
"""

import dataclasses
import json
import os
import pathlib
import selectors
import shlex
import subprocess
import sys
import termios
import time

from . import checkout, coverage, requests, say
from .room import PRIVATE

GUEST = pathlib.Path(__file__).parent / "guest"
INNER = "/inner"         # where the VM's room shows another room's root
NEVER_STARTED = 125
VIRTME = "usr/lib/python3/dist-packages/virtme"
PATIENCE = 900           # seconds that a guest may take for its devices
# How the root is mounted: virtme's own flags, and a cache. The root does not change while a guest sees it, and each
# program's start reads a dozen of its files.
VIRTME_FLAGS = "version=9p2000.L,trans=virtio,access=any"
ROOT_FLAGS = f"{VIRTME_FLAGS},cache=loose"
# What udevd reads, and looks at again every few seconds to see whether it has changed.
UDEV_CONFIGURATION = ("/etc/udev /etc/systemd/network /etc/modprobe.d "
                      "/usr/lib/udev/rules.d /usr/lib/systemd/network /usr/lib/modprobe.d")
# What is different in the lab's virtme: file, its line, and what stands there instead.
ADAPTED = (
    # It waits two minutes for udev and then turns the machine off without a word. With a debug kernel, under
    # emulation, on a busy host, udev may need longer.
    ("guest/virtme-init", "    udevadm settle\n", f"    udevadm settle --timeout={PATIENCE}\n"),
    # udevd reads all its rules again when a directory of rules has another inode number than before. /etc is an
    # overlay on 9p, whose directories get a new number whenever they have left the kernel's cache. Where one
    # reading takes longer than they stay there, udevd does nothing else any more. Memory keeps them.
    ("guest/virtme-init", '    log "starting udevd"\n', f"""\
    for directory in {UDEV_CONFIGURATION}; do
        [[ -d $directory ]] || continue
        mkdir -p "/run/tmp/udev-configuration$directory"
        cp -a "$directory/." "/run/tmp/udev-configuration$directory"
        mount --bind "/run/tmp/udev-configuration$directory" "$directory"
    done
    log "starting udevd"
"""),
    # Kernels with an initramfs mount the root there; to others the command line gives ROOT_FLAGS.
    ("mkinitramfs.py", f"{VIRTME_FLAGS} /dev/root ", f"{ROOT_FLAGS} /dev/root "),
)


@dataclasses.dataclass
class Machine:
    """What to boot. `hca` is "keyhole", or "rxe" for Soft-RoCE in Keyhole's place, or "none"."""
    kernel: object
    hca: str = "keyhole"
    hcas: int = 2
    memory: int = 1536     # MiB
    cpus: int = 2          # never fewer: see the note on fences in Documentation/hardware.md
    kopts: tuple = ()
    settings: dict = dataclasses.field(default_factory=dict)   # more of the guest's environment


@dataclasses.dataclass
class Result:
    status: int
    console: pathlib.Path
    keyholed: pathlib.Path
    dmesg: str             # the guest's own copy, "" if the guest did not get so far
    timed_out: bool = False
    suites: list = dataclasses.field(default_factory=list)   # what tests/vm/guest.py's record() left
    stderr: str = ""       # the end of what QEMU printed there, and the guest's command
    failures: list = dataclasses.field(default_factory=list)  # what run_programs() left: program, said

    def last_words(self):
        """What a VM that ended too early said: on its console, or QEMU itself where no kernel got to write there."""
        console = say.tail(self.console)
        if console.strip():
            return f"The end of its console:\n\n{console}"
        return f"Its console is empty. The end of what QEMU said:\n\n{self.stderr or '(nothing)'}"


def kvm_works(place):
    """Whether KVM truly works. A /dev/kvm alone says nothing: without vmx or svm it makes a VM, and then
    stops at an instruction that it cannot emulate. With them it may still be forbidden to us: so try."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    if not os.path.exists("/dev/kvm") or not {"vmx", "svm"} & set(flags):
        return False
    probe = ("echo quit | timeout 20 qemu-system-x86_64 -accel kvm -nodefaults -display none "
             "-machine microvm -m 16 -monitor stdio")
    return subprocess.run(place.argv(["sh", "-c", probe]), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def mac(number):
    return f"52:54:00:4b:48:{number + 1:02x}"


def socket(number):
    return f"{PRIVATE}/kh{number}.sock"


class Session:
    """A VM from its start to its end, for one command or one interactive shell."""

    def __init__(self, place, machine, name, user_space=None, builds=None):
        """`user_space`: the room whose files the guest sees, where not `place` itself, which must then show it
        at INNER; `builds`: where the guest finds what was built for it."""
        self.place, self.machine, self.name = place, machine, name
        self.user_space, self.builds = user_space or place, builds or checkout.build_dir()
        self.control = f"{PRIVATE}/control.sock"
        self.console_log = checkout.log(f"{name}-console")
        self.keyholed_log = checkout.log(f"{name}-keyholed")
        self.console_log.parent.mkdir(parents=True, exist_ok=True)
        forget_old_logs(self.console_log.parent)
        self.keyholed = None
        self.qemu = None
        self.stderr = b""

    def start_keyholed(self):
        """Starts keyholed and waits until all its sockets listen."""
        command = ["keyholed"]
        for number in range(self.machine.hcas):
            command += ["--hca", f"name=kh{number},socket={socket(number)},mac={mac(number)}"]
        command += ["--control", self.control, "--log-level", os.environ.get("KEYHOLE_LOG_LEVEL", "info")]
        with open(self.keyholed_log, "ab") as log:
            self.keyholed = self.place.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                             stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        os.set_blocking(self.keyholed.stdout.fileno(), False)
        seen = b""
        while b"ready" not in seen.split(b"\n")[:-1]:
            chunk = self.keyholed.stdout.read()
            seen += chunk or b""
            if self.keyholed.poll() is not None or time.monotonic() > deadline:
                raise say.failed_with_log("starting keyholed", self.keyholed_log)
            time.sleep(0.02)

    def virtme(self, kvm, guest_command):
        """virtme-run's command line. `guest_command` None means an interactive shell."""
        machine = self.machine
        megabytes = f"{machine.memory}M"
        # modules: those of the room; the debug kernel has all built in.
        root = ["--root", INNER] if self.user_space is not self.place else []
        command = ["virtme-run", *root, "--kimg", machine.kernel.image,
                   "--mods", "auto" if machine.kernel.modular else "none",
                   "--memory", megabytes, "--cpus", str(machine.cpus),
                   "--overlay-rwdir=/etc", "--overlay-rwdir=/var", "--overlay-rwdir=/root",
                   f"--rwdir={checkout.TOP}={checkout.TOP}", f"--rwdir={PRIVATE}={PRIVATE}",
                   "--kopt", "net.ifnames=0", "--kopt", "loglevel=4", "--kopt", "console=ttyS1"]
        if self.user_space is not self.place:  # which else is in the guest's root
            command += [f"--rwdir={checkout.build_dir()}={checkout.build_dir()}"]
        # Watchdogs that go by the clock would bark at a busy host, not at a fault.
        for option in ("nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1", "workqueue.watchdog_thresh=0"):
            command += ["--kopt", option]
        if not machine.kernel.modular:  # without an initramfs, 9p's mount tag is the root device's name
            command += ["--kopt", "root=/dev/root", "--kopt", f"rootflags={ROOT_FLAGS}", "--kopt", "kunit.enable=1"]
        for option in machine.kopts:
            command += ["--kopt", option]
        # 9p and not virtiofs: virtiofsd writes guest pages from another process, which code that TCG has
        # translated from them does not notice. Under KVM it would be safe; one way for both is worth more.
        command += ["--force-9p"] + ([] if kvm else ["--disable-kvm"])
        if guest_command is not None:
            command += ["--script-sh", shlex.join(guest_command)]
        command += ["--qemu-opts", "-chardev", f"file,id=klog,path={PRIVATE}/console",
                    "-serial", "chardev:klog", "-qmp", f"unix:{PRIVATE}/qmp.sock,server=on,wait=off"]
        # keyholed is handed the guest's memory as file descriptors, which only shared memory has.
        command += ["-object", f"memory-backend-memfd,id=mem,size={megabytes},share=on",
                    "-machine", "memory-backend=mem"]
        if machine.hca == "keyhole":
            for number in range(machine.hcas):
                command += ["-device", f"pcie-root-port,id=port{number},chassis={number + 1}",
                            "-device", json.dumps(self.device(number))]
        return command

    @staticmethod
    def device(number):
        """An adapter, as QEMU's -device and device_add take it."""
        return {"driver": "vfio-user-pci", "id": f"kh{number}", "bus": f"port{number}",
                "socket": {"type": "unix", "path": socket(number)}}

    def write_settings(self):
        values = {"KEYHOLE_KERNEL": self.machine.kernel.name, "KEYHOLE_HCA": self.machine.hca,
                  "KEYHOLE_HCAS": self.machine.hcas if self.machine.hca != "none" else 0,
                  "KEYHOLE_TOP": checkout.TOP, "KEYHOLE_BUILD": self.builds, **self.machine.settings}
        # rdma-core's udev rule would name the devices after their PCI slots; the driver's names say more.
        rules = self.user_space.layer / "etc/udev/rules.d"
        rules.mkdir(parents=True, exist_ok=True)
        (rules / "60-rdma-persistent-naming.rules").write_text("# the lab keeps the kernel's names\n")
        (self.place.directory / "settings").write_text(
            "".join(f"export {key}={shlex.quote(str(value))}\n" for key, value in values.items()))

    def adapt_virtme(self):
        """Lays the lab's changes over virtme's files."""
        texts = {name: (self.place.root / VIRTME / name).read_text() for name, *_ in ADAPTED}
        for name, usual, adapted in ADAPTED:
            if texts[name].count(usual) != 1:
                raise say.LabError(f"virtme's {name} has not exactly once what it used to have, {usual!r}: "
                                   f"see ADAPTED in {__file__}")
            texts[name] = texts[name].replace(usual, adapted)
        for name, text in texts.items():
            target = self.place.layer / VIRTME / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod((self.place.root / VIRTME / name).stat().st_mode)

    def start(self, command, cwd, **popen):
        self.write_settings()
        self.adapt_virtme()
        self.keyholed_log.write_bytes(b"")
        if self.machine.hca == "keyhole":
            self.start_keyholed()
        guest = None if command is None else ["sh", str(GUEST / "enter.sh"), str(cwd), *command]
        self.qemu = self.place.start(self.virtme(kvm_works(self.place), guest), **popen)

    def run(self, command, cwd, output=None, timeout=None, stdin=subprocess.DEVNULL):
        """Runs a command in the guest. Its output goes to the terminal, or to the binary file `output`."""
        self.start(command, cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                   start_new_session=True)
        deadline = time.monotonic() + timeout if timeout else None
        try:
            timed_out = self.pump(deadline, output)
        except say.Interrupted:
            self.finish(None)  # for its logs
            raise
        if timed_out:
            self.qemu.kill()
        return self.finish(self.qemu.wait(), timed_out)

    def pump(self, deadline, output):
        """Passes the guest's output on and serves its requests until it ends; True if the time is over first."""
        asked = requests.Requests(self)
        with selectors.DefaultSelector() as selector:
            for source, sink in ((self.qemu.stdout, output or sys.stdout.buffer),
                                 (self.qemu.stderr, output or sys.stderr.buffer)):
                selector.register(source, selectors.EVENT_READ, sink)
            while selector.get_map():
                for key, _ in selector.select(0.2):
                    chunk = os.read(key.fd, 65536)
                    if not chunk:
                        selector.unregister(key.fileobj)
                        continue
                    if key.fileobj is self.qemu.stderr:
                        self.stderr = (self.stderr + chunk)[-4096:]
                    key.data.write(chunk)
                    key.data.flush()
                asked.serve()
                if deadline and time.monotonic() > deadline:
                    return True
        return False

    def shell(self, cwd):
        """An interactive shell in the guest, on this terminal."""
        # virtme starts an interactive shell that is no login shell: this is what it reads.
        usual = self.place.root / "etc/bash.bashrc"
        start = self.place.layer / "etc/bash.bashrc"
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text(
            (usual.read_text() if usual.exists() else "")
            + f"\n. {PRIVATE}/settings\n[ -e /run/keyhole-is-up ] || sh {GUEST}/bring_up.sh\n"
              f"touch /run/keyhole-is-up\ncd {shlex.quote(str(cwd))}\n")
        saved = termios.tcgetattr(sys.stdin)
        try:
            self.start(None, cwd)
            self.finish(self.qemu.wait())
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)

    def finish(self, status, timed_out=False):
        if self.keyholed is not None and self.keyholed.poll() is None:
            self.keyholed.kill()
            self.keyholed.wait()
        keep(self.place.directory / "console", self.console_log)
        dmesg = self.place.directory / "dmesg"
        # A test that starts the guest anew leaves the log of each life before the last.
        logs = [*sorted(self.place.directory.glob("dmesg-*")), dmesg] if dmesg.exists() else []
        text = "".join(path.read_text(errors="replace") for path in logs)
        suites, failures = ([json.loads(path.read_text()) for path in sorted(self.place.directory.glob(names))]
                            for names in ("results-*.json", "failed-*.json"))
        if self.name.startswith("test-"):
            coverage.keep(self.place.directory / "gcov", self.name)
        for path in self.place.directory.glob("*.log"):
            keep(path, checkout.log(f"{self.name}-{path.stem}"))
        return Result(status, self.console_log, self.keyholed_log, text, timed_out, suites,
                      self.stderr.decode(errors="replace"), failures)


def forget_old_logs(directory):
    """Logs of single runs have names of their own; the last dozens of them are enough."""
    old = sorted([*directory.glob("run-*.log"), *directory.glob("shell-*.log")], key=lambda p: p.stat().st_mtime)
    for path in old[:-60]:
        path.unlink(missing_ok=True)


def keep(source, target):
    try:
        target.write_bytes(source.read_bytes())
    except OSError:
        target.write_bytes(b"")
