"""A failing GPU, as a container sees it, and the effect on its charge."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable

import pytest

from shim.conftest import DriverRoot
from support.files import ROOT
from support.gpu import guest
from support.gpu.guest import MIB, share
from support.softgpu.softgpu_host import BUILT, first_line

CLIENT = f"""
import json, os, sys
sys.path.insert(0, {os.path.join(ROOT, "tests")!r})
import pynvml
from cuda.bindings import driver as cuda
from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_values import KIB, MIB, fields, ok

def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
def say(**answer):
    print(json.dumps(answer), flush=True)
def start():
    ok(cuda.cuInit(0))
    pynvml.nvmlInit()
    return ok(cuda.cuCtxCreate(None, 0, 0))
def launch():
    return cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
"""

# What allocates 1 MiB, or 2 where the driver takes granules of that, by the driver's call that is
# ordered to fail.
ALLOCATIONS = {
    "cuMemAlloc_v2": "cuda.cuMemAlloc(MIB)",
    "cuMemAllocPitch_v2": "cuda.cuMemAllocPitch(KIB, KIB, 4)",
    "cuMemAllocManaged": "cuda.cuMemAllocManaged(MIB, 1)",
    "cuMemAllocAsync": "cuda.cuMemAllocAsync(2 * MIB, 0)",
    "cuMemAllocFromPoolAsync": "cuda.cuMemAllocFromPoolAsync(2 * MIB, pool, 0)",
    "cuMemCreate": "cuda.cuMemCreate(2 * MIB, v.physical_shape(), 0)",
    "cuArrayCreate_v2": "cuda.cuArrayCreate(fields(v.array_shape(), Width=KIB, Height=KIB))",
    "cuArray3DCreate_v2":
        "cuda.cuArray3DCreate(fields(v.array_shape(three=True), Width=KIB, Height=KIB))",
    "cuMipmappedArrayCreate": "cuda.cuMipmappedArrayCreate(v.array_shape(three=True), 2)",
    "cuImportExternalMemory": "cuda.cuImportExternalMemory(v.external_shape())",
}  # fmt: skip


def tool(host: DriverRoot, command: str, *arguments: str) -> None:
    subprocess.run([BUILT / "softgpu", command, host.path, *arguments], check=True)


@pytest.fixture
def container(host: DriverRoot, new_guest: Callable[..., guest.Guest]) -> guest.Guest:
    return new_guest(share(host.uuids[0], 64 * MIB))


@pytest.mark.parametrize("call", ALLOCATIONS)
def test_an_allocation_that_fails_on_order_is_reported_and_its_charge_given_back_by(
    host: DriverRoot, container: guest.Guest, call: str
) -> None:
    tool(host, "fail", "--call", call, "--nth", "2", "--error", "CUDA_ERROR_OPERATING_SYSTEM")
    printed = container.python(
        CLIENT
        + f"""
start()
pool = ok(cuda.cuMemPoolCreate(v.pool_shape()))
allocate = lambda: {ALLOCATIONS[call]}
codes, held = [], []
for _ in range(3):
    codes.append(int(allocate()[0]))
    held.append(used())
rest = int(cuda.cuMemAlloc(64 * MIB - used())[0])
say(codes=codes, grown=[held[1] - held[0], held[2] - 2 * held[0]], rest=rest, used=used())
"""
    )
    assert printed == {"codes": [0, 304, 0], "grown": [0, 0], "rest": 0, "used": 64 * MIB}


def test_a_launch_that_fails_on_order_is_reported_and_the_next_one_runs(
    host: DriverRoot, container: guest.Guest
) -> None:
    tool(host, "fail", "--call", "cuLaunchKernel", "--nth", "3", "--error", "719")
    assert container.python(
        CLIENT
        + """
start()
function = v.function()
say(codes=[int(launch()[0]) for _ in range(5)], wait=int(cuda.cuCtxSynchronize()[0]))
"""
    ) == {"codes": [0, 0, 719, 0, 0], "wait": 0}


@pytest.mark.parametrize(
    "call", ["cuEventCreate", "cuEventRecord", "cuEventElapsedTime_v2", "cuEventQuery"]
)
def test_a_program_runs_on_where_nothing_can_be_measured(
    host: DriverRoot, new_guest: Callable[..., guest.Guest], call: str
) -> None:
    """The shim measures with events of its own; a driver that refuses one is no error of theirs."""
    tool(host, "fail", "--call", call, "--error", "CUDA_ERROR_OUT_OF_MEMORY")
    assert new_guest(share(host.uuids[0], 64 * MIB, 30)).python(
        CLIENT
        + """
start()
function = v.function()
say(codes=sorted({int(launch()[0]) for _ in range(200)}), wait=int(cuda.cuCtxSynchronize()[0]))
"""
    ) == {"codes": [0], "wait": 0}


def test_container_sees_its_gpu_lost_and_restored(host: DriverRoot, container: guest.Guest) -> None:
    client = container.start(
        guest.PYTHON,
        "-c",
        CLIENT
        + """
start()
function = v.function()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
ok(cuda.cuMemAlloc(MIB))
say(ready=True)
sys.stdin.readline()
xid = pynvml.nvmlEventSetWait_v2(events, 5000).eventData
codes = [int(answer[0]) for answer in (cuda.cuMemAlloc(MIB), launch(), cuda.cuCtxSynchronize())]
try:
    pynvml.nvmlDeviceGetTemperature(device, 0)
    lost = False
except pynvml.NVMLError_GpuIsLost:
    lost = True
say(xid=xid, codes=codes, lost=lost)
sys.stdin.readline()
codes = [int(answer[0]) for answer in (launch(), cuda.cuCtxSynchronize(), cuda.cuMemAlloc(MIB))]
say(codes=codes, used=used())
""",
        stdin=subprocess.PIPE,
    )
    assert client.stdin is not None
    first_line(client)
    tool(host, "fail", "--lost", "0")
    client.stdin.write("\n")
    client.stdin.flush()
    assert first_line(client) == {"xid": 79, "codes": [46, 46, 46], "lost": True}
    tool(host, "heal")
    client.stdin.write("\n")
    out, err = client.communicate(timeout=60)
    assert client.returncode == 0, err
    assert json.loads(out) == {"codes": [0, 0, 0], "used": 2 * MIB}


def test_a_container_sees_the_memory_errors_of_its_own_gpu(
    host: DriverRoot, new_guest: Callable[..., guest.Guest]
) -> None:
    tool(host, "fail", "--ecc", "1", "--corrected", "3", "--uncorrected", "2")
    count = (
        CLIENT
        + """
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
say(errors=[pynvml.nvmlDeviceGetTotalEccErrors(device, kind, 0) for kind in (0, 1)])
"""
    )
    found = [new_guest(share(u, MIB)).python(count, u)["errors"] for u in host.uuids]
    assert found == [[0, 0], [3, 2]]
