"""Arrays of the software GPU, and copies of rectangles and boxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu

ARRAYS = """
U8 = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
FLOAT = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
Type = cuda.CUmemorytype
def shape(width, height, depth=0, format=U8, channels=1, flags=0):
    made = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth = width, height, depth
    made.Format, made.NumChannels, made.Flags = format, channels, flags
    return made
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
def refused(answer, why):
    assert answer[0] == why, answer
invalid = cuda.CUresult.CUDA_ERROR_INVALID_VALUE
bad_handle = cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


def test_an_array_takes_its_elements_rounded_up_to_512_bytes(gpu: SoftGpu) -> None:
    gpu.client(
        ARRAYS
        + """
start()
first = ok(cuda.cuArray3DCreate(shape(100, 0)))
assert used() == 512
second = ok(cuda.cuArray3DCreate(shape(33, 17, 5, FLOAT, 4)))
bytes = (33 * 17 * 5 * 16 + 511) // 512 * 512
assert used() == 512 + bytes
assert ok(cuda.cuArrayGetMemoryRequirements(second, 0)).size == bytes
assert ok(cuda.cuArray3DGetDescriptor(second)).Depth == 5
assert ok(cuda.cuArrayGetDescriptor(second)).Height == 17
ok(cuda.cuArrayDestroy(second))
refused(cuda.cuArrayDestroy(second), bad_handle)
assert used() == 512
mipmap = ok(cuda.cuMipmappedArrayCreate(shape(64, 64, 0, FLOAT), 20))
levels = [(64 >> n) ** 2 * 4 for n in range(7)]
assert used() == 512 + sum((level + 511) // 512 * 512 for level in levels)
level = ok(cuda.cuMipmappedArrayGetLevel(mipmap, 6))
assert ok(cuda.cuArrayGetDescriptor(level)).Width == 1
refused(cuda.cuArrayDestroy(level), bad_handle)
refused(cuda.cuMipmappedArrayGetLevel(mipmap, 7), invalid)
ok(cuda.cuMipmappedArrayDestroy(mipmap))
assert used() == 512
refused(cuda.cuArray3DCreate(shape(0, 4)), invalid)
refused(cuda.cuArray3DCreate(shape(4, 4, 0, U8, 3)), invalid)
too_much = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
refused(cuda.cuArray3DCreate(shape(8192, 8192)), too_much)
assert used() == 512
say(done=True)
"""
    )


def test_boxes_are_copied_between_host_memory_device_memory_and_arrays(gpu: SoftGpu) -> None:
    gpu.client(
        ARRAYS
        + """
start()
array = ok(cuda.cuArray3DCreate(shape(8, 4, 2)))
host = (ctypes.c_ubyte * 64)(*range(64))
copy = cuda.CUDA_MEMCPY3D()
copy.srcMemoryType, copy.srcHost = Type.CU_MEMORYTYPE_HOST, ctypes.addressof(host)
copy.srcPitch, copy.srcHeight = 8, 4
copy.dstMemoryType, copy.dstArray = Type.CU_MEMORYTYPE_ARRAY, array
copy.WidthInBytes, copy.Height, copy.Depth = 8, 4, 2
ok(cuda.cuMemcpy3D(copy))
memory = ok(cuda.cuMemAlloc(512))
ok(cuda.cuMemsetD8(memory, 0, 512))
flat = cuda.CUDA_MEMCPY2D()
flat.srcMemoryType, flat.srcArray = Type.CU_MEMORYTYPE_ARRAY, array
flat.srcXInBytes, flat.srcY = 2, 1
flat.dstMemoryType, flat.dstDevice, flat.dstPitch = Type.CU_MEMORYTYPE_DEVICE, memory, 16
flat.WidthInBytes, flat.Height = 3, 2
ok(cuda.cuMemcpy2D(flat))
back = bytearray(20)
ok(cuda.cuMemcpyDtoH(back, memory, 20))
assert list(back) == [10, 11, 12] + [0] * 13 + [18, 19, 20, 0]
flat.Height = 4
refused(cuda.cuMemcpy2D(flat), invalid)
copy.dstXInBytes = 1
refused(cuda.cuMemcpy3D(copy), invalid)
ok(cuda.cuMemcpyAtoH(back, array, 0, 8))
assert list(back[:8]) == list(range(8))
copy.dstXInBytes = 0
ok(cuda.cuArrayDestroy(array))
refused(cuda.cuMemcpy3D(copy), invalid)
say(done=True)
"""
    )
