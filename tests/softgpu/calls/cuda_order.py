"""Misuses of order and place: contexts, events, modules, graphs, stream capture."""

from __future__ import annotations

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_mistakes as m
from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_mistakes import Misuse
from softgpu.calls.cuda_values import ok

TABLE = {
    "memory of a destroyed context is freed": Misuse(
        "cuMemFree_v2", lambda: m.after_the_context(cuda.cuMemFree, v.memory()), "INVALID_VALUE"
    ),
    "an array of a destroyed context is destroyed": Misuse(
        "cuArrayDestroy",
        lambda: m.after_the_context(
            cuda.cuArrayDestroy, ok(cuda.cuArray3DCreate(v.array_shape(three=True)))
        ),
        "CONTEXT_IS_DESTROYED",
    ),
    "a stream of a destroyed context is waited for": Misuse(
        "cuStreamSynchronize",
        lambda: m.after_the_context(cuda.cuStreamSynchronize, m.stream()),
        "INVALID_HANDLE",
    ),
    "an event of another context is recorded": Misuse(
        "cuEventRecord", m.event_elsewhere, "INVALID_HANDLE"
    ),
    "unrecorded events are compared": Misuse(
        "cuEventElapsedTime_v2", m.unrecorded, "INVALID_HANDLE"
    ),
    "events without times are compared": Misuse(
        "cuEventElapsedTime_v2", m.timeless, "INVALID_HANDLE"
    ),
    "memory comes from a destroyed pool": Misuse(
        "cuMemAllocFromPoolAsync", m.after_pool, "INVALID_VALUE"
    ),
    "a variable is not in the module": Misuse(
        "cuModuleGetGlobal_v2", lambda: cuda.cuModuleGetGlobal(v.module(), b"none"), "NOT_FOUND"
    ),
    "a kernel is not in the module": Misuse(
        "cuModuleGetFunction",
        lambda: cuda.cuModuleGetFunction(v.module(), b"none"),
        "NOT_FOUND",
    ),
    "a kernel is not in the library": Misuse(
        "cuLibraryGetKernel", lambda: cuda.cuLibraryGetKernel(v.library(), b"none"), "NOT_FOUND"
    ),
    "a module's file is not there": Misuse(
        "cuModuleLoad", lambda: cuda.cuModuleLoad(b"/nowhere"), "FILE_NOT_FOUND"
    ),
    "PTX is none": Misuse(
        "cuModuleLoadData", lambda: cuda.cuModuleLoadData(b".nothing"), "INVALID_IMAGE"
    ),
    "an image is empty": Misuse(
        "cuModuleLoadData", lambda: cuda.cuModuleLoadData(bytes(64)), "INVALID_IMAGE"
    ),
    "PTX begins with its target": Misuse(
        "cuModuleLoadData",
        lambda: cuda.cuModuleLoadData(b".target sm_50\n.version 7.0\n"),
        "INVALID_IMAGE",
    ),
    "PTX is a comment": Misuse(
        "cuModuleLoadData", lambda: cuda.cuModuleLoadData(b"// nothing"), "INVALID_IMAGE"
    ),
    "PTX has no target": Misuse(
        "cuLibraryLoadData",
        lambda: cuda.cuLibraryLoadData(b"// one\n.version 7.0\n", None, None, 0, None, None, 0),
        "INVALID_PTX",
    ),
    "a graph waits for itself": Misuse("cuGraphInstantiateWithFlags", m.circle, "INVALID_VALUE"),
    "a node waits for another graph's": Misuse(
        "cuGraphAddEmptyNode", m.strange_node, "INVALID_VALUE"
    ),
    "a graph frees twice": Misuse("cuGraphAddMemFreeNode", m.freed_in_graph_twice, "INVALID_VALUE"),
    "a graph frees what no graph allocated": Misuse(
        "cuGraphAddMemFreeNode",
        lambda: cuda.cuGraphAddMemFreeNode(v.empty_graph(), None, 0, v.memory()),
        "INVALID_VALUE",
    ),
    "a graph frees amid what it allocated": Misuse(
        "cuGraphAddMemFreeNode", m.freed_amid_graphs_memory, "INVALID_VALUE"
    ),
    "a graph with live memory is launched": Misuse(
        "cuGraphLaunch", m.memory_of_graph_live, "INVALID_VALUE"
    ),
    "a graph with memory is instantiated twice": Misuse(
        "cuGraphInstantiateWithFlags", m.two_executables, "NOT_SUPPORTED"
    ),
    "a graph's node allocates more than the GPU has": Misuse(
        "cuGraphAddMemAllocNode", m.too_large_node, "OUT_OF_MEMORY"
    ),
    "a graph needs more memory than there is": Misuse(
        "cuGraphLaunch", m.no_graph_memory, "OUT_OF_MEMORY"
    ),
    "a graph of another shape updates one": Misuse(
        "cuGraphExecUpdate_v2", m.other_topology, "GRAPH_EXEC_UPDATE_FAILURE"
    ),
    "a captured stream is waited for": Misuse(
        "cuStreamSynchronize",
        lambda: cuda.cuStreamSynchronize(v.captured()),
        "STREAM_CAPTURE_UNSUPPORTED",
    ),
    "a context is waited for amid a capture": Misuse(
        "cuCtxSynchronize",
        lambda: m.strictly(cuda.cuCtxSynchronize),
        "STREAM_CAPTURE_UNSUPPORTED",
    ),
    "memory is allocated amid a strict capture": Misuse(
        "cuMemAlloc_v2",
        lambda: m.strictly(lambda: cuda.cuMemAlloc(8)),
        "STREAM_CAPTURE_UNSUPPORTED",
    ),
    "the legacy stream is used amid a capture": Misuse(
        "cuLaunchKernel", m.legacy_amid_capture, "STREAM_CAPTURE_IMPLICIT"
    ),
    "a captured stream is used after a mistake": Misuse(
        "cuLaunchKernel", m.invalidated, "STREAM_CAPTURE_INVALIDATED"
    ),
    "captures are merged": Misuse("cuStreamWaitEvent", m.merged, "STREAM_CAPTURE_MERGE"),
    "a capture waits for what is outside": Misuse(
        "cuStreamWaitEvent", m.isolated, "STREAM_CAPTURE_ISOLATION"
    ),
    "a capture ends unjoined": Misuse("cuStreamEndCapture", m.unjoined, "STREAM_CAPTURE_UNJOINED"),
    "a capture ends where it did not begin": Misuse(
        "cuStreamEndCapture", m.unmatched, "STREAM_CAPTURE_UNMATCHED"
    ),
    "a strict capture ends in another thread": Misuse(
        "cuStreamEndCapture", m.ended_elsewhere, "STREAM_CAPTURE_WRONG_THREAD"
    ),
    "a stream that is not captured ends its capture": Misuse(
        "cuStreamEndCapture", lambda: cuda.cuStreamEndCapture(m.stream()), "ILLEGAL_STATE"
    ),
    "a stream is captured twice": Misuse(
        "cuStreamBeginCapture_v2", m.captured_twice, "ILLEGAL_STATE"
    ),
    "a captured event is waited for": Misuse(
        "cuEventSynchronize",
        lambda: cuda.cuEventSynchronize(m.captured_event()),
        "CAPTURED_EVENT",
    ),
    "a captured event is asked": Misuse(
        "cuEventQuery", lambda: cuda.cuEventQuery(m.captured_event()), "CAPTURED_EVENT"
    ),
    "a graph that allocates is launched into a capture": Misuse(
        "cuGraphLaunch", m.memory_graph_captured, "STREAM_CAPTURE_UNSUPPORTED"
    ),
}
