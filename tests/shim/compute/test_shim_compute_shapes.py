"""The core limit holds whatever a program launches: most launches are paid by an estimate. In
virtual time, but for what is killed. The judge is the GPU's own count of the time that it was held.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from support.gpu.guest import BUILD, GIB, share
from support.softgpu.virtual_time import Clock, answer, together

POINTS = 0.02
SECONDS = 5
# threads, streams, launched ahead (0: waits for each), pattern, short us, long us, one in so many
SHAPES = {
    "async 5 us": "1 0 64 periodic 5 5 1",
    "sync 50 us": "1 0 0 periodic 50 50 1",
    "one in two is long, at random": "1 0 8 random 10 5000 2",
    "one in ten is long, each tenth, sync": "1 0 0 periodic 10 5000 10",
    "one in a hundred is long, at random": "1 0 64 random 10 5000 100",
    "twenty short, then twenty long, sync": "1 0 0 burst 10 5000 20",
    "two threads": "2 0 64 periodic 50 50 1",
    "two threads, tiny kernels": "2 0 64 periodic 5 5 1",
    "four streams of one thread": "1 4 64 periodic 50 50 1",
    "two streams each of four threads": "4 2 16 periodic 50 50 1",
    "two streams each of four threads, 1 ms": "4 2 16 periodic 1000 1000 1",
    "two streams each of four threads, 1 ms, sync": "4 2 0 periodic 1000 1000 1",
}


def held_by_pid(root: str) -> dict[int, float]:
    """How long each process that has ended held the first GPU, in seconds."""
    command = [os.path.join(BUILD, "softgpu", "softgpu"), "time", root, "--json"]
    gpu = json.loads(subprocess.check_output(command))["gpus"][0]
    return {process["pid"]: process["held_ns"] / 1e9 for process in gpu["ended"]}


def held_part(host) -> float:
    """The part of SECONDS in which processes that have ended held the first GPU."""
    return sum(held_by_pid(host.path).values()) / SECONDS


def shape(program, name):
    return [program, str(SECONDS), *SHAPES[name].split()]


# Short kernels of several threads on streams that overlap: each thread is charged by its samples.
NEEDS_KIND_CLOCK = {"two streams each of four threads": pytest.mark.kind_clock}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_KIND_CLOCK.get(name, ())) for name in SHAPES]
)
def test_a_program_of_any_shape_gets_its_percent(host, new_guest, client, tmp_path, name):
    guest = new_guest(share(host.uuids[0], GIB, 30))
    together(tmp_path, (guest, shape(client("launches"), name)))
    assert held_part(host) == pytest.approx(0.30, abs=POINTS)
    charged = guest.read_usage().gpus[0].busy_ns / 1e9 / SECONDS
    assert charged == pytest.approx(held_part(host), abs=POINTS)


def test_a_rare_long_kernel_is_paid_by_the_wait_for_it(host, new_guest, client, tmp_path):
    """Between short ones of its function, so that hardly any of them is measured."""
    guest = new_guest(share(host.uuids[0], GIB, 30))
    rare = ["1", "0", "0", "random", "10", "300000", "1000"]
    (result,) = together(tmp_path, (guest, [client("launches"), "100", *rare]))
    assert result["share"] == pytest.approx(0.30, abs=POINTS)
    charged = guest.read_usage().gpus[0].busy_ns / 1e9
    assert charged == pytest.approx(result["gpu_seconds"], rel=0.05)


@pytest.mark.parametrize(
    ("percents", "names"),
    [
        ((20, 40), ("two threads", "twenty short, then twenty long, sync")),
        ((20, 40), ("two threads", "one in a hundred is long, at random")),
        ((30, 70), ("async 5 us", "two threads")),
        ((5, 5, 10, 10, 15, 15, 20, 20), ("two threads",) * 8),
        ((30, 70), ("two threads", "four streams of one thread")),
    ],
    ids=[
        "time to spare",
        "rare long kernels",
        "two that want all",
        "eight that want all",
        "overlapping streams",
    ],
)
def test_neighbours_in_turns_share_as_they_were_promised(node, client, percents, names):
    guests = [node.container(core=str(percent)) for percent in percents]
    clock, program = node.clock(len(guests)), client("launches")
    started = [
        guest.start(*clock.command(*shape(program, name))) for guest, name in zip(guests, names)
    ]
    for process in started:
        answer(process)
    held = held_by_pid(node.driver_root)
    found = [held[process.pid] / SECONDS for process in started]
    assert found == [pytest.approx(percent / 100, abs=POINTS) for percent in percents]
    assert sum(found) >= 0.97 * sum(percents) / 100


def test_processes_of_one_container_share_its_percent(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 40))
    names = ("async 5 us", "two threads", "sync 50 us")
    runs = [(guest, shape(client("launches"), name)) for name in names]
    found = [result["share"] for result in together(tmp_path, *runs)]
    assert sum(found) == pytest.approx(0.40, abs=POINTS)


def test_refused_launches_are_not_charged(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    guest.run(*Clock(tmp_path, 1).command(client("odd_launches"), "refused"))
    usage = guest.read_usage().gpus[0]
    # 100,000 kernels of 50 us would be 5 s.
    assert usage.busy_ns < 100_000_000
    assert usage.launches == 100_020


def test_ending_threads_return_unused_time(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    guest.run(*Clock(tmp_path, 1).command(client("odd_launches"), "threads"))
    usage = guest.read_usage().gpus[0]
    assert usage.busy_ns == pytest.approx(120 * 50_000, rel=0.2)
    # A portion lost by each thread would be a second of waiting.
    assert usage.throttled_ns < 300_000_000


def test_each_gpu_is_paid_for_what_ran_on_it(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 80), share(host.uuids[1], GIB, 80))
    guest.run(*Clock(tmp_path, 1).command(client("odd_launches"), "two_gpus"))
    usage = guest.read_usage()
    assert [usage.gpus[0].busy_ns, usage.gpus[1].busy_ns] == [
        pytest.approx(51_000_000, rel=0.05),
        pytest.approx(50_000_000, rel=0.05),
    ]


def test_a_kernel_under_way_in_a_destroyed_context_is_paid(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 50))
    guest.run(*Clock(tmp_path, 1).command(client("odd_launches"), "destroyed"))
    assert guest.read_usage().gpus[0].busy_ns == pytest.approx(301_000_000, rel=0.05)


@pytest.mark.timed
def test_a_killed_process_takes_at_most_one_portion_along(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    for _ in range(10):
        process = guest.start(client("odd_launches"), "killed")
        process.communicate(timeout=30)
        assert process.returncode == -9
    usage = guest.read_usage().gpus[0]
    assert usage.balance_ns > -10 * 1_600_000
    # And the next one runs at once.
    began = time.monotonic()
    guest.run(client("odd_launches"), "nothing")
    assert time.monotonic() - began < 1
