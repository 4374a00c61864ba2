"""Checkpoints to custom storage, which the caller copies itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.custom_storage import HOLDER, KINDS, STORAGE, VERSION
from support.softgpu.softgpu_clock import run_together
from support.softgpu.softgpu_host import CALLS, SoftGpu, answer, first_line, go_on


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2", *VERSION)


def test_target_sees_what_the_caller_wrote_and_holds_nothing_meanwhile(gpu: SoftGpu) -> None:
    holder = gpu.start_client(HOLDER)
    pid = first_line(holder)["pid"]
    seen = gpu.client(
        STORAGE
        + f"pid = {pid}\n"
        + """
retain(0)
lock(pid)
code, info = begin("Checkpoint", pid)
seen = [code, state(pid), [part.size // MIB for part in ranges(info)], used() // MIB]
stored = save(info)
seen += [complete(info.handle), state(pid), used(), sorted(set(stored[0].raw))]
ctypes.memset(stored[0], 9, MIB)
code, info = begin("Restore", pid)
handle = info.handle
seen += [code, state(pid), used() // MIB]
load(info, stored, 4 * MIB)  # the rest stays empty
seen += [complete(handle), state(pid), complete(handle), complete(1)]
unlock(pid)
say(seen=seen)
"""
    )
    assert seen == {"seen": [0, 4, [8], 8, 0, 2, 0, [7], 0, 5, 8, 0, 1, 1, 1]}
    go_on(holder)
    assert answer(holder) == {"back": [0, 7, 9], "used": 8 << 20}


INVERT = """
def invert(stored):
    return [ctypes.create_string_buffer(part.raw.translate(bytes(range(255, -1, -1))), len(part))
            for part in stored]
"""


def test_custom_storage_has_device_memory_of_every_kind_and_nothing_else(gpu: SoftGpu) -> None:
    holder = gpu.start_client(KINDS)
    pid = first_line(holder)["pid"]
    gpu.client(
        STORAGE
        + INVERT
        + f"pid = {pid}\n"
        + """
retain(0)
lock(pid)
info = begin("Checkpoint", pid)[1]
stored = invert(save(info))
assert complete(info.handle) == 0
info = begin("Restore", pid)[1]
load(info, stored)
assert complete(info.handle) == 0
unlock(pid)
say()
"""
    )
    go_on(holder)
    assert answer(holder) == {"inverted": [True] * 8, "pinned": 99}


def test_each_gpu_has_an_entry_and_pairs_map_it_on_the_new_one(gpu: SoftGpu) -> None:
    holder = gpu.start_client(
        CALLS
        + """
memory = []
for device in (0, 1):
    start(device)
    memory.append(ok(cuda.cuMemAlloc((device + 1) * MIB)))
    ok(cuda.cuMemsetD8(memory[-1], 50 + device, MIB))
say(pid=os.getpid())
sys.stdin.readline()
back = bytearray(2)
for at in (0, 1):
    ok(cuda.cuMemcpyDtoH(memoryview(back)[at:at + 1], memory[at], 1))
say(back=list(back))
"""
    )
    pid = first_line(holder)["pid"]
    seen = gpu.client(
        STORAGE
        + f"pid = {pid}\n"
        + """
retain(0)
uuids = [ok(cuda.cuDeviceGetUuid(device)) for device in (0, 1)]
lock(pid)
seen = [begin("Checkpoint", pid)[0]]
retain(1)
def where(info):
    return [[int(ok(cuda.cuStreamGetDevice(part.stream))), part.size // MIB]
            for part in ranges(info)]
info = begin("Checkpoint", pid)[1]
stored, seen = save(info), [*seen, where(info)]
assert complete(info.handle) == 0
code, info = begin("Restore", pid, [(uuids[0], uuids[1]), (uuids[1], uuids[0])])
load(info, stored)
seen.append(where(info))
assert complete(info.handle) == 0
seen.append(used() // MIB)  # of GPU 1
unlock(pid)
say(seen=seen)
"""
    )
    # 201: CUDA_ERROR_INVALID_CONTEXT
    assert seen == {"seen": [201, [[0, 1], [1, 2]], [[1, 1], [0, 2]], 1]}
    go_on(holder)
    assert answer(holder) == {"back": [50, 51]}


def test_caller_needs_cuda_and_copies_no_process_that_copies_another(gpu: SoftGpu) -> None:
    holder, other = gpu.start_client(HOLDER), gpu.start_client(HOLDER)
    pid, other_pid = (first_line(each)["pid"] for each in (holder, other))
    seen = gpu.client(
        STORAGE
        + f"pid, other = {pid}, {other_pid}\n"
        + """
seen = [begin("Checkpoint", pid)[0], complete(1)]
retain(0)
seen += [begin("Checkpoint", pid)[0]]
lock(pid), lock(other), lock(os.getpid())
first, second = (begin("Checkpoint", each)[1] for each in (pid, other))
seen += [begin("Checkpoint", pid)[0], begin("Restore", pid)[0]]
seen += [cuda.cuCheckpointProcessCheckpoint(os.getpid(), None)[0].value]
unlock(os.getpid())
stream = first.ranges[0].stream
ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(2)))
seen += [complete(first.handle), state(pid)]
cuda.cuStreamEndCapture(stream)
seen += [complete(first.handle), state(pid), state(other)]
kill(other)
seen += [complete(second.handle), used() // MIB]
say(seen=seen)
"""
    )
    # 3: not initialized, 401: illegal state, 801: not supported, 900: unsupported by a capture
    assert seen == {"seen": [3, 3, 401, 401, 401, 801, 900, 4, 0, 2, 4, 401, 0]}
    for each in (holder, other):
        each.kill()
        each.communicate()


@pytest.mark.parametrize(
    ("off", "on"),
    [
        ("info = begin('Checkpoint', pid)[1]; complete(info.handle)", "restore(pid, None)"),
        ("ok(cuda.cuCheckpointProcessCheckpoint(pid, None))", "begin('Restore', pid)"),
    ],
    ids=["custom to host", "host to custom"],
)
def test_restore_from_the_other_storage_loses_the_process(gpu: SoftGpu, off: str, on: str) -> None:
    holder = gpu.start_client(HOLDER)
    pid = first_line(holder)["pid"]
    seen = gpu.client(
        STORAGE
        + f"""
pid, restore = {pid}, cuda.cuCheckpointProcessRestore
retain(0)
lock(pid)
{off}
say(code=int({on}[0]), state=state(pid))
"""
    )
    assert seen == {"code": 304, "state": 3}  # CUDA_ERROR_OPERATING_SYSTEM, FAILED
    holder.kill()
    holder.communicate()


def test_complete_waits_for_copies_at_the_rate_of_the_bus(tmp_path: Path) -> None:
    rates = ("--bus-rate", "1GiB/s", "--submit-time", "0us")
    gpu = SoftGpu(tmp_path, "--memory", "96MiB", *rates, *VERSION)
    target = f"""
start()
ok(cuda.cuMemAlloc(64 << 20))
open({str(tmp_path / "target")!r}, "w").write(str(os.getpid()))
at(400)
say()
"""
    caller = f"""
retain(0)
at(20)
pid = int(open({str(tmp_path / "target")!r}).read())
lock(pid)
at(30)
info = begin("Checkpoint", pid)[1]
begun = ms()
stored = save(info)
code = complete(info.handle)
say(begun=round(begun), code=code, completed=round(ms()))
"""
    _, seen = run_together(gpu, target, STORAGE + caller)
    assert seen == {"begun": 30, "code": 0, "completed": 30 + 62}
