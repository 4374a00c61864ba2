"""The GPU labels of a node."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from support.ledger.samples import GIB
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.gpus import node_labels
from vcuda_plugin.agent.gpus.feature_file import Labelling
from vcuda_plugin.agent.gpus.inventory import Inventory

H100 = "NVIDIA H100 80GB HBM3"


def gpu(model: str = H100, arch: str = "9.0") -> Gpu:
    return Gpu("GPU-0", 0, 0, 80 * GIB, model, arch=arch)


SEEN = Inventory([gpu(), gpu()], driver="580.95.05", cuda="13.0")
SHARED = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.replicas": "100",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "nvidia.com/cuda.driver-version.major": "580",
    "nvidia.com/cuda.driver-version.minor": "95",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.runtime-version.full": "13.0",
    "nvidia.com/cuda.runtime-version.major": "13",
    "nvidia.com/cuda.runtime-version.minor": "0",
    "gaia.tencent.com/gpu-model": "NVIDIA-H100-80GB-HBM3",
}


def test_a_node_is_labelled_as_gpu_feature_discovery_would() -> None:
    assert node_labels.labels(SEEN.gpus, SEEN.driver, SEEN.cuda, 100) == SHARED
    assert set(SHARED) == set(node_labels.KEYS)
    whole = node_labels.labels(SEEN.gpus, SEEN.driver, SEEN.cuda, 1)
    changed = {key: value for key, value in whole.items() if SHARED[key] != value}
    assert changed == {
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    }


def test_the_most_frequent_model_is_labelled_and_unknown_figures_are_left_out() -> None:
    found = node_labels.labels([gpu("A"), gpu("B", ""), gpu("B", "")], "", "", 100)
    assert {key.rpartition("/")[2]: value for key, value in found.items()} == {
        "gpu.product": "B",
        "gpu.count": "3",
        "gpu.memory": "81920",
        "gpu.replicas": "100",
        "gpu.sharing-strategy": "time-slicing",
        "gpu-model": "B",
    }


@pytest.mark.parametrize(
    ("model", "value"),
    [
        ("Tesla T4", "Tesla-T4"),
        (" (R) GPU/é\n=x ", "R-GPU-x"),
        ("A" * 62 + " B", "A" * 62),
        ("漢", None),
    ],
)
def test_a_labels_value_is_legal_whatever_the_model_is_called(
    model: str, value: str | None
) -> None:
    found = node_labels.labels([gpu(model)], "580", "13.0", 100)
    assert found.get("nvidia.com/gpu.product") == value


def labelling(folder: Any, way: str = "auto") -> Labelling:
    return Labelling(settings_file.parse(f'labels = "{way}"', "config.toml"), str(folder))


def test_feature_discovery_file_is_written_and_removed_with_the_gpus(
    tmp_path: Any,
) -> None:
    made = labelling(tmp_path)
    assert made.update(SEEN) == {}
    with open(tmp_path / "vcuda") as file:
        assert dict(line.rstrip("\n").split("=") for line in file) == SHARED
    assert made.update(Inventory([])) == {} and os.listdir(tmp_path) == []


def test_refusal_of_another_api_names_the_supported_ones(tmp_path: Any) -> None:
    made = labelling(tmp_path / "none")
    assert made.update(SEEN) == SHARED
    assert made.update(Inventory([])) == dict.fromkeys(SHARED)


def test_switched_off_it_sends_no_event(tmp_path: Any) -> None:
    assert labelling(tmp_path, "no").update(SEEN) == {} and os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_reported_and_stops_nothing(
    tmp_path: Any, caplog: Any
) -> None:
    folder = write(str(tmp_path / "file"), "")
    assert labelling(folder, "nfd").update(SEEN) == {}
    assert caplog.messages == [f"{folder}: labels not written: Not a directory"]
