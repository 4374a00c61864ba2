"""Parse the kernel's tables in /proc: mountinfo, cgroup, maps, status.

No other module parses these tables. They contain names that users choose, of any bytes but NUL, and
the kernel escapes only the bytes that separate rows and fields. So a table is read as bytes, a row
ends at a line feed only, and single spaces separate fields. A malformed row is skipped.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SELF = "/proc/self"
_MOST_BYTES = 64 << 20
_MOST_MAPS_BYTES = 8 << 20


class Mount:
    """One mount. device: as os.stat gives it. root: the folder of the file system that is mounted
    at `point`. is_shared: in a peer group. options: of the file system, not of the mount."""

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
    """One mapping. range: as in the table. device: "major:minor" in hex; os.stat reports another
    device on some file systems. path: its last one if the file is deleted; "": not a file."""

    def __init__(self, row: bytes) -> None:
        """Raises ValueError, IndexError. Source: proc(5), /proc/<pid>/maps."""
        self.range, _, _, self.device, inode, *path = row.decode("latin-1").split(" ", 5)
        self.inode = int(inode)
        begin, end = (int(address, 16) for address in self.range.split("-"))
        # The table pads addresses with zeros; the names in map_files have no padding.
        self.link = f"{begin:x}-{end:x}"
        text = "".join(path).lstrip(" ").encode("latin-1")
        self.path = os.fsdecode(text.removesuffix(b" (deleted)"))


def mounts(process: str | int = _SELF) -> list[Mount]:
    """The mounts in a process's mount namespace.

    process, in all functions here: its folder in /proc, or a descriptor of that folder. Raises
    OSError: the process has ended.
    """
    found = []
    for row in _rows(_read(process, "mountinfo", _MOST_BYTES)):
        try:
            found.append(Mount(row))
        except (ValueError, IndexError):
            continue
    return found


def cgroups(
    process: str | int = _SELF, parts: Collection[bytes] = ()
) -> list[tuple[str, str, str]]:
    """Each hierarchy's number, its controllers, and the process's cgroup in it; none if the table
    lacks any of `parts`. Raises OSError.

    Source: cgroups(7), "/proc/pid/cgroup". Paths are not escaped and contain no line feed.
    """
    found: list[tuple[str, str, str]] = []
    table = _read(process, "cgroup", _MOST_BYTES)
    if not all(part in table for part in parts):
        return found
    for row in _rows(table):
        number, colon, path = os.fsdecode(row).partition(":")
        controllers, second, path = path.partition(":")
        if colon and second:
            found.append((number, controllers, path))
    return found


def mappings(process: str | int, part: str = " ") -> Iterator[Mapping]:
    """The mappings of a process in the rows that contain `part`.

    Raises OSError: the process has ended or may not be inspected; EFBIG: too many mappings.
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
    return _read(process, "comm", _MOST_BYTES).removesuffix(b"\n").decode("utf-8", "replace")


def listens(process: str) -> list[str]:
    """The paths of unix sockets on which a process listens, the shortest first.

    process: its folder. Raises OSError. Source: proc(5), /proc/net/unix; 00010000 is SO_ACCEPTCON.
    """
    folder = f"{process}/fd"
    links = {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
    found = []
    for row in _rows(_read(process, "net/unix", _MOST_BYTES)):
        fields = row.split(None, 7)
        is_one = len(fields) == 8 and fields[3] == b"00010000"
        if is_one and f"socket:[{os.fsdecode(fields[6])}]" in links:
            found.append(os.fsdecode(fields[7]))
    return sorted(found, key=len)


def outside_id(process: str | int, table: str) -> int:
    """The id outside of a user namespace that its root has; 0: not mapped.

    table: "uid_map" or "gid_map". Raises OSError. Source: user_namespaces(7).
    """
    for row in _rows(_read(process, table, _MOST_BYTES)):
        inside, outside, *_ = [field for field in row.split(b" ") if field] + [b"", b""]
        if inside == b"0" and outside.isdigit():
            return int(outside)
    return 0


def maps_all_users() -> bool:
    """Whether this process's user namespace maps all uids, as the initial one does."""
    return any(
        b"4294967295" in row.split(b" ") for row in _rows(_read(_SELF, "uid_map", _MOST_BYTES))
    )


def _rows(table: bytes) -> list[bytes]:
    return [row for row in table.split(b"\n") if row]


def _unescaped(field: bytes) -> str:
    r"""Decode escapes such as \040, a space. Raises ValueError."""
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
