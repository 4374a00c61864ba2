"""Clients on a software GPU in one virtual time, and the judge of how long each held it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from support.softgpu.softgpu_host import BUILT, PRELUDE, SoftGpu, answer
from support.softgpu.virtual_time import Clock

# `at` sleeps until so many milliseconds after the common start; `ms` tells how many have passed.
# A kernel `spin` of this text takes its time and its width in percent from its parameters.
TIMES = """
START = 1001.0
def at(moment):
    left = START + moment / 1000 - time.monotonic()
    assert left > 0, "the process came too late"
    time.sleep(left)
def ms():
    return round(1000 * (time.monotonic() - START), 2)
def until(thing):
    event = isinstance(thing, cuda.CUevent)
    ok(cuda.cuEventSynchronize(thing) if event else cuda.cuStreamSynchronize(thing))
    return ms()

WIDE = b'''
.version 7.0
.target sm_50
.address_size 64
//softgpu entry=wide time_ns=param:0 width_percent=param:1
//softgpu entry=half time_ns=param:0 width_percent=50
//softgpu entry=grid time_ns=param:0
.visible .entry wide(.param .u64 nanoseconds, .param .u64 percent) { ret; }
.visible .entry half(.param .u64 nanoseconds) { ret; }
.visible .entry grid(.param .u64 nanoseconds) { ret; }
'''
def wide(name):
    return ok(cuda.cuModuleGetFunction(ok(cuda.cuModuleLoadData(WIDE)), name))
def launch(function, milliseconds, percent=100, stream=0, blocks=1, threads=1):
    values = (round(milliseconds * 1e6), percent)
    parameters = (values, (ctypes.c_uint64, ctypes.c_uint64))
    ok(cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, 0))
def streams(count, flags=0):
    return [ok(cuda.cuStreamCreate(flags)) for _ in range(count)]
def events(count):
    return [ok(cuda.cuEventCreate(0)) for _ in range(count)]
def apart(before, after):
    return round(ok(cuda.cuEventElapsedTime(before, after)), 2)
"""


# One kernel, begun at a moment, with an event before and after it.
ONE_KERNEL = """
start()
before, after = events(2)
kernel = wide(b"grid")
at(%g)
ok(cuda.cuEventRecord(before, 0))
launch(kernel, %g)
ok(cuda.cuEventRecord(after, 0))
say(end=until(after), pair=apart(before, after))
"""


def clock_options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of `softgpu create` for the clock that a test is marked with."""
    return ("--clock", "kind") if request.node.get_closest_marker("kind_clock") else ()


def start_together(gpu: SoftGpu, *scripts: str) -> list[subprocess.Popen[str]]:
    """Clients that begin at the same virtual moment."""
    clock = Clock(gpu.root.parent, len(scripts))
    return [
        gpu.popen(clock.command(sys.executable, "-c", PRELUDE + TIMES + script))
        for script in scripts
    ]


def run_together(gpu: SoftGpu, *scripts: str) -> list[Any]:
    """What each client says; they begin at the same virtual moment."""
    started = start_together(gpu, *scripts)
    try:
        return [answer(process) for process in started]
    finally:
        for process in started:
            process.kill()


def judge(gpu: SoftGpu) -> Any:
    """The GPU's own account of its time, as of the last look of any process."""
    done = gpu.run(str(BUILT / "softgpu"), "time", str(gpu.root), "--json", "--as-is")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def held_ms(gpu: SoftGpu) -> list[float]:
    """How long each ended process held the first GPU, in the order of their ends."""
    return [one["held_ns"] / 1e6 for one in judge(gpu)["gpus"][0]["ended"]]


def near(milliseconds: float) -> Any:
    """Equal: a wait costs some readings of the clock of 0.1 us before a moment is read."""
    return pytest.approx(milliseconds, abs=0.02)
