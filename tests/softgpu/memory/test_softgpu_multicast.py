"""Multicast objects of the software GPU, and how long bound memory is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_host import CALLS, SWITCHED, SoftGpu

MULTICAST = (
    CALLS
    + """
invalid = R.CUDA_ERROR_INVALID_VALUE
start()
def team_of(count=2, size=4 * MIB):
    wanted = cuda.CUmulticastObjectProp()
    wanted.numDevices, wanted.size = count, size
    return wanted
def team(*devices):
    made = ok(cuda.cuMulticastCreate(team_of()))
    for device in devices:
        ok(cuda.cuMulticastAddDevice(made, device))
    return made
def memory(device=0, size=2 * MIB, usage=0):
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id, wanted.allocFlags.usage = device, usage
    return ok(cuda.cuMemCreate(size, wanted, 0))
def mapped(handle, size=2 * MIB):
    at = int(ok(cuda.cuMemAddressReserve(size, 0, 0, 0)))
    ok(cuda.cuMemMap(at, size, 0, handle, 0))
    return at
def supported():
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
    return ok(cuda.cuDeviceGetAttribute(attribute, 0))
"""
)


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "64MiB", *SWITCHED)


def test_gpus_without_a_switch_have_no_multicast(tmp_path: Path) -> None:
    SoftGpu(tmp_path, "--gpus", "2", "--topology", "nvlink=2").client(
        MULTICAST
        + """
assert supported() == 0
refused(cuda.cuMulticastCreate(team_of()), R.CUDA_ERROR_NOT_SUPPORTED)
say(done=True)
"""
    )


def test_bound_memory_counts_until_it_is_unbound_or_the_object_ends(gpu: SoftGpu) -> None:
    gpu.client(
        MULTICAST
        + """
assert supported() == 1
object, first, second = team(0, 1), memory(), memory()
ok(cuda.cuMulticastBindMem(object, 0, first, 0, 2 * MIB, 0))
at = mapped(second)
ok(cuda.cuMulticastBindAddr(object, 2 * MIB, at, 2 * MIB, 0))
for handle in (first, second):
    ok(cuda.cuMemRelease(handle))
ok(cuda.cuMemUnmap(at, 2 * MIB))
assert used() == 4 * MIB
refused(cuda.cuMulticastUnbind(object, 1, 0, 2 * MIB), invalid)
refused(cuda.cuMulticastUnbind(object, 0, 0, 4 * MIB), invalid)
assert used() == 4 * MIB
ok(cuda.cuMulticastUnbind(object, 0, 0, 2 * MIB))
assert used() == 2 * MIB
at = mapped(object, 4 * MIB)
ok(cuda.cuMemRelease(object))
assert used() == 2 * MIB
ok(cuda.cuMemUnmap(at, 4 * MIB))
assert used() == 0
say(done=True)
"""
    )


def test_what_no_team_can_bind_is_refused_and_counts_no_longer_than_before(gpu: SoftGpu) -> None:
    gpu.client(
        MULTICAST
        + """
for count, size in ((1, 4 * MIB), (3, 4 * MIB), (2, MIB), (2, 0)):
    refused(cuda.cuMulticastCreate(team_of(count, size)), invalid)
object, large, tiles = team(0, 1), memory(0, 8 * MIB), memory(0, 2 * MIB, 1)
refused(cuda.cuMulticastAddDevice(object, 1), invalid)
bind = cuda.cuMulticastBindMem
ok(bind(object, 0, large, 0, 2 * MIB, 0))
ok(bind(object, 0, memory(1), 0, 2 * MIB, 0))
for offset, handle, at, size in (
    (0, large, 0, 2 * MIB),
    (2 * MIB, large, 0, 4 * MIB),
    (2 * MIB, large, 8 * MIB, 2 * MIB),
    (2 * MIB, large, MIB, 2 * MIB),
    (2 * MIB, large, 0, 0),
    (2 * MIB, tiles, 0, 2 * MIB),
    (2 * MIB, object, 0, 2 * MIB),
):
    refused(bind(object, offset, handle, at, size, 0), invalid)
refused(cuda.cuMulticastBindMem(large, 2 * MIB, large, 0, 2 * MIB, 0), invalid)
refused(cuda.cuMulticastBindMem_v2(object, 1, 2 * MIB, large, 0, 2 * MIB, 0), invalid)
plain = int(ok(cuda.cuMemAlloc(4 * MIB))) // (2 * MIB) * 2 * MIB + 2 * MIB
refused(cuda.cuMulticastBindAddr(object, 2 * MIB, plain, 2 * MIB, 0), invalid)
before = used()
for handle in (large, tiles):
    ok(cuda.cuMemRelease(handle))
assert used() == before - 2 * MIB
ok(cuda.cuMemRelease(object))
assert used() == before - 10 * MIB
say(done=True)
"""
    )


def test_a_bind_and_a_mapping_wait_until_all_devices_are_added(gpu: SoftGpu) -> None:
    gpu.client(
        MULTICAST
        + """
import threading
done = []
object, handle = team(0), memory()
at = int(ok(cuda.cuMemAddressReserve(2 * MIB, 0, 0, 0)))
def bind():
    ok(cuda.cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0))
    done.append("bound")
def map():
    ok(cuda.cuMemMap(at, 2 * MIB, 0, object, 0))
    done.append("mapped")
threads = [threading.Thread(target=call) for call in (bind, map)]
for thread in threads:
    thread.start()
time.sleep(0.1)
done.append("added")
ok(cuda.cuMulticastAddDevice(object, 1))
for thread in threads:
    thread.join()
assert done[0] == "added" and len(done) == 3, done
say(done=True)
"""
    )


def test_no_copy_reaches_what_is_bound_through_an_objects_addresses(gpu: SoftGpu) -> None:
    gpu.client(
        MULTICAST
        + """
object = team(0, 1)
at = mapped(object, 4 * MIB)
access = cuda.CUmemAccessDesc()
access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(cuda.cuMemSetAccess(at, 4 * MIB, [access], 1))
refused(cuda.cuMemcpyHtoD(at, bytes(8), 8), invalid)
refused(cuda.cuMemsetD8(at, 1, 8), invalid)
say(done=True)
"""
    )
