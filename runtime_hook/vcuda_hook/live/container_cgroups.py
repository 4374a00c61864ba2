"""The cgroups of a container, by its first process and by the names that engines write.

Each engine writes the container's id into the path in its own way: ``/docker/<id>``,
``…/cri-containerd-<id>.scope``, ``…/crio-<id>.scope``, ``/libpod_parent/libpod-<id>/container``,
``/kubepods/besteffort/pod<uid>/<id>``; `vcuda run` ``/vcuda-<id>.<pid>.<start time>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from . import container_processes

# Path by hierarchy, as container_processes.cgroups returns it; "0" is cgroup v2.
Cgroups = dict[str, str]

_V2 = "0"
# The systemd cgroup driver writes a prefix before the id. Scopes without a known prefix, such as
# "session-1.scope", belong to no container.
_SCOPE = re.compile(r"(?:docker|cri-containerd|nerdctl|crio|libpod|runc|crun)-(.+?)(?:\.scope)?")
_OF_RUN = re.compile(r"vcuda-(.+)\.\d+\.\d+")

# An id that an engine has generated; people choose shorter ones.
_GENERATED_ID = re.compile(r"[0-9a-f]{32,}")


def own(init: int, container_id: str, ours: Mapping[str, str]) -> Cgroups:
    """The cgroups that only this container uses; {}: it has none. Raises OSError: init has ended.

    init: pid of the container's first process. ours: the cgroups of this program. A path without
    the container's id may be the cgroup of the program that called the runtime. It is the
    container's own only if it holds no process of the host's pid namespace.
    """
    found = folders_of(container_processes.cgroups(init), container_id, ours)
    if not found or by_name(found, container_id):
        return found
    return {} if any(map(_in_host_pid_namespace, container_processes.below(found))) else found


def folders_of(init: Mapping[str, str], container_id: str, ours: Mapping[str, str]) -> Cgroups:
    """Return the cgroups of a container; {} if it has none of its own.

    init: the cgroups of the container's first process. ours: those of this program.
    An init system in the container may move itself into a sub-cgroup. A path that contains the
    container's id is therefore cut behind the id.
    """
    named = by_name(init, container_id)
    if named:
        return named
    found = {h: path for h, path in init.items() if path not in ("/", ours.get(h))}
    # Under cgroup v1 runtimes do not move containers in the v2 hierarchy: the container's v2 path
    # is that of its engine.
    return {h: path for h, path in found.items() if h != _V2 or len(init) == 1}


def by_name(cgroups: Mapping[str, str], container_id: str) -> Cgroups:
    """Return the cgroups of a process that contain the container's id, each cut behind the id."""
    found = {hierarchy: _named(path, container_id) for hierarchy, path in cgroups.items()}
    return {hierarchy: path for hierarchy, path in found.items() if path}


def _named(path: str, container_id: str) -> str:
    """Cut the path behind the folder that is named after the container; "" if there is none.

    Several folders may match. A generated id is taken from the outermost, because a process in the
    container may create a cgroup with the same name. An id that a person chose, such as "default",
    is taken from the innermost, because an outer cgroup with that name may hold other containers.
    """
    parts = path.split("/")
    found = [at for at, part in enumerate(parts) if container_id in ids(part)]
    if not found:
        return ""
    return "/".join(parts[: found[0 if _GENERATED_ID.fullmatch(container_id) else -1] + 1])


def ids(part: str) -> list[str]:
    """Possible container ids in the name of a cgroup's folder."""
    scope = _SCOPE.fullmatch(part) or _OF_RUN.fullmatch(part)
    # Without the systemd driver, runtimes use a systemd path such as "system.slice:docker:<id>"
    # as a folder name.
    return [part, part.rpartition(":")[2], *(scope.groups() if scope else ())]


def _in_host_pid_namespace(pid: int) -> bool:
    """Whether a process is in this program's own pid namespace."""
    try:
        return os.path.samefile(f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
    except OSError:
        return False  # it has ended
