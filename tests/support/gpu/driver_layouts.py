"""A driver's files as distributions install them: empty ELF libraries, links, and the cache that
the system's ldconfig writes for them."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from support.files import write
from support.gpu.driver_root import DEBIAN, RHEL, VERSION, DriverRoot
from vcuda_oci.system import ldcache, machine

LDCONFIG = "/sbin/ldconfig"

# Numbers of the sonames by base name; each library also exists under the driver's version.
LIBRARIES = {
    "libcudadebugger": "1",
    "libnvidia-cfg": "1",
    "libnvidia-nvvm": "4",
    "libnvidia-opencl": "1",
    "libnvidia-ptxjitcompiler": "1",
    "libnvidia-allocator": "1",
    "libnvidia-gpucomp": "",
    "libnvcuvid": "1",
    "libnvidia-encode": "1",
    "libnvidia-opticalflow": "1",
    "libnvidia-ngx": "1",
    "libnvidia-glcore": "",
    "libnvidia-eglcore": "",
    "libGLX_nvidia": "0",
    "libEGL_nvidia": "0",
    "libnvoptix": "1",
    "libnvidia-of-tomorrow": "1",
}
LIBRARIES_32_BIT = ("libcuda", "libnvidia-ml", "libnvidia-glcore", "libGLX_nvidia", "libnvcuvid")
VENDOR_FILES = {
    "/etc/OpenCL/vendors/nvidia.icd": "/etc/OpenCL/vendors/nvidia.icd",
    "/usr/share/vulkan/icd.d/nvidia_icd.json": "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin": "/usr/share/nvidia/nvoptix.bin",
    "/usr/lib/xorg/modules/drivers/nvidia_drv.so": "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
    "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so": (
        f"/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.{VERSION}"
    ),
    f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": (
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"
    ),
    "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    "/usr/bin/nvidia-cuda-mps-control": "/usr/bin/nvidia-cuda-mps-control",
    "/usr/bin/nvidia-persistenced": "/usr/bin/nvidia-persistenced",
}


class Layout:
    """folder: holds the libraries. linked: holds their sonames, if alternatives put them elsewhere.

    folder_32_bit: "" for none. icd: the distribution's name of Vulkan's file.
    """

    def __init__(
        self,
        folder: str,
        folder_32_bit: str = "",
        linked: str = "",
        icd: str = "nvidia_icd.json",
        has_cache: bool = True,
        files: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.folder_32_bit, self.linked = folder, folder_32_bit, linked
        self.icd, self.has_cache = icd, has_cache
        self.files = {**VENDOR_FILES, **(files or {})}
        inside = "/usr/share/vulkan/icd.d/"
        self.files[inside + "nvidia_icd.json"] = inside + icd


LAYOUTS = {
    "Ubuntu": Layout(DEBIAN, "/usr/lib/i386-linux-gnu"),
    "Debian": Layout(
        DEBIAN + "/nvidia/current",
        "/usr/lib/i386-linux-gnu",
        linked=DEBIAN,
        files={"/usr/bin/nvidia-smi": "/usr/lib/nvidia/current/nvidia-smi"},
    ),
    "RHEL": Layout(RHEL, "/usr/lib", icd="nvidia_icd.x86_64.json"),
    "Arch": Layout("/usr/lib", "/usr/lib32"),
    "driver container": Layout(RHEL, "", has_cache=False),
    "elsewhere, by the cache": Layout("/opt/nvidia/lib"),
    # As on images of cloud hosts: bench/hardware.md's had its driver so.
    "a folder of its own": Layout(
        "/usr/local/nvidia/lib64",
        files={"/usr/local/nvidia/bin/nvidia-smi": "/usr/local/nvidia/bin/nvidia-smi"},
    ),
}
ARM64_LAYOUTS = {
    "Ubuntu": Layout(machine.ARM64.multiarch),
    "RHEL": Layout(RHEL, icd="nvidia_icd.aarch64.json"),
    "elsewhere, by the cache": Layout("/opt/nvidia/lib"),
}


def install(path: Any, layout: Layout) -> DriverRoot:
    """Write a driver with this layout to `path`; return it as a driver root."""
    root = DriverRoot(path, layout.folder)
    wide, narrow = _elf(root.path, "-m64"), _elf(root.path, "-m32")
    os.unlink(root.folder + f"/libcuda.so.{VERSION}")
    _library(wide, root.folder, "libcuda", "")
    for name, number in LIBRARIES.items():
        _library(wide, root.folder, name, number)
    _library(wide, root.folder + "/vdpau", "libvdpau_nvidia", "1")
    write(root.folder + "/libnvidia-egl-gbm.so.1.1.2", wide)
    os.symlink("libnvidia-egl-gbm.so.1.1.2", root.folder + "/libnvidia-egl-gbm.so.1")
    write(root.folder + "/libnvidia-container.so.1.17.8", wide)
    os.symlink("libnvidia-container.so.1.17.8", root.folder + "/libnvidia-container.so.1")
    if layout.linked:
        os.makedirs(root.path + layout.linked, exist_ok=True)
        os.makedirs(root.path + "/etc/alternatives")
        for name in os.listdir(root.folder):
            if name.endswith((".so.0", ".so.1", ".so.4")):
                os.symlink(f"{layout.folder}/{name}", f"{root.path}/etc/alternatives/glx--{name}")
                link = f"{root.path}{layout.linked}/{name}"
                os.symlink(f"/etc/alternatives/glx--{name}", link)
    for base in LIBRARIES_32_BIT if layout.folder_32_bit else ():
        _library(narrow, root.path + layout.folder_32_bit, base, "1")
    for inside, there in layout.files.items():
        write(root.path + there, "")
        if os.path.dirname(inside) == "/usr/bin" and inside != there:
            os.unlink(root.path + inside)
            os.symlink(f"/etc/alternatives/glx--{os.path.basename(inside)}", root.path + inside)
            alternative = f"{root.path}/etc/alternatives/glx--{os.path.basename(inside)}"
            os.symlink(there, alternative)
    if layout.has_cache:
        folders = [layout.linked or layout.folder, layout.folder_32_bit]
        write(root.path + "/etc/ld.so.conf", "\n".join(folders))
        subprocess.run([LDCONFIG, "-r", root.path], check=True, capture_output=True)
    return root


def _library(content: bytes, folder: str, base: str, number: str) -> None:
    write(f"{folder}/{base}.so.{VERSION}", content)
    if number:
        os.symlink(f"{base}.so.{VERSION}", f"{folder}/{base}.so.{number}")


def _elf(folder: str, machine: str) -> bytes:
    source, output = write(f"{folder}/empty.c", "int x;"), f"{folder}/empty{machine}.so"
    command = ["gcc", machine, "-shared", "-nostdlib", "-fPIC", "-o", output, source]
    subprocess.run(command, check=True)
    with open(output, "rb") as file:
        return file.read()


def mark_as_arm64s(path: str) -> None:
    """Mark each entry of a cache that ldconfig wrote here as ldconfig on arm64 would."""
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        start = content.index(ldcache.MAGIC)
        count = int.from_bytes(content[start + 20 : start + 24], "little")
        for at in range(start + 48, start + 48 + count * 24, 24):
            content[at + 1] = ldcache.AARCH64 >> 8
        file.seek(0)
        file.write(content)
