"""One GPU and its containers: from their usage pages to the rate that each is due."""

from __future__ import annotations

from collections.abc import Sequence

from .container_pages import ContainerPages
from .demand import reading
from .rates import WHOLE_PPM, Tenant, grants


class SharedGpu:
    """ids: of its containers. active: one of them wants or uses the GPU. rests: while no page
    changes, a sample would find the same as the last one.
    """

    def __init__(self, sharing: Sequence[tuple[str, ContainerPages, int]]) -> None:
        self._parts = [
            (id, pages, at, pages.demands[at], Tenant(pages.allocation.shares[at], wants=False))
            for id, pages, at in sharing
        ]
        self._tenants = [tenant for *_, tenant in self._parts]
        self.ids = frozenset(id for id, *_ in self._parts)
        self.active, self.rests, self._is_new = True, False, True

    def sample(self, now_ns: int) -> dict[str, ContainerPages]:
        """Return the containers, by id, with a new due rate."""
        awake, left_ppm, some_hide = [], WHOLE_PPM, False
        for part in self._parts:
            _, pages, at, demand, _ = part
            # A container at rest with an unchanged page uses nothing and was judged so.
            if pages.is_off:
                demand.see(None)
                awake.append(part)
            elif pages.moved or not demand.rests:
                demand.see(reading(pages.seen, at, pages.read_ns))
                left_ppm -= demand.used_ppm
                some_hide = some_hide or demand.hides_work
                awake.append(part)
        is_other, self._is_new = self._is_new, False
        for _, pages, at, demand, tenant in awake:
            wants, used_ppm = demand.judge(left_ppm, some_hide, pages.rates[at], now_ns)
            # A container's use matters only while it wants no more.
            if wants != tenant.wants or (used_ppm != tenant.used_ppm and not wants):
                tenant.wants, tenant.used_ppm, is_other = wants, used_ppm, True
        if is_other:
            self.active = any(tenant.wants or tenant.used_ppm for tenant in self._tenants)
        self.rests = not self.active and all(
            pages.is_off or demand.rests for _, pages, _, demand, _ in self._parts
        )
        return self._make_due(grants(self._tenants)) if is_other else {}

    def _make_due(self, rates: Sequence[int]) -> dict[str, ContainerPages]:
        changed = {}
        for (id, pages, at, _, _), rate in zip(self._parts, rates):
            if pages.due[at] != rate or pages.is_new:
                pages.due[at] = rate
                changed[id] = pages
        return changed
