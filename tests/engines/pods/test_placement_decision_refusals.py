"""Decisions that are late, another's, nonsense or no longer possible; and pods that must have
one."""

from __future__ import annotations

import threading
import time

import pytest

from support.kubelet.cluster_node import GIB, ClusterNode
from support.kubelet.watched_pods import CORE, MEMORY, decision_annotations
from support.waiting import until

DECISION = "vcuda.io/placement-decision"


def test_container_created_before_its_decision_waits_for_it(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = "01234567-89ab-4def-8123-456789abcdef"
    pod = cluster_node.run_pod(container, uid)
    decide = threading.Timer(
        0.1,
        lambda: cluster_node.schedule(
            container, cluster_node.decision_annotations(main=1), uid=uid
        ),
    )
    decide.start()
    cluster_node.start(pod)
    decide.join()
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


@pytest.mark.parametrize("kind", ["another node's", "nonsense"])
def test_an_invalid_decision_leaves_the_placement_to_the_node_and_is_reported(
    cluster_node: ClusterNode, container: str, kind: str
) -> None:
    annotations = {
        **cluster_node.decision_annotations(main=1),
        "tencent.com/predicate-node": "node-2",
    }
    if kind == "nonsense":
        annotations = {DECISION: '{"containers":{"main":[{"uuid":1}]}}'}
    uid = cluster_node.schedule(container, annotations)
    cluster_node.start(cluster_node.run_pod(container, uid))
    assert cluster_node.held() == {f"{container}.main": (0, 30, "fixed")}
    assert cluster_node.agent is not None
    (line,) = (line for line in cluster_node.agent.log() if f"pod default/{container}" in line)
    assert "; it decides nothing here: delete the pod" in line
    assert line.endswith(f" (allocation pod-{uid}.main)")


def test_lost_full_or_different_decided_gpu_is_refused_without_another(
    cluster_node: ClusterNode, container: str
) -> None:
    second = cluster_node.uuids[1]
    where = f"decision for pod default/{container}: "
    hint = "; delete the pod if it stays so, and it is scheduled anew"
    uid = cluster_node.schedule(container, {})
    pod = cluster_node.run_pod(container, uid)
    for share, reason in (
        (("GPU-gone", 30, GIB), "GPU 'GPU-gone' was decided and is not here"),
        ((second, 40, GIB), "40 % was decided; 30 % is asked"),
        ((second, 30, 2 * GIB), f"{2 * GIB} bytes were decided; {GIB} are asked"),
    ):
        cluster_node.decide(uid, decision_annotations(main=share))
        assert cluster_node.refusal(pod) == where + reason + hint
        assert cluster_node.held() == {}
    filling = cluster_node.schedule(container + "-2", {})
    cluster_node.decide(filling, decision_annotations(main=(second, 80, GIB)))
    filler = cluster_node.run_pod(container + "-2", filling)
    cluster_node.start(filler, asks={CORE: 80, MEMORY: 4})
    cluster_node.decide(uid, cluster_node.decision_annotations(main=1))
    line = cluster_node.refusal(pod)
    assert line.startswith(f"{where}{second} was decided; largest free share is 20 % and ")
    assert line.endswith(f"on {second}; 30 % and 1.0 GiB asked{hint}")
    # The kubelet tries again later, when there may be room.
    cluster_node.remove_pod(filler)
    cluster_node.start(pod)
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


def test_invalid_pod_annotation_is_refused_in_one_line(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(container, {"vcuda.io/policy": "fastest\n" + "!" * 100_000})
    line = cluster_node.refusal(cluster_node.run_pod(container, uid))
    cut = "fastest?" + "!" * 92
    assert line == (
        f"annotations of the container, annotations of its pod: policy '{cut}' is not offered; "
        "use fixed, elastic, weighted, best-effort or rotate"
    )
    assert cluster_node.held() == {}


def test_where_a_decision_is_required_no_container_starts_without(
    cluster_node: ClusterNode, container: str
) -> None:
    cluster_node.product.configure(cluster_node.cri, decisions="required")
    uid = cluster_node.schedule(container, {})
    pod = cluster_node.run_pod(container, uid)
    expected = (
        f"pod default/{container}: no scheduler has decided for its container main; "
        'have vcuda-scheduler-extender schedule it, or set decisions = "preferred"'
    )
    assert cluster_node.refusal(pod) == expected
    cluster_node.decide(uid, cluster_node.decision_annotations(main=1))
    cluster_node.start(pod)
    # A static pod's cannot be had; nor that of an unknown pod, after a moment.
    began = time.monotonic()
    stranger = cluster_node.run_pod(container + "-2", "0123456789abcdef0123456789abcdef")
    assert cluster_node.refusal(stranger) == expected.replace(container, container + "-2")
    assert time.monotonic() - began > 1
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


def test_where_decisions_are_off_the_node_places_and_asks_for_no_policy(
    cluster_node: ClusterNode, container: str
) -> None:
    cluster_node.product.configure(cluster_node.cri, decisions="off")
    annotations = {**cluster_node.decision_annotations(main=1), "vcuda.io/policy": "best-effort"}
    uid = cluster_node.schedule(container, annotations)
    until(lambda: cluster_node.decision_uids() == {uid})
    cluster_node.start(cluster_node.run_pod(container, uid))
    assert cluster_node.held() == {f"{container}.main": (0, 30, "fixed")}
