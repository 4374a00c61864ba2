"""The driver's memory limit by cgroup, which the software GPU has from driver 615 on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.softgpu_host import BUILT, SoftGpu, answer, go_on

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


def contained(gpu: SoftGpu, cgroup: Path) -> subprocess.Popen[str]:
    """A pid namespace that takes all it can get once it is told to go on; its cgroup is made."""
    take = f"read line; exec {BUILT}/vcuda-workload alloc --chunk 1GiB --hold 1"
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"]
    process = gpu.popen([*command, f"echo $$; {take}"])
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        cgroup.mkdir()
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
