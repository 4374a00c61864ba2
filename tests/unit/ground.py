"""What the ground floor's tests stand on: GPUs, owners, a runtime that answers, and faults."""

from __future__ import annotations

import errno
import glob
import json
import os
import signal
import stat
import time
from collections.abc import Callable
from typing import Any

from vcuda_oci.container.identity import Owner
from vcuda_oci.container.request import Request
from vcuda_oci.host.host import DeviceNode, Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.placement.choose import Gpu

GIB = 1 << 30
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Answers `state ID` with the file states/ID beside it, and without one as runc does.
RUNTIME = """#!/bin/sh
for id; do :; done
if [ -e "${0%/*}/states/$id" ]; then exec cat "${0%/*}/states/$id"; fi
echo 'container does not exist' >&2
exit 1
"""


class FakeRuntime:
    """A low-level runtime that knows the containers it is told of. `words`: as records hold it."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)
        os.makedirs(self.folder + "/states")
        self.path = self.folder + "/runc"
        script(self.path, RUNTIME)
        self.words = [self.path]

    def knows(self, container_id: str, status: str, **more: Any) -> None:
        write(f"{self.folder}/states/{container_id}", json.dumps({"status": status, **more}))

    def forgets(self, container_id: str) -> None:
        os.unlink(f"{self.folder}/states/{container_id}")


def gpus(*memory_gib: int) -> list[Gpu]:
    return [
        Gpu(f"GPU-{index}", index, index, size * GIB, "Soft")
        for index, size in enumerate(memory_gib)
    ]


def host(*memory_gib: int) -> Host:
    found = Host("/root", "580.95.05", "/root/usr/lib/x86_64-linux-gnu", gpus(*memory_gib))
    for gpu in found.gpus:
        found.nodes[f"nvidia{gpu.minor}"] = DeviceNode(f"/dev/nvidia{gpu.minor}", 195, gpu.minor)
    found.nodes["nvidiactl"] = DeviceNode("/dev/nvidiactl", 195, 255)
    found.nodes["nvidia-uvm"] = DeviceNode("/dev/nvidia-uvm", 510, 0)
    return found


def pod_owner(container_id: str, name: str = "main") -> Owner:
    return Owner(f"pod-uid1.{name}", container_id, "uid1", "default", "web", name, "sandbox1")


def record(id: str = "box", **changes: Any) -> Allocation:
    """A record of a claim that is over: its claimant is no process."""
    fields: dict[str, Any] = {
        "id": id,
        "shares": [GpuShare("GPU-0", 4 * GIB, 30)],
        "request": Request(30, 4 * GIB).as_json(),
        "container_id": id,
        "runtime": ["/nowhere/runc", "--root", "/nowhere/root"],
        "claimant": [1, 1],
        "created": 1700000000.5,
        "pod": {},
    }
    return Allocation(**{**fields, **changes})


def left_in(state_dir: str) -> list[str]:
    """Every file and folder of a state folder but what stays: locks, the door, the events.

    The record of an ended container's page stays while the page keeper, or a sync of all file
    systems, has the page. The next claim removes it, as this function does.
    """
    deadline = time.monotonic() + 30
    while glob.glob(state_dir + "/ended/*") and time.monotonic() < deadline:
        time.sleep(0.01)
        Ledger(state_dir).cut_ended()
    found = []
    for folder, folders, files in os.walk(state_dir):
        found += [
            os.path.relpath(os.path.join(folder, name), state_dir) for name in folders + files
        ]
    stays = {"lock", "pages.lock", "door.sock", "events.jsonl"}
    stays |= {"allocations", "containers", "ended"}
    return sorted(set(found) - stays)


def shares_of(ledger: Ledger) -> dict[str, list[GpuShare]]:
    whole, broken = ledger.read()
    assert broken == []
    return {allocation.id: allocation.shares for allocation in whole}


def write(path: str, content: str | bytes, mode: int = 0o644) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    os.chmod(path, mode)
    return path


def script(path: str, content: str) -> str:
    return write(path, content, 0o755)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# Every call by which the ground floor changes the world.
CHANGES = (
    "open",
    "write",
    "pwrite",
    "fchmod",
    "posix_fallocate",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "close",
)
NEEDS_SPACE = ("open", "write", "posix_fallocate", "fsync", "rename", "mkdir")


class Faults:
    """Lets the n-th change go wrong, in this process."""

    def __init__(self, calls: tuple[str, ...], at: int, fault: Callable[[str, Any], None]) -> None:
        self.seen = 0
        self.originals = {name: getattr(os, name) for name in calls}
        for name, original in self.originals.items():
            setattr(os, name, self._wrapped(name, original, at, fault))

    def _wrapped(self, name: str, original: Any, at: int, fault: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            creates = name == "mkdir" or (name == "open" and arguments[1] & os.O_CREAT)
            harmless = name in ("mkdir", "open") and not (
                creates and not os.path.exists(arguments[0])
            )
            if harmless:
                return original(*arguments, **options)
            self.seen += 1
            if self.seen == at:
                fault(name, arguments)
            return original(*arguments, **options)

        return wrapped

    def restore(self) -> None:
        for name, original in self.originals.items():
            setattr(os, name, original)


def killed_at(at: int, act: Callable[[], Any]) -> bool:
    """Run `act` in a child that dies by SIGKILL at its `at`-th change; False: it came to its end.

    A write that is killed has written half.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            half_write = os.write

            def die(name: str, arguments: Any) -> None:
                if name == "write":
                    half_write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)

            Faults(CHANGES, at, die)
            act()
            status = 0
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL), f"the child failed by itself at change {at}"
    return ended != 0


def without_space(at: int, act: Callable[[], Any]) -> tuple[bool, Any]:
    """Run `act` here with ENOSPC at the `at`-th change that needs space: whether it came, answer.

    The answer is the exception where one was raised.
    """

    def refuse(name: str, arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")

    faults = Faults(NEEDS_SPACE, at, refuse)
    try:
        answer: Any = act()
    except Exception as error:
        answer = error
    finally:
        faults.restore()
    return faults.seen >= at, answer
