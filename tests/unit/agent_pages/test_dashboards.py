"""Alerts fire when they should, and dashboards query only metrics that the programs have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.files import ROOT
from support.needed import skip_or_fail
from support.scheduler import clusters
from vcuda_plugin.agent.http import metrics
from vcuda_plugin.extender.http.metrics import Metrics

RULES = f"{ROOT}/packaging/chart/monitoring/vcuda.rules.yml"
DASHBOARDS = sorted(Path(ROOT, "packaging/chart/monitoring").glob("*.json"))
NAMES = {metric.name for metric in metrics.METRICS} | {metrics.START.name + "_bucket"}


def extenders_names() -> set[str]:
    followers: list[Any] = [SimpleNamespace(heard=0.0)]
    page = Metrics(clusters.cluster(), followers, str).page().decode()
    types = re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE)
    parts = ("_bucket", "_count", "_sum")
    return {name for name, _ in types} | {
        name + part for name, kind in types if kind == "histogram" for part in parts
    }


def promtool(*words: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        skip_or_fail("promtool is not installed")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bvcuda_\w+", text))


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.replace(".yml", ".test.yml"))
    with open(RULES) as rules, open(RULES.replace(".yml", ".test.yml")) as tests:
        alerts = re.findall(r"- alert: (\w+)", rules.read())
        tested = tests.read()
        assert [alert for alert in alerts if tested.count(f"alertname: {alert}") != 2] == []


def test_alerts_ask_for_metrics_that_the_agent_has() -> None:
    with open(RULES) as rules:
        assert metrics_in(rules.read()) - NAMES == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_in_promql_for_metrics_that_exist(path: Path, tmp_path: Any) -> None:
    board = json.loads(path.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable.get("definition", "") for variable in board["templating"]["list"]]
    assert metrics_in(" ".join(asked)) - NAMES - extenders_names() == set()
    rules = [
        {"record": "a:b", "expr": expr.replace("$__rate_interval", "5m")}
        for expr in asked
        if not expr.startswith("label_values") and expr
    ]
    # JSON is YAML too.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(tmp_path / "rules.yml"))
    # Two panels do not lie on each other.
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23
