"""How much of the free GPUs the pods of a trace cannot use, as the FGD paper counts it.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3. A pod is assumed to
request no larger part of the memory than of the compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ..extender.cluster.cluster import Cluster
from ..extender.filter.score import Floats, useless
from ..extender.model.gpu_arrays import Rows
from ..extender.model.pod_request import ANY, Wanted, ask_of
from .trace_pod import SETTINGS, TracePod


class Mix:
    """The requests of a trace's pods, and the probability of each."""

    def __init__(self, pods: Iterable[TracePod]) -> None:
        counted = Counter((pod.model, _size(pod)) for pod in pods)
        number = sum(counted.values())
        self._shapes: dict[Wanted, list[tuple[float, float]]] = {}
        for (model, size), count in counted.items():
            ask = ask_of(TracePod("any", model=model).as_object(), SETTINGS)
            wanted = ask.wanted if ask else ANY
            self._shapes.setdefault(wanted, []).append((size, count / number))

    def lost(self, cluster: Cluster, rows: Rows, free: Floats) -> Floats:
        """(rows): lost capacity in GPUs. free: (rows, columns), the free part of each GPU."""
        lost: Floats = np.zeros(len(free))
        for wanted, shapes in self._shapes.items():
            allowed = cluster.arrays.allowed(rows, wanted)
            usable: Floats = np.where(allowed, free, 0)
            lost += useless(usable, shapes)
            # GPUs that the pod may not use are lost to it, too.
            lost += sum(likely for _, likely in shapes) * (free - usable).sum(axis=1)
        return lost


def _size(pod: TracePod) -> float:
    """Return the size in GPUs: below one GPU each: the size of one share; else all, rounded up."""
    return pod.core / 100 if pod.core < 100 else -(-pod.core * pod.count // 100)
