"""The admission policies' expressions, evaluated: an agent may write only about its own node."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from cel_expr_python import cel

from contract.chart import rendering
from contract.chart.rendering import AGENT
from vcuda_plugin.agent.dra import slices
from vcuda_plugin.agent.pods import pod_event

MINE, OTHER = "node-1", "node-2"
ACCOUNT = f"system:serviceaccount:vcuda:{AGENT}"
NODE_NAME = "authentication.kubernetes.io/node-name"
GPUS = "vcuda.io/node-gpus"
SLICES = f"{AGENT}-slices"
NODE: dict[str, Any] = {
    "metadata": {"name": MINE, "labels": {"zone": "a"}, "annotations": {"theirs": "1"}},
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
}
BARE = {"metadata": {"name": MINE}, "spec": {}}


def denied(
    before: Any, after: Any, user: str = ACCOUNT, node: str = MINE, policy: str = AGENT
) -> list[str]:
    """What the policy says against an update, or before nothing a creation; []: it lets it be.

    Source: Kubernetes, "Validating Admission Policy".
    """
    values = rendering.DRA if policy == SLICES else {}
    spec = rendering.one(rendering.objects(values), "ValidatingAdmissionPolicy", policy)["spec"]
    known = dict.fromkeys(("object", "oldObject", "request", "variables"), cel.Type.DYN)
    environment = cel.NewEnv(variables=known)
    info = {"username": user, **({"extra": {NODE_NAME: [node]}} if node else {})}
    operation = ("UPDATE" if after else "DELETE") if before else "CREATE"
    request = {"userInfo": info, "operation": operation}
    data = {"object": after, "oldObject": before, "request": request, "variables": {}}

    def value(expression: str) -> Any:
        return environment.compile(expression).eval(data=data).plain_value()

    if not all(value(condition["expression"]) for condition in spec["matchConditions"]):
        return []
    variables = spec.get("variables", ())
    data["variables"] = {each["name"]: value(each["expression"]) for each in variables}
    return [
        each["message"] for each in spec["validations"] if value(each["expression"]) is not True
    ]


@pytest.mark.parametrize("before", [None, {"metadata": {"name": MINE}}])
@pytest.mark.parametrize(
    ("user", "node", "is_denied"),
    [(ACCOUNT, MINE, False), (ACCOUNT, OTHER, True), (ACCOUNT, "", True), ("other", OTHER, False)],
)
def test_an_agent_may_write_the_lease_of_its_own_node_alone(
    before: Any, user: str, node: str, is_denied: bool
) -> None:
    lease = {"metadata": {"name": MINE}, "spec": {}}
    expected = ["a node agent may write the Lease of its own node alone"] if is_denied else []
    assert denied(before, lease, user, node, f"{AGENT}-leases") == expected


def changed(node: Any, **metadata: Any) -> Any:
    after = copy.deepcopy(node)
    after["metadata"].update(metadata)
    return after


@pytest.mark.parametrize("node", [NODE, BARE], ids=["a node in use", "one without annotations"])
def test_an_agent_publishes_its_gpus_on_its_own_node(node: Any) -> None:
    kept = node["metadata"].get("annotations", {})
    first = changed(node, annotations={**kept, GPUS: "{}"})
    assert denied(node, first) == []
    assert denied(first, changed(node, annotations={**kept, GPUS: "[]"})) == []


@pytest.mark.parametrize("node", [OTHER, ""], ids=["another's", "a token of no node"])
def test_an_agent_publishes_nothing_on_a_node_that_its_token_is_not_of(node: str) -> None:
    after = changed(NODE, annotations={"theirs": "1", GPUS: "{}"})
    assert denied(NODE, after, node=node) == ["a node agent may change its own node alone"]


@pytest.mark.parametrize(
    "annotations",
    [{"theirs": "2"}, {}, {"theirs": "1", "vcuda.io/cordoned-gpus": ""}],
    ids=["changed", "removed", "added"],
)
def test_an_agent_changes_no_other_nodes_annotation(annotations: dict[str, str]) -> None:
    expected = ["a node agent may change no annotation but vcuda.io/node-gpus"]
    assert denied(NODE, changed(NODE, annotations=annotations)) == expected


@pytest.mark.parametrize(
    "after",
    [
        changed(NODE, finalizers=["f"]),
        changed(NODE, ownerReferences=[{"name": "o"}]),
        {**NODE, "spec": {"podCIDR": "10.0.0.0/24"}},
        {**NODE, "spec": {**NODE["spec"], "unschedulable": True}},
    ],
    ids=["finalizer", "owner", "taint removed", "cordon"],
)
def test_an_agent_changes_nothing_but_annotations_and_labels(after: Any) -> None:
    expected = ["a node agent may change annotations and labels of its node alone"]
    assert denied(NODE, after) == expected


def test_an_agent_labels_its_node_with_its_gpus() -> None:
    keys = ("nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.major")
    labelled = changed(NODE, labels={"zone": "a", **dict.fromkeys(keys, "8")})
    assert denied(NODE, labelled) == [] == denied(labelled, NODE)
    model = changed(NODE, labels={"zone": "a", "gaia.tencent.com/gpu-model": "M40"})
    assert denied(NODE, model) == []


@pytest.mark.parametrize(
    "labels",
    [{"zone": "b"}, {}, {"zone": "a", "nvidia.com/gpus": "8"}],
    ids=["changed", "removed", "added"],
)
def test_an_agent_changes_no_other_label(labels: dict[str, str]) -> None:
    expected = ["a node agent may change no labels but those of GPUs"]
    assert denied(NODE, changed(NODE, labels=labels)) == expected


UID = "0b5c5f6e-9c1d-4a7e-8f54-0d1c2b3a4f5e"
TOLD = {"kind": "refused", "allocation": f"pod-{UID}.c", "text": "no", "time": 1.0}
(HAPPENED,) = pod_event.of_event({**TOLD, "pod": "ml/train/c"}, [])
MINES = pod_event.created(HAPPENED, HAPPENED, 1, MINE)
OTHERS = pod_event.created(HAPPENED, HAPPENED, 1, OTHER)
SCHEDULERS = {**MINES, "source": {"component": "default-scheduler"}}
NODES = {**MINES, "involvedObject": {"kind": "Node", "name": MINE}}
NOT_SO = "a node agent may write Events of pods, from its own node alone"
NOT_ITS_OWN = "a node agent may change its own node's Events alone"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, MINES, []),
        (MINES, {**MINES, "count": 2}, []),
        (None, OTHERS, [NOT_SO]),
        (None, SCHEDULERS, [NOT_SO]),
        (None, NODES, [NOT_SO]),
        (OTHERS, MINES, [NOT_ITS_OWN]),
        (SCHEDULERS, MINES, [NOT_ITS_OWN]),
        (OTHERS, {**OTHERS, "count": 2}, [NOT_SO, NOT_ITS_OWN]),
    ],
    ids=[
        "created",
        "counted",
        "another node's",
        "the scheduler's",
        "of a node",
        "taken over",
        "taken over from the scheduler",
        "another's counted",
    ],
)
def test_an_agent_writes_events_of_pods_in_its_own_nodes_name(
    before: Any, after: Any, expected: list[str]
) -> None:
    assert denied(before, after, policy=AGENT + "-events") == expected
    assert denied(before, after, user="system:node:node-2", policy=AGENT + "-events") == []


def test_the_policy_concerns_no_other_container() -> None:
    after = {**changed(NODE, labels={}, annotations={}), "spec": {}}
    assert denied(NODE, after, user="system:node:node-2", node="") == []


def test_clusters_that_cannot_say_a_tokens_node_have_no_policy() -> None:
    kinds = {each["kind"] for each in rendering.objects({}, "1.29")}
    assert not any(kind.startswith("ValidatingAdmission") for kind in kinds)


(MY_SLICE,) = (
    write.body for write in slices.writes(MINE, "uid", [{"name": "gpu-0"}], {}) if write.body
)
OWN_SLICES = "a node agent may write the ResourceSlices of its own node alone"
OWN_DRIVER = "a node agent may write the ResourceSlices of gpu.vcuda.io alone"
CALLS = {"create": (None, MY_SLICE), "update": (MY_SLICE, MY_SLICE), "delete": (MY_SLICE, None)}


@pytest.mark.parametrize(("before", "after"), CALLS.values(), ids=list(CALLS))
def test_an_agent_writes_slices_of_its_own_node_alone(before: Any, after: Any) -> None:
    assert denied(before, after, policy=SLICES) == []
    for node in (OTHER, ""):
        assert denied(before, after, node=node, policy=SLICES) == [OWN_SLICES]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"pool": {"name": OTHER}}, OWN_SLICES),
        ({"nodeName": None, "allNodes": True}, OWN_SLICES),
        ({"driver": "gpu.example.org"}, OWN_DRIVER),
    ],
    ids=["another's pool", "all nodes", "another driver"],
)
def test_an_agent_writes_no_other_pool_or_driver(spec: dict[str, Any], message: str) -> None:
    fields = {**MY_SLICE["spec"], **spec}
    after = {**MY_SLICE, "spec": {key: each for key, each in fields.items() if each is not None}}
    assert denied(None, after, policy=SLICES) == [message]


def test_the_slices_policy_leaves_other_accounts_alone() -> None:
    assert denied(None, MY_SLICE, user="system:node:x", node=OTHER, policy=SLICES) == []
