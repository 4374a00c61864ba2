"""Containers' names for display: the cluster's for a pod's container, else the engine's.

Users choose names. One is shown only if it stands for one container and cannot be taken for
another's id; otherwise the id is shown.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_oci.container import engine_name
from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError

_MOST_BYTES = 8 << 20
_MOST_FILES = 1000

# By an engine's file: its stamp when it was read, and names by container id.
_known: dict[str, tuple[tuple[int, ...], dict[str, str]]] = {}


def of(allocations: Sequence[Allocation]) -> dict[str, str]:
    """Names by allocation id, without those that must not be shown."""
    shown = {each.id: name_of(each) for each in allocations}
    taken = [id for each in allocations for id in (each.id, each.container_id)]
    taken += shown.values()
    times: dict[str, int] = {}
    for name in taken:
        times[name] = times.get(name, 0) + 1
    # No id has a slash, and a pod's name is unique in the cluster.
    return {id: name for id, name in shown.items() if name and ("/" in name or times[name] == 1)}


def name_of(allocation: Allocation) -> str:
    """ "namespace/pod/container", the engine's name for it, or ""."""
    pod = allocation.pod
    if pod:
        return "/".join(pod.get(key, "?") for key in ("namespace", "name", "container"))
    return from_engine(allocation.container_id, allocation.engine)


def from_engine(container_id: str, noted: Mapping[str, str]) -> str:
    """The engine's name for a container; "": unknown. noted: see engine_name."""
    name = noted.get(engine_name.NAME, "")
    if not name and engine_name.FILE in noted:
        name = _names_in(noted[engine_name.FILE]).get(container_id, "")
    return name if engine_name.is_name(name) else ""


def find_record(ledger: Ledger, word: str) -> Allocation:
    """The record with this id or name. Raises VcudaError: none, several, or a broken one."""
    allocations, broken = ledger.read()
    for path, reason in broken:
        if path.endswith(f"/{word}.json"):
            raise broken_record(path, reason)
    return find(word, allocations)


def find(word: str, allocations: Sequence[Allocation]) -> Allocation:
    """The record that `word` stands for: an allocation's or container's id or its first characters,
    or a name as `vcuda ps` shows it. A full id comes before names. Raises VcudaError: none,
    several.
    """
    for key in ("id", "container_id"):
        exact = [each for each in allocations if word and getattr(each, key) == word]
        if len(exact) == 1:
            return exact[0]
    found = [
        each
        for each in allocations
        if word and (each.id.startswith(word) or each.container_id.startswith(word))
    ]
    found += [each for each in allocations if each not in found and name_of(each) == word]
    if len(found) == 1:
        return found[0]
    if found:
        candidates = ", ".join(_with_name(each) for each in found[:8])
        raise VcudaError(f"may be {candidates}", word, "write more of the id")
    raise VcudaError("no allocation of this id or name", word, "see 'vcuda ps'")


def _with_name(allocation: Allocation) -> str:
    name = name_of(allocation)
    return f"{allocation.id} ({name})" if name else allocation.id


def _names_in(path: str) -> dict[str, str]:
    """The names in the file, read again when it has changed; {}: none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return {}
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != 0 or about.st_size > _MOST_BYTES:
            return {}
        stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
        known = _known.get(path)
        if known is None or known[0] != stamp:
            if len(_known) >= _MOST_FILES:
                _known.clear()
            known = _known[path] = stamp, _parse(os.pread(fd, _MOST_BYTES, 0))
        return known[1]
    except OSError:
        return {}
    finally:
        os.close(fd)


def _parse(text: bytes) -> dict[str, str]:
    """Parse Docker's description of one container, or containers/storage's list of all."""
    try:
        tree: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(tree, dict):
        name = tree.get("Name")
        return {str(tree.get("ID")): name.removeprefix("/")} if isinstance(name, str) else {}
    found = {}
    for entry in tree if isinstance(tree, list) else ():
        names = entry.get("names") if isinstance(entry, dict) else None
        if isinstance(names, list) and names and isinstance(entry.get("id"), str):
            found[entry["id"]] = names[0]
    return found
