"""One node, and what each pod holds of its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from vcuda_oci.model.allocation import GpuShare

from ..model.place import Placed
from ..model.tenancy import NO_TENANCY, Tenancy
from .objects import NodeFacts, PodFacts


@dataclass
class Assumed:
    """A pod that is being bound.

    bound: when (monotonic) the API server confirmed the binding, while its event is still expected;
    None: not confirmed yet.
    """

    placed: Placed
    bound: float | None = None


@dataclass
class Entry:
    """A node's state.

    holds: the shares of each pod, by its UID. answers: a cache for requests that the arrays cannot
    answer, by `Cluster.number`, cleared when the node changes: (reason, whether it never fits), or
    None where the pod fits. slices: the GPUs of each named slice on this node.
    """

    facts: NodeFacts
    row: int
    holds: dict[str, list[GpuShare]] = field(default_factory=dict)
    answers: dict[int, tuple[str, bool] | None] = field(default_factory=dict)
    slices: dict[str, set[str]] = field(default_factory=dict)

    _sums: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def taken(self) -> list[GpuShare]:
        """The sum of all shares, one for each GPU that is held at least in part."""
        return [GpuShare(uuid, memory, core) for uuid, (core, memory) in self._sums.items()]

    def taken_without(self, removed: Collection[str]) -> list[GpuShare]:
        return [share for uid, each in self.holds.items() if uid not in removed for share in each]

    def taken_of(self, uids: Collection[str]) -> list[GpuShare]:
        return [share for uid in uids for share in self.holds.get(uid, ())]

    def hold(self, uid: str, shares: list[GpuShare]) -> None:
        """Replace what the pod holds."""
        self.release(uid)
        self.holds[uid] = shares
        self._count(shares, 1)

    def release(self, uid: str) -> bool:
        """Drop what the pod holds; return whether the pod was known here."""
        shares = self.holds.pop(uid, None)
        self._count(shares or [], -1)
        return shares is not None

    def release_all(self) -> None:
        self._sums.clear()
        self.holds.clear()

    def _count(self, shares: list[GpuShare], times: int) -> None:
        for share in shares:
            core, memory = self._sums.get(share.uuid, (0, 0))
            left = core + times * share.core_percent, memory + times * share.memory_bytes
            if any(left):
                self._sums[share.uuid] = left
            else:
                self._sums.pop(share.uuid, None)

    def tenants(
        self, pods: Mapping[str, PodFacts], removed: Collection[str] = ()
    ) -> dict[str, list[Tenancy]]:
        """Return the labels of the pods on each held GPU, by UUID. removed: UIDs to leave out."""
        found: dict[str, list[Tenancy]] = {}
        for uid, shares in self.holds.items():
            if uid not in removed:
                pod = pods.get(uid)
                tenancy = pod.ask.tenancy if pod and pod.ask else NO_TENANCY
                for share in shares:
                    found.setdefault(share.uuid, []).append(tenancy)
        return found
