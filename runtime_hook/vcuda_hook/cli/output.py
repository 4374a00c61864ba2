"""Errors of standard output: one line and exit code 1 instead of Python's message."""

from __future__ import annotations

import errno
import os
import sys

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


def is_of_output(error: OSError) -> bool:
    """Whether the error came from a write to an open file, as from printing."""
    return error.filename is None and error.errno in _FULL


def flushed(exit_code: int) -> int:
    """Flush standard output; return the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return failed(error)
    return exit_code


def failed(error: OSError) -> int:
    """Report the error; return the exit code."""
    sys.stderr.write(
        f"vcuda: standard output: cannot be written: {error.strerror}; "
        "free space there, or write elsewhere\n"
    )
    # Python flushes again when it ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return 1
