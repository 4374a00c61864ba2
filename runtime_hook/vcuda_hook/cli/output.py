"""Standard output that cannot be written: one line and exit code 1, not Python's message."""

from __future__ import annotations

import errno
import os
import sys

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


def is_of_output(error: OSError) -> bool:
    """Whether it came from writing to an open file, as printing does."""
    return error.filename is None and error.errno in _FULL


def flushed(exit_code: int) -> int:
    """Write what was printed; the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return failed(error)
    return exit_code


def failed(error: OSError) -> int:
    """Say so; the exit code."""
    sys.stderr.write(
        f"vcuda: standard output: cannot be written: {error.strerror}; "
        "free space there, or write elsewhere\n"
    )
    # Python flushes once more at its end.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return 1
