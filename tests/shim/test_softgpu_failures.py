"""The software GPU's failures on order, and checkpoints of its processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shim.softgpu_host import BUILT, SoftGpu, answer, first_line

CALLS = """
R = cuda.CUresult
MIB = 1 << 20
def refused(answer, why):
    assert answer[0] == why, answer
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
"""


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
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()
    assert first_line(client) == {"answers": [0, 0, 2, 0, 999, 999]}
    tool(gpu, "heal")
    client.stdin.write("\n")
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


def test_a_gpu_that_falls_off_the_bus_is_lost_to_cuda_and_nvml_until_it_is_healed(
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
    assert client.stdin is not None
    tool(gpu, "fail", "--lost", "1")
    client.stdin.write("\n")
    client.stdin.flush()
    assert first_line(client) == {"lost": True}
    tool(gpu, "heal")
    client.stdin.write("\n")
    answer(client)


def test_memory_errors_are_told_by_nvml(gpu: SoftGpu) -> None:
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


def test_a_checkpointed_process_holds_nothing_until_it_is_restored(gpu: SoftGpu) -> None:
    client = gpu.start_client(
        CALLS
        + """
start()
memory = ok(cuda.cuMemAlloc(40 * MIB))
ok(cuda.cuMemsetD8(memory, 7, 8))
say(pid=os.getpid())
sys.stdin.readline()
back = bytearray(8)
ok(cuda.cuMemcpyDtoH(back, memory, 8))
say(back=list(back), used=used())
"""
    )
    pid = first_line(client)["pid"]
    gpu.client(
        CALLS
        + f"""
pid = {pid}
"""
        + """
start()
S = cuda.CUprocessState
def state():
    return ok(cuda.cuCheckpointProcessGetState(pid))
refused(cuda.cuCheckpointProcessGetState(1), R.CUDA_ERROR_INVALID_VALUE)
refused(cuda.cuCheckpointProcessCheckpoint(pid, None), R.CUDA_ERROR_ILLEGAL_STATE)
ok(cuda.cuCheckpointProcessLock(pid, None))
assert state() == S.CU_PROCESS_STATE_LOCKED
assert used() == 40 * MIB
ok(cuda.cuCheckpointProcessCheckpoint(pid, None))
assert state() == S.CU_PROCESS_STATE_CHECKPOINTED
assert used() == 0
filler = ok(cuda.cuMemAlloc(30 * MIB))
refused(cuda.cuCheckpointProcessRestore(pid, None), R.CUDA_ERROR_OUT_OF_MEMORY)
refused(cuda.cuCheckpointProcessUnlock(pid, None), R.CUDA_ERROR_ILLEGAL_STATE)
ok(cuda.cuMemFree(filler))
ok(cuda.cuCheckpointProcessRestore(pid, None))
assert used() == 40 * MIB
ok(cuda.cuCheckpointProcessUnlock(pid, None))
assert state() == S.CU_PROCESS_STATE_RUNNING
say(done=True)
"""
    )
    assert client.stdin is not None
    client.stdin.write("\n")
    assert answer(client) == {"back": [7] * 8, "used": 40 << 20}


def test_a_locked_process_waits_in_its_next_call(gpu: SoftGpu) -> None:
    client = gpu.start_client(
        CALLS
        + """
start()
say(pid=os.getpid())
sys.stdin.readline()
ok(cuda.cuMemAlloc(MIB))
say(done=True)
"""
    )
    pid = first_line(client)["pid"]
    client_stdin = client.stdin
    assert client_stdin is not None
    holder = gpu.start_client(
        CALLS
        + f"""
start()
ok(cuda.cuCheckpointProcessLock({pid}, None))
say(locked=True)
sys.stdin.readline()
time.sleep(0.3)
assert used() == 0
ok(cuda.cuCheckpointProcessUnlock({pid}, None))
say(done=True)
"""
    )
    first_line(holder)
    client_stdin.write("\n")
    client_stdin.flush()
    assert holder.stdin is not None
    holder.stdin.write("\n")
    assert answer(holder) == {"done": True}
    assert answer(client) == {"done": True}
