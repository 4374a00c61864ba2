"""The processes of a container, and the libcuda that each has mapped, by the host's /proc."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.guest import process
from vcuda_oci.ledger import liveness
from vcuda_oci.model import names
from vcuda_oci.system import kernel_tables

from . import shim_mark

_LIBCUDA = re.compile(r"(.*/)?libcuda\.so(\.[^/]*)?|" + re.escape(names.GUEST_CUDA))
_STATE_SECONDS = 10
_MOST_LIBCUDAS = 16


class Process(NamedTuple):
    """foreign: the path of a mapped libcuda if the shim is not mapped; "" otherwise."""

    pid: int
    name: str
    foreign: str


def init_of(runtime: Sequence[str], container_id: str) -> int:
    """The pid of a container's first process; 0: none. Raises OSError as `state_of` does."""
    return state_of(runtime, container_id)[1]


def state_of(runtime: Sequence[str], container_id: str) -> tuple[str, int]:
    """The container's status, such as "running" or "paused", and the pid of its first process; 0:
    none.

    Raises OSError: the runtime does not answer, or names no process.
    """
    try:
        done = subprocess.run(
            [*runtime, "state", container_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_STATE_SECONDS,
        )
        state = json.loads(done.stdout)
        return str(state.get("status", "")), int(state["pid"])
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{runtime[0]} says nothing") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProcessLookupError(errno.ESRCH, f"{runtime[0]} names no process") from error
    except OSError:
        # The agent's image has no runtime, and only that knows which container is paused.
        first = liveness.first_process(list(runtime), container_id)
        if not first or liveness.start_time(first[0]) != first[1]:
            raise
        return "running", first[0]


def of(init: int, proc: str = "/proc") -> list[int]:
    """The pids in the cgroups of process `init` and in those below. Raises OSError: it has ended.

    Only `init` itself if it is in this program's cgroups.
    """
    own = cgroups(init, proc)
    return [init] if own == cgroups("self", proc) else below(own, proc)


def below(folders: Mapping[str, str], proc: str = "/proc") -> list[int]:
    """The pids in these cgroups, by hierarchy, and in those below. Raises OSError."""
    found = []
    parts = {os.fsencode(folder) for folder in folders.values()}
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            other = cgroups(pid, proc, parts)
        except OSError:
            continue  # it has ended
        if other and are_below(other, folders):
            found.append(int(pid))
    return sorted(found)


class TooManyMappings(Exception):
    """A process, by pid, has too many mappings to check."""


def that_map(page: str, device: int, inode: int) -> list[int]:
    """The pids of the processes that have this file mapped; page: its path, by which others have it
    mounted.

    A process with too many mappings to check counts only if it has the file mounted: a database of
    the host, or a neighbour on purpose, has as many. Raises TooManyMappings: it has.
    """
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            found += [pid] if process.maps(pid, device, inode) else []
        except OSError as error:
            if error.errno == errno.EFBIG and _has_mounted(f"/proc/{pid}", page):
                raise TooManyMappings(pid) from None
            continue  # it has ended
    return found


def _has_mounted(process: str, page: str) -> bool:
    """Whether the process sees a mount of this page, by its name and its folder's."""
    end = "/" + "/".join(page.split("/")[-2:])
    try:
        mounts = kernel_tables.mounts(process)
    except OSError:
        return False  # it has ended
    return any(mount.root.endswith((end, end + "//deleted")) for mount in mounts)


def examine(pid: int) -> Process:
    """Examine a process. Raises OSError: it has ended, or may not be examined."""
    foreign = ""
    # A program with the shim maps two libcudas; do not read very many.
    for (path, file), _ in zip(_libcudas(pid), range(_MOST_LIBCUDAS)):
        if shim_mark.said_by(process.read_mapped(file, shim_mark.MOST_BYTES)):
            foreign = ""
            break
        foreign = foreign or path
    return Process(pid, kernel_tables.command(f"/proc/{pid}"), foreign)


def _libcudas(pid: int) -> Iterator[tuple[str, str]]:
    """(path inside the container, the file itself) of every mapped libcuda.

    The file is opened through /proc/<pid>/map_files, because another file may be at that path by
    now. Source: proc(5), maps and map_files.
    """
    seen = set()
    for mapping in kernel_tables.mappings(f"/proc/{pid}"):
        file = mapping.device, mapping.inode
        if _LIBCUDA.fullmatch(mapping.path) and file not in seen:
            seen.add(file)
            yield mapping.path, process.mapped_file(pid, mapping)


def cgroups(pid: int | str, proc: str = "/proc", parts: Collection[bytes] = ()) -> dict[str, str]:
    """The cgroup of a process in each hierarchy; none if one of `parts` is in none of them. Raises
    OSError: the process has ended.

    The key is the hierarchy's number and its controllers, "0" for v2.
    """
    rows = kernel_tables.cgroups(f"{proc}/{pid}", parts)
    return {number + controllers: folder for number, controllers, folder in rows}


def are_below(own: Mapping[str, str], folders: Mapping[str, str]) -> bool:
    """Whether a process's cgroups are these, or below them, in every hierarchy."""
    return all(_is_below(own.get(each, ""), path) for each, path in folders.items())


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
