"""Find the container of a process by the process's cgroup paths. Pure functions, no I/O.

Each engine writes the container's id into the path in its own way: ``/docker/<id>``,
``…/cri-containerd-<id>.scope``, ``…/crio-<id>.scope``, ``/libpod_parent/libpod-<id>/container``,
``/kubepods/besteffort/pod<uid>/<id>``. Where the path names no container, the caller uses the
cgroups of the first process that the low-level runtime reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vcuda_hook.live import container_processes

# Path by hierarchy, as container_processes.cgroups returns it; "0" is cgroup v2.
Cgroups = dict[str, str]

_V2 = "0"
# The systemd cgroup driver writes a prefix before the id. Scopes without a known prefix, such as
# "session-1.scope", belong to no container.
_SCOPE = re.compile(r"(?:docker|cri-containerd|nerdctl|crio|libpod|runc|crun)-(.+?)(?:\.scope)?")

# An id that an engine has generated; people choose shorter ones.
_GENERATED_ID = re.compile(r"[0-9a-f]{32,}")


def folders_of(init: Mapping[str, str], container_id: str, own: Mapping[str, str]) -> Cgroups:
    """Return the cgroups of a container; {} if it has none of its own.

    init: the cgroups of the container's first process. own: those of this program.
    An init system in the container may move itself into a sub-cgroup. A path that contains the
    container's id is therefore cut behind the id.
    """
    named = by_name(init, container_id)
    if named:
        return named
    found = {h: path for h, path in init.items() if path not in ("/", own.get(h))}
    # Under cgroup v1 runtimes do not move containers in the v2 hierarchy: the container's v2 path
    # is that of its engine.
    return {h: path for h, path in found.items() if h != _V2 or len(init) == 1}


def by_name(cgroups: Mapping[str, str], container_id: str) -> Cgroups:
    """Return the cgroups of a process that contain the container's id, each cut behind the id."""
    found = {hierarchy: _named(path, container_id) for hierarchy, path in cgroups.items()}
    return {hierarchy: path for hierarchy, path in found.items() if path}


class Index:
    """Find a container by cgroup path without comparing every process with every container."""

    def __init__(self, containers: Mapping[str, Cgroups]) -> None:
        """containers: the cgroups of each container, by a key that the caller chooses."""
        self._containers = containers
        self._at: dict[tuple[str, str], list[str]] = {}
        for key, folders in containers.items():
            for place in folders.items():
                self._at.setdefault(place, []).append(key)

    def of(self, cgroups: Mapping[str, str]) -> str | None:
        """Return the key of the container that a process in these cgroups belongs to.

        For nested containers this is the outermost one, since it started the inner ones.
        """
        for hierarchy, path in cgroups.items():
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                for key in self._at.get((hierarchy, "/".join(parts[:end])), ()):
                    if container_processes.are_below(cgroups, self._containers[key]):
                        return key
        return None


def names_in(cgroups: Mapping[str, str]) -> Iterator[str]:
    """Yield possible container ids from the cgroup paths of a process, outermost first."""
    for path in dict.fromkeys(cgroups.values()):
        for part in path.split("/"):
            yield from _ids(part)


def _named(path: str, container_id: str) -> str:
    """Cut the path behind the folder that is named after the container; "" if there is none.

    Several folders may match. A generated id is taken from the outermost, because a process in the
    container may create a cgroup with the same name. An id that a person chose, such as "default",
    is taken from the innermost, because an outer cgroup with that name may hold other containers.
    """
    parts = path.split("/")
    found = [at for at, part in enumerate(parts) if container_id in _ids(part)]
    if not found:
        return ""
    return "/".join(parts[: found[0 if _GENERATED_ID.fullmatch(container_id) else -1] + 1])


def _ids(part: str) -> list[str]:
    scope = _SCOPE.fullmatch(part)
    # Without the systemd driver, runtimes use a systemd path such as "system.slice:docker:<id>"
    # as a folder name.
    return [part, part.rpartition(":")[2], *(scope.groups() if scope else ())]
