"""Links that are swapped in while we work: nothing of the host is mounted, made or read.

The step that others fell to, from looking at the image's compat folder to mounting there, is run by
the product's own code in a real mount namespace under threads that rename; and whole containers
are created under them. `make soak-races` does each 10,000 times, every run of the tests a part.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.bundle import rootfs
from support.bundle.trap import SECRET, Trap
from support.engines.base import Files
from support.product import REPOSITORY
from support.wrapper.entry_points import FILL, MAIN_ENTRY_POINTS, WRAPPER, EntryPoint

SOAK = int(os.environ.get("VCUDA_SOAK", "0"))
STEPS = SOAK or 2_000
CREATES = (SOAK or 30) // len(MAIN_ENTRY_POINTS)  # through each entry point
RENAME_EXCHANGE = 2
libc = ctypes.CDLL(None)
COMPAT = "usr/local/cuda-12.4/compat"


class Swapping:
    """Threads that exchange names in the image for links to the host, and back, until the end.

    By descriptors of the image's folders: a path would lead these threads themselves to the host.
    """

    def __init__(self, rootfs: str, trap: Trap) -> None:
        compat = f"{rootfs}/{COMPAT}"
        for folder in (compat, f"{rootfs}/usr/local/vcuda"):
            os.makedirs(folder)
        for name in ("libcuda.so.1", "libcuda.so.550.54.14"):
            with open(f"{compat}/{name}", "w") as file:
                file.write("the image's own")
        self.stop = threading.Event()
        self.swaps = [0, 0, 0]
        self.threads: list[threading.Thread] = []
        for path, target in (
            (f"{compat}/libcuda.so.1", f"{trap.folder}/libcuda.so.1"),
            (compat, trap.folder),
            (f"{rootfs}/usr/local/vcuda", trap.folder),
        ):
            parent = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
            name = os.path.basename(path)
            os.symlink(target, name + ".link", dir_fd=parent)
            self.threads.append(
                threading.Thread(target=self._swap, args=(len(self.threads), parent, name.encode()))
            )

    def _swap(self, number: int, folder: int, name: bytes) -> None:
        while not self.stop.is_set():
            if libc.renameat2(folder, name, folder, name + b".link", RENAME_EXCHANGE) == 0:
                self.swaps[number] += 1
        os.close(folder)

    def __enter__(self) -> Swapping:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


# Runs in a mount namespace of its own: looks at the image, lays mounts where it says, looks at what
# is mounted, takes them off. Says each mount that is not of ours, and each file that came through.
STEP = """
import os, sys
from vcuda_hook.hooks import attach
from vcuda_hook.hooks import root_paths
from vcuda_hook.hooks import syscalls
from vcuda_oci.container.container import container_of
from vcuda_oci.container import image_libraries
from vcuda_oci.guest.tree import Tree
root, shim, secret, steps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
spec = {"root": {"path": root}, "process": {"env": []}}
found = laid = 0
for step in range(steps):
    container = container_of(spec, "", "/")
    with Tree(container.rootfs) as image:
        places = image_libraries.find(image, container, ["libcuda.so.1"])
    found += len(places)
    inside = os.open(root, os.O_PATH | os.O_DIRECTORY)
    for place in [*places, "/usr/local/vcuda/limits"]:
        mount = attach._source(shim, ["ro"])
        try:
            attach._lay(root_paths.Root(inside), place, mount)
            laid += 1
        except Exception:
            os.close(mount)
    os.close(inside)
    with open("/proc/self/mountinfo") as mounts:
        points = [line.split()[4] for line in mounts if " " + shim in line]
    for point in points:
        if not point.startswith(root + "/"):
            print("OUTSIDE", point)
    for point in reversed(points):
        syscalls._libc.umount2(point.encode(), 2)
print("done", steps, found > 0, laid > 0)
"""


@pytest.fixture
def trap(scratch: str) -> Trap:
    return Trap(os.path.join(scratch, "trap"))


@pytest.fixture
def image(files: Files, scratch: str) -> Iterator[str]:
    os.mkdir(scratch + "/image")
    rootfs.copy(files.rootfs, scratch + "/image/rootfs")
    yield scratch + "/image/rootfs"


def test_the_step_from_looking_to_mounting_holds_under_renaming_threads(
    image: str, trap: Trap, scratch: str
) -> None:
    shim = scratch + "/shim"
    with open(shim, "w") as file:
        file.write("the shim")
    paths = ":".join(f"{REPOSITORY}/{name}" for name in ("oci", "runtime_hook"))
    with Swapping(image, trap) as swapping:
        ran = subprocess.run(
            ["unshare", "-m", "--propagation", "private", sys.executable, "-c", STEP,
             image, shim, trap.folder, str(STEPS)],
            env={"PYTHONPATH": paths}, capture_output=True, text=True,
        )  # fmt: skip
    assert (ran.stderr, ran.stdout) == ("", f"done {STEPS} True True\n")
    assert min(swapping.swaps) > STEPS / 10
    assert trap.changed() == []


@pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)
def test_containers_that_are_created_under_renaming_threads_get_nothing_of_the_host(
    entry_point: EntryPoint, container: str, scratch: str
) -> None:
    trap = Trap(os.path.join(scratch, "trap"))
    script = f"cat /{COMPAT}/* /{COMPAT}/*/* 2>/dev/null; {' '.join(FILL)}"
    for number in range(CREATES):
        swapping: list[Swapping] = []

        def renamed(config: dict[str, Any], bundle: str, begun: list[Swapping] = swapping) -> None:
            begun.append(Swapping(f"{bundle}/rootfs", trap).__enter__())

        try:
            asked = entry_point.with_share(f"{container}-{number}", "sh", "-c", script)
            result = entry_point.run(asked, renamed)
        finally:
            for each in swapping:
                each.__exit__()
        assert SECRET not in result.stdout + result.stderr
        # Behind the wrapper runc makes the mount points: 1.1 is open to CVE-2024-45310 and may make
        # empty ones where a link leads.
        by_runc = (entry_point.engine.low_level, entry_point.kind) == ("runc", WRAPPER)
        assert (trap.harmed() if by_runc else trap.changed()) == []
        assert min(swapping[0].swaps) > 0
    entry_point.sweep()
    assert entry_point.leftovers(container) == []
