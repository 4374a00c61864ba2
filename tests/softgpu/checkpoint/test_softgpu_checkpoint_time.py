"""A checkpoint takes the time of its bytes, and goes on when its caller is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.softgpu.softgpu_clock import run_together, start_together
from support.softgpu.softgpu_host import CALLS, SoftGpu
from support.softgpu.softgpu_host import answer as answer_of

# The participants tell each other their pids in files: a pipe would stop the virtual clock.
MEET = (
    CALLS
    + """
L, C = cuda.cuCheckpointProcessLock, cuda.cuCheckpointProcessCheckpoint
V, U = cuda.cuCheckpointProcessRestore, cuda.cuCheckpointProcessUnlock
def meet(name):
    with open(FOLDER + "/" + name, "w") as file:
        file.write(str(os.getpid()))
def pid_of(name):
    with open(FOLDER + "/" + name) as file:
        return int(file.read())
def state():
    return ok(cuda.cuCheckpointProcessGetState(pid_of("target"))).value
def timed(step):
    name = step(pid_of("target"), None)[0].name
    return [name, ms()]
"""
)
# Holds 64 MiB, and asks for its memory while it is locked.
TARGET = """
start()
ok(cuda.cuMemAlloc(64 * MIB))
meet("target")
at(40)
ok(cuda.cuMemGetInfo())
returned = ms()
at(400)
say(returned=returned)
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    rates = ("--checkpoint-rate", "1GiB/s", "--restore-rate", "512MiB/s", "--submit-time", "0us")
    return SoftGpu(tmp_path, "--memory", "96MiB", *rates)


def scripts(folder: Path, *parts: str) -> list[str]:
    return [f"FOLDER = {str(folder)!r}\n" + MEET + part for part in parts]


def test_copies_take_the_time_of_their_bytes_at_each_rate(gpu: SoftGpu, tmp_path: Path) -> None:
    caller = """
start()
at(20)
lock = timed(L)
at(30)
checkpoint = timed(C)
at(110)
restore = timed(V)
at(250)
say(lock=lock, checkpoint=checkpoint, restore=restore, unlock=timed(U))
"""
    observer = """
start()
seen = []
for moment in (25, 60, 100, 150, 240, 260):
    at(moment)
    steps = [step(pid_of("target"), None)[0].value for step in (C, V) if moment in (60, 150)]
    held = used() // MIB
    seen.append([moment, held, *steps, state(), round(ms())])
say(seen=seen)
"""
    target, calls, seen = run_together(gpu, *scripts(tmp_path, TARGET, caller, observer))
    assert {name: call[0] for name, call in calls.items()} == dict.fromkeys(calls, "CUDA_SUCCESS")
    assert {name: round(call[1]) for name, call in calls.items()} == {
        "lock": 21,
        "checkpoint": 30 + 62,
        "restore": 110 + 125,
        "unlock": 250,
    }
    illegal = [401, 401]
    assert seen["seen"] == [
        [25, 64, 1, 25],
        [60, 64, *illegal, 2, 30 + 62],
        [100, 0, 2, 100],
        [150, 64, *illegal, 1, 110 + 125],
        [240, 64, 1, 240],
        [260, 64, 0, 260],
    ]
    assert 250 <= target["returned"] <= 252


@pytest.mark.parametrize(
    "step, before, after, took_ms", [("C", "", 2, 62), ("V", "timed(C)", 1, 125)]
)
def test_copy_of_a_killed_caller_ends_in_its_time(
    gpu: SoftGpu, tmp_path: Path, step: str, before: str, after: int, took_ms: int
) -> None:
    """The state is answered after the copy, as by driver 580 on an H200."""
    caller = f"""
start()
meet("caller")
at(20)
timed(L)
{before}
at(100)
timed({step})
"""
    observer = """
start()
at(120)
kill(pid_of("caller"))
at(130)
say(state=state(), answered=round(ms()))
"""
    started = start_together(gpu, *scripts(tmp_path, TARGET, caller, observer))
    assert answer_of(started[2]) == {"state": after, "answered": 100 + took_ms}
    assert started[1].wait() == -9
    for process in started:
        process.kill()
        process.communicate()


def test_a_caller_that_is_killed_amid_its_lock_leaves_the_process_locked(
    gpu: SoftGpu, tmp_path: Path
) -> None:
    target = """
start()
function = kernel(b"spin")
meet("target")
at(10)
spin(function, 100_000_000)
at(120)
ok(cuda.cuMemGetInfo())
say(returned=ms())
"""
    caller = """
start()
meet("caller")
at(20)
timed(L)
"""
    observer = """
start()
at(50)
before = state()
kill(pid_of("caller"))
at(300)
say(states=[before, state()], unlock=timed(U))
"""
    started = start_together(gpu, *scripts(tmp_path, target, caller, observer))
    observed = answer_of(started[2])
    assert observed["states"] == [1, 1]
    assert observed["unlock"][0] == "CUDA_SUCCESS"
    assert 300 <= json.loads(started[0].communicate()[0])["returned"] <= 302
    assert started[1].wait() == -9
    started[1].communicate()
