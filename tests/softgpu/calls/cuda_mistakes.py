"""Misuse across several calls: order, state, objects of another context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_values import KIB, MIB, fields, ok

STRICT = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class Misuse(NamedTuple):
    function: str  # the one that answers
    do: Callable[[], Any]
    error: str


def twice(end: Callable[[Any], Any], handle: Any) -> Any:
    ok(end(handle))
    return end(handle)


def stream() -> Any:
    return ok(cuda.cuStreamCreate(0))


def in_another_thread(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    thread.join()
    return answers[0]


def after_the_context(use: Callable[[Any], Any], handle: Any) -> Any:
    """USE of HANDLE when its context is destroyed and another is current."""
    ok(cuda.cuCtxDestroy(ok(cuda.cuCtxGetCurrent())))
    ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(0))))
    return use(handle)


def launch(**sizes: int) -> Any:
    shape = fields(v.launch_config(), **sizes)
    return cuda.cuLaunchKernelEx(shape, v.function(), 0, 0)


def event_elsewhere() -> Any:
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuCtxCreate(None, 0, 0))
    return cuda.cuEventRecord(event, 0)


def unrecorded() -> Any:
    return cuda.cuEventElapsedTime(ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0)))


def timeless() -> Any:
    disable_timing = 2
    return cuda.cuEventElapsedTime(v.event(disable_timing), v.event(disable_timing))


def legacy_amid_capture() -> Any:
    v.captured()
    return cuda.cuLaunchKernel(v.function(), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)


def captured_twice() -> Any:
    return cuda.cuStreamBeginCapture(v.captured(), STRICT)


def memory_graph_captured() -> Any:
    executable = ok(cuda.cuGraphInstantiate(memory_graph()[0], 0))
    return cuda.cuGraphLaunch(executable, v.captured())


def merged() -> Any:
    """A stream of one capture waits for an event of another."""
    one, other = v.captured(), v.captured()
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(event, one))
    return cuda.cuStreamWaitEvent(other, event, 0)


def isolated() -> Any:
    """A captured stream waits for what was recorded outside."""
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(event, stream()))
    return cuda.cuStreamWaitEvent(v.captured(), event, 0)


def unjoined() -> Any:
    origin, other = v.captured(), stream()
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(event, origin))
    ok(cuda.cuStreamWaitEvent(other, event, 0))
    ok(cuda.cuLaunchKernel(v.function(), 1, 1, 1, 1, 1, 1, 0, other, 0, 0))
    return cuda.cuStreamEndCapture(origin)


def unmatched() -> Any:
    origin, other = v.captured(), stream()
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(event, origin))
    ok(cuda.cuStreamWaitEvent(other, event, 0))
    return cuda.cuStreamEndCapture(other)


def captured_event() -> Any:
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(event, v.captured()))
    return event


def strictly(use: Callable[[], Any]) -> Any:
    ok(cuda.cuStreamBeginCapture(stream(), STRICT))
    return use()


def ended_elsewhere() -> Any:
    origin = stream()
    ok(cuda.cuStreamBeginCapture(origin, STRICT))
    return in_another_thread(lambda: cuda.cuStreamEndCapture(origin))


def invalidated() -> Any:
    origin = v.captured()
    cuda.cuStreamSynchronize(origin)
    return cuda.cuLaunchKernel(v.function(), 1, 1, 1, 1, 1, 1, 0, origin, 0, 0)


def circle() -> Any:
    graph = v.empty_graph()
    one = ok(cuda.cuGraphAddEmptyNode(graph, None, 0))
    two = ok(cuda.cuGraphAddEmptyNode(graph, [one], 1))
    ok(cuda.cuGraphAddDependencies(graph, [two], [one], None, 1))
    return cuda.cuGraphInstantiate(graph, 0)


def strange_node() -> Any:
    """Depends on a node of another graph."""
    node = ok(cuda.cuGraphAddEmptyNode(v.empty_graph(), None, 0))
    return cuda.cuGraphAddEmptyNode(v.empty_graph(), [node], 1)


def memory_graph() -> Any:
    graph = v.empty_graph()
    return graph, v.allocated_by(graph)


def freed_in_graph_twice() -> Any:
    graph, start = memory_graph()
    ok(cuda.cuGraphAddMemFreeNode(graph, None, 0, start))
    return cuda.cuGraphAddMemFreeNode(graph, None, 0, start)


def freed_amid_graphs_memory() -> Any:
    graph, start = memory_graph()
    return cuda.cuGraphAddMemFreeNode(graph, None, 0, start + 4)


def memory_of_graph_live() -> Any:
    executable = ok(cuda.cuGraphInstantiate(memory_graph()[0], 0))
    ok(cuda.cuGraphLaunch(executable, 0))
    return cuda.cuGraphLaunch(executable, 0)


def two_executables() -> Any:
    graph = memory_graph()[0]
    ok(cuda.cuGraphInstantiate(graph, 0))
    return cuda.cuGraphInstantiate(graph, 0)


def other_topology() -> Any:
    executable = ok(cuda.cuGraphInstantiate(v.empty_graph(), 0))
    other = v.empty_graph()
    ok(cuda.cuGraphAddEmptyNode(other, None, 0))
    return cuda.cuGraphExecUpdate(executable, other)


def mapped_twice() -> Any:
    start = v.mapped()
    return cuda.cuMemMap(start, 2 * MIB, 0, v.physical(), 0)


def array(**values: Any) -> Any:
    return cuda.cuArray3DCreate(fields(v.array_shape(three=True), **values))


def pool_of(location: int) -> Any:
    return cuda.cuMemPoolCreate(fields(v.pool_shape(), location__id=location))


def physical_of(id: int, type: Any = v.Location.CU_MEM_LOCATION_TYPE_DEVICE) -> Any:
    shape = fields(v.physical_shape(), location__type=type, location__id=id)
    return cuda.cuMemCreate(2 * MIB, shape, 0)


def from_small_pool() -> Any:
    pool = ok(cuda.cuMemPoolCreate(fields(v.pool_shape(), maxSize=KIB)))
    return cuda.cuMemAllocFromPoolAsync(2 * KIB, pool, 0)


def after_pool() -> Any:
    pool = ok(cuda.cuMemPoolCreate(v.pool_shape()))
    ok(cuda.cuMemPoolDestroy(pool))
    return cuda.cuMemAllocFromPoolAsync(KIB, pool, 0)


def freed_pointer_copied() -> Any:
    start = v.memory()
    ok(cuda.cuMemFree(start))
    return cuda.cuMemcpyDtoH(bytearray(8), start, 8)


def out_of_array() -> Any:
    made = ok(cuda.cuArray3DCreate(v.array_shape(three=True)))
    return cuda.cuMemcpyHtoA(made, 60, bytes(8), 8)


def level_destroyed() -> Any:
    made = ok(cuda.cuMipmappedArrayCreate(v.array_shape(three=True), 2))
    return cuda.cuArrayDestroy(ok(cuda.cuMipmappedArrayGetLevel(made, 0)))


def overlapping_registration() -> Any:
    start = v.room()
    ok(cuda.cuMemHostRegister(start, 2 * KIB, 0))
    return cuda.cuMemHostRegister(start + KIB, KIB, 0)


def too_large_node() -> Any:
    shape = fields(v.alloc_node(), bytesize=1 << 40)
    return cuda.cuGraphAddMemAllocNode(v.empty_graph(), None, 0, shape)


def no_graph_memory() -> Any:
    """Two nodes, each of which the GPU alone could hold."""
    bytes = ok(cuda.cuDeviceTotalMem(0)) // 4 * 3
    graph = v.empty_graph()
    for _ in range(2):
        shape = fields(v.alloc_node(), bytesize=bytes)
        ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, shape))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    return cuda.cuGraphLaunch(executable, 0)


def stacked_without_end() -> Any:
    context = ok(cuda.cuCtxGetCurrent())
    for _ in range(1 << 12):
        answer = cuda.cuCtxPushCurrent(context)
        if answer[0]:
            return answer
    return (0,)
