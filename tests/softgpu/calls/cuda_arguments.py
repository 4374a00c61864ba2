"""A valid value for each parameter of cuda.h's functions, and ways to spoil it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_values import KIB, MIB, address, list_of, ok, room

POSIX = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
NAME = address(b"kernel\0")


class Call:
    """The arguments of one call, which may hang together: a node is one of the graph beside it."""

    def __init__(self, function: str) -> None:
        self.function = function
        kind = re.match(r"cuGraph(?:Exec|Add)?(\w+?)Node(?:Get|Set|_v2$|$)", function)
        self.node_kind = kind.group(1) if kind and kind.group(1) in v.NODES else "Kernel"
        self.made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def graph(self) -> Any:
        return self.once("graph", v.empty_graph)

    def node(self) -> Any:
        return self.once("node", lambda: v.NODES[self.node_kind](self.graph()))

    def exec(self) -> Any:
        self.node()
        return self.once("exec", lambda: ok(cuda.cuGraphInstantiate(self.graph(), 0)))

    def stream(self) -> Any:
        if self.function in ("cuStreamEndCapture",) or "UpdateCapture" in self.function:
            return self.once("stream", v.captured)
        return self.once("stream", lambda: ok(cuda.cuStreamCreate(0)))


Maker = Callable[[Call], Any]

BY_TYPE: dict[str, Maker] = {
    "CUstream": Call.stream,
    "CUevent": lambda call: v.event(6 if "Ipc" in call.function else 0),
    "CUcontext": lambda call: ok(cuda.cuCtxGetCurrent()),
    "CUdevice": lambda call: 0,
    "CUfunction": lambda call: v.function(),
    "CUkernel": lambda call: ok(cuda.cuLibraryGetKernel(v.library(), b"kernel")),
    "CUmodule": lambda call: v.module(),
    "CUlibrary": lambda call: v.library(),
    "CUarray": lambda call: ok(cuda.cuArray3DCreate(v.array_shape(three=True))),
    "CUmipmappedArray": lambda call: ok(cuda.cuMipmappedArrayCreate(v.array_shape(three=True), 2)),
    "CUgraph": Call.graph,
    "CUgraphNode": Call.node,
    "CUgraphExec": Call.exec,
    "CUmemoryPool": lambda call: ok(cuda.cuMemPoolCreate(v.pool_shape())),
    "CUmemGenericAllocationHandle": lambda call: v.physical(),
    "CUexternalMemory": lambda call: ok(cuda.cuImportExternalMemory(v.external_shape())),
    "CUdeviceptr": lambda call: v.memory(),
    "CUhostFn": lambda call: v.host_function(),
    "CUstreamCallback": lambda call: v.host_function(),
    "const CUDA_ARRAY3D_DESCRIPTOR *": lambda call: address(v.array_shape(three=True)),
    "const CUDA_ARRAY_DESCRIPTOR *": lambda call: address(v.array_shape()),
    "const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *": lambda call: address(v.external_shape()),
    "const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *": lambda call: address(
        v.fields(cuda.CUDA_EXTERNAL_MEMORY_BUFFER_DESC(), size=KIB)
    ),
    "const CUDA_HOST_NODE_PARAMS *": lambda call: address(v.host_node()),
    "const CUDA_KERNEL_NODE_PARAMS *": lambda call: address(v.kernel_node()),
    "const CUDA_KERNEL_NODE_PARAMS_v1 *": lambda call: address(v.kernel_node()),
    "const CUDA_MEMCPY2D *": lambda call: address(v.copy_2d()),
    "const CUDA_MEMCPY3D *": lambda call: address(v.copy_node()),
    "const CUDA_MEMCPY3D_PEER *": lambda call: address(v.copy_between()),
    "CUDA_MEMCPY3D_BATCH_OP *": lambda call: address(v.copy_operation()),
    "CUmemcpyAttributes *": lambda call: address(v.copy_attributes()),
    "const CUDA_MEMSET_NODE_PARAMS *": lambda call: address(v.set_node()),
    "CUDA_MEM_ALLOC_NODE_PARAMS *": lambda call: address(v.alloc_node()),
    "CUgraphNodeParams *": lambda call: address(
        v.fields(cuda.CUgraphNodeParams(), type=cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY)
    ),
    "const CUlaunchConfig *": lambda call: address(v.launch_config()),
    "const CUmemAccessDesc *": lambda call: address(v.access_shape()),
    "const CUmemAllocationProp *": lambda call: address(v.physical_shape()),
    "CUarrayMapInfo *": lambda call: address(v.map_operation()),
    "const CUmulticastObjectProp *": lambda call: address(v.team_shape()),
    "const CUmemLocation *": lambda call: address(v.location()),
    "const CUmemPoolProps *": lambda call: address(v.pool_shape()),
    "CUpointer_attribute *": lambda call: list_of(2),  # MEMORY_TYPE, in the first four bytes
    "CUpointer_attribute": lambda call: 2,
    "CUdevice_attribute": lambda call: 1,
    "CUmemPool_attribute": lambda call: 4,  # RELEASE_THRESHOLD
    "CUmemAllocationHandleType": lambda call: POSIX,
    "CUstreamCaptureMode": lambda call: 2,  # RELAXED
    "CUresult": lambda call: 1,
    "const char *": lambda call: NAME,
    "const void *": lambda call: address(v.PTX + b"\0"),
}


def fd_of(export: Callable[..., Any], handle: Any) -> int:
    return int(ok(export(handle, cuda.CUmemAllocationHandleType(POSIX), 0)))


def module_file() -> int:
    fd = os.memfd_create("module")
    os.write(fd, v.PTX)
    return address(f"/proc/self/fd/{fd}".encode() + b"\0")


def registered() -> int:
    start = room()
    ok(cuda.cuMemHostRegister(start, KIB, 0))
    return start


def pinned(call: Call) -> int:
    return int(ok(cuda.cuMemAllocHost(KIB)))


def from_pool(call: Call) -> int:
    return int(ok(cuda.cuMemAllocFromPoolAsync(KIB, ok(cuda.cuMemPoolCreate(v.pool_shape())), 0)))


def imported_pool(call: Call) -> Any:
    made = fd_of(cuda.cuMemPoolExportToShareableHandle, ok(cuda.cuMemPoolCreate(v.pool_shape())))
    handle = cuda.CUmemAllocationHandleType(POSIX)
    return ok(cuda.cuMemPoolImportFromShareableHandle(made, handle, 0))


# By the parameter's name, or by "function.parameter"; versions are left out.
BY_NAME: dict[str, Any] = {
    "len": 64,
    "bytesize": KIB,
    "ByteCount": 64,
    "N": 4,
    "WidthInBytes": 64,
    "Width": 4,
    "Height": 2,
    "dstPitch": 512,
    "ElementSizeBytes": 4,
    "cuOccupancyMaxActiveBlocksPerMultiprocessor.blockSize": 32,
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags.blockSize": 32,
    "numMipmapLevels": 2,
    "cudaVersion": 13000,
    "numAttributes": 1,
    "size": 2 * MIB,
    **v.SIZES,
    "fname": lambda call: module_file(),
    "fileName": lambda call: module_file(),
    "cuModuleGetGlobal.name": address(b"variable\0"),
    "cuLibraryGetGlobal.name": address(b"variable\0"),
    "cuGetProcAddress.symbol": address(b"cuInit\0"),
    "cuDeviceGetByPCIBusId.pciBusId": lambda call: address(
        ok(cuda.cuDeviceGetPCIBusId(64, 0)) + b"\0"
    ),
    "cuPointerGetAttributes.data": lambda call: list_of(room()),
    "cuMemSetAccess.count": 1,
    "cuMemSetAccess.ptr": lambda call: v.mapped(),
    "cuMemGetAccess.ptr": lambda call: v.mapped(),
    "cuMemUnmap.ptr": lambda call: v.mapped(),
    "cuMemMap.ptr": lambda call: v.reserved(),
    "cuMemAddressFree.ptr": lambda call: v.reserved(),
    "cuMemAddressReserve.addr": 0,
    "cuMemRetainAllocationHandle.addr": lambda call: v.mapped(),
    "cuMemMapArrayAsync.count": 1,
    "cuArrayGetSparseProperties.array": lambda call: v.sparse_array(),
    "cuMipmappedArrayGetSparseProperties.mipmap": lambda call: v.sparse_mipmap(),
    "cuMulticastAddDevice.mcHandle": lambda call: v.team((1,)),
    "cuMulticastUnbind.mcHandle": lambda call: v.bound_team(),
    "mcHandle": lambda call: v.team(),
    "memptr": lambda call: v.mapped(),
    "cuMemFreeHost.p": pinned,
    "cuMemHostGetDevicePointer.p": pinned,
    "cuMemHostGetFlags.p": pinned,
    "cuMemHostRegister.p": lambda call: room(),
    "cuMemHostUnregister.p": lambda call: registered(),
    "cuMemAllocManaged.flags": 1,
    "cuMemPoolExportPointer.ptr": from_pool,
    "cuMemPoolImportPointer.pool": imported_pool,
    "cuMemPoolImportFromShareableHandle.handle": lambda call: fd_of(
        cuda.cuMemPoolExportToShareableHandle, ok(cuda.cuMemPoolCreate(v.pool_shape()))
    ),
    "cuMemImportFromShareableHandle.osHandle": lambda call: fd_of(
        cuda.cuMemExportToShareableHandle, v.physical()
    ),
    "cuIpcOpenMemHandle.Flags": 1,
    "cuDeviceSetGraphMemAttribute.attr": 1,  # USED_MEM_HIGH
    "cuFuncSetAttribute.attrib": 8,  # MAX_DYNAMIC_SHARED_SIZE_BYTES
    "cuGraphAddChildGraphNode.childGraph": lambda call: v.empty_graph(),
    "cuGraphNodeFindInClone.hClonedGraph": lambda call: ok(cuda.cuGraphClone(call.graph())),
    "cuGraphAddMemFreeNode.dptr": lambda call: v.allocated_by(call.graph()),
    "cuDeviceGetP2PAttribute.attrib": 1,
    "cuGraphAddDependencies.from": lambda call: list_of(int(call.node())),
    "cuGraphAddDependencies.to": lambda call: list_of(int(v.NODES["Empty"](call.graph()))),
    "cuGraphAddDependencies.numDependencies": 1,
    "pid": lambda call: os.getpid(),
    "cuMemcpyWithAttributesAsync.size": 64,
    "cuMemcpyBatchAsync.count": 2,
    "dsts": lambda call: list_of(v.memory(), v.memory()),
    "srcs": lambda call: list_of(v.memory(), v.memory()),
    "sizes": lambda call: list_of(64, 128),
    "attrsIdxs": lambda call: list_of(0),
    "numAttrs": 1,
    "numOps": 1,
}

# May be NULL, by cuda.h's text or because nothing is asked for then.
OPTIONAL = {
    "hStream",
    "dependencies",
    "dependencyData",
    "edgeData",
    "kernelParams",
    "extra",
    "userData",
}


def value(call: Call, kind: str, parameter: str) -> Any:
    base = re.sub(r"_v\d+$", "", call.function)
    for key in (f"{base}.{parameter}", parameter):
        if key in BY_NAME:
            found = BY_NAME[key]
            break
    else:
        found = BY_TYPE.get(kind)
    if found is not None:
        return found(call) if callable(found) else found
    if parameter in OPTIONAL:
        return 0
    return room() if kind.endswith("*") else 0
