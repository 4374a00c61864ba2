"""The software GPU's graphs and stream capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu

GRAPHS = """
R = cuda.CUresult
GLOBAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
Kind = cuda.CUgraphNodeType
def refused(answer, why):
    assert answer[0] == why, answer
def stream():
    return ok(cuda.cuStreamCreate(1))
def event():
    return ok(cuda.cuEventCreate(0))
def instance(graph, flags=0):
    return ok(cuda.cuGraphInstantiate(graph, flags))
def nodes(graph):
    count = ok(cuda.cuGraphGetNodes(graph))[1]
    return ok(cuda.cuGraphGetNodes(graph, count))[0]
def kinds(graph):
    return [ok(cuda.cuGraphNodeGetType(node)).name.split("TYPE_")[1] for node in nodes(graph)]
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


def test_a_captured_stream_becomes_a_graph_that_does_the_same_work(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
start()
three_ms, s = kernel(b"three_ms"), stream()
memory = ok(cuda.cuMemAlloc(8))
ok(cuda.cuMemsetD8(memory, 1, 8))
begin, end = event(), event()
ok(cuda.cuStreamBeginCapture(s, GLOBAL))
assert ok(cuda.cuStreamIsCapturing(s)).value == 1
ok(cuda.cuLaunchKernel(three_ms, 1, 1, 1, 1, 1, 1, 0, s, 0, 0))
ok(cuda.cuMemsetD8Async(memory, 7, 4, s))
ok(cuda.cuMemcpyDtoDAsync(int(memory) + 4, memory, 2, s))
ok(cuda.cuLaunchKernel(three_ms, 1, 1, 1, 1, 1, 1, 0, s, 0, 0))
graph = ok(cuda.cuStreamEndCapture(s))
assert kinds(graph) == ["KERNEL", "MEMSET", "MEMCPY", "KERNEL"]
back = bytearray(8)
ok(cuda.cuMemcpyDtoH(back, memory, 8))
assert list(back) == [1] * 8
run = instance(graph)
for _ in range(10):
    ok(cuda.cuLaunchKernel(three_ms, 1, 1, 1, 1, 1, 1, 0, s, 0, 0))
ok(cuda.cuEventRecord(begin, s))
ok(cuda.cuGraphLaunch(run, s))
ok(cuda.cuEventRecord(end, s))
ok(cuda.cuStreamSynchronize(s))
assert abs(ok(cuda.cuEventElapsedTime(begin, end)) - 6) < 0.01
ok(cuda.cuMemcpyDtoH(back, memory, 8))
assert list(back) == [7] * 6 + [1] * 2
ok(cuda.cuGraphDestroy(graph))
ok(cuda.cuGraphLaunch(run, s))
ok(cuda.cuGraphExecDestroy(run))
refused(cuda.cuGraphLaunch(run, s), R.CUDA_ERROR_INVALID_VALUE)
refused(cuda.cuGraphDestroy(graph), R.CUDA_ERROR_INVALID_VALUE)
say(done=True)
"""
    )


def test_an_event_draws_another_stream_into_a_capture_and_it_must_come_back(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
start()
three_ms, s, other = kernel(b"three_ms"), stream(), stream()
fork, join = event(), event()
def launch(where):
    ok(cuda.cuLaunchKernel(three_ms, 1, 1, 1, 1, 1, 1, 0, where, 0, 0))
def branch():
    ok(cuda.cuStreamBeginCapture(s, GLOBAL))
    launch(s)
    ok(cuda.cuEventRecord(fork, s))
    ok(cuda.cuStreamWaitEvent(other, fork, 0))
    launch(other)
    launch(s)
    ok(cuda.cuEventRecord(join, other))
branch()
refused(cuda.cuStreamEndCapture(other), R.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
ok(cuda.cuStreamWaitEvent(s, join, 0))
launch(s)
graph = ok(cuda.cuStreamEndCapture(s))
first, left, right, last = nodes(graph)
assert ok(cuda.cuGraphGetEdges(graph))[-1] == 4
def before(node):
    count = ok(cuda.cuGraphNodeGetDependencies(node))[-1]
    return {int(n) for n in ok(cuda.cuGraphNodeGetDependencies(node, count))[0]}
assert before(left) == before(right) == {int(first)}
assert before(last) == {int(left), int(right)}
branch()
refused(cuda.cuStreamEndCapture(s), R.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
launch(other)
refused(cuda.cuStreamEndCapture(s), R.CUDA_ERROR_ILLEGAL_STATE)
say(done=True)
"""
    )


def test_a_capture_forbids_what_cuda_forbids_and_leaves_the_rest_alone(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
start()
s, e, outside = stream(), event(), event()
ok(cuda.cuEventRecord(outside, 0))
unsupported = R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
invalidated = R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
refused(cuda.cuStreamBeginCapture(0, GLOBAL), unsupported)
refused(cuda.cuStreamEndCapture(s), R.CUDA_ERROR_ILLEGAL_STATE)
def spoilt(forbidden, why=unsupported):
    ok(cuda.cuStreamBeginCapture(s, GLOBAL))
    refused(forbidden(), why)
    assert ok(cuda.cuStreamIsCapturing(s)).value == 2
    refused(cuda.cuStreamEndCapture(s), invalidated)
spoilt(lambda: cuda.cuMemAlloc(8))
spoilt(lambda: cuda.cuStreamSynchronize(s))
spoilt(lambda: cuda.cuStreamQuery(s))
spoilt(lambda: cuda.cuCtxSynchronize())
spoilt(lambda: cuda.cuEventQuery(outside))
spoilt(lambda: cuda.cuStreamWaitEvent(s, outside, 0), R.CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
ok(cuda.cuStreamBeginCapture(s, RELAXED))
memory = ok(cuda.cuMemAlloc(8))
ok(cuda.cuMemGetInfo())
ok(cuda.cuMemFree(memory))
ok(cuda.cuEventRecord(e, s))
refused(cuda.cuEventQuery(e), R.CUDA_ERROR_CAPTURED_EVENT)
refused(cuda.cuStreamBeginCapture(s, RELAXED), R.CUDA_ERROR_ILLEGAL_STATE)
ok(cuda.cuStreamEndCapture(s))
blocking = ok(cuda.cuStreamCreate(0))
ok(cuda.cuStreamBeginCapture(blocking, RELAXED))
refused(cuda.cuEventRecord(e, 0), R.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
refused(cuda.cuStreamEndCapture(blocking), invalidated)
say(done=True)
"""
    )


def test_nodes_run_in_the_order_of_their_edges(gpu: SoftGpu) -> None:
    gpu.client(
        GRAPHS
        + """
context = start()
s, memory = stream(), ok(cuda.cuMemAlloc(4))
def set_to(value):
    params = cuda.CUDA_MEMSET_NODE_PARAMS()
    params.dst, params.value, params.elementSize = memory, value, 1
    params.width, params.height = 1, 1
    return params
graph = ok(cuda.cuGraphCreate(0))
late = ok(cuda.cuGraphAddMemsetNode(graph, [], 0, set_to(2), context))
early = ok(cuda.cuGraphAddMemsetNode(graph, [], 0, set_to(1), context))
ok(cuda.cuGraphAddDependencies(graph, [early], [late], None, 1))
empty = ok(cuda.cuGraphAddEmptyNode(graph, [late], 1))
ok(cuda.cuGraphLaunch(instance(graph), s))
back = bytearray(1)
ok(cuda.cuMemcpyDtoH(back, memory, 1))
assert back[0] == 2
clone = ok(cuda.cuGraphClone(graph))
parent = ok(cuda.cuGraphCreate(0))
ok(cuda.cuGraphAddChildGraphNode(parent, [], 0, clone))
run = instance(parent)
ok(cuda.cuMemsetD8(memory, 9, 1))
ok(cuda.cuGraphLaunch(run, s))
ok(cuda.cuMemcpyDtoH(back, memory, 1))
assert back[0] == 2
ok(cuda.cuGraphAddDependencies(graph, [empty], [early], None, 1))
refused(cuda.cuGraphInstantiate(graph, 0), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuGraphDestroyNode(empty))
instance(graph)
say(done=True)
"""
    )


def test_a_graph_launched_into_a_captured_stream_is_a_child_that_does_its_work(
    gpu: SoftGpu,
) -> None:
    gpu.virtual_client(
        GRAPHS
        + """
start()
three_ms, s = kernel(b"three_ms"), stream()
memory, twin = ok(cuda.cuMemAlloc(8)), ok(cuda.cuMemAlloc(8))
ok(cuda.cuStreamBeginCapture(s, GLOBAL))
ok(cuda.cuMemsetD8Async(memory, 7, 8, s))
ok(cuda.cuLaunchKernel(three_ms, 1, 1, 1, 1, 1, 1, 0, s, 0, 0))
inner = instance(ok(cuda.cuStreamEndCapture(s)))
ok(cuda.cuMemsetD8(memory, 0, 8))
ok(cuda.cuStreamBeginCapture(s, GLOBAL))
ok(cuda.cuGraphLaunch(inner, s))
ok(cuda.cuGraphLaunch(inner, s))
ok(cuda.cuMemcpyDtoDAsync(twin, memory, 8, s))
graph = ok(cuda.cuStreamEndCapture(s))
assert kinds(graph) == ["GRAPH", "GRAPH", "MEMCPY"]
assert kinds(ok(cuda.cuGraphChildGraphNodeGetGraph(nodes(graph)[0]))) == ["MEMSET", "KERNEL"]
outer = instance(graph)
ok(cuda.cuGraphExecDestroy(inner))
back = bytearray(8)
ok(cuda.cuMemcpyDtoH(back, memory, 8))
assert back == bytes(8), "a capture does nothing yet"
begin, end = event(), event()
ok(cuda.cuEventRecord(begin, s))
ok(cuda.cuGraphLaunch(outer, s))
ok(cuda.cuEventRecord(end, s))
ok(cuda.cuStreamSynchronize(s))
assert abs(ok(cuda.cuEventElapsedTime(begin, end)) - 6) < 0.01
ok(cuda.cuMemcpyDtoH(back, twin, 8))
assert back == bytes([7] * 8)
say(done=True)
"""
    )
