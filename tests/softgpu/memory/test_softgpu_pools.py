"""The software GPU's memory pools: the pool of an asynchronous allocation, and cached memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu

POOLS = """
R = cuda.CUresult
A = cuda.CUmemPool_attribute
MIB = 1 << 20
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return (total - free) // MIB
def refused(answer, why):
    assert answer[0] == why, answer
def pool_of(device, most=0):
    made = cuda.CUmemPoolProps()
    made.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id, made.maxSize = device, most
    return ok(cuda.cuMemPoolCreate(made))
def keep(pool, bytes):
    threshold = A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(bytes)))
def marks(pool):
    names = (A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, A.CU_MEMPOOL_ATTR_USED_MEM_HIGH,
             A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, A.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
    return [int(ok(cuda.cuMemPoolGetAttribute(pool, name))) // MIB for name in names]
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


def test_asynchronous_allocations_come_from_the_devices_pool_until_it_is_destroyed(
    gpu: SoftGpu,
) -> None:
    gpu.client(
        POOLS
        + """
start()
usual = ok(cuda.cuDeviceGetDefaultMemPool(0))
small = pool_of(0, 8 * MIB)
assert int(ok(cuda.cuDeviceGetMemPool(0))) == int(usual)
ok(cuda.cuDeviceSetMemPool(0, small))
assert int(ok(cuda.cuDeviceGetMemPool(0))) == int(small)
refused(cuda.cuDeviceSetMemPool(1, small), R.CUDA_ERROR_INVALID_VALUE)
block = ok(cuda.cuMemAllocAsync(6 * MIB, 0))
refused(cuda.cuMemAllocAsync(4 * MIB, 0), R.CUDA_ERROR_OUT_OF_MEMORY)
assert (marks(small)[0], marks(usual)[0], used()) == (6, 0, 6)
ok(cuda.cuMemPoolDestroy(small))
assert int(ok(cuda.cuDeviceGetMemPool(0))) == int(usual)
ok(cuda.cuMemAllocAsync(8 * MIB, 0))
assert (marks(usual)[0], used()) == (8, 14)
ok(cuda.cuMemFreeAsync(block, 0))
assert used() == 8
say(done=True)
"""
    )


def test_an_asynchronous_allocation_is_on_the_gpu_of_its_stream(gpu: SoftGpu) -> None:
    gpu.client(
        POOLS
        + """
second = start(1)
stream = ok(cuda.cuStreamCreate(0))
first = start(0)
ok(cuda.cuMemAllocAsync(4 * MIB, stream))
ok(cuda.cuMemAllocFromPoolAsync(2 * MIB, pool_of(1), 0))
on_first = used()
ok(cuda.cuCtxSetCurrent(second))
assert (on_first, used()) == (0, 6)
say(done=True)
"""
    )


def test_destroyed_pool_retains_only_memory_in_use(gpu: SoftGpu) -> None:
    gpu.client(
        POOLS
        + """
start()
pool = pool_of(0)
keep(pool, 64 * MIB)
live, freed = (ok(cuda.cuMemAllocFromPoolAsync(2 * MIB, pool, 0)) for _ in range(2))
ok(cuda.cuMemFreeAsync(freed, 0))
assert used() == 4
ok(cuda.cuMemPoolDestroy(pool))
assert used() == 2
ok(cuda.cuMemFreeAsync(live, 0))
assert used() == 0
say(done=True)
"""
    )


def test_a_pools_high_water_marks_stand_until_they_are_reset(gpu: SoftGpu) -> None:
    gpu.client(
        POOLS
        + """
start()
pool = pool_of(0)
keep(pool, 4 * MIB)
blocks = [ok(cuda.cuMemAllocFromPoolAsync(2 * MIB, pool, 0)) for _ in range(3)]
for block in blocks[1:]:
    ok(cuda.cuMemFreeAsync(block, 0))
assert marks(pool) == [2, 6, 6, 6]
ok(cuda.cuCtxSynchronize())
assert marks(pool) == [2, 6, 4, 6]
ok(cuda.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_USED_MEM_HIGH, cuda.cuuint64_t(0)))
assert marks(pool) == [2, 2, 4, 6]
ok(cuda.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, cuda.cuuint64_t(0)))
assert marks(pool) == [2, 2, 4, 4]
say(done=True)
"""
    )


def test_pool_retains_granules_until_any_synchronisation(gpu: SoftGpu) -> None:
    gpu.client(
        POOLS
        + """
start()
stream, event = ok(cuda.cuStreamCreate(1)), ok(cuda.cuEventCreate(0))
pool = pool_of(0)
def waits():
    yield lambda: cuda.cuStreamSynchronize(stream)
    yield lambda: cuda.cuEventSynchronize(event)
    yield lambda: cuda.cuCtxSynchronize()
for wait in waits():
    block = ok(cuda.cuMemAllocFromPoolAsync(3 * MIB, pool, stream))
    ok(cuda.cuEventRecord(event, stream))
    assert (marks(pool), used()) == ([3, 3, 4, 4], 4)
    ok(cuda.cuMemFreeAsync(block, stream))
    assert (marks(pool), used()) == ([0, 3, 4, 4], 4)
    ok(wait())
    assert (marks(pool), used()) == ([0, 3, 0, 4], 0)
say(done=True)
"""
    )
