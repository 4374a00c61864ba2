"""Misuses of sparse and deferred arrays, with the answers of cuda.h."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from softgpu.calls import cuda_mistakes
from softgpu.calls import cuda_values as v
from softgpu.calls.cuda_mistakes import Misuse, array
from softgpu.calls.cuda_values import MIB, fields, ok

DEFERRED = 0x80  # CUDA_ARRAY3D_DEFERRED_MAPPING
MIP_TAIL = cuda.CUarraySparseSubresourceType.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
UNMAP = cuda.CUmemOperationType.CU_MEM_OPERATION_TYPE_UNMAP


def mapped(stream: Any = 0, **wrong: Any) -> Any:
    """The answer to an operation with WRONG values, or with what they make."""
    values = {name: value() if callable(value) else value for name, value in wrong.items()}
    return cuda.cuMemMapArrayAsync([fields(v.map_operation(), **values)], 1, stream)


def level() -> Any:
    return ok(cuda.cuMipmappedArrayGetLevel(v.sparse_mipmap(), 0))


def plain() -> Any:
    return ok(cuda.cuArray3DCreate(v.array_shape(three=True)))


def exportable_tile_pool() -> Any:
    shape = fields(v.physical_shape(), allocFlags__usage=v.TILE_POOL)
    return cuda.cuMemCreate(2 * MIB, shape, 0)


def tile_pool_at_addresses() -> Any:
    return cuda.cuMemMap(v.reserved(), 2 * MIB, 0, v.tile_pool(), 0)


def after_the_array(operation: Any) -> Any:
    ok(cuda.cuArrayDestroy(operation.resource.array))
    return cuda.cuMemMapArrayAsync([operation], 1, 0)


def after_the_context(operation: Any) -> Any:
    return cuda_mistakes.after_the_context(
        lambda one: cuda.cuMemMapArrayAsync([one], 1, 0), operation
    )


def mapping(does: str, **wrong: Any) -> tuple[str, Misuse]:
    return does, Misuse("cuMemMapArrayAsync", lambda: mapped(**wrong), "INVALID_VALUE")


TABLE = {
    "a sparse array is of one dimension": Misuse(
        "cuArray3DCreate_v2", lambda: array(Height=0, Flags=v.SPARSE), "INVALID_VALUE"
    ),
    "a sparse array is mapped as a whole": Misuse(
        "cuArray3DCreate_v2", lambda: array(Flags=v.SPARSE | DEFERRED), "INVALID_VALUE"
    ),
    "a plain array has sparse properties": Misuse(
        "cuArrayGetSparseProperties",
        lambda: cuda.cuArrayGetSparseProperties(plain()),
        "INVALID_VALUE",
    ),
    "a level has sparse properties": Misuse(
        "cuArrayGetSparseProperties",
        lambda: cuda.cuArrayGetSparseProperties(level()),
        "INVALID_VALUE",
    ),
    "a sparse array needs memory of its own": Misuse(
        "cuArrayGetMemoryRequirements",
        lambda: cuda.cuArrayGetMemoryRequirements(v.sparse_array(), 0),
        "INVALID_VALUE",
    ),
    "memory of a tile pool can be exported": Misuse(
        "cuMemCreate", exportable_tile_pool, "INVALID_VALUE"
    ),
    "memory of a tile pool is mapped to addresses": Misuse(
        "cuMemMap", tile_pool_at_addresses, "INVALID_VALUE"
    ),
    "an array is mapped in a capture": Misuse(
        "cuMemMapArrayAsync", lambda: mapped(v.captured()), "STREAM_CAPTURE_UNSUPPORTED"
    ),
    "a mapping of tiles is no operation": Misuse(
        "cuMemMapArrayAsync", lambda: cuda.cuMemMapArrayAsync([], 0, 0), "INVALID_VALUE"
    ),
    "an array of a context that ended is mapped": Misuse(
        "cuMemMapArrayAsync", lambda: after_the_context(v.map_operation()), "INVALID_HANDLE"
    ),
    "a destroyed array is mapped": Misuse(
        "cuMemMapArrayAsync", lambda: after_the_array(v.map_operation()), "INVALID_HANDLE"
    ),
    **dict(
        [
            mapping("a plain array is mapped", resource__array=plain),
            mapping("a level is mapped as an array", resource__array=level),
            mapping("memory of no tile pool is mapped", memHandle__memHandle=v.physical),
            mapping("tiles are mapped amid the memory's", offset=4096),
            mapping("tiles are mapped past the memory", offset=2 * MIB),
            mapping("tiles are mapped on no device", deviceBitMask=0),
            mapping("tiles are mapped on two devices", deviceBitMask=3),
            mapping("tiles are mapped with flags", flags=1),
            mapping("tiles are unmapped from memory", memOperationType=UNMAP),
            mapping("part of a tile is mapped", subresource__sparseLevel__extentWidth=128),
            mapping("tiles are mapped amid a tile", subresource__sparseLevel__offsetX=128),
            mapping("tiles are mapped past the array", subresource__sparseLevel__extentWidth=512),
            mapping("no tile is mapped", subresource__sparseLevel__extentHeight=0),
            mapping("tiles of no level are mapped", subresource__sparseLevel__level=1),
            mapping("tiles of no layer are mapped", subresource__sparseLevel__layer=1),
            mapping("a mip tail is mapped that is not there", subresourceType=MIP_TAIL),
        ]
    ),
}
