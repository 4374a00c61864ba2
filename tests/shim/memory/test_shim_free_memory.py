"""How old cuMemGetInfo's answer may be: of what the container holds never, of others a little.

The program asks in a burst, so that it need not look at the clock for a while, and waits for a
line. Meanwhile another container takes memory.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from shim.cuda_program import CALLS, START
from support.gpu.guest import GIB, PYTHON, WORKLOAD, share

MOST_STALE = 63
MONOTONIC_COARSE = 6  # of linux/time.h
PROGRAM = (
    START
    + """
def ask(times):
    return [must(cu.cuMemGetInfo())[0] for _ in range(times)]
before = ask(%d)
print(json.dumps(before[-1]), flush=True)
sys.stdin.readline()
%s
print(json.dumps(ask(%d)), flush=True)
"""
)


def wait_for_the_next_tick() -> None:
    """An answer counts for one tick of the kernel's coarse clock."""
    tick = time.clock_gettime(MONOTONIC_COARSE)
    while time.clock_gettime(MONOTONIC_COARSE) == tick:
        time.sleep(0.001)


@pytest.fixture
def answers():
    """The free memory that a program saw before and after another container took some."""

    def get(guest, taker, taken, burst=64, between="", after=1):
        with contextlib.ExitStack() as stack:
            program = PROGRAM % (burst, between, after)
            asking = stack.enter_context(guest.start(PYTHON, "-c", program, stdin=-1))
            stack.callback(asking.kill)
            before = json.loads(asking.stdout.readline())
            hold = [WORKLOAD, "hold", "--bytes", str(taken), "--seconds", "60"]
            holding = stack.enter_context(taker.start(*hold))
            stack.callback(holding.kill)
            assert holding.stdout.readline()
            wait_for_the_next_tick()
            asking.stdin.write("\n")
            asking.stdin.flush()
            return before, json.loads(asking.stdout.readline())

    return get


@pytest.fixture
def two(host, new_guest):
    """Two containers that are promised more than the GPU has."""
    return [new_guest(share(host.uuids[0], 12 * GIB, 50)) for _ in range(2)]


def test_what_another_process_of_the_container_takes_is_seen_at_once(two, answers):
    assert answers(two[0], two[0], GIB) == (12 * GIB, [11 * GIB])


def test_what_another_container_takes_is_seen_at_once_by_an_occasional_caller(two, answers):
    assert answers(two[0], two[1], 10 * GIB, burst=1) == (12 * GIB, [6 * GIB])


def test_what_another_container_takes_is_seen_within_some_answers_by_a_constant_caller(
    two, answers
):
    before, after = answers(two[0], two[1], 10 * GIB, after=MOST_STALE + 1)
    assert before == 12 * GIB
    assert after[-1] == 6 * GIB


def test_what_another_container_takes_is_seen_at_once_after_a_wait_for_the_gpu(two, answers):
    between = "must(cu.cuCtxSynchronize())"
    assert answers(two[0], two[1], 10 * GIB, between=between) == (12 * GIB, [6 * GIB])


def test_free_memory_follows_neighbours_at_once_on_a_short_gpu(two, answers):
    # 6 GiB of the GPU are free then, half of the share.
    between = """
ask(64)
memory = must(cu.cuMemAlloc(2 << 30))
seen = ask(64)
must(cu.cuMemFree(memory))
left = ask
ask = lambda times: [seen[0], seen[-1], *left(times)]
"""
    after = [4 * GIB, 4 * GIB, 6 * GIB]
    assert answers(two[0], two[1], 10 * GIB, between=between) == (12 * GIB, after)


BURST = (
    CALLS
    + """
def ask(times=64):
    return [must(cu.cuMemGetInfo()) for _ in range(times)][-1]
must(cu.cuInit(0))
contexts = [must(cu.cuDevicePrimaryCtxRetain(must(cu.cuDeviceGet(gpu)))) for gpu in range(%d)]
must(cu.cuCtxSetCurrent(contexts[0]))
seen = [ask()]
"""
)


def test_a_program_that_polls_free_memory_sees_a_new_limit_at_once(host, new_guest):
    guest = new_guest(share(host.uuids[0], 4 * GIB))
    code = BURST % 1 + (
        "print(json.dumps(seen), flush=True); sys.stdin.readline(); print(json.dumps(ask(1)))"
    )
    with guest.start(PYTHON, "-c", code, stdin=-1) as asking:
        assert json.loads(asking.stdout.readline()) == [[4 * GIB, 4 * GIB]]
        guest.write_limits([share(host.uuids[0], 3 * GIB)])
        assert json.loads(asking.communicate("\n", timeout=60)[0]) == [3 * GIB, 3 * GIB]


@pytest.mark.parametrize(
    "change",
    [
        "cuCtxSetCurrent(contexts[1])",
        "cuCtxPushCurrent(contexts[1])",
        "cuCtxCreate(None, 0, must(cu.cuDeviceGet(1)))",
    ],
    ids=["set", "push", "create"],
)
def test_another_gpus_memory_is_seen_once_its_context_is_current(host, new_guest, change):
    guest = new_guest(share(host.uuids[0], GIB), share(host.uuids[1], 2 * GIB))
    code = f"must(cu.{change}); seen.append(ask(1)); print(json.dumps(seen))"
    assert guest.python(BURST % 2 + code) == [[GIB, GIB], [2 * GIB, 2 * GIB]]


def test_asking_all_the_time_still_refuses_a_missing_pointer(host, new_guest):
    code = (
        "import ctypes\n"
        "get = ctypes.CDLL('libcuda.so.1').cuMemGetInfo_v2\n"
        "room = ctypes.c_size_t()\n"
        "print(json.dumps([get(None, ctypes.byref(room)), get(ctypes.byref(room), None)]))"
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(BURST % 1 + code) == [1, 1]
