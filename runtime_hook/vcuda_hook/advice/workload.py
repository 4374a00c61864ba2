"""Which workload a container belongs to: what outlives it and is started again.

A pod's workload is its owner, such as a Deployment; another container's is its image and name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

CONTAINER, POD = "Container", "Pod"
_LONGEST = 256


class Workload(NamedTuple):
    """kind: as Kubernetes names it, or CONTAINER. namespace, container: "" of a CONTAINER. image:
    "" of a pod.
    """

    kind: str
    namespace: str
    name: str
    container: str = ""
    image: str = ""

    @property
    def shown(self) -> str:
        """ "namespace/name/container", or the engine's name."""
        if self.kind == CONTAINER:
            return self.name
        return f"{self.namespace}/{self.name}/{self.container}"


def of(pod: dict[str, str] | None, owner: str, name: str, image: str) -> Workload:
    """The workload of a container.

    pod: the record's fields of the pod, if it is a pod's container. owner: "Kind/name", "" if the
    pod has none or it is unknown. name, image: the engine's.
    """
    if not pod:
        return Workload(CONTAINER, "", name[:_LONGEST], "", image[:_LONGEST])
    kind, _, of_owner = owner.partition("/")
    if not of_owner:
        kind, of_owner = POD, pod.get("name", "")
    texts = (kind, pod.get("namespace", ""), of_owner, pod.get("container", ""))
    return Workload(*(text[:_LONGEST] for text in texts))


def parse(tree: Any) -> Workload:
    """Raises ValueError, TypeError: not the fields of a workload."""
    found = Workload(*tree)
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in found):
        raise ValueError("not the name of a workload")
    if not (found.kind and found.name):
        raise ValueError("a workload without a name")
    return found
