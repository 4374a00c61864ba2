"""Waits for news before a pod is refused: kube-scheduler may know more than our own watches.

kube-scheduler asks for a waiting pod because of an event, and the call may come before our watch
has brought that event. Refused then, the pod waits for another event, or for five minutes. Source:
Kubernetes 1.36, pkg/scheduler/backend/queue, "podMaxInUnschedulablePodsDuration". So a refusal
waits a moment for a change of what is known. kube-scheduler waits with it and places no other pod
meanwhile: the waits take at most a fifth of the time, and a busy cluster's next event comes soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..cluster.cluster import Cluster
from .fit import Verdict

# Seen on a machine with a load of 30: up to 0.06.
WAIT_SECONDS = 0.25
_STEP_SECONDS = 0.01
_REST = 4.0


class Patience:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rests_until = 0.0

    async def found(self, find: Callable[[], Verdict]) -> Verdict:
        """What `find` returns, asked again after each change until a node fits."""
        began, seen = time.monotonic(), self._cluster.changes
        verdict = find()
        if verdict.fitting or began < self._rests_until:
            return verdict
        while not verdict.fitting and time.monotonic() < began + WAIT_SECONDS:
            await asyncio.sleep(_STEP_SECONDS)
            if self._cluster.changes != seen:
                seen = self._cluster.changes
                verdict = find()
        now = time.monotonic()
        self._rests_until = now + _REST * (now - began)
        return verdict
