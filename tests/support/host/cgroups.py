"""Find and remove the tests' cgroups in every hierarchy of the host."""

from __future__ import annotations

import glob
import os
import signal
import time

ROOT = "/sys/fs/cgroup"


def hierarchies() -> list[str]:
    """The root of each mounted hierarchy; one on pure v2."""
    with open("/proc/self/mounts") as mounts:
        fields = [line.split() for line in mounts]
    return sorted({point for _, point, kind, *_ in fields if kind in ("cgroup", "cgroup2")})


def is_v1() -> bool:
    """Whether this host applies device rules by cgroup v1."""
    return os.path.exists(os.path.join(ROOT, "devices"))


def named(prefix: str) -> set[str]:
    """Names of top-level cgroups that begin with `prefix`."""
    found = (glob.glob(os.path.join(root, prefix + "*")) for root in hierarchies())
    return {os.path.basename(path) for paths in found for path in paths}


def of_container(name: str) -> list[str]:
    """Paths of the cgroups of this name at the top and one level below it."""
    return [
        path
        for root in hierarchies()
        for pattern in (f"{root}/{name}", f"{root}/*/{name}")
        for path in glob.glob(pattern)
    ]


def remove(group: str) -> None:
    """Kill the processes in a top-level cgroup and remove it with all cgroups below."""
    for root in hierarchies():
        top = root + group
        for folder, _, _ in os.walk(top, topdown=False):
            _remove_one(folder)


def kill(group: str) -> None:
    """Kill the processes in a top-level cgroup and in all cgroups below."""
    for root in hierarchies():
        for folder, _, _ in os.walk(root + group):
            _kill_all(folder)


def _remove_one(folder: str) -> None:
    # The kernel lets the folder be removed only some time after the last process has ended.
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
