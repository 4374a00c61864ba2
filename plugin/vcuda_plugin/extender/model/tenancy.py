"""Which pods may share a GPU with each other: by KubeShare's annotations, and by isolation. Pure.

A label applies within one namespace: pods of other namespaces cannot use it to get on the same GPU.
Source: KubeShare, README.md, "SharePod Specification".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import annotations as known


class Tenancy(NamedTuple):
    """A pod's four labels, each as "namespace/label", "": none; and whether it is under MPS.

    slice: all pods that name it are on the same GPU. affinity: an empty GPU, or one that has a pod
    with this label. anti: no GPU that has a pod with this label. exclusion: only GPUs on which
    every pod has the same exclusion label, or none if this pod has none. mps: MPS and turns are
    never on one GPU.
    """

    slice: str = ""
    affinity: str = ""
    anti: str = ""
    exclusion: str = ""
    mps: bool = False

    def beside(self, others: Sequence[Tenancy]) -> bool:
        """Return whether the pod may join `others` on a GPU. `others` is not empty."""
        return (
            (not self.affinity or any(self.affinity == each.affinity for each in others))
            and (not self.anti or all(self.anti != each.anti for each in others))
            and all(self.exclusion == each.exclusion for each in others)
            and self.isolation_beside(others)
        )

    def isolation_beside(self, others: Sequence[Tenancy]) -> bool:
        return all(self.mps == each.mps for each in others)


NO_TENANCY = Tenancy()


def tenancy_of(annotations: Mapping[str, str], namespace: str, mps: bool) -> Tenancy:
    """Read the labels from `annotations`, a pod's annotations."""
    labels: list[str] = []
    for word in known.TENANCY_WORDS:
        given = (annotations.get(prefix + word, "").strip() for prefix in known.TENANCY_PREFIXES)
        label = next(filter(None, given), "")[:100]
        labels.append(f"{namespace}/{label}" if label else "")
    return Tenancy(labels[0], labels[1], labels[2], labels[3], mps)
