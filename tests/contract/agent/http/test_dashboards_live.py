"""Dashboards and alerts, evaluated by a real Prometheus that scrapes the agent and the extender."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.agent.http.test_agent_http import asked, listening, prometheus
from contract.agent.test_device_plugin import uuids
from contract.scheduler.test_scheduler_quota import LABELS, QUOTA, asking, config_map
from support.agent.node_agent import AgentNode
from support.api_server.fake_api_server import FakeApiServer
from support.files import ROOT
from support.ledger.samples import GIB
from support.ledger.tenants import Tenants
from support.scheduler import extender
from support.scheduler.clusters import gpus_of
from support.scheduler.clusters import node as node_object
from support.waiting import until
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare

BOARDS = sorted(Path(ROOT, "packaging/chart/monitoring").glob("*.json"))
RULES = Path(ROOT, "packaging/chart/monitoring/vcuda.rules.yml")
POD = {"uid": "u", "namespace": "team", "name": "train-0", "container": "main"}

Query = Callable[[str, str], Any]


@pytest.fixture
def query(node: AgentNode, tmp_path: Path) -> Iterator[Query]:
    """A question (its path, its words) to a Prometheus that knows a node with a tenant, and an
    extender with a quota and a pod that it has bound."""
    api, folder = FakeApiServer(), tmp_path / "extender"
    folder.mkdir()
    api.put(config_map(json.dumps(QUOTA)), asking("bound"))
    api.put(node_object("a", gpus_of("a", 16, 16), labels=LABELS))
    port, tenants = listening(node), Tenants(str(tmp_path))
    with api.running(), extender.ready(api, folder) as scheduler, node.agent():
        until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
        tenants.add_record("pod-u.main", shares=[GpuShare(uuids(node)[0], 4 * GIB, 30)], pod=POD)
        tenants.uses("pod-u.main", held=GIB)
        scheduler.filter(asking("bound"), "a")
        assert scheduler.bind(asking("bound"), "a") == ""
        with prometheus(tmp_path, port, scheduler.port) as server:

            def ask(path: str, words: str) -> Any:
                return (asked(server, f"/api/v1/{path}?{words}") or {}).get("data")

            until(lambda: len(values(ask, "count_over_time(up[1m]) > 2")) == 2)
            yield ask
    tenants.close()


def values(query: Query, expression: str) -> list[dict[str, Any]]:
    found = query("query", urllib.parse.urlencode({"query": expression}))
    return list(found["result"]) if found else []


def test_every_panel_and_every_choice_of_every_dashboard_has_an_answer(query: Query) -> None:
    empty = []
    for path in BOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                if not values(query, filled(target["expr"])):
                    empty.append((path.stem, panel["title"], target["expr"]))
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asks = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
                assert asks
                words = urllib.parse.urlencode({"match[]": filled(asks[1])})
                if not query(f"label/{asks[2]}/values", words):
                    empty.append((path.stem, variable["name"], variable["definition"]))
    assert empty == []


def filled(expression: str) -> str:
    """As Grafana asks where everything is chosen."""
    asked = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$\w+", ".*", asked)


def test_an_alert_sees_the_first_of_what_it_waits_for(query: Query, node: AgentNode) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    asked = [rule["expr"] for group in groups for rule in group["rules"]]
    (refused,) = (expression for expression in asked if "vcuda_refusals_total" in expression)
    assert values(query, refused) == []
    events.record(node.state_dir, "p", events.REFUSED, "box", "largest free share is 0 %")
    until(lambda: [one["metric"]["reason"] for one in values(query, refused)] == ["share"])
