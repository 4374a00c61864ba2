"""Check whether the GPU memory of a suspended container could be written to a disk, as swap.

The driver copies it to the processes' own memory, which the kernel swaps like any other.
"""

from __future__ import annotations

import os
import stat

from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from .finding import INFO, OK, WARNING, Finding

SWAP = "swap"
CHECKS = (SWAP,)


def examine(settings: Config) -> list[Finding]:
    return judge(open_devices(), settings.idle_suspend > 0 or settings.rotates)


def judge(devices: list[str], suspends: bool) -> list[Finding]:
    """devices: as `open_devices`. suspends: whether the settings suspend containers."""
    what = "the GPU memory of suspended containers may be written there, readable on the disk"
    severity = WARNING if suspends else INFO
    return [
        Finding(SWAP, severity, what, path, f"encrypt it, or run 'swapoff {path}'")
        for path in devices
    ] or [Finding(SWAP, OK, "no swap that keeps what it is given")]


def open_devices(root: str = "") -> list[str]:
    """The swap partitions and files in use that keep their content readable.

    Left out: what lies in memory (zram), and what dm-crypt encrypts, also below a file system or a
    volume. Source: proc(5), swaps; the kernel's dm_crypt has UUIDs that begin with CRYPT.
    """
    try:
        with open(f"{root}/proc/swaps", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")[1:]
    except FileNotFoundError:  # a kernel without swap
        return []
    paths = [line.split()[0].replace("\\040", " ") for line in lines if line.strip()]
    return [path for path in paths if not _is_closed(_device_below(root, path))]


def _device_below(root: str, path: str) -> str:
    """The block device's folder in sysfs: `path` itself, or what the file lies on."""
    try:
        status = os.stat(root + path)
    except OSError:
        return ""
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    return os.path.realpath(f"{root}/sys/dev/block/{os.major(number)}:{os.minor(number)}")


def _is_closed(device: str) -> bool:
    if os.path.basename(device).startswith("zram"):
        return True
    if files.text(f"{device}/dm/uuid").startswith("CRYPT-"):
        return True
    try:
        parts = os.listdir(f"{device}/slaves")
    except OSError:
        return False  # not the device mapper's
    folders = [os.path.realpath(f"{device}/slaves/{name}") for name in parts]
    return bool(folders) and all(map(_is_closed, folders))
