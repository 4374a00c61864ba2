"""What made a pod, from the pod's own metadata: pure.

The objects above it are not asked for: the agent may read pods only. A Deployment is known by its
ReplicaSet's name, which ends with the pod's hash, and a CronJob by its Job's, which ends with the
time in minutes. Source: Kubernetes, controllers deployment/sync.go and cronjob/utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_HASH = "pod-template-hash"
_BY_TIME = re.compile(r"(.+)-[0-9]{8,10}")
_MOST_OWNERS = 100
_LONGEST_KIND, _LONGEST = 63, 253


def of(metadata: Mapping[str, Any]) -> str:
    """ "Kind/name" of the pod's controller, such as "Deployment/train"; "": it has none."""
    listed = metadata.get("ownerReferences")
    for owner in listed[:_MOST_OWNERS] if isinstance(listed, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            kind, name = owner.get("kind"), owner.get("name")
            if isinstance(kind, str) and isinstance(name, str) and kind != "Node":
                return _above(kind, name, metadata)
    return ""


def _above(kind: str, name: str, metadata: Mapping[str, Any]) -> str:
    labels = metadata.get("labels")
    its_hash = labels.get(_HASH) if isinstance(labels, dict) else None
    if kind == "ReplicaSet" and isinstance(its_hash, str) and name.endswith(f"-{its_hash}"):
        kind, name = "Deployment", name[: -len(its_hash) - 1]
    elif kind == "Job" and (by_time := _BY_TIME.fullmatch(name)):
        kind, name = "CronJob", by_time[1]
    return f"{kind[:_LONGEST_KIND]}/{name[:_LONGEST]}"
