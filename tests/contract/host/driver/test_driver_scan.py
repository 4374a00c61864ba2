"""Containers get the same driver files on every distribution's layout."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_layouts import LAYOUTS, Layout, install
from support.gpu.driver_root import DEBIAN, VERSION, DriverRoot
from support.ledger.samples import PATHS, record
from vcuda_oci.edits import edits
from vcuda_oci.host import driver_scan, facts_cache, host
from vcuda_oci.model import capabilities

LAYOUT = pytest.mark.parametrize("layout", list(LAYOUTS.values()), ids=list(LAYOUTS))
INSIDE, INSIDE_32 = "/usr/lib/x86_64-linux-gnu", "/usr/lib/i386-linux-gnu"
PRIVATE = {
    "/usr/local/vcuda/driver/cuda": f"libcuda.so.{VERSION}",
    "/usr/local/vcuda/driver/nvml": f"libnvidia-ml.so.{VERSION}",
}


def both(base: str, number: str, shim: bool = False) -> dict[str, str]:
    """A library under its soname and its versioned name."""
    file = f"{base}.so.{VERSION}"
    source = "libvcuda.so.1" if shim else file
    found = {f"{INSIDE}/{file}": source}
    return {**found, f"{INSIDE}/{base}.so.{number}": source} if number else found


FIRMWARE = {f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": "gsp_ga10x.bin"}
ALWAYS = {**PRIVATE, **FIRMWARE, **both("libnvidia-of-tomorrow", "1")}
SHARED = {**both("libnvidia-allocator", "1"), **both("libnvidia-gpucomp", ""),
          f"{INSIDE}/gbm/nvidia-drm_gbm.so": f"libnvidia-allocator.so.{VERSION}"}  # fmt: skip
COMPUTE = {
    **ALWAYS,
    **both("libcuda", "1", shim=True),
    f"{INSIDE}/libcuda.so": "libvcuda.so.1",
    **both("libcudadebugger", "1"),
    **both("libnvidia-nvvm", "4"),
    **both("libnvidia-opencl", "1"),
    **both("libnvidia-ptxjitcompiler", "1"),
    **both("libnvidia-allocator", "1"),
    **both("libnvidia-gpucomp", ""),
    "/etc/OpenCL/vendors/nvidia.icd": "nvidia.icd",
    "/usr/bin/nvidia-cuda-mps-control": "nvidia-cuda-mps-control",
}
UTILITY = {
    **ALWAYS,
    **both("libnvidia-ml", "1", shim=True),
    **both("libnvidia-cfg", "1"),
    "/usr/bin/nvidia-smi": "nvidia-smi",
    "/usr/bin/nvidia-persistenced": "nvidia-persistenced",
}
VIDEO = {
    **ALWAYS,
    **both("libnvcuvid", "1"),
    **both("libnvidia-encode", "1"),
    **both("libnvidia-opticalflow", "1"),
    f"{INSIDE}/libnvidia-opticalflow.so": f"libnvidia-opticalflow.so.{VERSION}",
    f"{INSIDE}/vdpau/libvdpau_nvidia.so.1": f"libvdpau_nvidia.so.{VERSION}",
    f"{INSIDE}/vdpau/libvdpau_nvidia.so.{VERSION}": f"libvdpau_nvidia.so.{VERSION}",
}
GRAPHICS = {
    **ALWAYS,
    **SHARED,
    **both("libnvidia-glcore", ""),
    **both("libnvidia-eglcore", ""),
    **both("libGLX_nvidia", "0"),
    **both("libEGL_nvidia", "0"),
    **both("libnvoptix", "1"),
    f"{INSIDE}/libnvidia-egl-gbm.so.1": "libnvidia-egl-gbm.so.1.1.2",
    "/usr/share/vulkan/icd.d/nvidia_icd.json": "nvidia_icd.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin": "nvoptix.bin",
}
XORG = "/usr/lib/xorg/modules"
DISPLAY = {
    **GRAPHICS,
    f"{XORG}/drivers/nvidia_drv.so": "nvidia_drv.so",
    f"{XORG}/extensions/libglxserver_nvidia.so": f"libglxserver_nvidia.so.{VERSION}",
}
GRAPHICS_32 = {
    f"{INSIDE_32}/{name}": real
    for base in ("libnvidia-glcore", "libGLX_nvidia")
    for real in [f"{base}.so.{VERSION}"]
    for name in (real, f"{base}.so.1")
}


def given(root: DriverRoot, asked: str, folder: str = INSIDE) -> dict[str, str]:
    """What a container that asks for this gets of the driver: name of the file, by path inside.

    folder: where its loader looks.
    """
    found = host.load(root.path, root.path + "/state/host.json")
    wanted = capabilities.requested(asked, list(capabilities.ALL))
    made = edits.edits_for(record(), found, PATHS, folder, wanted)
    ours = {"/run/softgpu", "/usr/local/vcuda/limits", "/usr/local/vcuda/usage"}
    of_driver = [source for source, _, _ in made.mounts if source.startswith(root.path)]
    assert all(os.path.isfile(source) and not os.path.islink(source) for source in of_driver)
    return {
        inside: os.path.basename(source) for source, inside, _ in made.mounts if inside not in ours
    }


def renamed(expected: dict[str, str], layout: Layout) -> dict[str, str]:
    """The same under the name that the distribution gives Vulkan's file on the host."""
    return {inside: layout.icd if "vulkan" in inside else name for inside, name in expected.items()}


@LAYOUT
def test_a_container_gets_the_driver_of_what_it_asks_for(tmp_path: Any, layout: Layout) -> None:
    root = install(tmp_path, layout)
    assert given(root, "compute") == COMPUTE
    assert given(root, "utility") == UTILITY
    assert given(root, "") == given(root, "utility, compute") == {**COMPUTE, **UTILITY}
    assert given(root, "video") == VIDEO
    assert given(root, "graphics") == renamed(GRAPHICS, layout)
    assert given(root, "display") == renamed(DISPLAY, layout)
    assert given(root, "ngx") == {**ALWAYS, **both("libnvidia-ngx", "1")}
    narrow = GRAPHICS_32 if layout.folder_32_bit else {}
    assert given(root, "graphics,compat32") == {**renamed(GRAPHICS, layout), **narrow}
    assert given(root, "compat32") == ALWAYS
    whole = {**COMPUTE, **UTILITY, **VIDEO, **DISPLAY, **both("libnvidia-ngx", "1"), **narrow}
    assert given(root, "all") == renamed(whole, layout)


@LAYOUT
def test_scan_result_is_reused_until_the_driver_changes(tmp_path: Any, layout: Layout) -> None:
    root = install(tmp_path, layout)
    first = given(root, "all")
    cache = root.path + "/state/host.json"
    before = os.stat(cache)
    assert given(root, "all") == first
    assert os.stat(cache).st_ino == before.st_ino
    new = f"libnvidia-pkcs11.so.{VERSION}"
    write(f"{root.folder}/{new}", "")
    assert given(root, "all") == {**first, f"{INSIDE}/{new}": new}
    os.unlink(root.path + "/usr/share/nvidia/nvoptix.bin")
    os.unlink(f"{root.folder}/{new}")
    del first["/usr/share/nvidia/nvoptix.bin"]
    assert given(root, "all") == first
    assert root.asked() == 1


def test_a_file_in_a_new_folder_is_found_by_the_next_container(tmp_path: Any) -> None:
    """The cache depends on the nearest folder that exists, one check for all that is below it."""
    root = DriverRoot(tmp_path)
    before = given(root, "graphics")
    checked = facts_cache.read(root.path + "/state/host.json")["driver"]["looked_in"]
    assert root.path + "/usr" in checked
    assert all(map(os.path.exists, checked))
    icd = "/usr/share/vulkan/icd.d/nvidia_icd.json"
    os.mkdir(root.path + "/usr/share")
    assert given(root, "graphics") == before
    write(root.path + icd, "")
    assert given(root, "graphics") == {**before, icd: "nvidia_icd.json"}


def test_a_file_behind_a_link_that_led_nowhere_is_found(tmp_path: Any) -> None:
    """Its target is made in a folder that no start checks."""
    root = DriverRoot(tmp_path / "root")
    os.symlink(tmp_path / "share", root.path + "/usr/share")
    before = given(root, "graphics")
    icd = "/vulkan/icd.d/nvidia_icd.json"
    write(f"{tmp_path}/share{icd}", "")
    assert given(root, "graphics") == {**before, f"/usr/share{icd}": "nvidia_icd.json"}


def test_the_kernels_version_is_taken_of_two_installed_ones(tmp_path: Any) -> None:
    root = install(tmp_path, LAYOUTS["Ubuntu"])
    old, version = "/usr/lib64", "/proc/driver/nvidia/version"
    write(f"{root.path}{old}/libcuda.so.550.1", "")
    os.symlink("libcuda.so.550.1", f"{root.path}{old}/libcuda.so.1")
    assert driver_scan.find(root.path).version == VERSION
    kernel = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\nGCC: 12\n"
    write(root.path + version, kernel.format("550.1"))
    found = driver_scan.find(root.path)
    assert (found.version, found.folder) == ("550.1", root.path + old)
    # Of the same version, without a link: what ldconfig has not seen yet.
    os.unlink(f"{root.path}{old}/libcuda.so.1")
    assert driver_scan.find(root.path).version == "550.1"
    write(root.path + version, kernel.format(VERSION))
    assert driver_scan.find(root.path).version == VERSION
    # No file of the kernel's version: NVML itself reports the mismatch.
    write(root.path + version, kernel.format("999.1"))
    assert driver_scan.find(root.path).version == VERSION
    for text in ("no version\n", kernel.format("9.\0x")):
        write(root.path + version, text)
        assert driver_scan.find(root.path).version == VERSION


def test_the_cache_is_dropped_when_another_driver_is_loaded(tmp_path: Any) -> None:
    """Both versions' files exist before and after: only the kernel's version changes."""
    root = install(tmp_path, LAYOUTS["Ubuntu"])
    other = DriverRoot(tmp_path / "other", DEBIAN)
    for name in ("libcuda", "libnvidia-ml"):
        source, target = f"{other.folder}/{name}.so.{VERSION}", f"{root.folder}/{name}.so.550.1"
        os.rename(source, target)
    cache = root.path + "/state/host.json"
    assert host.load(root.path, cache).version == VERSION
    write(root.path + "/proc/driver/nvidia/version", "NVRM version: NVIDIA 550.1 x\n")
    assert host.load(root.path, cache).version == "550.1"
