"""The software GPU's kind clock: exact for one process, in turns between several. Nothing here
measures the machine: durations are the device's own, shares are ratios. The unkind clock:
test_softgpu_clock.py."""

from __future__ import annotations

import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.gpu.guest import WORKLOAD
from support.softgpu.softgpu_host import BUILT, PRELUDE, SoftGpu, answer, first_line
from support.softgpu.virtual_time import Clock
from support.waiting import until

KIND = ("--clock", "kind")


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, *KIND)


@pytest.fixture(params=[KIND, (), ("--no-preemption",), ("--mps",)], ids=" ".join)
def any_gpu(tmp_path: Path, request: pytest.FixtureRequest) -> SoftGpu:
    """A GPU of each clock."""
    return SoftGpu(tmp_path, *request.param)


def test_kernels_take_the_time_that_their_text_states(gpu: SoftGpu) -> None:
    milliseconds = gpu.virtual_client(
        """
start()
before, after = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
function = kernel(b"spin")

def measure(work):
    spin(function, 1000000)  # while it runs, what follows is queued without a gap
    ok(cuda.cuEventRecord(before, 0))
    work()
    ok(cuda.cuEventRecord(after, 0))
    ok(cuda.cuEventSynchronize(after))
    return ok(cuda.cuEventElapsedTime(before, after))

def launch(name, times):
    chosen = kernel(name)
    def work():
        for _ in range(times):
            ok(cuda.cuLaunchKernel(chosen, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    return work

say(spins=statistics.median(measure(lambda: [spin(function, 100000) for _ in range(20)])
                            for _ in range(9)),
    fixed=statistics.median(measure(launch(b"three_ms", 2)) for _ in range(9)),
    untimed=statistics.median(measure(launch(b"untimed", 10)) for _ in range(9)))
""".replace("start()", "import statistics\nstart()", 1)
    )
    assert milliseconds == {
        "spins": pytest.approx(2.0, rel=0.01),
        "fixed": pytest.approx(6.0, rel=0.01),
        "untimed": pytest.approx(0.1, rel=0.01),
    }


def together(gpu: SoftGpu, folder: Path, processes: int, *arguments: str) -> list[Any]:
    """What each of so many busy processes says of ten seconds of virtual time."""
    clock = Clock(folder, processes)
    command = [WORKLOAD, "busy", "--seconds", "10", *arguments]
    return [answer(one) for one in [gpu.popen(clock.command(*command)) for _ in range(processes)]]


def test_a_full_queue_uses_the_whole_device(gpu: SoftGpu, tmp_path: Path) -> None:
    (printed,) = together(gpu, tmp_path, 1, "--kernel-us", "500", "--async", "16")
    assert printed["share"] == pytest.approx(1.0, abs=0.001)


def test_streams_and_events_show_what_is_done(any_gpu: SoftGpu) -> None:
    any_gpu.virtual_client("""
start()
not_ready = cuda.CUresult.CUDA_ERROR_NOT_READY
stream, other = ok(cuda.cuStreamCreate(0)), ok(cuda.cuStreamCreate(0))
event, never, untimed = (ok(cuda.cuEventCreate(flags)) for flags in (0, 0, 2))
assert cuda.cuEventQuery(never)[0] == 0
spin(kernel(b"spin"), 300_000_000, stream)
ok(cuda.cuEventRecord(event, stream))
assert cuda.cuStreamQuery(stream)[0] == not_ready
assert cuda.cuEventQuery(event)[0] == not_ready
assert cuda.cuEventElapsedTime(event, event)[0] == not_ready
assert cuda.cuStreamQuery(other)[0] == 0
ok(cuda.cuStreamWaitEvent(other, event, 0))
assert cuda.cuStreamQuery(other)[0] == not_ready
ok(cuda.cuStreamSynchronize(other))
assert cuda.cuStreamQuery(stream)[0] == 0 and cuda.cuEventQuery(event)[0] == 0
assert ok(cuda.cuStreamIsCapturing(stream)) == 0
ok(cuda.cuEventRecord(untimed, stream))
wrong = cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
assert cuda.cuEventElapsedTime(event, untimed)[0] == wrong
assert cuda.cuEventElapsedTime(never, event)[0] == wrong
say(done=True)
""")


def test_an_interrupted_load_reports_what_it_did_until_then(gpu: SoftGpu) -> None:
    load = gpu.start_workload("busy", "--seconds", "60", "--kernel-us", "100", "--async", "8")
    times = [str(BUILT / "softgpu"), "time", str(gpu.root), "--json"]
    until(lambda: re.search(rb'"kernels_finished": [1-9]', subprocess.check_output(times)))
    load.send_signal(signal.SIGINT)
    printed = answer(load)
    assert printed["kernels"] > 0
    assert printed["wall_seconds"] < 50


@pytest.mark.parametrize(
    ("processes", "queue"),
    [(2, ()), (2, ("--async", "8")), (3, ("--async", "8"))],
    ids=["two that wait", "two that queue", "three that queue"],
)
def test_busy_processes_get_equal_parts_of_the_device(
    gpu: SoftGpu, tmp_path: Path, processes: int, queue: tuple[str, ...]
) -> None:
    printed = together(gpu, tmp_path, processes, "--kernel-us", "700", *queue)
    shares = [one["share"] for one in printed]
    assert shares == [pytest.approx(1 / processes, abs=0.002)] * processes


@pytest.mark.parametrize(
    ("slice_length", "first", "second"),
    [
        ("5ms", [5, 15, 25, 35, 45, 55], [10, 20, 30, 40, 50, 60]),
        ("10ms", [5, 10, 25, 30, 45, 50], [15, 20, 35, 40, 55, 60]),
        ("1s", [5, 10, 15, 20, 25, 30], [35, 40, 45, 50, 55, 60]),
    ],
)
def test_turns_between_processes_are_as_long_as_was_stated(
    tmp_path: Path, slice_length: str, first: list[int], second: list[int]
) -> None:
    """When the kernels of 5 ms of two processes that queue them at once are done."""
    gpu = SoftGpu(tmp_path, *KIND, "--slice", slice_length)
    clock = Clock(tmp_path, 2)
    queue = """
start()
function = kernel(b"spin")
events = [ok(cuda.cuEventCreate(0)) for _ in range(6)]
began = int(time.monotonic()) + 1
time.sleep(began - time.monotonic())
for event in events:
    spin(function, 5_000_000)
    ok(cuda.cuEventRecord(event, 0))
done = []
for event in events:
    ok(cuda.cuEventSynchronize(event))
    done.append(round(1000 * (time.monotonic() - began)))
say(done=done)
"""
    command = [sys.executable, "-c", PRELUDE + queue]
    done = [answer(one)["done"] for one in [gpu.popen(clock.command(*command)) for _ in range(2)]]
    assert sorted(done) == [first, second]


@pytest.mark.timed
def test_events_measure_own_time_while_another_process_takes_turns(gpu: SoftGpu) -> None:
    rival = gpu.start_workload("busy", "--seconds", "60", "--kernel-us", "900", "--async", "8")
    printed = gpu.client("""
start()
before, after = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
function = kernel(b"spin")
own, clocks = [], []
for _ in range(25):
    began = time.monotonic()
    ok(cuda.cuEventRecord(before, 0))
    spin(function, 5000000)
    ok(cuda.cuEventRecord(after, 0))
    ok(cuda.cuEventSynchronize(after))
    clocks.append(1000 * (time.monotonic() - began))
    own.append(ok(cuda.cuEventElapsedTime(before, after)))
say(own=own, clocks=clocks)
""")
    rival.kill()
    rival.communicate()
    assert statistics.median(printed["own"]) == pytest.approx(5.0, rel=0.02)
    # It did share: by the wall clock each took longer than it would alone.
    assert statistics.median(printed["clocks"]) > 6.5


@pytest.mark.timed
def test_a_process_killed_while_it_has_the_device_stops_no_other(any_gpu: SoftGpu) -> None:
    hog = any_gpu.start_client("""
start()
function = kernel(b"spin")
for _ in range(20):
    spin(function, 3_600_000_000_000)
say(queued=True)
time.sleep(60)
""")
    first_line(hog)
    second = any_gpu.start_workload("busy", "--seconds", "1", "--kernel-us", "1000", "--async", "8")
    hog.kill()
    hog.communicate()
    # It may lose 0.3 s until the kill; turns that a dead process still had would take half.
    assert answer(second)["share"] > 0.7


def test_many_processes_killed_while_launching_stop_no_other(any_gpu: SoftGpu) -> None:
    survivor = any_gpu.start_workload(
        "busy", "--seconds", "3", "--kernel-us", "100", "--async", "64"
    )
    for _ in range(10):
        rivals = [any_gpu.start_workload("busy", "--seconds", "60", "--kernel-us", "1")] * 1
        rivals.append(
            any_gpu.start_workload("busy", "--seconds", "60", "--kernel-us", "1", "--async", "512")
        )
        any_gpu.smi("-L")
        for rival in rivals:
            rival.kill()
            rival.communicate()
    assert answer(survivor)["kernels"] > 1000
    assert any_gpu.workload("busy", "--seconds", "0.5", "--kernel-us", "100")["kernels"] > 10


def test_a_launch_waits_when_the_queue_is_full(any_gpu: SoftGpu) -> None:
    printed = any_gpu.virtual_client("""
start()
function = kernel(b"spin")
queued = 0
began = time.monotonic()
for _ in range(1100):
    spin(function, 1_000_000)
say(seconds=time.monotonic() - began)
""")
    # 1,024 fit; for the rest some had to end.
    assert printed["seconds"] > 0.07


def test_stale_lock_of_a_dead_process_is_taken_over(gpu: SoftGpu) -> None:
    """As if slot 300's owner had been killed while it held the state file's lock."""
    lock_offset, owner = 20, 301
    state = gpu.root / "softgpu.state"
    with state.open("r+b") as file:
        file.seek(lock_offset)
        file.write(owner.to_bytes(4, "little"))
    assert gpu.workload("busy", "--seconds", "0.2", "--kernel-us", "1000")["kernels"] > 10
    with state.open("rb") as file:
        file.seek(lock_offset)
        assert file.read(4) == bytes(4)


def test_more_events_than_can_be_outstanding_are_stamped_each_at_its_moment(
    any_gpu: SoftGpu,
) -> None:
    printed = any_gpu.virtual_client("""
start()
function = kernel(b"spin")
spin(function, 200_000_000)
events = [ok(cuda.cuEventCreate(0)) for _ in range(700)]
for event in events:
    ok(cuda.cuEventRecord(event, 0))
    spin(function, 250_000)
ok(cuda.cuCtxSynchronize())
say(apart=sorted({round(ok(cuda.cuEventElapsedTime(one, next)), 4)
                  for one, next in zip(events, events[1:])}))
""")
    assert printed == {"apart": [0.25]}


def test_a_stream_waits_for_an_event_of_another_gpu(tmp_path: Path) -> None:
    printed = SoftGpu(tmp_path, "--gpus", "2").virtual_client("""
start(1)
there = ok(cuda.cuStreamCreate(0))
start(0)
event = ok(cuda.cuEventCreate(0))
spin(kernel(b"spin"), 500_000_000)
ok(cuda.cuEventRecord(event, 0))
ok(cuda.cuStreamWaitEvent(there, event, 0))
ok(cuda.cuStreamSynchronize(there))
say(answer=cuda.cuEventQuery(event)[0].name)
""")
    assert printed == {"answer": "CUDA_SUCCESS"}
