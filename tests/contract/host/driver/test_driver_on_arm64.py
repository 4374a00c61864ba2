"""Containers on a fake arm64 machine get its driver."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from contract.host.driver.test_driver_scan import (
    COMPUTE,
    DISPLAY,
    INSIDE,
    UTILITY,
    VIDEO,
    both,
    given,
    renamed,
)
from support.files import ROOT, write
from support.gpu.driver_layouts import (
    ARM64_LAYOUTS,
    LAYOUTS,
    LDCONFIG,
    Layout,
    install,
    mark_as_arm64s,
)
from support.gpu.driver_root import VERSION, DriverRoot
from vcuda_oci.container import image_libraries
from vcuda_oci.container.container import container_of
from vcuda_oci.edits import cdi_spec, edits
from vcuda_oci.guest.tree import Tree
from vcuda_oci.host import host
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import machine

AMD64S, ARM64S = machine.AMD64.multiarch, machine.ARM64.multiarch
WHOLE = {**COMPUTE, **UTILITY, **VIDEO, **DISPLAY, **both("libnvidia-ngx", "1")}


@pytest.fixture
def arm64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "THIS", machine.ARM64)


def installed(path: Any, layout: Layout) -> DriverRoot:
    root = install(path, layout)
    mark_as_arm64s(root.path + "/etc/ld.so.cache")
    return root


@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_the_machine_is_taken_from_the_kernel(name: str) -> None:
    lines = [
        f"import os, sys; sys.path.insert(0, {ROOT + '/oci'!r})",
        f"os.uname = lambda: os.posix.uname_result(('Linux', 'n', '6.1', '#1', {name!r}))",
        "from vcuda_oci.system import machine; print(machine.THIS.name)",
    ]
    program = "\n".join(lines).replace("os.posix", "__import__('posix')")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == f"{name}\n", result.stderr


@pytest.mark.parametrize("folder", [ARM64S, "/usr/lib64"])
@pytest.mark.parametrize("layout", ARM64_LAYOUTS.values(), ids=ARM64_LAYOUTS)
def test_a_container_gets_the_whole_driver(
    arm64: None, tmp_path: Any, layout: Layout, folder: str
) -> None:
    root = installed(tmp_path, layout)
    expected = {place.replace(INSIDE, folder): name for place, name in WHOLE.items()}
    assert given(root, "all", folder) == renamed(expected, layout)


def test_there_is_nothing_for_32_bit_programs(arm64: None, tmp_path: Any) -> None:
    root = installed(tmp_path, Layout("/usr/lib64", "/usr/lib"))
    assert host.load(root.path, root.path + "/state/host.json").libraries_32_bit == {}
    assert given(root, "graphics,compat32") == given(root, "graphics")


def test_a_driver_for_another_machine_is_none(arm64: None, tmp_path: Any) -> None:
    """By its folder, and by what the loader's cache says of one elsewhere."""
    for layout in (LAYOUTS["Ubuntu"], LAYOUTS["elsewhere, by the cache"]):
        root = install(tmp_path / layout.folder.replace("/", "-"), layout)
        with pytest.raises(VcudaError, match="no NVIDIA driver"):
            host.load(root.path, root.path + "/state/host.json")


def test_a_driver_library_of_arm64_is_none_for_amd64(tmp_path: Any) -> None:
    root = installed(tmp_path, ARM64_LAYOUTS["Ubuntu"])
    with pytest.raises(VcudaError, match="no NVIDIA driver"):
        host.load(root.path, root.path + "/state/host.json")


def folder_in(spec: Any, bundle: Any) -> str:
    with Tree(container_of(spec, "", str(bundle)).rootfs) as image:
        return image_libraries.library_folder(image)


def found_by(spec: Any, bundle: Any) -> dict[str, str]:
    container = container_of(spec, "", str(bundle))
    with Tree(container.rootfs) as image:
        return image_libraries.find(image, container, ["libcuda.so.1"])


def test_the_images_loader_reads_debians_folder_of_this_machine(arm64: None, tmp_path: Any) -> None:
    for folder in (AMD64S, ARM64S, "/usr/lib64"):
        os.makedirs(f"{tmp_path}/rootfs{folder}")
    spec = {"root": {"path": "rootfs"}}
    assert folder_in(spec, tmp_path) == ARM64S
    os.rmdir(f"{tmp_path}/rootfs{ARM64S}")
    assert folder_in(spec, tmp_path) == "/usr/lib64"


def test_image_libcuda_is_found_in_its_loaders_folders(arm64: None, tmp_path: Any) -> None:
    image = f"{tmp_path}/rootfs"
    spec = {"root": {"path": "rootfs"}, "process": {"env": []}}
    root = install(image + "/elsewhere", LAYOUTS["Ubuntu"])
    with open(f"{root.folder}/libcuda.so.{VERSION}", "rb") as file:
        library = file.read()
    places = (f"{ARM64S}/libcuda.so.1", f"/usr/local/lib{ARM64S[8:]}/libcuda.so.1")
    for place in (*places, "/hidden/libcuda.so.1"):
        os.makedirs(os.path.dirname(image + place))
        with open(image + place, "wb") as file:
            file.write(library)
    expected = dict.fromkeys(places, "libcuda.so.1")
    assert found_by(spec, tmp_path) == expected
    # Only ldconfig knows the folder: the driver is found by the cache's entries for this machine.
    write(image + "/etc/ld.so.conf", "/hidden\n")
    subprocess.run([LDCONFIG, "-r", image], check=True, capture_output=True)
    write(image + "/etc/ld.so.conf", "")
    assert found_by(spec, tmp_path) == expected
    mark_as_arm64s(image + "/etc/ld.so.cache")
    expected["/hidden/libcuda.so.1"] = "libcuda.so.1"
    assert found_by(spec, tmp_path) == expected


def test_a_cdi_spec_has_the_loaders_folders_of_both_families(arm64: None, tmp_path: Any) -> None:
    for name, folder in (("ubuntu", ARM64S), ("rhel", "/usr/lib64")):
        root = DriverRoot(tmp_path / name, folder)
        found = host.load(root.path, root.path + "/state/host.json")
        spec = cdi_spec.spec(found, edits.Paths("/shim", "", ["/hook"], []), ["compute"], {})
        mounts = spec["containerEdits"]["mounts"]
        places = [
            m["containerPath"] for m in mounts if m["containerPath"].endswith("/libcuda.so.1")
        ]
        assert sorted(places) == [f"{ARM64S}/libcuda.so.1", "/usr/lib64/libcuda.so.1"]
