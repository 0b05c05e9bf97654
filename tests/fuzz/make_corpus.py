#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes the seed corpora of the fuzzers: inputs that do what a program would do, in a few steps each.

An input is a program of small instructions (input.h); what an instruction takes is in its fuzzer. When that
changes, change this, and run it: it writes corpus/ beside itself. A seed that no longer says what it meant is
still an input like any other.
"""

import itertools
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).resolve().parent


def u16(value):
    return struct.pack("<H", value)


def u64(value):
    return struct.pack("<Q", value)


def program(*parts):
    return b"".join(part if isinstance(part, bytes) else bytes([part]) for part in parts)


# --- admin ---------------------------------------------------------------------------------------------------------

ADMIN = {name: index for index, name in enumerate(
    "nop query_device query_stats set_port set_gid create_eq destroy_eq create_context create_pd destroy_context "
    "destroy_pd create_mkey destroy_mkey modify_mkey query_mkey create_cq destroy_cq resize_cq modify_cq create_srq "
    "destroy_srq modify_srq query_srq resize_srq create_qp destroy_qp modify_qp query_qp attach_mcast detach_mcast "
    "create_nic destroy_nic".split())}


def admin(name, *arguments):
    """A command as it should be, nothing changed in it."""
    return program(8, ADMIN[name], *arguments, 0)


def page(number):
    return program(3, number)


def pages(first, count=1):
    return program(0, page(first), count - 1)


def list_of_pages(at, count, levels):
    return program(7, levels, page(at), count - 1)


def admin_seeds():
    pd = admin("create_pd")
    cq = admin("create_cq", pages(2), 0, 32, 1, 1, 2, 0)
    srq = admin("create_srq", pages(3), 0, 16, 3, 1, 0, 1)
    qp = admin("create_qp", pages(4, 2), 0, 16, 32, 0, 0, 0, 6, 1, 1, 0, 4, 3, 1, 4)
    qp_with_srq = admin("create_qp", pages(6, 2), 0, 0, 32, 0, 0, 0, 3, 0, 1, 2, 2, 4, 4)

    def modify_qp(state, mode, qp=0):
        return admin("modify_qp", qp, state, 2, qp, 0, 14, 7, 16, 0xe, mode)

    direct = admin("create_mkey", 0, 0, 0x1f, pages(8, 4), u16(9000), 1, u16(100), 1)
    window = admin("create_mkey", 3, 0)
    indirect = admin("create_mkey", 5, 0, 0x1f, 1, u16(64))
    klm_list = admin("create_mkey", 6, 0, pages(12, 2), u16(8192), 0)
    write_list = program(0, struct.pack("<I", 16 * 4096), 7, *[program(1, page(20 + i)) for i in range(8)])
    yield "queries", admin("nop") + admin("query_device", page(1)) + admin("query_stats", page(1))
    yield "port", admin("set_port", 3, 0, 5) + admin("set_gid", 9, 0, 3, 1) + admin("set_port", 0, 0, 5)
    yield "keys", pd + direct + window + indirect + klm_list + program(
        *[admin("query_mkey", i, page(1)) for i in range(4)],
        admin("modify_mkey", 0, 7, 0, 0x1f, pages(9, 2), u16(4000), 0, 1),
        *[admin("destroy_mkey", 0) for _ in range(4)], admin("destroy_pd", 0))
    yield "page_list", pd + write_list + admin("create_mkey", 0, 0, 1, list_of_pages(16, 8, 1), u16(30000), 0, 1) \
        + admin("query_mkey", 0, page(1)) + admin("destroy_mkey", 0)
    yield "queues", pd + cq + srq + qp + qp_with_srq + program(
        *[modify_qp(state, 3) for state in (1, 2, 3)], admin("query_qp", 0, page(1)),
        admin("resize_cq", 0, pages(14), 0, 32, 3), admin("modify_cq", 0, u16(4), u16(10)),
        admin("modify_srq", 0, 3), admin("query_srq", 0), admin("resize_srq", 0, pages(15), 0, 40, 4, 1),
        modify_qp(6, 3), admin("destroy_qp", 0), admin("destroy_qp", 0), admin("destroy_srq", 0),
        admin("destroy_cq", 0))
    yield "datagrams", pd + cq + admin("create_qp", pages(4, 2), 0, 16, 32, 0, 0, 0, 6, 1, 1, 2, 4, 3, 1, 4) + program(
        *[modify_qp(state, 1) for state in (1, 2, 3)], admin("attach_mcast", 0, 1), admin("detach_mcast", 0, 1))
    yield "events", admin("create_eq", pages(5), 0, 32, 2, 1, 3) + admin("destroy_eq", 2) + program(7, 3, 1, u16(9), 1, 0)
    yield "nic", admin("create_nic", pages(5), 0, 8, 16, 32, 1, 3, 0, 0) + admin("destroy_nic")
    yield "memory_goes", pd + cq + qp + modify_qp(1, 3) + program(1, 4, 0) + modify_qp(6, 3) + program(1, 0, 2) \
        + admin("destroy_qp", 0) + program(5, 0, 2, 0, 1, b"\0\0\0\0", 2, 1, b"\0\0\0\0")
    yield "contexts", admin("create_context", 3) + admin("destroy_context", 3) + program(3, 3, u16(9), 1, 3)


# --- queues --------------------------------------------------------------------------------------------------------

OPCODES = {name: index for index, name in enumerate(
    "send send_imm send_inv write write2 write_imm read read2 cmp_swap fetch_add masked_cmp_swap masked_fetch_add "
    "flush local_inv bind bind2 reg_mr fill fill2 umr_inv nop atomic_write".split())}
LOOP_A, LOOP_B, TO_VICTIM, DATAGRAM, UNRELIABLE_A, UNRELIABLE_B = range(6)
WIDE, READ_ONLY, OTHER_PD, SCATTERED, ZERO_BASED, W1, W1B, W2, W2B, I0, I1, I2, LIST = range(13)
# The victim's nine keys are behind 0xc0; so many that 0xc0 is the fourth of them.
V_OPEN, V_RECEIVES, V_HIDDEN, V_W1, V_W2, V_W1B, V_W2B, V_I0, V_I1 = (
    next(k for k in range(0xc0, 0xf0) if k % 9 == i) for i in range(9))
RUN = 5


def address(offset):
    return program(3, u16(offset))


def sge(key, offset, length):
    return program(7, key, address(offset), 15, length)


def post(qp, opcode, *arguments):
    return program(19, qp, OPCODES[opcode], 1, 0, *arguments, 1, 1, 0, 1)


def data(qp, opcode, key, offset, *sges, edge=b"\1"):
    atomic = opcode in ("cmp_swap", "fetch_add", "masked_cmp_swap", "masked_fetch_add")
    inv = b"" if opcode == "send_inv" else b"\1"
    head = program(inv, V_W2 if opcode == "send_inv" else b"", key, address(offset), 7, 0, u64(~0 & (1 << 64) - 1))
    if atomic:
        body = program(1, sges[0], 1)
    elif opcode == "flush":
        body = program(1, 0, 15, 64)
    elif opcode == "atomic_write":
        head += b"\1"
        body = b""
    else:
        body = program(len(sges), *sges)
    body += program(edge)
    if qp == DATAGRAM:
        body += program(1, 1, 1, 1)
    return post(qp, opcode, head, body)


def receive(qp, *sges):
    return program(13, {LOOP_A: 6 * 2 + 4}.get(qp, qp) if qp != LOOP_B else 0, len(sges), *sges)


def fill(qp, key, *entries, rounds=0, listed=None):
    head = program(key - I0, 1, 0, 1)
    head += program(1, 1, rounds - 1) if rounds else program(0)
    if listed is not None:
        return post(qp, "fill", head, 0, 1, 0, listed, 1, listed - 1)
    body = program(1, len(entries) - 1, 1, *[program(e, 1, 8) if rounds else program(e, 0) for e in entries])
    return post(qp, "fill", head, body)


def bind(qp, window, on, offset, length, access=0xe):
    return post(qp, "bind", window - W1, on, 1, 1, access, address(offset), 1, u16(length))


def write_list(*entries):
    return program(7, 0, 0, len(entries) - 1, *entries)


def victim(what, which, *arguments):
    return program(12, what, which, *arguments)


def queue_seeds():
    some = sge(WIDE, 64, 100)
    for opcode in OPCODES:
        if opcode in ("bind", "bind2", "fill", "fill2", "local_inv", "umr_inv", "reg_mr", "nop"):
            continue
        for qp in (LOOP_A, TO_VICTIM, UNRELIABLE_A, DATAGRAM):
            yield f"{opcode}_{qp}", receive(LOOP_B, sge(ZERO_BASED, 0, 200)) + receive(qp, some) \
                + receive(UNRELIABLE_B, some) + data(qp, opcode, V_OPEN if qp == TO_VICTIM else ZERO_BASED, 400, some) \
                + bytes([RUN, 11, 1])
    yield "windows", program(*[
        program(bind(LOOP_A, w, WIDE, 128, 256), RUN, data(LOOP_B, "write", w, 16, sge(ZERO_BASED, 0, 64)), RUN)
        for w in (W1, W2)], post(LOOP_A, "local_inv", W2), RUN, data(LOOP_B, "write", W2, 16, some), RUN, 11, 1)
    entries = [sge(WIDE, 40 * i, 8 + i) for i in range(4)]
    yield "indirect", fill(LOOP_A, I0, *entries) + bytes([RUN]) + data(LOOP_B, "write", I0, 3, some) + bytes([RUN]) \
        + data(LOOP_B, "read", I0, 1, some) + bytes([RUN]) + post(LOOP_A, "umr_inv", I0) + bytes([RUN, 11, 1])
    yield "strided", fill(LOOP_A, I1, *entries, rounds=5) + bytes([RUN]) + data(LOOP_B, "write", I1, 9, some) + bytes([RUN])
    yield "nested", fill(LOOP_A, I0, *entries) + fill(LOOP_A, I1, sge(I0, 0, 9), sge(WIDE, 0, 9)) + bytes([RUN]) \
        + fill(LOOP_A, I2, sge(I1, 0, 9)) + bytes([RUN]) + data(LOOP_B, "write", I2, 0, sge(ZERO_BASED, 0, 9)) + bytes([RUN])
    yield "listed", write_list(*[program(e, b"") for e in entries]) + fill(LOOP_A, I1, listed=4) + bytes([RUN]) \
        + data(LOOP_B, "write", I1, 0, some) + bytes([RUN])
    yield "victims_window", victim(2, 0, 0, 1, 5, u16(100), u16(500)) + data(TO_VICTIM, "write", V_W1, 10, some) + bytes([RUN]) \
        + victim(1, 0) + data(TO_VICTIM, "write", V_W1, 10, some) + bytes([RUN, 11, 1, 9, TO_VICTIM, 1]) \
        + data(TO_VICTIM, "read", V_OPEN, 0, some) + bytes([RUN])
    yield "victims_window_2", victim(0, 0, u16(0), u16(512)) + victim(2, 1, 3, 0, 5, u16(300), u16(900)) \
        + data(TO_VICTIM, "write", V_W2, 10, some) + data(TO_VICTIM, "send_inv", V_W2, 0, some) + bytes([RUN]) + victim(0, 0) \
        + data(TO_VICTIM, "write", V_W2, 10, some) + bytes([RUN])
    yield "victims_indirect", victim(2, 4, 2, 1, 0, 3, 100, u16(50), 200, u16(900), 60, u16(4000), 8, u16(20)) \
        + data(TO_VICTIM, "write", V_I0, 30, some) + bytes([RUN]) \
        + victim(2, 2, 0, 1, 0, u16(20), u16(200)) + data(TO_VICTIM, "write", V_W1B, 0, some) + bytes([RUN]) \
        + victim(1, 4) + victim(1, 2) + victim(1, 4) + data(TO_VICTIM, "write", V_I0, 30, some) + bytes([RUN])
    yield "stale_keys", victim(2, 0, 0, 1, 5, u16(100), u16(500)) + victim(2, 1, 3, 0, 5, u16(300), u16(900)) \
        + victim(2, 4, 2, 1, 0, 3, 100, u16(50), 200, u16(900), 60, u16(4000), 8, u16(20)) \
        + b"".join(bytes([15, which, variant, 1 - variant % 2, 4]) for which in (3, 4, 7) for variant in (254, 0, 1))
    for key in (WIDE, V_OPEN, V_RECEIVES):
        for beyond in range(3):
            yield f"edge_{key}_{beyond}", data(TO_VICTIM if key >= 0xc0 else LOOP_A, "write", key, 0, some,
                                               edge=program(0, 1, beyond)) \
                + data(TO_VICTIM, "read", V_OPEN, 0, program(0, READ_ONLY if beyond else WIDE, 50, beyond)) + bytes([RUN])
    yield "key_goes", data(TO_VICTIM, "read", V_OPEN, 0, sge(WIDE, 0, 255), sge(WIDE, 512, 255)) + bytes([4, 2, 8, WIDE, 1, 1, RUN])
    yield "memory_goes", data(LOOP_A, "write", ZERO_BASED, 0, some) + bytes([4, 1, 10, 12, 0, RUN, 10, 0, 2, RUN])
    yield "lies", bytes([1, LOOP_A, 1, 40, 1, RUN, 1, LOOP_A, 0]) + struct.pack("<I", 1 << 31) + bytes([1, RUN, 9, LOOP_A, 1, RUN])
    yield "noise", program(0, LOOP_A, b"\x03\x02\x01\x01" + bytes(60), 0, RUN, 3, LOOP_A, u16(4), 8, b"\xff" * 8, RUN, 2, 1, u16(7), 1, 1)


# --- frames --------------------------------------------------------------------------------------------------------

def frames_seeds():
    def send(offset, length, to=3, how=7):
        return program(11, 1, u16(offset), 20, bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]) + bytes(6), to, how, length)

    def post_rx(offset, length):
        return program(5, 1, u16(offset), 7, length)

    def peer_sends(length, broadcast=0):
        return program(4, length, bytes(length), broadcast, 0)

    yield "to_the_peer", send(0, 10) + send(4000, 100) + send(8190, 187, how=1) + send(64, 0, to=1)
    yield "from_the_peer", post_rx(0, 200) + post_rx(3000, 200) + peer_sends(60) + peer_sends(100, 1) + bytes([7]) \
        + peer_sends(90) + bytes([6, 1]) + u16(9000) + bytes([7, 250, 7])
    yield "too_short", post_rx(0, 2) + peer_sends(100) + bytes([7])
    yield "lies", post_rx(0, 200) + peer_sends(60) + bytes([7, 2, 1, 0, 1, 4, 1, 0, 1]) + peer_sends(60) + bytes([2, 1, 40, 1, 40, 1, 40, 2])
    yield "ports", bytes([3, 0, 7]) + u16(100) + bytes([1]) + send(0, 100) + bytes([3, 1, 4]) + u16(1500) + bytes([1]) + send(0, 10)
    yield "memory_goes", post_rx(0, 200) + bytes([0, 4, 0]) + peer_sends(60) + send(0, 100) + bytes([0, 4, 2]) + peer_sends(60)
    yield "roce", program(11, 1, u16(0), 40, bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]) + bytes(8) + bytes([17]) + bytes(12)
                          + bytes([0x12, 0xb7, 0x12, 0xb7]), 3, 7, 30)
    yield "rewritten", send(0, 10) + program(1, 8, 8, b"\xff" * 8) + send(0, 10)


# --- vfio_user -----------------------------------------------------------------------------------------------------

COMMANDS = {name: index for index, name in enumerate(
    "nop query_device create_eq create_context create_pd create_mkey create_cq set_port create_nic destroy_eq "
    "destroy_cq query_stats".split())}


def step(*parts):
    return program(*parts, 0)  # no time passes


def guest_command(name, *arguments, context=b"", at=8, count=1):
    return step(18, 1, COMMANDS[name], context, page(at), count - 1, *arguments)


def access(write, region, offset, size_bits, value=b"\0" * 8):
    return step(7, int(write), 1, region, 1, u16(offset), 1, size_bits, value + b"\1" if write else b"")


def vfio_seeds():
    begin = bytes([1])
    guest = step(16)
    yield "no_version", bytes([0]) + step(12, 0)
    yield "asks", begin + program(*[step(12, i) for i in (0,)], *[step(12, 1, i) for i in range(9)],
                                  *[step(12, 2, i) for i in range(6)], step(12, 3, 2, 4), step(12, 4))
    yield "maps", begin + program(*[
        step(4, 1, 1, 3, 0, page(i * 4), 2, 4, 0, i) for i in range(4)],
        *[step(6, 1, 0, page(i * 4), 2, 4) for i in range(4)], step(6, 1, 1, b"\2\0\0\0", 1))
    yield "config_space", begin + program(*[access(False, 3, offset, 2) for offset in range(0, 256, 16)],
                                          access(True, 3, 4, 1, u64(6)), access(True, 3, 16, 2, u64(0xffffffff)))
    yield "registers", begin + program(*[access(False, 0, offset, 2) for offset in range(0, 0x48, 4)],
                                       access(True, 0, 0x2000, 2), access(False, 0, 0x3000, 3), access(True, 2, 0, 2))
    yield "doorbells", begin + access(True, 1, 0, 0, u64(1)) + access(False, 1, 0, 3)
    yield "interrupts", begin + program(
        step(10, 0, 0, 1, 1, 1, 0, 1, 4, 1, 1, 1), *[step(10, 2, action, 1, 1, 1, 0, 1, 4, 1) for action in range(3)],
        step(10, 1, 0, 1, 1, 1, 0, 1, 4, b"\1\0\1\1", 1))
    yield "multi", begin + step(9, 2, 1, *[program(1, 2, 1, u16(0), 1, 2, u64(1)) for _ in range(2)])
    yield "guest", begin + guest + program(
        guest_command("create_eq", 0, at=8), guest_command("create_eq", 1, at=9),
        guest_command("create_context", context=b"\1"), guest_command("create_pd"),
        guest_command("create_cq", 2, at=10), guest_command("create_mkey", u16(4000), 0x1f, 0, at=11),
        guest_command("set_port", 7), guest_command("create_nic", at=12), guest_command("query_device", at=13),
        guest_command("query_stats", at=13))
    yield "guest_reset", begin + guest + guest_command("create_pd") + step(12, 4) + guest + guest_command("create_pd") \
        + step(15, 0) + guest
    yield "memory_goes", begin + guest + guest_command("create_eq", 0) + step(6, 1, 1, b"\2\0\0\0", 1) \
        + guest_command("create_eq", 1)
    yield "truncated", begin + guest + guest_command("create_eq", 0, at=20) + step(13, 0, 3) + guest_command("nop") \
        + guest_command("create_pd")
    yield "two", begin + step(14) + step(2, 7) + step(12, 0) + step(15, 0)
    yield "noise", begin + step(1, 16, bytes(range(16))) + step(0, 1, 9, 1, 1, 1, 1, 16, bytes(16))


def main():
    corpus = HERE / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    for target, seeds in (("admin", admin_seeds()), ("queues", queue_seeds()), ("frames", frames_seeds()),
                          ("vfio_user", vfio_seeds())):
        directory = corpus / target
        directory.mkdir(parents=True)
        for name, seed in itertools.chain(seeds):
            (directory / name).write_bytes(seed)


if __name__ == "__main__":
    main()
