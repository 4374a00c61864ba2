"""The processes of a container, and which libcuda each has mapped. Seen from the host, by /proc."""

from __future__ import annotations

import os
import re

from . import shim_mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBCUDA = re.compile(r"libcuda\.so(\.|$)")
_DELETED = " (deleted)"


class Process:
    """foreign: where it sees a libcuda that it has mapped and the shim not; "" if there is none."""

    def __init__(self, pid: int, name: str, foreign: str) -> None:
        self.pid, self.name, self.foreign = pid, name, foreign


def of(init: int, proc: str = "/proc") -> list[int]:
    """Pids of the cgroups of process `init`, and of those below. Raises OSError: it is gone.

    One that shares this program's own cgroups has none of its container's: then it is alone.
    """
    own = _cgroups(f"{proc}/{init}/cgroup")
    if own == _cgroups(f"{proc}/self/cgroup"):
        return [init]
    found = []
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            other = _cgroups(f"{proc}/{pid}/cgroup")
        except OSError:
            continue  # it has ended
        if all(_is_below(other.get(each, ""), path) for each, path in own.items()):
            found.append(int(pid))
    return sorted(found)


def look(pid: int, proc: str = "/proc") -> Process:
    """Raises OSError: it is gone, or not to be looked at."""
    foreign = ""
    for path, file in _libcudas(f"{proc}/{pid}"):
        if shim_mark.read(file):
            foreign = ""
            break
        foreign = foreign or path
    with open(f"{proc}/{pid}/comm", errors="replace") as comm:
        return Process(pid, comm.read().rstrip("\n"), foreign)


def _libcudas(folder: str) -> Iterator[tuple[str, str]]:
    """(path inside, the file itself) of every libcuda that is mapped.

    The file is opened by its mapping, whatever is at that path now, or in another mount namespace.
    Source: proc(5), maps and map_files.
    """
    seen = set()
    with open(f"{folder}/maps", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            path = fields[5].removesuffix(_DELETED) if len(fields) > 5 else ""
            if _LIBCUDA.match(os.path.basename(path)) and (fields[3], fields[4]) not in seen:
                seen.add((fields[3], fields[4]))
                begin, _, end = fields[0].partition("-")
                # maps pads an address with zeros, map_files does not.
                yield path, f"{folder}/map_files/{int(begin, 16):x}-{int(end, 16):x}"


def _cgroups(path: str) -> dict[str, str]:
    """The cgroup in each hierarchy. Source: cgroups(7), "/proc/pid/cgroup"."""
    with open(path) as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return {number + controllers: folder for number, controllers, folder in lines}


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
