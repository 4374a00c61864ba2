"""The host's cgroup folders, in every hierarchy: those of the tests are found and removed here."""

from __future__ import annotations

import glob
import os
import signal
import time

ROOT = "/sys/fs/cgroup"


def hierarchies() -> list[str]:
    """Each mounted hierarchy's root; on pure v2 there is one."""
    with open("/proc/self/mounts") as mounts:
        fields = [line.split() for line in mounts]
    return sorted({point for _, point, kind, *_ in fields if kind in ("cgroup", "cgroup2")})


def is_v1() -> bool:
    """Whether the device rules of this host are cgroup v1's."""
    return os.path.exists(os.path.join(ROOT, "devices"))


def named(prefix: str) -> set[str]:
    """Names of top-level cgroups that begin so."""
    found = (glob.glob(os.path.join(root, prefix + "*")) for root in hierarchies())
    return {os.path.basename(path) for paths in found for path in paths}


def remove(group: str) -> None:
    """Remove a top-level cgroup and all below, with what still runs in it."""
    for root in hierarchies():
        top = root + group
        for folder, _, _ in os.walk(top, topdown=False):
            _remove_one(folder)


def _remove_one(folder: str) -> None:
    # The kernel takes a moment after the last process's end until the folder can go.
    deadline = time.monotonic() + 10
    while True:
        try:
            os.rmdir(folder)
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        _kill_all(folder)
        time.sleep(0.01)


def _kill_all(folder: str) -> None:
    try:
        with open(os.path.join(folder, "cgroup.procs")) as procs:
            pids = [int(line) for line in procs]
    except OSError:
        return
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
