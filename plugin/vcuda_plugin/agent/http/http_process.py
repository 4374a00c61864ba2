"""The agent's HTTP server, in its own process so that no client can disturb the agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ... import dependencies
from ...kube import node_gpus
from . import event_counts, listen_address, names_line

if TYPE_CHECKING:
    from .node_state import Node
    from .routes import Routes

_MOST_LINE = 1 << 20
_MODULES = ("h11", "prometheus_client")
# Python's libraries, and /dev/urandom: modules imported later need them.
_CODE = ("/usr/lib", "/lib", "/lib64", sys.base_prefix + "/lib", "/dev/urandom")


def prepare() -> None:
    """Import the modules before the fork. Raises ModuleNotFoundError, which main() reports."""
    from . import http_server, node_state, routes  # noqa: F401


def needed_files(settings: Config, _: str) -> tuple[list[str], list[str]]:
    """Paths that the process may read (code, state folder) and write (its event counts)."""
    code = [path for path in (*sys.path, *_CODE) if os.path.isabs(path) and path != "/"]
    return [*code, settings.state_dir], [f"{settings.state_dir}/{event_counts.FOLDER}"]


def main(settings: Config, node: str) -> None:
    """Serve until SIGTERM, or until the agent ends and closes standard input.

    Each line on standard input holds the node's GPUs (node_gpus), containers' names (names_line),
    the GPUs' sensors, or is empty: a heartbeat of the agent's event loop. Writes "open" to standard
    output once the server listens.
    """
    try:
        asyncio.run(_serve(settings, node))
    except ModuleNotFoundError as missing:
        hint = dependencies.hint(_MODULES)
        sys.exit(f"{names.AGENT_PROGRAM}: {settings.listen}: no module {missing.name}; {hint}")
    except VcudaError as error:
        sys.exit(f"{names.AGENT_PROGRAM}: {error}")


async def _serve(settings: Config, name: str) -> None:
    # Late: these need packages that may be missing; main reports which.
    from .http_server import Server
    from .node_state import Node
    from .routes import Routes

    host, port = listen_address.parse(settings.listen)
    node = Node(name, settings.state_dir)
    routes = Routes(node, event_counts.EventCounts(settings.state_dir), settings)
    try:
        server = await Server(routes.answer).listen(host, port)
    except OSError as error:
        reason = f"cannot listen: {os.strerror(error.errno or 0)}"
        raise VcudaError(reason, settings.listen, "free the address, or set listen") from error
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        os.write(1, b"open\n")
    except BrokenPipeError:
        return  # the agent has already ended
    reading = asyncio.ensure_future(_read_agent(node, routes))
    stopped = asyncio.ensure_future(stop.wait())
    remembering = asyncio.ensure_future(routes.history.run())
    await asyncio.wait((reading, stopped), return_when=asyncio.FIRST_COMPLETED)
    remembering.cancel()
    routes.demands.save()  # before the next process may listen, which reads them
    server.close()
    if reading.done():
        reading.result()


async def _read_agent(node: Node, routes: Routes) -> None:
    """Apply the agent's lines on standard input until it ends."""
    lines = asyncio.StreamReader(limit=_MOST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        routes.heard = time.monotonic()
        if line.startswith(node_gpus.NO_GPU):
            routes.no_gpu = line[1:].decode(errors="replace").strip()
        elif line.startswith(names_line.MARK):
            node.described = names_line.parse(line)
        elif line.startswith(names_line.SENSORS):
            node.sensors = json.loads(line[len(names_line.SENSORS) :])
        elif line.strip():
            node.known = node_gpus.parse(line.decode())
