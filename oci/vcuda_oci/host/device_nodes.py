"""The driver's device nodes below a driver root, and which of them a container gets.

Majors and minors are read on each start, because they change when the kernel module is loaded
again.
"""

from __future__ import annotations

import os

from ..model.capabilities import DISPLAY, GRAPHICS
from ..model.gpu import Gpu
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
MODESET = "nvidia-modeset"
# The kernel driver's folder, below a driver root.
KERNEL = "/proc/driver/nvidia"
# By value of the setting extra-devices: prefixes of names below /dev.
EXTRA = {
    "gds": ("nvidia-fs",),
    "gdrcopy": ("gdrdrv",),
    "mofed": ("infiniband/uverbs", "infiniband/rdma_cm"),
    "nvswitch": ("nvidia-nvswitch",),
    "imex": ("nvidia-caps-imex-channels/channel",),
}
_MIG = "nvidia-caps/nvidia-cap"


class DeviceNode:
    """A character device that containers get. path: as the container sees it."""

    def __init__(self, path: str, major: int, minor: int) -> None:
        self.path, self.major, self.minor = path, major, minor


def is_gpu(path: str) -> bool:
    """Whether a node is a GPU's own, by its path in the container."""
    return path.rpartition("/nvidia")[2].isdigit()


def find(root: str, names: Sequence[str]) -> dict[str, DeviceNode]:
    """The character devices among these names below /dev."""
    found = {}
    for name in names:
        try:
            status = os.stat(f"{root}/dev/{name}")
        except OSError:
            continue
        if status.st_mode & 0o170000 == 0o020000:
            number = status.st_rdev
            found[name] = DeviceNode("/dev/" + name, os.major(number), os.minor(number))
    return found


def of_gpu(root: str, gpu: Gpu) -> list[str]:
    """Names below /dev of one GPU's further nodes: MIG capabilities and DRI.

    A MIG device has the capabilities of its GPU instance and its compute instance, and no DRI.
    Source: the driver's documentation of /proc/driver/nvidia/capabilities; the kernel's sysfs.
    """
    files_of = access_files(root + KERNEL, gpu)
    if files_of:
        return [_MIG + minor for minor in map(_capability_minor, files_of) if minor]
    names = []
    mig = f"{root}{KERNEL}/capabilities/gpu{gpu.minor}/mig"
    if os.path.isdir(mig):
        for folder, _, found in os.walk(mig):
            if "access" in found:
                minor = _capability_minor(f"{folder}/access")
                names += [_MIG + minor] if minor else []
    if gpu.bus_id:
        for name in listed(f"{root}/sys/bus/pci/devices/{gpu.bus_id}/drm"):
            if name.startswith(("card", "renderD")):
                names.append("dri/" + name)
    return sorted(names)


def access_files(kernel: str, gpu: Gpu) -> list[str]:
    """The `access` files of a MIG device's capabilities; [] for a GPU. kernel: see KERNEL."""
    if not gpu.mig:
        return []
    _, instance, compute = gpu.mig
    folder = f"{kernel}/capabilities/gpu{gpu.minor}/mig/gi{instance}"
    return [f"{folder}/access", f"{folder}/ci{compute}/access"]


def of_settings(root: str, settings: Collection[str]) -> list[str]:
    """Existing names below /dev for these values of extra-devices."""
    names = []
    for beginning in [one for setting in settings for one in EXTRA.get(setting, ())]:
        folder, slash, start = beginning.rpartition("/")
        for name in listed(f"{root}/dev/{folder}"):
            if name.startswith(start):
                names.append(folder + slash + name)
    return sorted(names)


def link_numbers(devices: Sequence[DeviceNode], dev: str = "/dev") -> None:
    """Make missing links dev/char/<major>:<minor> to existing nodes in `dev`; ignore failures.

    When systemd reloads, runc 1.1.3 to 1.1.6 looks up each device rule's number there, and revokes
    a device without a link. udev makes no links for the driver's devices.
    """
    for device in devices:
        name = device.path[len("/dev/") :]
        link = f"{dev}/char/{device.major}:{device.minor}"
        try:
            number = os.stat(f"{dev}/{name}").st_rdev
            if number == os.makedev(device.major, device.minor) and not os.path.lexists(link):
                os.symlink("../" + name, link)
        except OSError:
            continue


def is_wanted(name: str, requested: Collection[str]) -> bool:
    """Whether a container with these capabilities gets this node, which is not a GPU's own."""
    if name == MODESET or name.startswith("dri/"):
        return GRAPHICS in requested or DISPLAY in requested
    return True


def _capability_minor(path: str) -> str:
    """The minor of the capability's node, in digits; "": not in the file."""
    for line in files.text(path).splitlines():
        key, _, value = line.partition(":")
        if key == "DeviceFileMinor" and value.strip().isdigit():
            return value.strip()
    return ""


def listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
