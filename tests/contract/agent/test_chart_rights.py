"""The programs' API calls are allowed by the chart's roles, and its probes work."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.agent.test_device_plugin import CORE
from contract.chart import rendering
from contract.chart.rendering import AGENT, CLUSTER, EXTENDER
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.api_server.fake_api_server import PODS, FakeApiServer, status
from support.scheduler import clusters, extender
from support.scheduler.clusters import container, gpus_of, pod
from support.waiting import until
from vcuda_oci.ledger import events
from vcuda_plugin.extender.http import certificates

_PATH = re.compile(
    r"/api/v1/(?:namespaces/[^/]+/)?(?P<kind>\w+)(?:/(?P<name>[^/]+))?(?P<sub>/\w+)?"
)
_VERBS = {"GET": "get", "WATCH": "watch", "POST": "create", "PATCH": "patch"}


def right(method: str, path: str) -> tuple[str, str]:
    """(verb, resource). Source: Kubernetes, "Authorization", "Request verbs"."""
    match = _PATH.fullmatch(path)
    assert match, path
    kind, name, part = match.groups("")
    verb = _VERBS[method]
    return "list" if verb == "get" and not name else verb, kind + part


def granted(name: str) -> set[tuple[str, str]]:
    found = rendering.objects()
    rules = rendering.one(found, "ClusterRole", name)["rules"]
    if name == EXTENDER:
        rules += rendering.one(found, "Role", name + "-quota")["rules"]
    assert all(rule["apiGroups"] == [""] for rule in rules)
    return {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


@pytest.fixture
def kube_api() -> Iterator[KubeApi]:
    api = KubeApi()
    api.start()
    yield api
    api.stop()


def test_the_agent_asks_for_all_that_it_is_granted_and_no_more(
    node: AgentNode, kube_api: KubeApi, tmp_path: Path
) -> None:
    words = [node.program, "--config", node.config, "--node-name", "node-1"]
    words += ["--kubelet-dir", node.kubelet.folder]
    agent = Agent([*words, "--kubeconfig", kube_api.kubeconfig(str(tmp_path / "kubeconfig"))])

    def asked() -> set[tuple[str, str]]:
        return {right(method, path) for method, path, _ in list(kube_api.requests)}

    try:
        agent.await_ready()
        uid = kube_api.create("web", {"main": {CORE: 30}})
        until(lambda: os.path.exists(f"{node.state_dir}/decisions/{uid}.json"))
        for _ in range(2):  # the first creates an Event, what follows is counted in it
            more = events.about("box", {"namespace": "default", "name": "web", "container": "main"})
            events.record(node.state_dir, "vcuda", "refused", f"pod-{uid}.main", "no", **more)
            until(lambda: bool(kube_api.recorded_events))
        until(lambda: len(asked()) == len(granted(AGENT)))
        assert asked() == granted(AGENT)
    finally:
        agent.end()


@pytest.fixture
def api_server() -> Iterator[FakeApiServer]:
    api = FakeApiServer()
    with api.running():
        api.put(clusters.node("a", gpus_of("a", 16, 16)))
        yield api


def test_the_extender_asks_for_all_that_it_is_granted_and_no_more(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    asking = pod("asking", container(core=30, memory=16))
    api_server.put(asking)
    with extender.running(api_server, tmp_path) as running:
        running.wait_ready()
        # Read where a binding seems to exist already.
        there = status(409, "already assigned")
        api_server.before = lambda method, *_: there if method == "POST" else None
        assert "already assigned" in running.bind(asking, "a")
        api_server.before = lambda *_: None
        assert running.bind(asking, "a") == ""
        asked = set()
        for method, path, _ in list(api_server.requests):
            asked.add(right(method, path))
        # The Event reports a quota that cannot be read: contract/scheduler/test_scheduler_quota.py.
        # Evictions: test_scheduler_preempt.py.
        others = {("create", "events"), ("create", "pods/eviction")}
        assert asked | others == granted(EXTENDER)


def test_the_extender_that_the_clusters_scheduler_calls_may_do_all_that_its_lease_needs(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    found = rendering.objects(CLUSTER)
    command = rendering.pod_spec(found, EXTENDER)["containers"][0]["command"]
    words = [word for word in command if word.startswith(("--lease=", "--agents="))]
    role = rendering.one(found, "Role", EXTENDER)
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{role['metadata']['namespace']}/leases"
    may = {
        (verb, "/".join([folder, *name]))
        for rule in role["rules"]
        for verb in rule["verbs"]
        for name in [rule.get("resourceNames", [])]
    }
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "WATCH": "watch"}

    def asked() -> set[tuple[str, str]]:
        calls = list(api_server.requests)
        found = {(verbs[method], path) for method, path, _ in calls if "/leases" in path}
        return {("list", folder) if each == ("get", folder) else each for each in found}

    with extender.running(api_server, tmp_path, *words) as running:
        running.wait(lambda: {"update", "watch"} <= {verb for verb, _ in asked()})
        assert asked() == may


def probe(which: str, port: int, tls: str) -> int:
    """The exit code of the extender's probe, as the kubelet has it run in the container. tls: what
    is mounted as /etc/vcuda-tls."""
    containers = rendering.pod_spec(rendering.objects(), EXTENDER)["containers"]
    words = containers[0][which]["exec"]["command"]
    words = [word.replace(":3456/", f":{port}/").replace("/etc/vcuda-tls", tls) for word in words]
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode


def test_probes_see_an_extender_that_is_alive_before_it_is_ready(
    api_server: FakeApiServer, tmp_path: Path
) -> None:
    away: Any = status(500, "down")
    api_server.before = lambda method, path, body: away if path == PODS else None
    tls = str(tmp_path / "tls")
    certificates.make(tls, certificates.LOOPBACK_NAMES)
    deployed = rendering.pod_spec(rendering.objects(), EXTENDER)["containers"][0]["command"]
    words = [word.replace("/etc/vcuda-tls", tls) for word in deployed if word.startswith("--tls-")]
    with extender.running(api_server, tmp_path, *words) as running:
        running.tls = extender.client(tls)
        names = ("livenessProbe", "readinessProbe", "startupProbe")
        assert [probe(name, running.port, tls) for name in names] == [0, 1, 1]
        api_server.before = lambda *_: None
        running.wait_ready()
        assert [probe(name, running.port, tls) for name in names] == [0, 0, 0]
    assert probe("livenessProbe", running.port, tls) == 1
