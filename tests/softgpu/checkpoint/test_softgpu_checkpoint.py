"""Checkpoints of the software GPU's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import CALLS as REFUSALS
from support.softgpu.softgpu_host import SoftGpu, answer, first_line, go_on

CALLS = REFUSALS + "S = cuda.CUprocessState\n"


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


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
refused(cuda.cuCheckpointProcessUnlock(pid, None), R.CUDA_ERROR_ILLEGAL_STATE)
ok(cuda.cuCheckpointProcessRestore(pid, None))
assert used() == 40 * MIB
ok(cuda.cuCheckpointProcessUnlock(pid, None))
assert state() == S.CU_PROCESS_STATE_RUNNING
say(done=True)
"""
    )
    go_on(client)
    assert answer(client) == {"back": [7] * 8, "used": 40 << 20}


def test_a_restore_without_room_loses_the_process(gpu: SoftGpu) -> None:
    """As driver 580 on an H200: bench/hardware.md."""
    client = gpu.start_client(
        CALLS
        + """
start()
ok(cuda.cuMemAlloc(40 * MIB))
say(pid=os.getpid())
sys.stdin.readline()
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
ok(cuda.cuCheckpointProcessLock(pid, None))
ok(cuda.cuCheckpointProcessCheckpoint(pid, None))
filler = ok(cuda.cuMemAlloc(30 * MIB))
refused(cuda.cuCheckpointProcessRestore(pid, None), R.CUDA_ERROR_OUT_OF_MEMORY)
ok(cuda.cuMemFree(filler))
for _ in range(2):
    refused(cuda.cuCheckpointProcessRestore(pid, None), R.CUDA_ERROR_OPERATING_SYSTEM)
state = ok(cuda.cuCheckpointProcessGetState(pid))
assert state == cuda.CUprocessState.CU_PROCESS_STATE_CHECKPOINTED
say(done=True)
"""
    )
    client.kill()
    client.communicate()


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
    go_on(client)
    go_on(holder)
    assert answer(holder) == {"done": True}
    assert answer(client) == {"done": True}


def test_a_lock_waits_until_the_process_has_done_its_work(gpu: SoftGpu) -> None:
    worker = gpu.start_client(
        CALLS
        + """
start()
function = kernel(b"spin")
say(pid=os.getpid())
sys.stdin.readline()
spin(function, 1_000_000_000)
say(queued=True)
sys.stdin.readline()
say(answer=cuda.cuStreamQuery(0)[0].name)
"""
    )
    pid = first_line(worker)["pid"]
    locker = gpu.start_client(
        CALLS
        + f"""
start()
say(ready=True)
sys.stdin.readline()
ok(cuda.cuCheckpointProcessLock({pid}, None))
ok(cuda.cuCheckpointProcessUnlock({pid}, None))
say(done=True)
"""
    )
    first_line(locker)
    go_on(worker)
    assert first_line(worker) == {"queued": True}
    go_on(locker)
    assert answer(locker) == {"done": True}
    go_on(worker)
    assert answer(worker) == {"answer": "CUDA_SUCCESS"}


def test_a_lock_that_runs_out_of_time_leaves_the_process_as_it_was(gpu: SoftGpu) -> None:
    worker = gpu.start_client(
        CALLS
        + """
start()
spin(kernel(b"spin"), 3_600_000_000_000)
say(pid=os.getpid())
sys.stdin.readline()
say(allocated=int(ok(cuda.cuMemAlloc(MIB))) > 0)
"""
    )
    pid = first_line(worker)["pid"]
    locked = gpu.client(
        CALLS
        + f"""
start()
patience = cuda.CUcheckpointLockArgs()
patience.timeoutMs = 50
answer = cuda.cuCheckpointProcessLock({pid}, patience)[0].name
say(answer=answer, state=ok(cuda.cuCheckpointProcessGetState({pid})).name)
"""
    )
    assert locked == {"answer": "CUDA_ERROR_NOT_READY", "state": "CU_PROCESS_STATE_RUNNING"}
    go_on(worker)
    assert first_line(worker) == {"allocated": True}
    worker.kill()
    worker.communicate()


def test_a_checkpointed_process_is_no_process_of_the_gpu_until_it_is_restored(
    gpu: SoftGpu,
) -> None:
    holder = gpu.start_client(
        CALLS
        + """
start()
ok(cuda.cuMemAlloc(5 * MIB))
say(pid=os.getpid())
sys.stdin.readline()
say(done=True)
"""
    )
    pid = first_line(holder)["pid"]
    seen = gpu.client(
        CALLS
        + f"""
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
pid = {pid}
"""
        + """
ok(cuda.cuInit(0))
def look():
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    return [(process.pid == pid, process.usedGpuMemory) for process in listed]
seen = [look()]
ok(cuda.cuCheckpointProcessLock(pid, None))
ok(cuda.cuCheckpointProcessCheckpoint(pid, None))
seen.append(look())
elsewhere = cuda.CUcheckpointRestoreArgs()
elsewhere.gpuPairs, elsewhere.gpuPairsCount = [cuda.CUcheckpointGpuPair()], 1
refused(cuda.cuCheckpointProcessRestore(pid, elsewhere), R.CUDA_ERROR_INVALID_VALUE)
thread = ok(cuda.cuCheckpointProcessGetRestoreThreadId(pid))
assert str(int(thread)) in os.listdir(f"/proc/{pid}/task")
ok(cuda.cuCheckpointProcessRestore(pid, None))
ok(cuda.cuCheckpointProcessUnlock(pid, None))
say(seen=seen + [look()])
"""
    )
    held = [[True, 5 << 20]]
    assert seen == {"seen": [held, [], held]}
    go_on(holder)
    assert answer(holder) == {"done": True}


def test_a_checkpointed_process_that_is_killed_leaves_nothing_to_restore(gpu: SoftGpu) -> None:
    holder = gpu.start_client(
        "start(); ok(cuda.cuMemAlloc(5 << 20)); say(pid=os.getpid())"
        + """
sys.stdin.read()
"""
    )
    pid = first_line(holder)["pid"]
    other = gpu.start_client(
        CALLS
        + f"""
start()
ok(cuda.cuCheckpointProcessLock({pid}, None))
ok(cuda.cuCheckpointProcessCheckpoint({pid}, None))
say(used=used())
sys.stdin.readline()
refused(cuda.cuCheckpointProcessRestore({pid}, None), R.CUDA_ERROR_INVALID_VALUE)
say(used=used())
"""
    )
    assert first_line(other) == {"used": 0}
    holder.kill()
    holder.communicate()
    go_on(other)
    assert answer(other) == {"used": 0}
    # Its slot is another process's then, which is not checkpointed.
    assert gpu.client("start(); ok(cuda.cuMemAlloc(8)); say(done=True)") == {"done": True}
