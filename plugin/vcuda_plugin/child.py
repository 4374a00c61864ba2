"""Processes of the agent that do what must not be able to hold it up, or what only some need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import vcuda_hook
import vcuda_oci

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_START = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from importlib import import_module
import_module(sys.argv.pop(1)).main(*sys.argv[1:])
"""
_END_SECONDS = 10


@contextlib.asynccontextmanager
async def running(
    module: str, *arguments: str, own_packages: bool = True
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """The child whose `main` is called with `arguments`, and what it says; ended with the block.

    It can be told by its stdin. own_packages: it needs no package but ours.

    One that the kernel holds in an ioctl cannot be ended: it is waited for, since a second would
    only be held too.
    """
    # Where the packages are: one folder as installed, three as they are in the source.
    places = [
        os.path.dirname(os.path.dirname(os.path.abspath(path or "")))
        for path in (vcuda_oci.__file__, vcuda_hook.__file__, __file__)
    ]
    if not own_packages:
        places += [place for place in sys.path if place not in places]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ISBc", _START, ":".join(places), module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process, process.stdout  # type: ignore[misc]
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                # Not process.send_signal: it takes the end of one that has just ended from the
                # loop, which then tells of a child that it does not know.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_SECONDS)
        await process.wait()
