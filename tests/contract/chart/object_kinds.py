"""The kinds of objects that the fake API server offers to kubectl and Helm."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

VERSION = "1.32"
# Of each version of a group, its kinds: (what stands in the path, the kind, whether it has a
# namespace). Source: Kubernetes API reference 1.32.
KINDS = {
    "v1": [
        ("namespaces", "Namespace", False),
        ("nodes", "Node", False),
        ("configmaps", "ConfigMap", True),
        ("events", "Event", True),
        ("pods", "Pod", True),
        ("secrets", "Secret", True),
        ("services", "Service", True),
        ("serviceaccounts", "ServiceAccount", True),
    ],
    "apps/v1": [("daemonsets", "DaemonSet", True), ("deployments", "Deployment", True)],
    "coordination.k8s.io/v1": [("leases", "Lease", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True)],
    "node.k8s.io/v1": [("runtimeclasses", "RuntimeClass", False)],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "rbac.authorization.k8s.io/v1": [
        ("clusterroles", "ClusterRole", False),
        ("clusterrolebindings", "ClusterRoleBinding", False),
        ("roles", "Role", True),
        ("rolebindings", "RoleBinding", True),
    ],
    "admissionregistration.k8s.io/v1": [
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    ],
}
VERBS = ["create", "delete", "get", "list", "patch", "update"]
EVICTION = {
    "name": "pods/eviction",
    "kind": "Eviction",
    "group": "policy",
    "version": "v1",
    "namespaced": True,
    "verbs": ["create"],
}

_PATH = re.compile(
    r"/api(?:s(?=/.*/v))?/(?P<version>(?:[\w.]+/)?v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>\w+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>\w+))?"
)


@dataclass(frozen=True)
class Place:
    """What a path names. namespace, name, sub: "" where it names none."""

    version: str
    kind: str
    namespaced: bool
    plural: str
    namespace: str
    name: str
    sub: str

    @property
    def collection(self) -> str:
        """Where objects of this kind lie."""
        root = ("/apis/" if "/" in self.version else "/api/") + self.version
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{inside}/{self.plural}"

    @property
    def key(self) -> str:
        return f"{self.collection}/{self.name}"


def place(path: str) -> Place | None:
    match = _PATH.fullmatch(path)
    if not match:
        return None
    version, namespace, plural, name, sub = match.groups("")
    for each, kind, namespaced in KINDS.get(version, []):
        if each == plural:
            return Place(version, kind, namespaced, plural, namespace, name, sub)
    return None


def discovered(path: str) -> Any:
    if path == "/version":
        major, _, minor = VERSION.partition(".")
        return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.4"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": each.partition("/")[0], "versions": [version], "preferredVersion": version}
            for each in KINDS
            if "/" in each
            for version in [{"groupVersion": each, "version": each.partition("/")[2]}]
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for version, kinds in KINDS.items():
        if path == ("/apis/" if "/" in version else "/api/") + version:
            resources: list[dict[str, Any]] = [
                {"name": name, "kind": kind, "namespaced": namespaced, "verbs": VERBS}
                for name, kind, namespaced in kinds
            ]
            resources += [EVICTION] if version == "v1" else []
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return None
