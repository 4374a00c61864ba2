"""Misuses of copies and sets: their sizes, the order of their lists, batches and boxes."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_mistakes as m
from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_mistakes import Misuse
from softgpu.calls.cuda_values import KIB, fields, ok

LEGACY = 1  # CU_STREAM_LEGACY
ARRAY = cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_ARRAY
NO_OPERAND = cuda.CUmemcpy3DOperandType.CU_MEMCPY_OPERAND_TYPE_MAX
NO_ORDER = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
UNKNOWN_ORDER = cuda.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_MAX


def batch(
    sizes: tuple[int, ...] = (64, 64),
    first: tuple[int, ...] = (0,),
    on: Any = None,
    **attributes: Any,
) -> Any:
    """Copies of SIZES bytes; FIRST are the copies with which new attributes begin."""
    count = len(sizes)
    return cuda.cuMemcpyBatchAsync(
        [cuda.CUdeviceptr(v.memory()) for _ in sizes],
        [cuda.CUdeviceptr(v.memory()) for _ in sizes],
        list(sizes),
        count,
        [fields(v.copy_attributes(), **attributes) for _ in first],
        list(first),
        len(first),
        m.stream() if on is None else on,
    )


def box(on: Any = None, **changes: Any) -> Any:
    """In a batch of two, the second of which has CHANGES."""
    second = fields(v.copy_operation(), **changes)
    return cuda.cuMemcpy3DBatchAsync(
        2, [v.copy_operation(), second], 0, m.stream() if on is None else on
    )


def array(**shape: Any) -> dict[str, Any]:
    """As the source of a box."""
    made = ok(cuda.cuArray3DCreate(fields(v.array_shape(three=True), Depth=4, **shape)))
    return {"src__type": ARRAY, "src__op__array__array": made}


def of_other_elements() -> Any:
    floats = array(Format=cuda.CUarray_format.CU_AD_FORMAT_FLOAT)["src__op__array__array"]
    return box(**array(), dst__type=ARRAY, dst__op__array__array=floats)


def between(**changes: Any) -> Any:
    return cuda.cuMemcpy3DPeer(fields(v.copy_between(), **changes))


def ended_context() -> Any:
    here = ok(cuda.cuCtxGetCurrent())
    other = ok(cuda.cuCtxCreate(None, 0, 0))
    ok(cuda.cuCtxDestroy(other))
    ok(cuda.cuCtxSetCurrent(here))
    return other


def legacy_amid_capture() -> Any:
    v.captured()
    return cuda.cuMemcpy2DAsync(v.copy_2d(), LEGACY)


def freed_and_captured() -> Any:
    rectangle = v.copy_2d()
    ok(cuda.cuMemFree(rectangle.srcDevice))
    return cuda.cuMemcpy2DAsync(rectangle, v.captured())


TABLE = {
    "a copy goes past its end": Misuse(
        "cuMemcpyHtoD_v2",
        lambda: cuda.cuMemcpyHtoD(v.memory(), bytes(5 * KIB), 5 * KIB),
        "INVALID_VALUE",
    ),
    "freed memory is copied": Misuse("cuMemcpyDtoH_v2", m.freed_pointer_copied, "INVALID_VALUE"),
    "a copy goes past an array's row": Misuse("cuMemcpyHtoA_v2", m.out_of_array, "INVALID_VALUE"),
    "a rectangle is copied on the legacy stream amid a capture": Misuse(
        "cuMemcpy2DAsync_v2", legacy_amid_capture, "STREAM_CAPTURE_IMPLICIT"
    ),
    "a freed rectangle is captured": Misuse(
        "cuMemcpy2DAsync_v2", freed_and_captured, "INVALID_VALUE"
    ),
    "a box's layers overflow": Misuse(
        "cuMemcpy3DPeer",
        lambda: between(
            Height=2, Depth=2, srcPitch=64, srcHeight=1 << 58, dstPitch=64, dstHeight=2
        ),
        "INVALID_VALUE",
    ),
    "a box comes from a destroyed context": Misuse(
        "cuMemcpy3DPeer", lambda: between(srcContext=ended_context()), "INVALID_CONTEXT"
    ),
    # batches
    "a batch has no copies": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(sizes=(), first=()), "INVALID_VALUE"
    ),
    "a batch is queued on the legacy stream": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(on=LEGACY), "INVALID_VALUE"
    ),
    "a batch's copies have no attributes": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(first=()), "INVALID_VALUE"
    ),
    "a batch's first copy has no attributes": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(first=(1,)), "INVALID_VALUE"
    ),
    "two attributes begin with the same copy": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(first=(0, 0)), "INVALID_VALUE"
    ),
    "attributes begin past the batch's end": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(first=(0, 2)), "INVALID_VALUE"
    ),
    "a batch's sources have no order of access": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(srcAccessOrder=NO_ORDER), "INVALID_VALUE"
    ),
    "a batch's sources have an order that is none": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(srcAccessOrder=UNKNOWN_ORDER), "INVALID_VALUE"
    ),
    "a batch has unknown flags": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(flags=1 << 30), "INVALID_VALUE"
    ),
    "a batch's last copy goes past its end": Misuse(
        "cuMemcpyBatchAsync_v2", lambda: batch(sizes=(64, 5 * KIB)), "INVALID_VALUE"
    ),
    "boxes are queued on the legacy stream": Misuse(
        "cuMemcpy3DBatchAsync_v2", lambda: box(on=LEGACY), "INVALID_VALUE"
    ),
    "a box has no depth": Misuse(
        "cuMemcpy3DBatchAsync_v2", lambda: box(extent__depth=0), "INVALID_VALUE"
    ),
    "a box's source has no order of access": Misuse(
        "cuMemcpy3DBatchAsync_v2", lambda: box(srcAccessOrder=NO_ORDER), "INVALID_VALUE"
    ),
    "a box has unknown flags": Misuse(
        "cuMemcpy3DBatchAsync_v2", lambda: box(flags=1 << 30), "INVALID_VALUE"
    ),
    "a box's source is nothing": Misuse(
        "cuMemcpy3DBatchAsync_v2", lambda: box(src__type=NO_OPERAND), "INVALID_VALUE"
    ),
    "a box's only row is longer than the memory's": Misuse(
        "cuMemcpy3DBatchAsync_v2",
        lambda: box(extent__height=1, extent__depth=1, src__op__ptr__rowLength=63),
        "INVALID_VALUE",
    ),
    "a box's only layer is higher than the memory's": Misuse(
        "cuMemcpy3DBatchAsync_v2",
        lambda: box(extent__depth=1, dst__op__ptr__layerHeight=3),
        "INVALID_VALUE",
    ),
    "a box goes past an array's last layer": Misuse(
        "cuMemcpy3DBatchAsync_v2",
        lambda: box(**array(), src__op__array__offset__z=3),
        "INVALID_VALUE",
    ),
    "a box's width overflows in an array's elements": Misuse(
        "cuMemcpy3DBatchAsync_v2",
        lambda: box(**array(NumChannels=4), extent__width=1 << 62),
        "INVALID_VALUE",
    ),
    "a box is copied between arrays of other elements": Misuse(
        "cuMemcpy3DBatchAsync_v2", of_other_elements, "INVALID_VALUE"
    ),
    # sets
    "a set goes past its end": Misuse(
        "cuMemsetD8_v2", lambda: cuda.cuMemsetD8(v.memory(), 0, 5 * KIB), "INVALID_VALUE"
    ),
    "words are set at an odd address": Misuse(
        "cuMemsetD32_v2", lambda: cuda.cuMemsetD32(v.memory() + 1, 0, 1), "INVALID_VALUE"
    ),
    "a set's length overflows": Misuse(
        "cuMemsetD32_v2", lambda: cuda.cuMemsetD32(v.memory(), 0, 1 << 62), "INVALID_VALUE"
    ),
    "a set's rows overlap": Misuse(
        "cuMemsetD2D8_v2", lambda: cuda.cuMemsetD2D8(v.memory(), 8, 0, 16, 2), "INVALID_VALUE"
    ),
}
