"""Whether the host's memory has room for what a container holds on the GPUs.

The driver keeps it in memory of the container's own processes, so the memory limits of their
cgroups count; a process that exceeds one would be killed amid the copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.sizes import gib
from vcuda_oci.system import files

from ..live import cgroup_folders

# Left free beside the copy, for other programs that need memory meanwhile.
_SPARE_BYTES = 64 << 20
# A larger limit of v1 means no limit. Source: Linux, mm/page_counter.c
_NO_LIMIT = 1 << 60
HOST = "the host"


class Limit(NamedTuple):
    """of: a cgroup's folder, or HOST. free: bytes. needed: bytes that its processes hold."""

    of: str
    free: int
    needed: int


def refusal(needed: int, limits: Sequence[Limit], kept: int, most: int) -> tuple[str, str] | None:
    """Why `needed` bytes have no room, and a hint; None: they have. Pure.

    limits: as `together`. kept: bytes of the containers that are suspended. most: the setting
    suspend-memory; 0: none.
    """
    if most and kept + needed > most:
        what = f"{gib(kept)} of suspend-memory {gib(most)} are taken, {gib(needed)} are needed"
        return what, "resume or end another suspended container"
    for limit in limits:
        if limit.needed and limit.free < limit.needed + _SPARE_BYTES:
            free = gib(max(0, limit.free))
            what = f"{limit.of} has {free} of memory free, {gib(limit.needed)} are needed"
            hint = "give the container a larger memory limit"
            return what, hint if limit.of != HOST else "free memory of the host"
    return None


def kept_by(records: Sequence[Allocation], but: str) -> int:
    """Bytes that suspended containers keep, without that of this id."""
    held = [one.suspension for one in records if one.suspension and one.id != but]
    return sum(sum((one.needed or one.bytes).values()) for one in held)


def left(records: Sequence[Allocation], most: int) -> int:
    """Bytes that suspended containers may still keep in the host's memory. most: as `refusal`."""
    available = _host_available()
    free = _NO_LIMIT if available is None else max(0, available - _SPARE_BYTES)
    return min(free, max(0, most - kept_by(records, ""))) if most else free


def together(limits: Sequence[Limit]) -> list[Limit]:
    """Each limit once, with what all processes below it need. Pure."""
    found: dict[str, Limit] = {}
    for limit in limits:
        needed = limit.needed + (found[limit.of].needed if limit.of in found else 0)
        found[limit.of] = limit._replace(needed=needed)
    return list(found.values())


def limits_of(cgroups: Mapping[str, str], needed: int) -> list[Limit]:
    """The limits that count for processes in these cgroups (by hierarchy), and the host's.

    needed: bytes that these processes hold on the GPUs.
    """
    found: list[Limit] = []
    for hierarchy, path in cgroups.items():
        controllers = hierarchy.lstrip("0123456789").split(",")
        if controllers == [""]:
            found += _limits_above(cgroup_folders.mounted("", path), _V2, needed)
        elif "memory" in controllers:
            found += _limits_above(cgroup_folders.mounted("memory", path), _V1, needed)
    available = _host_available()
    return found if available is None else [*found, Limit(HOST, available, needed)]


class _Files(NamedTuple):
    most: str
    used: str
    reclaimable: str  # in memory.stat


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _limits_above(folder: str, names: _Files, needed: int) -> Iterator[Limit]:
    """The limits of a cgroup and of those above it."""
    while os.path.exists(f"{folder}/{names.used}"):
        most = _number(f"{folder}/{names.most}")
        used = _number(f"{folder}/{names.used}")
        if most is not None and used is not None and most < _NO_LIMIT:
            # The kernel gives up file cache before it kills.
            cache = _of_table(f"{folder}/memory.stat", names.reclaimable) or 0
            yield Limit(folder, most - used + cache, needed)
        folder = os.path.dirname(folder)


def _number(path: str) -> int | None:
    """None: there is no such file, or it says "max"."""
    text = files.text(path).strip()
    return int(text) if text.isdigit() else None


def _host_available() -> int | None:
    kib = _of_table("/proc/meminfo", "MemAvailable:")
    return None if kib is None else kib << 10


def _of_table(path: str, name: str) -> int | None:
    for line in files.text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
