"""The node agent's HTTP paths and their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.system.settings_file import Config

from ...web import page_frame
from . import exposition, graph_page, listen_address, usage_page
from .event_counts import EventCounts
from .history import History
from .http_server import Request, Response, plain
from .node_state import Node, View
from .workload_demands import WorkloadDemands

# The agent's event loop sends a heartbeat more often than this while it runs.
SILENCE_SECONDS = 30.0
_PAGE = page_frame.headers()
_JSON = (("Content-Type", "application/json"), ("Vary", "Accept"))
# Host headers accepted on a loopback address. Refusing all others prevents DNS rebinding: a foreign
# page with a name that resolves to 127.0.0.1 cannot read the answers.
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_OPEN_METRICS = "application/openmetrics-text"


class Routes:
    """Answers requests by path.

    heard: time of the agent's last heartbeat (time.monotonic).
    """

    def __init__(self, node: Node, counts: EventCounts, settings: Config) -> None:
        self._node, self._counts, self._settings = node, counts, settings
        # The server listens on a loopback address.
        self._only_here = listen_address.is_loopback(listen_address.parse(settings.listen)[0])
        self.demands = WorkloadDemands(node.state_dir)
        self.history = History(node, self.demands.add)
        self._pages = exposition.Pages()
        self.heard = time.monotonic()
        self.no_gpu = ""  # why no GPU was found; "": one was
        # Time of the present view and the bodies rendered from it, shared by all its requests.
        self._rendered: tuple[float, dict[str, bytes]] = (0.0, {})
        self._paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._home,
            "/metrics": self._metrics,
            "/metric": self._metrics,  # GPUManager's path
            "/usage": self._usage,
            "/graph": self._graph,
            "/history": self._history_page,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/version": self._version,
        }

    async def answer(self, request: Request) -> Response:
        route = self._paths.get(request.path)
        if self._only_here and _host(request) not in _LOOPBACK_NAMES:
            response = plain(403, "this address is asked by the name of localhost only")
        elif route is None:
            response = plain(404, f"no such page; there is {', '.join(self._paths)}")
        else:
            response = await route(request)
        return response._replace(headers=(*response.headers, *page_frame.ALWAYS))

    async def _home(self, _: Request) -> Response:
        return Response(307, b"", (("Location", "usage"),))

    async def _metrics(self, request: Request) -> Response:
        kind, render = exposition.CONTENT_TYPE, self._pages.text
        if self._settings.exemplars and _OPEN_METRICS in request.headers.get("accept", ""):
            kind, render = exposition.OPEN_METRICS_TYPE, exposition.open_metrics_page
        body = await self._of_view(
            kind, lambda v: render(v, self._counts.read(), self.demands.recommended())
        )
        return Response(200, body, (("Content-Type", kind),))

    async def _usage(self, request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            body = await self._of_view(
                "usage",
                lambda v: usage_page.render(
                    v, self.history.gpus, self.history.marks.since(v.taken)
                ),
            )
            return Response(200, body, _PAGE)
        return Response(200, await self._of_view("json", lambda v: _dumped(v.as_json())), _JSON)

    async def _graph(self, _: Request) -> Response:
        return Response(200, await self._of_view("graph", graph_page.render), _PAGE)

    async def _history_page(self, _: Request) -> Response:
        return Response(200, _dumped(self.history.as_json()), _JSON)

    async def _of_view(self, what: str, make: Callable[[View], bytes]) -> bytes:
        view = await self._node.view()
        if self._rendered[0] != view.taken:
            self._rendered = view.taken, {}
        rendered = self._rendered[1]
        if what not in rendered:
            rendered[what] = make(view)
        return rendered[what]

    async def _healthz(self, _: Request) -> Response:
        silent = time.monotonic() - self.heard
        if silent > SILENCE_SECONDS:
            return plain(503, f"the agent's loop has not turned for {silent:.0f} s")
        return plain(200, "ok")

    async def _readyz(self, request: Request) -> Response:
        if self.no_gpu:
            return plain(503, f"no GPU is offered: {self.no_gpu}")
        return await self._healthz(request)

    async def _version(self, _: Request) -> Response:
        version = {"program": names.AGENT_PROGRAM, "version": names.VERSION}
        return Response(200, _dumped(version), _JSON)


def _host(request: Request) -> str:
    """The Host header without its port."""
    name, _, port = request.headers.get("host", "").rpartition(":")
    return name if name and port.isdigit() else request.headers.get("host", "")


def _dumped(tree: Any) -> bytes:
    return json.dumps(tree).encode() + b"\n"
