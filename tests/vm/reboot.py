#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The guest starts anew while keyholed lives on: what its former life held is gone, and the devices work.

Once the machine is reset in the middle of traffic, as by a button; then the kernel reboots, also under traffic. Each
time the guest comes back to this program, which finds in the directory that it shares with the lab how far it is.
"""

import json
import subprocess
import sys
import time

import guest
from lifecycle import Traffic, two, works

STATE = guest.SHARED / "reboot.json"


def a_button():
    # The lab's QEMU ends where a machine would start again, so that a panic ends the test.
    guest.ask("qmp", command="set-action", arguments={"reboot": "reset"})
    guest.ask("qmp", command="system_reset")


def the_kernel():
    subprocess.run(["busybox", "reboot", "-f"], check=True)


WAYS = [a_button, the_kernel]


def go_down(stage, fresh):
    """Does not come back."""
    Traffic(two(), 18790).flows()
    holder = subprocess.Popen([str(guest.BUILD / "plain/tests/vm/mkey_objects"), two()[0].device, "hold"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    said = holder.stdout.readline()
    assert said == "holding 600\n", f"the program that holds objects said {said!r}"
    assert guest.device_holds() != fresh, "the devices hold nothing that could be lost"
    # The log of this life, which the lab looks at as at the last one's.
    log = subprocess.run(["dmesg"], stdout=subprocess.PIPE, check=True).stdout
    (guest.SHARED / f"dmesg-{stage}").write_bytes(log)
    STATE.write_text(json.dumps({"stage": stage + 1, "fresh": fresh}))
    WAYS[stage]()
    time.sleep(60 * guest.PATIENCE)
    raise AssertionError("the machine goes on")


def main():
    state = json.loads(STATE.read_text()) if STATE.exists() else {"stage": 0, "fresh": None}
    stage, fresh = state["stage"], state["fresh"]
    try:
        two()
        if stage > 0:
            guest.settle(lambda: guest.device_holds() == fresh, f"the devices hold {fresh}, not {guest.device_holds()},")
            works()
            print(f"the devices are as new after {WAYS[stage - 1].__name__.replace('_', ' ')} has started the machine anew", flush=True)
        if stage < len(WAYS):
            go_down(stage, fresh or guest.device_holds())
        verdict = None
    except (AssertionError, OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
        verdict = error
        print(f"FAIL: {error}", flush=True)
    STATE.unlink(missing_ok=True)
    guest.record("reboot", stage if verdict else len(WAYS), int(verdict is not None))
    return int(verdict is not None)


if __name__ == "__main__":
    sys.exit(main())
