"""The memory that the software GPU's graphs allocate."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu

GRAPHS = """
R = cuda.CUresult
MIB = 1 << 20
GLOBAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
def refused(answer, why):
    assert answer[0] == why, answer
def stream():
    return ok(cuda.cuStreamCreate(1))
def instance(graph, flags=0):
    return ok(cuda.cuGraphInstantiate(graph, flags))
def kinds(graph):
    nodes = ok(cuda.cuGraphGetNodes(graph, ok(cuda.cuGraphGetNodes(graph))[1]))[0]
    return [ok(cuda.cuGraphNodeGetType(node)).name.split("TYPE_")[1] for node in nodes]
def alloc_params(bytes):
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = bytes
    return params
def held():
    A = cuda.CUgraphMem_attribute
    return tuple(int(ok(cuda.cuDeviceGetGraphMemAttribute(0, a))) for a in (
        A.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, A.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


def test_a_graphs_memory_is_taken_at_launch_and_held_until_it_is_trimmed(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
start()
s = stream()
graph = ok(cuda.cuGraphCreate(0))
params = alloc_params(8 * MIB)
answer = cuda.cuGraphAddMemAllocNode(graph, [], 0, params)
alloc = ok(answer)
pointer = int(ok(cuda.cuGraphMemAllocNodeGetParams(alloc)).dptr)
run = instance(graph)
refused(cuda.cuGraphInstantiate(graph, 0), R.CUDA_ERROR_NOT_SUPPORTED)
refused(cuda.cuGraphClone(graph), R.CUDA_ERROR_NOT_SUPPORTED)
assert used() == 0 and held() == (0, 0)
refused(cuda.cuMemsetD8(pointer, 1, 8), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuGraphLaunch(run, s))
assert used() == 8 * MIB and held() == (8 * MIB, 8 * MIB)
ok(cuda.cuMemsetD8(pointer, 1, 8 * MIB))
refused(cuda.cuGraphLaunch(run, s), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuDeviceGraphMemTrim(0))
assert used() == 8 * MIB
ok(cuda.cuMemFree(pointer))
refused(cuda.cuMemFree(pointer), R.CUDA_ERROR_INVALID_VALUE)
assert used() == 8 * MIB and held() == (0, 8 * MIB)
ok(cuda.cuGraphLaunch(run, s))
assert used() == 8 * MIB and held() == (8 * MIB, 8 * MIB)
ok(cuda.cuMemFreeAsync(pointer, s))
ok(cuda.cuGraphExecDestroy(run))
ok(cuda.cuGraphDestroy(graph))
assert used() == 8 * MIB
ok(cuda.cuDeviceGraphMemTrim(0))
assert used() == 0 and held() == (0, 0)

ok(cuda.cuStreamBeginCapture(s, GLOBAL))
memory = ok(cuda.cuMemAllocAsync(3 * MIB, s))
ok(cuda.cuMemsetD8Async(memory, 5, 3 * MIB, s))
ok(cuda.cuMemFreeAsync(memory, s))
graph = ok(cuda.cuStreamEndCapture(s))
assert kinds(graph) == ["MEM_ALLOC", "MEMSET", "MEM_FREE"]
run = instance(graph)
for _ in range(3):
    ok(cuda.cuGraphLaunch(run, s))
    assert used() == 3 * MIB and held() == (0, 3 * MIB)
ok(cuda.cuDeviceGraphMemTrim(0))
filler = ok(cuda.cuMemAlloc(62 * MIB))
refused(cuda.cuGraphLaunch(run, s), R.CUDA_ERROR_OUT_OF_MEMORY)
ok(cuda.cuMemFree(filler))

graph = ok(cuda.cuGraphCreate(0))
ok(cuda.cuGraphAddMemAllocNode(graph, [], 0, alloc_params(MIB)))
run = instance(graph, 1)
ok(cuda.cuGraphLaunch(run, s))
ok(cuda.cuGraphLaunch(run, s))
assert held()[0] == MIB
say(done=True)
"""
    )


def test_a_launch_takes_what_is_live_at_once_less_what_graphs_have_to_spare(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
start()
s = stream()
def launched(*sizes):
    # Each is freed before the next is allocated.
    graph, before = ok(cuda.cuGraphCreate(0)), None
    for size in sizes:
        params = alloc_params(size * MIB)
        after = (before and [before], 1 if before else 0)
        node = ok(cuda.cuGraphAddMemAllocNode(graph, *after, params))
        before = ok(cuda.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))
    ok(cuda.cuGraphLaunch(instance(graph), s))
    ok(cuda.cuStreamSynchronize(s))
    in_use, reserved = held()
    return in_use // MIB, reserved // MIB, used() // MIB
assert launched(3, 4) == (0, 4, 4)
assert launched(6) == (0, 6, 6)
assert launched(5, 1) == (0, 6, 6)
say(done=True)
"""
    )
