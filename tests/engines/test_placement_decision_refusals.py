"""Decisions that are late, another's, nonsense or no longer possible; and pods that must have
one."""

from __future__ import annotations

import threading
import time

import pytest

from support.cluster_node import GIB, ClusterNode
from support.fake_kubelet import until
from support.watched_pods import CORE, MEMORY, decided

DECISION = "vcuda.io/placement-decision"


def test_a_container_that_comes_before_its_decision_waits_for_it(
    handoff: ClusterNode, container: str
) -> None:
    uid = "01234567-89ab-4def-8123-456789abcdef"
    pod = handoff.run_pod(container, uid)
    decide = threading.Timer(
        0.1, lambda: handoff.schedule(container, handoff.decided(main=1), uid=uid)
    )
    decide.start()
    handoff.start(pod)
    decide.join()
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


@pytest.mark.parametrize("kind", ["another node's", "nonsense"])
def test_an_invalid_decision_leaves_the_placement_to_the_node_and_is_reported(
    handoff: ClusterNode, container: str, kind: str
) -> None:
    said = {**handoff.decided(main=1), "tencent.com/predicate-node": "node-2"}
    if kind == "nonsense":
        said = {DECISION: '{"containers":{"main":[{"uuid":1}]}}'}
    uid = handoff.schedule(container, said)
    handoff.start(handoff.run_pod(container, uid))
    assert handoff.held() == {f"{container}.main": (0, 30, "fixed")}
    assert handoff.agent is not None
    (line,) = (line for line in handoff.agent.log() if f"pod default/{container}" in line)
    assert "; it decides nothing here: delete the pod" in line
    assert line.endswith(f" (allocation pod-{uid}.main)")


def test_a_decided_gpu_that_is_gone_or_full_or_of_another_amount_is_refused_and_no_other_taken(
    handoff: ClusterNode, container: str
) -> None:
    second = handoff.uuids[1]
    where = f"decision for pod default/{container}: "
    hint = "; delete the pod if it stays so, and it is scheduled anew"
    uid = handoff.schedule(container, {})
    pod = handoff.run_pod(container, uid)
    for share, reason in (
        (("GPU-gone", 30, GIB), "GPU 'GPU-gone' was decided and is not here"),
        ((second, 40, GIB), "40 % was decided; 30 % is asked"),
        ((second, 30, 2 * GIB), f"{2 * GIB} bytes were decided; {GIB} are asked"),
    ):
        handoff.decide(uid, decided(main=share))
        assert handoff.refusal(pod) == where + reason + hint
        assert handoff.held() == {}
    filling = handoff.schedule(container + "-2", {})
    handoff.decide(filling, decided(main=(second, 80, GIB)))
    filler = handoff.run_pod(container + "-2", filling)
    handoff.start(filler, asks={CORE: 80, MEMORY: 4})
    handoff.decide(uid, handoff.decided(main=1))
    line = handoff.refusal(pod)
    assert line.startswith(f"{where}{second} was decided; largest free share is 20 % and ")
    assert line.endswith(f"on {second}; 30 % and 1.0 GiB asked{hint}")
    # The kubelet tries again, and meanwhile there may be room.
    handoff.remove_pod(filler)
    handoff.start(pod)
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


def test_a_word_of_a_pod_that_makes_no_sense_is_refused_in_one_line(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, {"vcuda.io/policy": "fastest\n" + "!" * 100_000})
    line = handoff.refusal(handoff.run_pod(container, uid))
    cut = "fastest?" + "!" * 92
    assert line == (
        f"annotations of the container, annotations of its pod: policy '{cut}' is not offered; "
        "use fixed, elastic, weighted or best-effort"
    )
    assert handoff.held() == {}


def test_where_a_decision_is_required_no_container_starts_without(
    handoff: ClusterNode, container: str
) -> None:
    handoff.product.configure(handoff.cri, decisions="required")
    uid = handoff.schedule(container, {})
    pod = handoff.run_pod(container, uid)
    expected = (
        f"pod default/{container}: no scheduler has decided for its container main; "
        'have vcuda-scheduler-extender schedule it, or set decisions = "preferred"'
    )
    assert handoff.refusal(pod) == expected
    handoff.decide(uid, handoff.decided(main=1))
    handoff.start(pod)
    # A static pod's cannot be had; nor that of an unknown pod, after a moment.
    began = time.monotonic()
    stranger = handoff.run_pod(container + "-2", "0123456789abcdef0123456789abcdef")
    assert handoff.refusal(stranger) == expected.replace(container, container + "-2")
    assert time.monotonic() - began > 1
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


def test_where_decisions_are_off_the_node_places_and_asks_for_no_policy(
    handoff: ClusterNode, container: str
) -> None:
    handoff.product.configure(handoff.cri, decisions="off")
    said = {**handoff.decided(main=1), "vcuda.io/policy": "best-effort"}
    uid = handoff.schedule(container, said)
    until(lambda: handoff.kept() == {uid})
    handoff.start(handoff.run_pod(container, uid))
    assert handoff.held() == {f"{container}.main": (0, 30, "fixed")}
