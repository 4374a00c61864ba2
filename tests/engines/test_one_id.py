"""One pod through the extender, the agent and the wrapper: the same id in the lines of each."""

from __future__ import annotations

import json
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest

from support import extender
from support.cluster_node import ASKS, ClusterNode
from support.fake_kubelet import until
from support.watched_pods import CORE, NODE

EXTENDER, AGENT = "vcuda-scheduler-extender", "vcuda-node-agent"
WRAPPER, HOOK = "vcuda-container-runtime", "vcuda-container-hook"


def test_a_pods_lines_and_events_have_one_id_from_its_binding_to_its_end(
    handoff: ClusterNode, container: str, tmp_path: Path
) -> None:
    uid = handoff.api.create(container, {"main": ASKS}, node="")
    allocation = f"pod-{uid}.main"
    with extender.ready(handoff.api, tmp_path) as scheduler:
        scheduler.wait(lambda: scheduler.inspect(NODE) is not None)
        assert scheduler.bind(handoff.api.pods[uid], NODE) == ""
        bound = [line for line in extender.log(tmp_path).splitlines() if ": bind " in line]
    until(lambda: handoff.kept() == {uid})
    pod = handoff.run_pod(container, uid)
    with pytest.raises(grpc.RpcError) as refused:
        handoff.start(pod, asks={**ASKS, CORE: 40})
    handoff.kubelet.forget(uid)
    handoff.start(pod)
    handoff.remove_pod(pod)
    assert handoff.agent is not None
    log = handoff.agent.log
    until(lambda: any("released" in line for line in log()), told=lambda: "\n".join(log()))
    share = f"30 % and 1.0 GiB of {handoff.uuids[0]}"
    assert bound == [
        f"{EXTENDER}: bind default/{container} ({uid}) to {NODE}: {share} (allocation {allocation})"
    ]
    said = str(refused.value.details()).partition(WRAPPER)[2].removesuffix(": unknown")
    assert "30 % was decided; 40 % is asked; " in said
    assert said.endswith(f" (allocation {allocation})")
    about = [line for line in log() if container in line or uid in line]
    assert about == [f"{AGENT}: {allocation}: released; its container has ended"]
    vcuda = [handoff.product.prefix + "/bin/vcuda", "--config", handoff.product.config]
    for name in (allocation, f"pod-{uid}", f"default/{container}"):
        told = json.loads(handoff.cri.host.check([*vcuda, "events", name, "--json"]))
        assert [(e["allocation"], e["kind"], e["from"]) for e in told] == [
            (allocation, "decided", EXTENDER),
            (allocation, "refused", WRAPPER),
            (allocation, "claimed", WRAPPER),
            (allocation, "stopped", HOOK),
            (allocation, "released", AGENT),
        ]
