"""How much of the free GPUs is of no use to the pods of a trace, as the FGD paper counts it.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3. Of memory a pod is taken
to ask for no more than of compute.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ..extender.filter.score import useless
from ..extender.model.pod_request import Wanted, ask_of
from .trace_pod import SETTINGS, TracePod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..extender.cluster.cluster import Cluster
    from ..extender.filter.score import Floats
    from ..extender.model.gpu_arrays import Rows


class Mix:
    """What the pods of a trace ask for, and how likely the next one asks for it."""

    def __init__(self, pods: Iterable[TracePod]) -> None:
        counted = Counter((pod.model, _size(pod)) for pod in pods)
        number = sum(counted.values())
        self._shapes: dict[Wanted, list[tuple[float, float]]] = {}
        for (model, size), count in counted.items():
            ask = ask_of(TracePod("any", model=model).as_object(), SETTINGS)
            wanted = ask.wanted if ask else Wanted()
            self._shapes.setdefault(wanted, []).append((size, count / number))

    def lost(self, cluster: Cluster, rows: Rows, free: Floats) -> Floats:
        """(rows): GPUs' worth. free: (rows, columns), of the GPUs of these nodes."""
        lost: Floats = np.zeros(len(free))
        for wanted, shapes in self._shapes.items():
            allowed = cluster.arrays.allowed(rows, wanted)
            usable: Floats = np.where(allowed, free, 0)
            lost += useless(usable, shapes)
            # What the pod may not use is lost to it, too.
            lost += sum(likely for _, likely in shapes) * (free - usable).sum(axis=1)
        return lost


def _size(pod: TracePod) -> float:
    """In GPUs. Of several in part each is as large, and of one and a half the next takes two."""
    return pod.core / 100 if pod.core < 100 else -(-pod.core * pod.count // 100)
