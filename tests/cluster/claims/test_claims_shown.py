"""Claims on the cluster page and in `vcuda why`, by a real API server and kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.kubernetes import claims
from cluster.kubernetes.node import Node
from cluster.test_cluster_page import TEAM, get, serving

LARGEST = "largest free share is 30 % and "


@pytest.fixture(scope="module")
def served(started: Node) -> Iterator[Node]:
    with serving(started, "dra") as node:
        node.wait(lambda: len(claims.devices(node)) == 2, "the node's devices")
        yield node


@pytest.fixture
def waiting(served: Node, node: Node) -> Iterator[Node]:
    """A pod with 70 % on each GPU, and one of the viewer's namespace that waits with 40 %."""
    for name in ("first", "second"):
        claims.run(node, name, 70, "1Gi")
        node.wait_running(name)
    for each in (
        claims.template("forty", 40, "1Gi"),
        claims.pod("third", "forty", ["true"], "Never"),
    ):
        each["metadata"]["namespace"] = TEAM
        node.apply(each)
    yield node
    node.kubectl("delete", "pods,resourceclaimtemplates", "--all", "--namespace", TEAM)


def test_why_of_a_pod_with_a_claim_names_what_is_asked_and_free(waiting: Node) -> None:
    def reasons() -> Any:
        return json.loads(waiting.vcuda("why", f"{TEAM}/third", "--json"))["reasons"]

    waiting.wait(lambda: reasons()[0]["kind"] == "pending", "the scheduler's refusal")
    pending, claim = reasons()
    assert "cannot allocate all claims" in pending["what"]
    assert claim["kind"] == "claim" and LARGEST in claim["what"]
    assert claim["what"].endswith("; 40 % and 1.0 GiB asked")


def test_page_shows_claims_by_the_viewers_rights(waiting: Node) -> None:
    def view() -> Any:
        code, body = get(waiting, "viewer", TEAM)
        assert code == 200 and "first" not in body and "second" not in body, body
        return json.loads(body)

    waiting.wait(lambda: [each["pod"] for each in view()["waiting"]] == ["third"], "the claim")
    (row,) = view()["waiting"]
    (why,) = row["why"]
    assert (row["asked"], view()["trouble"]) == ("40 % and 1.0 GiB", "")
    assert why["reason"].startswith(LARGEST)
    gpus = [gpu for each in view()["nodes"] for gpu in each["gpus"]]
    assert [gpu["core_free"] for gpu in gpus if gpu["others"]["core_percent"] == 70] == [30, 30]
