"""A driver root with a compiled fake of NVML, empty libraries and real device nodes."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import Any

from support.files import write
from support.samples import GIB

VERSION = "580.95.05"
DEBIAN, RHEL = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"

NVML = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long u64;
/* Counts its starts, so that a test sees whether it was asked at all.  */
int nvmlInit_v2 (void)
{
  FILE *file = fopen (ASKED, "a");
  if (file) { fputc ('x', file); fclose (file); }
  return INIT;
}
int nvmlShutdown (void) { return 0; }
const char *nvmlErrorString (int status) { return status == 9 ? "Driver Not Loaded" : "?"; }
int nvmlDeviceGetCount_v2 (unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2 (unsigned index, void **device)
{ *device = (void *) (u64) (index + 1); return 0; }
int nvmlDeviceGetUUID (void *device, char *uuid, unsigned size)
{ snprintf (uuid, size, "GPU-%llu", (u64) device - 1); return 0; }
int nvmlDeviceGetName (void *device, char *name, unsigned size)
{ (void) device; snprintf (name, size, "Soft"); return 0; }
int nvmlDeviceGetMinorNumber (void *device, unsigned *minor)
{ *minor = (unsigned) (u64) device - 1; return 0; }
int nvmlSystemGetCudaDriverVersion_v2 (int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCudaComputeCapability (void *device, int *major, int *minor)
{ (void) device; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetBrand (void *device, unsigned *brand) { (void) device; *brand = 2; return 0; }
struct pci { char legacy[16]; unsigned numbers[5]; char id[32]; };
int nvmlDeviceGetPciInfo_v3 (void *device, struct pci *pci)
{ snprintf (pci->id, 32, "00000000:0%llu:00.0", (u64) device - 1); return 0; }
int nvmlDeviceGetHandleByUUID (const char *uuid, void **device)
{ *device = (void *) (strtoull (uuid + 4, NULL, 10) + 1); return 0; }
int nvmlDeviceGetPersistenceMode (void *device, unsigned *mode) { return PERSISTENCE; }
int nvmlDeviceGetMemoryInfo (void *device, u64 memory[3])
{ (void) device; memory[0] = memory[1] = BYTES; memory[2] = 0; return 0; }
"""


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
        self.asked_file = f"{self.path}/asked"
        os.makedirs(self.folder)
        source = write(f"{self.path}/nvml.c", NVML)
        self.nvml = f"{self.folder}/libnvidia-ml.so.{VERSION}"
        words = {"ASKED": f'"{self.asked_file}"', "INIT": init, "COUNT": count, "BYTES": gib * GIB}
        words["PERSISTENCE"] = persistence
        defines = [f"-D{name}={value}" for name, value in words.items()]
        subprocess.run(
            [cc, "-shared", "-fPIC", "-w", *defines, "-o", self.nvml, source], check=True
        )
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
