"""The node's page for people: every figure in its place, and escaped names."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.agent.agent_pages import POD, ParsedPage
from support.files import write
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from vcuda_hook.live import usage
from vcuda_hook.live.usage import Sample
from vcuda_oci.model import policies, topology
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages.page_reader import UsageProcess
from vcuda_plugin.agent.http import graph_page, node_state, usage_page
from vcuda_plugin.agent.http.node_state import Node, View
from vcuda_plugin.kube.node_gpus import NodeGpus
from vcuda_plugin.web import page_frame

EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\n\u202e"


@pytest.fixture
def tenants(tmp_path: Any) -> Iterator[Tenants]:
    node = Tenants(str(tmp_path))
    yield node
    node.close()


def look(tenants: Tenants, known: NodeGpus | None) -> View:
    node = Node("node-1", tenants.state_dir)
    node.known = known
    return asyncio.run(node.view())


def test_a_gpu_shows_its_tenants_with_what_they_asked_for_and_use(tenants: Tenants) -> None:
    tenants.add_record("pod-u.main", shares=[GpuShare("GPU-0", 4 * GIB, 30)], pod=POD)
    tenants.uses("pod-u.main", held=3 * GIB // 2, refusals=1200, throttled_ns=61_000_000_000)
    elastic = GpuShare("GPU-0", 2 * GIB, 20, policies.ELASTIC, 80)
    tenants.add_record("f" * 64, shares=[elastic])
    text = ParsedPage(usage_page.render(look(tenants, NodeGpus(gpus(16))))).text()
    assert "vcuda on node-1 Usage Graph Metrics 1 GPU, 2 containers." in text
    assert "GPU 0 · Soft GPU-0 healthy" in text
    assert "Compute 0 % used, 50 % reserved" in text
    assert "Memory 1.5 GiB used, 6 GiB promised of 16 GiB" in text
    assert "ml/train-0/main 1 process pid 7: 1.5 GiB, 0 % of the GPU pids are " in text
    assert (" 0 % of 30 % 1.5 GiB of 4 GiB fixed, waited 61 s, 1,200 refused allocations") in text
    assert "ffffffffffff 0 % of 20 % 0 B of 2 GiB elastic to 80 %" in text


def test_the_page_shows_why_a_container_waits_and_what_turns_lose(tenants: Tenants) -> None:
    for id in ("a", "b"):
        tenants.add_record(id, shares=[GpuShare("GPU-0", GIB, 50)])
    node, ms = Node("node-1", tenants.state_dir), 1_000_000
    node.known = NodeGpus(gpus(16))
    # In the future: a reading that is older than a write counts from when it was read.
    now = time.monotonic_ns() + 60_000 * ms
    tenants.turns(now, {"a": (0, 0, 0, 0), "b": (0, 0, 0, 0)})
    asyncio.run(node.view())
    of = {"a": (490 * ms, 500 * ms, 0, 0), "b": (500 * ms, 90 * ms, 0, 0)}
    tenants.turns(now + 1000 * ms, of, lost_ns=30 * ms)
    node._view = None
    text = ParsedPage(usage_page.render(asyncio.run(node.view()))).text()
    assert "Compute 0 % used, 100 % reserved, 3 % lost" in text
    assert "a 0 % of 50 % 0 B of 1 GiB fixed, waits: GPU held by b" in text
    assert text.count("waits") == 1


def test_process_use_is_counted_by_slot_and_only_the_largest_are_listed(
    tenants: Tenants,
) -> None:
    tenants.add_record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    view = look(tenants, NodeGpus(gpus(16)))

    def process(slot: int, generation: int, held: int, busy: int) -> UsageProcess:
        return UsageProcess(slot, 100 + slot, generation, 0, (held,), (busy,), (1,))

    before = Sample(0, 1, [], [], [process(0, 1, 5, 10), process(1, 1, 9, 80)])
    now = [process(0, 1, 5, 60), process(1, 2, 9, 90), process(2, 1, 7, 0)]
    later = Sample(100, 1, [], [], now)
    found = usage.processes_between(before, later, 0)
    assert found == [(101, None, 9), (102, None, 7), (100, 50.0, 5)]
    other_page = usage.processes_between(before, later._replace(file=2), 0)
    assert {each.core_percent for each in other_page} == {None}
    many = view._replace(processes={("box", "GPU-0"): found * 7})
    page = ParsedPage(usage_page.render(many))
    assert "box 21 processes pid 101: 9 B pid 102: 7 B pid 100: 5 B, 50 % of" in page.text()
    assert "and 1 more pids are" in page.text()
    suspension = {"step": "suspended", "since": 0.0, "bytes": 9}
    (entry,) = view.tenants
    off = many._replace(tenants=[{**entry, "suspension": suspension}])
    assert "pid 101: 0 B" in ParsedPage(usage_page.render(off)).text()
    false = many._replace(tenants=[{**entry, "usage": "impossible"}])
    assert "pid 101" not in ParsedPage(usage_page.render(false)).text()


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, "The driver has not answered yet: the GPUs are not known."),
        (NodeGpus([]), "This node has no GPU."),
        (NodeGpus(gpus(16)), "It has no tenants."),
        (NodeGpus(gpus(16), unhealthy={"GPU-0": "Xid 79"}), "unhealthy: Xid 79"),
        (NodeGpus(gpus(16), unhealthy={"GPU-0": "drained"}), " drained "),
    ],
    ids=["just started", "no GPU", "no container", "unhealthy", "drained"],
)
def test_node_with_little_to_show_prints_a_reason(
    tenants: Tenants, known: NodeGpus | None, words: str
) -> None:
    assert words in ParsedPage(usage_page.render(look(tenants, known))).text()
    assert ParsedPage(graph_page.render(look(tenants, known))).words


def test_share_of_a_removed_gpu_and_a_broken_record_are_shown(tenants: Tenants) -> None:
    tenants.add_record("box", shares=[GpuShare("GPU-7", GIB, 10)])
    write(f"{tenants.ledger.allocations}/half.json", "{")
    text = ParsedPage(usage_page.render(look(tenants, NodeGpus(gpus(16))))).text()
    assert "GPU-7 not seen on this node" in text and "box 0 % of 10 %" in text
    assert "half.json is not a whole record: what it holds is unknown." in text


def test_the_graph_shows_the_link_between_gpus(tenants: Tenants) -> None:
    three = topology.distances(
        [[0, 4, 0], [4, 0, 0], [0, 0, 0]], [[0, 10, 50], [10, 0, 30], [50, 30, 0]]
    )
    text = ParsedPage(
        graph_page.render(look(tenants, NodeGpus(gpus(16, 16, 16), distances=three)))
    ).text()
    assert text.endswith(
        "Between them GPU 0 GPU 1 GPU 2 GPU 0 4 NVLinks the system "
        "GPU 1 4 NVLinks one host bridge GPU 2 the system one host bridge"
    )
    assert (
        "Between" not in ParsedPage(graph_page.render(look(tenants, NodeGpus(gpus(16, 16))))).text()
    )


def test_figures_that_cannot_be_are_not_shown(tenants: Tenants) -> None:
    tenants.add_record("liar", shares=[GpuShare("GPU-0", GIB, 10)])
    tenants.uses("liar", held=17 * GIB)
    view = look(tenants, NodeGpus(gpus(16)))
    text = ParsedPage(usage_page.render(view)).text()
    assert "liar - of 10 % - of 1 GiB its figures cannot be true" in text
    assert "Memory 0 B used, 1 GiB promised of 16 GiB" in text
    assert "its figures cannot be true" in ParsedPage(graph_page.render(view)).text()


@pytest.mark.parametrize("render", [usage_page.render, graph_page.render])
def test_name_is_escaped_in_every_place(tenants: Tenants, render: Any) -> None:
    calm, evil = (
        render(
            View(
                name,
                time.time(),
                [{**gpu, "model": name, "unhealthy": name} for gpu in view.gpus or []],
                [{**entry, "pod": {**POD, "name": name}} for entry in view.tenants],
                [name],
            )
        )
        for view in [_small(tenants)]
        for name in ("calm", EVIL)
    )
    assert [tag for tag, _ in ParsedPage(evil).tags] == [tag for tag, _ in ParsedPage(calm).tags]
    assert not any(key.startswith("on") for _, its in ParsedPage(evil).tags for key in its)
    assert "\u202e" not in evil.decode()


def _small(tenants: Tenants) -> View:
    tenants.add_record("box", pod=POD)
    return look(tenants, NodeGpus(gpus(16)))


def test_a_page_loads_nothing_and_its_policy_allows_no_other_script(tenants: Tenants) -> None:
    page = usage_page.render(_small(tenants)).decode()
    assert re.findall(r"(?:src|href|url)[=(]", page) == ["href="] * 4
    assert re.findall(r'href="(.*?)"', page) == ["data:,", "usage", "graph", "metrics"]
    policy = dict(page_frame.headers())["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "style=" not in page


def test_a_browser_without_script_asks_again_by_itself(tenants: Tenants) -> None:
    page = usage_page.render(_small(tenants)).decode()
    assert '<noscript><meta http-equiv="refresh" content="4"></noscript>' in page


def test_gpu_time_is_shown_over_the_time_since_the_sample_before(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "FRESH_SECONDS", 0)
    tenants.add_record("box", shares=[GpuShare("GPU-0", GIB, 30)])
    tenants.uses("box", busy_ns=10**9)
    node = Node("node-1", tenants.state_dir)
    began = time.monotonic()
    asyncio.run(node.view())
    time.sleep(0.1)
    tenants.uses("box", busy_ns=10**9 + 20_000_000)
    (entry,) = asyncio.run(node.view()).tenants
    passed = time.monotonic() - began
    assert 100 * 0.02 / passed < entry["core_used_percent"] <= 20.1
    # Started again, it has a fresh page: nothing is known yet, and nothing is wrong.
    tenants.add_record("box", shares=[GpuShare("GPU-0", GIB, 30)])
    (entry,) = asyncio.run(node.view()).tenants
    assert (entry["core_used_percent"], entry["usage"]) == (None, "told")
    tenants.uses("box", busy_ns=10**9)
    asyncio.run(node.view())
    tenants.uses("box", busy_ns=5)
    (entry,) = asyncio.run(node.view()).tenants
    assert (entry["busy_seconds"], entry["usage"]) == (None, "impossible")
