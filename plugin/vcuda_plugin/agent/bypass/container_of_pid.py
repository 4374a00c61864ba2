"""Find the container of a process by the process's cgroup paths. Pure functions, no I/O.

Where a path names no container, the caller uses the cgroups of the first process that the
low-level runtime reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vcuda_hook.live import container_processes
from vcuda_hook.live.container_cgroups import Cgroups, ids


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
            yield from ids(part)
