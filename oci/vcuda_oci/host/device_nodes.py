"""The driver's device nodes below a driver root, and who gets which.

Numbers are the host's own each time: a module that is loaded again may get another major.
"""

from __future__ import annotations

import os

from ..model.capabilities import DISPLAY, GRAPHICS
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..model.gpu import Gpu

CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
MODESET = "nvidia-modeset"
# What the kernel's driver tells, below a driver root.
KERNEL = "/proc/driver/nvidia"
# What a setting of extra-devices gives, by the beginnings of the names below /dev.
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
    """Whether it is a GPU's own node, by its path as the container sees it."""
    return path.rpartition("/nvidia")[2].isdigit()


def find(root: str, names: Sequence[str]) -> dict[str, DeviceNode]:
    """Of these names below /dev those that are character devices."""
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
    """Names below /dev of what belongs to one GPU beside its own node: MIG capabilities, DRI.

    A MIG device has its GPU instance's and its compute instance's, and cannot draw. Source: the
    driver's documentation of /proc/driver/nvidia/capabilities; the kernel's sysfs.
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
    """What in the kernel driver's folder tells the capabilities of a MIG device; of a GPU none."""
    if not gpu.mig:
        return []
    _, instance, compute = gpu.mig
    folder = f"{kernel}/capabilities/gpu{gpu.minor}/mig/gi{instance}"
    return [f"{folder}/access", f"{folder}/ci{compute}/access"]


def of_settings(root: str, settings: Collection[str]) -> list[str]:
    """Names below /dev that settings of extra-devices stand for, as far as they are there."""
    names = []
    for beginning in [one for setting in settings for one in EXTRA.get(setting, ())]:
        folder, slash, start = beginning.rpartition("/")
        for name in listed(f"{root}/dev/{folder}"):
            if name.startswith(start):
                names.append(folder + slash + name)
    return sorted(names)


def link_numbers(devices: Sequence[DeviceNode], dev: str = "/dev") -> None:
    """Make the links dev/char/<major>:<minor> that are missing, to nodes that are in `dev`.

    runc 1.1.3 to 1.1.6 looks a device rule's number up there when systemd reloads, and takes the
    device away where it finds none; udev makes links for classes of devices, which the driver's
    are not. One that can't be made costs nothing else.
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


def is_wanted(name: str, asked: Collection[str]) -> bool:
    """Whether who asks for these capabilities gets a node that is not a GPU's own."""
    if name == MODESET or name.startswith("dri/"):
        return GRAPHICS in asked or DISPLAY in asked
    return True


def _capability_minor(path: str) -> str:
    """The minor of the capability's node, in digits; "" where the file does not say."""
    try:
        text = files.read(path, 4096).decode("ascii", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "DeviceFileMinor" and value.strip().isdigit():
            return value.strip()
    return ""


def listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
