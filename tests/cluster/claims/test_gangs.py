"""Pods of a PodGroup run together or not at all, with Kubernetes' alpha gates for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.kubernetes import claims
from cluster.kubernetes.node import EXTENDER, Node
from support.product import MEMORY_UNIT, MIB

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
API = "scheduling.k8s.io/v1alpha2"
GROUP = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "train"}}
REFUSAL = {"plugin": "largest free share is 40", "dra": "cannot allocate all claims"}


@pytest.fixture(scope="module")
def gated(started: Node) -> Iterator[Node]:
    if started.cluster.minor < 36:
        assert 'no matches for kind "PodGroup"' in started.refusal(GROUP)
        pytest.skip("this Kubernetes has no PodGroups, and says so")
    started.cluster.restart(GATES, api=(f"--runtime-config={API}=true",))
    yield started
    started.cluster.restart()


@pytest.fixture(params=["plugin", "dra"])
def offering(gated: Node, node: Node, request: pytest.FixtureRequest) -> Iterator[str]:
    """How the node's GPUs are offered."""
    gated.offer(request.param, scheduler={"kubeScheduler": {"args": [GATES]}})
    gated.wait_rollout(EXTENDER)
    if request.param == "dra":
        gated.wait(lambda: len(claims.devices(gated)) == 2, "the node's devices")
    yield request.param
    gated.offer("plugin")
    gated.wait_rollout(EXTENDER)


@pytest.fixture
def group(node: Node) -> Iterator[Callable[[str, int], None]]:
    made: list[str] = []

    def create(name: str, least: int) -> None:
        metadata = {"name": name, "namespace": "default"}
        spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
        node.apply({"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec})
        made.append(name)

    yield create
    for name in made:
        node.kubectl("delete", "podgroup", name, "--wait=false")


def run(node: Node, offering: str, name: str, core: int, group: str = "") -> None:
    more: dict[str, Any] = {"schedulingGroup": {"podGroupName": group}} if group else {}
    if offering == "plugin":
        node.run(name, core, 4, **more)
        return
    of_template = f"share-{core}"
    if node.get("resourceclaimtemplate", of_template) is None:
        node.apply(claims.template(of_template, core, "1Gi"))
    pod = claims.pod(name, of_template, ["sleep", "10000"], "Always")
    pod["spec"] |= more
    node.apply(pod)


def test_a_gang_runs_whole_or_waits_whole(
    node: Node, offering: str, group: Callable[[str, int], None]
) -> None:
    # The node's sums suffice for three of 60 %, its two GPUs do not.
    group("large", 3)
    large = [f"{offering}-large-{at}" for at in range(3)]
    for name in large:
        run(node, offering, name, 60, "large")
    node.wait(
        lambda: REFUSAL[offering] in str([node.events(name, "FailedScheduling") for name in large]),
        "the gang's refusal",
    )
    # What waits holds nothing: both GPUs are free for a gang that fits.
    group("small", 2)
    small = [f"{offering}-small-{at}" for at in range(2)]
    for name in small:
        run(node, offering, name, 100, "small")
    for name in small:
        node.wait_running(name)
    assert [node.bound(name) for name in large] == [False] * 3
    memory = 4 * MEMORY_UNIT if offering == "plugin" else 1024 * MIB
    assert {name: core for name, (core, _) in node.held().items()} == dict.fromkeys(small, 100)
    for name in (*small, large[0]):
        node.delete(name)
    # Two of 60 % are no gang of three.
    assert [node.bound(name) for name in large[1:]] == [False] * 2
    run(node, offering, "fits", 30, "large")
    for name in (*large[1:], "fits"):
        node.wait_running(name)
    assert node.held() == {
        "fits": (30, memory),
        **dict.fromkeys(large[1:], (60, memory)),
    }
