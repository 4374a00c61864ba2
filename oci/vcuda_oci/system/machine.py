"""What this host's programs are compiled for, and where libraries of that lie."""

from __future__ import annotations

import os


class Machine:
    """name: as the kernel and rpm have it. multiarch: Debian's folder of libraries.

    folders_32_bit: where the driver's libraries for 32-bit programs may be; NVIDIA makes them for
    x86 alone.
    """

    def __init__(self, name: str, folders_32_bit: tuple[str, ...]) -> None:
        self.name, self.multiarch = name, f"/usr/lib/{name}-linux-gnu"
        self.folders_32_bit = folders_32_bit


AMD64 = Machine("x86_64", ("/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/lib"))
ARM64 = Machine("aarch64", ())
THIS = ARM64 if os.uname().machine == ARM64.name else AMD64
