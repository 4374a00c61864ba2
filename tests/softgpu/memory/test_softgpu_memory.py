"""Memory of the software GPU is counted exactly by process and freed at the process's end."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line

GIB = 1 << 30


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "4GiB")


def test_a_process_can_allocate_the_gpus_memory_to_the_last_byte(gpu: SoftGpu) -> None:
    assert gpu.workload("alloc", "--chunk", "100MiB") == {
        "allocated_bytes": 40 * 100 * (1 << 20),
        "exact_bytes": 4 * GIB,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }


def test_two_processes_share_one_account(gpu: SoftGpu) -> None:
    holder = gpu.start_workload("hold", "--bytes", str(GIB + 1), "--seconds", "60")
    assert first_line(holder) == {"held_bytes": GIB + 1, "error": "CUDA_SUCCESS"}
    assert gpu.workload("info")["devices"][0]["free_bytes"] == 3 * GIB - 1
    assert gpu.workload("alloc")["exact_bytes"] == 3 * GIB - 1
    holder.kill()
    holder.communicate()


def test_a_killed_processs_memory_is_given_back(gpu: SoftGpu) -> None:
    for _ in range(20):
        holder = gpu.start_workload("hold", "--bytes", "4GiB", "--seconds", "60")
        assert first_line(holder)["error"] == "CUDA_SUCCESS"
        holder.kill()
        holder.communicate()
    assert gpu.workload("info")["devices"][0]["free_bytes"] == 4 * GIB


def test_processes_killed_at_any_moment_leak_nothing_and_stop_no_other(gpu: SoftGpu) -> None:
    churn = """
start()
say(ready=True)
while True:
    ok(cuda.cuMemFree(ok(cuda.cuMemAlloc(1 << 20))))
"""
    moments = random.Random(2)
    for _ in range(8):
        busy = [gpu.start_client(churn) for _ in range(3)]
        for process in busy:
            first_line(process)
        time.sleep(moments.uniform(0, 0.02))
        for process in busy:
            process.kill()
        for process in busy:
            process.communicate()
    assert gpu.workload("alloc", "--chunk", "1GiB")["exact_bytes"] == 4 * GIB


def test_freed_memory_and_a_destroyed_contexts_memory_are_available_again(gpu: SoftGpu) -> None:
    free = gpu.client("""
context = start()
free = [ok(cuda.cuMemGetInfo())[0]]
block = ok(cuda.cuMemAlloc(1000))
ok(cuda.cuMemAllocManaged(24, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
ok(cuda.cuMemAllocHost(1 << 20))
free.append(ok(cuda.cuMemGetInfo())[0])
ok(cuda.cuMemFree(block))
free.append(ok(cuda.cuMemGetInfo())[0])
assert cuda.cuMemFree(block)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
ok(cuda.cuCtxDestroy(context))
start()
free.append(ok(cuda.cuMemGetInfo())[0])
say(free=free)
""")["free"]
    assert [4 * GIB - bytes_free for bytes_free in free] == [0, 1024, 24, 0]


def test_copies_and_sets_really_move_bytes(gpu: SoftGpu) -> None:
    gpu.client("""
start()
sent = bytes(range(256)) * 16
first, second = ok(cuda.cuMemAlloc(4096)), ok(cuda.cuMemAlloc(4096))
ok(cuda.cuMemcpyHtoD(first, sent, 4096))
ok(cuda.cuMemcpyDtoD(second, first, 4096))
back = bytearray(4096)
ok(cuda.cuMemcpyDtoH(back, second, 4096))
assert back == sent
ok(cuda.cuMemsetD8(second, 7, 10))
ok(cuda.cuMemsetD32(int(second) + 12, 0x01020304, 2))
ok(cuda.cuMemcpyDtoHAsync(back, second, 4096, 0))
ok(cuda.cuCtxSynchronize())
assert back == bytes([7] * 10) + sent[10:12] + bytes([4, 3, 2, 1] * 2) + sent[20:]
assert cuda.cuMemcpyDtoD(second, first, 4097)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
say(done=True)
""")


def test_fork_of_an_initialised_process_must_initialise_and_inherits_nothing(
    gpu: SoftGpu,
) -> None:
    """A child that outlives its parent must not keep the parent's memory counted."""
    parent = gpu.start_client("""
start()
ok(cuda.cuMemAlloc(1 << 30))
child = os.fork()
if child == 0:
    assert cuda.cuMemGetInfo()[0] == cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED
    os.close(1), os.close(2)
    time.sleep(5)
    os._exit(0)
say(child=child)
""")
    assert answer(parent)["child"] > 0
    assert gpu.workload("info")["devices"][0]["free_bytes"] == 4 * GIB


def test_a_fork_before_initialisation_works(gpu: SoftGpu) -> None:
    gpu.client("""
child = os.fork()
if child == 0:
    start()
    ok(cuda.cuMemAlloc(100))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
start()
say(done=True)
""")


def test_memory_from_pools_is_counted_and_a_pools_own_limit_holds(gpu: SoftGpu) -> None:
    gpu.client("""
start()
total = ok(cuda.cuMemGetInfo())[1]
def used():
    return total - ok(cuda.cuMemGetInfo())[0]
properties = cuda.CUmemPoolProps()
properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.maxSize = 1000
pool = ok(cuda.cuMemPoolCreate(properties))
out_of_memory = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
block = ok(cuda.cuMemAllocFromPoolAsync(600, pool, 0))
assert cuda.cuMemAllocFromPoolAsync(401, pool, 0)[0] == out_of_memory
ok(cuda.cuMemAllocFromPoolAsync(400, pool, 0))
plain = ok(cuda.cuMemAllocAsync(5000, 0))
granule = 2 << 20
assert used() == 2 * granule
assert cuda.cuMemAllocAsync(total, 0)[0] == out_of_memory
ok(cuda.cuMemFreeAsync(block, 0)), ok(cuda.cuMemFreeAsync(plain, 0))
assert used() == 2 * granule
ok(cuda.cuStreamSynchronize(0))
assert used() == granule
ok(cuda.cuMemAllocFromPoolAsync(600, pool, 0))
default = ok(cuda.cuDeviceGetDefaultMemPool(0))
attribute = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
assert int(ok(cuda.cuMemPoolGetAttribute(default, attribute))) == 5000
say(done=True)
""")


def test_the_hosts_own_memory_can_be_registered_and_counts_nowhere(gpu: SoftGpu) -> None:
    gpu.client("""
start()
buffer = ctypes.create_string_buffer(4096)
address = ctypes.addressof(buffer)
ok(cuda.cuMemHostRegister(address, 4096, 0))
again = cuda.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
assert cuda.cuMemHostRegister(address, 4096, 0)[0] == again
kind = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
assert int(ok(cuda.cuPointerGetAttribute(kind, address))) == 1
free, total = ok(cuda.cuMemGetInfo())
assert free == total
ok(cuda.cuMemHostUnregister(address))
assert cuda.cuMemHostUnregister(address)[0] != 0
say(done=True)
""")
