"""Tables of the NVIDIA driver's files and the capabilities that need them.

Source: the file lists of libnvidia-container, the container toolkit and the driver's own manifest,
up to driver 590. A library with the driver's version that is not in the table goes to every
container, because a newer driver may need it.
"""

from __future__ import annotations

from ..model.capabilities import ALL, COMPAT32, COMPUTE, DISPLAY, GRAPHICS, UTILITY, VIDEO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Graphics libraries: an X server needs the same ones as other programs.
_DRAWING = (GRAPHICS, DISPLAY)
_CAPABILITIES_OF: dict[str, tuple[str, ...]] = {
    "libnvidia-ml": (UTILITY,),
    "libnvidia-cfg": (UTILITY,),
    "libnvidia-nscq": (UTILITY,),
    "libnvidia-sandboxutils": (UTILITY,),
    "libcuda": (COMPUTE,),
    "libcudadebugger": (COMPUTE,),
    "libnvidia-compiler": (COMPUTE,),
    "libnvidia-fatbinaryloader": (COMPUTE,),
    "libnvidia-nvvm": (COMPUTE,),
    "libnvidia-nvvm70": (COMPUTE,),
    "libnvidia-opencl": (COMPUTE,),
    "libnvidia-pkcs11": (COMPUTE,),
    "libnvidia-pkcs11-openssl3": (COMPUTE,),
    "libnvidia-ptxjitcompiler": (COMPUTE,),
    "libnvidia-tileiras": (COMPUTE,),
    "libnvidia-allocator": (COMPUTE, *_DRAWING),
    "libnvidia-gpucomp": (COMPUTE, *_DRAWING),
    "libnvcuvid": (VIDEO,),
    "libnvidia-encode": (VIDEO,),
    "libnvidia-opticalflow": (VIDEO,),
    "libvdpau_nvidia": (VIDEO,),
    "libnvidia-ngx": ("ngx",),
    "libEGL": _DRAWING,
    "libEGL_nvidia": _DRAWING,
    "libGL": _DRAWING,
    "libGLESv1_CM": _DRAWING,
    "libGLESv1_CM_nvidia": _DRAWING,
    "libGLESv2": _DRAWING,
    "libGLESv2_nvidia": _DRAWING,
    "libGLX_nvidia": _DRAWING,
    "libnvidia-api": _DRAWING,
    "libnvidia-cbl": _DRAWING,
    "libnvidia-egl-gbm": _DRAWING,
    "libnvidia-egl-wayland": _DRAWING,
    "libnvidia-egl-wayland2": _DRAWING,
    "libnvidia-egl-xcb": _DRAWING,
    "libnvidia-egl-xlib": _DRAWING,
    "libnvidia-eglcore": _DRAWING,
    "libnvidia-fbc": _DRAWING,
    "libnvidia-glcore": _DRAWING,
    "libnvidia-glsi": _DRAWING,
    "libnvidia-glvkspirv": _DRAWING,
    "libnvidia-ifr": _DRAWING,
    "libnvidia-present": _DRAWING,
    "libnvidia-rtcore": _DRAWING,
    "libnvidia-tls": _DRAWING,
    "libnvidia-vksc-core": _DRAWING,
    "libnvidia-vulkan-producer": _DRAWING,
    "libnvidia-wayland-client": _DRAWING,
    "libnvoptix": _DRAWING,
    "nvidia-drm_gbm": _DRAWING,
    "nvidia_drv": (DISPLAY,),
    "libglxserver_nvidia": (DISPLAY,),
}
# Prefixes of the driver's library names, to select from the loader's cache.
PREFIXES = ("libcuda", "libnv", "libGL", "libEGL", "libvdpau_nvidia")
# Sonames of the driver's libraries that do not have the driver's version.
OWN_VERSION = (
    "libnvidia-api.so.1",
    "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1",
    "libnvidia-egl-wayland2.so.1",
    "libnvidia-egl-xcb.so.1",
    "libnvidia-egl-xlib.so.1",
    "libnvidia-nvvm70.so.4",
)
# Further names that programs open, and the soname of the library.
ALSO_NAMED = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
    "gbm/nvidia-drm_gbm.so": "libnvidia-allocator.so.1",
}
# Folders below a library folder with plug-ins that are loaded by path.
PLUGIN_FOLDERS = ("vdpau",)

# There is no 32-bit shim, so 32-bit programs get no library that uses CUDA.
NOT_32_BIT = ("libcuda", "libnvidia-ml", "libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow")

_BINARIES = {
    "nvidia-smi": UTILITY,
    "nvidia-debugdump": UTILITY,
    "nvidia-persistenced": UTILITY,
    "nv-fabricmanager": UTILITY,
    "nvidia-cuda-mps-control": COMPUTE,
    "nvidia-cuda-mps-server": COMPUTE,
}
BINARIES = tuple(_BINARIES)
BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin")

# Configuration of the Vulkan, EGL and OpenCL loaders, and the driver's data: below /etc, below
# /usr/share, or below the driver root itself. In a pair, the second name is that of packages for
# several architectures; containers get the first name.
VENDOR_FOLDERS = ("/etc", "/usr/share", "")
VENDOR_FILES = (
    ("OpenCL/vendors/nvidia.icd",),
    ("vulkan/icd.d/nvidia_icd.json", "vulkan/icd.d/nvidia_icd.{machine}.json"),
    ("vulkan/icd.d/nvidia_layers.json",),
    ("vulkan/implicit_layer.d/nvidia_layers.json",),
    ("glvnd/egl_vendor.d/10_nvidia.json",),
    ("egl/egl_external_platform.d/09_nvidia_wayland2.json",),
    ("egl/egl_external_platform.d/10_nvidia_wayland.json",),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json",),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json",),
    ("egl/egl_external_platform.d/20_nvidia_xlib.json",),
    ("nvidia/nvoptix.bin",),
    ("X11/xorg.conf.d/10-nvidia.conf",),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf",),
)
# X modules, below a library folder. Containers get a versioned file under its plain name.
XORG_FOLDERS = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
XORG_MODULES = ("nvidia_drv.so", "libglxserver_nvidia.so")
FIRMWARE_FOLDER = "/lib/firmware/nvidia"

# Sockets of the driver's services. Not cached, because services start and stop.
SERVICES = {
    "/run/nvidia-persistenced/socket": UTILITY,
    "/run/nvidia-fabricmanager/socket": UTILITY,
}
# By value of the setting extra-devices: sockets and files beside device nodes.
EXTRA_SERVICES = {"mps": "/tmp/nvidia-mps"}  # noqa: S108 (the MPS daemon's default)
EXTRA_FILES = {"gds": ("/etc/cufile.json", "/run/udev")}


def is_wanted(name: str, requested: Collection[str]) -> bool:
    """Whether a container with these capabilities gets the library `name`."""
    base = name.rpartition("/")[2].partition(".so")[0]
    return any(one in requested for one in _CAPABILITIES_OF.get(base, ALL))


def is_wanted_32_bit(name: str, requested: Collection[str]) -> bool:
    """Whether a container with these capabilities gets the 32-bit library `name`."""
    uses_cuda = name.rpartition("/")[2].partition(".so")[0] in NOT_32_BIT
    return COMPAT32 in requested and not uses_cuda and is_wanted(name, requested)


def is_wanted_file(destination: str, requested: Collection[str]) -> bool:
    """Whether a container with these capabilities gets the file; destination: its path there."""
    folder, _, name = destination.rpartition("/")
    if name in _BINARIES:
        return _BINARIES[name] in requested
    if "/OpenCL/" in destination:
        return COMPUTE in requested
    if "/firmware/" in destination or any(destination in paths for paths in EXTRA_FILES.values()):
        return True
    if "/xorg/" in folder or "/X11/" in destination:
        return DISPLAY in requested
    return any(one in requested for one in _DRAWING)


def is_wanted_service(path: str, requested: Collection[str]) -> bool:
    """Whether a container with these capabilities gets the service's socket or folder."""
    return path not in SERVICES or SERVICES[path] in requested
