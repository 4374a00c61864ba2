"""GPUs, device nodes and libraries are found below a driver root of any distribution's layout."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DEBIAN, RHEL, VERSION, DriverRoot
from support.ledger.samples import GIB
from vcuda_oci.host import host
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files


def cache(root: DriverRoot) -> str:
    return root.path + "/state/host.json"


def load(root: DriverRoot) -> host.Host:
    return host.load(root.path, cache(root))


def refusal(root: Any) -> str:
    with pytest.raises(VcudaError) as refused:
        host.load(str(root), f"{root}/state/host.json")
    assert "\n" not in str(refused.value)
    return str(refused.value)


LIBRARIES = {
    "libcuda.so": f"libcuda.so.{VERSION}",
    "libcuda.so.1": f"libcuda.so.{VERSION}",
    f"libcuda.so.{VERSION}": f"libcuda.so.{VERSION}",
    "libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
    f"libnvidia-ml.so.{VERSION}": f"libnvidia-ml.so.{VERSION}",
}


def in_folder(folder: str) -> dict[str, str]:
    return {name: f"{folder}/{real}" for name, real in LIBRARIES.items()}


@pytest.mark.parametrize("folder", [DEBIAN, RHEL, "/usr/lib", "/lib64"])
def test_all_files_of_a_driver_root_are_found(tmp_path: Any, folder: str) -> None:
    root = DriverRoot(tmp_path / "root", folder, count=2)
    write(root.folder + "/libssl.so.3", "")
    write(root.folder + "/libother.so.1", "")
    os.symlink("libcuda.so.1", root.folder + "/libcuda.so")
    found = load(root)
    assert (found.root, found.version, found.folder) == (root.path, VERSION, root.folder)
    assert found.libraries == in_folder(root.folder)
    assert found.files == {"/usr/bin/nvidia-smi": root.path + "/usr/bin/nvidia-smi"}
    assert (found.cuda, found.services, found.libraries_32_bit) == ("13.0", [], {})
    assert [vars(gpu) for gpu in found.gpus] == [
        {
            "uuid": f"GPU-{index}",
            "index": index,
            "minor": index,
            "memory_bytes": 16 * GIB,
            "model": "Soft",
            "bus_id": f"0000:0{index}:00.0",
            "arch": "9.0",
            "brand": "tesla",
            "divided": False,
            "parent": "",
            "mig": None,
        }
        for index in (0, 1)
    ]
    assert {name: vars(node) for name, node in found.nodes.items()} == {
        name: {"path": "/dev/" + name, "major": major, "minor": minor}
        for name, (major, minor) in root.nodes.items()
    }


def test_debians_packages_link_the_driver_through_alternatives(tmp_path: Any) -> None:
    """Over /etc/alternatives and nvidia/current/libcuda.so.1 to the versioned file there."""
    own = DEBIAN + "/nvidia/current"
    root = DriverRoot(tmp_path / "root", own)
    alternative = root.path + "/etc/alternatives/glx--libcuda.so.1-x86_64-linux-gnu"
    os.makedirs(os.path.dirname(alternative))
    os.symlink(own + "/libcuda.so.1", alternative)
    os.symlink(alternative[len(root.path) :], root.path + DEBIAN + "/libcuda.so.1")
    write(root.path + DEBIAN + "/libc.so.1", "")
    found = load(root)
    assert (found.version, found.folder) == (VERSION, root.folder)
    assert found.libraries == in_folder(root.folder)


@pytest.mark.parametrize("target", ["libcuda.so.1", "/nowhere", "libcuda.so", "libcuda.so.2"])
def test_a_libcuda_that_leads_to_no_versioned_file_is_no_driver(tmp_path: Any, target: str) -> None:
    root = DriverRoot(tmp_path / "root")
    write(root.folder + "/libcuda.so.2", "")
    os.unlink(root.folder + "/libcuda.so.1")
    os.symlink(target, root.folder + "/libcuda.so.1")
    assert "no NVIDIA driver" in refusal(root.path)


def test_no_driver_is_one_line(tmp_path: Any) -> None:
    assert refusal(tmp_path) == (
        f"{tmp_path}: no NVIDIA driver: libcuda.so.1 is in no library folder; install the driver, "
        "or set driver-root in config.toml to the folder that holds it"
    )


def test_a_driver_without_nvml_is_one_line(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    os.unlink(root.nvml)
    assert refusal(root.path) == (
        f"{root.nvml}: no NVML: No such file or directory; reinstall the whole driver"
    )


def test_an_nvml_that_is_no_library_is_one_line(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    write(root.nvml, "no library")
    assert refusal(root.path).startswith(f"{root.nvml}: does not load: ")


def test_an_nvml_that_fails_is_one_line_and_is_not_remembered(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path, init=9)
    expected = f"{root.nvml}: nvmlInit_v2: Driver Not Loaded; check the driver with nvidia-smi"
    assert refusal(root.path) == expected
    assert not os.path.exists(cache(root))


def test_an_nvml_without_a_function_is_one_line(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    source = write(root.path + "/empty.c", "")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", root.nvml, source], check=True)
    assert refusal(root.path) == f"{root.nvml}: has no nvmlInit_v2; reinstall the driver"


def test_nvml_is_asked_once_for_all_containers(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    first, second = load(root), load(root)
    assert root.asked() == 1
    assert [vars(gpu) for gpu in first.gpus] == [vars(gpu) for gpu in second.gpus]
    assert os.listdir(tmp_path / "state") == ["host.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: os.utime(root.nvml, (1, 1)),
        lambda root: os.makedirs(root.path + "/proc/driver/nvidia/gpus/0000:09:00.0"),
        lambda root: os.rmdir(root.path + "/proc/driver/nvidia/gpus/0000:00:00.0"),
        lambda root: os.makedirs(root.path + "/proc/driver/nvidia/capabilities/gpu0/mig/gi1"),
        lambda root: os.makedirs(root.path + "/proc/driver/nvidia/capabilities/gpu1/mig/gi1/ci0"),
    ],
    ids=["another file", "a GPU came", "a GPU went", "a GPU instance came", "a part of one came"],
)
def test_nvml_is_asked_again_after_a_change(tmp_path: Any, change: Any) -> None:
    root = DriverRoot(tmp_path)
    os.makedirs(root.path + "/proc/driver/nvidia/capabilities/gpu1/mig/gi1")
    load(root)
    change(root)
    load(root)
    load(root)
    assert root.asked() == 2


def test_nvml_is_asked_again_for_another_version(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    load(root)
    for name in ("libcuda", "libnvidia-ml"):
        os.rename(f"{root.folder}/{name}.so.{VERSION}", f"{root.folder}/{name}.so.590.1")
        os.unlink(f"{root.folder}/{name}.so.1")
        os.symlink(f"{name}.so.590.1", f"{root.folder}/{name}.so.1")
    assert load(root).version == "590.1"
    assert root.asked() == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[:-5],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: "[" * 100_000,
        lambda text: text.replace('"libraries":{', '"libraries":[],"other":{'),
        lambda text: text.replace('"looked_in":[', '"looked_in":[5,'),
        lambda text: text.replace('"files":{', '"files":{"/a":5,'),
        lambda text: text.replace('"version":', '"other":'),
        lambda text: '{"driver":{}}',
        lambda text: text.replace('"key":', '"other":').replace('"folder":', '"other":'),
        lambda text: text.replace('"looked_in":["', '"looked_in":["/\\u0000","'),
        lambda text: text.replace('"folder":"', '"folder":"\\ud800'),
        lambda text: text.replace('"cuda":"13.0"', '"cuda":13'),
        lambda text: text.replace('"minor":0', '"minor":-1'),
        lambda text: text.replace('"memory_bytes":', '"memory_bytes":9999999999'),
        lambda text: text.replace('"memory_bytes":17179869184', '"memory_bytes":0'),
        lambda text: text.replace('"Soft"', "5"),
        lambda text: text.replace('"minor":0', '"minor":"0"'),
        lambda text: text.replace('"minor":0', '"other":0'),
        lambda text: text.replace('"minor":0,', ""),
        # As a version wrote it that did not ask for the brand yet.
        lambda text: text.replace('"brand":"tesla",', ""),
        lambda text: text.replace('"mig":null', '"mig":{"MIG-0":"0"}'),
        lambda text: text.replace('"mig":null', '"mig":[0,7]'),
        lambda text: text.replace('"distances":[[0]]', '"distances":[[0,1]]'),
        lambda text: text.replace('"distances":[[0]]', '"distances":[[-1]]'),
        lambda text: text.replace('"distances":[[0]]', '"other":null'),
    ],
)
def test_a_spoilt_cache_counts_as_none(tmp_path: Any, spoil: Any) -> None:
    root = DriverRoot(tmp_path)
    load(root)
    with open(cache(root)) as file:
        text = file.read()
    assert spoil(text) != text
    write(cache(root), spoil(text))
    found = load(root)
    assert [vars(gpu)["uuid"] for gpu in found.gpus] == ["GPU-0"]
    assert found.libraries == in_folder(root.folder)
    with open(cache(root)) as file:
        assert file.read() == text


@pytest.mark.usefixtures("settled")
def test_a_cache_that_was_replaced_is_what_the_next_container_gets(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    load(root)
    assert [gpu.model for gpu in load(root).gpus] == ["Soft"]
    with open(cache(root)) as file:
        text = file.read()
    write(cache(root) + ".beside", text.replace('"Soft"', '"Hard"'))
    os.rename(cache(root) + ".beside", cache(root))
    assert [gpu.model for gpu in load(root).gpus] == ["Hard"]
    assert root.asked() == 1
    os.chmod(cache(root), 0o666)
    assert [gpu.model for gpu in load(root).gpus] == ["Soft"]
    assert root.asked() == 2
    os.unlink(cache(root))
    assert [gpu.model for gpu in load(root).gpus] == ["Soft"]
    assert root.asked() == 3


@pytest.mark.usefixtures("settled")
def test_a_cache_that_stays_as_it_is_is_read_once_and_stays(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = DriverRoot(tmp_path)
    first, second = load(root), load(root)
    original, paths = files.read, []

    def read(path: str, *more: Any) -> bytes:
        paths.append(path)
        return original(path, *more)

    monkeypatch.setattr(files, "read", read)
    second.files["/usr/bin/other"] = "/other"
    third = load(root)
    assert cache(root) not in paths
    assert third.files == first.files


def test_unwritable_cache_costs_only_time(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path / "root")
    write(f"{tmp_path}/file", "")
    for _ in range(2):
        assert len(host.load(root.path, f"{tmp_path}/file/host.json").gpus) == 1
    assert root.asked() == 2


def test_file_that_is_no_device_node_is_not_given(tmp_path: Any) -> None:
    root = DriverRoot(tmp_path)
    os.unlink(root.path + "/dev/nvidia0")
    write(root.path + "/dev/nvidia0", "")
    os.unlink(root.path + "/dev/nvidia-uvm")
    assert sorted(load(root).nodes) == ["nvidia-uvm-tools", "nvidiactl"]
