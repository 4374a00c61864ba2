"""Misuses that no single wrong argument makes, and what cuda.h answers them with.

As a program: prints JSON, what each is answered. Each runs in a process of its own; arguments say
how many at once, and after how many seconds the others are left out.
"""

from __future__ import annotations

import json
import math
import os
import sys
from functools import partial

from cuda.bindings import driver as cuda

sys.path.insert(0, os.path.abspath(__file__ + "/../../.."))

from softgpu.calls import cuda_copies, cuda_order, cuda_sparse, cuda_walk
from softgpu.calls import cuda_mistakes as m
from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_mistakes import Misuse
from softgpu.calls.cuda_values import KIB, MIB, ok

HUGE = (1 << 64) - 1


TABLE = {
    # sizes and flags
    "nothing is allocated": Misuse("cuMemAlloc_v2", lambda: cuda.cuMemAlloc(0), "INVALID_VALUE"),
    "too much is allocated": Misuse(
        "cuMemAlloc_v2", lambda: cuda.cuMemAlloc(1 << 50), "OUT_OF_MEMORY"
    ),
    "all addresses are allocated": Misuse(
        "cuMemAlloc_v2", lambda: cuda.cuMemAlloc(HUGE), "OUT_OF_MEMORY"
    ),
    "no host memory is allocated": Misuse(
        "cuMemAllocHost_v2", lambda: cuda.cuMemAllocHost(0), "INVALID_VALUE"
    ),
    "no rows are allocated": Misuse(
        "cuMemAllocPitch_v2", lambda: cuda.cuMemAllocPitch(64, 0, 4), "INVALID_VALUE"
    ),
    "elements of 3 bytes are allocated": Misuse(
        "cuMemAllocPitch_v2", lambda: cuda.cuMemAllocPitch(64, 4, 3), "INVALID_VALUE"
    ),
    "rows times height overflow": Misuse(
        "cuMemAllocPitch_v2", lambda: cuda.cuMemAllocPitch(1 << 40, 1 << 40, 4), "INVALID_VALUE"
    ),
    "managed memory has no attach flag": Misuse(
        "cuMemAllocManaged", lambda: cuda.cuMemAllocManaged(KIB, 0), "INVALID_VALUE"
    ),
    "no managed memory is allocated": Misuse(
        "cuMemAllocManaged", lambda: cuda.cuMemAllocManaged(0, 1), "INVALID_VALUE"
    ),
    "nothing is allocated from a pool": Misuse(
        "cuMemAllocAsync", lambda: cuda.cuMemAllocAsync(0, 0), "INVALID_VALUE"
    ),
    "more than a pool may hold is allocated": Misuse(
        "cuMemAllocFromPoolAsync", m.from_small_pool, "OUT_OF_MEMORY"
    ),
    "physical memory is no multiple of the granule": Misuse(
        "cuMemCreate", lambda: cuda.cuMemCreate(3 * MIB, v.physical_shape(), 0), "INVALID_VALUE"
    ),
    "no physical memory is made": Misuse(
        "cuMemCreate", lambda: cuda.cuMemCreate(0, v.physical_shape(), 0), "INVALID_VALUE"
    ),
    "too much physical memory is made": Misuse(
        "cuMemCreate", lambda: cuda.cuMemCreate(1 << 50, v.physical_shape(), 0), "OUT_OF_MEMORY"
    ),
    "physical memory is made on no device": Misuse(
        "cuMemCreate", lambda: m.physical_of(99), "INVALID_DEVICE"
    ),
    "physical memory of the host can be exported": Misuse(
        "cuMemCreate",
        lambda: m.physical_of(0, v.Location.CU_MEM_LOCATION_TYPE_HOST),
        "INVALID_VALUE",
    ),
    "physical memory is made on the thread's node": Misuse(
        "cuMemCreate",
        lambda: m.physical_of(0, v.Location.CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT),
        "INVALID_VALUE",
    ),
    "reserved addresses are no multiple of the granule": Misuse(
        "cuMemAddressReserve", lambda: cuda.cuMemAddressReserve(MIB, 0, 0, 0), "INVALID_VALUE"
    ),
    "the alignment is no power of two": Misuse(
        "cuMemAddressReserve", lambda: cuda.cuMemAddressReserve(2 * MIB, 3, 0, 0), "INVALID_VALUE"
    ),
    "a mapping begins amid a granule": Misuse(
        "cuMemMap",
        lambda: cuda.cuMemMap(v.reserved() + MIB, 2 * MIB, 0, v.physical(), 0),
        "INVALID_VALUE",
    ),
    "a mapping goes past the physical memory": Misuse(
        "cuMemMap",
        lambda: cuda.cuMemMap(v.reserved(), 2 * MIB, 2 * MIB, v.physical(), 0),
        "INVALID_VALUE",
    ),
    "a mapping goes past what is reserved": Misuse(
        "cuMemMap",
        lambda: cuda.cuMemMap(v.reserved(), 4 * MIB, 0, v.physical(), 0),
        "INVALID_VALUE",
    ),
    "addresses are mapped twice": Misuse("cuMemMap", m.mapped_twice, "INVALID_VALUE"),
    "half a mapping is taken away": Misuse(
        "cuMemUnmap", lambda: cuda.cuMemUnmap(v.mapped(), MIB), "INVALID_VALUE"
    ),
    "addresses that show something are freed": Misuse(
        "cuMemAddressFree", lambda: cuda.cuMemAddressFree(v.mapped(), 2 * MIB), "INVALID_VALUE"
    ),
    "access to nothing is given": Misuse(
        "cuMemSetAccess",
        lambda: cuda.cuMemSetAccess(v.reserved(), 2 * MIB, [v.access_shape()], 1),
        "INVALID_VALUE",
    ),
    "a pool is made on no device": Misuse(
        "cuMemPoolCreate", lambda: m.pool_of(99), "INVALID_VALUE"
    ),
    "an array has three channels": Misuse(
        "cuArray3DCreate_v2", lambda: m.array(NumChannels=3), "INVALID_VALUE"
    ),
    "an array has no width": Misuse(
        "cuArray3DCreate_v2", lambda: m.array(Width=0), "INVALID_VALUE"
    ),
    "an array is wider than any": Misuse(
        "cuArray3DCreate_v2", lambda: m.array(Width=1 << 40), "INVALID_VALUE"
    ),
    "a cube's faces are no squares": Misuse(
        "cuArray3DCreate_v2", lambda: m.array(Depth=6, Flags=4), "INVALID_VALUE"
    ),
    "a mipmapped array has no levels": Misuse(
        "cuMipmappedArrayCreate",
        lambda: cuda.cuMipmappedArrayCreate(v.array_shape(three=True), 0),
        "INVALID_VALUE",
    ),
    "a kernel has no threads": Misuse(
        "cuLaunchKernelEx", lambda: m.launch(blockDimX=0), "INVALID_VALUE"
    ),
    "a kernel has too many threads": Misuse(
        "cuLaunchKernelEx", lambda: m.launch(blockDimX=1024, blockDimY=2), "INVALID_VALUE"
    ),
    "a kernel has too many blocks": Misuse(
        "cuLaunchKernelEx", lambda: m.launch(gridDimY=65536), "INVALID_VALUE"
    ),
    "a kernel has too deep a block": Misuse(
        "cuLaunchKernelEx", lambda: m.launch(blockDimZ=65), "INVALID_VALUE"
    ),
    "a kernel takes too much shared memory": Misuse(
        "cuLaunchKernelEx", lambda: m.launch(sharedMemBytes=1 << 20), "INVALID_VALUE"
    ),
    # ends, twice and amid
    "memory is freed twice": Misuse(
        "cuMemFree_v2", lambda: m.twice(cuda.cuMemFree, v.memory()), "INVALID_VALUE"
    ),
    "memory is freed in its middle": Misuse(
        "cuMemFree_v2", lambda: cuda.cuMemFree(v.memory() + 4), "INVALID_VALUE"
    ),
    "pinned memory is freed as the device's": Misuse(
        "cuMemFree_v2", lambda: cuda.cuMemFree(int(ok(cuda.cuMemAllocHost(8)))), "INVALID_VALUE"
    ),
    "mapped memory is freed": Misuse(
        "cuMemFree_v2", lambda: cuda.cuMemFree(v.mapped()), "INVALID_VALUE"
    ),
    "host memory is freed twice": Misuse(
        "cuMemFreeHost",
        lambda: m.twice(cuda.cuMemFreeHost, ok(cuda.cuMemAllocHost(8))),
        "INVALID_VALUE",
    ),
    "unregistered memory is unregistered": Misuse(
        "cuMemHostUnregister",
        lambda: cuda.cuMemHostUnregister(4096),
        "HOST_MEMORY_NOT_REGISTERED",
    ),
    "memory is registered twice": Misuse(
        "cuMemHostRegister_v2", m.overlapping_registration, "HOST_MEMORY_ALREADY_REGISTERED"
    ),
    "the default pool is destroyed": Misuse(
        "cuMemPoolDestroy",
        lambda: cuda.cuMemPoolDestroy(ok(cuda.cuDeviceGetDefaultMemPool(0))),
        "INVALID_VALUE",
    ),
    "a level of a mipmapped array is destroyed": Misuse(
        "cuArrayDestroy", m.level_destroyed, "INVALID_HANDLE"
    ),
    "a primary context is released too often": Misuse(
        "cuDevicePrimaryCtxRelease_v2",
        lambda: m.twice(cuda.cuDevicePrimaryCtxRelease, 0),
        "INVALID_CONTEXT",
    ),
    "contexts are stacked without end": Misuse(
        "cuCtxPushCurrent_v2", m.stacked_without_end, "INVALID_CONTEXT"
    ),
}


TABLE |= cuda_copies.TABLE | cuda_order.TABLE | cuda_sparse.TABLE


def answer_to(name: str) -> str:
    cuda_walk.start()
    return cuda_walk.name_of(int(TABLE[name].do()[0]))


if __name__ == "__main__":
    at_once = int(sys.argv[1]) if sys.argv[1:] else 1
    seconds = float(sys.argv[2]) if sys.argv[2:] else math.inf
    said = cuda_walk.in_processes([partial(answer_to, name) for name in TABLE], at_once, seconds)
    print(json.dumps(dict(zip(TABLE, said))))
