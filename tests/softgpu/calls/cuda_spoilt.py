"""Invalid values of a parameter, by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_values import ok

Spoil = Callable[[Any], Any]

FAR_AWAY = 1 << 20  # no allocation lies there


def ended(end: Callable[[Any], Any]) -> Spoil:
    """What END, a destruction, leaves of a handle."""

    def spoil(handle: Any) -> Any:
        ok(end(handle))
        return handle

    return spoil


def module_of(handle: Any) -> Any:
    return ok(cuda.cuFuncGetModule(handle))


def destroyed_context(_: Any) -> Any:
    made = ok(cuda.cuCtxCreate(None, 0, 0))
    ok(cuda.cuCtxDestroy(made))
    return made


def end_node(node: Any) -> Any:
    return cuda.cuGraphDestroy(ok(cuda.cuGraphNodeGetContainingGraph(node)))


ENDS: dict[str, Spoil] = {
    "CUstream": ended(cuda.cuStreamDestroy),
    "CUevent": ended(cuda.cuEventDestroy),
    "CUcontext": destroyed_context,
    "CUfunction": ended(lambda function: cuda.cuModuleUnload(module_of(function))),
    "CUkernel": ended(lambda kernel: cuda.cuModuleUnload(module_of(cuda.CUfunction(int(kernel))))),
    "CUmodule": ended(cuda.cuModuleUnload),
    "CUlibrary": ended(cuda.cuLibraryUnload),
    "CUarray": ended(cuda.cuArrayDestroy),
    "CUmipmappedArray": ended(cuda.cuMipmappedArrayDestroy),
    "CUgraph": ended(cuda.cuGraphDestroy),
    "CUgraphNode": ended(end_node),
    "CUgraphExec": ended(cuda.cuGraphExecDestroy),
    "CUmemoryPool": ended(cuda.cuMemPoolDestroy),
    "CUmemGenericAllocationHandle": ended(cuda.cuMemRelease),
    "CUexternalMemory": ended(cuda.cuDestroyExternalMemory),
}

ENUMS = {
    "CUdevice_attribute",
    "CUpointer_attribute",
    "CUfunction_attribute",
    "CUmemPool_attribute",
    "CUgraphMem_attribute",
    "CUdevice_P2PAttribute",
    "CUexecAffinityType",
    "CUlimit",
    "CUfunc_cache",
    "CUmemAllocationGranularity_flags",
    "CUmemAllocationHandleType",
    "CUmulticastGranularity_flags",
    "CUstreamCaptureMode",
    "CUresult",
}


def ways(kind: str, parameter: str) -> Iterator[tuple[str, Spoil]]:
    if kind.endswith("*") or kind in ("CUhostFn", "CUstreamCallback"):
        yield "NULL", lambda _: 0
    elif kind in ENDS:
        yield "NULL", lambda _: 0
        yield "destroyed", ENDS[kind]
        yield (
            "of another kind",
            lambda _: ok(cuda.cuEventCreate(0)) if kind != "CUevent" else v.module(),
        )
    elif kind == "CUdevice":
        yield "not there", lambda _: 99
        yield "negative", lambda _: (1 << 32) - 1
    elif kind == "CUdeviceptr" and parameter != "addr":
        yield "unknown", lambda _: FAR_AWAY
    elif kind in ENUMS:
        yield "no such", lambda _: 12345
    elif parameter.lower() == "flags":
        yield "unknown", lambda _: 1 << 30
