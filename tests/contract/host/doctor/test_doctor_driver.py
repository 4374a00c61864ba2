"""`vcuda doctor` on drivers in every state: software GPUs, and a fake of NVML."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.files import ROOT, write
from support.gpu.driver_root import DriverRoot
from support.gpu.mig_node import H100
from vcuda_hook.doctor import driver, nvml_answers, report
from vcuda_hook.doctor.finding import ERROR, OK, UNKNOWN, WARNING, Finding

SOFTGPU = ROOT + "/build/softgpu/softgpu"
VERSION = "580.95.05"
REBOOT = "reboot, or unload the nvidia modules and load them again"
LOOK_IN_DMESG = "look for Xid and NVRM lines in 'dmesg'; reset the GPU, or reboot"
LOOK_AT_SMI = "look at 'nvidia-smi -q -d PERFORMANCE'"


@pytest.fixture
def root(tmp_path: Any) -> Iterator[str]:
    """A driver root of the software GPU, with two GPUs."""
    path = f"{tmp_path}/root"
    subprocess.run([SOFTGPU, "create", path, "--gpus", "2"], check=True, capture_output=True)
    yield path
    subprocess.run([SOFTGPU, "destroy", path], check=True, capture_output=True)


@pytest.fixture
def examined(tmp_path: Any) -> Callable[..., list[Finding]]:
    """What the doctor finds of a driver root, by the checks of these names."""

    def examine(root: str, *names: str, seconds: float = 30) -> list[Finding]:
        settings = write(
            f"{tmp_path}/config.toml",
            f'driver-root = "{root}"\nstate-dir = "{tmp_path}/state"\nruntime = "/bin/true"\n',
        )
        return [each for each in report.examine(settings, seconds) if each.name in names]

    return examine


DRIVER = driver.CHECKS
NVML = ("nvml", "persistence", "mig-mode")

NOT_CHECKED = [
    Finding(check, UNKNOWN, "not checked: NVML does not answer", "", "fix that first")
    for check in ("persistence", "mig-mode")
]


def all_is_well(root: str, nodes: int = 5) -> list[Finding]:
    return [
        Finding("driver", OK, f"version {VERSION}", root),
        Finding("driver-versions", OK, "libraries and the kernel's driver are of one version"),
        Finding("device-nodes", OK, f"all {nodes} are there"),
    ]


def test_complete_driver_gives_no_finding(root: str, examined: Any) -> None:
    assert examined(root, *DRIVER, *NVML) == [
        *all_is_well(root),
        Finding("nvml", OK, "counts 2 GPUs"),
        Finding("persistence", OK, "on"),
        Finding("mig-mode", OK, "0 of 2 GPUs; isolation is auto"),
    ]


def test_a_kernel_without_the_driver_is_found(root: str, examined: Any) -> None:
    os.unlink(root + "/proc/driver/nvidia/version")
    not_checked = ("not checked: there is no driver", "", "fix that first")
    assert examined(root, *DRIVER) == [
        Finding(
            "driver",
            ERROR,
            "the kernel's driver is not loaded",
            root + "/proc/driver/nvidia/version",
            "run 'modprobe nvidia'; where that fails, 'dmesg' says why",
        ),
        Finding("driver-versions", UNKNOWN, *not_checked),
        Finding("device-nodes", UNKNOWN, *not_checked),
    ]


def test_a_host_without_a_driver_is_found(tmp_path: Any, examined: Any) -> None:
    os.mkdir(f"{tmp_path}/empty")
    reason = (
        "no NVIDIA driver: libcuda.so.1 is in no library folder",
        f"{tmp_path}/empty",
        "install the driver, or set driver-root in config.toml to the folder that holds it",
    )
    not_checked = ("not checked: there is no driver", "", "fix that first")
    assert examined(f"{tmp_path}/empty", *DRIVER, *NVML) == [
        Finding("driver", ERROR, *reason),
        Finding("driver-versions", UNKNOWN, *not_checked),
        Finding("device-nodes", UNKNOWN, *not_checked),
        Finding("nvml", ERROR, *reason),
        *NOT_CHECKED,
    ]


def test_a_kernel_module_of_another_version_is_found(root: str, examined: Any) -> None:
    write(
        root + "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Sat May 24 07:43:05 UTC 2025\n",
    )
    what = f"libcuda.so.1 is of version {VERSION}, the kernel's driver of 575.57.08"
    assert examined(root, "driver-versions") == [
        Finding("driver-versions", ERROR, what, root, REBOOT)
    ]


def test_libraries_of_two_versions_are_found(root: str, examined: Any) -> None:
    folder = root + "/usr/lib/x86_64-linux-gnu"
    os.unlink(folder + "/libnvidia-ml.so.1")
    os.rename(f"{folder}/libnvidia-ml.so.{VERSION}", folder + "/libnvidia-ml.so.570.1")
    os.symlink("libnvidia-ml.so.570.1", folder + "/libnvidia-ml.so.1")
    what = f"libnvidia-ml.so.1 is of version 570.1, the kernel's driver of {VERSION}"
    assert examined(root, "driver-versions") == [
        Finding("driver-versions", ERROR, what, root, REBOOT)
    ]
    os.unlink(folder + "/libnvidia-ml.so.1")
    what = "no libnvidia-ml.so.1 beside the driver's other libraries"
    assert examined(root, "driver-versions") == [
        Finding("driver-versions", ERROR, what, root, "reinstall the whole driver")
    ]


def test_a_missing_uvm_node_is_found(root: str, examined: Any) -> None:
    os.unlink(root + "/dev/nvidia-uvm")
    os.unlink(root + "/dev/nvidia-uvm-tools")
    assert examined(root, "device-nodes") == [
        Finding(
            "device-nodes",
            ERROR,
            "are not there, or no character device",
            f"{root}/dev/nvidia-uvm, {root}/dev/nvidia-uvm-tools",
            f"run 'chroot {root} nvidia-modprobe -c 0 -u' and create the container again",
        )
    ]


def test_a_file_in_a_nodes_place_is_found(root: str, examined: Any) -> None:
    os.unlink(root + "/dev/nvidia1")
    write(root + "/dev/nvidia1", "")
    assert [(each.severity, each.what, each.where) for each in examined(root, "device-nodes")] == [
        (ERROR, "is not there, or no character device", root + "/dev/nvidia1")
    ]


def test_a_node_of_a_module_that_was_loaded_again_is_found(root: str, tmp_path: Any) -> None:
    os.unlink(root + "/dev/nvidia-uvm")
    os.mknod(root + "/dev/nvidia-uvm", stat.S_IFCHR | 0o666, os.makedev(510, 0))
    devices = "Character devices:\n  1 mem\n195 nvidia\n{} nvidia-uvm\n\nBlock devices:\n  7 loop\n"
    write(f"{tmp_path}/proc/devices", devices.format(510))
    same = driver.nodes(driver.read_host(root, f"{tmp_path}/proc"))
    assert same == Finding("device-nodes", OK, "all 5 are there")
    write(f"{tmp_path}/proc/devices", devices.format(508))
    assert driver.nodes(driver.read_host(root, f"{tmp_path}/proc")) == Finding(
        "device-nodes",
        ERROR,
        "has major 510, and the kernel's module 508",
        root + "/dev/nvidia-uvm",
        f"remove it, then run 'chroot {root} nvidia-modprobe -c 0 -u' and create the container "
        "again",
    )


def test_an_nvml_that_answers_an_error_is_found(root: str, examined: Any) -> None:
    order = ["--call", "nvmlDeviceGetCount_v2", "--error", "NVML_ERROR_GPU_IS_LOST"]
    subprocess.run([SOFTGPU, "fail", root, *order], check=True, capture_output=True)
    library = f"{root}/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}"
    hint = "check the driver with nvidia-smi"
    assert examined(root, *NVML) == [
        Finding("nvml", ERROR, "nvmlDeviceGetCount_v2: GPU is lost", library, hint),
        *NOT_CHECKED,
    ]
    subprocess.run([SOFTGPU, "heal", root], check=True, capture_output=True)
    assert examined(root, "nvml") == [Finding("nvml", OK, "counts 2 GPUs")]


def test_an_nvml_that_hangs_is_found_and_holds_nothing_else_up(
    tmp_path: Any, examined: Any
) -> None:
    root = DriverRoot(f"{tmp_path}/hangs", init="pause ()").path
    write(root + "/proc/driver/nvidia/version", f"NVRM version: NVIDIA Module  {VERSION}  now\n")
    write(root + "/proc/driver/nvidia/gpus/0000:00:00.0/information", "Device Minor: \t 0\n")
    assert examined(root, *DRIVER, *NVML, seconds=10) == [
        *all_is_well(root, nodes=4),
        Finding("nvml", ERROR, "no answer in 10 s", "libnvidia-ml.so.1", LOOK_IN_DMESG),
        *NOT_CHECKED,
    ]


def test_a_driver_without_a_gpu_is_found(tmp_path: Any, examined: Any) -> None:
    root = DriverRoot(f"{tmp_path}/none", count=0).path
    assert examined(root, "nvml") == [
        Finding(
            "nvml",
            ERROR,
            "NVML counts no GPU",
            "nvmlDeviceGetCount",
            "look for NVRM lines in 'dmesg', and for the GPU in 'lspci -d 10de:'",
        )
    ]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("*mode = 1, 0", Finding("persistence", OK, "on")),
        (
            "*mode = device != (void *) 1, 0",
            Finding(
                "persistence",
                WARNING,
                "persistence mode is off: while no program runs the driver lets the GPU go, and "
                "the next start waits for it",
                "GPU 0 (GPU-0)",
                "run 'systemctl enable --now nvidia-persistenced', or 'nvidia-smi -pm 1'",
            ),
        ),
        ("3", Finding("persistence", UNKNOWN, "the driver gives no answer", "", LOOK_AT_SMI)),
    ],
    ids=["on", "off on one of two", "not supported"],
)
def test_persistence_is_judged_for_every_gpu(
    tmp_path: Any, examined: Any, answer: str, found: Finding
) -> None:
    root = DriverRoot(f"{tmp_path}/root", count=2, persistence=answer).path
    assert examined(root, "persistence") == [found]


@pytest.mark.parametrize(
    ("mig", "isolation", "severity"),
    [
        (["--mig", "0="], "turns", WARNING),
        (["--mig", "0=1g.10gb"], "turns", OK),
        (["--mig", "0="], "auto", OK),
        (["--mig", "0="], "mig", OK),
        ([], "mig", ERROR),
        ([], "turns", OK),
    ],
)
def test_mig_mode_and_isolation_must_agree(
    tmp_path: Any, mig: list[str], isolation: str, severity: str
) -> None:
    subprocess.run([SOFTGPU, "create", f"{tmp_path}/gpu", *H100, *mig], check=True)
    gpus = nvml_answers.read_host(f"{tmp_path}/gpu")
    assert nvml_answers.mig_mode(gpus, isolation).severity == severity
