"""Memory cached in pools is charged, and freed before an allocation is refused."""

from __future__ import annotations

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, MIB, PYTHON, share

PRELUDE = (
    START
    + """
MIB = 1 << 20
A = cu.CUmemPool_attribute
def free_now():
    return must(cu.cuMemGetInfo())[0] // MIB
def keep_all(pool):
    threshold = cu.cuuint64_t(2**64 - 1)
    must(cu.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold))
    return pool
def usual():
    return must(cu.cuDeviceGetDefaultMemPool(device))
def created():
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return must(cu.cuMemPoolCreate(props))
def allocate(pool, mib):
    return must(cu.cuMemAllocFromPoolAsync(mib * MIB, pool, 0))
def free(*pointers):
    for pointer in pointers:
        must(cu.cuMemFreeAsync(pointer, 0))
"""
)
FULL = "CUDA_ERROR_OUT_OF_MEMORY"
OK = "CUDA_SUCCESS"


@pytest.fixture
def on_the_gpu(host, new_guest):
    """MiB that all containers hold of the GPU, as a container with all of it sees them."""
    whole = new_guest(share(host.uuids[0], 16 * GIB))

    def look() -> int:
        code = (
            PRELUDE + "free, all = must(cu.cuMemGetInfo())\nprint(json.dumps((all - free) // MIB))"
        )
        return whole.python(code)

    return look


@pytest.mark.parametrize("pool", ["usual", "created"])
def test_memory_that_a_pool_keeps_is_charged_until_the_pool_is_trimmed(host, new_guest, pool):
    code = (
        PRELUDE
        + f"""
pool = keep_all({pool}())
free(allocate(pool, 600))
must(cu.cuCtxSynchronize())
kept = free_now()
import subprocess
other = subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True)
must(cu.cuMemPoolTrimTo(pool, 100 * MIB))
print(json.dumps([kept, json.loads(other.stdout), free_now()]))
"""
    )
    other = PRELUDE + "print(json.dumps(cu.cuMemAlloc(500 * MIB)[0].name))"
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code, other) == [424, FULL, 924]


def test_pools_that_retain_all_memory_stay_within_the_share(host, new_guest, on_the_gpu):
    code = (
        PRELUDE
        + """
pools = [keep_all(created()) for _ in range(25)]
for pool in pools:
    free(allocate(pool, 600))
print(json.dumps(free_now()), flush=True)
sys.stdin.read()
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    holder = guest.start(PYTHON, "-c", PRELUDE + code, stdin=-1)
    assert holder.stdout.readline() == "424\n"
    assert on_the_gpu() == 600
    assert guest.read_usage().gpus[0].refusals == 0
    holder.communicate()


ASKED = {
    "cuMemAlloc": "cu.cuMemAlloc(700 * MIB)",
    "another pool": "cu.cuMemAllocFromPoolAsync(700 * MIB, created(), 0)",
    "the same pool, in pieces that do not fit": "cu.cuMemAllocFromPoolAsync(700 * MIB, pool, 0)",
}


@pytest.mark.parametrize("way", ASKED)
def test_cached_pool_memory_is_freed_before_a_refusal(host, new_guest, way):
    code = (
        PRELUDE
        + f"""
pool = keep_all(usual())
held = allocate(pool, 300)
free(allocate(pool, 500))
def ask():
    return {ASKED[way]}
first = ask()
answers = [first[0].name, ask()[0].name, free_now()]
print(json.dumps(answers))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code) == [OK, FULL, 24]
    assert guest.read_usage().gpus[0].refusals == 1


def test_freed_memory_serves_the_next_allocation_and_goes_back_at_a_wait(host, new_guest):
    code = (
        PRELUDE
        + """
seen = []
for _ in range(5):
    memory = must(cu.cuMemAllocAsync(600 * MIB, 0))
    free(memory)
    seen.append(free_now())
must(cu.cuStreamSynchronize(0))
print(json.dumps([seen, free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code) == [[424] * 5, 1024]


def test_a_pool_is_charged_the_granules_that_the_driver_takes(host, new_guest, on_the_gpu):
    code = (
        PRELUDE
        + """
pool = created()
first = must(cu.cuMemAllocFromPoolAsync(1, pool, 0))
seen = [free_now(), must(cu.cuMemGetInfo())[0] % MIB]
other = created()
refused = cu.cuMemAllocFromPoolAsync(1, other, 0)[0].name
within = cu.cuMemAllocFromPoolAsync(2 * MIB - 512, pool, 0)[0].name
print(json.dumps([seen, refused, within, free_now()]), flush=True)
sys.stdin.read()
"""
    )
    guest = new_guest(share(host.uuids[0], 3 * MIB))
    holder = guest.start(PYTHON, "-c", code, stdin=-1)
    assert holder.stdout.readline() == f'[[1, 0], "{FULL}", "{OK}", 1]\n'
    assert on_the_gpu() == 2
    holder.communicate()


def test_a_destroyed_pool_is_charged_what_is_still_allocated(host, new_guest):
    code = (
        PRELUDE
        + """
pool = keep_all(created())
live, freed = allocate(pool, 200), allocate(pool, 300)
free(freed)
seen = [free_now()]
must(cu.cuMemPoolDestroy(pool))
seen.append(free_now())
free(live)
seen.append(free_now())
for _ in range(1000):
    pool = created()
    free(allocate(pool, 2))
    must(cu.cuMemPoolDestroy(pool))
seen.append(free_now())
print(json.dumps(seen))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code) == [524, 824, 1024, 1024]


def test_the_devices_current_pool_is_the_one_that_is_charged(host, new_guest):
    code = (
        PRELUDE
        + """
own = created()
first = must(cu.cuMemAllocAsync(100 * MIB, 0))
must(cu.cuDeviceSetMemPool(device, keep_all(own)))
second = must(cu.cuMemAllocAsync(200 * MIB, 0))
free(first, second)
must(cu.cuCtxSynchronize())
seen = [free_now()]
must(cu.cuMemPoolDestroy(own))
third = must(cu.cuMemAllocAsync(50 * MIB, 0))
print(json.dumps([*seen, free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code) == [824, 974]
