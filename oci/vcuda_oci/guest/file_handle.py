"""File handles: they open a file even when its last name has been removed.

A handle has the inode's number and generation, so it never opens another file. Here a handle is a
path, `<folder>/<handle in hex>.handle`; the folder must be on the same file system as the file.
Source: open_by_handle_at(2); mm/shmem.c, shmem_fh_to_dentry (unlinked files from Linux 4.20 on).
"""

from __future__ import annotations

import os
import struct

_SUFFIX = ".handle"
_AT_FDCWD, _MOST_BYTES = -100, 128
_HEAD = struct.Struct("=Ii")  # struct file_handle: the bytes that follow, and their type


def is_handle(path: str) -> bool:
    return path.endswith(_SUFFIX)


def of(path: str, folder: str) -> str:
    """The handle of a file. Raises OSError; EOPNOTSUPP: the file system has no handles."""
    os.lstat(path)
    import ctypes  # takes 3 ms, and few starts replace a page

    handle = ctypes.create_string_buffer(_HEAD.pack(_MOST_BYTES, 0), _HEAD.size + _MOST_BYTES)
    mount = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.name_to_handle_at(_AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "has no file handle", path)
    (size, _) = _HEAD.unpack_from(handle)
    return f"{folder}/{handle.raw[: _HEAD.size + size].hex()}{_SUFFIX}"


def open_file(path: str, flags: int) -> int:
    """Open a handle. Raises OSError; ESTALE: no process has the file; EPERM: a right is missing."""
    import ctypes  # late, as above

    folder, name = os.path.split(path)
    handle = bytes.fromhex(name[: -len(_SUFFIX)])
    mount = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.open_by_handle_at(mount, handle, flags | os.O_CLOEXEC))
        if fd < 0:
            raise OSError(ctypes.get_errno(), "cannot be opened by its handle", path)
        return fd
    finally:
        os.close(mount)
