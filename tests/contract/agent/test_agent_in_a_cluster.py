"""An agent outside of a cluster calls no API; an agent without a client names what is missing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.agent.test_device_plugin import CORE
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.api_server.fake_api_objects import LEASES, NODES
from support.waiting import until
from vcuda_oci.model import names
from vcuda_plugin.agent.pods import node_metadata
from vcuda_plugin.kube import agent_lease, node_gpus
from vcuda_plugin.kube.agent_lease import RENEW_SECONDS
from vcuda_plugin.kube.node_gpus import NodeGpus


def test_a_host_outside_a_cluster_follows_nothing_and_waits_for_nothing(node: AgentNode) -> None:
    stale = node.state_dir + "/decisions"
    os.makedirs(stale)
    with node.agent() as agent:
        until(lambda: bool(node.kubelet.healthy(CORE)))
        assert agent.children("pod_watch") == []
        assert not os.path.exists(stale)


def test_a_switched_off_watch_asks_no_api_server(node: AgentNode) -> None:
    node.configure(kubernetes="no")
    agent = Agent([*_words(node), "--kubeconfig", "/nonexistent"])
    try:
        agent.await_ready()
        until(lambda: bool(node.kubelet.healthy(CORE)))
        assert agent.children("pod_watch") == []
    finally:
        agent.end()


def test_bad_kubeconfig_is_one_line_and_the_node_continues(node: AgentNode) -> None:
    agent = Agent([*_words(node), "--kubeconfig", "/nonexistent"])
    try:
        agent.await_ready()
        until(lambda: bool(node.kubelet.healthy(CORE)))
        where = "vcuda-node-agent: /nonexistent: leads to no cluster: "
        (said,) = (line for line in agent.log() if line.startswith(where))
        assert said.endswith("; name a kubeconfig with --kubeconfig")
    finally:
        agent.end()


def test_the_pod_watch_is_restarted_when_killed_and_ends_with_the_agent(
    node: AgentNode,
) -> None:
    api = KubeApi()
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    uid = api.create("web", {"main": {CORE: 30}})
    record = f"{node.state_dir}/decisions/{uid}.json"
    agent = Agent([*_words(node), "--kubeconfig", path, "--node-name", "node-1"])
    try:
        agent.await_ready()
        until(lambda: os.path.exists(record) and "node-1" in api.nodes)
        os.unlink(record)
        api.clear_nodes()
        os.kill(agent.child("pod_watch"), 9)
        until(lambda: os.path.exists(record) and "node-1" in api.nodes)
        children = agent.children()
        assert agent.child("pod_watch")
    finally:
        agent.end()
        api.stop()
    assert [pid for pid in children if os.path.exists(f"/proc/{pid}")] == []


def test_agent_in_a_pod_renews_its_nodes_lease_while_it_runs(
    node: AgentNode,
) -> None:
    api = KubeApi()
    api.put({"metadata": {"name": "node-1", "uid": "node-uid"}})
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    words = [*_words(node), "--kubeconfig", path, "--node-name", "node-1"]
    agent = Agent(words, POD_NAMESPACE="vcuda")
    try:
        agent.await_ready()
        until(lambda: "node-1" in api.objects[LEASES])
        first = api.objects[LEASES]["node-1"]
        assert first["spec"]["holderIdentity"] == "node-1"
        assert first["metadata"]["labels"] == {"app.kubernetes.io/name": "vcuda-node-agent"}
        version = first["metadata"]["resourceVersion"]
        until(lambda: api.objects[LEASES]["node-1"]["metadata"]["resourceVersion"] != version)
        # An agent that hangs renews nothing.
        os.kill(agent.process.pid, signal.SIGSTOP)
        version = api.objects[LEASES]["node-1"]["metadata"]["resourceVersion"]
        time.sleep(RENEW_SECONDS + 1)
        assert api.objects[LEASES]["node-1"]["metadata"]["resourceVersion"] == version
    finally:
        os.kill(agent.process.pid, signal.SIGCONT)
        agent.kill()
        api.stop()


def test_agent_waits_for_the_settings_of_its_digest(node: AgentNode) -> None:
    with open(node.config) as file:
        older = file.read()
    node.configure(core_resource="example.com/core")
    with open(node.config) as file:
        newer = file.read()
    digest = hashlib.sha256(newer.strip().encode()).hexdigest()[:16]
    with open(node.config, "w") as file:
        file.write(older)
    agent = Agent([*_words(node), "--config-digest", digest])
    try:
        time.sleep(1)
        assert node.kubelet.registrations == []
        with open(node.config, "w") as file:
            file.write(newer)
        agent.await_ready()
        until(lambda: bool(node.kubelet.healthy("example.com/core")))
    finally:
        agent.end()


@contextlib.contextmanager
def writing_metadata(folder: Path) -> Iterator[tuple[KubeApi, int]]:
    """A fake API server with node-1, and the descriptor of the process that writes its metadata."""
    api = KubeApi()
    api.put({"metadata": {"name": "node-1", "uid": "node-uid"}})
    api.start()
    source, beats = os.pipe()
    arguments = (api.kubeconfig(folder / "kubeconfig"), "node-1", source, "vcuda")
    thread = threading.Thread(target=node_metadata.run, args=arguments)
    thread.start()
    try:
        yield api, beats
    finally:
        os.close(beats)
        thread.join()
        os.close(source)
        api.stop()


def test_a_lease_renewed_too_late_changes_the_nodes_annotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For kube-scheduler, which follows no Lease."""
    monkeypatch.setattr(agent_lease, "LEASE_SECONDS", 0.5)
    gpus = NodeGpus(gpus=[]).dump()

    def annotation() -> str:
        metadata = api.objects[NODES]["node-1"]["metadata"]
        return str(metadata.get("annotations", {}).get(names.ANNOTATION_NODE_GPUS, ""))

    with writing_metadata(tmp_path) as (api, beats):
        line = json.dumps({"annotations": {names.ANNOTATION_NODE_GPUS: gpus}})
        os.write(beats, line.encode() + b"\n\n")
        until(lambda: "node-1" in api.objects[LEASES])
        assert annotation() == gpus
        time.sleep(0.7)
        os.write(beats, b"\n")
        until(lambda: "back" in annotation())
        assert node_gpus.parse(annotation()) == NodeGpus(gpus=[])


def test_heartbeats_renew_a_lease_that_the_node_owns(tmp_path: Path) -> None:
    with writing_metadata(tmp_path) as (api, beats):
        # The node is not known yet: a Lease would have no owner.
        os.write(beats, b"\n")
        until(lambda: len(api.requests) == 1)
        # A slow process reads both at once.
        os.write(beats, b'{"labels": {"a": "b"}}\n\n')
        until(lambda: "node-1" in api.objects[LEASES])
        (owner,) = api.objects[LEASES]["node-1"]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Node", "node-uid")
        # An API server that is away for one heartbeat.
        api.refuse = 503
        count = len(api.requests)
        os.write(beats, b"\n")
        until(lambda: len(api.requests) > count)
        api.refuse = 0
        version = api.objects[LEASES]["node-1"]["metadata"]["resourceVersion"]
        os.write(beats, b"\n")
        until(lambda: api.objects[LEASES]["node-1"]["metadata"]["resourceVersion"] != version)


def test_the_kubelet_is_offered_nothing_before_the_decisions_are_known(node: AgentNode) -> None:
    api = KubeApi()
    api.start()
    api.refuse = 503
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    uid = api.create("web", {"main": {CORE: 30}})
    agent = Agent([*_words(node), "--kubeconfig", path, "--node-name", "node-1"])
    try:
        until(lambda: bool(api.requests))
        api.refuse = 0
        until(lambda: bool(node.kubelet.registrations))
        assert os.listdir(node.state_dir + "/decisions") == [f"{uid}.json"]
    finally:
        agent.end()
        api.stop()


def test_the_node_is_labelled_with_its_gpus(node: AgentNode) -> None:
    api = KubeApi()
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    words = [*_words(node), "--features-dir", "/nonexistent"]
    agent = Agent([*words, "--kubeconfig", path, "--node-name", "node-1"])
    try:
        until(lambda: bool(api.labels.get("node-1")))
        labels = api.labels["node-1"]
        assert labels["nvidia.com/gpu.replicas"] == "100"
        assert labels["nvidia.com/gpu.product"] == labels["gaia.tencent.com/gpu-model"] != ""
        assert labels["nvidia.com/gpu.compute.major"].isdigit()
        assert labels["nvidia.com/cuda.driver-version.major"].isdigit()
    finally:
        agent.end()
        api.stop()


def test_agent_that_ends_leaves_a_node_without_usable_gpus(node: AgentNode) -> None:
    api = KubeApi()
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    agent = Agent([*_words(node), "--kubeconfig", path, "--node-name", "node-1"])
    try:
        until(lambda: _unhealthy(api) == [None, None])
        agent.end()
        assert _unhealthy(api) == ["the node agent has ended"] * 2
        agent = Agent([*_words(node), "--kubeconfig", path, "--node-name", "node-1"])
        until(lambda: _unhealthy(api) == [None, None])
        api.refuse = 503
        began = time.monotonic()
    finally:
        agent.end()
        api.stop()
    # An API server that is away does not hold up the end for longer than this.
    assert time.monotonic() - began < 15
    assert _unhealthy(api) == [None, None]


def _unhealthy(api: KubeApi) -> list[str | None]:
    """Of each GPU that the node object has, why it is unhealthy."""
    text = api.nodes.get("node-1", {}).get("vcuda.io/node-gpus", '{"gpus": []}')
    return [each.get("unhealthy") for each in json.loads(text)["gpus"]]


def _words(node: AgentNode) -> list[str]:
    return [node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder]
