"""Traces that containers could leave on a host, compared before and after."""

from __future__ import annotations

import os
from collections.abc import Iterator

from support.host import cgroups
from support.host.private_host import PrivateHost


def of(host: PrivateHost) -> frozenset[str]:
    """Every file, mount, cgroup and process of a private host, a line each.

    Its scratch folder holds all that is written there: bundles, the runtime's root, records, and
    the upper layers of /etc, /run and /var.
    """
    root = f"/proc/{host.pid}/root"
    found = {f"file {path}" for path in _files(root, host.folder, "/dev/shm", "/dev/char")}
    with open(f"/proc/{host.pid}/mountinfo") as mounts:
        found |= {f"mount {line.rstrip()}" for line in mounts}
    for hierarchy in cgroups.hierarchies():
        found |= {f"cgroup {folder}" for folder, _, _ in os.walk(hierarchy + host.cgroup_parent)}
    return frozenset(found | {f"process {process}" for process in _processes(root + "/proc")})


def leftovers(before: frozenset[str], after: frozenset[str]) -> list[str]:
    """What is new or gone, each with its sign."""
    new, gone = after - before, before - after
    return sorted([*(f"+ {line}" for line in new), *(f"- {line}" for line in gone)])


def _files(root: str, *folders: str) -> Iterator[str]:
    for top in folders:
        for folder, folders_in_it, files in os.walk(root + top):
            for name in folders_in_it + files:
                yield os.path.join(folder, name)[len(root) :]


def _processes(proc: str) -> Iterator[str]:
    """Zombies too."""
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(f"{proc}/{pid}/comm") as comm:
                yield f"{pid} {comm.read().rstrip()}"
        except OSError:
            continue  # it has ended meanwhile
