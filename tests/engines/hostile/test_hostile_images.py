"""Images that are built to be followed out of their root: nothing of the host is reached.

Each is started through every entry point. What a hostile path would reach is a folder of the host;
its inodes are compared before and after. All that the container has is ours or its image's.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any

import pytest

from support.bundle.trap import SECRET, Trap
from support.engines.base import Wanted
from support.wrapper.entry_points import (
    FILL,
    FILLED,
    LOW_LEVEL,
    MAIN_ENTRY_POINTS,
    WRAPPER,
    Change,
    EntryPoint,
    filled,
)
from vcuda_oci.edits import edits

LIBRARIES = "usr/lib/x86_64-linux-gnu"


NODES = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def node(entry_point: EntryPoint, name: str) -> dict[str, Any]:
    number = os.stat(f"{entry_point.product.driver_root}/dev/{name}").st_rdev
    return {
        "path": f"/dev/{name}",
        "type": "c",
        "major": os.major(number),
        "minor": os.minor(number),
        "fileMode": 0o666,
    }


@pytest.fixture
def trap(scratch: str) -> Trap:
    return Trap(os.path.join(scratch, "trap"))


def replaced_by_link(path: str, target: str) -> None:
    """Put a link where the image has a folder, and the folder where the link leads inside."""
    rootfs = path[: path.index("/rootfs/") + len("/rootfs")]
    inside = rootfs + target
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if os.path.isdir(path):
        os.rename(path, inside)
    else:
        os.makedirs(inside)
        os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def test_compat_libraries_that_link_to_the_host_give_nothing_of_it(
    entry_point: EntryPoint, container: str, trap: Trap
) -> None:
    def linked(config: dict[str, Any], bundle: str) -> None:
        for version, name, target in (
            ("12.4", "libcuda.so.550.54.14", f"{trap.folder}/folder"),
            ("12.5", "libcuda.so.1", f"{trap.folder}/secret"),
            ("12.6", "libcuda.so.1", f"../../../../../../../../../..{trap.folder}/libcuda.so.1"),
        ):
            compat = f"{bundle}/rootfs/usr/local/cuda-{version}/compat"
            os.makedirs(compat)
            os.symlink(target, f"{compat}/{name}")

    script = f"cat /usr/local/cuda-*/compat/* 2>/dev/null; exec {' '.join(FILL)}"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), linked)
    assert SECRET not in result.stdout + result.stderr
    assert filled(result) == FILLED
    assert trap.changed() == []
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


@pytest.mark.parametrize("place", ["usr/local/cuda-12.4/compat", LIBRARIES, "usr/local/vcuda"])
def test_a_folder_that_is_a_link_to_the_host_stays_inside(
    entry_point: EntryPoint, container: str, trap: Trap, place: str
) -> None:
    """The image has a folder of its own under the link's target, with the library to mount over."""

    def linked(config: dict[str, Any], bundle: str) -> None:
        replaced_by_link(f"{bundle}/rootfs/{place}", trap.folder)
        if "compat" in place:
            with open(f"{bundle}/rootfs{trap.folder}/libcuda.so.1", "w") as file:
                file.write("the image's own")

    # Where the loader's folder is a link, the libraries are in the next of its folders.
    script = f"cat {trap.folder}/secret 2>/dev/null; LD_LIBRARY_PATH=/usr/lib64 {' '.join(FILL)}"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), linked)
    assert filled(result) == FILLED
    assert trap.changed() == []


def test_the_images_ldconfig_never_runs(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    """It would write where it runs; neither is the host's run in the image, and the image's
    cache stays."""
    mark = os.path.join(scratch, "mark")
    images: list[str] = []

    def malicious(config: dict[str, Any], bundle: str) -> None:
        rootfs = f"{bundle}/rootfs"
        for path in ("usr/sbin/ldconfig", "usr/sbin/ldconfig.real", "usr/bin/ldconfig"):
            if os.path.lexists(f"{rootfs}/{path}"):
                os.unlink(f"{rootfs}/{path}")
            with open(f"{rootfs}/{path}", "w") as file:
                file.write(f"#!/bin/sh\nls -l /proc/self/fd /proc/self/ns >>{mark}\necho >>/ran\n")
            os.chmod(f"{rootfs}/{path}", 0o755)
        with open(f"{rootfs}/etc/ld.so.cache", "w") as file:
            file.write("as the image has it")
        images.append(rootfs)

    script = f"cat /etc/ld.so.cache >&2; ls /ran >&2; exec {' '.join(FILL)}"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), malicious)
    assert filled(result) == FILLED
    assert result.stderr == "as the image has itls: /ran: No such file or directory\n"
    assert not os.path.exists(mark)


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_loaders_cache_that_is_no_file_is_neither_followed_nor_opened(
    entry_point: EntryPoint, container: str, trap: Trap, kind: str
) -> None:
    """A pipe would hold the start for ever; a device would act by being opened."""

    def hostile(config: dict[str, Any], bundle: str) -> None:
        etc = f"{bundle}/rootfs/etc"
        os.makedirs(etc + "/ld.so.conf.d")
        for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d/cuda.conf"):
            if kind == "link":
                os.symlink(trap.folder + "/secret", f"{etc}/{name}")
            elif kind == "pipe":
                os.mkfifo(f"{etc}/{name}")
            else:
                os.mknod(f"{etc}/{name}", 0o666 | stat.S_IFCHR, os.makedev(195, 1))
        if kind == "link":
            os.rename(etc + "/ld.so.conf.d", etc + "/away")
            os.symlink(trap.folder, etc + "/ld.so.conf.d")

    # A static program answers: the image's own loader would open the pipe.
    result = entry_point.run(entry_point.with_share(container, "ls", "/usr/local/vcuda"), hostile)
    assert result.stdout == "driver\nlimits\nusage\n", result.stderr
    assert trap.changed() == []
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


@pytest.mark.parametrize("names", [["dev"], ["dev/null", "dev/nvidia0"], ["dev/pts"]], ids=str)
@pytest.mark.parametrize("mounted", [True, False], ids=["over", "bare"])
@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_a_dev_that_leads_to_the_host_gets_nothing_of_ours(
    entry_point: EntryPoint, container: str, scratch: str, names: list[str], mounted: bool
) -> None:
    """Engines mount a tmpfs on /dev; without it the image's own /dev is what every program meets.

    runc 1.1 itself writes its links (fd, stdin, …) there, and crun 1.8 every node of config.json:
    what the runtime alone does to such an image is what may happen.
    """

    def leading_to(trap: Trap) -> Change:
        def linked(config: dict[str, Any], bundle: str) -> None:
            rootfs = f"{bundle}/rootfs"
            for name in names:
                target = {"dev": "/folder", "dev/pts": "/folder"}.get(
                    name, "/" + os.path.basename(name)
                )
                if os.path.isdir(f"{rootfs}/{name}"):
                    shutil.rmtree(f"{rootfs}/{name}")
                os.symlink(trap.folder + target, f"{rootfs}/{name}")
            if trap is alone and entry_point.kind == WRAPPER:
                config["linux"]["devices"] = [node(entry_point, name) for name in NODES]
            if not mounted:
                config["mounts"] = [m for m in config["mounts"] if m["destination"][:4] != "/dev"]

        return linked

    script = "cat /dev/secret /dev/null /dev/nvidia0 2>/dev/null; ls -ln /dev/ | grep nvidia0"
    alone, ours = Trap(scratch + "/alone"), Trap(scratch + "/ours")
    entry_point.plain(Wanted(container, ["sh", "-c", script]), leading_to(alone))
    result = entry_point.run(
        entry_point.with_share(container, "sh", "-c", script), leading_to(ours)
    )
    assert SECRET not in result.stdout + result.stderr
    assert ours.changed() == alone.changed()
    entry_point.sweep()
    assert entry_point.leftovers(container) == []


@pytest.mark.parametrize("image", ["a link", "a folder"])
@pytest.mark.parametrize("entry_point", [f"{name}-{WRAPPER}" for name in LOW_LEVEL], indirect=True)
def test_a_proc_that_is_the_images_own_is_covered_by_nothing(
    entry_point: EntryPoint, container: str, trap: Trap, image: str
) -> None:
    """The hook for /proc/driver/nvidia meets what the image has there: it ends the container."""
    hook = entry_point.product.prefix + "/lib/vcuda/vcuda-procfs-hook"

    def without_procfs(config: dict[str, Any], bundle: str) -> None:
        config["mounts"] = [m for m in config["mounts"] if m["destination"] != "/proc"]
        for key in ("maskedPaths", "readonlyPaths"):
            config["linux"].pop(key)
        place = f"{bundle}/rootfs/proc/driver"
        os.symlink(trap.folder, place) if image == "a link" else os.mkdir(place)
        kind, entry = edits.procfs_hook([hook, bundle + "/rootfs", trap.folder, "driver"])
        config["hooks"] = {kind: [entry]}

    result = entry_point.run(Wanted(container, ["cat", "/proc/driver/secret"]), without_procfs)
    assert result.rc != 0
    assert SECRET not in result.stdout + result.stderr
    if entry_point.engine.low_level == "runc":  # crun does not print a hook's output
        reason = "Not a directory" if image == "a link" else "is not the container's procfs"
        assert f"vcuda-procfs-hook: driver: {reason}" in result.stderr
    assert trap.changed() == []
