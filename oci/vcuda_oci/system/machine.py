"""The host's processor architecture and its library folders."""

from __future__ import annotations

import os


class Machine:
    """An architecture. name: as the kernel and rpm write it. multiarch: Debian's library folder.

    folders_32_bit: where the driver's 32-bit libraries may be; NVIDIA has them for x86 only.
    """

    def __init__(self, name: str, folders_32_bit: tuple[str, ...]) -> None:
        self.name, self.multiarch = name, f"/usr/lib/{name}-linux-gnu"
        self.folders_32_bit = folders_32_bit


AMD64 = Machine("x86_64", ("/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib"))
ARM64 = Machine("aarch64", ())
THIS = ARM64 if os.uname().machine == ARM64.name else AMD64
