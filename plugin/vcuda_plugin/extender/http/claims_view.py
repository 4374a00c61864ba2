"""What the cluster page shows of DRA: the shares of claims, and claims that wait and why. Pure.

A viewer sees the names of claims that it may list; what others hold is part of a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from vcuda_hook.claims.objects import Claim, Device, amounts
from vcuda_hook.claims.room import NOT_JUDGED, Room, Verdict

from .viewer_rights import Sight


class ClaimsView:
    """claims, devices: of the cluster."""

    def __init__(self, claims: Sequence[Claim], devices: Iterable[Device], sight: Sight) -> None:
        self._claims, self._sight = claims, sight
        devices = list(devices)
        self._room = Room(devices, claims)
        gpus = {(each.node, each.name): each for each in devices}
        # Node and UUID of each share, with its claim, or None where the viewer does not see it.
        self._shares: dict[tuple[str, str], list[tuple[Claim | None, int, int]]] = {}
        for claim in claims:
            for held in claim.held or ():
                device = gpus.get((held.node, held.device))
                if device is None:
                    continue
                share = claim if self._sees(claim) else None, *amounts(held, device)
                self._shares.setdefault((held.node, device.uuid), []).append(share)
        self._judged: dict[object, Verdict | None] = {}

    @property
    def nodes(self) -> set[str]:
        """Nodes on which claims that the viewer sees have shares."""
        return {node for (node, _), its in self._shares.items() if any(each[0] for each in its)}

    @property
    def waiting(self) -> list[Claim]:
        return [each for each in self._claims if each.held is None and self._sees(each)]

    def shares(self, node: str, uuid: str) -> list[dict[str, Any]]:
        """As cluster_view has the shares of pods."""
        return [
            {
                "namespace": claim.namespace,
                "pod": ", ".join(claim.pods) or claim.name,
                "claim": claim.name,
                "core_percent": core,
                "memory_bytes": memory,
                "being_bound": False,
            }
            for claim, core, memory in self._shares.get((node, uuid), ())
            if claim
        ]

    def held(self, node: str, uuid: str, *, unseen: bool) -> tuple[int, int]:
        """Cores and memory that claims hold. unseen: only those that the viewer does not see."""
        found = [
            (core, memory)
            for claim, core, memory in self._shares.get((node, uuid), ())
            if not (unseen and claim)
        ]
        return sum(core for core, _ in found), sum(memory for _, memory in found)

    def verdict(self, claim: Claim) -> Verdict | None:
        """Why it waits, by node; None: it cannot be judged."""
        key = claim.asked, claim.distinct
        if key not in self._judged:
            self._judged[key] = self._room.judge(claim)
        return self._judged[key]

    def note(self, claim: Claim) -> str:
        """What the page says beside the reasons."""
        verdict = self.verdict(claim)
        if verdict is None:
            return NOT_JUDGED
        return "" if verdict.exact else "its selectors are not judged here"

    @property
    def offering(self) -> Collection[str]:
        """Nodes that offer GPUs by DRA."""
        return self._room.nodes.keys()

    def _sees(self, claim: Claim) -> bool:
        return self._sight.claims and self._sight.sees(claim.namespace)
