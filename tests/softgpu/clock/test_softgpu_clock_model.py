"""Random work on the clock: the same on each run, and as a second model computes it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from support.softgpu.softgpu_clock import held_ms, judge, near, run_together
from support.softgpu.softgpu_host import SoftGpu
from support.softgpu.softgpu_model import Turns

MIX = """
import random
start()
kernel, own, rng = wide(b"wide"), streams(3), random.Random({seed})
total = 0
at(rng.randrange(3))
for _ in range(40):
    time_us, percent = rng.randrange(10, 3000), rng.choice([10, 30, 50, 100])
    launch(kernel, time_us / 1000, percent, rng.choice([*own, 0]))
    total += time_us
    if rng.random() < 0.2:
        ok(cuda.cuStreamSynchronize(rng.choice(own)))
    if rng.random() < 0.1:
        time.sleep(rng.randrange(5000) / 1e6)
ok(cuda.cuCtxSynchronize())
say(total_us=total, end=ms())
"""


def mixed(gpu: SoftGpu, seed: int) -> tuple[list[Any], Any]:
    said = run_together(gpu, *[MIX.format(seed=10 * seed + number) for number in range(3)])
    account = judge(gpu)["gpus"][0]
    for one in account["ended"]:
        del one["pid"], one["pid_namespace"]
    account["ended"].sort(key=str)  # in the order in which their ends were noticed
    return said, account


@pytest.mark.parametrize("options", [(), ("--no-preemption",), ("--slice", "500us"), ("--mps",)])
def test_the_same_work_gives_the_same_times_on_each_run(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    runs = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs.append(mixed(SoftGpu(folder, "--seed", "1", *options), 7))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_of_the_gpus_time_sum_to_all_of_it(tmp_path: Path, seed: int) -> None:
    options = random.Random(seed).choice([(), ("--no-preemption",), ("--switch-cost", "0us")])
    said, account = mixed(SoftGpu(tmp_path, *options), seed)
    held = [one["held_ns"] for one in account["ended"]]
    assert sum(held) == account["busy_ns"]
    elapsed = account["clock_ns"] - account["begun_ns"]
    assert account["busy_ns"] + account["switch_ns"] + account["idle_ns"] == elapsed
    assert sum(one["kernels_finished"] for one in account["ended"]) == 120
    # Overlap makes it less than the sum of the kernels' times, and never more.
    assert sum(held) <= 1000 * sum(one["total_us"] for one in said)


LATENESS = """
import random
start()
MIB = 1 << 20
kernel, own, rng = wide(b"wide"), streams(3) + streams(2, 1), random.Random({seed})
memory, buffer = ok(cuda.cuMemAlloc(4 * MIB)), ctypes.create_string_buffer(4 * MIB)
(base,) = events(1)
at(rng.randrange(3))
ok(cuda.cuEventRecord(base, own[0]))
waits = []
for _ in range(100):
    stream, (event,) = rng.choice([*own, 0]), events(1)
    if rng.random() < 0.7:
        launch(kernel, rng.randrange(10, 2500) / 1000, rng.choice([10, 30, 60, 100]), stream)
    else:
        host, bytes = ctypes.addressof(buffer), rng.randrange(1, 4 * MIB)
        ok(cuda.cuMemcpyHtoDAsync(memory, host, bytes, stream))
    ok(cuda.cuEventRecord(event, stream))
    if rng.random() < 0.2:
        ok(cuda.cuStreamWaitEvent(rng.choice(own), event, 0))
    elif rng.random() < 0.4:
        began = time.monotonic_ns()
        ok(cuda.cuEventSynchronize(event))
        now = time.monotonic_ns()
        stamp = ok(cuda.cuEventElapsedTime(base, event)) * 1e6
        waits.append((now - stamp, now - began > 3000))
ok(cuda.cuCtxSynchronize())
least = min(moment for moment, _ in waits)
say(late=max(moment - least for moment, waited in waits if waited), waits=len(waits))
"""


@pytest.mark.parametrize(
    "options", [(), ("--no-preemption",), ("--switch-cost", "1ms"), ("--mps",)]
)
def test_a_waiter_wakes_at_the_very_moment(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The bound that a waiter sleeps until is never later than the end of what it waits for."""
    gpu = SoftGpu(tmp_path, "--bus-rate", "1GiB/s", "--submit-time", "0us", *options)
    for one in run_together(gpu, *[LATENESS.format(seed=seed) for seed in range(3)]):
        assert one["waits"] > 10
        assert one["late"] < 5000  # other processes' readings of the clock


OPEN_LOOP = """
start()
kernel, (base,), plan = wide(b"wide"), events(1), {plan}
ends = events(len(plan))
at(0)
ok(cuda.cuEventRecord(base, 0))
for (moment_us, time_us), event in zip(plan, ends):
    at(moment_us / 1000)
    launch(kernel, time_us / 1000)
    ok(cuda.cuEventRecord(event, 0))
ok(cuda.cuCtxSynchronize())
say(ends=[apart(base, event) for event in ends])
"""


def planned(rng: random.Random, number: int) -> list[tuple[int, int]]:
    """Twelve kernels; no two processes submit at once."""
    moments = sorted(rng.sample(range(500), 12))
    return [(100 * moment + 30 * number, rng.randrange(20, 6000)) for moment in moments]


@pytest.mark.parametrize("seed", range(6))
def test_kernels_end_when_a_second_model_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    plans = [planned(rng, number) for number in range(3)]
    slice_us, switch_us = rng.choice([500, 2000]), rng.choice([0, 100, 700])
    preempts = seed % 2 == 0
    options = ["--slice", f"{slice_us}us", "--switch-cost", f"{switch_us}us"]
    gpu = SoftGpu(tmp_path, *options, *([] if preempts else ["--no-preemption"]))
    said = run_together(gpu, *[OPEN_LOOP.format(plan=plan) for plan in plans])
    expected = Turns(plans, slice_us, switch_us, preempts).run()
    assert [one["ends"] for one in said] == [[near(end) for end in ends] for ends in expected]


@pytest.mark.parametrize("seed", range(3))
def test_every_kernel_of_a_lane_gets_exactly_its_time(tmp_path: Path, seed: int) -> None:
    """Kernels as wide as the GPU cannot overlap: what is held is the sum of their times."""
    whole = MIX.replace("rng.choice([10, 30, 50, 100])", "100")
    gpu = SoftGpu(tmp_path)
    said = run_together(gpu, *[whole.format(seed=100 * seed + number) for number in range(3)])
    assert sorted(held_ms(gpu)) == sorted(one["total_us"] / 1000 for one in said)
