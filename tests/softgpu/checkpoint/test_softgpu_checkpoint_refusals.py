"""What a checkpoint refuses, and processes that the driver gives up on order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import BUILT, CALLS, PRELUDE, SoftGpu, answer, first_line, go_on

# Locks, checkpoints and lets go itself; the result of each, and the states after the first two.
TRIES = (
    CALLS
    + """
def state(pid):
    return ok(cuda.cuCheckpointProcessGetState(pid)).value
def tries(pid):
    lock = cuda.cuCheckpointProcessLock(pid, None)[0].name
    locked = state(pid)
    checkpoint = cuda.cuCheckpointProcessCheckpoint(pid, None)[0].name
    say(lock=lock, checkpoint=checkpoint, states=[locked, state(pid)])
start()
"""
)
MEMORY = CALLS + "start(); memory = ok(cuda.cuMemAlloc(4 * MIB))\n"
WAITS = "say(pid=os.getpid()); sys.stdin.readline(); say(used=used())\n"
EXPORTED = "handle = ok(cuda.cuIpcGetMemHandle(memory))\n"
PLAIN, EXPORTS = MEMORY + WAITS, MEMORY + EXPORTED + WAITS
SAYS = "import ctypes; print(ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)\n"
EXPORTER = PRELUDE + MEMORY + EXPORTED + SAYS + "sys.stdin.read()\n"
# Opens the memory of another process, which ends with this one's pipe.
OPENS = f"""
import ctypes, subprocess
other = subprocess.Popen([sys.executable, "-c", {EXPORTER!r}], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
handle = cuda.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(other.stdout.readline()), 64)
ok(cuda.cuIpcOpenMemHandle(handle, 1))
"""
IMPORTS = MEMORY + OPENS + WAITS
STEPS = ["lock", "checkpoint", "restore", "unlock"]
# All steps of a checkpoint; their results, and the state at the end.
CYCLES = (
    CALLS
    + """
start()
steps = (cuda.cuCheckpointProcessLock, cuda.cuCheckpointProcessCheckpoint,
         cuda.cuCheckpointProcessRestore, cuda.cuCheckpointProcessUnlock)
def cycle(pid):
    results = [step(pid, None)[0].name for step in steps]
    return results + [ok(cuda.cuCheckpointProcessGetState(pid)).value]
"""
)
REFUSED = {
    "lock": "CUDA_SUCCESS",
    "checkpoint": "CUDA_ERROR_NOT_SUPPORTED",
    "states": [1, 1],
}
DONE = {"lock": "CUDA_SUCCESS", "checkpoint": "CUDA_SUCCESS", "states": [1, 2]}


def tried(gpu: SoftGpu, holder: str) -> object:
    """What another process gets that checkpoints the holder."""
    held = gpu.start_client(holder)
    pid = first_line(held)["pid"]
    try:
        return gpu.client(TRIES + f"tries({pid})")
    finally:
        held.kill()
        held.communicate()


@pytest.mark.parametrize(
    ("options", "holder", "expected"),
    [
        ((), PLAIN, DONE),
        (("--mps",), PLAIN, REFUSED),
        (("--mig", "0=1g.4gb"), PLAIN, REFUSED),
        ((), EXPORTS, DONE),  # as driver 580 on an H200
        ((), IMPORTS, REFUSED),
        (("--driver-version", "610.10"), IMPORTS, DONE),
    ],
    ids=["plain", "MPS", "MIG", "exported", "shared memory", "shared memory from 610 on"],
)
def test_checkpoint_refuses_what_a_driver_cannot_take_off(
    tmp_path: Path, options: tuple[str, ...], holder: str, expected: object
) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "16GiB", "--gpus", "1", *options)
    assert tried(gpu, holder) == expected


@pytest.mark.parametrize("step", STEPS)
def test_process_that_is_given_up_on_order_stays_failed_and_no_other_does(
    tmp_path: Path, step: str
) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "16GiB", "--gpus", "1")
    both = [gpu.start_client(PLAIN) for _ in range(2)]
    lost, other = (first_line(each)["pid"] for each in both)
    subprocess.run([BUILT / "softgpu", "fail", gpu.root, "--give-up", step], check=True)
    try:
        found = gpu.client(CYCLES + f"say(lost=cycle({lost}), other=cycle({other}))")
        at = STEPS.index(step)
        assert found == {
            "lost": ["CUDA_SUCCESS"] * at
            + ["CUDA_ERROR_OPERATING_SYSTEM"]
            + ["CUDA_ERROR_ILLEGAL_STATE"] * (3 - at)
            + [3],
            "other": ["CUDA_SUCCESS"] * 4 + [0],
        }
        go_on(both[1])
        assert answer(both[1])["used"] >= 4 << 20
    finally:
        both[0].kill()
        both[0].communicate()


# The words of 4 bytes, of 16 in each call's struct, that a driver reads, with its answer to a call
# in the wrong state; all others must be zero. Source: cuda.h of 12.9, 13.0 and 13.5.
STATE, STORAGE = 401, 801
LAYOUTS = {
    "575.57.08": {"Lock": {"0": STATE}, "Checkpoint": {}, "Restore": {}, "Unlock": {}},
    "580.95.05": {
        "Lock": {"0": STATE},
        "Checkpoint": {},
        "Restore": {"0": STATE, "1": STATE, "2": STATE},
        "Unlock": {},
    },
    "615.10": {
        "Lock": {"0": STATE},
        "Checkpoint": {"0": STORAGE, "1": STORAGE},
        "Restore": {"0": STATE, "1": STATE, "2": STATE, "3": STATE, "4": STORAGE, "5": STORAGE},
        "Unlock": {},
    },
}
WORDS = """
driver = ctypes.CDLL("libcuda.so.1")
pid, read = os.getpid(), {}
start()
def answers(name):
    args, found = (ctypes.c_uint32 * 16)(), {}
    for at in range(16):
        args[:] = [0] * 16
        args[at] = 1
        found[at] = driver["cuCheckpointProcess" + name](pid, args)
    return {at: code for at, code in found.items() if code != 1}
for name in ("Checkpoint", "Restore", "Unlock"):
    read[name] = answers(name)
before = int(ok(cuda.cuCheckpointProcessGetState(pid)))
ok(cuda.cuCheckpointProcessLock(pid, None))
read["Lock"] = answers("Lock")
say(read=read, states=[before, int(ok(cuda.cuCheckpointProcessGetState(pid)))])
"""


@pytest.mark.parametrize("version", LAYOUTS)
def test_each_driver_reads_the_structs_of_its_own_header(tmp_path: Path, version: str) -> None:
    gpu = SoftGpu(tmp_path, "--driver-version", version)
    assert gpu.client(CALLS + WORDS) == {"read": LAYOUTS[version], "states": [0, 1]}


@pytest.mark.parametrize(("version", "expected"), [("580.95.05", [1, 1]), ("615.10", [801, 801])])
def test_custom_storage_of_the_caller_itself_is_refused_and_changes_no_state(
    tmp_path: Path, version: str, expected: list[int]
) -> None:
    """Before driver 615 its place is a reserved field. Source: cuda.h of 12.9 and 13.5."""
    gpu = SoftGpu(tmp_path, "--driver-version", version)
    seen = gpu.client(
        CALLS
        + """
driver = ctypes.CDLL("libcuda.so.1")
pid = os.getpid()
start()
out = ctypes.c_void_p()
args = (ctypes.c_uint64 * 8)()
def asks(name, at):
    args[:] = [0] * 8
    args[at] = ctypes.addressof(out)
    return driver[name](pid, args)
ok(cuda.cuCheckpointProcessLock(pid, None))
answers = [asks("cuCheckpointProcessCheckpoint", 0)]
ok(cuda.cuCheckpointProcessCheckpoint(pid, None))
answers += [asks("cuCheckpointProcessRestore", 2)]
say(answers=answers, state=int(ok(cuda.cuCheckpointProcessGetState(pid))), out=out.value)
"""
    )
    assert seen == {"answers": expected, "state": 2, "out": None}
