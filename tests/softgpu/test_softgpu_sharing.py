"""The software GPU between processes: IPC, shared pools, external memory, and which process is
charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line, go_on

SHARING = """
R = cuda.CUresult
MIB = 1 << 20
def used():
    free, total = ok(cuda.cuMemGetInfo())
    return total - free
def refused(answer, why):
    assert answer[0] == why, answer
def at(pointer, bytes):
    back = bytearray(bytes)
    ok(cuda.cuMemcpyDtoH(back, pointer, bytes))
    return list(back)
def packed(handle):
    return ctypes.string_at(handle.getPtr(), 64).hex()
def unpack(handle, text):
    ctypes.memmove(handle.getPtr(), bytes.fromhex(text), 64)
    return handle
FD = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB")


@pytest.mark.parametrize("size", [100, 4 << 20], ids=["a small block", "a large block"])
def test_an_opened_handle_shows_the_owners_bytes_and_counts_once(gpu: SoftGpu, size: int) -> None:
    owner = gpu.start_client(
        SHARING
        + f"""
start()
size = {size}
other = ok(cuda.cuMemAlloc(size))
memory = ok(cuda.cuMemAlloc(size))
ok(cuda.cuMemsetD8(other, 1, size))
ok(cuda.cuMemsetD8(memory, 7, size))
handle = ok(cuda.cuIpcGetMemHandle(memory))
refused(cuda.cuIpcOpenMemHandle(handle, 1), R.CUDA_ERROR_INVALID_CONTEXT)
say(handle=packed(handle))
sys.stdin.read()
say(back=at(memory, 4), other=at(other, 4))
"""
    )
    handle = first_line(owner)["handle"]
    gpu.client(
        SHARING
        + f"""
start()
size = {size}
handle = unpack(cuda.CUipcMemHandle(), "{handle}")
"""
        + """
memory = ok(cuda.cuIpcOpenMemHandle(handle, 1))
assert int(ok(cuda.cuIpcOpenMemHandle(handle, 1))) == int(memory)
assert used() == 2 * size
assert at(memory, size) == [7] * size
ok(cuda.cuMemsetD8(memory, 9, 2))
refused(cuda.cuMemFree(memory), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuIpcCloseMemHandle(memory))
assert at(memory, 1) == [9]
ok(cuda.cuIpcCloseMemHandle(memory))
refused(cuda.cuIpcCloseMemHandle(memory), R.CUDA_ERROR_INVALID_VALUE)
assert used() == 2 * size
say(done=True)
"""
    )
    assert answer(owner) == {"back": [9, 9, 7, 7], "other": [1] * 4}


def test_opened_memory_outlives_its_killed_owner_uncharged(gpu: SoftGpu) -> None:
    owner = gpu.start_client(
        SHARING
        + """
start()
memory = ok(cuda.cuMemAlloc(4 * MIB))
ok(cuda.cuMemsetD8(memory, 7, 4 * MIB))
say(handle=packed(ok(cuda.cuIpcGetMemHandle(memory))))
sys.stdin.read()
"""
    )
    handle = first_line(owner)["handle"]
    user = gpu.start_client(
        SHARING
        + f"""
start()
handle = unpack(cuda.CUipcMemHandle(), "{handle}")
"""
        + """
memory = ok(cuda.cuIpcOpenMemHandle(handle, 1))
say(used=used())
sys.stdin.readline()
left = [used(), at(memory, 2)]
ok(cuda.cuIpcCloseMemHandle(memory))
say(left=left, again=cuda.cuIpcOpenMemHandle(handle, 1)[0].name)
"""
    )
    assert first_line(user) == {"used": 4 << 20}
    owner.kill()
    owner.communicate()
    go_on(user)
    assert answer(user) == {"left": [0, [7, 7]], "again": "CUDA_ERROR_INVALID_HANDLE"}


def test_an_event_of_another_process_is_waited_for(gpu: SoftGpu) -> None:
    owner = gpu.start_client(
        SHARING
        + """
start()
function = kernel(b"spin")
refused(cuda.cuEventCreate(4), R.CUDA_ERROR_INVALID_VALUE)
event = ok(cuda.cuEventCreate(6))
say(handle=packed(ok(cuda.cuIpcGetEventHandle(event))))
sys.stdin.readline()
spin(function, 2_000_000_000)
ok(cuda.cuEventRecord(event, 0))
say(recorded=True)
sys.stdin.read()
say(done=True)
"""
    )
    handle = first_line(owner)["handle"]
    waiter = gpu.start_client(
        SHARING
        + f"""
start()
handle = unpack(cuda.CUipcEventHandle(), "{handle}")
"""
        + """
event = ok(cuda.cuIpcOpenEventHandle(handle))
say(opened=True)
sys.stdin.readline()
refused(cuda.cuEventQuery(event), R.CUDA_ERROR_NOT_READY)
ok(cuda.cuEventSynchronize(event))
ok(cuda.cuEventQuery(event))
ok(cuda.cuEventRecord(event, 0))
ok(cuda.cuEventSynchronize(event))
say(done=True)
"""
    )
    first_line(waiter)
    go_on(owner)
    assert first_line(owner) == {"recorded": True}
    go_on(waiter)
    answer(waiter)
    answer(owner)


def test_a_pool_is_shared_and_its_pointers_count_with_the_exporter(gpu: SoftGpu) -> None:
    owner = gpu.start_client(
        SHARING
        + """
start()
properties = cuda.CUmemPoolProps()
properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.handleTypes = FD
pool = ok(cuda.cuMemPoolCreate(properties))
memory = ok(cuda.cuMemAllocFromPoolAsync(2 * MIB, pool, 0))
ok(cuda.cuMemsetD8(memory, 3, 2 * MIB))
data = ok(cuda.cuMemPoolExportPointer(memory))
fd = ok(cuda.cuMemPoolExportToShareableHandle(pool, FD, 0))
say(pid=os.getpid(), fd=int(fd), data=packed(data))
sys.stdin.read()
ok(cuda.cuMemFreeAsync(memory, 0))
ok(cuda.cuStreamSynchronize(0))
assert used() == 0
say(done=True)
"""
    )
    place = first_line(owner)
    gpu.client(
        SHARING
        + f"""
start()
fd = os.open("/proc/{place["pid"]}/fd/{place["fd"]}", os.O_RDWR)
data = unpack(cuda.CUmemPoolPtrExportData(), "{place["data"]}")
"""
        + """
pool = ok(cuda.cuMemPoolImportFromShareableHandle(fd, FD, 0))
refused(cuda.cuMemAllocFromPoolAsync(8, pool, 0), R.CUDA_ERROR_INVALID_VALUE)
memory = ok(cuda.cuMemPoolImportPointer(pool, data))
assert at(memory, 2) == [3, 3]
assert used() == 2 * MIB
ok(cuda.cuMemFreeAsync(memory, 0))
refused(cuda.cuMemFree(memory), R.CUDA_ERROR_INVALID_VALUE)
assert used() == 2 * MIB
say(done=True)
"""
    )
    answer(owner)


def test_external_memory_is_mapped_and_freed(gpu: SoftGpu) -> None:
    gpu.client(
        SHARING
        + """
start()
fd = os.memfd_create("external")
os.ftruncate(fd, 2 * MIB)
os.pwrite(fd, b"abcd", MIB)
wish = cuda.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
wish.type = cuda.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
wish.handle.fd, wish.size = fd, 3 * MIB
refused(cuda.cuImportExternalMemory(wish), R.CUDA_ERROR_INVALID_VALUE)
wish.size = 2 * MIB
memory = ok(cuda.cuImportExternalMemory(wish))
part = cuda.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
part.offset, part.size = MIB, MIB
pointer = ok(cuda.cuExternalMemoryGetMappedBuffer(memory, part))
assert bytes(at(pointer, 4)) == b"abcd"
part.size = 2 * MIB
refused(cuda.cuExternalMemoryGetMappedBuffer(memory, part), R.CUDA_ERROR_INVALID_VALUE)
ok(cuda.cuMemFree(pointer))
ok(cuda.cuDestroyExternalMemory(memory))
refused(cuda.cuDestroyExternalMemory(memory), R.CUDA_ERROR_INVALID_HANDLE)
assert used() == 0
say(done=True)
"""
    )


def test_pool_retains_its_release_threshold_until_trimmed(gpu: SoftGpu) -> None:
    gpu.client(
        SHARING
        + """
start()
pool = ok(cuda.cuDeviceGetDefaultMemPool(0))
A = cuda.CUmemPool_attribute
ok(cuda.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.cuuint64_t(6 * MIB)))
memory = [ok(cuda.cuMemAllocAsync(4 * MIB, 0)) for _ in range(2)]
assert used() == 8 * MIB
for block in memory:
    ok(cuda.cuMemFreeAsync(block, 0))
assert used() == 8 * MIB
ok(cuda.cuCtxSynchronize())
assert used() == 6 * MIB
assert int(ok(cuda.cuMemPoolGetAttribute(pool, A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))) == 0
assert int(ok(cuda.cuMemPoolGetAttribute(pool, A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))) == 6 * MIB
block = ok(cuda.cuMemAllocAsync(1 * MIB, 0))
assert used() == 6 * MIB
ok(cuda.cuMemPoolTrimTo(pool, 3 * MIB))
assert used() == 4 * MIB
ok(cuda.cuMemPoolTrimTo(pool, 0))
assert used() == 2 * MIB
ok(cuda.cuMemFreeAsync(block, 0))
say(done=True)
"""
    )
