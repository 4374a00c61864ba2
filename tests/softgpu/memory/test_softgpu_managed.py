"""Managed memory of the software GPU beyond its size, and memory of contexts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line

GIB, MIB = 1 << 30, 1 << 20

CALLS = """
import pynvml
pynvml.nvmlInit()
nvml = pynvml.nvmlDeviceGetHandleByIndex(0)
R = cuda.CUresult
GLOBAL = cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
def managed(size):
    return ok(cuda.cuMemAllocManaged(size, GLOBAL))
def view():
    memory = pynvml.nvmlDeviceGetMemoryInfo(nvml)
    found = pynvml.nvmlDeviceGetComputeRunningProcesses(nvml)
    mine = [process.usedGpuMemory for process in found if process.pid == os.getpid()]
    return [memory.used, memory.free, sum(mine)]
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "4GiB")


def test_managed_memory_may_exceed_the_gpu_without_data_loss(gpu: SoftGpu) -> None:
    assert gpu.client(
        CALLS
        + """
start()
blocks = [managed(3 << 30) for _ in range(3)]
for number, block in enumerate(blocks):
    ok(cuda.cuMemsetD8(int(block) + (3 << 30) - 64, number + 1, 64))
back = bytearray(64)
read = []
for block in blocks:
    ok(cuda.cuMemcpyDtoH(back, int(block) + (3 << 30) - 64, 64))
    read.append(sorted(set(back)))
full = view()
ok(cuda.cuMemFree(blocks[0])), ok(cuda.cuMemFree(blocks[1]))
say(read=read, full=full, after=view(), free=ok(cuda.cuMemGetInfo())[0])
"""
    ) == {
        "read": [[1], [2], [3]],
        "full": [4 * GIB, 0, 4 * GIB],
        "after": [3 * GIB, GIB, 3 * GIB],
        "free": GIB,
    }


def test_physical_memory_moves_managed_memory_out_and_has_its_own_bound(gpu: SoftGpu) -> None:
    seen = gpu.client(
        CALLS
        + """
start()
managed(6 << 30)
block = ok(cuda.cuMemAlloc(3 << 30))
with_both = view()
refused = cuda.cuMemAlloc((1 << 30) + 1)[0].name
last = ok(cuda.cuMemAlloc(1 << 30))
only_physical = view()
ok(cuda.cuMemFree(block)), ok(cuda.cuMemFree(last))
say(views=[with_both, only_physical, view()], refused=refused)
"""
    )
    assert seen["views"] == [[4 * GIB, 0, 4 * GIB]] * 3
    assert seen["refused"] == "CUDA_ERROR_OUT_OF_MEMORY"


def test_processes_have_equal_parts_of_managed_memory_on_the_gpu(gpu: SoftGpu) -> None:
    other = gpu.start_client(
        CALLS + "start(); managed(6 << 30); say(done=True); sys.stdin.readline(); say(view=view())"
    )
    first_line(other)
    script = CALLS + "start(); managed(2 << 30); say(view=view()); sys.stdin.readline(); say(d=1)"
    second = gpu.start_client(script)
    assert first_line(second) == {"view": [4 * GIB, 0, GIB]}
    second.kill()
    second.communicate()
    assert other.stdin is not None
    other.stdin.write("\n")
    assert answer(other) == {"view": [4 * GIB, 0, 4 * GIB]}


def test_a_process_with_managed_memory_cannot_be_checkpointed(gpu: SoftGpu) -> None:
    holder = gpu.start_client(
        CALLS
        + """
start()
block = managed(1)
say(pid=os.getpid())
sys.stdin.readline()
ok(cuda.cuMemFree(block))
say(done=True)
sys.stdin.readline()
"""
    )
    pid = first_line(holder)["pid"]
    checkpoint = f"""
start()
ok(cuda.cuCheckpointProcessLock({pid}, None))
answer = cuda.cuCheckpointProcessCheckpoint({pid}, None)[0].name
state = ok(cuda.cuCheckpointProcessGetState({pid})).name
if answer == "CUDA_SUCCESS":
    ok(cuda.cuCheckpointProcessRestore({pid}, None))
ok(cuda.cuCheckpointProcessUnlock({pid}, None))
say(answer=answer, state=state)
"""
    assert gpu.client(checkpoint) == {
        "answer": "CUDA_ERROR_NOT_SUPPORTED",
        "state": "CU_PROCESS_STATE_LOCKED",
    }
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    first_line(holder)
    assert gpu.client(checkpoint)["answer"] == "CUDA_SUCCESS"
    holder.kill()
    holder.communicate()


def test_gpus_without_managed_memory_say_so(tmp_path: Path) -> None:
    assert SoftGpu(tmp_path, "--no-managed").client(
        CALLS
        + """
start()
A = cuda.CUdevice_attribute
names = [A.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, A.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS]
say(attributes=[ok(cuda.cuDeviceGetAttribute(name, 0)) for name in names],
    answer=cuda.cuMemAllocManaged(1, GLOBAL)[0].name)
"""
    ) == {"attributes": [0, 0], "answer": "CUDA_ERROR_NOT_SUPPORTED"}


def test_a_context_takes_its_memory_until_it_ends(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "1GiB", "--context-memory", "300MiB")
    assert gpu.client(
        CALLS
        + """
def after(answer):
    rc = answer[0] if isinstance(answer, tuple) else answer
    return [rc.name, *view()]
ok(cuda.cuInit(0))
steps = [view(), after(cuda.cuDevicePrimaryCtxRetain(0)), after(cuda.cuDevicePrimaryCtxRetain(0))]
made = cuda.cuCtxCreate(None, 0, 0)
steps += [after(made), after(cuda.cuMemAlloc(100 << 20)), after(cuda.cuCtxCreate(None, 0, 0)),
          after(cuda.cuCtxCreate(None, 0, 0)), after(cuda.cuCtxDestroy(made[1]))]
steps += [after(cuda.cuDevicePrimaryCtxRelease(0)), after(cuda.cuDevicePrimaryCtxReset(0)),
          after(cuda.cuDevicePrimaryCtxRelease(0))]
say(steps=[[*step[:-3], *(size >> 20 for size in step[-3:])] for step in steps])
"""
    )["steps"] == [
        [0, 1024, 0],
        ["CUDA_SUCCESS", 300, 724, 300],
        ["CUDA_SUCCESS", 300, 724, 300],
        ["CUDA_SUCCESS", 600, 424, 600],
        ["CUDA_SUCCESS", 700, 324, 700],
        ["CUDA_SUCCESS", 1000, 24, 1000],
        ["CUDA_ERROR_OUT_OF_MEMORY", 1000, 24, 1000],
        ["CUDA_SUCCESS", 600, 424, 600],
        ["CUDA_SUCCESS", 600, 424, 600],
        ["CUDA_SUCCESS", 600, 424, 600],
        ["CUDA_SUCCESS", 300, 724, 300],
    ]
    assert gpu.client(CALLS + "say(view=view())") == {"view": [0, GIB, 0]}


def test_a_primary_context_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "1GiB", "--context-memory", "700MiB")
    holder = gpu.start_client("start(); say(done=True); sys.stdin.readline()")
    first_line(holder)
    refused = """
ok(cuda.cuInit(0))
answers = [cuda.cuDevicePrimaryCtxRetain(0)[0].name for _ in range(2)]
say(answers=answers, active=ok(cuda.cuDevicePrimaryCtxGetState(0))[1])
"""
    full = "CUDA_ERROR_OUT_OF_MEMORY"
    assert gpu.client(refused) == {"answers": [full, full], "active": 0}
    holder.kill()
    holder.communicate()
    assert gpu.client(refused)["answers"] == ["CUDA_SUCCESS"] * 2
