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
REPORT = (
    "vcuda-turn-keeper: container c0 does not let its GPU queue end; others go on without"
    " waiting for it\n"
)


def beside(script: str, working: bool) -> Outcome:
    """30 percent that write false signals, and 70 that do not."""
    tenants = [Tenant(30, loads.AHEAD if working else None), Tenant(70, loads.AHEAD)]
    return judge(MODELS["default"], tenants, scripts=[PAGE + script])


@pytest.mark.parametrize(
    ("script", "working"),
    [
        (HONEST, False),
        (BUSY_FOR_EVER, False),
        (WANTS_FOR_EVER, False),
        (RINGING, True),
        (NEVER_BUSY, True),
    ],
    ids=["honest", "busy", "wants", "rings", "never busy"],
)
def test_a_false_page_takes_no_work_from_a_neighbour(script: str, working: bool) -> None:
    """Judged by work: a turn in which the driver slices another's kernels is not whole."""
    outcome = beside(script, working)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)


@pytest.mark.parametrize(
    ("script", "working", "least"),
    [(TRUNCATED, True, 58), (RANDOM, True, 62)],
    ids=["truncated", "random bytes"],
)
def test_a_false_page_takes_a_part_of_a_neighbours_work_at_most(
    script: str, working: bool, least: float
) -> None:
    """The goal is 68 of 70: the driver slices kernels that the keeper does not know of."""
    outcome = beside(script, working)
    assert least < 100 * outcome.tenants[1].work < 72


@pytest.mark.parametrize(
    ("script", "working", "errors"),
    [
        (BUSY_FOR_EVER, False, REPORT),
        (WANTS_FOR_EVER, False, ""),
        (NEVER_BUSY, True, ""),
        (TRUNCATED, True, ""),
        (RINGING, True, ""),
        (RANDOM, True, ""),
    ],
    ids=["busy", "wants", "never busy", "truncated", "rings", "random bytes"],
)
def test_the_keeper_survives_a_false_page_and_reports_an_endless_queue(
    script: str, working: bool, errors: str
) -> None:
    outcome = beside(script, working)
    assert (outcome.keeper_survived, outcome.errors) == (True, errors)
    # Whatever the page says, its neighbour is not stuck.
    assert outcome.tenants[1].work > 0.5


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fields_that_change_at_random_moments_cost_a_neighbour_a_few_points(
    seed: int, load: Load
) -> None:
    """65.7 to 66.8 of 70 were measured; the goal is 68. The keeper doubts the page and says so."""
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + FLIPS % seed])
    assert outcome.keeper_survived
    assert set(outcome.errors.splitlines(keepends=True)) == {REPORT}
    assert 65 <= 100 * outcome.tenants[1].work <= 72
    assert 100 * outcome.tenants[0].work <= 30
