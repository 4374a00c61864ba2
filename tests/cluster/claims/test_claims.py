"""Shares by DRA: claims allocated by a real kube-scheduler, prepared for a real kubelet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kubernetes import claims
from cluster.kubernetes.control_plane import NODE
from cluster.kubernetes.node import CORE, Node
from cluster.test_suspend import WORK, assert_works_on, cells, is_suspended, suspension
from support.product import MIB


@pytest.fixture(scope="module")
def offering(started: Node) -> Iterator[Node]:
    """The node with its GPUs offered by DRA."""
    started.offer("dra")
    started.wait(lambda: len(claims.devices(started)) == 2, "the node's devices")
    yield started
    started.offer("plugin")


@pytest.fixture
def claiming(offering: Node, node: Node) -> Node:
    return node


def test_charts_own_check_succeeds_with_a_claim(claiming: Node) -> None:
    claiming.chart.test()


def test_pods_share_a_gpu_by_claims(claiming: Node) -> None:
    for name in ("first", "second"):
        claims.run(claiming, name, 40, "1Gi")
        claiming.wait_running(name)
    assert claiming.held() == dict.fromkeys(("first", "second"), (40, 1024 * MIB))
    one, other = claiming.gpus_held().values()
    assert one == other

    def claim() -> dict[str, Any]:
        (found,) = [
            each
            for each in claiming.get("resourceclaims")["items"]
            if each["metadata"]["ownerReferences"][0]["name"] == "first"
        ]
        return dict(found)

    claiming.wait(lambda: bool(claim()["status"].get("devices")), "the claim's status")
    (device,) = claim()["status"]["devices"]
    (condition,) = device["conditions"]
    assert condition["message"] == f"40 % of the time and 1024 MiB of {one[0]} on node {NODE}"
    assert (condition["type"], condition["status"]) == ("Ready", "True")


def test_rollout_of_the_agent_loses_no_pod_with_a_claim(claiming: Node) -> None:
    claims.run(claiming, "before", 30, "1Gi")
    claiming.wait_running("before")
    (former,) = claiming.agent_pids()
    # Once: 60 more calls of kubectl take minutes on a busy machine.
    claiming.apply(claims.template("row", 1, "16Mi"))
    names = claiming.roll_out_amid_pods(
        lambda name: claiming.apply(claims.pod(name, "row", ["true"], "Never"))
    )
    assert former not in claiming.agent_pids()
    claiming.wait_ended(names)
    assert claiming.phases(names) == dict.fromkeys(names, "Succeeded")
    # None waited for the driver: the next one answered before the former ended. Only the kubelet's
    # own account may be refused, for a moment: the node authorizer learns of a claim's allocation
    # by its own watches, and the kubelet may hear of the pod sooner.
    failed = claiming.get("events", "--field-selector=reason=FailedPrepareDynamicResources")
    messages = [
        each["message"] for each in failed["items"] if each["involvedObject"]["name"] in names
    ]
    late = re.compile(f'User "system:node:{NODE}" cannot get .*: no relationship found')
    assert [each for each in messages if not late.search(each)] == []
    left = {"before": (30, 1024 * MIB)}
    claiming.wait(lambda: claiming.held() == left, "the end of the claims")


def test_pod_with_a_claim_is_suspended_when_idle_and_by_order(claiming: Node) -> None:
    claiming.apply(claims.template("idle", 30, "1Gi", idleSuspend="2s"))
    try:
        claiming.apply(claims.pod("notebook", "idle", WORK.split(), "Always"))
        claiming.wait(lambda: cells(claiming) != [], "the first cell")
        claiming.wait(lambda: is_suspended(claiming), "the suspension")
        assert suspension(claiming)["by"] == "idle"
        assert_works_on(claiming, len(cells(claiming)))
        claiming.vcuda("suspend", "default/notebook")
        before = len(cells(claiming))
        assert suspension(claiming)["by"] == "order"
        claiming.vcuda("resume", "default/notebook")
        assert_works_on(claiming, before)
    finally:
        claiming.kubectl("delete", "resourceclaimtemplate", "idle")


def test_status_of_a_pod_says_whether_its_gpu_is_healthy(claiming: Node) -> None:
    claims.run(claiming, "first", 40, "1Gi")
    claiming.wait_running("first")

    def health() -> tuple[str, str]:
        (container,) = claiming.get("pod", "first")["status"]["containerStatuses"]
        for status in container.get("allocatedResourcesStatus", ()):
            (resource,) = status["resources"]
            assert status["name"] == "claim:share"
            return resource["health"], resource.get("message", "")
        return "", ""

    claiming.wait(lambda: health() == ("Healthy", ""), "the GPU's health")
    claiming.product.order("fail", "--lost", "0")
    lost = "GPU is lost" if "ResourceHealthStatusMessage" in claiming.cluster.gates else ""
    try:
        # Before, it has the Xid of the loss.
        claiming.wait(lambda: "GPU-is-lost" in str(claims.specs(claiming)), "the taint of the loss")
        claiming.wait(lambda: health() == ("Unhealthy", lost), "the GPU's loss")
    finally:
        claiming.product.order("heal")
    claiming.wait(lambda: health() == ("Healthy", ""), "the GPU's return")


def test_mig_devices_are_shared_parts_of_their_gpu(claiming: Node) -> None:
    claiming.divide("1g.4gb,2g.8gb")
    try:
        claiming.wait(lambda: len(claims.devices(claiming)) == 4, "the MIG devices")
        found = claims.specs(claiming)
        ((counters,),) = (spec["sharedCounters"] for spec in found if "sharedCounters" in spec)
        assert counters["counters"] == {"memory": {"value": "16Gi"}}
        consumed = {
            device["capacity"]["memory"]["value"]: device["consumesCounters"]
            for spec in found
            for device in spec.get("devices") or ()
            if "consumesCounters" in device
        }
        assert consumed == {
            size: [{"counterSet": counters["name"], "counters": {"memory": {"value": size}}}]
            for size in ("4Gi", "8Gi")
        }
        is_mig = f'device.attributes["{claims.DRIVER}"].type == "mig"'
        claiming.apply(claims.template("mig", 50, "1Gi", is_mig))
        pods = ("first", "second", "third")
        for name in pods:
            claiming.apply(claims.pod(name, "mig", ["sleep", "10000"], "Always"))
            claiming.wait_running(name)
        # The counters of a device are consumed once, however many pods share it.
        first, second, third = (claiming.gpus_held()[name] for name in pods)
        assert first == second != third
        assert claiming.held() == dict.fromkeys(pods, (50, 1024 * MIB))
        for name in pods:
            claiming.delete(name)
        claiming.wait(lambda: claiming.held() == {}, "the end of the shares")
    finally:
        claiming.kubectl("delete", "resourceclaimtemplate", "mig", "--ignore-not-found")
        claiming.divide("")
    claiming.wait(lambda: len(claims.devices(claiming)) == 2, "the end of the MIG devices")
    assert [spec for spec in claims.specs(claiming) if "sharedCounters" in spec] == []


def test_switch_to_the_plugin_offers_a_gpu_once_its_claims_have_ended(claiming: Node) -> None:
    claims.run(claiming, "claimed", 30, "1Gi")
    claiming.wait_running("claimed")
    claiming.offer("plugin")
    claiming.wait(lambda: claims.devices(claiming) == [], "the end of the devices")
    claiming.wait(lambda: claiming.allocatable(CORE) == 100, "the other GPU")
    claiming.run("other", 60, 4)
    claiming.wait_running("other")
    (one,), (other,) = (claiming.gpus_held()[name] for name in ("claimed", "other"))
    assert one != other
    claiming.delete("claimed")
    claiming.wait(lambda: claiming.allocatable(CORE) == 200, "both GPUs")
    # And back.
    claiming.offer("dra")
    claiming.wait(lambda: len(claims.devices(claiming)) == 2, "the devices")
    claims.run(claiming, "new", 60, "1Gi")
    claiming.wait_running("new")
    assert claiming.gpus_held() == {"other": [other], "new": [one]}
    claiming.delete("other")
    claims.run(claiming, "last", 100, "16Gi")
    claiming.wait_running("last")
    assert claiming.gpus_held() == {"new": [one], "last": [other]}
