"""Copies with attributes, in batches, between contexts and in captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu

COPIES = """
INVALID = cuda.CUresult.CUDA_ERROR_INVALID_VALUE
Order = cuda.CUmemcpySrcAccessOrder
Operand = cuda.CUmemcpy3DOperandType
SIZE_MAX = (1 << 64) - 1
def memory(content):
    start = ok(cuda.cuMemAlloc(len(content)))
    ok(cuda.cuMemcpyHtoD(start, bytes(content), len(content)))
    return start
def content(start, size):
    back = bytearray(size)
    ok(cuda.cuMemcpyDtoH(back, start, size))
    return list(back)
def attributes(order=Order.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM):
    made = cuda.CUmemcpyAttributes()
    made.srcAccessOrder = order
    return made
def pointer(operand, start, row=0, height=0):
    operand.type = Operand.CU_MEMCPY_OPERAND_TYPE_POINTER
    operand.op.ptr.ptr, operand.op.ptr.rowLength, operand.op.ptr.layerHeight = start, row, height
def part_of_array(operand, array, x, y, z):
    operand.type = Operand.CU_MEMCPY_OPERAND_TYPE_ARRAY
    operand.op.array.array = array
    offset = operand.op.array.offset
    offset.x, offset.y, offset.z = x, y, z
def operation(width, height, depth):
    made = cuda.CUDA_MEMCPY3D_BATCH_OP()
    made.extent.width, made.extent.height, made.extent.depth = width, height, depth
    made.srcAccessOrder = Order.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    return made
def until_cuda_12(name, *arguments):
    # [what it answers, what it says of the copy that failed]
    failed = ctypes.c_size_t(7)
    words = [ctypes.byref(failed) if a == "failed" else a for a in arguments]
    function = ctypes.CDLL("libcuda.so.1")[name]
    return [cuda.CUresult(function(*words)).name, failed.value]
def array_of(type, *values):
    return (type * len(values))(*(int(value) for value in values))
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


def test_a_batch_copies_each_of_its_stretches_whatever_memory_they_are(gpu: SoftGpu) -> None:
    gpu.client(
        COPIES
        + """
start()
stream = ok(cuda.cuStreamCreate(1))
here, there = memory([1] * 8), memory([0] * 24)
host = ctypes.create_string_buffer(bytes([2] * 8))
back = ctypes.create_string_buffer(8)
place = lambda buffer: cuda.CUdeviceptr(ctypes.addressof(buffer))
ok(cuda.cuMemcpyBatchAsync(
    [there, cuda.CUdeviceptr(int(there) + 8), place(back), there],
    [here, place(host), here, here],
    [8, 4, 3, 0], 4,
    [attributes(), attributes(Order.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)], [0, 2], 2, stream))
assert content(there, 24) == [1] * 8 + [2] * 4 + [0] * 12
assert list(back.raw) == [1] * 3 + [0] * 5
say(done=True)
"""
    )


def test_a_batch_with_a_mistake_copies_nothing_and_names_the_copy(gpu: SoftGpu) -> None:
    gpu.client(
        COPIES
        + """
start()
stream = ok(cuda.cuStreamCreate(1))
here, there = memory([1] * 8), memory([0] * 8)
def batch(bytes, first, count=3, attribute_count=1):
    attribute = attributes()
    return until_cuda_12(
        "cuMemcpyBatchAsync",
        array_of(ctypes.c_uint64, there, there, there), array_of(ctypes.c_uint64, here, here, here),
        array_of(ctypes.c_size_t, *bytes), ctypes.c_size_t(count),
        ctypes.c_void_p(attribute.getPtr()), array_of(ctypes.c_size_t, first),
        ctypes.c_size_t(attribute_count), "failed", ctypes.c_void_p(int(stream)))
assert batch([8, 9, 8], 0) == ["CUDA_ERROR_INVALID_VALUE", 1]
assert batch([8, 8, 9], 0) == ["CUDA_ERROR_INVALID_VALUE", 2]
assert batch([8, 8, 8], 1) == ["CUDA_ERROR_INVALID_VALUE", SIZE_MAX]
assert batch([8, 8, 8], 0, count=0) == ["CUDA_ERROR_INVALID_VALUE", SIZE_MAX]
assert batch([8, 8, 8], 0, attribute_count=0) == ["CUDA_ERROR_INVALID_VALUE", SIZE_MAX]
assert content(there, 8) == [0] * 8
assert batch([8, 8, 8], 0) == ["CUDA_SUCCESS", SIZE_MAX]
assert content(there, 8) == [1] * 8
say(done=True)
"""
    )


def test_boxes_of_a_batch_are_measured_in_the_elements_of_their_arrays(gpu: SoftGpu) -> None:
    gpu.client(
        COPIES
        + """
start()
stream = ok(cuda.cuStreamCreate(1))
shape = cuda.CUDA_ARRAY3D_DESCRIPTOR()
shape.Width, shape.Height, shape.Depth, shape.NumChannels = 4, 2, 2, 2
shape.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
array = ok(cuda.cuArray3DCreate(shape))
# Rows of 5 elements, 3 of them high a layer: 30 bytes a layer.
padded, packed = memory(range(60)), memory([0] * 16)
fill = operation(4, 2, 2)
pointer(fill.src, padded, row=5, height=3)
part_of_array(fill.dst, array, 0, 0, 0)
take = operation(2, 1, 2)
part_of_array(take.src, array, 1, 1, 0)
pointer(take.dst, packed)
ok(cuda.cuMemcpy3DBatchAsync(1, [fill], 0, stream))
ok(cuda.cuMemcpy3DBatchAsync(1, [take], 0, stream))
# Element 1 and 2 of row 1 of each layer, two bytes each.
assert content(packed, 16) == [12, 13, 14, 15, 42, 43, 44, 45] + [0] * 8
beyond = operation(2, 1, 2)
part_of_array(beyond.src, array, 3, 1, 0)
pointer(beyond.dst, packed)
pointer(take.dst, int(packed) + 8)
assert cuda.cuMemcpy3DBatchAsync(2, [take, beyond], 0, stream)[0] == INVALID
assert content(packed, 16)[8:] == [0] * 8
say(done=True)
"""
    )


def test_a_box_is_copied_between_the_contexts_of_two_gpus(gpu: SoftGpu) -> None:
    gpu.client(
        COPIES
        + """
first = start(0)
source = memory(range(16))
second = start(1)
target = memory([0] * 16)
copy = cuda.CUDA_MEMCPY3D_PEER()
copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.srcContext, copy.srcPitch, copy.srcXInBytes = source, first, 4, 1
copy.dstDevice, copy.dstContext, copy.dstPitch = target, second, 8
copy.WidthInBytes, copy.Height, copy.Depth = 3, 2, 1
ok(cuda.cuMemcpy3DPeer(copy))
assert content(target, 16) == [1, 2, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0]
ok(cuda.cuMemsetD8(target, 0, 16))
ok(cuda.cuMemcpy3DPeerAsync(copy, ok(cuda.cuStreamCreate(0))))
assert content(target, 16) == [1, 2, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0]
say(done=True)
"""
    )


def test_memory_that_a_capture_allocates_is_copied_to_and_from_in_it(gpu: SoftGpu) -> None:
    gpu.client(
        COPIES
        + """
start()
stream = ok(cuda.cuStreamCreate(1))
source, back = memory([3] * 16), memory([0] * 16)
ok(cuda.cuStreamBeginCapture(
    stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
made = ok(cuda.cuMemAllocAsync(8, stream))
ok(cuda.cuMemcpyDtoDAsync(made, source, 8, stream))
ok(cuda.cuMemcpyDtoDAsync(back, made, 8, stream))
ok(cuda.cuMemcpyBatchAsync([cuda.CUdeviceptr(int(back) + 8)], [made], [8], 1,
                           [attributes()], [0], 1, stream))
assert cuda.cuMemcpyDtoDAsync(made, source, 9, stream)[0] == INVALID
ok(cuda.cuMemFreeAsync(made, stream))
graph = ok(cuda.cuStreamEndCapture(stream))
assert content(back, 16) == [0] * 16
ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0)), stream))
ok(cuda.cuStreamSynchronize(stream))
assert content(back, 16) == [3] * 16
say(done=True)
"""
    )
