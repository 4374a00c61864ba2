"""The files of unix sockets: whether a process listens there, and which file it is."""

from __future__ import annotations

import errno
import os
import socket


def is_served(path: str) -> bool:
    """Whether a process listens at this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        try:
            return asking.connect_ex(path) in (0, errno.EAGAIN)
        except OSError:  # a path that is too long for a socket
            return False


def identity(path: str) -> tuple[int, ...]:
    """Values that change when the file at `path` is created again; empty: no file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns
