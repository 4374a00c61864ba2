"""Output of cuda-bindings, pynvml and nvitop inside a container."""

from __future__ import annotations

import os
import time

import pytest

from shim.cuda_program import CALLS, START
from support.gpu.guest import BUILD, GIB, MIB, PYTHON, WORKLOAD, share
from support.softgpu.virtual_time import together
from vcuda_oci.pages import layout

NVML = """
import json, sys
import pynvml as nv
nv.nvmlInit()
handle = nv.nvmlDeviceGetHandleByIndex(0)
"""


def test_pynvml_shows_the_slice_in_both_versions_of_the_memory_call(host, new_guest):
    code = (
        NVML
        + """
one = nv.nvmlDeviceGetMemoryInfo(handle)
two = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
print(json.dumps([[m.total, m.used, m.free] for m in (one, two)]))
"""
    )
    guest = new_guest(share(host.uuids[0], 5 * GIB))
    holder = guest.start(WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "30")
    holder.stdout.readline()
    try:
        assert guest.python(code) == [[5 * GIB, GIB, 4 * GIB]] * 2
    finally:
        holder.kill()
        holder.communicate()
    assert guest.python(code) == [[5 * GIB, 0, 5 * GIB]] * 2


def test_pynvml_lists_the_containers_own_processes_and_no_others(host, new_guest):
    code = (
        NVML
        + """
calls = [nv.nvmlDeviceGetComputeRunningProcesses_v2, nv.nvmlDeviceGetComputeRunningProcesses_v3]
print(json.dumps([[[p.pid, p.usedGpuMemory] for p in call(handle)] for call in calls]))
"""
    )
    own = new_guest(share(host.uuids[0], 4 * GIB))
    other = new_guest(share(host.uuids[0], 4 * GIB))
    holders = [
        guest.start(WORKLOAD, "hold", "--bytes", str(size), "--seconds", "30")
        for guest, size in ((own, 100 * MIB), (own, 200 * MIB), (other, 300 * MIB))
    ]
    for holder in holders:
        holder.stdout.readline()
    try:
        listed = own.python(code)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    expected = sorted([[holders[0].pid, 100 * MIB], [holders[1].pid, 200 * MIB]])
    assert [sorted(each) for each in listed] == [expected] * 2
    assert own.python(code) == [[], []]


@pytest.mark.timed
def test_utilisation_is_of_the_share_and_falls_to_zero_when_idle(host, new_guest):
    """On two GPUs with one container each."""
    code = NVML + "print(json.dumps(nv.nvmlDeviceGetUtilizationRates(handle).gpu))"
    busy = [WORKLOAD, "busy", "--seconds", "4", "--kernel-us", "1000", "--async", "16"]
    guests = [new_guest(share(uuid, GIB, percent)) for uuid, percent in zip(host.uuids, (30, 50))]
    workers = [guest.start(*busy) for guest in guests]
    time.sleep(2.5)
    during = [guest.python(code) for guest in guests]
    for worker in workers:
        worker.communicate(timeout=60)
    # The window still includes work; two polls later it does not.
    for _ in range(3):
        for guest in guests:
            guest.python(code)
        time.sleep(0.6)
    after = [guest.python(code) for guest in guests]
    assert during == [pytest.approx(100, abs=8)] * 2
    assert after == [0, 0]


def test_cuda_bindings_launch_copy_and_time_through_the_shim(host, new_guest, tmp_path):
    code = (
        START
        + """
import ctypes
data = bytes(range(256)) * 16
memory = must(cu.cuMemAlloc(len(data)))
back = bytearray(len(data))
must(cu.cuMemcpyHtoD(memory, data, len(data)))
must(cu.cuMemcpyDtoH(back, memory, len(data)))
ptx = b'''//softgpu entry=work time_ns=20000000
.version 8.0
.target sm_80
.address_size 64
.visible .entry work() { ret; }
\\0'''
module = must(cu.cuModuleLoadData(ptx))
work = must(cu.cuModuleGetFunction(module, b"work"))
start, end = must(cu.cuEventCreate(0)), must(cu.cuEventCreate(0))
must(cu.cuEventRecord(start, 0))
must(cu.cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
must(cu.cuEventRecord(end, 0))
must(cu.cuCtxSynchronize())
print(json.dumps([bytes(back) == data, must(cu.cuEventElapsedTime(start, end))]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB, 30))
    ((copied, took_ms),) = together(tmp_path, (guest, [PYTHON, "-c", code]))
    assert copied
    assert took_ms == pytest.approx(20, rel=0.01)


def test_nvitop_shows_the_slice(host, new_guest):
    guest = new_guest(share(host.uuids[0], 5 * GIB))
    nvitop = os.path.join(BUILD, "venv", "bin", "nvitop")
    out = guest.run(PYTHON, nvitop, "--once", "--only", "0", "--no-unicode")
    assert "5120MiB" in out
    assert "16384MiB" not in out
    assert "N/A / 5120MiB" not in out


def test_an_image_without_our_pages_module_can_be_read_from_outside(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 50))
    guest.json(WORKLOAD, "busy", "--seconds", "0.5", "--kernel-us", "1000")
    usage = guest.read_usage()
    assert usage.gpus[0].launches > 0
    assert usage.gpus[0].busy_ns > 0
    assert len(usage.gpus) == layout.MAX_GPUS


def test_gpustat_shows_the_slice(host, new_guest):
    guest = new_guest(share(host.uuids[0], 5 * GIB))
    holder = guest.start(WORKLOAD, "hold", "--bytes", str(GIB), "--seconds", "30")
    holder.stdout.readline()
    code = """
import json
from gpustat import GPUStatCollection
gpu = GPUStatCollection.new_query().gpus[0]
held = [process["gpu_memory_usage"] for process in gpu.processes]
print(json.dumps([gpu.memory_total, gpu.memory_used, held]))
"""
    try:
        assert guest.python(code) == [5120, 1024, [1024]]
    finally:
        holder.kill()
        holder.communicate()


def test_reordered_gpus_have_their_own_shares_in_cuda_and_nvml(host, new_guest):
    code = (
        CALLS
        + """
import pynvml as nv
must(cu.cuInit(0))
nv.nvmlInit()
seen = []
for ordinal in range(2):
    device = must(cu.cuDeviceGet(ordinal))
    context = must(cu.cuDevicePrimaryCtxRetain(device))
    must(cu.cuCtxSetCurrent(context))
    must(cu.cuMemAlloc((ordinal + 1) << 28))
    bytes_of_uuid = bytes(must(cu.cuDeviceGetUuid(device)).bytes).hex()
    parts = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    uuid = "GPU-" + "-".join(bytes_of_uuid[begin:end] for begin, end in parts)
    handle = nv.nvmlDeviceGetHandleByUUID(uuid)
    memory = nv.nvmlDeviceGetMemoryInfo(handle)
    processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
    seen.append([must(cu.cuMemGetInfo()), memory.total, memory.used,
                 [[p.pid == os.getpid(), p.usedGpuMemory] for p in processes]])
# Back and forth: what is remembered of the current context must follow.
for ordinal in (0, 1, 0):
    must(cu.cuCtxSetCurrent(must(cu.cuDevicePrimaryCtxRetain(ordinal))))
    seen.append(must(cu.cuMemGetInfo())[1])
print(json.dumps(seen))
"""
    )
    first, second = host.uuids
    guest = new_guest(share(second, 2 * GIB), share(first, GIB))

    def expected(total: int, used: int) -> list[object]:
        return [[total - used, total], total, used, [[True, used]]]

    assert guest.python(code) == [
        expected(GIB, 256 * MIB),
        expected(2 * GIB, 512 * MIB),
        GIB,
        2 * GIB,
        GIB,
    ]
    # The program renumbers the GPUs: each share stays with its GPU.
    swapped = guest.python(
        code.replace("for ordinal in (0, 1, 0):", "for ordinal in ():"),
        env={"CUDA_VISIBLE_DEVICES": "1,0"},
    )
    assert [each[1] for each in swapped] in ([2 * GIB, GIB], [GIB, 2 * GIB])
