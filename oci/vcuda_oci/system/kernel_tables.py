"""The kernel's tables in /proc: mountinfo, cgroup, maps, status. The only reader of them.

The tables contain names that users choose, of any bytes but NUL, and the kernel escapes only the
bytes that separate its rows and fields. So a table is read as bytes, only a line feed ends a row,
and single spaces separate fields. A row of another form is left out.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SELF = "/proc/self"
_MOST_BYTES = 64 << 20
_MOST_MAPS_BYTES = 8 << 20
_DELETED = b" (deleted)"


class Mount:
    """device: as os.stat gives it. root: the part of the file system that is mounted at `point`.

    is_shared: it is in a peer group. options: of the file system, not of the mount.
    """

    def __init__(self, row: bytes) -> None:
        """Raises ValueError, IndexError. Source: proc(5), /proc/<pid>/mountinfo."""
        fields = row.split(b" ")
        end = fields.index(b"-", 6)
        self.id = int(fields[0])
        major, minor = fields[2].split(b":")
        self.device = os.makedev(int(major), int(minor))
        self.root, self.point = _unescaped(fields[3]), _unescaped(fields[4])
        self.is_shared = any(field.startswith(b"shared:") for field in fields[6:end])
        self.kind = _unescaped(fields[end + 1])
        self.options = os.fsdecode(fields[-1]).split(",")


class Mapping:
    """range: as the table writes it. device: "major:minor" in hex, which some file systems give
    os.stat differently. path: also of a file that has lost its last name; "": no file."""

    def __init__(self, row: bytes) -> None:
        """Raises ValueError, IndexError. Source: proc(5), /proc/<pid>/maps."""
        self.range, _, _, self.device, inode, *path = row.decode("latin-1").split(" ", 5)
        self.inode = int(inode)
        begin, end = (int(address, 16) for address in self.range.split("-"))
        # The table pads an address with zeros, the links in map_files don't.
        self.link = f"{begin:x}-{end:x}"
        self.path = _without_mark("".join(path).lstrip(" ").encode("latin-1"))


def mounts(process: str | int = _SELF) -> list[Mount]:
    """The mounts that a process sees. process: its folder in /proc, or a descriptor of that folder,
    here and below.

    Raises OSError: the process has ended.
    """
    found = []
    for row in _rows(_read(process, "mountinfo", _MOST_BYTES)):
        try:
            found.append(Mount(row))
        except (ValueError, IndexError):
            continue
    return found


def cgroups(process: str | int = _SELF) -> list[tuple[str, str, str]]:
    """Each hierarchy's number, its controllers, and the process's cgroup in it. Raises OSError.

    Source: cgroups(7), "/proc/pid/cgroup". A path is written as it is, and may have any byte but
    a line feed.
    """
    found = []
    for row in _rows(_read(process, "cgroup", _MOST_BYTES)):
        number, colon, path = os.fsdecode(row).partition(":")
        controllers, second, path = path.partition(":")
        if colon and second:
            found.append((number, controllers, path))
    return found


def mappings(process: str | int, part: str = " ") -> Iterator[Mapping]:
    """What a process has mapped, from the rows that contain `part`.

    Raises OSError: it has ended, must not be inspected, or (EFBIG) has mapped too much.
    """
    table, wanted = _read(process, "maps", _MOST_MAPS_BYTES), part.encode()
    for row in _rows(table) if wanted in table else ():
        if wanted in row:
            try:
                yield Mapping(row)
            except (ValueError, IndexError):
                continue


def status(process: str | int = _SELF) -> dict[str, str]:
    """The fields of a process's status. Raises OSError. Source: proc(5), /proc/<pid>/status."""
    rows = (row.partition(b":") for row in _rows(_read(process, "status", _MOST_BYTES)))
    return {os.fsdecode(key): os.fsdecode(value).strip(" \t") for key, _, value in rows}


def command(process: str | int) -> str:
    """The name of a process's program, as text. Raises OSError."""
    name = _read(process, "comm", _MOST_BYTES)
    return (name[:-1] if name.endswith(b"\n") else name).decode("utf-8", "replace")


def outside_id(process: str | int, table: str) -> int:
    """The host's id of the user namespace's root, by "uid_map" or "gid_map"; 0: not mapped.

    Raises OSError. Source: user_namespaces(7): numbers alone, padded by spaces.
    """
    for row in _rows(_read(process, table, _MOST_BYTES)):
        inside, outside, *_ = [field for field in row.split(b" ") if field] + [b"", b""]
        if inside == b"0" and outside.isdigit():
            return int(outside)
    return 0


def maps_all_users() -> bool:
    """Whether each uid of the host is mapped here, as outside of user namespaces."""
    return any(
        b"4294967295" in row.split(b" ") for row in _rows(_read(_SELF, "uid_map", _MOST_BYTES))
    )


def _rows(table: bytes) -> list[bytes]:
    return [row for row in table.split(b"\n") if row]


def _without_mark(path: bytes) -> str:
    return os.fsdecode(path[: -len(_DELETED)] if path.endswith(_DELETED) else path)


def _unescaped(field: bytes) -> str:
    r"""A space is \040, and so on for what parts fields and rows. Raises ValueError."""
    first, *rest = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest))


def _read(process: str | int, name: str, most: int) -> bytes:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if isinstance(process, int):
        fd = os.open(name, flags, dir_fd=process)
    else:
        fd = os.open(f"{process}/{name}", flags)
    try:
        chunks = []
        while chunk := os.read(fd, 1 << 16):
            chunks.append(chunk)
            most -= len(chunk)
            if most < 0:
                raise OSError(errno.EFBIG, "table too large", name)
        return b"".join(chunks)
    finally:
        os.close(fd)
