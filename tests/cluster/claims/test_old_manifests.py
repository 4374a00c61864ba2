"""Pods that ask for shares by resources, on a node that offers its GPUs by DRA, get claims."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kubernetes import claims
from cluster.kubernetes.node import CORE, Node
from support.product import MEMORY_UNIT, MIB

TEMPLATES = "deployment/vcuda-claim-templates"


@pytest.fixture(scope="module")
def converting(started: Node) -> Iterator[Node]:
    """The node with its GPUs offered by DRA, and the resources of old manifests made claims."""
    gpus = {"gpu-resource": "nvidia.com/gpu"}
    if not started.cluster.has_mutating_policies():
        with pytest.raises(AssertionError, match=r"claims\.fromResources needs Kubernetes 1.36"):
            started.offer("dra", gpus, claims={"fromResources": True})
        pytest.skip("this Kubernetes has no MutatingAdmissionPolicy, and helm says so")
    started.offer("dra", gpus, claims={"fromResources": True})
    started.wait_rollout(TEMPLATES)
    started.wait(lambda: len(claims.devices(started)) == 2, "the node's devices")
    yield started
    started.offer("plugin")


@pytest.fixture
def old(converting: Node, node: Node) -> Node:
    return node


def asking(node: Node, name: str, limits: dict[str, str], **annotations: str) -> dict[str, Any]:
    pod = node.pod(name, 1, 1)
    pod["metadata"]["annotations"] = annotations
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


def claim_of(node: Node, name: str) -> dict[str, Any]:
    (found,) = [
        each
        for each in node.get("resourceclaims")["items"]
        if each["metadata"]["ownerReferences"][0]["name"] == name
    ]
    return dict(found)


def test_pods_of_the_plugins_manifests_get_their_share_as_a_claim(old: Node) -> None:
    for name in ("first", "second"):
        # With the RuntimeClass and the scheduler of the plugin's way.
        old.run(name, 30, 4)
        old.wait_running(name)
    assert old.held() == dict.fromkeys(("first", "second"), (30, 4 * MEMORY_UNIT))
    spec = old.get("pod", "first")["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert "runtimeClassName" not in spec
    assert spec["nodeSelector"] == {"nvidia-device-enable": "enable"}
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "vcuda-main"}]}
    (device,) = json.loads(old.exec("first", "vcuda-workload", "info"))["devices"]
    assert device["total_bytes"] == 4 * MEMORY_UNIT


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ({"gpumem": "3000", "gpucores": "30"}, (30, 3000 * MIB)),
        ({"gpumem-percentage": "25", "gpucores": "40"}, (40, 4096 * MIB)),
        ({}, (100, 16384 * MIB)),
    ],
    ids=["memory in MiB", "memory in percent", "whole"],
)
def test_hamis_resources_become_one_claim(
    old: Node, sizes: dict[str, str], share: tuple[int, int]
) -> None:
    limits = {"nvidia.com/gpu": "1", **{f"nvidia.com/{key}": sizes[key] for key in sizes}}
    old.apply(asking(old, "hami", limits))
    old.wait_running("hami")
    assert old.held() == {"hami": share}


def test_one_hundred_fifty_percent_are_a_whole_gpu_and_half_of_another(old: Node) -> None:
    old.run("first", 150, 4)
    old.wait_running("first")
    shares = [
        (share["core_percent"], share["memory_bytes"])
        for record in old.product.allocations(old.engine)
        for share in record["shares"]
    ]
    assert sorted(shares) == [(50, 4 * MEMORY_UNIT), (100, 16384 * MIB)]
    assert len(set(old.gpus_held()["first"])) == 2


def test_policy_of_the_annotations_is_the_claims_policy(old: Node) -> None:
    limits = {CORE: "30", "tencent.com/vcuda-memory": "4"}
    said = {"vcuda.io/policy": "weighted", "vcuda.io/weight": "300"}
    old.apply(asking(old, "first", limits, **said))
    old.wait_running("first")
    (config,) = claim_of(old, "first")["spec"]["devices"]["config"]
    assert (config["opaque"]["parameters"]["policy"], config["opaque"]["parameters"]["weight"]) == (
        "weighted",
        300,
    )
    (record,) = old.product.allocations(old.engine)
    assert record["request"]["policy"] == "weighted"


def test_amounts_that_contradict_are_told_in_an_event(old: Node) -> None:
    old.apply(asking(old, "first", {"tencent.com/vcuda-memory": "4"}))
    old.wait(lambda: old.events("first", "ClaimTemplateRefused") != [], "the Event")
    (message,) = old.events("first", "ClaimTemplateRefused")
    assert "tencent.com/vcuda-memory without tencent.com/vcuda-core" in message


def test_annotation_that_chooses_a_gpu_is_refused_with_the_remedy(old: Node) -> None:
    pod = asking(old, "first", {CORE: "30"}, **{"nvidia.com/use-gputype": "H100"})
    done = old.cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert done.returncode == 1
    assert "write a ResourceClaimTemplate with a selector" in done.stderr


def test_template_goes_with_its_pod_and_comes_again_for_another(old: Node) -> None:
    def templates() -> list[str]:
        items = old.get("resourceclaimtemplates")["items"]
        made = [each["metadata"]["name"] for each in items]
        return [name for name in made if name.startswith("vcuda.")]

    old.run("first", 20, 2)
    old.wait_running("first")
    assert templates() == ["vcuda.core-20.memory-2"]
    old.delete("first")
    old.wait(lambda: templates() == [], "the template's end")
    old.run("second", 20, 2)
    old.wait_running("second")
    assert templates() == ["vcuda.core-20.memory-2"]


def test_pods_wait_while_no_program_creates_templates(old: Node) -> None:
    scale = ("scale", TEMPLATES, "--namespace", "vcuda")
    old.kubectl(*scale, "--replicas=0")
    try:
        old.run("first", 25, 3)
        old.wait(lambda: old.events("first", "FailedResourceClaimCreation") != [], "the Event")
        assert old.phase("first") == "Pending"
    finally:
        old.kubectl(*scale, "--replicas=1")
    old.wait_running("first")
    assert old.held() == {"first": (25, 3 * MEMORY_UNIT)}
