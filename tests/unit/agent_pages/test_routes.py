"""The answers to probes of the agent."""

from __future__ import annotations

import asyncio
from typing import Any

from support.agent.agent_pages import ON_ALL
from vcuda_plugin.agent.http.event_counts import EventCounts
from vcuda_plugin.agent.http.http_server import Request
from vcuda_plugin.agent.http.node_state import Node
from vcuda_plugin.agent.http.routes import SILENCE_SECONDS, Routes


def test_an_agent_with_a_stalled_event_loop_is_not_healthy(tmp_path: Any) -> None:
    async def asked(silent: float) -> tuple[int, bytes]:
        routes = Routes(Node("n", str(tmp_path)), EventCounts(str(tmp_path)), ON_ALL)
        routes.heard -= silent
        return (await routes.answer(Request("/healthz", {})))[:2]

    assert asyncio.run(asked(0)) == (200, b"ok\n")
    line = f"the agent's loop has not turned for {SILENCE_SECONDS + 5:.0f} s\n".encode()
    assert asyncio.run(asked(SILENCE_SECONDS + 5)) == (503, line)
