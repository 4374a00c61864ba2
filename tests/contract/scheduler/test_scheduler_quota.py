"""Quotas in a cluster: concurrent pods, and a ConfigMap that is changed, deleted or invalid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.api_server.fake_api_server import CONFIG_MAPS, FakeApiServer
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import Extender

LABELS = {"gaia.tencent.com/gpu-model": "M40"}
QUOTA = {"team": {"quota": {"M40": 9}}}


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "gpuquota", "namespace": "kube-system", "uid": "uid-q"}
    return {"metadata": metadata, "data": {"gpu_quota": text}}


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    api_server = FakeApiServer()
    for name in "ab":
        api_server.add(node(name, gpus_of(name, *[16] * 8), labels=LABELS))
    with api_server.running():
        yield api_server


def asking(name: str, core: int = 100) -> dict[str, Any]:
    return pod(name, container(core=core), namespace="team")


def used(running: Extender) -> Any:
    return json.loads(running.call("GET", "/inspect")[1])["quota"]


def row(cards: float, limit: float | None) -> dict[str, Any]:
    return {"namespace": "team", "model": "M40", "used": cards, "limit": limit, "pools": []}


def test_ten_pods_at_once_never_pass_a_quota_of_nine(api: FakeApiServer, tmp_path: Any) -> None:
    pods = [asking(f"p{n}") for n in range(10)]
    api.put(config_map(json.dumps(QUOTA)), *pods)
    with extender.running(api, tmp_path) as running:
        running.wait_ready()
        with ThreadPoolExecutor(10) as threads:
            answers = list(threads.map(running.bind, pods, "ababababab"))
        assert sorted(answers) == [""] * 9 + [
            "ExceedsGPUQuota: namespace team uses 9 of 9 cards of M40; 1 asked"
        ]
        assert used(running) == [row(9.0, 9.0)]
        (last,) = (each for each, error in zip(pods, answers) if error)
        over = dict.fromkeys("ab", next(filter(None, answers)))
        assert running.filter(last, "a", "b")["FailedNodes"] == over
        api.delete(f"team/{pods[answers.index('')]['metadata']['name']}")
        running.wait(lambda: used(running) == [row(8.0, 9.0)])
        assert running.filter(last, "a", "b")["NodeNames"] == ["a", "b"]
    # A restarted extender counts what was bound.
    with extender.running(api, tmp_path) as running:
        running.wait_ready()
        assert used(running) == [row(8.0, 9.0)]
        assert (running.bind(last, "a"), running.bind(asking("more"), "a") != "") == ("", True)


def test_invalid_quota_leaves_the_last_valid_one_with_a_warning(
    api: FakeApiServer, tmp_path: Any
) -> None:
    api.put(config_map(json.dumps(QUOTA)))
    with extender.running(api, tmp_path) as running:
        running.wait_ready()
        api.put(config_map('{"team": '))
        running.wait(lambda: bool(api.recorded_events))
        (event,) = api.recorded_events.values()
        about = event["involvedObject"]
        line = (
            "ConfigMap kube-system/gpuquota: gpu_quota is not JSON: unexpected end of data: "
            "line 1 column 10 (char 9); the quotas read before stay"
        )
        assert (event["message"], event["reason"], event["type"]) == (
            line,
            "QuotaNotRead",
            "Warning",
        )
        assert (about["kind"], about["name"], about["uid"]) == ("ConfigMap", "gpuquota", "uid-q")
        assert line in extender.log(tmp_path)
        assert used(running) == [row(0.0, 9.0)]
        api.put(config_map(json.dumps({"team": {"quota": {"M40": 0.3}}})))
        running.wait(lambda: used(running) == [row(0.0, 0.3)])
        assert running.filter(asking("p", 30), "a")["NodeNames"] == ["a"]
        assert running.filter(asking("p", 31), "a")["NodeNames"] == []
        api.delete("gpuquota", CONFIG_MAPS)
        running.wait(lambda: used(running) == [])
        assert running.filter(asking("p"), "a")["NodeNames"] == ["a"]


def test_where_no_quota_was_ever_read_nothing_is_placed(api: FakeApiServer, tmp_path: Any) -> None:
    api.put(config_map("no JSON"), asking("p"))
    with extender.running(api, tmp_path) as running:
        running.wait_ready()
        error = running.filter(asking("p"), "a")["Error"]
        assert error.startswith("ConfigMap kube-system/gpuquota: gpu_quota is not JSON: ")
        assert error.endswith("; no pod gets a GPU until mended")
        assert running.bind(asking("p"), "a") == error
        api.put(config_map("{}"))
        running.wait(lambda: running.filter(asking("p"), "a")["NodeNames"] == ["a"])
        assert running.bind(asking("p"), "a") == ""


def test_a_node_without_labels_is_for_those_without_a_quota(
    api: FakeApiServer, tmp_path: Any
) -> None:
    limited, free = asking("p"), pod("q", container(core=100))
    api.put(config_map(json.dumps(QUOTA)), node("bare", gpus_of("bare", 16)), limited, free)
    with extender.running(api, tmp_path) as running:
        running.wait_ready()
        line = "ExceedsGPUQuota: namespace team has no quota of GPUs without a model"
        assert running.filter(limited, "bare")["FailedAndUnresolvableNodes"] == {"bare": line}
        assert running.bind(limited, "bare") == line
        assert running.filter(free, "bare")["NodeNames"] == ["bare"]
        assert running.bind(free, "bare") == ""
        everywhere = {**row(1.0, None), "namespace": "default", "model": ""}
        assert used(running) == [everywhere, row(0.0, 9.0)]
