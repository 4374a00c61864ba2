"""Pools of a container give back what they keep when a neighbour finds the GPU full."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shim.cuda_program import START
from shim.policy_node import TURN_KEEPER, PolicyNode, limits_of
from support.gpu.guest import MIB, PYTHON, Guest
from support.gpu.turn_word import NONE
from support.softgpu.softgpu_host import SoftGpu, first_line
from support.waiting import until
from vcuda_oci.pages import layout

pytestmark = pytest.mark.usefixtures("built")

# Keeps 480 MiB in a pool, and waits for the GPU a hundred times a second; or, told so, never.
KEEPS = (
    START
    + """
import time
MIB = 1 << 20
pool = must(cu.cuDeviceGetDefaultMemPool(device))
whole = cu.cuuint64_t(2**64 - 1)
kept = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
must(cu.cuMemPoolSetAttribute(pool, kept, whole))
must(cu.cuMemFreeAsync(must(cu.cuMemAllocAsync(480 * MIB, 0)), 0))
must(cu.cuCtxSynchronize())
print("keeps", flush=True)
while sys.argv[1] == "works":
    must(cu.cuCtxSynchronize())
    time.sleep(0.01)
sys.stdin.read()
"""
)
# What is left beside both shares of 512 MiB is 300 MiB short.
STRANGER = "start()\nok(cuda.cuMemAlloc(300 << 20))\nsay(held=True)\nsys.stdin.read()"
ASKS = (
    START
    + """
import time
MIB = 1 << 20
def array(mib):
    shape = cu.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height = MIB // 16, mib
    shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 4
    return cu.cuArrayCreate(shape)
def block(mib):
    wanted = cu.CUmemAllocationProp()
    wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return cu.cuMemCreate(mib * MIB, wanted, 0)
ways = dict(
    alloc=lambda mib: cu.cuMemAlloc(mib * MIB),
    pool=lambda mib: cu.cuMemAllocAsync(mib * MIB, 0),
    pitch=lambda mib: cu.cuMemAllocPitch(MIB, mib, 4),
    block=block,
    array=array,
)
def ask(way, mib=400):
    begin = time.monotonic()
    answer = ways[way](mib)[0].name
    return answer, time.monotonic() - begin
"""
)
OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"


class Beside:
    """Two containers of 512 MiB on a GPU of 1 GiB, and a program without a share."""

    def __init__(self, folder: Path) -> None:
        self.gpu = SoftGpu(folder, "--memory", "1GiB", "--gpus", "1")
        self.node = PolicyNode(f"{folder}/node", str(self.gpu.root))
        self.processes: list[subprocess.Popen[Any]] = []
        self.keeping, self.asking = (
            self.node.container(memory="512MiB", core="40") for _ in range(2)
        )
        self.processes.append(self.gpu.start_client(STRANGER))
        assert first_line(self.processes[0]) == {"held": True}

    def start_keeper(self) -> None:
        self.processes.append(
            subprocess.Popen([TURN_KEEPER, self.node.state_dir, str(os.getpid())])
        )
        until(lambda: all(has_turns(guest) for guest in (self.keeping, self.asking)))

    def keep(self, works: str = "works") -> None:
        process = self.keeping.start(PYTHON, "-c", KEEPS, works, stdin=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout and process.stdout.readline() == "keeps\n", process.communicate()
        assert self.kept() == 480

    def kept(self) -> int:
        """MiB that the keeping container is charged."""
        return self.keeping.read_usage().gpus[0].held_bytes // MIB

    def trims_asked(self) -> int:
        """Of the keeping container, modulo 256."""
        at = {name: at for name, at, _ in layout.offsets()}
        with open(self.keeping.limits, "rb") as page:
            return page.read()[at["limits.gpu"] + at["limits_gpu.trim_asked"]]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def futex_wake(address: int) -> None:
    """Source: asm/unistd.h, linux/futex.h"""
    number = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
    ctypes.CDLL(None).syscall(number, ctypes.c_void_p(address), 1, 1, None, None, 0)


def has_turns(guest: Guest) -> bool:
    return limits_of(guest).gpus[0].turn & 3 != NONE


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("way", ["alloc", "pool", "pitch", "block", "array"])
def test_a_container_that_would_be_refused_gets_what_a_neighbours_pool_keeps(
    beside: Beside, way: str
) -> None:
    beside.start_keeper()
    beside.keep()
    code = ASKS + f"print(json.dumps(ask({way!r})))"
    found, seconds = beside.asking.python(code)
    assert (found, seconds < 0.5) == (OK, True)
    assert (beside.kept(), beside.trims_asked()) == (0, 1)
    assert beside.asking.read_usage().gpus[0].room_asked == 1


def test_a_pool_without_a_safe_point_delays_a_refusal_by_a_bounded_time(beside: Beside) -> None:
    beside.start_keeper()
    beside.keep("sleeps")
    code = ASKS + "print(json.dumps([ask('alloc'), ask('alloc'), ask('pool')]))"
    first, second, third = beside.asking.python(code)
    assert [one[0] for one in (first, second, third)] == [FULL] * 3
    assert 0.25 <= first[1] < 1
    assert max(second[1], third[1]) < 0.25
    assert (beside.kept(), beside.trims_asked()) == (480, 1)


def test_without_a_turn_keeper_nothing_is_asked_and_nothing_waits(beside: Beside) -> None:
    beside.keep()
    found, seconds = beside.asking.python(ASKS + "print(json.dumps(ask('alloc')))")
    assert (found, seconds < 0.25) == (FULL, True)
    assert (beside.kept(), beside.trims_asked()) == (480, 0)


def test_a_dead_turn_keeper_is_not_waited_for(beside: Beside) -> None:
    beside.start_keeper()
    beside.keep()
    beside.processes[1].kill()
    beside.processes[1].wait()
    time.sleep(0.6)  # until its lease is over
    found, seconds = beside.asking.python(ASKS + "print(json.dumps(ask('alloc')))")
    assert (found, seconds < 0.25) == (FULL, True)


def test_a_container_that_asks_without_end_has_its_neighbours_trimmed_seldom(
    beside: Beside,
) -> None:
    """It writes its page and rings by itself."""
    beside.start_keeper()
    at = {name: at for name, at, _ in layout.offsets()}
    bell, asked = (at["usage.gpu"] + at[f"usage_gpu.{name}"] for name in ("bell", "room_asked"))
    end = time.monotonic() + 7
    with open(beside.asking.usage, "r+b") as file, mmap.mmap(file.fileno(), 0) as page:
        words = (ctypes.c_uint32 * (layout.USAGE_SIZE // 4)).from_buffer(page)
        while time.monotonic() < end:
            words[asked // 4] += 1
            words[bell // 4] += 1
            futex_wake(ctypes.addressof(words) + bell)
            time.sleep(0.01)
        del words
    assert beside.trims_asked() == 2


def test_what_the_share_refuses_asks_no_neighbour(beside: Beside) -> None:
    beside.start_keeper()
    beside.keep()
    found, _ = beside.asking.python(ASKS + "print(json.dumps(ask('alloc', 600)))")
    assert found == FULL
    assert (beside.kept(), beside.trims_asked()) == (480, 0)
    assert beside.asking.read_usage().gpus[0].room_asked == 0
