"""Child processes for work that may block or needs heavy optional imports.

`forked` starts the fork server, which starts and reaps the children. Each child has three pipes:
its stdin, its stdout, and one on which the fork server writes the child's exit status.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from io import FileIO
from typing import Any

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from .fork_server import ForkServer

_END_SECONDS = 10

_names = itertools.count()
_servers: list[socket.socket] = []


@contextlib.contextmanager
def forked(settings: Config, *modules: str) -> Iterator[None]:
    """Start the fork server for children of these modules; end it with the block.

    Enter before any thread is started and before anything is opened that no child may inherit.
    """
    for module in modules:
        # A child that fails in the same way reports the error itself.
        with contextlib.suppress(Exception):
            getattr(importlib.import_module(module), "prepare", bool)()
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # garbage collection must not write to memory that is shared
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            ForkServer(its, settings).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    its.close()
    ours.settimeout(0)
    _servers.append(ours)
    try:
        yield
    finally:
        _servers.remove(ours)
        ours.close()
        os.waitpid(pid, 0)


async def watch() -> None:
    """Wait until cancelled. Raises VcudaError: the fork server has ended, and all children too."""
    await asyncio.get_running_loop().sock_recv(_servers[-1], 1)
    raise VcudaError("has ended", "fork server", "see the kernel's log for what killed it")


class Child:
    """A running child. stdin: the pipe to it.

    returncode: None while it runs; negative: the number of the signal that ended it.
    """

    def __init__(
        self, name: int, stdin: asyncio.WriteTransport, status: asyncio.StreamReader
    ) -> None:
        self.stdin = stdin
        self.returncode: int | None = None
        self._name = name
        self._end = asyncio.ensure_future(self._follow(status))

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        _ask({"name": self._name, "signal": number})

    async def _follow(self, status: asyncio.StreamReader) -> int:
        # The pipe closes empty if the child could not be started or the fork server has ended.
        self.returncode = int(await status.read() or 1)
        return self.returncode


@contextlib.asynccontextmanager
async def running(
    module: str, *arguments: str
) -> AsyncIterator[tuple[Child, asyncio.StreamReader]]:
    """Run `main(settings, *arguments)` of a module in a child; yield the child and its stdout.

    The child is ended with the block. A child that the kernel holds in an ioctl cannot be ended and
    is waited for, since a second child would block in the same way.
    """
    name = next(_names)
    (stdin, to_it), (from_it, stdout), (from_server, status) = _pipe(), _pipe(), _pipe()
    with contextlib.ExitStack() as open_pipes:
        with stdin, stdout, status:
            loop = asyncio.get_running_loop()
            to_child, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, to_it)
            open_pipes.callback(to_child.close)
            output = await _read(from_it, open_pipes)
            ended = await _read(from_server, open_pipes)
            request = {"name": name, "module": module, "arguments": arguments}
            _ask(request, (stdin.fileno(), stdout.fileno(), status.fileno()))
        child = Child(name, to_child, ended)
        try:
            yield child, output
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if child.returncode is None:
                    child.send_signal(number)
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(child.wait(), _END_SECONDS)
            await child.wait()


def _ask(request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a request to the fork server. If that has ended, watch() raises, so ignore it here."""
    with contextlib.suppress(OSError):
        socket.send_fds(_servers[-1], [json.dumps(request).encode()], descriptors)


def _pipe() -> tuple[FileIO, FileIO]:
    read, write = os.pipe()
    return open(read, "rb", 0), open(write, "wb", 0)


async def _read(pipe: FileIO, open_pipes: contextlib.ExitStack) -> asyncio.StreamReader:
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    open_pipes.callback(transport.close)
    return stream
