"""Processes of the agent that do what must not be able to hold it up: they import no grpc."""

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
for _ in range(3):
    sys.path.insert(0, sys.argv.pop(1))
from importlib import import_module
import_module(sys.argv.pop(1)).main(*sys.argv[1:])
"""
_END_SECONDS = 10


@contextlib.asynccontextmanager
async def running(
    module: str, *arguments: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """The child whose `main` is called with `arguments`, and what it says; ended with the block.

    One that the kernel holds in an ioctl cannot be ended: it is waited for, since a second would
    only be held too.
    """
    # Where the packages are: one folder as installed, three as they are in the source.
    places = [
        os.path.dirname(os.path.dirname(os.path.abspath(path or "")))
        for path in (vcuda_oci.__file__, vcuda_hook.__file__, __file__)
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ISBc", _START, *places, module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process, process.stdout  # type: ignore[misc]
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_SECONDS)
        await process.wait()
