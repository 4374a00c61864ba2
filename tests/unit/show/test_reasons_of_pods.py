"""Why a pod without a share waits, from the cluster's events: messages of Kubernetes 1.36.2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vcuda_hook.why import reasons, why
from vcuda_hook.why.pod_scheduling import PodEvent, Scheduling, parse

NODES = "0/1 nodes are available: "
AFTER = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
FREE = "'vcuda gpus' on a GPU node shows what is free there"


def event(message: str, reason: str = "FailedScheduling", type: str = "Warning") -> PodEvent:
    return PodEvent("2026-11-27T02:05:43Z", type, reason, message, "vcuda-scheduler")


@pytest.mark.parametrize(
    ("why", "end", "hint"),
    [
        ("1 Insufficient tencent.com/vcuda-core", ". no new claims to deallocate, " + AFTER, FREE),
        ("1 cannot allocate all claims", ". still not schedulable, " + AFTER, ""),
        ("1 largest free share is 30 % and 1.0 GiB on GPU-0; 40 % asked", ". " + AFTER, ""),
        ("1 node(s) had untolerated taint(s)", "", ""),
    ],
)
def test_pod_without_a_node_has_the_schedulers_reason(why: str, end: str, hint: str) -> None:
    (found,) = reasons.of_no_node(event(NODES + why + end))
    assert found == ("pending", f"vcuda-scheduler finds no node for it: {NODES}{why}", hint)


def recorded(kind: str) -> dict[str, Any]:
    return {"kind": kind, "text": "by hand", "time": 0.0}


@pytest.mark.parametrize(
    ("last", "on_this_host", "kinds"),
    [
        (event("m"), [recorded("released")], ["pending"]),  # the host's is of an earlier pod
        (event("m", "FailedMount"), [recorded("refused")], ["refused"]),
        (event("m", "FailedMount"), [], ["cluster"]),
        (event("m", "Scheduled", "Normal"), [], []),
    ],
)
def test_pods_newest_event_decides_between_cluster_and_host(
    last: PodEvent, on_this_host: list[dict[str, Any]], kinds: list[str]
) -> None:
    found = why._of_absence(Scheduling([event("old"), last]), on_this_host, 1.0)
    assert [each.kind for each in found] == kinds


def test_events_of_an_earlier_pod_of_the_name_are_left_out() -> None:
    def item(uid: str, at: str) -> dict[str, Any]:
        pod = {"kind": "Pod", "namespace": "ml", "name": "train-0", "uid": uid}
        return {"involvedObject": pod, "lastTimestamp": at, "message": uid}

    items = [item("b", "2026-01-02"), item("a", "2026-01-01"), item("b", "2026-01-03")]
    found = parse(json.dumps({"items": items}).encode())
    assert [(each.time, each.message) for each in found.events] == [
        ("2026-01-02", "b"),
        ("2026-01-03", "b"),
    ]
