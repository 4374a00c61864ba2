"""Rights of the programs in a cluster, and of their pods on a node."""

from __future__ import annotations

from typing import Any

import pytest

from contract.chart import rendering
from contract.chart.rendering import AGENT, CLAIM_TEMPLATES, CLAIMS, CLUSTER, DRA, EXTENDER

EXTENDERS_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}


def rights(found: list[dict[str, Any]], account: str) -> dict[str, Any]:
    """The rules of each role that is bound to an account, by its namespace and name; None: a role
    that is not ours."""
    roles = {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["rules"]
        for each in found
        if each["kind"] in ("Role", "ClusterRole")
    }
    bound = {}
    for each in found:
        if "roleRef" in each and each["subjects"][0]["name"] == account:
            namespace = each["metadata"].get("namespace", "")
            bound[f"{namespace}/{each['roleRef']['name']}"] = roles.get(
                (namespace, each["roleRef"]["name"])
            )
    return bound


def test_the_agent_may_follow_pods_write_events_and_patch_nodes_and_no_more() -> None:
    assert rights(rendering.objects(), AGENT) == {
        f"/{AGENT}": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
        f"vcuda/{AGENT}": [{**LEASES, "verbs": ["create", "patch"]}],
    }
    assert f"vcuda/{AGENT}" not in rights(rendering.objects(DRA), AGENT)


@pytest.mark.parametrize("values", [DRA, {"agent": {"endsClaims": True}}])
def test_an_agent_with_dra_may_write_slices_and_read_claims_too(values: dict[str, Any]) -> None:
    resource = {"apiGroups": ["resource.k8s.io"]}
    writes = ["list", "watch", "create", "patch", "delete"]
    without, found = (rights(rendering.objects(each), AGENT)[f"/{AGENT}"] for each in ({}, values))
    assert found == [
        *without,
        {**resource, "resources": ["resourceslices"], "verbs": writes},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {**resource, "resources": ["resourceclaims"], "verbs": ["get"]},
        {**resource, "resources": ["resourceclaims/status"], "verbs": ["patch"]},
        {
            **resource,
            "resources": ["resourceclaims/driver"],
            "resourceNames": ["gpu.vcuda.io"],
            "verbs": ["associated-node:patch"],
        },
    ]


def test_an_agent_that_follows_no_cluster_has_no_rights_and_no_token_in_it() -> None:
    found = rendering.objects({"settings": {"kubernetes": "no"}})
    assert rights(found, AGENT) == {}
    assert rendering.pod_spec(found, AGENT)["automountServiceAccountToken"] is False


QUOTA_RULES = [
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["gpuquota"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


def test_the_extender_may_read_and_bind_and_beside_a_scheduler_what_that_may() -> None:
    own = {f"kube-system/{EXTENDER}-quota": QUOTA_RULES}
    evict = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    assert rights(rendering.objects(CLUSTER), EXTENDER) == {
        **own,
        f"/{EXTENDER}": EXTENDERS_RULES,
        f"vcuda/{EXTENDER}": [
            {**LEASES, "verbs": ["create"]},
            {**LEASES, "verbs": ["list", "watch"]},
            {**LEASES, "resourceNames": [EXTENDER], "verbs": ["get", "update"]},
        ],
    }
    assert rights(rendering.objects(), EXTENDER) == {
        **own,
        f"/{EXTENDER}": [*EXTENDERS_RULES, evict],
        "/system:kube-scheduler": None,
        "/system:volume-scheduler": None,
        "kube-system/extension-apiserver-authentication-reader": None,
        f"vcuda/{EXTENDER}": [
            {**LEASES, "verbs": ["create"]},
            {**LEASES, "verbs": ["list", "watch"]},
            {**LEASES, "resourceNames": ["vcuda-scheduler"], "verbs": ["get", "update"]},
        ],
    }


def test_the_maker_of_claim_templates_may_create_them_and_change_none() -> None:
    resource = {"apiGroups": ["resource.k8s.io"]}
    assert rights(rendering.objects(CLAIMS), CLAIM_TEMPLATES) == {
        f"/{CLAIM_TEMPLATES}": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
            {
                **resource,
                "resources": ["resourceclaimtemplates"],
                "verbs": ["list", "watch", "create"],
            },
            {**resource, "resources": ["resourceslices"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        ]
    }


@pytest.mark.parametrize(
    ("values", "name"),
    [({}, EXTENDER), (CLUSTER, EXTENDER), (CLAIMS, CLAIM_TEMPLATES)],
    ids=["own", "cluster", "claim templates"],
)
def test_the_extenders_pods_pass_the_restricted_pod_security_standard(
    values: Any, name: str
) -> None:
    """Source: Kubernetes, "Pod Security Standards", Restricted."""
    spec = rendering.pod_spec(rendering.objects(values), name)
    assert {"hostPID", "hostNetwork", "hostIPC"} & spec.keys() == set()
    assert {kind for volume in spec["volumes"] for kind in volume} <= {
        "name", "configMap", "secret", "emptyDir"}  # fmt: skip
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": 65532,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


def test_the_agents_pod_is_privileged_on_its_node_and_writes_where_it_must() -> None:
    spec = rendering.pod_spec(rendering.objects(), AGENT)
    assert {"hostNetwork", "hostIPC"} & spec.keys() == set()
    (container,) = spec["containers"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert {
        mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")
    } == {"/run/vcuda", "/var/lib/kubelet/device-plugins", "/dev"}


def test_the_extender_asks_its_scheduler_for_a_certificate() -> None:
    found = rendering.objects()
    spec = rendering.pod_spec(found, EXTENDER)
    (certificates,) = spec["initContainers"]
    assert certificates["command"] == [EXTENDER, "certificates", "/etc/vcuda-tls"]
    extender = spec["containers"][0]
    tls = ["--tls-cert", "--tls-key", "--tls-client-ca"]
    words = [word.partition("=")[0] for word in extender["command"]]
    more = ["--restart-after-outage", "--quota-config"]
    assert words == [EXTENDER, "--listen", "--agents", "--evict", *more, *tls]
    assert extender["command"][1] == "--listen=127.0.0.1:3456"
    kinds = {each["kind"] for each in found if each["metadata"]["name"] == EXTENDER}
    assert "Service" not in kinds
    assert rendering.one(found, "NetworkPolicy", EXTENDER)["spec"]["ingress"] == []
    words = rendering.pod_spec(rendering.objects(CLUSTER), EXTENDER)["containers"][0]["command"]
    flags = ["--listen", "--quota-config", "--lease", "--agents", *["--allowed-host"] * 3, *tls]
    assert [word.partition("=")[0] for word in words] == [EXTENDER, *flags]
