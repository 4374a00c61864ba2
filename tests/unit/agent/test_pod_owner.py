"""The owner of a pod, which its workload's samples are kept under."""

from __future__ import annotations

from typing import Any

import pytest

from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Decision
from vcuda_plugin.agent.pods.pod_decision import owner_of


def metadata(kind: str, name: str, controller: bool = True, hash: str = "") -> dict[str, Any]:
    other = {"kind": "ConfigMap", "name": "other", "controller": False}
    owner = {"kind": kind, "name": name, "controller": controller}
    return {"ownerReferences": [other, owner], "labels": {"pod-template-hash": hash}}


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        (metadata("ReplicaSet", "train-5c9f", hash="5c9f"), "Deployment/train"),
        (metadata("ReplicaSet", "by-hand"), "ReplicaSet/by-hand"),
        (metadata("StatefulSet", "db"), "StatefulSet/db"),
        (metadata("Job", "once"), "Job/once"),
        (metadata("Job", "nightly-28339200"), "CronJob/nightly"),
        (metadata("Job", "model-2024"), "Job/model-2024"),
        (metadata("PyTorchJob", "bert"), "PyTorchJob/bert"),
        (metadata("Node", "node-1"), ""),
        (metadata("Job", "orphan", controller=False), ""),
        ({}, ""),
    ],
)
def test_the_owner_is_what_makes_the_pod_again(pod: dict[str, Any], owner: str) -> None:
    assert owner_of(pod) == owner
    assert decision.parse(Decision(owner=owner).dump()).owner == owner


def test_a_long_owner_is_cut_to_what_a_decision_may_hold() -> None:
    owner = owner_of(metadata("K" * 1000, "n" * 1000))
    assert decision.parse(Decision(owner=owner).dump()).owner == owner
    with pytest.raises(ValueError, match="owner longer"):
        decision.parse(Decision(owner="K/" + "n" * 1000).dump())
