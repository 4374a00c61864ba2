"""Access files that other processes have open or mapped, and their working folders.

/proc/<pid>/fd/<number> may lead to another file each time it is resolved, so it is resolved once: a
file is first pinned by an O_PATH descriptor, which does not open it, then checked and changed only
through that descriptor.
"""

from __future__ import annotations

import os
import stat
import struct

from ..system import kernel_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_PINNED = 64
# Source: statx(2). DONT_SYNC: do not ask a file system in user space, which may never answer.
_DONT_SYNC, _EMPTY_PATH, _BASIC = 0x4000, 0x1000, 0x7FF
_STATX = struct.Struct("=IIQIIIHHQQQQ")
_DEVICE_AT = 136


class File:
    """A file's status. device, inode, size: as os.stat. links: number of names. blocks: of 512
    bytes."""

    def __init__(self, answer: bytes) -> None:
        _, _, _, links, _, _, mode, _, inode, size, blocks, _ = _STATX.unpack_from(answer)
        major, minor = struct.unpack_from("=II", answer, _DEVICE_AT)
        self.device, self.inode, self.size = os.makedev(major, minor), inode, size
        self.links, self.blocks, self.is_regular = links, blocks, stat.S_ISREG(mode)


class Pinned:
    """A process's file, held by an O_PATH descriptor. Raises OSError: the process closed it."""

    def __init__(self, link: str) -> None:
        self.fd = os.open(link, os.O_PATH | os.O_CLOEXEC)

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def path(self) -> str:
        """A path that opens exactly this file."""
        return f"/proc/self/fd/{self.fd}"

    def status(self) -> File:
        return _statx(self.fd, b"", _EMPTY_PATH)

    def open(self, flags: int) -> int:
        """Open the file. Raises OSError; BlockingIOError: a process holds a lease on it."""
        return os.open(self.path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def set_own_name(name: str) -> None:
    """Set the name that ps shows for the calling process, up to 15 characters."""
    with open("/proc/self/comm", "wb", 0) as file:
        file.write(name.encode())


def links_of(pid: int | str) -> list[str]:
    """A path for each file that a process has open. Raises OSError: it has ended."""
    folder = f"/proc/{pid}/fd"
    return [f"{folder}/{number}" for number in os.listdir(folder)]


def device_of(link: str) -> int:
    """The device of the file that a link leads to now; the link may change. Raises OSError."""
    return _statx(-1, link.encode(), 0).device


def maps(pid: int, device: int, inode: int) -> bool:
    """Whether a process has this file mapped. No other process can map a file into it.

    Raises OSError: it has ended, or may not be inspected; EFBIG: it has too many mappings to check.
    """
    number = f"{os.major(device):02x}:{os.minor(device):02x}"
    if any(_is(link, device, inode) for link in _links(pid, f" {number} {inode} ")):
        return True
    # If mountinfo shows the device as stat does, maps does too, and the answer above is right.
    if any(mount.device == device for mount in kernel_tables.mounts()):
        return False
    return any(_is(link, device, inode) for link in _links(pid, f" {inode} "))


def _links(pid: int, part: str) -> Iterator[str]:
    mappings = kernel_tables.mappings(f"/proc/{pid}", part)
    for mapping, _ in zip(mappings, range(_MOST_PINNED)):
        yield mapped_file(pid, mapping)


def _is(link: str, device: int, inode: int) -> bool:
    try:
        with Pinned(link) as mapped:
            file = mapped.status()
            return (file.device, file.inode) == (device, inode)
    except OSError:
        return False  # unmapped meanwhile


def mapped_file(pid: int | str, mapping: kernel_tables.Mapping) -> str:
    """The link to a mapped file, to be pinned."""
    return f"/proc/{pid}/map_files/{mapping.link}"


def read_mapped(link: str, most: int) -> bytes:
    """Read a mapped file. b"": it has more than `most` bytes, is not a regular file, or is leased.

    Raises OSError: it has been unmapped."""
    with Pinned(link) as file:
        status = file.status()
        if not status.is_regular or status.size > most:
            return b""
        try:
            fd = file.open(os.O_RDONLY)
        except BlockingIOError:
            return b""
    try:
        chunks = []
        while most > 0 and (chunk := os.read(fd, min(most, 1 << 20))):
            chunks.append(chunk)
            most -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def open_folder(pid: int) -> int:
    """Open a process's folder in /proc; the descriptor stays valid for this process alone.

    Raises OSError: there is no such process.
    """
    return os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def sees_our_files(process: int) -> bool:
    """Whether a process has our mount namespace and root. process: its open folder in /proc.

    Raises OSError.
    """
    own = os.stat("/proc/self/ns/mnt"), os.stat("/")
    others = os.stat("ns/mnt", dir_fd=process), os.stat("root", dir_fd=process)
    return all(map(os.path.samestat, own, others))


def go_where(process: int) -> None:
    """Change into the working folder of a process. process: its open folder in /proc.

    Raises OSError.
    """
    folder = os.open("cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        os.fchdir(folder)
    finally:
        os.close(folder)


def working_folder(pid: int) -> str:
    """The path of a process's working folder. Raises OSError."""
    return os.readlink(f"/proc/{pid}/cwd")


def _statx(fd: int, path: bytes, flags: int) -> File:
    import ctypes  # late: takes 8 ms, and few callers need it

    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(256)
    if libc.statx(fd, path, flags | _DONT_SYNC, _BASIC, answer) != 0:
        raise OSError(ctypes.get_errno(), "statx failed", path.decode())
    return File(answer.raw)
