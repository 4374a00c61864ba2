"""Checkpoints of processes that the caller sees under another pid, and of those without CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import BUILT, CALLS, PRELUDE, SoftGpu, answer, first_line, go_on

HOLDER = (
    CALLS
    + """
start()
memory = ok(cuda.cuMemAlloc(40 * MIB))
say(pid=os.getpid())
sys.stdin.readline()
say(used=used())
"""
)
CYCLE = """
steps = (cuda.cuCheckpointProcessLock, cuda.cuCheckpointProcessCheckpoint,
         cuda.cuCheckpointProcessRestore, cuda.cuCheckpointProcessUnlock)
def cycle(pid, look):
    seen = []
    for step in steps:
        ok(step(pid, None))
        seen.append([ok(cuda.cuCheckpointProcessGetState(pid)).value, look()])
    return seen
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


def contained(gpu: SoftGpu, script: str) -> subprocess.Popen[str]:
    """A client as process 1 of a pid namespace of its own."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return gpu.popen([*apart, sys.executable, "-c", PRELUDE + script])


def pid_on_host(process: subprocess.Popen[str]) -> int:
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        return int(children.read())


def test_the_host_checkpoints_a_containers_process_by_the_hosts_pid(gpu: SoftGpu) -> None:
    inside, neighbour = contained(gpu, HOLDER), contained(gpu, "start(); say(); sys.stdin.read()")
    assert first_line(inside) == {"pid": 1}
    first_line(neighbour)
    pid = pid_on_host(inside)
    seen = gpu.client(
        CALLS
        + CYCLE
        + f"""
start()
seen = cycle({pid}, lambda: used() // MIB)
tid = ok(cuda.cuCheckpointProcessGetRestoreThreadId({pid}))
say(seen=seen, task=os.path.exists(f"/proc/{pid}/task/{{int(tid)}}"),
    neighbour=ok(cuda.cuCheckpointProcessGetState({pid_on_host(neighbour)})).value)
"""
    )
    assert seen == {"seen": [[1, 40], [2, 0], [1, 40], [0, 40]], "task": True, "neighbour": 0}
    go_on(inside)
    assert answer(inside) == {"used": 40 << 20}
    neighbour.kill()
    neighbour.communicate()


def test_a_container_names_its_own_processes_only(gpu: SoftGpu) -> None:
    outside = gpu.start_client(HOLDER)
    pid = first_line(outside)["pid"]
    inside = contained(
        gpu,
        CALLS
        + CYCLE
        + f"""
start()
refused(cuda.cuCheckpointProcessLock({pid}, None), R.CUDA_ERROR_INVALID_VALUE)
say(own=[state for state, _ in cycle(1, lambda: None)])
""",
    )
    assert answer(inside) == {"own": [1, 2, 1, 0]}
    go_on(outside)
    assert answer(outside) == {"used": 40 << 20}


def test_a_threads_number_stands_for_its_process(gpu: SoftGpu) -> None:
    holder = gpu.start_client(
        CALLS
        + """
import threading
start()
waiting = threading.Event()
thread = threading.Thread(target=waiting.wait)
thread.start()
say(pid=os.getpid(), tid=thread.native_id)
sys.stdin.readline()
waiting.set()
say(done=True)
"""
    )
    ids = first_line(holder)
    seen = gpu.client(
        CALLS
        + f"""
start()
ok(cuda.cuCheckpointProcessLock({ids["tid"]}, None))
say(state=ok(cuda.cuCheckpointProcessGetState({ids["pid"]})).value)
ok(cuda.cuCheckpointProcessUnlock({ids["pid"]}, None))
"""
    )
    assert seen == {"state": 1}
    go_on(holder)
    assert answer(holder) == {"done": True}


def test_a_process_without_cuda_is_told_from_one_that_does_not_exist(gpu: SoftGpu) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stranger = gpu.popen(["sleep", "100"])
    seen = gpu.client(
        CALLS
        + f"""
import pynvml
pynvml.nvmlInit()
start()
calls = [cuda.cuCheckpointProcessGetState, cuda.cuCheckpointProcessGetRestoreThreadId]
calls += [lambda pid, step=step: step(pid, None) for step in (
    cuda.cuCheckpointProcessLock, cuda.cuCheckpointProcessCheckpoint,
    cuda.cuCheckpointProcessRestore, cuda.cuCheckpointProcessUnlock)]
say(**{{name: sorted({{call(pid)[0].name for call in calls}})
       for name, pid in (("stranger", {stranger.pid}), ("ended", {ended.pid}), ("none", -1))}})
"""
    )
    assert seen == {
        "stranger": ["CUDA_ERROR_NOT_INITIALIZED"],
        "ended": ["CUDA_ERROR_INVALID_VALUE"],
        "none": ["CUDA_ERROR_INVALID_VALUE"],
    }
    stranger.kill()
    stranger.communicate()


def locking(pid: int) -> str:
    return f"""
start()
patience = cuda.CUcheckpointLockArgs()
patience.timeoutMs = 50
answer = cuda.cuCheckpointProcessLock({pid}, patience)[0].name
say(answer=answer, state=ok(cuda.cuCheckpointProcessGetState({pid})).value)
"""


BUSY = {"answer": "CUDA_ERROR_NOT_READY", "state": 0}


def test_a_lock_waits_for_a_host_function(gpu: SoftGpu) -> None:
    worker = gpu.start_client(
        CALLS
        + """
start()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def wait_for_host(_):
    sys.stdin.readline()
ok(cuda.cuLaunchHostFunc(0, ctypes.cast(wait_for_host, ctypes.c_void_p).value, 0))
say(pid=os.getpid())
ok(cuda.cuStreamSynchronize(0))
say(done=True)
sys.stdin.readline()
"""
    )
    pid = first_line(worker)["pid"]
    assert gpu.client(locking(pid)) == BUSY
    go_on(worker)
    assert first_line(worker) == {"done": True}
    assert gpu.client(locking(pid)) == {"answer": "CUDA_SUCCESS", "state": 1}
    worker.kill()
    worker.communicate()


def test_a_lock_waits_for_a_call_that_hangs(gpu: SoftGpu) -> None:
    worker = gpu.start_client(
        """
start()
say(pid=os.getpid())
sys.stdin.readline()
ok(cuda.cuCtxSynchronize())
say(done=True)
sys.stdin.readline()
"""
    )
    pid = first_line(worker)["pid"]
    tool = str(BUILT / "softgpu")
    order = [tool, "fail", str(gpu.root), "--call", "cuCtxSynchronize", "--hang"]
    subprocess.run(order, check=True)
    go_on(worker)
    while gpu.client(locking(pid)) != BUSY:
        gpu.client(f"start(); ok(cuda.cuCheckpointProcessUnlock({pid}, None)); say()")
    subprocess.run([tool, "heal", gpu.root], check=True)
    assert first_line(worker) == {"done": True}
    assert gpu.client(locking(pid)) == {"answer": "CUDA_SUCCESS", "state": 1}
    worker.kill()
    worker.communicate()
