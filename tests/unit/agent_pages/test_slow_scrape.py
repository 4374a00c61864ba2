"""The HTTP process serves other clients while it reads the containers' usage."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from support.agent.agent_pages import ON_ALL
from support.ledger.tenants import Tenants
from vcuda_hook.live import usage
from vcuda_plugin.agent.http.event_counts import EventCounts
from vcuda_plugin.agent.http.http_server import Request
from vcuda_plugin.agent.http.node_state import Node
from vcuda_plugin.agent.http.routes import Routes


def test_health_is_answered_while_a_page_takes_its_time_to_be_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = Tenants(str(tmp_path))
    tenants.add_record("slow")
    begun, goes_on, take_sample = threading.Event(), threading.Event(), usage.take_sample

    def slowly(*arguments: Any) -> Any:
        begun.set()
        goes_on.wait(30)
        return take_sample(*arguments)

    monkeypatch.setattr(usage, "take_sample", slowly)
    routes = Routes(
        Node("node-1", tenants.state_dir),
        EventCounts(tenants.state_dir),
        ON_ALL,
    )

    async def ask() -> tuple[int, bool, int]:
        scrape = asyncio.ensure_future(routes.answer(Request("/metrics", {})))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        health = await routes.answer(Request("/healthz", {}))
        was_done = scrape.done()
        goes_on.set()
        return health.status, was_done, (await scrape).status

    assert asyncio.run(ask()) == (200, False, 200)
    tenants.close()
