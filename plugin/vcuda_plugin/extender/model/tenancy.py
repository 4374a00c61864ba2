"""Beside whom a pod may be on a GPU, by KubeShare's annotations: pure.

A label means something among the pods of one namespace: nobody else can write it to get near them.
Source: KubeShare, README.md, "SharePod Specification".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import annotations as known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Tenancy(NamedTuple):
    """Labels with their namespace before them; "": none.

    slice: all that name it are on the same GPU. affinity: alone, or beside another of this label.
    anti: beside nobody of this label. exclusion: beside nobody of another, or without one.
    """

    slice: str = ""
    affinity: str = ""
    anti: str = ""
    exclusion: str = ""

    def beside(self, others: Sequence[Tenancy]) -> bool:
        """Whether it may come to a GPU that these have; it is not empty."""
        return (
            (not self.affinity or any(self.affinity == each.affinity for each in others))
            and (not self.anti or all(self.anti != each.anti for each in others))
            and all(self.exclusion == each.exclusion for each in others)
        )


NOBODY = Tenancy()


class SliceNodes:
    """nodes: where each named slice is: on one, as a rule."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[str]] = {}
        self._on: dict[str, set[str]] = {}

    def put(self, node: str, slices: Iterable[str]) -> None:
        """These are on the node now, and no others."""
        new, old = set(slices), self._on.pop(node, set())
        for name in old - new:
            self.nodes[name].discard(node)
            if not self.nodes[name]:
                del self.nodes[name]
        for name in new:
            self.nodes.setdefault(name, set()).add(node)
        if new:
            self._on[node] = new


def tenancy_of(said: Mapping[str, str], namespace: str) -> Tenancy:
    """said: a pod's annotations."""
    labels = []
    for word in known.TENANCY_WORDS:
        given = (said.get(prefix + word, "").strip() for prefix in known.TENANCY_PREFIXES)
        label = next(filter(None, given), "")[:100]
        labels.append(f"{namespace}/{label}" if label else "")
    return Tenancy(*labels)
