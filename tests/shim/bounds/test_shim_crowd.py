"""Hundreds of processes that start at once, and thousands one after the other."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys

from shim.bounds.test_shim_robust import F_OFD_SETLK, held_by_process, ledger
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, share
from vcuda_oci.pages import layout, page_reader

GRANTED, REFUSED = "0", "304"  # CUDA_SUCCESS, CUDA_ERROR_OPERATING_SYSTEM
SEND_THEM_HOME = "\n"


def answers(crowd: subprocess.Popen[str]) -> dict[str, int]:
    """The numbers of granted and of refused processes of a waiting crowd."""
    line = ""
    assert crowd.stdout
    while not line.endswith("}"):
        line += crowd.stdout.read(1)
    return json.loads(line + "}")["answers"]


def ends(crowd: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """End a crowd; return the number of failed processes, and stderr."""
    out, err = crowd.communicate(SEND_THEM_HOME, timeout=120)
    return json.loads(out.split('"ended badly":')[1].rstrip("}\n")), err.splitlines()


def test_three_hundred_processes_of_four_containers_start_at_once_and_each_gets_its_piece(
    host, new_guest, client
):
    guests = [new_guest(share(host.uuids[0], 75 * MIB)) for _ in range(4)]
    crowds = [guest.start(client("crowd"), "75", str(MIB), stdin=-1) for guest in guests]
    assert [answers(crowd) for crowd in crowds] == [{GRANTED: 75}] * 4
    held = [held_by_process(guest) for guest in guests]
    assert [sorted(each.values()) for each in held] == [[MIB] * 75] * 4
    assert ledger(host.path) == {pid: MIB for each in held for pid in each}
    assert [ends(crowd) for crowd in crowds] == [(0, [])] * 4
    assert ledger(host.path) == {}
    assert [guest.json(client("storm"), "1", "1", str(75 * MIB), "1") for guest in guests] == [
        [1]
    ] * 4


def test_a_container_has_256_processes_and_the_next_ones_get_the_reason(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    crowd = guest.start(client("crowd"), "300", str(MIB), stdin=-1)
    assert answers(crowd) == {GRANTED: layout.MAX_PROCESSES, REFUSED: 300 - layout.MAX_PROCESSES}
    held = held_by_process(guest)
    assert sorted(held.values()) == [MIB] * layout.MAX_PROCESSES
    assert ledger(host.path) == held
    line = (
        "libvcuda: /usr/local/vcuda/usage: 256 processes of this container use its GPUs; "
        "no more can; end one of them"
    )
    assert ends(crowd) == (0, [line] * (300 - layout.MAX_PROCESSES))
    assert guest.json(client("storm"), "1", "1", str(GIB), "1") == [1]


def test_three_thousand_processes_and_every_third_of_them_killed_wear_nothing_out(
    host, new_guest, client
):
    guest = new_guest(share(host.uuids[0], 8 * MIB))
    worn = guest.json(client("crowd"), "3000", str(MIB), "worn")
    assert worn["answers"] == {GRANTED: 3000}
    with open(guest.usage, "rb") as usage:
        left = page_reader.read_usage(usage.read()).processes
    # Eight ran at a time: a later process took a slot that an earlier one had released.
    assert max((each.slot for each in left), default=0) < 16
    assert guest.json(client("storm"), "1", "1", str(8 * MIB), "1") == [1]
    assert ledger(host.path) == {}


def test_a_refusal_waits_briefly_for_a_stopped_process_and_never_for_a_killed_one(host, new_guest):
    """It holds the lock under which one process at a time may refuse."""
    guest = new_guest(share(host.uuids[0], MIB))
    hold = (
        "import fcntl, struct, sys, time\n"
        "usage = open(sys.argv[1], 'r+b')\n"
        "fcntl.fcntl(usage, int(sys.argv[2]), bytes.fromhex(sys.argv[3]))\n"
        "print(1, flush=True); time.sleep(100)"
    )
    at = layout.USAGE_LOCK_BASE + layout.MAX_PROCESSES  # VCUDA_USAGE_REFUSE_LOCK
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, at, 1, 0)
    refuse = PRELUDE + (
        "import time; must(cu.cuMemAlloc(1)); began = time.monotonic();"
        "answer = cu.cuMemAlloc(1 << 20)[0].name;"
        "print(json.dumps([answer, time.monotonic() - began]))"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, guest.usage, str(F_OFD_SETLK), lock.hex()],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    try:
        assert holder.stdout.read(2) == b"1\n"
        os.kill(holder.pid, signal.SIGSTOP)
        beside_stopped, waited = guest.python(refuse)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    after_killed, briefly = guest.python(refuse)
    assert [beside_stopped, after_killed] == ["CUDA_ERROR_OUT_OF_MEMORY"] * 2
    assert briefly < 0.5 < waited < 5
