"""The Lease by which a node agent says that it runs: the agent renews it, the extender reads it.

It has the node's name, in the namespace of the agents' pods. Period and duration are those of the
kubelets' own Leases, so that 5,000 nodes bring 500 writes a second, as many as the kubelets bring.
The times in a Lease are for people only: the extender measures from the moment at which it saw a
renewal, by its own clock.
"""

from __future__ import annotations

import time

from .api import MERGE_PATCH, ApiError, KubeApi, message_of, path_of

API = "/apis/coordination.k8s.io/v1"
RENEW_SECONDS, LEASE_SECONDS = 10.0, 40.0
# Of the agents' pods and Leases.
LABEL = ("app.kubernetes.io/name", "vcuda-node-agent")
SELECTOR = "=".join(LABEL)


def folder(namespace: str) -> str:
    return path_of(API, namespace, "leases")


def renew(api: KubeApi, namespace: str, node: str, node_uid: str) -> None:
    """Renew the node's Lease; create it if there is none. Raises ApiError.

    node_uid: of the node's object, with which the Lease is removed; "": unknown, none is created.
    """
    spec = {
        "holderIdentity": node,
        "leaseDurationSeconds": int(LEASE_SECONDS),
        "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
    }
    path = path_of(API, namespace, "leases", node)
    status, answer = api.call("PATCH", path, {"spec": spec}, kind=MERGE_PATCH)
    if status == 404 and not node_uid:
        return
    if status == 404:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
        metadata = {"name": node, "labels": dict([LABEL]), "ownerReferences": [owner]}
        tree = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        status, answer = api.call("POST", folder(namespace), {**tree, "spec": spec})
    if status >= 400:
        raise ApiError(status, f"{path}: {status} {message_of(answer)}")
