"""Restores of the software GPU's processes onto other GPUs: `gpuPairs`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from support import compiled
from support.softgpu.softgpu_host import CALLS, PRELUDE, SoftGpu, answer, first_line, go_on

# Works on GPU 0, and again after it has been moved.
TARGET = (
    CALLS
    + """
start()
memory = ok(cuda.cuMemAlloc(40 * MIB))
ok(cuda.cuMemsetD8(memory, 7, 8))
stream = ok(cuda.cuStreamCreate(0))
ok(cuda.cuStreamSynchronize(stream))
say(pid=os.getpid())
sys.stdin.readline()
back = bytearray(8)
ok(cuda.cuMemcpyDtoHAsync(back, memory, 8, stream))
ok(cuda.cuStreamSynchronize(stream))
more = ok(cuda.cuMemAlloc(8 * MIB))
say(back=list(back), used=used(), gpu=bytes(ok(cuda.cuDeviceGetUuid(0)).bytes).hex())
"""
)
MOVER = (
    CALLS
    + """
start()
def uuid(device):
    return ok(cuda.cuDeviceGetUuid(device))
def off(pid):
    ok(cuda.cuCheckpointProcessLock(pid, None))
    ok(cuda.cuCheckpointProcessCheckpoint(pid, None))
def restore(pid, *pairs):
    args = cuda.CUcheckpointRestoreArgs()
    listed = []
    for old, new in pairs:
        pair = cuda.CUcheckpointGpuPair()
        pair.oldUuid, pair.newUuid = old, new
        listed.append(pair)
    args.gpuPairs, args.gpuPairsCount = listed, len(listed)
    return cuda.cuCheckpointProcessRestore(pid, args)
def used_on(device):
    context = ok(cuda.cuDevicePrimaryCtxRetain(device))
    ok(cuda.cuCtxSetCurrent(context))
    return used()
"""
)


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


def test_a_process_is_restored_onto_another_gpu_and_back(gpu: SoftGpu) -> None:
    client = gpu.start_client(TARGET)
    pid = first_line(client)["pid"]
    seen = gpu.client(
        MOVER
        + f"""
pid = {pid}
off(pid)
ok(restore(pid, (uuid(0), uuid(1))))
there = [used_on(0), used_on(1)]
ok(cuda.cuCheckpointProcessUnlock(pid, None))
off(pid)
ok(restore(pid, (uuid(1), uuid(0)), (uuid(0), uuid(1))))
back = [used_on(0), used_on(1)]
ok(cuda.cuCheckpointProcessUnlock(pid, None))
off(pid)
ok(restore(pid, (uuid(0), uuid(1))))
ok(cuda.cuCheckpointProcessUnlock(pid, None))
say(there=there, back=back, gpu=bytes(uuid(1).bytes).hex())
"""
    )
    assert isinstance(seen, dict)
    assert seen["there"] == [0, 40 << 20]
    assert seen["back"] == [40 << 20, 0]
    go_on(client)
    assert answer(client) == {"back": [7] * 8, "used": 48 << 20, "gpu": seen["gpu"]}


def test_pairs_that_the_driver_cannot_follow_leave_the_process_as_it_was(gpu: SoftGpu) -> None:
    client = gpu.start_client(TARGET)
    pid = first_line(client)["pid"]
    gpu.client(
        MOVER
        + f"""
pid = {pid}
"""
        + """
unknown = cuda.CUuuid()
off(pid)
for pairs in (
    [(uuid(1), uuid(0))],  # a GPU that it uses is missing
    [(uuid(0), unknown)],
    [(unknown, uuid(1)), (uuid(0), uuid(1))],
    [(uuid(0), uuid(1)), (uuid(0), uuid(0))],
    [(uuid(0), uuid(1)), (uuid(1), uuid(1))],
):
    refused(restore(pid, *pairs), R.CUDA_ERROR_INVALID_VALUE)
ok(restore(pid, (uuid(0), uuid(1))))
ok(cuda.cuCheckpointProcessUnlock(pid, None))
say(done=True)
"""
    )
    go_on(client)
    assert answer(client)["back"] == [7] * 8


def test_a_restore_without_room_on_the_other_gpu_loses_the_process(gpu: SoftGpu) -> None:
    client = gpu.start_client(TARGET)
    pid = first_line(client)["pid"]
    gpu.client(
        MOVER
        + f"""
pid = {pid}
"""
        + """
off(pid)
used_on(1)
ok(cuda.cuMemAlloc(30 * MIB))
refused(restore(pid, (uuid(0), uuid(1))), R.CUDA_ERROR_OUT_OF_MEMORY)
refused(cuda.cuCheckpointProcessRestore(pid, None), R.CUDA_ERROR_OPERATING_SYSTEM)
say(done=True)
"""
    )
    client.kill()
    client.communicate()


def test_pairs_need_driver_580(tmp_path: Path) -> None:
    """Before, their place is a reserved field. Source: cuda.h of 12.9 and 13.0."""
    old = ("--driver-version", "575.57.08")
    gpu = SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2", *old)
    client = gpu.start_client(TARGET)
    pid = first_line(client)["pid"]
    gpu.client(
        MOVER
        + f"""
off({pid})
refused(restore({pid}, (uuid(0), uuid(1))), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuCheckpointProcessRestore({pid}, None))
ok(cuda.cuCheckpointProcessUnlock({pid}, None))
say(done=True)
"""
    )
    go_on(client)
    assert answer(client)["back"] == [7] * 8


def test_a_restore_is_whole_or_not_made_if_its_caller_is_killed(
    gpu: SoftGpu, tmp_path: Path
) -> None:
    library = compiled.library(str(tmp_path), "killed_at_clock", "-ldl")
    target = gpu.start_client(TARGET)
    pid = first_line(target)["pid"]
    gpu.client(MOVER + f"off({pid}); say()")
    ask = f"state = ok(cuda.cuCheckpointProcessGetState({pid})); say(state=int(state))"
    for killed in range(1, 100):
        move = f"ctypes.CDLL(None).arm({killed}); ok(restore({pid}, (uuid(0), uuid(1))))"
        script = PRELUDE + MOVER + move
        caller = gpu.popen(["env", "LD_PRELOAD=" + library, sys.executable, "-c", script])
        _, err = caller.communicate()
        assert caller.returncode == -signal.SIGKILL, err
        if gpu.client("start(); " + ask) == {"state": 1}:
            break
    assert killed >= 2  # the first time it had been moved, and was still checkpointed
    gpu.client(f"start(); ok(cuda.cuCheckpointProcessUnlock({pid}, None)); say()")
    go_on(target)
    assert answer(target)["back"] == [7] * 8
