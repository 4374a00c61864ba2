"""Claims and devices of a cluster: what is free, and why a claim that waits fits on no node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.kubelet.dra_claims import claim, result, slice_of, waiting
from vcuda_hook.claims import objects
from vcuda_hook.claims.room import Room
from vcuda_hook.why import kubectl, pod_claims
from vcuda_plugin.agent.dra import devices

SHARES, WHOLE, MIG = "gpu.vcuda.io", "whole.gpu.vcuda.io", "mig.gpu.vcuda.io"
LARGEST = "largest free share is 30 % and 8.0 GiB on GPU-b; "


def room(*claims: dict[str, Any], **more: Any) -> Room:
    """Node node-1 with GPU-a of 16 GiB and GPU-b of 12 GiB."""
    found = objects.devices_of(slice_of({"GPU-a": 16, "GPU-b": 12}, **more))
    return Room(found, filter(None, map(objects.claim_of, claims)))


HELD = claim("a", result("GPU-a", "80", "4Gi")), claim("b", result("GPU-b", "70", "4Gi"))


@pytest.mark.parametrize(
    ("wanted", "reason", "never"),
    [
        (waiting("c", cores="40", memory="1Gi"), LARGEST + "40 % and 1.0 GiB asked", False),
        (waiting("c", cores="40", memory="20Gi"), "20.0 GiB asked", True),
        (waiting("c"), LARGEST + "100 % and 12.0 GiB asked", False),
        (waiting("c", WHOLE, count=2), "100 % and 12.0 GiB asked for each of 2", False),
        (waiting("c", WHOLE, count=3), "100 % and 16.0 GiB asked for each of 3", True),
        (waiting("c", cores="30", memory="1Gi"), "", False),
        # Two requests, which share a GPU unless the claim forbids that.
        (waiting("c", times=2, cores="15", memory="1Gi"), "", False),
        (waiting("c", times=3, cores="25", memory="1Gi"), "20 % and 12.0 GiB on GPU-a", False),
        (waiting("c", times=3, distinct=True, cores="5", memory="1Gi"), "no device", True),
    ],
)
def test_waiting_claim_has_the_largest_share_beside_what_it_asks(
    wanted: dict[str, Any], reason: str, never: bool
) -> None:
    asked = objects.claim_of(wanted)
    assert asked and asked.held is None
    verdict = room(*HELD).judge(asked)
    assert verdict is not None
    assert verdict.fitting == ([] if reason else ["node-1"])
    assert reason in verdict.refused.get("node-1", "")
    assert bool(verdict.never) == never


def test_unhealthy_gpus_get_no_claim_and_say_why() -> None:
    wanted = objects.claim_of(waiting("c", cores="10", memory="1Gi"))
    assert wanted
    verdict = room(unhealthy={"GPU-a": "Xid 79", "GPU-b": "Xid 31"}).judge(wanted)
    assert verdict and verdict.refused == {"node-1": "GPU-a is Xid-79, GPU-b is Xid-31"}
    assert not verdict.never


def test_gpu_in_turns_is_full_for_claims_under_mps() -> None:
    wanted = objects.claim_of(waiting("c", "mps.gpu.vcuda.io", cores="10", memory="1Gi"))
    assert wanted
    held = claim("a", result("GPU-a", "10", "1Gi"))
    verdict = room(held, has_mps=True).judge(wanted)
    assert verdict and verdict.fitting == ["node-1"]
    verdict = room(held, HELD[1], has_mps=True).judge(wanted)
    assert verdict and "largest free share is 0 % and 0.0 GiB" in verdict.refused["node-1"]


def test_claims_of_other_drivers_and_malformed_ones_are_none_of_ours() -> None:
    other = claim("a", {**result("GPU-a"), "driver": "gpu.nvidia.com"})
    odd: list[Any] = [{}, {"spec": 1, "status": []}, {"spec": {"devices": {"requests": [1, {}]}}}]
    assert [objects.claim_of(each) for each in (other, *odd)] == [None] * 4
    assert objects.devices_of({"spec": {"driver": SHARES, "devices": [1]}}) == []
    (of_class,) = (objects.claim_of(waiting("c", MIG)),)
    assert of_class and room().judge(of_class) is None


def test_why_asks_the_cluster_for_the_claims_of_a_waiting_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = {
        "spec": {"resourceClaims": [{"name": "share", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "share", "resourceClaimName": "claim-c"}]},
    }
    claims = {"metadata": {}, "items": [*HELD, waiting("c", cores="40", memory="1Gi")]}
    answers: dict[str, Any] = {
        "/api/v1/namespaces/default/pods/train": pod,
        "/apis/resource.k8s.io/v1/resourceclaims?limit=5000": claims,
        "/apis/resource.k8s.io/v1/resourceslices?limit=5000": {
            "metadata": {},
            "items": [slice_of({"GPU-a": 16, "GPU-b": 12})],
        },
    }
    monkeypatch.setattr(kubectl, "raw", lambda path: json.dumps(answers[path]).encode())
    (reason,) = pod_claims.ask("default", "train")
    assert reason.kind == "claim"
    assert reason.what == f"claim claim-c: node-1: {LARGEST}40 % and 1.0 GiB asked"

    def forbidden(path: str) -> bytes:
        if "resourceclaims" in path:
            raise kubectl.Unanswered("kubectl: Forbidden")
        return json.dumps(answers[path]).encode()

    monkeypatch.setattr(kubectl, "raw", forbidden)
    (reason,) = pod_claims.ask("default", "train")
    assert reason.what.endswith("is unknown: kubectl: Forbidden")
    assert devices.name_of("GPU-a") == "gpu-a"
