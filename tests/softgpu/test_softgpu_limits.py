"""The driver's memory limit by cgroup, which the software GPU has from driver 615 on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import BUILT, PRELUDE, SoftGpu, answer, go_on

GIB = 1 << 30


def set_limit(gpu: SoftGpu, cgroup: Path, hard: int) -> str:
    """Why not; "": it is set. A cgroup's folder is whatever has its cgroup.procs."""
    printed: str = gpu.client(f"""
sys.path[:0] = ["oci", "runtime_hook", "plugin"]
from vcuda_plugin.agent.bypass.process_probe import ProcessProbe
import pynvml
pynvml.nvmlInit()
uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
probe = ProcessProbe("libnvidia-ml.so.1", [uuid])
say(reason=probe.set_limit(uuid, {str(cgroup)!r}, {hard}))
""")["reason"]
    return printed


TAKE = f"exec {BUILT}/vcuda-workload alloc --chunk 1GiB --hold 1"


def contained(gpu: SoftGpu, cgroup: Path, take: str = TAKE) -> subprocess.Popen[str]:
    """A pid namespace that goes on with `take` once it is told to; its cgroup is made."""
    take = f"read line; {take}"
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    process = gpu.popen([*command, f"echo $$; {take}"])
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        cgroup.mkdir(exist_ok=True)
        (cgroup / "cgroup.procs").write_text(children.read().strip() + "\n")
    return process


def test_a_cgroups_processes_get_no_more_than_its_limit_and_others_the_rest(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "8GiB", "--driver-version", "615.10")
    limited = contained(gpu, tmp_path / "limited")
    assert set_limit(gpu, tmp_path / "limited", 3 * GIB) == ""
    go_on(limited)
    assert answer(limited)["exact_bytes"] == 3 * GIB
    assert gpu.workload("alloc")["exact_bytes"] == 8 * GIB


def test_removed_or_changed_limit_no_longer_applies(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "8GiB", "--driver-version", "615.10")
    first, second = (contained(gpu, tmp_path / name) for name in ("first", "second"))
    for name, hard in (("first", GIB), ("second", GIB), ("first", 2 * GIB), ("second", 2**64 - 1)):
        assert set_limit(gpu, tmp_path / name, hard) == ""
    go_on(first)
    assert answer(first)["exact_bytes"] == 2 * GIB
    go_on(second)
    assert answer(second)["exact_bytes"] == 8 * GIB


def test_rejected_memory_limit_names_the_reason(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "8GiB", "--driver-version", "615.10")
    inside = contained(gpu, tmp_path / "inside")
    own = tmp_path / "own"
    own.mkdir()
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert set_limit(gpu, tmp_path / "missing", GIB) == "Operating system call failed"
    assert set_limit(gpu, own, GIB) == "Insufficient Permissions"
    assert set_limit(gpu, tmp_path / "inside", 9 * GIB) == "Invalid Argument"
    inside.kill()
    inside.communicate()


def test_an_older_driver_has_no_such_limits(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path)
    inside = contained(gpu, tmp_path / "inside")
    assert set_limit(gpu, tmp_path / "inside", GIB) == "Not Supported"
    inside.kill()
    inside.communicate()


def test_processes_of_a_cgroup_share_its_limit_and_are_shown_it(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--memory", "8GiB", "--driver-version", "615.10")
    script = tmp_path / "show.py"
    script.write_text(f"""{PRELUDE}
import pynvml
(ready, say_ready), (over, say_over) = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(say_over)
    start(); ok(cuda.cuMemAlloc(1 << 30))
    os.write(say_ready, b".")
    os._exit(len(os.read(over, 1)))
os.read(ready, 1)
start(); ok(cuda.cuMemAlloc(1 << 30))
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
cgroup = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
say(
    cuda=ok(cuda.cuMemGetInfo()),
    nvml=[cgroup.free, cgroup.total, cgroup.used],
    gpu=pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
)
""")
    both = contained(gpu, tmp_path / "both", f"exec {sys.executable} {script}")
    assert set_limit(gpu, tmp_path / "both", 3 * GIB) == ""
    go_on(both)
    assert answer(both) == {
        "cuda": [GIB, 3 * GIB],
        "nvml": [GIB, 3 * GIB, 2 * GIB],
        "gpu": 8 * GIB,
    }


@pytest.mark.parametrize("enabled", [True, False], ids=["enabled", "not enabled by its parent"])
def test_with_dmem_limits_stand_in_the_files_of_the_cgroup(tmp_path: Path, enabled: bool) -> None:
    gpu = SoftGpu(tmp_path / "gpu", "--memory", "8GiB", "--driver-version", "615.10")
    pod = tmp_path / "kubepods"
    leaf = pod / "leaf"
    leaf.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory dmem\n")
    for folder in (leaf, pod) if enabled else ():
        (folder / "dmem.max").write_text("")
        (folder / "dmem.min").write_text("")
    inside = contained(gpu, leaf)
    assert set_limit(gpu, leaf, 2 * GIB) == ("" if enabled else "Not Found")
    if enabled:
        region = "nvidia/00000000:01:00.0/vidmem"
        assert (leaf / "dmem.max").read_text() == f"{region} {2 * GIB}\n"
        # A reservation would stay with the pod when the runtime removes the container's cgroup.
        assert (pod / "dmem.min").read_text() == (leaf / "dmem.min").read_text() == f"{region} 0\n"
    go_on(inside)
    assert answer(inside)["exact_bytes"] == (2 if enabled else 8) * GIB


def test_soft_limits_reserve_memory_of_each_cgroup_above_and_stay_there(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path / "gpu", "--memory", "8GiB", "--driver-version", "615.10")
    pod = tmp_path / "pod"
    (tmp_path / "cgroup.controllers").write_text("dmem\n")
    inside = []
    for name, soft in (("a", 2), ("b", 1)):
        (pod / name).mkdir(parents=True)
        for folder in (pod, pod / name):
            for file in ("dmem.max", "dmem.min"):
                (folder / file).touch()
        inside.append(contained(gpu, pod / name))
        gpu.client(f"""
import ctypes, pynvml
pynvml.nvmlInit()
nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
path = ctypes.create_string_buffer({str(pod / name)!r}.encode())
def set_limits(soft, hard):
    limits = (ctypes.c_ulonglong * 3)(ctypes.addressof(path), soft << 30, hard << 30)
    return nvml.nvmlDeviceSetMemoryLimits_v1(device, limits)
assert (set_limits(5, 4), set_limits({soft}, 4)) == (2, 0)
say()
""")
    assert (pod / "dmem.min").read_text().split()[1] == str(3 * GIB)
    for one in inside:
        one.kill()
        one.communicate()
