"""Copies and sets on the software GPU take the configured time, in stream order."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.softgpu.softgpu_host import BUILT, SoftGpu

# Durations of the device's own, behind a kernel, so that no host's delay is in them.
MEASURE = """
import statistics
start()
MIB = 1 << 20
stream = ok(cuda.cuStreamCreate(0))
before, after = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
left, right = ok(cuda.cuMemAlloc(4 * MIB)), ok(cuda.cuMemAlloc(4 * MIB))
buffer = ctypes.create_string_buffer(4 * MIB)
host = ctypes.addressof(buffer)
pinned = ok(cuda.cuMemAllocHost(4 * MIB))
function = kernel(b"spin")
def time_of(work):
    spin(function, 30_000_000, stream)
    ok(cuda.cuEventRecord(before, stream))
    work()
    ok(cuda.cuEventRecord(after, stream))
    ok(cuda.cuEventSynchronize(after))
    return ok(cuda.cuEventElapsedTime(before, after))
def graph_of(work):
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    ok(cuda.cuStreamBeginCapture(stream, mode))
    work()
    return ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
def copy(to=left, source=right):
    return lambda: ok(cuda.cuMemcpyAsync(to, source, 4 * MIB, stream))
def fill():
    ok(cuda.cuMemsetD32Async(left, 1, MIB // 2, stream))
def rows():
    box = cuda.CUDA_MEMCPY2D()
    box.srcMemoryType = box.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    box.srcDevice, box.dstDevice = right, left
    box.srcPitch = box.dstPitch = 2048
    box.WidthInBytes, box.Height = 1024, 1024
    ok(cuda.cuMemcpy2DAsync(box, stream))
def both():
    copy()()
    fill()
graph = graph_of(both)
say(copy=time_of(copy()), fill=time_of(fill), rows=time_of(rows),
    graph=time_of(lambda: ok(cuda.cuGraphLaunch(graph, stream))),
    from_host=time_of(copy(left, host)), to_pinned=time_of(copy(pinned, left)))
"""


def test_copies_and_sets_take_the_time_that_their_bytes_need_at_the_rate(tmp_path: Path) -> None:
    milliseconds = SoftGpu(tmp_path, "--copy-rate", "1GiB/s").virtual_client(MEASURE)
    mib = 1000 / 1024
    assert milliseconds == {
        "copy": pytest.approx(4 * mib, rel=0.01),
        "fill": pytest.approx(2 * mib, rel=0.01),
        "rows": pytest.approx(mib, rel=0.01),
        "graph": pytest.approx(6 * mib, rel=0.01),
        "from_host": 0,
        "to_pinned": 0,
    }


def test_without_a_rate_they_take_none(tmp_path: Path) -> None:
    assert set(SoftGpu(tmp_path).virtual_client(MEASURE).values()) == {0}


def test_copy_on_a_busy_stream_is_done_at_its_end_time(tmp_path: Path) -> None:
    printed = SoftGpu(tmp_path, "--copy-rate", "10MiB/s").virtual_client("""
start()
left, right = ok(cuda.cuMemAlloc(1 << 20)), ok(cuda.cuMemAlloc(1 << 20))
stream = ok(cuda.cuStreamCreate(0))
before = time.monotonic()
ok(cuda.cuMemcpyDtoDAsync(left, right, 1 << 20, stream))
queued = cuda.cuStreamQuery(stream)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY
ok(cuda.cuStreamSynchronize(stream))
say(queued=queued, took=time.monotonic() - before)
""")
    assert printed["queued"]
    assert printed["took"] >= 0.1


@pytest.mark.parametrize("rate", ["100GiB", "0GiB/s", "-1GiB/s", "65TiB/s", "fast", "1GB/s"])
def test_a_rate_that_makes_no_sense_is_refused_and_leaves_nothing(
    tmp_path: Path, rate: str
) -> None:
    command: list[Any] = [BUILT / "softgpu", "create", tmp_path / "root", "--copy-rate", rate]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"softgpu: --copy-rate: {rate}; give a rate such as 100GiB/s, at most 64TiB/s\n"
    )
    assert not (tmp_path / "root").exists()
