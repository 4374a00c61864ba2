"""Values that CUDA's functions take, by the type or the name of the parameter.

Runs in a process on the software GPU; everything here is made anew for each call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

KIB, MIB = 1 << 10, 1 << 20
Location = cuda.CUmemLocationType
PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 variable[16];
.visible .entry kernel() { ret; }
"""

SPARSE = 0x40  # CUDA_ARRAY3D_SPARSE
TILE_POOL = 1  # CU_MEM_CREATE_USAGE_TILE_POOL

kept: list[object] = []  # what the driver is given addresses of


def ok(answer):
    assert answer[0] == 0, cuda.CUresult(answer[0]).name
    return answer[1] if len(answer) == 2 else answer[1:]


def address(thing: Any) -> int:
    """Of a struct of the bindings, or of bytes."""
    kept.append(thing)
    if isinstance(thing, bytes):
        return ctypes.cast(ctypes.c_char_p(thing), ctypes.c_void_p).value or 0
    if isinstance(thing, ctypes.Array):
        return ctypes.addressof(thing)
    return int(thing.getPtr())


def room() -> int:
    """Zeroes, for an answer of any size."""
    return address((ctypes.c_uint64 * 512)())


def list_of(*values: int) -> int:
    return address((ctypes.c_uint64 * len(values))(*values))


def fields(thing, **values):
    for name, value in values.items():
        target = thing
        *path, last = name.split("__")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return thing


def event(flags: int = 0):
    made = ok(cuda.cuEventCreate(flags))
    ok(cuda.cuEventRecord(made, 0))
    return made


def module():
    return ok(cuda.cuModuleLoadData(PTX))


def library():
    return ok(cuda.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))


def function():
    return ok(cuda.cuModuleGetFunction(module(), b"kernel"))


def array_shape(three: bool = False):
    shape = cuda.CUDA_ARRAY3D_DESCRIPTOR() if three else cuda.CUDA_ARRAY_DESCRIPTOR()
    return fields(
        shape,
        Width=64,
        Height=4,
        Format=cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels=1,
    )


def pool_shape():
    return fields(
        cuda.CUmemPoolProps(),
        allocType=cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes=cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location__type=Location.CU_MEM_LOCATION_TYPE_DEVICE,
    )


def physical_shape():
    return fields(
        cuda.CUmemAllocationProp(),
        type=cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes=cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location__type=Location.CU_MEM_LOCATION_TYPE_DEVICE,
    )


def physical():
    return ok(cuda.cuMemCreate(2 * MIB, physical_shape(), 0))


def access_shape():
    return fields(
        cuda.CUmemAccessDesc(),
        location__type=Location.CU_MEM_LOCATION_TYPE_DEVICE,
        flags=cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    )


def location():
    return fields(cuda.CUmemLocation(), type=Location.CU_MEM_LOCATION_TYPE_DEVICE)


def reserved() -> int:
    return int(ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0)))


def mapped() -> int:
    place = reserved()
    ok(cuda.cuMemMap(place, 2 * MIB, 0, physical(), 0))
    ok(cuda.cuMemSetAccess(place, 2 * MIB, [access_shape()], 1))
    return place


def sparse_shape():
    """Of a sparse array that has a mip tail and, of bytes, one tile."""
    return fields(array_shape(three=True), Width=256, Height=256, Flags=SPARSE)


def sparse_array():
    return ok(cuda.cuArray3DCreate(sparse_shape()))


def sparse_mipmap():
    return ok(cuda.cuMipmappedArrayCreate(sparse_shape(), 2))


def tile_pool_shape():
    not_exported = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    return fields(physical_shape(), requestedHandleTypes=not_exported, allocFlags__usage=TILE_POOL)


def tile_pool():
    return ok(cuda.cuMemCreate(2 * MIB, tile_pool_shape(), 0))


def map_operation():
    return fields(
        cuda.CUarrayMapInfo(),
        resourceType=cuda.CUresourcetype.CU_RESOURCE_TYPE_ARRAY,
        resource__array=sparse_array(),
        subresourceType=cuda.CUarraySparseSubresourceType.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
        subresource__sparseLevel__extentWidth=256,
        subresource__sparseLevel__extentHeight=256,
        subresource__sparseLevel__extentDepth=1,
        memOperationType=cuda.CUmemOperationType.CU_MEM_OPERATION_TYPE_MAP,
        memHandleType=cuda.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC,
        memHandle__memHandle=tile_pool(),
        deviceBitMask=1,
    )


def team_shape():
    return fields(cuda.CUmulticastObjectProp(), numDevices=2, size=2 * MIB)


def team(devices: tuple[int, ...] = (0, 1)):
    """A multicast object with these devices."""
    made = ok(cuda.cuMulticastCreate(team_shape()))
    for device in devices:
        ok(cuda.cuMulticastAddDevice(made, device))
    return made


def bound_team():
    made = team()
    ok(cuda.cuMulticastBindMem(made, 0, physical(), 0, 2 * MIB, 0))
    return made


def external_shape():
    fd = os.memfd_create("external")
    os.truncate(fd, MIB)
    return fields(
        cuda.CUDA_EXTERNAL_MEMORY_HANDLE_DESC(),
        type=cuda.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        handle__fd=fd,
        size=MIB,
    )


SIZES = dict.fromkeys(
    ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"), 1
)


def kernel_node():
    return fields(cuda.CUDA_KERNEL_NODE_PARAMS(), func=function(), **SIZES)


def launch_config():
    return fields(cuda.CUlaunchConfig(), **SIZES)


def memory() -> int:
    return int(ok(cuda.cuMemAlloc(4 * KIB)))


def copy_node():
    device = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    return fields(
        cuda.CUDA_MEMCPY3D(),
        srcMemoryType=device,
        srcDevice=memory(),
        dstMemoryType=device,
        dstDevice=memory(),
        WidthInBytes=64,
        Height=1,
        Depth=1,
    )


def copy_2d():
    device = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    return fields(
        cuda.CUDA_MEMCPY2D(),
        srcMemoryType=device,
        srcDevice=memory(),
        dstMemoryType=device,
        dstDevice=memory(),
        WidthInBytes=64,
        Height=1,
    )


def copy_between():
    context = ok(cuda.cuCtxGetCurrent())
    device = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    return fields(
        cuda.CUDA_MEMCPY3D_PEER(),
        srcMemoryType=device,
        srcDevice=memory(),
        srcContext=context,
        dstMemoryType=device,
        dstDevice=memory(),
        dstContext=context,
        WidthInBytes=64,
        Height=1,
        Depth=1,
    )


IN_STREAM_ORDER = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM


def copy_attributes():
    return fields(cuda.CUmemcpyAttributes(), srcAccessOrder=IN_STREAM_ORDER)


def copy_operation():
    pointer = cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_POINTER
    return fields(
        cuda.CUDA_MEMCPY3D_BATCH_OP(),
        src__type=pointer,
        src__op__ptr__ptr=memory(),
        dst__type=pointer,
        dst__op__ptr__ptr=memory(),
        extent__width=64,
        extent__height=4,
        extent__depth=2,
        srcAccessOrder=IN_STREAM_ORDER,
    )


def set_node():
    return fields(
        cuda.CUDA_MEMSET_NODE_PARAMS(), dst=memory(), elementSize=1, width=64, height=1, pitch=64
    )


HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


def host_function() -> int:
    return ctypes.cast(HOST_FUNCTION, ctypes.c_void_p).value or 0


def host_node():
    return fields(cuda.CUDA_HOST_NODE_PARAMS(), fn=host_function())


def alloc_node():
    shape = fields(cuda.CUDA_MEM_ALLOC_NODE_PARAMS(), bytesize=KIB)
    fields(
        shape,
        poolProps__allocType=cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED,
        poolProps__location__type=Location.CU_MEM_LOCATION_TYPE_DEVICE,
    )
    return shape


def allocated_by(graph) -> int:
    """The address of an allocation node."""
    shape = alloc_node()
    ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, shape))
    return int(shape.dptr)


def empty_graph():
    return ok(cuda.cuGraphCreate(0))


NODES: dict[str, Callable[[Any], Any]] = {
    "Kernel": lambda graph: ok(cuda.cuGraphAddKernelNode(graph, None, 0, kernel_node())),
    "Memcpy": lambda graph: ok(
        cuda.cuGraphAddMemcpyNode(graph, None, 0, copy_node(), ok(cuda.cuCtxGetCurrent()))
    ),
    "Memset": lambda graph: ok(
        cuda.cuGraphAddMemsetNode(graph, None, 0, set_node(), ok(cuda.cuCtxGetCurrent()))
    ),
    "Host": lambda graph: ok(cuda.cuGraphAddHostNode(graph, None, 0, host_node())),
    "ChildGraph": lambda graph: ok(
        cuda.cuGraphAddChildGraphNode(graph, None, 0, ok(cuda.cuGraphCreate(0)))
    ),
    "EventRecord": lambda graph: ok(cuda.cuGraphAddEventRecordNode(graph, None, 0, event())),
    "EventWait": lambda graph: ok(cuda.cuGraphAddEventWaitNode(graph, None, 0, event())),
    "MemAlloc": lambda graph: ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, alloc_node())),
    "MemFree": lambda graph: ok(cuda.cuGraphAddMemFreeNode(graph, None, 0, allocated_by(graph))),
    "Empty": lambda graph: ok(cuda.cuGraphAddEmptyNode(graph, None, 0)),
}


def captured():
    stream = ok(cuda.cuStreamCreate(0))
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ok(cuda.cuStreamBeginCapture(stream, mode))
    return stream
