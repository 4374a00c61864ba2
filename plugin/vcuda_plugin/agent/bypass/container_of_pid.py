"""Which container a process of the host belongs to, by its cgroups: pure.

A cgroup's path names its container in every engine's own way: ``/docker/<id>``,
``…/cri-containerd-<id>.scope``, ``…/crio-<id>.scope``, ``/libpod_parent/libpod-<id>/container``,
``/kubepods/besteffort/pod<uid>/<id>``. What the low-level runtime says of the container's first
process is more certain, and serves where the path says nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vcuda_hook.live import container_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# In v1, v2 and both at once: by hierarchy, as container_processes.cgroups answers.
Cgroups = dict[str, str]

_V2 = "0"
# By systemd's driver an engine's word stands before the id: "session-1.scope" is no container's.
_SCOPE = re.compile(r"(?:docker|cri-containerd|nerdctl|crio|libpod|runc|crun)-(.+?)(?:\.scope)?")

_ENGINES_ID = re.compile(r"[0-9a-f]{32,}")


def folders_of(init: Mapping[str, str], container_id: str, own: Mapping[str, str]) -> Cgroups:
    """The cgroups of the container whose first process is in `init`; {}: it has none of its own.

    An init system inside moves into a folder below the container's: as far as a path names the
    container, the folder with its name is meant. own: of this program.
    """
    named = by_name(init, container_id)
    if named:
        return named
    found = {h: path for h, path in init.items() if path not in ("/", own.get(h))}
    # Where v1 rules, runtimes leave v2 alone: in it the container is where its engine is.
    return {h: path for h, path in found.items() if h != _V2 or len(init) == 1}


def by_name(cgroups: Mapping[str, str], container_id: str) -> Cgroups:
    """The cgroups above, or of, a process that carry the container's name."""
    found = {hierarchy: _named(path, container_id) for hierarchy, path in cgroups.items()}
    return {hierarchy: path for hierarchy, path in found.items() if path}


class Index:
    """Containers by their cgroups, so that each process costs no look at each container."""

    def __init__(self, containers: Mapping[str, Cgroups]) -> None:
        """containers: by a key of the caller's."""
        self._containers = containers
        self._at: dict[tuple[str, str], list[str]] = {}
        for key, folders in containers.items():
            for place in folders.items():
                self._at.setdefault(place, []).append(key)

    def of(self, cgroups: Mapping[str, str]) -> str | None:
        """The key of the container that a process in these cgroups belongs to.

        Of containers inside one another it is the outer: what is inside, it started itself.
        """
        for hierarchy, path in cgroups.items():
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                for key in self._at.get((hierarchy, "/".join(parts[:end])), ()):
                    if container_processes.are_below(cgroups, self._containers[key]):
                        return key
        return None


def names_in(cgroups: Mapping[str, str]) -> Iterator[str]:
    """The ids of containers that the paths of a process may name, the outer before the inner."""
    for path in dict.fromkeys(cgroups.values()):
        for part in path.split("/"):
            yield from _ids(part)


def _named(path: str, container_id: str) -> str:
    """The path up to the folder that is named after the container; "": there is none.

    Of several it is the outermost where an engine made up the id: a process inside may copy it.
    A person's "default" may be the name of a folder above, that others' containers are in too.
    """
    parts = path.split("/")
    found = [at for at, part in enumerate(parts) if container_id in _ids(part)]
    if not found:
        return ""
    return "/".join(parts[: found[0 if _ENGINES_ID.fullmatch(container_id) else -1] + 1])


def _ids(part: str) -> list[str]:
    scope = _SCOPE.fullmatch(part)
    # "system.slice:docker:<id>" is how a path for systemd reads where systemd is not asked.
    return [part, part.rpartition(":")[2], *(scope.groups() if scope else ())]
