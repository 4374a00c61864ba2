"""Processes of the agent that do what must not be able to hold it up, or what only some need."""

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
from typing import TYPE_CHECKING

from vcuda_oci.errors import VcudaError

from .fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from io import FileIO
    from typing import Any

_END_SECONDS = 10

_names = itertools.count()
_servers: list[socket.socket] = []


@contextlib.contextmanager
def forked(*modules: str) -> Iterator[None]:
    """While it lasts, children of these modules can be had.

    No thread may have been started, and nothing been opened that no child may hold.
    """
    for module in modules:
        # What fails here the child meets too, and says it.
        with contextlib.suppress(Exception):
            getattr(importlib.import_module(module), "prepare", bool)()
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # whoever collects garbage writes to nothing that is here now, and shared
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            ForkServer(its).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    its.close()
    ours.setblocking(False)
    _servers.append(ours)
    try:
        yield
    finally:
        _servers.remove(ours)
        ours.close()
        os.waitpid(pid, 0)


async def watch() -> None:
    """Until cancelled. Raises VcudaError: who starts the children has ended, and they with it."""
    await asyncio.get_running_loop().sock_recv(_servers[-1], 1)
    raise VcudaError("has ended", "fork server", "see the kernel's log for who killed it")


class Child:
    """stdin: what tells it. returncode: None while it lives; negative: the signal that ended it."""

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
        # Nothing comes where it could not be started, or nobody is left who would tell.
        self.returncode = int(await status.read() or 1)
        return self.returncode


@contextlib.asynccontextmanager
async def running(
    module: str, *arguments: str
) -> AsyncIterator[tuple[Child, asyncio.StreamReader]]:
    """The child whose `main` is called with `arguments`, and what it says; ended with the block.

    One that the kernel holds in an ioctl cannot be ended: it is waited for, since a second would
    only be held too.
    """
    name = next(_names)
    (stdin, to_it), (from_it, stdout), (from_server, status) = _pipe(), _pipe(), _pipe()
    with contextlib.ExitStack() as open_pipes:
        with stdin, stdout, status:
            loop = asyncio.get_running_loop()
            ear, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, to_it)
            open_pipes.callback(ear.close)
            said = await _read(from_it, open_pipes)
            ended = await _read(from_server, open_pipes)
            request = {"name": name, "module": module, "arguments": arguments}
            _ask(request, (stdin.fileno(), stdout.fileno(), status.fileno()))
        child = Child(name, ear, ended)
        try:
            yield child, said
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if child.returncode is None:
                    child.send_signal(number)
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(child.wait(), _END_SECONDS)
            await child.wait()


def _ask(request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """One that is not there is missed by watch()."""
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
