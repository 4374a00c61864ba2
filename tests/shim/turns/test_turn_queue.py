"""Which container is next: properties of the turn keeper's queue.c for any tenants and kernels."""

from __future__ import annotations

import ctypes
import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.files import ROOT

MS = 1_000_000
TURN_NS = 15 * MS
PASS_NS = 160_000  # between two turns


class Claimant(ctypes.Structure):
    """struct claimant of queue.h"""

    _fields_ = [
        ("rate_ppm", ctypes.c_uint32),
        ("reserved_ppm", ctypes.c_uint32),
        ("fixed", ctypes.c_bool),
        ("budget_ns", ctypes.c_int64),
        ("debt_ns", ctypes.c_int64),
        ("turn_ns", ctypes.c_int64),
        ("since_ns", ctypes.c_int64),
        ("hidden_ns", ctypes.c_int64),
        ("wants", ctypes.c_bool),
        ("returns", ctypes.c_bool),
        ("holds", ctypes.c_bool),
    ]


def claimant(rate_ppm, **fields):
    """One that wants, has a fixed share, and no debt."""
    given = {"reserved_ppm": rate_ppm, "fixed": True, "turn_ns": TURN_NS, "wants": True}
    return Claimant(rate_ppm=rate_ppm, **given | fields)


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    library = str(tmp_path_factory.mktemp("queue") / "queue.so")
    turns = os.path.join(ROOT, "libvcuda", "turns")
    command = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "-I",
        turns,
    ]
    # An overflow of a budget ends the test's process.
    command += ["-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
    subprocess.run([*command, "-o", library, f"{turns}/tenant/queue.c"], check=True)
    loaded = ctypes.CDLL(library)
    loaded.queue_length_ns.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_bool]
    loaded.queue_length_ns.restype = ctypes.c_int64
    loaded.queue_turn_ns.restype = loaded.queue_ready_in.restype = ctypes.c_int64
    loaded.queue_turn_among_ns.restype = ctypes.c_int64
    loaded.queue_whole_in.restype = ctypes.c_int64
    loaded.queue_pass_time.argtypes = [ctypes.POINTER(Claimant), ctypes.c_int64]
    return loaded


class Gpu:
    """Tenants that always want the GPU; a kernel of its own length overruns each one's turn."""

    def __init__(self, queue, cores, kernels_ns):
        self.queue = queue
        self.tenants = [claimant(core * 10_000) for core in cores]
        self.kernels_ns = kernels_ns
        self.array = (ctypes.POINTER(Claimant) * len(cores))(*map(ctypes.pointer, self.tenants))
        self.held = [0] * len(cores)
        self.waited = [0] * len(cores)
        self.longest = [0] * len(cores)
        for tenant in self.tenants:
            queue.queue_start(ctypes.byref(tenant))

    def advance(self, ns):
        for at, tenant in enumerate(self.tenants):
            self.queue.queue_pass_time(ctypes.byref(tenant), ns)
            self.held[at] += ns if tenant.holds else 0
            self.waited[at] = 0 if tenant.holds else self.waited[at] + ns
            self.longest[at] = max(self.longest[at], self.waited[at])
        self.queue.queue_pass_debts(self.array, len(self.tenants), ctypes.c_int64(ns))
        self.queue.queue_level(self.array, len(self.tenants))

    def turn_ns(self, tenant):
        return self.queue.queue_turn_among_ns(self.array, len(self.tenants), ctypes.byref(tenant))

    def step(self):
        """One turn, or the pause until one is ready. Returns how long it took."""
        chosen = self.queue.queue_next(self.array, len(self.tenants))
        if chosen < 0:
            ns = max(1, self.queue.queue_ready_in(self.array, len(self.tenants)))
            self.advance(ns)
            return ns
        tenant, kernel_ns = self.tenants[chosen], self.kernels_ns[chosen]
        ns = self.turn_ns(tenant)
        ns = -(-ns // kernel_ns) * kernel_ns  # it ends with a kernel
        tenant.holds, tenant.wants = True, False
        self.advance(ns)
        tenant.holds, tenant.wants = False, True
        self.advance(PASS_NS)
        return ns + PASS_NS


def run(queue, cores, kernels_ns, seconds):
    gpu, passed = Gpu(queue, cores, kernels_ns), 0
    while passed < seconds * 1000 * MS:
        passed += gpu.step()
    return gpu, passed


@st.composite
def tenants(draw, longest_ms=400):
    """Cores that sum to at most 95, since passing turns takes some, and a kernel for each."""
    count = draw(st.integers(2, 8))
    weights = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    cores = [max(1, weight * 95 // sum(weights)) for weight in weights]
    while sum(cores) > 95:
        cores[cores.index(max(cores))] -= 1
    kernel = st.sampled_from([50_000, MS, 5 * MS, 25 * MS, 300 * MS, 400 * MS])
    kernels = draw(st.lists(kernel, min_size=count, max_size=count))
    return cores, [min(one, longest_ms * MS) for one in kernels]


@settings(max_examples=40, deadline=None)
@given(tenants())
def test_each_tenant_holds_its_share_of_a_long_window_whatever_the_kernels(queue, drawn):
    cores, kernels_ns = drawn
    gpu, passed = run(queue, cores, kernels_ns, 120)
    shares = [100 * held / passed for held in gpu.held]
    # Each overruns by a kernel, and waits for the kernels of all others.
    error = 100 * sum(kernels_ns) / passed + 0.5
    assert shares == [pytest.approx(core, abs=error) for core in cores]


@settings(max_examples=40, deadline=None)
@given(tenants())
def test_no_tenant_starves(queue, drawn):
    """It waits for what it earns a kernel in, and for three turns and kernels of each other one: a
    tenant that is ahead is passed over.
    """
    cores, kernels_ns = drawn
    gpu, _ = run(queue, cores, kernels_ns, 60)
    others = sum(TURN_NS + kernel + PASS_NS for kernel in kernels_ns)
    for core, kernel, longest in zip(cores, kernels_ns, gpu.longest, strict=True):
        assert longest <= (TURN_NS + kernel) * 100 / core + 3 * others


@settings(max_examples=60, deadline=None)
@given(tenants(), st.lists(st.integers(0, 50 * MS), min_size=1, max_size=50))
def test_a_budget_is_what_was_earned_less_what_was_held(queue, drawn, spans):
    """Without levelling, to a nanosecond of rounding each time."""
    cores, _ = drawn
    for at, core in enumerate(cores):
        tenant = claimant(core * 10_000, wants=at > 0, holds=at == 0)
        queue.queue_start(ctypes.byref(tenant))
        before = tenant.budget_ns
        for ns in spans:
            queue.queue_pass_time(ctypes.byref(tenant), ns)
        earned = sum(spans) * core / 100 - (sum(spans) if tenant.holds else 0)
        assert tenant.budget_ns - before == pytest.approx(earned, abs=len(spans))


@settings(max_examples=60, deadline=None)
@given(tenants(), st.integers(0, 60_000 * MS), st.integers(-5_000 * MS, 30 * MS))
def test_hidden_work_costs_its_tenant_double_and_the_others_get_it_by_rate(
    queue, drawn, hidden, budget
):
    cores, kernels_ns = drawn
    gpu = Gpu(queue, cores, kernels_ns)
    gpu.tenants[0].budget_ns = budget
    before = [tenant.budget_ns for tenant in gpu.tenants]
    gpu.tenants[0].hidden_ns = hidden
    queue.queue_charge_hidden(gpu.array, len(cores))
    changes = [one.budget_ns - was for one, was in zip(gpu.tenants, before, strict=True)]
    others = [hidden * 3 // 2 * core / sum(cores[1:]) for core in cores[1:]]
    assert gpu.tenants[0].budget_ns == max(budget - 2 * hidden, min(budget, -2_000 * MS))
    assert changes[1:] == [*(pytest.approx(one, abs=1) for one in others)]
    assert gpu.tenants[0].hidden_ns == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(10**10), 10**10), min_size=2, max_size=8))
def test_levelling_takes_the_same_span_from_all_and_leaves_enough(queue, budgets):
    rate = 1_000_000 // len(budgets)
    all_of = [claimant(rate, budget_ns=budget) for budget in budgets]
    array = (ctypes.POINTER(Claimant) * len(all_of))(*map(ctypes.pointer, all_of))
    queue.queue_level(array, len(all_of))
    taken = [budget - one.budget_ns for budget, one in zip(budgets, all_of, strict=True)]
    assert taken == [taken[0]] * len(taken)
    assert taken[0] >= 0
    if taken[0]:
        assert min(one.budget_ns for one in all_of) >= 16 * TURN_NS * rate // 1_000_000 - 1


def test_levelling_takes_nothing_of_a_tenant_that_pauses(queue):
    saves = claimant(300_000, budget_ns=90 * MS)
    pauses = claimant(700_000, budget_ns=2 * MS, wants=False)
    array = (ctypes.POINTER(Claimant) * 2)(ctypes.pointer(saves), ctypes.pointer(pauses))
    queue.queue_level(array, 2)
    assert (saves.budget_ns, pauses.budget_ns) == (72 * MS, 2 * MS)


@pytest.mark.parametrize(
    ("count", "pass_us", "turn_ms", "used_ms"),
    [
        (2, 0, 15, 20),
        (2, 160, 15, 20),
        (2, 640, 25.6, 25.6),
        (2, 10**6, 30, 30),
        (4, 160, 15, 20),
        (5, 160, 15, 15),
        (8, 10**6, 15, 15),
    ],
)
def test_a_turn_is_longer_where_a_pass_loses_more(queue, count, pass_us, turn_ms, used_ms):
    """And where few containers all use their turns to the end."""
    assert queue.queue_length_ns(count, pass_us * 1000, False) == turn_ms * MS
    assert queue.queue_length_ns(count, pass_us * 1000, True) == used_ms * MS


@pytest.mark.parametrize(
    ("core", "pause_ms", "turn_ms"),
    [(1, 200, 2.0), (10, 135, 15), (23, 50.2, 15), (30, 50, 21.4), (50, 50, 50), (80, 22.5, 90)],
)
def test_turns_that_no_other_waits_for_are_long_after_pauses_of_50_ms(
    queue, core, pause_ms, turn_ms
):
    """A small share pauses as long as among others."""
    tenant = claimant(core * 10_000, turn_ns=6 * TURN_NS)
    array = (ctypes.POINTER(Claimant) * 1)(ctypes.pointer(tenant))
    pause = queue.queue_ready_in(array, 1)
    queue.queue_pass_time(ctypes.byref(tenant), pause)
    assert queue.queue_next(array, 1) == 0
    found = pause / MS, queue.queue_turn_ns(ctypes.byref(tenant)) / MS
    assert found == (pytest.approx(pause_ms, abs=0.1), pytest.approx(turn_ms, abs=0.1))


@settings(max_examples=100, deadline=None)
@given(tenants(), st.lists(st.integers(-50 * MS, 50 * MS), min_size=8, max_size=8))
def test_a_turn_goes_on_until_another_has_enough_for_a_whole_one(queue, drawn, budgets):
    """Or until its budget is used up, or for 90 ms."""
    cores, kernels_ns = drawn
    gpu = Gpu(queue, cores, kernels_ns)
    for tenant, budget in zip(gpu.tenants, budgets, strict=False):
        tenant.budget_ns = budget
    holder, least = gpu.tenants[0], queue.queue_turn_ns(ctypes.byref(gpu.tenants[0]))

    def whole_in():
        return queue.queue_whole_in(gpu.array, len(cores), ctypes.byref(holder))

    turn = gpu.turn_ns(holder)
    assert least <= turn <= (90 * MS if len(cores) <= 4 else max(least, TURN_NS))
    holder.holds, holder.wants = True, False
    if turn > least:
        gpu.advance(turn - 2)
        assert whole_in() > 0
        gpu.advance(4)
        assert turn == 90 * MS or holder.budget_ns < 10 or whole_in() == 0


def test_equal_tenants_take_turns_in_order(queue):
    """None has two turns while another one waits, so no wait is longer than a round."""
    gpu, _ = run(queue, [6] * 16, [MS] * 16, 30)
    assert max(gpu.longest) <= 17 * (TURN_NS + MS + PASS_NS)


def array_of(*tenants):
    return (ctypes.POINTER(Claimant) * len(tenants))(*map(ctypes.pointer, tenants))


@pytest.mark.parametrize(("ahead_ms", "next_one"), [(59.9, 0), (60, 0), (60.1, 1)])
def test_a_tenant_with_60_ms_more_debt_than_another_is_passed_over(queue, ahead_ms, next_one):
    """The first has waited longer."""
    enough = {"budget_ns": 20 * MS}
    first = claimant(300_000, since_ns=90 * MS, debt_ns=int((ahead_ms - 7) * MS), **enough)
    second = claimant(300_000, since_ns=10 * MS, debt_ns=-7 * MS, **enough)
    # Neither a resting one nor one that is not ready counts.
    resting = claimant(300_000, wants=False, debt_ns=-500 * MS, **enough)
    poor = claimant(300_000, debt_ns=-500 * MS, budget_ns=0)
    assert queue.queue_next(array_of(first, second, resting, poor), 4) == next_one


@pytest.mark.parametrize(
    ("since_ms", "turn_ms", "budget_ms", "raised_us"),
    [
        (15, 30, 9, 0),  # enough for a turn of 30 ms
        (15, 30, 8.9, 105),
        (10, 30, 5, 70),
        (15, 30, 5, 105),
        (500, 30, 5, 105),  # 15 ms at most
        (15, 15, 5, 0),  # turns are not longer than usual
        (15, 90, 5, 0),  # no other waits
    ],
)
def test_budgets_too_small_for_long_turns_grow_by_a_hundredth(
    queue, since_ms, turn_ms, budget_ms, raised_us
):
    one = claimant(700_000, turn_ns=turn_ms * MS, budget_ns=int(budget_ms * MS))
    other = claimant(300_000, turn_ns=turn_ms * MS)
    span = ctypes.c_int64(since_ms * MS)
    queue.queue_raise(array_of(one, other), 2, ctypes.byref(one), span)
    assert one.budget_ns == int(budget_ms * MS) + raised_us * 1000
    assert other.budget_ns == raised_us * 1000 * 3 // 7


@pytest.mark.parametrize(
    ("bucket_ms", "since_ms", "alone_ms", "budget_ms"),
    [
        (2, 0, 1000, 2),
        (2, 10, 1000, 5),  # it fills meanwhile
        (500, 0, 1000, 10),  # a bucket saves no more
        (2, 1000, 1000, 10),
        (9, 0, 10, 4),  # more than without work: 1 ms, and 3 earned in 10
        (-5000, 0, 1000, -2000),
        (-100, -5, 1000, 10),  # from the future: a page may say anything
    ],
)
def test_budget_takes_the_bucket_over_as_far_as_it_can_be_true(
    queue, bucket_ms, since_ms, alone_ms, budget_ms
):
    one = claimant(300_000, budget_ns=MS)
    times = [ctypes.c_int64(ms * MS) for ms in (bucket_ms, since_ms, alone_ms)]
    queue.queue_take_over(ctypes.byref(one), *times)
    assert one.budget_ns == budget_ms * MS
