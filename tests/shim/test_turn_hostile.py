"""A container writes false signals into its own page; its neighbour keeps its share."""

from __future__ import annotations

import pytest

from support.shares import loads
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built")

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
    time.sleep(0.0001)
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
# Plausible values of the fields by which turns go, at random moments, a thousand times a second.
FLIPS = """
random.seed(%d)
while True:
    field = random.randrange(4)
    if field == 0:
        mark(random.randrange(4), random.randrange(8))
    elif field == 1:
        ring()
    elif field == 2:
        put(GPU + at["usage_gpu.work_begun"], random.getrandbits(32), 4)
    else:
        busy_until(time.monotonic_ns() + random.randrange(-(10**8), 10**8))
    time.sleep(random.expovariate(1000))
"""


# The same page and bell as BUSY_FOR_EVER, without a false mark.
HONEST = """
claim(5)
while True:
    mark(5, 0); busy_until((1 << 64) - 1); ring()
    time.sleep(0.01)
"""


def report(what: str) -> str:
    return f"vcuda-turn-keeper: container c0 {what}; others go on without waiting for it\n"


ENDLESS = report("does not let its GPU queue end")
CUT = report("has cut its usage page short")
LIES = report("says again and again that it uses the GPU without a turn")


def beside(script: str, working: bool) -> Outcome:
    """30 percent that write false signals, and 70 that do not."""
    tenants = [Tenant(30, loads.AHEAD if working else None), Tenant(70, loads.AHEAD)]
    return judge(MODELS["default"], tenants, scripts=[PAGE + script])


@pytest.mark.parametrize(
    ("script", "working", "errors"),
    [
        (HONEST, False, set()),
        (BUSY_FOR_EVER, False, {ENDLESS}),
        (BUSY_FOR_EVER, True, {ENDLESS}),
        (WANTS_FOR_EVER, False, set()),
        (RINGING, True, set()),
        (NEVER_BUSY, True, set()),
        (TRUNCATED, True, {CUT}),
        (RANDOM, True, {LIES}),
    ],
    ids=["honest", "busy", "busy beside work", "wants", "rings", "never busy", "cut", "random"],
)
def test_a_false_page_takes_no_work_from_a_neighbour_and_is_reported(
    script: str, working: bool, errors: set[str]
) -> None:
    """Judged by work: a turn in which the driver slices another's kernels is not whole."""
    outcome = beside(script, working)
    assert (outcome.keeper_survived, set(outcome.errors.splitlines(True))) == (True, errors)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30.5


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
def test_a_container_that_cuts_its_page_gets_its_own_share_still(load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TRUNCATED])
    assert 100 * outcome.tenants[0].share == pytest.approx(30, abs=2)


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fields_that_change_at_random_moments_take_no_work_from_a_neighbour(
    seed: int, load: Load
) -> None:
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + FLIPS % seed])
    assert outcome.keeper_survived
    assert set(outcome.errors.splitlines(True)) == {ENDLESS}
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30
