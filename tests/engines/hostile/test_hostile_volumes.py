"""Host volumes at the hook's mount points: the host's files stay unchanged."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from support.bundle.trap import inodes
from support.wrapper.entry_points import FILL, FILLED, KINDS, LOW_LEVEL, Change, EntryPoint, filled

HOOKS = [f"{name}-{kind}" for name in LOW_LEVEL for kind in KINDS]
CREATE_RUNTIME = [f"{name}-createRuntime" for name in LOW_LEVEL]
OTHER_GPU = "nvidia1"


@pytest.fixture
def volume(scratch: str) -> str:
    folder = os.path.join(scratch, "volume")
    os.makedirs(folder)
    return folder


def copy_nodes(source: str, target: str) -> None:
    """The host's /dev: what every container needs, and each GPU's nodes."""
    for name in os.listdir(source):
        if name.startswith("nvidia") and not os.path.isdir(f"{source}/{name}"):
            status = os.stat(f"{source}/{name}")
            os.mknod(f"{target}/{name}", status.st_mode, status.st_rdev)
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        os.mknod(f"{target}/{name}", 0o020666, os.stat(f"/dev/{name}").st_rdev)
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{target}/{name}")
    os.symlink("pts/ptmx", f"{target}/ptmx")
    os.symlink("/proc/self/fd", f"{target}/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{target}/{name}")


def bound(source: str, place: str) -> Change:
    def change(config: dict[str, Any], bundle: str) -> None:
        volume = {"destination": place, "type": "bind", "source": source, "options": ["bind", "rw"]}
        mounts = [mount for mount in config["mounts"] if mount["destination"] != place]
        at = next((i for i, m in enumerate(mounts) if m["destination"].startswith(place)), 0)
        config["mounts"] = [*mounts[:at], volume, *mounts[at:]]

    return change


@pytest.mark.parametrize("entry_point", HOOKS, indirect=True)
def test_host_dev_retains_its_nodes_and_gets_none(
    entry_point: EntryPoint, container: str, volume: str
) -> None:
    copy_nodes(entry_point.product.driver_root + "/dev", volume)
    before = nodes(volume)
    assert f"{volume}/{OTHER_GPU}" in before
    result = entry_point.run(entry_point.with_share(container, *FILL), bound(volume, "/dev"))
    assert filled(result) == FILLED
    assert nodes(volume) == before


@pytest.mark.parametrize("entry_point", CREATE_RUNTIME[:1], indirect=True)
def test_mounts_of_odd_names_stop_no_container(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    """The kubelet mounts a pod's subPath by its name, which the pod's owner chose."""
    other, place, volume = (f"{scratch}/{name}" for name in ("\udcff\r\x0c", "plain", "a\rb\x85"))
    for folder in (other, place, volume):
        os.mkdir(folder)
    entry_point.engine.host.check(["mount", "--bind", other, place])
    try:
        result = entry_point.run(entry_point.with_share(container, *FILL), bound(volume, "/data"))
        assert filled(result) == FILLED
    finally:
        entry_point.engine.host.check(["umount", place])


def nodes(folder: str) -> dict[str, tuple[object, ...]]:
    """Without the times of the null device, which crun itself gives to its caller."""
    found = inodes(folder)
    found[f"{folder}/null"] = ()
    return found


@pytest.mark.parametrize("entry_point", CREATE_RUNTIME, indirect=True)
def test_a_dev_of_the_hosts_without_the_gpus_node_is_refused_and_gets_none(
    entry_point: EntryPoint, container: str, volume: str
) -> None:
    copy_nodes(entry_point.product.driver_root + "/dev", volume)
    os.unlink(f"{volume}/nvidia0")
    refused_without_a_trace(entry_point, container, volume, bound(volume, "/dev"))
    assert OTHER_GPU in os.listdir(volume)


@pytest.mark.parametrize("is_linked", [False, True], ids=["bound there", "the image's link"])
@pytest.mark.parametrize("entry_point", CREATE_RUNTIME, indirect=True)
def test_a_volume_gets_no_mount_points(
    entry_point: EntryPoint, container: str, volume: str, is_linked: bool
) -> None:
    def change(config: dict[str, Any], bundle: str) -> None:
        if is_linked:
            shutil.rmtree(f"{bundle}/rootfs/usr/local", ignore_errors=True)
            os.symlink("/data", f"{bundle}/rootfs/usr/local")
        bound(volume, "/data" if is_linked else "/usr/local")(config, bundle)

    refused_without_a_trace(entry_point, container, volume, change)
    assert os.listdir(volume) == []


def refused_without_a_trace(
    entry_point: EntryPoint, container: str, volume: str, change: Change
) -> None:
    before, log = inodes(volume), os.path.dirname(volume) + "/log"
    result = entry_point.run(entry_point.with_share(container, *FILL), change, log)
    entry_point.sweep()
    assert (result.rc != 0, result.stdout) == (True, "")
    with open(log) as lines:
        assert "it is missing, and would be made in a volume" in lines.read()
    assert inodes(volume) == before
    assert entry_point.leftovers(container) == []
