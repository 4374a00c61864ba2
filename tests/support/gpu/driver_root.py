"""A driver root with a compiled fake of NVML, empty libraries and real device nodes."""

from __future__ import annotations

import os
import stat
from typing import Any

from support import compiled
from support.files import write
from support.ledger.samples import GIB

VERSION = "580.95.05"
DEBIAN, RHEL = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"

NVML = os.path.join(compiled.CLIENTS, "fake_nvml.c")


class DriverRoot:
    """path: what `driver-root` says. asked(): how often its NVML was started."""

    def __init__(
        self,
        path: Any,
        folder: str = DEBIAN,
        count: int = 1,
        init: int | str = 0,
        gib: int = 16,
        persistence: str = "*mode = 1, 0",
        cc: str = "gcc",
    ) -> None:
        self.path, self.folder = str(path), str(path) + folder
        # Made now: the cache of facts is stale after a change of the root itself.
        for folder in (self.folder, f"{self.path}/state", f"{self.path}/tmp"):
            os.makedirs(folder)
        self.asked_file = f"{self.path}/tmp/asked"
        self.nvml = f"{self.folder}/libnvidia-ml.so.{VERSION}"
        words = {"INIT": init, "COUNT": count, "BYTES": gib * GIB, "PERSISTENCE": persistence}
        words["ASKED"] = f'"{os.path.relpath(self.asked_file, self.folder)}"'
        defines = [f"-D{name}={value}" for name, value in words.items()]
        command = [cc, "-shared", "-fPIC", "-w", *defines, NVML]
        compiled.make(self.nvml, command, [NVML])
        os.symlink(f"libnvidia-ml.so.{VERSION}", f"{self.folder}/libnvidia-ml.so.1")
        write(f"{self.folder}/libcuda.so.{VERSION}", "")
        os.symlink(f"libcuda.so.{VERSION}", f"{self.folder}/libcuda.so.1")
        write(f"{self.path}/usr/bin/nvidia-smi", "", 0o755)
        self.nodes = {"nvidiactl": (195, 255), "nvidia-uvm": (510, 0), "nvidia-uvm-tools": (510, 1)}
        for index in range(count):
            self.nodes[f"nvidia{index}"] = (195, index)
            os.makedirs(f"{self.path}/proc/driver/nvidia/gpus/0000:0{index}:00.0")
        os.makedirs(f"{self.path}/dev")
        for name, number in self.nodes.items():
            os.mknod(f"{self.path}/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(*number))

    def asked(self) -> int:
        return os.path.getsize(self.asked_file) if os.path.exists(self.asked_file) else 0
