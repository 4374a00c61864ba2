"""The links between the software GPU's devices, as NVML reports them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.scheduler.gpu_topologies import islands
from support.softgpu.softgpu_host import BUILT, SoftGpu
from vcuda_oci.host import host

LOOK = """
import pynvml
pynvml.nvmlInit()
devices = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
buses = [pynvml.nvmlDeviceGetPciInfo(device).busId for device in devices]
def ends(device):
    found = []
    try:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            assert pynvml.nvmlDeviceGetNvLinkState(device, link) == pynvml.NVML_FEATURE_ENABLED
            end = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(device, link).busId
            found.append(buses.index(end) if end in buses else "switch")
    except pynvml.NVMLError_InvalidArgument:
        return found
say(levels=[pynvml.nvmlDeviceGetTopologyCommonAncestor(devices[1], other) for other in devices],
    links=[ends(device) for device in devices])
"""


def distances_of(gpu: SoftGpu) -> Any:
    """By NVML, and then from the cache that the start path reads."""
    cache = str(gpu.root.parent / "state" / "host.json")
    first, second = (host.load(str(gpu.root), cache) for _ in range(2))
    assert first.distances == second.distances
    return first.distances


def test_two_islands_of_pairs_are_reported_as_by_hardware_and_read(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "8", "--topology", "nvlink=4,pcie=2,numa=4")
    seen = gpu.client(LOOK)
    assert seen["levels"] == [10, 0, 40, 40, 50, 50, 50, 50]
    assert seen["links"][:4] == [[1, 1, 2, 3], [0, 0, 2, 3], [0, 1, 3, 3], [0, 1, 2, 2]]
    nodes = gpu.root.glob("sys/bus/pci/devices/*/numa_node")
    assert [node.read_text() for node in sorted(nodes)] == ["0\n"] * 4 + ["1\n"] * 4
    assert distances_of(gpu) == islands()
    subprocess.run([BUILT / "softgpu", "destroy", gpu.root], check=True)
    assert not gpu.root.exists()


def test_links_to_a_switch_join_all_gpus_that_have_them(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "3", "--topology", "nvswitch=18,numa=2")
    seen = gpu.client(LOOK)
    assert (seen["levels"], seen["links"]) == ([40, 0, 50], [["switch"] * 18] * 3)
    assert distances_of(gpu) == [[0, 19, 19], [19, 0, 19], [19, 19, 0]]


def test_a_machine_without_links_is_known_by_its_buses(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "3", "--topology", "pcie=2")
    assert distances_of(gpu) == [[0, 200, 600], [200, 0, 600], [600, 600, 0]]


def test_a_driver_that_reports_nothing_is_asked_once(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "2")
    assert distances_of(gpu) is None


@pytest.mark.parametrize("wish", ["nvlink", "nvlink=0", "pcie=2,rings=4", "numa=two", ","])
def test_a_topology_that_makes_no_sense_is_one_line(tmp_path: Path, wish: str) -> None:
    command: list[Any] = [BUILT / "softgpu", "create", tmp_path / "none", "--topology", wish]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"softgpu: --topology: {wish}; ")
    assert not (tmp_path / "none").exists()


def test_an_order_for_one_gpu_is_met_by_calls_of_that_gpu_only(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "3")
    order = ("--call", "nvmlDeviceGetMemoryInfo", "--gpu", "1", "--error", "NVML_ERROR_UNKNOWN")
    subprocess.run([BUILT / "softgpu", "fail", gpu.root, *order], check=True)
    failed = gpu.client("""
import pynvml
pynvml.nvmlInit()
failed = []
for at in range(3):
    try:
        pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(at))
    except pynvml.NVMLError_Unknown:
        failed.append(at)
say(failed=failed)
""")
    assert failed == {"failed": [1]}
    for mistake in (["--call", "cuInit", "--gpu", "0"], ["--lost", "0", "--gpu", "0"]):
        command: list[Any] = [BUILT / "softgpu", "fail", gpu.root, *mistake, "--error", "999"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith("softgpu: --gpu: only calls of NVML name a GPU; ")
