"""The base for Kustomize."""

from __future__ import annotations

from cluster.kubernetes.node import Node
from support.files import ROOT


def test_api_server_takes_each_object_of_the_base(node: Node) -> None:
    base = ROOT + "/packaging/kubernetes"
    objects = node.kubectl("kustomize", base).count("\nkind: ")
    # Helm has installed the same: nothing is stored.
    taken = node.kubectl("apply", "-k", base, "--dry-run=server").splitlines()
    assert len(taken) == objects > 30
    assert [line for line in taken if not line.endswith("(server dry run)")] == []
