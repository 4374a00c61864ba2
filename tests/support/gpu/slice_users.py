"""Users of a named slice's page: a process that maps it, as the shim does, and a forger."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator

from vcuda_oci.pages import layout

_MAP = """
import mmap, os, sys, time
kept = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)
print("mapped", flush=True)
time.sleep(300)
"""
_SLOTS_AT = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE


@contextlib.contextmanager
def mapping(page: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the page mapped."""
    command = [sys.executable, "-ISc", _MAP, page]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as user:
        assert user.stdout
        assert user.stdout.readline() == b"mapped\n"
        try:
            yield user
        finally:
            user.kill()


def forge(page: str, pid: int) -> None:
    """Write slots for pids 1 to 255, which occur in any pid namespace, and for `pid`.

    The start time is 0, which the shim writes where it has no /proc.
    """
    with open(page, "r+b") as file:
        os.pwrite(file.fileno(), struct.pack("=I", layout.MAX_PROCESSES), 12)
        for number, forged in enumerate([*range(1, layout.MAX_PROCESSES), pid]):
            slot = struct.pack("=IIQ", forged, 1, 0)
            os.pwrite(file.fileno(), slot, _SLOTS_AT + number * layout.USAGE_SLOT_SIZE)
