"""The last hour of each GPU and container: bounded; an unknown figure stays unknown."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from support.agent.agent_pages import ON_ALL, ParsedPage
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.http import history, usage_page
from vcuda_plugin.agent.http.event_counts import EventCounts
from vcuda_plugin.agent.http.history import History
from vcuda_plugin.agent.http.http_server import Request
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.agent.http.routes import Routes
from vcuda_plugin.kube.node_gpus import NodeGpus


def view(**used: float | None) -> View:
    """One GPU with a container for each name, which uses so many percent and GiB."""
    tenants = [
        {
            "id": id,
            "gpu_uuid": "GPU-0",
            "core_used_percent": figure,
            "memory_used_bytes": None if figure is None else int(figure) * GIB,
            "waited_percent": figure,
        }
        for id, figure in used.items()
    ]
    return View("n", 0.0, [{"uuid": "GPU-0"}], tenants, [])


@pytest.fixture
def past(tmp_path: Any) -> History:
    return History(Node("n", str(tmp_path)))


def listed(past: History) -> Any:
    return json.loads(json.dumps(past.as_json()))


def test_a_gpu_sums_its_containers_and_each_has_its_own_series(past: History) -> None:
    past.add(view(a=10, b=20))
    past.add(view(a=30))
    found = listed(past)
    assert found["step_seconds"] == 10
    assert found["gpus"] == {
        "GPU-0": {
            "compute_percent": [30, 30],
            "memory_bytes": [30 * GIB, 30 * GIB],
            "waited_percent": [20, 30],
        }
    }
    assert found["containers"]["a"]["compute_percent"] == [10, 30]
    assert found["containers"]["b"]["compute_percent"] == [20, None]


def test_an_unknown_figure_makes_the_sum_unknown(past: History) -> None:
    past.add(view(a=10, b=None))
    assert listed(past)["gpus"]["GPU-0"]["compute_percent"] == [None]
    past.add(view())
    assert listed(past)["gpus"]["GPU-0"]["compute_percent"] == [None, 0]


def test_an_hour_is_the_most_and_a_container_that_ended_before_is_dropped(past: History) -> None:
    past.add(view(a=10))
    for _ in range(history.STEPS):
        past.add(view(b=5))
    found = listed(past)
    assert len(found["gpus"]["GPU-0"]["compute_percent"]) == 360
    assert found["containers"].keys() == {"b"}


def test_an_hour_takes_eight_bytes_a_figure(past: History) -> None:
    containers = [f"c{number}" for number in range(16)]
    past.add(view(**dict.fromkeys(containers, 0.5)))
    tracemalloc.start()
    for step in range(history.STEPS):
        past.add(view(**dict.fromkeys(containers, step / 7)))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    figures = 3 * (len(containers) + 1) * history.STEPS
    assert kept < 8 * figures * 1.3


def test_more_containers_than_there_is_room_for_have_no_history(
    past: History, monkeypatch: Any
) -> None:
    monkeypatch.setattr(history, "MOST_SERIES", 3)
    past.add(view(a=1, b=1))
    past.add(view(a=1, b=1, c=1, d=1, e=1))
    assert listed(past)["containers"].keys() == {"a", "b", "c"}


def test_many_short_containers_keep_no_later_one_out(past: History, monkeypatch: Any) -> None:
    monkeypatch.setattr(history, "MOST_SERIES", 3)
    past.add(view(old=1, stays=1))
    past.add(view(stays=1, newer=1))
    past.add(view(stays=1, late=1))
    assert listed(past)["containers"].keys() == {"stays", "newer", "late"}
    past.add(view(stays=1, late=1, later=1, none=1))
    assert listed(past)["containers"].keys() == {"stays", "late", "later"}


@pytest.fixture
def tenants(tmp_path: Any) -> Iterator[Tenants]:
    node = Tenants(str(tmp_path))
    yield node
    node.close()


def test_samples_of_the_node_are_served_and_drawn(tenants: Tenants, monkeypatch: Any) -> None:
    monkeypatch.setattr(history, "STEP_SECONDS", 0.01)
    tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    tenants.uses("box", held=4 * GIB)
    events.record(tenants.state_dir, "p", events.DECIDED, "box", "30 % of GPU-0")
    events.record(tenants.state_dir, "p", events.OUT_OF_MEMORY, "box", "refused")
    events.record(tenants.state_dir, "p", events.RELEASED, "gone", "30 % of GPU-0", pod="ml/<b>/c")
    events.record(tenants.state_dir, "p", events.RELEASED, "gone", "30 % of GPU-9")
    node = Node("n", tenants.state_dir)
    node.known = NodeGpus(gpus(16))
    routes = Routes(node, EventCounts(tenants.state_dir), ON_ALL)

    async def served() -> tuple[Any, bytes]:
        sampling = asyncio.ensure_future(routes.history.run())
        while len(routes.history.gpus.get("GPU-0", {}).get(history.MEMORY, ())) < 3:
            await asyncio.sleep(0.01)
        sampling.cancel()
        answer = await routes.answer(Request("/history", {}))
        page = await routes.answer(Request("/usage", {"accept": "text/html"}))
        return json.loads(answer.body), page.body

    found, page = asyncio.run(served())
    assert found["containers"]["box"]["memory_bytes"][-1] == 4 * GIB
    assert [(each["kind"], each["gpu"], each["name"]) for each in found["events"]] == [
        ("out-of-memory", "GPU-0", "box"),
        ("released", "GPU-0", "ml/<b>/c"),
    ]
    says = (
        "0 min, on average compute (line) 0 %, memory (dashed) 25 %; 2 events (strokes), the last"
    )
    assert f"History {says}: released ml/<b>/c, 0s ago" in ParsedPage(page).text()
    assert f'aria-label="History: {says}: released ml/&lt;b&gt;/c, 0s ago"'.encode() in page
    assert page.count(b'<line class="event"') == 2


def test_marks_are_of_an_hour_and_bounded(tenants: Tenants, monkeypatch: Any) -> None:
    monkeypatch.setattr(history, "MOST_MARKS", 3)
    followed = history.Marks(tenants.state_dir)
    for number in range(5):
        events.record(tenants.state_dir, "p", events.CLAIMED, "a", f"{number} % of GPU-0")
    seen = View("n", 0.0, [{"uuid": "GPU-0"}], [], [])
    followed.follow(seen._replace(gpus=None))
    followed.follow(seen)
    followed.follow(seen)
    now = time.time()
    assert len(followed.since(now)) == 3
    assert followed.since(now + history.MARK_SECONDS + 60) == followed.since(now - 60) == []


def test_a_fault_of_one_sample_ends_nothing(past: History, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(history, "STEP_SECONDS", 0.01)
    views: Iterator[Any] = iter([RuntimeError("spoilt"), view(a=1)])

    async def next_view(self: Node) -> Any:
        one: Any = next(views, view(a=1))
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr(Node, "view", next_view)

    async def sampled() -> None:
        sampling = asyncio.ensure_future(past.run())
        while not past.containers:
            await asyncio.sleep(0.01)
        sampling.cancel()

    asyncio.run(sampled())
    assert "spoilt" in caplog.text


def test_a_point_without_a_figure_is_left_out_of_the_line() -> None:
    points = history.Points()
    for figure in (None, 0.0, 50.0, 200.0):
        points.append(figure)
    line = usage_page._line(points, 100.0)
    assert line == "357,39.0 358,20.0 359,1.0"
