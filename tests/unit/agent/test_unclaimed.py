"""Containers that run without their pod's requested share are found by the pod's status."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.files import write
from vcuda_oci.ledger import events
from vcuda_plugin.agent.pods import unclaimed
from vcuda_plugin.agent.pods.pod_decision import PodDecision

UID = "01234567-89ab-4def-8123-456789abcdef"
FOUND = PodDecision(UID, "default/web", ("main", "init"))


def at(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def running(name: str = "main", since: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"running": {"startedAt": since or at(time.time())}}}


def found(tmp_path: Any, *statuses: Any, **metadata: Any) -> list[str]:
    status = {"containerStatuses": list(statuses), "initContainerStatuses": [running("init")]}
    pod = {"metadata": metadata, "status": status}
    write(f"{tmp_path}/allocations/pod-{UID}.init.json", "{}")
    return list(unclaimed.containers(pod, FOUND, str(tmp_path)))


def test_running_container_without_a_record_is_named(tmp_path: Any) -> None:
    assert found(tmp_path, running(), running("asks-for-nothing")) == ["main"]


def test_container_with_a_record_has_its_share(tmp_path: Any) -> None:
    write(f"{tmp_path}/allocations/pod-{UID}.main.json", "{}")
    assert found(tmp_path, running()) == []


@pytest.mark.parametrize(
    "status",
    [
        {"name": "main", "state": {"waiting": {"reason": "CreateContainerError"}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0}}},
        running(since=at(1)),  # from before the boot that emptied the ledger
        running(since="soon"),
        {"name": "main", "state": {"running": None}},
        {"name": ["main"], "state": []},
        "main",
    ],
)
def test_container_that_does_not_run_since_the_boot_is_not_named(
    tmp_path: Any, status: Any
) -> None:
    assert found(tmp_path, status) == []


@pytest.mark.parametrize(("id", "named"), [("c1", []), ("c2", ["main"])])
def test_container_that_had_its_share_and_may_have_ended_is_not_named(
    tmp_path: Any, id: str, named: list[str]
) -> None:
    kinds = (events.CLAIMED, events.RELEASED)
    for kind in kinds:
        events.record(str(tmp_path), "vcuda", kind, f"pod-{UID}.main", "30 %", container="c1")
    status = {**running(), "containerID": f"containerd://{id}"}
    assert found(tmp_path, status) == named


def test_pod_being_deleted_is_not_reported(tmp_path: Any) -> None:
    assert found(tmp_path, running(), deletionTimestamp=at(time.time())) == []
