"""/proc/driver/nvidia of a container shows its own GPUs only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import ROOT, write
from vcuda_hook.hooks import attach
from vcuda_oci.edits import edits
from vcuda_oci.edits.edits import Edits
from vcuda_oci.host import procfs
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system import files

HOOK = ROOT + "/build/lib/vcuda-procfs-hook"
INFORMATION = "Model: \t\t Soft\nBus Location: \t 0000:02:00.0\n"
ACCESS = "DeviceFileMinor: 30\nDeviceFileMode: 292\nDeviceFileModify: {}\n"
INSTANCE = "capabilities/gpu1/mig/gi2/access"


def gpu(minor: int) -> Gpu:
    return Gpu(f"GPU-{minor}", minor, minor, 1 << 30, "Soft", f"0000:0{minor + 1}:00.0")


def content(folder: str) -> dict[str, str]:
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(f"{path}/{name}") as file:
                found[os.path.relpath(f"{path}/{name}", folder)] = file.read()
    return found


@pytest.fixture
def kernel(tmp_path: Any) -> str:
    """What the driver shows on a host with two GPUs, one of them in MIG instances."""
    folder = f"{tmp_path}/kernel"
    write(folder + "/version", "NVRM version: NVIDIA 580.95.05\n")
    write(
        folder + "/params", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileGID: 0\n"
    )
    write(folder + "/registry", 'Binary: ""\n')
    write(folder + "/gpus/0000:01:00.0/information", INFORMATION.replace("02", "01"))
    write(folder + "/gpus/0000:02:00.0/information", INFORMATION)
    write(folder + "/gpus/0000:02:00.0/registry", "")
    write(folder + "/capabilities/gpu0/mig/gi1/access", ACCESS.format(1))
    write(f"{folder}/{INSTANCE}", ACCESS.format(1))
    return folder


def test_only_the_granted_gpu_is_shown_and_no_node_is_made(kernel: str, tmp_path: Any) -> None:
    folder = f"{tmp_path}/box"
    write(folder + "/gpus/0000:01:00.0/information", "of another time")
    procfs.write(kernel, folder, [gpu(1)])
    assert content(folder) == {
        "version": "NVRM version: NVIDIA 580.95.05\n",
        "params": "ResmanDebugLevel: 4294967295\nDeviceFileGID: 0\nModifyDeviceFiles: 0\n",
        "gpus/0000:02:00.0/information": INFORMATION,
        INSTANCE: ACCESS.format(0),
    }
    files.remove_tree(folder)
    assert not os.path.exists(folder)


def test_unchanged_files_are_not_rewritten(kernel: str, tmp_path: Any) -> None:
    folder = f"{tmp_path}/box"
    procfs.write(kernel, folder, [gpu(1)])
    before = os.stat(folder + "/params").st_ino
    procfs.write(kernel, folder, [gpu(1)])
    assert os.stat(folder + "/params").st_ino == before
    procfs.write(kernel, folder, [gpu(0)])
    assert os.listdir(folder + "/gpus") == ["0000:01:00.0"]


def test_a_driver_that_reports_little_still_makes_no_node(tmp_path: Any) -> None:
    procfs.write(f"{tmp_path}/nothing", f"{tmp_path}/box", [gpu(0)])
    assert content(f"{tmp_path}/box") == {"params": "ModifyDeviceFiles: 0\n"}


def test_a_folder_that_cannot_be_written_is_one_line(kernel: str, tmp_path: Any) -> None:
    blocked = write(f"{tmp_path}/file", "")
    with pytest.raises(VcudaError) as refused:
        procfs.write(kernel, blocked + "/box", [gpu(0)])
    assert str(refused.value) == (
        f"{blocked}/box: cannot be written: Not a directory; free space there, or set state-dir"
    )


@pytest.fixture
def process() -> Iterator[int]:
    """A process with a mount namespace of its own."""
    command = ["unshare", "--mount", "sh", "-c", "echo; exec sleep 100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def hook(state: str, *words: str) -> tuple[int, str]:
    ran = subprocess.run([HOOK, *words], input=state, capture_output=True, text=True, timeout=20)
    return ran.returncode, ran.stderr


def inside(pid: int, *command: str) -> str:
    ran = subprocess.run(
        ["nsenter", "-t", str(pid), "--mount", *command], capture_output=True, text=True
    )
    return ran.stdout + ran.stderr


def test_the_hook_covers_a_proc_folder_only_for_the_container(process: int, tmp_path: Any) -> None:
    """Other texts that look like the pid stand before it, as a pod's author may write them."""
    source = os.path.dirname(write(f"{tmp_path}/source/params", "ModifyDeviceFiles: 0\n"))
    before = os.listdir("/proc/tty/driver")
    lies = r'"annotations": {"pid": 1, "a": "\"pid\": 1", "b": ["pid", {"pid": 1}]}, "id": "pid"'
    state = f'{{{lies}, "pid" : {process}, "bundle": "/b"}}'
    assert hook(state, "/", source, "tty/driver") == (0, "")
    assert inside(process, "cat", "/proc/tty/driver/params") == "ModifyDeviceFiles: 0\n"
    assert "Read-only file system" in inside(process, "touch", "/proc/tty/driver/params")
    assert os.listdir("/proc/tty/driver") == before
    assert hook(state, "/", source, "tty/driver") == (0, "")
    assert inside(process, "grep", "-c", "/proc/tty/driver", "/proc/self/mountinfo") == "1\n"
    # By something else it is not covered: that is not the container's procfs any more.
    rc, error = hook(state, "/", str(tmp_path), "tty/driver")
    assert (rc, error.split("; ")[0]) == (
        1,
        "vcuda-procfs-hook: tty/driver: is not the container's procfs",
    )


def test_the_hook_runs_it_itself_since_the_runtime_has_read_its_list(
    process: int, tmp_path: Any
) -> None:
    source = os.path.dirname(write(f"{tmp_path}/source/params", "ModifyDeviceFiles: 0\n"))
    changes = Edits()
    changes.hooks = [edits.procfs_hook([HOOK, "/", source, "tty/driver"])]
    attach.run_hooks(changes, "poststop", process)
    assert "params" not in inside(process, "ls", "/proc/tty/driver")
    attach.run_hooks(changes, "createRuntime", process)
    assert inside(process, "ls", "/proc/tty/driver") == "params\n"
    changes.hooks = [edits.procfs_hook([HOOK, "/", source, "no/such"])]
    with pytest.raises(VcudaError, match="no/such: No such file or directory"):
        attach.run_hooks(changes, "createRuntime", process)


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("no/such", "No such file or directory"),
        ("self/root", "Too many levels of symbolic links|Not a directory"),
        ("self/../tty", "No such file or directory|Too many levels|Not a directory"),
        ("version", "Not a directory"),
        ("../etc", "Invalid argument"),
    ],
)
def test_the_hook_follows_nothing_on_its_way(
    process: int, tmp_path: Any, place: str, what: str
) -> None:
    rc, error = hook(f'{{"pid": {process}}}', "/", str(tmp_path), place)
    assert rc == 1
    assert any(text in error for text in what.split("|"))
    assert error.count("\n") == 1
    mounts = inside(process, "cat", "/proc/self/mountinfo")
    assert str(tmp_path) not in mounts


NOBODY = 1 << 40


@pytest.mark.parametrize(
    "state",
    [
        "",
        "{}",
        "[",
        '{"pid',
        '{"pid": 1}',
        '{"pid": "x"}',
        '{"a": {"pid": 5}}',
        '"\\',
        # A prefix of the number, or the first of two numbers: no process has that pid.
        f'{{"pid": {NOBODY}.5}}',
        f'{{"pid": {NOBODY}e3}}',
        f'{{"pid": {NOBODY}',
        f'{{"pid": {NOBODY}, "pid": 1}}',
    ],
)
def test_a_state_that_names_no_process_ends_the_hook(state: str, tmp_path: Any) -> None:
    rc, error = hook(state, "/", str(tmp_path), "tty")
    assert (rc, error.split("; ")[0]) == (
        1,
        "vcuda-procfs-hook: the container's state on stdin: names no process",
    )
