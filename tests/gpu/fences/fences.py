"""Questions of the other fences: the driver's own limit of a cgroup, and MIG's profiles.

The limit is of a cgroup of this program's own, which is removed. MIG mode and instances are only
read.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.result import Figure
from gpu.machine import Machine, UnmeasuredError, answer
from support.files import ROOT
from support.gpu.mig_tables import profiles

LIMIT = 512 << 20
_END_SECONDS = 10.0
_MODELS = ("A100", "H100", "H200")
# What sets or reads a limit: the arguments are a GPU, a folder, and bytes; 0 bytes: only read.
NVML = """
import ctypes, json, sys
uuid, folder, hard = sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3])
nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(device))
path = ctypes.create_string_buffer(folder)
four = (ctypes.c_ulonglong * 4)(ctypes.addressof(path), hard, hard, 0)
name = "nvmlDevice%sMemoryLimits_v1" % ("Set" if hard else "Get")
call = getattr(nvml, name, None)
print(json.dumps({"rc": call(device, four) if call else 13, "used": four[3]}))
"""
# A process in the cgroup: what it sees, gets, and is answered when it widens its own limit.
INSIDE = """
import ctypes, json, os, subprocess, sys
import pynvml
uuid, folder, nvml_script = sys.argv[1:4]
cuda, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
context, device = ctypes.c_void_p(), ctypes.c_int()
rc = (cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
      or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
assert not rc, f"CUDA error {rc}"
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
got, pointer = 0, ctypes.c_uint64()
for chunk in (16 << 20, 2 << 20):
    while not cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(chunk)):
        got += chunk
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
seen = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
own = subprocess.run([sys.executable, "-c", nvml_script, uuid, folder, str(1 << 30)],
                     stdout=subprocess.PIPE, check=True).stdout
print(json.dumps({"got": got, "total": total.value, "nvml": seen.total,
                  "whole": pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
                  "own": json.loads(own)["rc"]}), flush=True)
sys.stdin.readline()
"""
# Without MIG mode NVML has the profiles, and not their places.
MIG = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
from vcuda_oci.host import mig
nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByUUID(sys.argv[2].encode(), ctypes.byref(device))
mode, pending = ctypes.c_uint(), ctypes.c_uint()
rc = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mode), ctypes.byref(pending))
with mig.Mig("libnvidia-ml.so.1") as driver:
    if mode.value:
        found = [one.fields() for one in driver.layout(sys.argv[2]).profiles]
    else:
        found = [{"id": info.id, "name": driver._name(device, at, info),
                  "slices": info.slices, "most": info.instances}
                 for at, info in driver._profiles(device) if at in mig._PLAIN]
print(json.dumps({"rc": rc, "mode": mode.value, "profiles": found}))
"""


def limits(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError: the driver has no such limits, or refuses one."""
    with _cgroup() as folder:
        # Its first process joins by itself: its parent stays outside.
        enter = f'echo 0 >{folder}/cgroup.procs; echo; read line; exec "$0" "$@"'
        command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", enter]
        words = [sys.executable, "-c", INSIDE, machine.uuid, folder, NVML]
        process = machine.start(*command, *words, stdin=-1)
        try:
            assert process.stdin and process.stdout
            process.stdout.readline()
            set_to = _ask(machine, folder, LIMIT)["rc"]
            if set_to:
                raise UnmeasuredError(f"driver {machine.card.driver}: NVML error {set_to}")
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                answer(process)
            seen, counted = json.loads(line), _ask(machine, folder, 0)["used"]
        finally:
            process.kill()
            process.wait()
    return [
        Figure("limits.beyond", max(0, seen["got"] - LIMIT), "bytes", 0, {}),
        Figure("limits.got", seen["got"] >> 20, "MiB", None, {}, f"of {LIMIT >> 20}"),
        Figure("limits.cuMemGetInfo off by", abs(seen["total"] - LIMIT), "bytes", 0, {}),
        Figure("limits.NVML off by", abs(seen["nvml"] - LIMIT), "bytes", None, {},
               f"its first version shows {seen['whole'] >> 20} MiB"),
        Figure("limits.counted above", (counted - seen["got"]) >> 20, "MiB", None, {}),
        Figure("limits.own limit", seen["own"], "error of its own root", None, {}),
    ]  # fmt: skip


def mig(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError: the GPU has no MIG."""
    script = [sys.executable, "-c", MIG, f"{ROOT}/oci", machine.uuid]
    found = answer(machine.start(*script))
    if found["rc"]:
        raise UnmeasuredError(f"no MIG: NVML error {found['rc']}")
    known = [model for model in _MODELS if model in machine.card.name]
    table = {one.id: _shape(one.fields()) for one in profiles(known[0])} if known else {}
    differ = [
        one["name"]
        for one in found["profiles"]
        if (of_table := table.get(one["id"])) and of_table != {**of_table, **_shape(one)}
    ]
    names = ", ".join(one["name"] for one in found["profiles"])
    mode = f"MIG mode {'on' if found['mode'] else 'off'}: {names}"
    return [
        Figure("mig.profiles", len(found["profiles"]), "profiles", None, {}, mode),
        Figure("mig.unlike the table", len(differ), "profiles", 0, {}, ", ".join(differ)),
    ]


def _shape(fields: dict[str, Any]) -> dict[str, Any]:
    """Without name and memory, which differ by the size of the card's memory."""
    kept = ("slices", "most", "width", "starts")
    return {
        key: list(one) if key == "starts" else one for key, one in fields.items() if key in kept
    }


def _ask(machine: Machine, folder: str, hard: int) -> Any:
    words = [sys.executable, "-c", NVML, machine.uuid, folder, str(hard)]
    return answer(machine.start(*words))


@contextlib.contextmanager
def _cgroup() -> Iterator[str]:
    """A new cgroup v2. Raises UnmeasuredError: the host has none."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        roots = [words[1] for words in map(str.split, mounts) if words[2] == "cgroup2"]
    if not roots:
        raise UnmeasuredError("no cgroup v2")
    folder = f"{roots[0]}/vcuda-gpu-{os.getpid()}"
    os.mkdir(folder)
    try:
        yield folder
    finally:
        until = time.monotonic() + _END_SECONDS
        while os.path.exists(folder):  # the kernel ends its process
            try:
                os.rmdir(folder)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
