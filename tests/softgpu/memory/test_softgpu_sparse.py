"""Sparse arrays of the software GPU: tiles, and how long mapped memory is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import CALLS, SoftGpu

SPARSE = (
    CALLS
    + """
FORMATS = cuda.CUarray_format
Operation = cuda.CUmemOperationType
TILE = 1 << 16
start()
def shape(width, height, depth=0, format=FORMATS.CU_AD_FORMAT_FLOAT, channels=4, flags=0x40):
    made = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth = width, height, depth
    made.Format, made.NumChannels, made.Flags = format, channels, flags
    return made
def pool(size=2 * MIB):
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.allocFlags.usage = 1
    return ok(cuda.cuMemCreate(size, wanted, 0))
def operation(array, memory=0, offset=0):
    made = cuda.CUarrayMapInfo()
    if isinstance(array, cuda.CUmipmappedArray):
        made.resourceType = cuda.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
        made.resource.mipmap = array
    else:
        made.resourceType = cuda.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        made.resource.array = array
    made.memOperationType = Operation(1 if memory else 2)
    made.memHandleType = cuda.CUmemHandleType(0)
    made.memHandle.memHandle = memory
    made.offset, made.deviceBitMask = offset, 1
    return made
def box(array, at, extent, memory=0, level=0, layer=0, offset=0):
    made = operation(array, memory, offset)
    made.subresourceType = cuda.CUarraySparseSubresourceType(0)
    part = made.subresource.sparseLevel
    part.level, part.layer = level, layer
    part.offsetX, part.offsetY, part.offsetZ = at
    part.extentWidth, part.extentHeight, part.extentDepth = extent
    return made
def tail(array, offset, size, memory=0, layer=0):
    made = operation(array, memory)
    made.subresourceType = cuda.CUarraySparseSubresourceType(1)
    made.subresource.miptail.layer = layer
    made.subresource.miptail.offset, made.subresource.miptail.size = offset, size
    return made
def queue(*operations, stream=0):
    return cuda.cuMemMapArrayAsync(list(operations), len(operations), stream)
"""
)


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


def test_a_tile_is_64_kib_and_small_levels_share_the_mip_tail(gpu: SoftGpu) -> None:
    gpu.client(
        SPARSE
        + """
def tile(properties):
    return (properties.tileExtent.width, properties.tileExtent.height, properties.tileExtent.depth)
U8 = FORMATS.CU_AD_FORMAT_UNSIGNED_INT8
for format, channels, flat, deep in [
    (U8, 1, (256, 256, 1), (64, 32, 32)),
    (U8, 4, (128, 128, 1), (32, 32, 16)),
    (FORMATS.CU_AD_FORMAT_FLOAT, 4, (64, 64, 1), (16, 16, 16)),
]:
    array = ok(cuda.cuArray3DCreate(shape(512, 512, 0, format, channels)))
    assert tile(ok(cuda.cuArrayGetSparseProperties(array))) == flat
    array = ok(cuda.cuArray3DCreate(shape(64, 64, 64, format, channels)))
    found = ok(cuda.cuArrayGetSparseProperties(array))
    assert (tile(found), found.miptailSize) == (deep, 0)
# 512, 256, 128 and 64 elements span a tile; 32, 16 and so on are 21,840 bytes of the tail.
mipmap = ok(cuda.cuMipmappedArrayCreate(shape(512, 512), 10))
found = ok(cuda.cuMipmappedArrayGetSparseProperties(mipmap))
assert (found.miptailFirstLevel, found.miptailSize, found.flags) == (4, TILE, 0)
assert used() == 0
say(done=True)
"""
    )


def test_mapped_memory_counts_until_its_last_tile_is_unmapped_or_mapped_anew(gpu: SoftGpu) -> None:
    gpu.client(
        SPARSE
        + """
array = ok(cuda.cuArray3DCreate(shape(200, 128, 2, flags=0x41)))  # 4 x 2 tiles in each layer
first, second = pool(), pool(4 * MIB)
ok(queue(
    box(array, (0, 0, 0), (200, 128, 1), first),
    box(array, (64, 64, 0), (64, 64, 1), second, layer=1, offset=4 * MIB - TILE),
))
for memory in (first, second):
    ok(cuda.cuMemRelease(memory))
    refused(cuda.cuMemRelease(memory), R.CUDA_ERROR_INVALID_VALUE)
assert used() == 6 * MIB
ok(queue(box(array, (0, 0, 0), (192, 128, 1))))
assert used() == 6 * MIB
third = pool()
ok(queue(box(array, (192, 0, 0), (8, 128, 1), third)))
ok(cuda.cuMemRelease(third))
assert used() == 6 * MIB
ok(queue(box(array, (64, 64, 0), (64, 64, 1), layer=1)))
assert used() == 2 * MIB
ok(cuda.cuArrayDestroy(array))
assert used() == 0
say(done=True)
"""
    )


def test_a_list_with_a_mistake_maps_nothing(gpu: SoftGpu) -> None:
    gpu.client(
        SPARSE
        + """
array, memory = ok(cuda.cuArray3DCreate(shape(64, 64))), pool()
right = box(array, (0, 0, 0), (64, 64, 1), memory)
wrong = box(array, (64, 0, 0), (64, 64, 1), memory)
refused(queue(right, wrong), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuMemRelease(memory))
assert used() == 0
say(done=True)
"""
    )


def test_mip_tails_and_deferred_arrays_are_mapped_as_cuda_h_says(gpu: SoftGpu) -> None:
    gpu.client(
        SPARSE
        + """
invalid = R.CUDA_ERROR_INVALID_VALUE
memory = pool()
mipmap = ok(cuda.cuMipmappedArrayCreate(shape(128, 128, 2, flags=0x41), 8))
refused(queue(tail(mipmap, 0, TILE, memory, layer=2)), invalid)
refused(queue(tail(mipmap, 0, 2 * TILE, memory)), invalid)
refused(queue(tail(mipmap, 0, 4096, memory)), invalid)
refused(queue(box(mipmap, (0, 0, 0), (32, 32, 1), memory, level=2)), invalid)
ok(queue(box(mipmap, (0, 0, 0), (64, 64, 1), memory, level=1), tail(mipmap, 0, TILE, memory, 1)))
deferred = ok(cuda.cuArray3DCreate(shape(200, 200, flags=0x80)))
needs = ok(cuda.cuArrayGetMemoryRequirements(deferred, 0))
assert (needs.size, needs.alignment) == (10 * TILE, TILE)
refused(queue(operation(deferred, memory, 2 * MIB - 9 * TILE)), invalid)
ok(queue(operation(deferred, memory, 2 * MIB - 10 * TILE)))
ok(cuda.cuMemRelease(memory))
ok(queue(operation(deferred), tail(mipmap, 0, TILE, layer=1)))
assert used() == 2 * MIB
ok(cuda.cuMipmappedArrayDestroy(mipmap))
assert used() == 0
say(done=True)
"""
    )


def test_tiles_are_unmapped_when_their_stream_reaches_the_operation(gpu: SoftGpu) -> None:
    gpu.virtual_client(
        SPARSE
        + """
work = kernel(b"spin")
array, busy, idle = ok(cuda.cuArray3DCreate(shape(128, 64))), *(
    ok(cuda.cuStreamCreate(1)) for _ in range(2)
)
def mapped():
    memory = pool()
    ok(queue(box(array, (0, 0, 0), (64, 64, 1), memory), stream=busy))
    ok(cuda.cuMemRelease(memory))
mapped()
spin(work, 10_000_000, busy)
ok(queue(box(array, (0, 0, 0), (64, 64, 1)), stream=busy))
assert used() == 2 * MIB
ok(cuda.cuStreamSynchronize(idle))
assert used() == 2 * MIB
mapped()
assert used() == 4 * MIB
refused(cuda.cuStreamQuery(busy), R.CUDA_ERROR_NOT_READY)
ok(cuda.cuStreamSynchronize(busy))
assert used() == 2 * MIB
spin(work, 10_000_000, busy)
ok(queue(box(array, (0, 0, 0), (64, 64, 1)), stream=busy))
ok(cuda.cuArrayDestroy(array))
assert used() == 0
say(done=True)
"""
    )


def test_tiles_end_with_their_context_and_copies_are_not_supported(gpu: SoftGpu) -> None:
    gpu.client(
        SPARSE
        + """
array, memory = ok(cuda.cuArray3DCreate(shape(64, 64))), pool()
ok(queue(box(array, (0, 0, 0), (64, 64, 1), memory)))
refused(cuda.cuMemcpyHtoA(array, 0, bytes(64), 64), R.CUDA_ERROR_NOT_SUPPORTED)
ok(cuda.cuMemRelease(memory))
own = ok(cuda.cuCtxGetCurrent())
other = start()
assert used() == 2 * MIB
ok(cuda.cuCtxDestroy(own))
assert used() == 0
refused(cuda.cuArrayDestroy(array), R.CUDA_ERROR_CONTEXT_IS_DESTROYED)
say(done=True)
"""
    )
