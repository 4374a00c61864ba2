"""Virtual memory management of the software GPU: handles, addresses, and memory charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line

VMM = """
MIB = 1 << 20
invalid = cuda.CUresult.CUDA_ERROR_INVALID_VALUE
out_of_memory = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
def properties(shared=False):
    made = cuda.CUmemAllocationProp()
    made.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = 0
    if shared:
        made.requestedHandleTypes = FD
    return made
FD = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
def writable():
    access = cuda.CUmemAccessDesc()
    access.location = properties().location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return [access]
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
def refused(answer, why=invalid):
    assert answer[0] == why, answer
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


@pytest.fixture
def gpu_pair(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", "--gpus", "2")


def test_physical_memory_counts_from_create_to_the_last_handle_and_mapping(gpu: SoftGpu) -> None:
    gpu.client(
        VMM
        + """
start()
minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
assert ok(cuda.cuMemGetAllocationGranularity(properties(), minimum)) == 2 * MIB
refused(cuda.cuMemCreate(1 * MIB, properties(), 0))
refused(cuda.cuMemCreate(66 * MIB, properties(), 0), out_of_memory)
handle = ok(cuda.cuMemCreate(4 * MIB, properties(), 0))
assert used() == 4 * MIB
at = ok(cuda.cuMemAddressReserve(16 * MIB, 0, 0, 0))
assert used() == 4 * MIB
ok(cuda.cuMemMap(at, 4 * MIB, 0, handle, 0))
ok(cuda.cuMemRelease(handle))
refused(cuda.cuMemRelease(handle))
assert used() == 4 * MIB
again = ok(cuda.cuMemRetainAllocationHandle(int(at)))
ok(cuda.cuMemUnmap(at, 4 * MIB))
assert used() == 4 * MIB
ok(cuda.cuMemRelease(again))
assert used() == 0
ok(cuda.cuMemAddressFree(at, 16 * MIB))
refused(cuda.cuMemAddressFree(at, 16 * MIB))
say(done=True)
"""
    )


def test_a_mapping_is_readable_after_access_was_set_and_keeps_its_bytes(gpu: SoftGpu) -> None:
    gpu.client(
        VMM
        + """
start()
at = int(ok(cuda.cuMemAddressReserve(8 * MIB, 0, 0, 0)))
first, second = (ok(cuda.cuMemCreate(2 * MIB, properties(), 0)) for _ in range(2))
ok(cuda.cuMemMap(at, 2 * MIB, 0, first, 0))
ok(cuda.cuMemMap(at + 2 * MIB, 2 * MIB, 0, second, 0))
refused(cuda.cuMemMap(at + 2 * MIB, 2 * MIB, 0, first, 0))
refused(cuda.cuMemMap(at + 6 * MIB, 4 * MIB, 0, first, 0))
sent = bytes(range(256)) * 16384
refused(cuda.cuMemcpyHtoD(at, sent, len(sent)))
refused(cuda.cuMemSetAccess(at, 6 * MIB, writable(), 1))
ok(cuda.cuMemSetAccess(at, 4 * MIB, writable(), 1))
assert ok(cuda.cuMemGetAccess(properties().location, at)) == 3
ok(cuda.cuMemcpyHtoD(at, sent, len(sent)))
refused(cuda.cuMemcpyHtoD(at + 2 * MIB, sent, len(sent)))
refused(cuda.cuMemUnmap(at, 6 * MIB))
refused(cuda.cuMemFree(at))
refused(cuda.cuMemAddressFree(at, 8 * MIB))
ok(cuda.cuMemUnmap(at, 4 * MIB))
refused(cuda.cuMemUnmap(at, 4 * MIB))
ok(cuda.cuMemMap(at + 6 * MIB, 2 * MIB, 0, second, 0))
ok(cuda.cuMemSetAccess(at + 6 * MIB, 2 * MIB, writable(), 1))
back = bytearray(2 * MIB)
ok(cuda.cuMemcpyDtoH(back, at + 6 * MIB, 2 * MIB))
assert back == sent[2 * MIB:]
say(done=True)
"""
    )


def test_an_exported_handle_shows_the_same_bytes_and_is_counted_once(gpu: SoftGpu) -> None:
    owner = gpu.start_client(
        VMM
        + """
start()
handle = ok(cuda.cuMemCreate(2 * MIB, properties(True), 0))
refused(cuda.cuMemExportToShareableHandle(ok(cuda.cuMemCreate(2 * MIB, properties(), 0)), FD, 0))
fd = ok(cuda.cuMemExportToShareableHandle(handle, FD, 0))
at = ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0))
ok(cuda.cuMemMap(at, 2 * MIB, 0, handle, 0))
ok(cuda.cuMemSetAccess(at, 2 * MIB, writable(), 1))
ok(cuda.cuMemsetD8(at, 7, 2 * MIB))
say(pid=os.getpid(), fd=int(fd))
sys.stdin.read()
back = bytearray(4)
ok(cuda.cuMemcpyDtoH(back, at, 4))
say(back=list(back))
"""
    )
    place = first_line(owner)
    gpu.client(
        VMM
        + f"""
start()
fd = os.open("/proc/{place["pid"]}/fd/{place["fd"]}", os.O_RDWR)
"""
        + """
refused(cuda.cuMemImportFromShareableHandle(0, FD))
handle = ok(cuda.cuMemImportFromShareableHandle(fd, FD))
os.close(fd)
assert ok(cuda.cuMemGetAllocationPropertiesFromHandle(handle)).location.id == 0
at = ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0))
ok(cuda.cuMemMap(at, 2 * MIB, 0, handle, 0))
ok(cuda.cuMemSetAccess(at, 2 * MIB, writable(), 1))
back = bytearray(3)
ok(cuda.cuMemcpyDtoH(back, at, 3))
assert back == bytes([7] * 3)
ok(cuda.cuMemsetD8(at, 9, 2))
assert used() == 4 * MIB
ok(cuda.cuMemUnmap(at, 2 * MIB))
ok(cuda.cuMemRelease(handle))
assert used() == 4 * MIB
say(done=True)
"""
    )
    assert answer(owner) == {"back": [9, 9, 7, 7]}


def test_a_mapping_shows_the_part_of_the_memory_that_it_names(gpu: SoftGpu) -> None:
    gpu.client(
        VMM
        + """
start()
whole = ok(cuda.cuMemCreate(4 * MIB, properties(), 0))
at = int(ok(cuda.cuMemAddressReserve(8 * MIB, 0, 0, 0)))
ok(cuda.cuMemMap(at, 4 * MIB, 0, whole, 0))
ok(cuda.cuMemMap(at + 4 * MIB, 2 * MIB, 2 * MIB, whole, 0))
ok(cuda.cuMemSetAccess(at, 6 * MIB, writable(), 1))
ok(cuda.cuMemsetD8(at, 1, 2 * MIB))
ok(cuda.cuMemsetD8(at + 2 * MIB, 2, 2 * MIB))
back = bytearray(4)
ok(cuda.cuMemcpyDtoH(back, at + 4 * MIB, 4))
assert back == bytes([2] * 4)
assert used() == 4 * MIB
say(done=True)
"""
    )


def test_access_is_per_device_and_revocable(gpu_pair: SoftGpu) -> None:
    gpu_pair.client(
        VMM
        + """
start()
def access(device, flags):
    made = writable()
    made[0].location.id, made[0].flags = device, cuda.CUmemAccess_flags(flags)
    return made
def places():
    where = properties().location
    found = []
    for device in range(2):
        where.id = device
        found.append(ok(cuda.cuMemGetAccess(where, at)))
    return found
at = int(ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0)))
ok(cuda.cuMemMap(at, 2 * MIB, 0, ok(cuda.cuMemCreate(2 * MIB, properties(), 0)), 0))
assert places() == [0, 0]
ok(cuda.cuMemSetAccess(at, 2 * MIB, access(0, 3), 1))
assert places() == [3, 0]
ok(cuda.cuMemSetAccess(at, 2 * MIB, access(1, 1), 1))
assert places() == [3, 1]
ok(cuda.cuMemsetD8(at, 7, 8))
ok(cuda.cuMemSetAccess(at, 2 * MIB, access(0, 0), 1))
ok(cuda.cuMemSetAccess(at, 2 * MIB, access(1, 0), 1))
assert places() == [0, 0]
refused(cuda.cuMemsetD8(at, 7, 8))
say(done=True)
"""
    )


def test_physical_memory_of_the_host_is_on_no_gpus_account(gpu: SoftGpu) -> None:
    gpu.client(
        VMM
        + """
start()
on_host = properties()
on_host.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
handle = ok(cuda.cuMemCreate(4 * MIB, on_host, 0))
assert used() == 0
ok(cuda.cuMemRelease(handle))
assert used() == 0
say(done=True)
"""
    )


def test_imported_memory_lies_where_the_importer_sees_its_gpu(gpu_pair: SoftGpu) -> None:
    owner = gpu_pair.start_client(
        VMM
        + """
start(1)
wish = properties(True)
wish.location.id = 1
handle = ok(cuda.cuMemCreate(2 * MIB, wish, 0))
say(pid=os.getpid(), fd=int(ok(cuda.cuMemExportToShareableHandle(handle, FD, 0))))
sys.stdin.read()
say(done=True)
"""
    )
    place = first_line(owner)
    (gpu_pair.root / "dev" / "nvidia0").unlink()
    gpu_pair.client(
        VMM
        + f"""
start()
fd = os.open("/proc/{place["pid"]}/fd/{place["fd"]}", os.O_RDWR)
"""
        + """
assert ok(cuda.cuDeviceGetCount()) == 1
handle = ok(cuda.cuMemImportFromShareableHandle(fd, FD))
assert ok(cuda.cuMemGetAllocationPropertiesFromHandle(handle)).location.id == 0
assert used() == 2 * MIB
say(done=True)
"""
    )
    assert answer(owner) == {"done": True}
