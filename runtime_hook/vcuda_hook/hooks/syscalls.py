"""System calls that Python 3.9 does not have. Each raises OSError, as those of `os` do."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The same on every machine. Source: include/uapi/asm-generic/unistd.h.
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_BPF = {"x86_64": 321, "aarch64": 280}
_STATX = {"x86_64": 332, "aarch64": 291}
_STATX_MNT_ID, _OFFSET_OF_MNT_ID = 0x1000, 144

RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 0x02, 0x04, 8, 0x10
_OPEN_TREE_CLONE = 1
_MOVE_FROM_FD, _MOVE_TO_FD = 0x04, 0x40
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_MS_PRIVATE = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Open an existing `path` under the rules of openat2(2). Since Linux 5.6."""
    how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, resolve)  # open_how: flags, mode, resolve
    return _call(_OPENAT2, ctypes.c_int(folder), os.fsencode(path), ctypes.byref(how), _size(how))


def clone_mount(path: str) -> int:
    """A detached copy of the mount that `path` is in, rooted there."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    return _call(_OPEN_TREE, ctypes.c_int(_AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags))


def set_mount(mount: int, attributes: int) -> None:
    """Set MOUNT_ATTR_* of a detached mount and make it private. Since Linux 5.12."""
    # struct mount_attr: set, clear, propagation, user namespace
    attr = (ctypes.c_uint64 * 4)(attributes, 0, _MS_PRIVATE, 0)
    flags = ctypes.c_uint(_AT_EMPTY_PATH)
    _call(_MOUNT_SETATTR, ctypes.c_int(mount), b"", flags, ctypes.byref(attr), _size(attr))


def attach_mount(mount: int, target: int) -> None:
    """Attach a detached mount over the file or folder of the descriptor `target`."""
    flags = ctypes.c_uint(_MOVE_FROM_FD | _MOVE_TO_FD)
    _call(_MOVE_MOUNT, ctypes.c_int(mount), b"", ctypes.c_int(target), b"", flags)


def setns(namespace: int) -> None:
    _checked(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(0)))


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def set_file_ids(user: int, group: int) -> None:
    """Set the user and group of this thread's file accesses: setfsuid(2)."""
    _libc.setfsgid(ctypes.c_uint(group))
    _libc.setfsuid(ctypes.c_uint(user))


def descriptor_of(pid: int, number: int) -> int:
    """A copy of another process's descriptor of the same open file. Since Linux 5.6."""
    process = _call(_PIDFD_OPEN, ctypes.c_int(pid), ctypes.c_uint(0))
    try:
        return _call(_PIDFD_GETFD, ctypes.c_int(process), ctypes.c_int(number), ctypes.c_uint(0))
    finally:
        os.close(process)


def mount_id(descriptor: int) -> int:
    """The id of the descriptor's mount, as in /proc/<pid>/mountinfo. Since Linux 5.8."""
    found = (ctypes.c_uint64 * 32)()  # struct statx
    flags, mask = ctypes.c_int(_AT_EMPTY_PATH), ctypes.c_uint(_STATX_MNT_ID)
    number = _STATX[os.uname().machine]
    _call(number, ctypes.c_int(descriptor), b"", flags, mask, ctypes.byref(found))
    return int(found[_OFFSET_OF_MNT_ID // 8])


def file_system_type(descriptor: int) -> int:
    """The magic number of the descriptor's file system. Source: statfs(2)."""
    found = (ctypes.c_long * 32)()
    _checked(_libc.fstatfs(ctypes.c_int(descriptor), ctypes.byref(found)))
    return int(found[0])


def bpf(command: int, attributes: ctypes.Structure | ctypes.Array[Any]) -> int:
    """Call bpf(2); returns a file descriptor or 0."""
    machine = os.uname().machine
    number = _BPF.get(machine)
    if number is None:
        raise OSError(38, f"bpf has no number on {machine}")
    return _call(number, ctypes.c_int(command), ctypes.byref(attributes), _size(attributes))


def _size(memory: ctypes.Structure | ctypes.Array[Any]) -> ctypes.c_size_t:
    return ctypes.c_size_t(ctypes.sizeof(memory))


def _call(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments))


def _checked(answer: int) -> int:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer
