"""`vcuda events` on hosts with real engines: a container's events in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.agent.node_agent import AgentNode
from support.engines.base import Engine
from support.engines.cri import Cri
from support.product import MIB, Product, asking
from support.waiting import until
from vcuda_oci.ledger import events

LIMIT = 1024 * MIB


def vcuda(engine: Engine, product: Product, *words: str) -> str:
    command = [product.prefix + "/bin/vcuda", "--config", product.config, *words]
    return engine.host.check(command)


def recorded(engine: Engine, product: Product, name: str) -> list[tuple[str, str]]:
    found = json.loads(vcuda(engine, product, "events", name, "--json"))
    assert {event["allocation"] for event in found} == {found[0]["allocation"]}
    return [(event["kind"], event["from"]) for event in found]


@pytest.mark.parametrize("name", ["runc-v1", "crun-v2"])
def test_a_containers_life_by_a_low_level_runtime(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    engine = start_engine(name)
    with product.on(engine):
        asked = asking(engine, core=30, memory_bytes=LIMIT)
        assert engine.run(
            container + "-no", ["true"], **asking(engine, core=30, memory_bytes=1 << 45)
        ).rc
        started = engine.start(container, ["sleep", "100"], **asked)
        assert started.rc == 0, started.stderr
        vcuda(engine, product, "limit", container, "--core", "40")
        engine.delete(container)
        assert recorded(engine, product, container + "-no") == [
            ("refused", "vcuda-container-runtime")
        ]
        table = vcuda(engine, product, "events")
        assert "placement: largest free share is " in table.splitlines()[1]
        # The refused one's name begins with this one's.
        lines = [line.split()[2:5] for line in table.splitlines()[2:]]
    assert lines == [
        ["claimed", container, "vcuda-container-runtime"],
        ["limit-changed", container, "vcuda"],
        ["released", container, "vcuda-container-runtime"],
    ]


def test_a_pods_containers_life_under_containerd(
    cri: Cri, product: Product, container: str
) -> None:
    """It is restarted once, under another limit; its share goes when its pod has gone."""
    asked = asking(cri, core=60, memory_bytes=LIMIT)
    with product.on(cri):
        pod = cri.run_pod(container)
        try:
            first = cri.start_container(pod, ["true"], name="worker", **asked)
            assert cri.wait_for(first) == 0
            (record,) = product.allocations(cri)
            cri.remove_container(first)
            show = ["sh", "-c", "vcuda-workload info; sleep 100"]
            second = cri.start_container(pod, show, name="worker", **asked)
            vcuda(cri, product, "limit", record["id"], "--memory", "2GiB")
            cri.stop_container(second)
            cri.remove_container(second)
            third = cri.start_container(pod, ["vcuda-workload", "info"], name="worker", **asked)
            assert cri.wait_for(third) == 0
            # The new limit stays over a restart, although the pod's request is unchanged.
            assert f'"total_bytes": {2 * LIMIT}' in cri.output(pod, "worker")[0]
            refused: dict[str, Any] = dict(
                asked, annotations={**asked["annotations"], "vcuda.io/weight": "5"}
            )
            with pytest.raises(Exception, match="weight means nothing"):
                cri.start_container(pod, ["true"], name="other", **refused)
        finally:
            cri.remove_pod(pod)
        vcuda(cri, product, "release", "--all-dead")
        runtime, hook = "vcuda-container-runtime", "vcuda-container-hook"
        for name in (record["id"], first, f"default/{pod.name}/worker"):
            assert recorded(cri, product, name) == [
                ("claimed", runtime),
                ("stopped", hook),
                ("taken-over", runtime),
                ("limit-changed", "vcuda"),
                ("stopped", hook),
                ("taken-over", runtime),
                ("stopped", hook),
                ("released", "vcuda"),
            ]
        assert recorded(cri, product, f"pod-{pod.uid}.other") == [("refused", runtime)]


def test_the_agent_has_metrics_of_itself_and_of_gpus(new_node: Callable[..., AgentNode]) -> None:
    node = new_node("--gpus", "1", "--memory", "16GiB")
    with node.agent() as agent:
        until(lambda: any("1 GPUs" in line for line in agent.log()))
        node.order("fail", "--event", "0", "--xid", "79")
        until(lambda: len(kinds(node)) == 2)
    assert kinds(node) == ["agent-started", "gpu-unhealthy", "agent-ended"]
    unhealthy = list(events.read(node.state_dir))[1]
    assert unhealthy["text"].endswith(" is unhealthy: Xid 79")


def kinds(node: AgentNode) -> list[str]:
    return [event["kind"] for event in events.read(node.state_dir)]
