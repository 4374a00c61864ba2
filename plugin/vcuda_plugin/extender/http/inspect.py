"""The extender's view of the nodes' GPUs and of the pods that hold them, for /inspect."""

from __future__ import annotations

from typing import Any

from vcuda_oci.placement.free import free_at

from ..cluster.cluster import Cluster
from ..cluster.node_entry import Entry


def nodes(cluster: Cluster) -> dict[str, Any]:
    """Summarise each node and each quota.

    Of a node: its number of GPUs, how many are wholly free, and the free percent of compute. Of a
    namespace and model: quota and usage, in cards.
    """
    with cluster.lock:
        found = []
        for name, entry in sorted(cluster.nodes.items()):
            found_gpus = gpus(entry)
            usable = [gpu for gpu in found_gpus if not gpu["unusable"]]
            whole = sum(1 for gpu in usable if not gpu["held"])
            free = sum(max(0, gpu["core_free"]) for gpu in usable)
            short = {"name": name, "gpus": len(found_gpus), "wholly_free": whole, "core_free": free}
            found.append({**short, "why": entry.facts.why})
        quota = cluster.quota
        return {"nodes": found, "quota": quota.report(), "quota_trouble": quota.trouble}


def node(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """Describe each GPU of a node and each pod on it; None: the node is not known."""
    with cluster.lock:
        entry = cluster.nodes.get(name)
        if entry is None:
            return None
        pods = [_pod(cluster, uid, entry) for uid in sorted(entry.holds)]
        return {"name": name, "why": entry.facts.why, "gpus": gpus(entry), "pods": pods}


def gpus(entry: Entry) -> list[dict[str, Any]]:
    """Describe the node's GPUs. held: whether a pod has compute of it. unusable: why it gets no
    pod; "": it may."""
    reported = entry.facts.reported
    usable = {gpu.uuid for gpu in (*entry.facts.usable, *entry.facts.divisible)}
    rules, gpus = reported.rules(), reported.gpus
    return [
        {
            "uuid": left.gpu.uuid,
            "index": left.gpu.index,
            "model": left.gpu.model,
            "core_free": left.core,
            "memory_free_bytes": left.unpromised,
            "memory_bytes": left.gpu.memory_bytes,
            "held": not left.untouched,
            "unusable": reported.unhealthy.get(left.gpu.uuid, "")
            or ("" if left.gpu.uuid in usable else "cordoned"),
        }
        for left in free_at(gpus, range(len(gpus)), entry.taken, rules)
    ]


def _pod(cluster: Cluster, uid: str, entry: Entry) -> dict[str, Any]:
    pod = cluster.pods.get(uid)
    return {
        "uid": uid,
        "namespace": pod.namespace if pod else "",
        "name": pod.name if pod else "",
        "assumed": uid in cluster.assumed,
        "holds": [
            {
                "uuid": share.uuid,
                "core_percent": share.core_percent,
                "memory_bytes": share.memory_bytes,
            }
            for share in entry.holds[uid]
        ],
    }
