"""The agent's HTTP server, a process of its own: whatever a client does, the rest goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from vcuda_oci import config, names
from vcuda_oci.errors import VcudaError

from ... import dependencies
from ...kube import node_gpus
from . import event_counts, listen_address

if TYPE_CHECKING:
    from .node_state import Node
    from .routes import Routes

_MOST_LINE = 1 << 20
_MODULES = ("h11", "prometheus_client")
# Where what Python loads later is linked with.
_CODE = ("/usr/lib", "/lib", "/lib64", sys.base_prefix + "/lib", "/dev/urandom")


def prepare() -> None:
    """Raises ModuleNotFoundError: a package is missing; main() says so."""
    from . import event_counts, http_server, node_state, routes  # noqa: F401


def needed_files(address: str, node: str, state_dir: str, *_: str) -> tuple[list[str], list[str]]:
    """What it may read and what it may write: its own code, the records and pages, its counts."""
    code = [path for path in (*sys.path, *_CODE) if os.path.isabs(path) and path != "/"]
    return [*code, state_dir], [f"{state_dir}/{event_counts.FOLDER}"]


def main(address: str, node: str, state_dir: str, exemplars: str = config.NO) -> None:
    """Serves until it is told to end or the agent is gone, whose lines on standard input tell the
    node's GPUs (node_gpus) or, empty, that its loop turns. Says "open" once it listens.
    exemplars: as the settings say it."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"{names.AGENT_PROGRAM}: http: %(message)s"
    )
    try:
        asyncio.run(_serve(address, node, state_dir, exemplars == config.YES))
    except ModuleNotFoundError as missing:
        hint = dependencies.mend(_MODULES)
        sys.exit(f"{names.AGENT_PROGRAM}: {address}: no module {missing.name}; {hint}")
    except VcudaError as error:
        sys.exit(f"{names.AGENT_PROGRAM}: {error}")


async def _serve(address: str, name: str, state_dir: str, exemplars: bool) -> None:
    from .event_counts import EventCounts
    from .http_server import Server
    from .node_state import Node
    from .routes import Routes

    host, port = listen_address.parse(address)
    node = Node(name, state_dir)
    only_here = listen_address.is_loopback(host)
    routes = Routes(node, EventCounts(state_dir), only_here, exemplars)
    try:
        server = await Server(routes.answer).listen(host, port)
    except OSError as error:
        what = f"cannot listen: {os.strerror(error.errno or 0)}"
        raise VcudaError(what, address, "free the address, or set listen") from error
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        os.write(1, b"open\n")
    except BrokenPipeError:
        return  # the agent has ended meanwhile
    hearing = asyncio.ensure_future(_hear(node, routes))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((hearing, stopped), return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if hearing.done():
        hearing.result()


async def _hear(node: Node, routes: Routes) -> None:
    """Until the agent has ended."""
    said = asyncio.StreamReader(limit=_MOST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    while line := await said.readline():
        routes.heard = time.monotonic()
        if line.startswith(node_gpus.NO_GPU):
            routes.no_gpu = line[1:].decode(errors="replace").strip()
        elif line.strip():
            node.known = node_gpus.parse(line.decode())
