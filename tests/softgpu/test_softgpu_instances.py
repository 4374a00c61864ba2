"""NVML of the software GPU: GPU instances are created and destroyed as a driver does it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, first_line

OPEN = """
import pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
def refused(name, call, *arguments):
    try:
        call(*arguments)
    except n.NVMLError as error:
        assert error.value == getattr(n, name), error
    else:
        raise AssertionError(name)
def places(id):
    count = n.c_uint(0)
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, id, None, n.byref(count))
    found = (n.c_nvmlGpuInstancePlacement_t * count.value)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, id, found, n.byref(count))
    return list(found)
def make(profile, start=None):
    if start is None:
        return n.nvmlDeviceCreateGpuInstance(gpu, profile)
    size = {19: 1, 20: 1, 15: 2, 14: 2, 9: 4, 5: 4, 0: 8}.get(profile, 1)
    place = n.c_nvmlGpuInstancePlacement_t(start, size)
    return n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, n.byref(place))
def whole(profile, start=None):
    instance = make(profile, start)
    slices = {19: 0, 15: 0, 14: 1, 9: 2, 5: 3, 0: 4}[profile]
    return instance, n.nvmlGpuInstanceCreateComputeInstance(instance, slices)
def devices():
    found = []
    for at in range(7):
        try:
            found.append(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, at))
        except n.NVMLError_NotFound:
            pass
    return [(n.nvmlDeviceGetUUID(one), n.nvmlDeviceGetGpuInstanceId(one)) for one in found]
def place(instance):
    info = n.nvmlGpuInstanceGetInfo(instance)
    return info.id, info.profileId, info.placement.start, info.placement.size
"""
H100 = ("--model", "NVIDIA H100 80GB HBM3", "--memory", "80GiB", "--mig", "0=")


@pytest.fixture
def h100(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, *H100)


@pytest.mark.parametrize(
    ("model", "memory_mib", "multiprocessors"),
    [
        ("NVIDIA A100-SXM4-80GB", (9856, 40192, 80384), (14, 42, 98)),
        ("NVIDIA H100 80GB HBM3", (9984, 40448, 81152), (16, 60, 132)),
        ("NVIDIA H200", (16384, 71424, 143360), (16, 60, 132)),
    ],
)
def test_each_model_has_its_profiles_and_their_places(
    tmp_path: Path, model: str, memory_mib: tuple[int, ...], multiprocessors: tuple[int, ...]
) -> None:
    answer = SoftGpu(tmp_path, "--model", model, "--memory", "140GiB", "--mig", "0=").client(
        OPEN
        + """
found = {}
for name in range(n.NVML_GPU_INSTANCE_PROFILE_COUNT):
    try:
        info = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, name)
    except n.NVMLError_NotSupported:
        continue
    there = places(info.id)
    found[info.id] = [info.memorySizeMB, info.multiprocessorCount,
                      info.instanceCount, [one.start for one in there], there[0].size]
refused("NVML_ERROR_INVALID_ARGUMENT", n.nvmlDeviceGetGpuInstanceProfileInfo, gpu, 99)
say(found=found)
"""
    )["found"]
    assert tuple(answer[id][0] for id in ("19", "9", "0")) == memory_mib
    assert tuple(answer[id][1] for id in ("19", "9", "0")) == multiprocessors
    assert {id: row[2:] for id, row in answer.items()} == {
        "19": [7, [0, 1, 2, 3, 4, 5, 6], 1],
        "20": [1, [0, 1, 2, 3, 4, 5, 6], 1],
        "15": [4, [0, 2, 4, 6], 2],
        "14": [3, [0, 2, 4], 2],
        "9": [2, [0, 4], 4],
        "5": [1, [0], 4],
        "0": [1, [0], 8],
    }


def test_ids_come_back_at_once_and_uuids_never(h100: SoftGpu) -> None:
    first = h100.client(
        OPEN
        + """
instance, compute = whole(9, 0)
other, _ = whole(19)
before = devices()
assert place(instance) == (1, 9, 0, 4) and place(other) == (7, 19, 6, 1)
refused("NVML_ERROR_IN_USE", n.nvmlGpuInstanceDestroy, instance)
n.nvmlComputeInstanceDestroy(compute)
assert [uuid for uuid, _ in devices()] == [uuid for uuid, id in before if id == 7]
n.nvmlGpuInstanceDestroy(instance)
refused("NVML_ERROR_INVALID_ARGUMENT", n.nvmlGpuInstanceDestroy, instance)
again, _ = whole(9, 0)
refused("NVML_ERROR_INVALID_ARGUMENT", n.nvmlGpuInstanceGetInfo, instance)
say(before=before, after=devices(), again=place(again))
"""
    )
    before, after = dict(first["before"]), dict(first["after"])
    assert sorted(after.values()) == sorted(before.values()) == [1, 7]
    assert len(set(before) & set(after)) == 1
    assert first["again"] == [1, 9, 0, 4]
    assert h100.client(OPEN + "say(after=devices())")["after"] == first["after"]
    folder = Path(h100.root, "proc/driver/nvidia/capabilities/gpu0/mig")
    assert sorted(os.listdir(folder)) == ["gi1", "gi7"]


def test_what_does_not_fit_is_refused(h100: SoftGpu) -> None:
    h100.client(
        OPEN
        + """
full = "NVML_ERROR_INSUFFICIENT_RESOURCES"
left = n.nvmlDeviceGetGpuInstanceRemainingCapacity
whole(19, 4)
assert [left(gpu, id) for id in (19, 14, 9, 5, 0)] == [6, 2, 1, 1, 0]
refused(full, make, 19, 4)
refused(full, make, 0)
refused(full, make, 9, 4)
refused("NVML_ERROR_INVALID_ARGUMENT", make, 9, 2)
refused("NVML_ERROR_INVALID_ARGUMENT", make, 77)
make(20)
refused(full, make, 20)
whole(5)
refused(full, make, 14)
refused("NVML_ERROR_NOT_SUPPORTED", n.nvmlGpuInstanceCreateComputeInstance, make(19), 4)
say()
"""
    )


def test_an_instance_in_use_stays_until_its_process_ends(h100: SoftGpu) -> None:
    h100.client(OPEN + "whole(19, 0); say()")
    holder = h100.start_client("context = start(); say(); time.sleep(100)")
    first_line(holder)
    destroy = """
instance = n.nvmlDeviceGetGpuInstanceById(gpu, 7)
compute = n.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
"""
    busy = 'refused("NVML_ERROR_IN_USE", n.nvmlComputeInstanceDestroy, compute); say()'
    h100.client(OPEN + destroy + busy)
    holder.kill()
    holder.wait()
    free = "n.nvmlComputeInstanceDestroy(compute); n.nvmlGpuInstanceDestroy(instance); "
    assert h100.client(OPEN + destroy + free + "say(left=devices())")["left"] == []


def test_only_root_outside_a_container_creates(h100: SoftGpu) -> None:
    h100.client(
        OPEN
        + """
os.seteuid(1)
refused("NVML_ERROR_NO_PERMISSION", make, 19)
refused("NVML_ERROR_NO_PERMISSION", places, 19)
os.seteuid(0)
os.rename(os.environ["SOFTGPU_ROOT"] + "/proc", os.environ["SOFTGPU_ROOT"] + "/host")
refused("NVML_ERROR_NO_PERMISSION", make, 19)
say()
"""
    )


def test_a_gpu_without_mig_mode_or_geometry_refuses(tmp_path: Path) -> None:
    refused = 'refused("NVML_ERROR_NOT_SUPPORTED", n.nvmlDeviceCreateGpuInstance, gpu, 19); say()'
    for name in ("off", "soft"):
        (tmp_path / name).mkdir()
    SoftGpu(tmp_path / "off", "--model", "NVIDIA H100 80GB HBM3").client(OPEN + refused)
    SoftGpu(tmp_path / "soft", "--mig", "0=").client(OPEN + refused)


def test_creation_fails_on_order(h100: SoftGpu) -> None:
    order = ["--call", "nvmlGpuInstanceCreateComputeInstance", "--nth", "1"]
    h100.order("fail", *order, "--error", "NVML_ERROR_IN_USE")
    h100.client(
        OPEN
        + """
instance = make(19)
refused("NVML_ERROR_IN_USE", n.nvmlGpuInstanceCreateComputeInstance, instance, 0)
n.nvmlGpuInstanceCreateComputeInstance(instance, 0)
say(found=devices())
"""
    )
