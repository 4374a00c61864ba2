"""The log lines of extender, agent and wrapper for one pod have the same allocation id."""

from __future__ import annotations

import json
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest

from support.kubelet.cluster_node import ASKS, ClusterNode
from support.kubelet.watched_pods import CORE, NODE
from support.scheduler import extender
from support.waiting import until

EXTENDER, AGENT = "vcuda-scheduler-extender", "vcuda-node-agent"
WRAPPER, HOOK = "vcuda-container-runtime", "vcuda-container-hook"


def test_a_pods_lines_and_events_have_one_id_from_its_binding_to_its_end(
    cluster_node: ClusterNode, container: str, tmp_path: Path
) -> None:
    uid = cluster_node.api.create(container, {"main": ASKS}, node="")
    allocation = f"pod-{uid}.main"
    with extender.ready(cluster_node.api, tmp_path) as scheduler:
        scheduler.wait(lambda: scheduler.inspect(NODE) is not None)
        assert scheduler.bind(cluster_node.api.pods[uid], NODE) == ""
        bound = [line for line in extender.log(tmp_path).splitlines() if ": bind " in line]
    until(lambda: cluster_node.decision_uids() == {uid})
    pod = cluster_node.run_pod(container, uid)
    with pytest.raises(grpc.RpcError) as refused:
        cluster_node.start(pod, asks={**ASKS, CORE: 40})
    cluster_node.kubelet.forget(uid)
    cluster_node.start(pod)
    cluster_node.remove_pod(pod)
    assert cluster_node.agent is not None
    log = cluster_node.agent.log
    until(lambda: any("released" in line for line in log()), what=lambda: "\n".join(log()))
    share = f"30 % and 1.0 GiB of {cluster_node.uuids[0]}"
    assert bound == [
        f"{EXTENDER}: bind default/{container} ({uid}) to {NODE}: {share} (allocation {allocation})"
    ]
    message = str(refused.value.details()).partition(WRAPPER)[2].removesuffix(": unknown")
    assert "30 % was decided; 40 % is asked; " in message
    assert message.endswith(f" (allocation {allocation})")
    about = [line for line in log() if container in line or uid in line]
    assert about == [f"{AGENT}: {allocation}: released; its container has ended"]
    vcuda = [cluster_node.product.prefix + "/bin/vcuda", "--config", cluster_node.product.config]
    for name in (allocation, f"pod-{uid}", f"default/{container}"):
        recorded = json.loads(cluster_node.cri.host.check([*vcuda, "events", name, "--json"]))
        assert [(e["allocation"], e["kind"], e["from"]) for e in recorded] == [
            (allocation, "decided", EXTENDER),
            (allocation, "refused", WRAPPER),
            (allocation, "claimed", WRAPPER),
            (allocation, "stopped", HOOK),
            (allocation, "released", AGENT),
        ]
