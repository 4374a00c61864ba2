"""Failures that a test orders from the software GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.softgpu.softgpu_host import BUILT, CALLS, SoftGpu, answer, first_line, go_on


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


def tool(gpu: SoftGpu, command: str, *arguments: str) -> None:
    subprocess.run([BUILT / "softgpu", command, gpu.root, *arguments], check=True)


def test_the_nth_call_fails_as_ordered_and_no_other(gpu: SoftGpu) -> None:
    client = gpu.start_client(
        CALLS
        + """
start()
say(ready=True)
sys.stdin.readline()
answers = [int(cuda.cuMemAlloc(8)[0]) for _ in range(4)]
assert used() == 24
answers += [int(cuda.cuStreamCreate(0)[0]) for _ in range(2)]
say(answers=answers)
sys.stdin.readline()
ok(cuda.cuStreamCreate(0))
say(done=True)
"""
    )
    first_line(client)
    oom = "CUDA_ERROR_OUT_OF_MEMORY"
    tool(gpu, "fail", "--call", "cuMemAlloc_v2", "--nth", "3", "--error", oom)
    tool(gpu, "fail", "--call", "cuStreamCreate", "--error", "CUDA_ERROR_UNKNOWN")
    go_on(client)
    assert first_line(client) == {"answers": [0, 0, 2, 0, 999, 999]}
    tool(gpu, "heal")
    go_on(client)
    assert answer(client) == {"done": True}


def test_a_failure_can_be_ordered_for_the_start_of_the_driver_and_for_nvml(gpu: SoftGpu) -> None:
    tool(gpu, "fail", "--call", "cuInit", "--error", "CUDA_ERROR_SYSTEM_NOT_READY")
    tool(gpu, "fail", "--call", "nvmlDeviceGetMemoryInfo", "--error", "NVML_ERROR_TIMEOUT")
    gpu.client(
        """
import pynvml
assert cuda.cuInit(0)[0] == cuda.CUresult.CUDA_ERROR_SYSTEM_NOT_READY
pynvml.nvmlInit()
try:
    pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    raise SystemExit("no error")
except pynvml.NVMLError_Timeout:
    say(done=True)
"""
    )


def test_a_call_ordered_to_hang_returns_when_the_gpu_is_healed_and_not_before(gpu: SoftGpu) -> None:
    tool(gpu, "fail", "--call", "nvmlDeviceGetMemoryInfo", "--nth", "2", "--hang")
    client = gpu.start_client(
        """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
say(first=pynvml.nvmlDeviceGetMemoryInfo(device).total)
say(second=pynvml.nvmlDeviceGetMemoryInfo(device).total)
"""
    )
    assert first_line(client) == {"first": 64 << 20}
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait(1)
    tool(gpu, "heal")
    assert answer(client) == {"second": 64 << 20}


def test_an_xid_event_reaches_the_processes_that_wait_for_it(gpu: SoftGpu) -> None:
    client = gpu.start_client(
        """
import pynvml
pynvml.nvmlInit()
events = pynvml.nvmlEventSetCreate()
for index in range(2):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
say(waits=True)
event = pynvml.nvmlEventSetWait_v2(events, 60000)
say(index=pynvml.nvmlDeviceGetIndex(event.device), xid=event.eventData)
"""
    )
    first_line(client)
    tool(gpu, "fail", "--event", "1", "--xid", "31")
    assert answer(client) == {"index": 1, "xid": 31}


def test_a_gpu_off_the_bus_is_lost_to_cuda_and_nvml_until_healed(
    gpu: SoftGpu,
) -> None:
    client = gpu.start_client(
        CALLS
        + """
import pynvml
pynvml.nvmlInit()
zero, one = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(one, pynvml.nvmlEventTypeXidCriticalError, events)
lost, healthy = start(1), start(0)
say(ready=True)
sys.stdin.readline()
assert pynvml.nvmlEventSetWait_v2(events, 5000).eventData == 79
ok(cuda.cuMemAlloc(8))
ok(cuda.cuCtxSetCurrent(lost))
refused(cuda.cuMemAlloc(8), R.CUDA_ERROR_DEVICE_UNAVAILABLE)
refused(cuda.cuCtxSynchronize(), R.CUDA_ERROR_DEVICE_UNAVAILABLE)
refused(cuda.cuDevicePrimaryCtxRetain(1), R.CUDA_ERROR_DEVICE_UNAVAILABLE)
pynvml.nvmlDeviceGetMemoryInfo(zero)
try:
    pynvml.nvmlDeviceGetMemoryInfo(one)
    raise SystemExit("no error")
except pynvml.NVMLError_GpuIsLost:
    say(lost=True)
sys.stdin.readline()
ok(cuda.cuMemAlloc(8))
pynvml.nvmlDeviceGetMemoryInfo(one)
say(done=True)
"""
    )
    first_line(client)
    tool(gpu, "fail", "--lost", "1")
    go_on(client)
    assert first_line(client) == {"lost": True}
    tool(gpu, "heal")
    go_on(client)
    answer(client)


def test_nvml_reports_memory_errors(gpu: SoftGpu) -> None:
    tool(gpu, "fail", "--ecc", "1", "--corrected", "3", "--uncorrected", "2")
    assert gpu.client(
        """
import pynvml
pynvml.nvmlInit()
def errors(index):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    return [pynvml.nvmlDeviceGetTotalEccErrors(device, kind, 0) for kind in (0, 1)]
say(errors=[errors(0), errors(1)])
"""
    ) == {"errors": [[0, 0], [3, 2]]}


def test_an_ordered_call_is_counted_over_all_processes_and_anew_after_healing(
    gpu: SoftGpu,
) -> None:
    order = ("fail", "--call", "cuMemAlloc_v2", "--nth", "2", "--error", "CUDA_ERROR_UNKNOWN")
    once = "start(); say(answer=int(cuda.cuMemAlloc(8)[0]))"
    answers = []
    for _ in range(2):
        tool(gpu, *order)
        answers.append([gpu.client(once)["answer"] for _ in range(3)])
        tool(gpu, "heal")
    assert answers == [[0, 999, 0], [0, 999, 0]]


def test_sixteen_calls_can_be_ordered_and_one_more_is_refused_with_one_line(gpu: SoftGpu) -> None:
    order = ("--nth", "1000", "--error", "CUDA_ERROR_UNKNOWN")
    for call in range(16):
        tool(gpu, "fail", "--call", f"cuCall{call}", *order)
    command: list[Any] = [BUILT / "softgpu", "fail", gpu.root, "--call", "cuMemAlloc_v2", *order]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "softgpu: cuMemAlloc_v2: no more orders are taken; run softgpu heal first\n",
    )


def test_an_error_of_an_unknown_name_is_refused_with_an_example(gpu: SoftGpu) -> None:
    order = ("--call", "cuMemAlloc_v2", "--error", "CUDA_ERROR_NOSUCH")
    command: list[Any] = [BUILT / "softgpu", "fail", gpu.root, *order]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "softgpu: --error: CUDA_ERROR_NOSUCH; "
        "give a name such as CUDA_ERROR_OUT_OF_MEMORY, or a number\n",
    )


def test_gpu_events_arrive_in_order_and_healing_clears_the_counts(gpu: SoftGpu) -> None:
    client = gpu.start_client(
        """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
def errors():
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    places = (pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_L2_CACHE)
    return [[pynvml.nvmlDeviceGetMemoryErrorCounter(device, kind, 0, place) for place in places]
            for kind in kinds]
def told():
    found = []
    while True:
        try:
            found.append(pynvml.nvmlEventSetWait_v2(events, 0).eventData)
        except pynvml.NVMLError_Timeout:
            return found
say(told=told())
sys.stdin.readline()
say(told=told())
sys.stdin.readline()
say(errors=errors())
sys.stdin.readline()
say(told=told(), errors=errors())
"""
    )
    assert first_line(client) == {"told": []}
    tool(gpu, "fail", "--ecc", "1", "--corrected", "5")
    tool(gpu, "fail", "--ecc", "1", "--corrected", "1", "--uncorrected", "2")
    tool(gpu, "fail", "--lost", "1")
    go_on(client)
    assert first_line(client) == {"told": [48, 79]}
    tool(gpu, "heal")
    tool(gpu, "fail", "--ecc", "1", "--corrected", "3", "--uncorrected", "1")
    go_on(client)
    assert first_line(client) == {"errors": [[3, 0], [1, 0]]}
    for _ in range(17):
        tool(gpu, "fail", "--ecc", "1", "--uncorrected", "1")
    tool(gpu, "fail", "--lost", "1")
    tool(gpu, "heal")
    go_on(client)
    assert answer(client) == {"told": [48] * 15 + [79], "errors": [[0, 0], [0, 0]]}
