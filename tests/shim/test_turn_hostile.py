"""A container writes false signals into its own page; its neighbour keeps its share."""

from __future__ import annotations

import pytest

from support.shares import loads
from support.shares.judge import MODELS, Outcome, Tenant, judge

pytestmark = pytest.mark.usefixtures("built")

BUSY, IN_WAIT, WANTS = 1, 2, 4
# The first container's page, and the signals in it. It can lock a slot without the shim.
PAGE = """
import ctypes, fcntl, json, mmap, os, random, struct, sys, time
from vcuda_oci.pages import layout
given = json.loads(sys.argv[1])
at = {name: offset for name, offset, _ in layout.offsets()}
page = os.open(given["usage"][0], os.O_RDWR)
FIRST, SLOT = at["usage.slot"], layout.USAGE_SLOT_SIZE
GPU = at["usage.gpu"]
call = ctypes.CDLL(None).syscall
shared = mmap.mmap(page, layout.USAGE_SIZE)
bell = ctypes.c_uint32.from_buffer(shared, GPU + at["usage_gpu.bell"])
def ring():
    bell.value = (bell.value + 1) % (1 << 32)
    call(202, ctypes.byref(bell), 1, 1 << 30, None, None, 0)
def put(offset, value, size):
    os.pwrite(page, value.to_bytes(size, "little"), offset)
def mark(slot, marks):
    put(FIRST + slot * SLOT + at["usage_slot.turn_marks"], marks, 8)
def claim(slot):
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE + slot, 1, 0)
    fcntl.fcntl(page, 37, lock)  # F_OFD_SETLK
    put(at["usage.slots_used"], slot + 1, 4)
def busy_until(moment):
    put(GPU + at["usage_gpu.busy_until_ns"], moment, 8)
"""
BUSY_FOR_EVER = """
claim(5)
while True:
    mark(5, 3); busy_until((1 << 64) - 1); ring()
    time.sleep(0.01)
"""
WANTS_FOR_EVER = """
claim(5)
while True:
    mark(5, 4); ring()
    time.sleep(0.01)
"""
NEVER_BUSY = """
while True:
    for slot in range(4):
        mark(slot, 0)
    time.sleep(0.0001)
"""
TRUNCATED = """
time.sleep(0.5)
os.ftruncate(page, 100)
time.sleep(3600)
"""
RINGING = """
while True:
    ring()
    time.sleep(0.00002)
"""
RANDOM = """
random.seed(7)
while True:
    for _ in range(20):
        put(GPU + random.randrange(16 * layout.USAGE_GPU_SIZE), random.getrandbits(64), 8)
    for slot in range(4):
        mark(slot, random.getrandbits(64))
    ring()
    time.sleep(0.001)
"""


def beside(script: str, working: bool, window_s: float = 10) -> Outcome:
    """30 percent that write false signals, and 70 that do not."""
    tenants = [Tenant(30, loads.AHEAD if working else None), Tenant(70, loads.AHEAD)]
    return judge(MODELS["default"], tenants, window_s=window_s, scripts=[PAGE + script])


def measured(outcome: Outcome) -> dict[str, float]:
    return {
        "neighbour": 100 * outcome.tenants[1].share,
        "work": 100 * outcome.tenants[1].work,
        "hostile": 100 * outcome.tenants[0].work,
        "wakes a second": outcome.wakes / outcome.window_s,
    }


if __name__ == "__main__":  # what each does, for a person
    for name, script, working in [
        ("busy", BUSY_FOR_EVER, False),
        ("wants", WANTS_FOR_EVER, False),
        ("never busy", NEVER_BUSY, True),
        ("truncated", TRUNCATED, True),
        ("ringing", RINGING, True),
        ("random", RANDOM, True),
    ]:
        try:
            outcome = beside(script, working)
            print(name, measured(outcome), repr(outcome.errors[:300]))
        except BaseException as error:
            print(name, "FAILED", repr(error)[:600])
