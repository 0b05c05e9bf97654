# SPDX-License-Identifier: BSD-2-Clause
"""What a test in the guest may ask of the world outside, through files in the directory they share.

The guest writes request-N (JSON, renamed into place) and waits for reply-N. It can end and restart
keyholed, read its statistics, and speak to QEMU, which is what a test of failure needs. There
is nothing else in it, since a test that runs in the guest should see what a guest sees.
"""

import contextlib
import json
import os
import socket
import subprocess

CONTROL_TIMEOUT = 10


class Requests:
    def __init__(self, session):
        self.session = session
        self.directory = session.place.directory

    def serve(self):
        for path in sorted(self.directory.glob("request-*")):
            try:
                request = json.loads(path.read_text())
                reply = {"ok": True, "result": self.answer(request)}
            except Exception as error:  # whatever it was, the guest's test should say it, not wait
                reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
            path.unlink()
            temporary = self.directory / "reply.tmp"
            temporary.write_text(json.dumps(reply))
            temporary.rename(self.directory / path.name.replace("request", "reply"))

    def answer(self, request):
        match request["do"]:
            case "kill-keyholed":
                self.session.keyholed.kill()
                self.session.keyholed.wait()
            case "start-keyholed":
                self.session.start_keyholed()
            case "keyholed-status":
                return self.session.keyholed.poll()
            case "keyholed-usage":
                return usage(self.session.keyholed.pid)
            case "control":
                return self.control(request["command"])
            case "qmp":
                return self.qmp(request["command"], request.get("arguments", {}))
            case other:
                raise ValueError(f"no such request: {other}")

    @contextlib.contextmanager
    def connection(self, name):
        """A connection to a socket in the run's directory, however long that directory's path is."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONTROL_TIMEOUT)
            fd = os.open(self.directory, os.O_PATH)
            try:
                connection.connect(f"/proc/self/fd/{fd}/{name}")
            finally:
                os.close(fd)
            yield connection

    def control(self, command):
        """Sends one line to keyholed's control socket and returns its JSON answer."""
        with self.connection("control.sock") as connection:
            connection.sendall(command.encode() + b"\n")
            return json.loads(connection.makefile().readline())

    def qmp(self, command, arguments):
        with self.connection("qmp.sock") as connection:
            lines = connection.makefile("rw")
            lines.readline()  # the greeting
            for message in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(message) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                while "event" in answer:
                    answer = json.loads(lines.readline())
            if "error" in answer:
                raise RuntimeError(answer["error"]["desc"])
            return answer["return"]


def usage(wrapper_pid):
    """CPU seconds and memory of keyholed: the process at the end of the chain that the room's entry makes."""
    pid = wrapper_pid
    while children := subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE,
                                     text=True).stdout.split():
        pid = int(children[0])
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return {"cpu_ticks": ticks, "ticks_per_second": 100, "threads": int(status["Threads"]),
            "anonymous_kb": int(status.get("RssAnon", "0 kB").split()[0])}
